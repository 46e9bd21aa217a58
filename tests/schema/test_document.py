"""The document itself: valid, linted, complete, and consistent with the files beside it."""
import json
import re
import subprocess
import unittest

from openapi_spec_validator import OpenAPIV31SpecValidator

import make_json
from contract import DOCUMENT, EXAMPLES, METHODS, accepts, request_schema, resolve
from quantd import ROOT, Server

HERE = ROOT / "tests" / "schema"


def references(node):
    if isinstance(node, dict):
        for key, part in node.items():
            if key == "$ref":
                yield part
            elif key == "mapping":
                yield from part.values()
            else:
                yield from references(part)
    elif isinstance(node, list):
        for part in node:
            yield from references(part)


class Document(unittest.TestCase):
    def test_valid(self):
        errors = [error.message for error in OpenAPIV31SpecValidator(DOCUMENT).iter_errors()]
        self.assertEqual(errors, [])

    def test_lint(self):
        linter = ROOT / "build" / "schema" / "node_modules" / ".bin" / "redocly"
        result = subprocess.run(
            [linter, "lint", "--config", HERE / "redocly.yaml", "api_schema/openapi.yaml"],
            cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("Your API description is valid", result.stdout + result.stderr)

    def test_json_is_not_stale(self):
        self.assertFalse(make_json.is_stale(), "openapi.json: run make schema")

    def test_version_is_the_program_s(self):
        header = (ROOT / "server" / "base" / "version.h").read_text()
        version = re.search(r'#define QD_VERSION "(.*)"', header).group(1)
        self.assertEqual(DOCUMENT["info"]["version"], version)

    def test_every_component_is_used(self):
        used = set(references(DOCUMENT))
        used |= {"#/components/securitySchemes/" + name
                 for scheme in DOCUMENT["security"] for name in scheme}
        unused = ["%s/%s" % (kind, name) for kind, parts in DOCUMENT["components"].items()
                  for name in parts if "#/components/%s/%s" % (kind, name) not in used]
        # OpenAPI describes operations only. These answers belong to any path, or to no operation.
        self.assertEqual(unused, ["responses/Unreadable", "responses/MethodNotAllowed"])

    def test_paths_are_the_server_s_routes(self):
        """Every route is described, and every description has a route. An operator's own paths are
        the generic ones with the names filled in."""
        source = (ROOT / "server" / "http" / "api" / "route.c").read_text()
        routes = set(re.findall(r'\{"(GET|POST)", "([^"]+)", \.\w+ = \w+\}', source))
        described = set()
        for path, item in DOCUMENT["paths"].items():
            path = re.sub(r"\{(model|region)\}", "{m}", path).replace("{version}", "{v}")
            path = re.sub(r"/models/[\w.]+\.\w+/", "/models/{m}/", path)
            path = re.sub(r"/versions/\d+/", "/versions/{v}/", path)
            described |= {(method.upper(), path) for method in METHODS if method in item}
        self.assertEqual(described, routes)


class Quoted(unittest.TestCase):
    """The examples in the document are the ones that tests/e2e/examples.py loads."""

    def test_requests(self):
        shown = 0
        for name, example in DOCUMENT["components"]["examples"].items():
            with self.subTest(name=name):
                self.assertEqual(example["summary"], EXAMPLES[name]["about"])
                if name.startswith("ok_"):
                    self.assertEqual(json.dumps(example["value"], sort_keys=True),
                                     json.dumps(EXAMPLES[name]["request"], sort_keys=True))
                    shown += 1
        self.assertGreaterEqual(shown, 14)

    def test_errors(self):
        """The document has the server's errors for bad examples, word by word."""
        server = Server()
        self.addCleanup(server.stop)
        for name, shown in DOCUMENT["components"]["examples"].items():
            if not name.startswith("bad_"):
                continue
            with self.subTest(name=name):
                example = EXAMPLES[name]
                body = example["request"] if "request" in example else example["body"].encode()
                answer = server.infer(example["model"], body, example.get("version"))
                self.assertEqual(answer.status, example["expect"]["status"])
                self.assertEqual(answer.json(), shown["value"])

    def test_they_stand_where_they_fit(self):
        for path, item in DOCUMENT["paths"].items():
            body = resolve(item.get("post", {}).get("requestBody", {}))
            content = body.get("content", {}).get("application/json", {})
            for name in content.get("examples", {}):
                with self.subTest(path=path, name=name):
                    schema, _ = request_schema(*re.fullmatch(
                        r"/v2/models/([^/]+)(?:/versions/(\d+))?/infer", path).groups())
                    self.assertTrue(accepts(schema, EXAMPLES[name]["request"]))

    def test_every_version_has_one(self):
        for path in DOCUMENT["paths"]:
            if re.fullmatch(r"/v2/models/[\w.]+\.\w+(/versions/\d+)?/infer", path):
                body = resolve(DOCUMENT["paths"][path]["post"]["requestBody"])
                self.assertTrue(body["content"]["application/json"].get("examples"), path)


class Served(unittest.TestCase):
    def test_files(self):
        server = Server()
        self.addCleanup(server.stop)
        for name, kind in (("openapi.yaml", "application/yaml"),
                           ("openapi.json", "application/json")):
            answer = server.get("/" + name)
            self.assertEqual((answer.status, answer.headers["Content-Type"]), (200, kind))
            self.assertEqual(answer.body, (ROOT / "api_schema" / name).read_bytes())
            head = server.request("HEAD", "/" + name)
            self.assertEqual((head.status, head.body), (200, b""))
            self.assertEqual(head.headers["Content-Length"], str(len(answer.body)))


if __name__ == "__main__":
    unittest.main()
