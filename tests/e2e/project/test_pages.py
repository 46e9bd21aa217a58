"""Runs the shell examples of the README and of the pages about the interface unchanged, and checks
the pages' tables against the server."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from loading import ModelTest, kept_request
from onnx_writer import UINT8, field, message, model, node, value_info
from pages import blocks, blur
from quantd import ROOT, SLOW, ServerTest

INTERFACE = ROOT / "api_schema" / "README.md"
PAGES = (ROOT / "README.md", INTERFACE, ROOT / "api_schema" / "loading.md")
TOUR = (ROOT / "server" / "README.md").read_text()


@unittest.skipIf(shutil.which("curl") is None, "curl is not installed")
class Examples(ServerTest):
    FLAGS = ("--model-control-mode", "explicit", "--load-model", "digits",
             "--model-repository", str(ROOT / "tests" / "demo" / "digits" / "models"))

    def test_curl_examples(self):
        for page in PAGES:
            done = 0
            for block in blocks(page.read_text()):
                self.check_repository(block.code)
                if block.language == "sh" and "curl" in block.code:
                    with self.subTest(page=page.relative_to(ROOT), commands=block.code):
                        self.run_block(block.code, block.expected)
                        done += 1
            self.assertGreaterEqual(done, 2, page)

    def check_repository(self, command):
        """A server that a page starts with files of the project has what this class's has."""
        if "--model-repository tests/" in command:
            self.assertEqual(str(ROOT / command.split()[-1]), self.FLAGS[-1])

    def run_block(self, commands, expected):
        commands = commands.replace("http://127.0.0.1:8000", self.server.addresses[0])
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "build").mkdir()
            Path(folder, "tests").symlink_to(ROOT / "tests")
            result = subprocess.run(["sh", "-euc", commands], cwd=folder, text=True,
                                    stdin=subprocess.DEVNULL, capture_output=True,
                                    timeout=20 * SLOW, env=dict(os.environ), check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(blur(result.stdout), blur(expected))

    def test_endpoints_table(self):
        rows = re.findall(r"^\| `(GET|POST) (/[^`]*)` \|", INTERFACE.read_text(), re.MULTILINE)
        self.assertGreaterEqual(len(rows), 10)
        for method, path in rows:
            with self.subTest(method=method, path=path):
                path = path.replace("[/versions/V]", "").replace("M", "onnx.QLinearConv", 1)
                path = path.replace("/N/", "/layer/")
                body = json.dumps(kept_request([1, 2])) if path.endswith("/load") else None
                answer = self.server.request(method, path, body)
                # An inference without a body gets a 400, which is an answer of the endpoint itself.
                self.assertIn(answer.status, (200, 400) if path.endswith("/infer") else (200,))
                self.assertEqual(self.server.request("PUT", path).status, 405)


class GraphOperators(ModelTest):
    """loading.md's table of operators against the registry, and its opsets against the server."""

    PREFIX = {"ONNX": "onnx", "com.microsoft": "microsoft"}

    def rows(self):
        """Yields (domain, operator, opsets, endpoint)."""
        domain = None
        page = (ROOT / "api_schema" / "loading.md").read_text()
        for row in re.findall(r"^\| ([\w.]*) ?\| (\w+) \| ([\w ]+) \| (yes)? ?\|", page,
                              re.MULTILINE):
            domain = row[0] or domain
            if domain in self.PREFIX:
                yield (domain,) + row[1:]

    def test_has_every_operator(self):
        text = (ROOT / "kernels" / "operators" / "registry.c").read_text()
        words = set(re.findall(r"&qk_((?:onnx|microsoft)_\w+)", text))
        words |= {"microsoft_" + name for name in re.findall(r'\{"com.microsoft.(\w+)"', text)}
        found = ["%s_%s" % (self.PREFIX[domain], name) for domain, name, _, _ in self.rows()]
        self.assertEqual(sorted(name.replace("_", "").lower() for name in words),
                         sorted(name.replace("_", "").lower() for name in found))

    def test_endpoints(self):
        for domain, name, _, endpoint in self.rows():
            with self.subTest(name=name):
                prefix = domain.lower() + "."
                status = self.server.request("GET", "/v2/models/" + prefix + name).status
                self.assertEqual(status, 200 if endpoint else 404)

    def test_opsets(self):
        for domain, name, opsets, _ in self.rows():
            own = domain == "ONNX"
            if not own and name in ("QuantizeLinear", "DequantizeLinear"):
                continue  # of no other version is this a name of ONNX's operator
            one = node(name, ["x"], ["y"]) + (b"" if own else field(7, domain))
            file = model(999 if own else 25, [one], [], [value_info("x", UINT8, [1])],
                         [value_info("y", UINT8, [1])])
            file += field(8, message((1, domain), (2, 999)))
            with self.subTest(name=name):
                first, _, last = opsets.partition(" to ")
                answer = self.load_files("file", model_onnx=file)
                self.assertIn("expected an opset from %s to %s," % (first, last or first),
                              answer.json()["error"])


class Readme(unittest.TestCase):
    """A new reader sees a first answer on the first screen, and the page is short."""

    TEXT = (ROOT / "README.md").read_text()

    def test_first_answer(self):
        first_screen = "\n".join(self.TEXT.splitlines()[:45])
        for words in ("make demo", "make test", "\ncurl ", '"data":[0,0,0,0,0,0,0,0.99609375,0,0]',
                      "build/quantd --model NAME=FILE"):
            self.assertIn(words, first_screen)
        self.assertLessEqual(len(self.TEXT.splitlines()), 165)

    def test_pictures(self):
        pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", self.TEXT)
        self.assertIn("tests/console/console.jpg", pictures)
        for picture in pictures:
            self.assertLess((ROOT / picture).stat().st_size, 150 << 10, picture)


class Pasted(unittest.TestCase):
    """Python's prompt ends a block that is indented at an empty line."""

    def test_no_empty_line_within_indented_code(self):
        pages = [page for page in ROOT.rglob("*.md")
                 if page.relative_to(ROOT).parts[0] in ("api_schema", "docker", "server", "tests")]
        self.assertGreater(len(pages), 10)
        for page in pages:
            for block in blocks(page.read_text()):
                if block.language == "python":
                    with self.subTest(page=page.relative_to(ROOT)):
                        self.assertNotRegex(block.code, r"\n\n+[ )\]}]")


class Tour(unittest.TestCase):
    def test_every_path_exists(self):
        text = TOUR + "".join(page.read_text() for page in PAGES)
        for path in re.findall(r"`((?:server|kernels|tests|api_schema|\.ci)/[\w./-]*)`", text):
            with self.subTest(path=path):
                self.assertTrue((ROOT / path).exists() or list(ROOT.glob(path + ".*")), path)

    def test_every_server_file_is_on_the_tour(self):
        server = ROOT / "server"
        named = re.findall(r"`([\w/]+\.[ch])`", TOUR)
        for path in named:
            with self.subTest(path=path):
                self.assertTrue((server / path).exists(), path)
        files = [str(file.relative_to(server)) for file in server.rglob("*.c")]
        self.assertGreater(len(files), 50)
        self.assertEqual([file for file in files if file not in named], [])


class Bench(unittest.TestCase):
    def test_a_ratio_that_misses_its_bound_does_not_look_as_if_it_met_it(self):
        calls = ("ratio_text(1.1974, 1.2)", "ratio_text(1.2, 1.2)", "ratio_text(1.08, 1.2)",
                 "ratio_text(1.2501, 1.25, False)", "bold_below('%.2f ×', 0.9968, 1)",
                 "bold_above('%.1f', 3.01, 3)")
        program = ("import sys; sys.path.insert(0, 'tests/bench'); from figures import *; "
                   "print(%s, sep=';')" % ", ".join(calls))
        printed = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, text=True,
                                 capture_output=True, timeout=30 * SLOW).stdout
        self.assertEqual(printed, "1.197;1.20;1.08;1.2501;**0.997 ×**;**3.01**\n")


if __name__ == "__main__":
    unittest.main()
