"""Provokes every status of every operation on live servers, and the statuses that no path
describes."""
import collections
import json
import os
import re
import tempfile
import time
import unittest

from contract import (DOCUMENT, EXAMPLES, METHODS, answer_problem, header_problem, operation,
                      resolve)
from examples import LENGTH, example_request
from loading import kept_request
from quantd import Answer, Reader, Server, ServerTest, exchange, infer_path

BODY_BYTES_MAX = 1 << 20

MEMORY_BYTES = 1 << 20  # of the server that is to have none left

SCRAPES_WITHOUT_MEMORY = 16  # at a time, as QD_SCRAPE_RESERVED_COUNT says

SHARED = "quantd-schema-%d" % os.getpid()  # a shared memory object

# The fields of a head after the request line, and the status that they get on any path.
HEADS = {
    "": 400,
    "Host: a\r\nHost: b": 400,
    "Host: a\r\nX: \x01": 400,
    "Host: a\r\nContent-Length: 1\r\nContent-Length: 1": 400,
    "Host: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked": 400,
    "Host: a\r\n%s: 1\r\n%s: 1" % (LENGTH, LENGTH): 400,
    "Host: a\r\nContent-Length: 99999999999": 413,
    "Host: a\r\nTransfer-Encoding: gzip": 501,
    "Host: a\r\nTransfer-Encoding: gzip, chunked": 501,
}

# Heads that any libmicrohttpd answers by itself, and their statuses.
UNREADABLE = {
    "Host: a\r\nX y": 400,
    "Host: a\r\nContent-Length: x": 400,
    "Host: a\r\nContent-Length: -1": 400,
    "Host: a\r\nTransfer-Encoding: chunked\r\n\r\nx": 400,
    "Host: a\r\nContent-Length: 18446744073709551616": 413,
    "Host: a\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000": 413,
    "Host: a\r\nX: " + "a" * 40000: 431,
    "Host: a\r\n" + "X: y\r\n" * 3000: 431,
}


def operations():
    """Yields (method, template, path). The names in the path exist."""
    for template, item in DOCUMENT["paths"].items():
        model = "layer" if is_loading(template) else "onnx.QLinearConv"
        path = template.replace("{model}", model).replace("{version}", "10")
        for method in METHODS:
            if method in item:
                kind = "r" if template.endswith("/register") else "kept"
                yield method.upper(), template, path.replace("{region}", kind)


def is_inference(template):
    return template.endswith("/infer")


def is_loading(template):
    return template.endswith(("/load", "/unload"))


def unknown(template):
    """Yields the path with a model, a version or a region that does not exist."""
    if "{model}" in template:
        yield template.replace("{model}", "x").replace("{version}", "10")
    if "{version}" in template:
        yield template.replace("{model}", "onnx.QLinearConv").replace("{version}", "17x")
    if template.endswith("/region/{region}/status"):
        yield template.replace("{region}", "unknown")


def good_request(template):
    """Returns (body, headers) of an example that the path shows. Paths without examples need no
    body."""
    if template.endswith("/load"):
        return json.dumps(kept_request([1, 2])), {}
    if template == "/v2/systemsharedmemory/region/{region}/register":
        return json.dumps({"key": "/" + SHARED, "byte_size": 4096}), {}
    if not is_inference(template):
        return None, {}
    content = resolve(operation("post", template)["requestBody"])["content"]
    names = content["application/json"].get("examples", ["ok_conv_2d"])
    return example_request(EXAMPLES[next(iter(names))])


def raw(server, method, path, fields):
    """Sends a head as it is written here, and returns the answer."""
    reader = Reader(server.connect())
    try:
        reader.connection.sendall(("%s %s HTTP/1.1\r\n%s\r\n\r\n"
                                   % (method, path, fields)).encode())
        return reader.answer()
    finally:
        reader.close()


def unreadable_problem(answer, status):
    """Returns None if the answer is as described once for all paths, otherwise the problem."""
    headers = DOCUMENT["components"]["responses"]["Unreadable"]["headers"]
    if answer.status != status:
        return "expected status %d, got %d" % (status, answer.status)
    more = set(answer.headers) - {"Date", "Content-Length", "Content-Type", *headers}
    if more or answer.headers["Content-Type"] != "application/json":
        return "not as described: %s, %s" % (more, answer.headers["Content-Type"])
    if list(answer.json()) != ["error"]:
        return "no error: %s" % answer.body
    return header_problem(answer.headers, "Connection", headers["Connection"])


def empty_lists(node, path=()):
    """Yields (path, list) for each empty list of a tree. Elements of a list have the same path,
    because they have the same schema."""
    if node == []:
        yield path, node
    for key, part in node.items() if isinstance(node, dict) else (
            [("[]", part) for part in node] if isinstance(node, list) else []):
        yield from empty_lists(part, (*path, key))


def longer_lists(tree):
    """Yields an answer once for each path to empty lists, with one of these no longer empty."""
    for part in dict(empty_lists(tree)).values():
        part.append({})
        yield tree
        part.clear()


class Statuses(ServerTest):
    """An operation answers only what it describes, and describes only what it can answer."""

    FLAGS = ("--max-body-bytes", str(BODY_BYTES_MAX), "--model-control-mode", "explicit",
             "--allow-shared-memory", SHARED)

    def setUp(self):
        self.seen = collections.defaultdict(set)
        with open("/dev/shm/" + SHARED, "wb") as file:
            file.write(bytes(4096))
        self.addCleanup(os.unlink, "/dev/shm/" + SHARED)

    def keep_a_region(self):
        """Registers a region for the paths that ask about one. Other paths unregister it."""
        self.server.request("POST", "/v2/systemsharedmemory/region/kept/register",
                            json.dumps({"key": "/" + SHARED, "byte_size": 4096}))

    def check(self, method, template, answer, status):
        self.assertEqual(answer.status, status, answer.body[:300])
        self.assertIsNone(answer_problem(method, template, answer))
        self.seen[method, template].add(str(status))

    def of_each(self, function):
        for method, template, path in operations():
            if "/region/" in template and method == "GET":
                self.keep_a_region()
            with self.subTest(method=method, path=template):
                function(method, template, path)

    def try_names_and_bodies(self, method, template, path):
        body, headers = good_request(template)
        answer = self.server.request(method, path, body, headers)
        good = 200 if "200" in operation(method, template)["responses"] else 501
        self.check(method, template, answer, good)
        if good == 501:
            return
        for other in unknown(template):
            self.check(method, template, self.server.request(method, other), 404)
        answer = self.server.request(method, path, body,
                                     dict(headers, **{"Content-Encoding": "br"}))
        self.check(method, template, answer,
                   415 if "415" in operation(method, template)["responses"] else 200)

    def try_heads(self, method, template, path):
        for fields, status in HEADS.items():
            self.check(method, template, raw(self.server, method, path, fields), status)
        answer = self.server.request(method, path, iter([bytes(BODY_BYTES_MAX), b"1"]))
        has_success = "200" in operation(method, template)["responses"]
        self.check(method, template, answer, 413 if has_success else 501)

    def leave_unread(self, server, path):
        """Sends requests without reading until the server cannot send an answer."""
        client = server.connect()
        self.addCleanup(client.close)
        client.settimeout(0.2)
        request = ("GET %s HTTP/1.1\r\nHost: a\r\n\r\n" % path).encode()
        try:
            while True:
                client.send(1000 * request)
        except TimeoutError:
            pass

    def try_without_memory(self):
        """Checks that a request that needs memory for its answer gets a 503."""
        server = Server("--max-inflight-bytes", str(MEMORY_BYTES), "--min-rate", "0",
                        "--allow-shared-memory", SHARED)
        self.addCleanup(server.stop)
        kept = server.request("POST", "/v2/systemsharedmemory/region/kept/register",
                              json.dumps({"key": "/" + SHARED, "byte_size": 4096}))
        self.assertEqual(kept.status, 200, kept.body)
        # Small enough for a block that other requests may not revoke, and that is taken whole when
        # the head has come.
        count = 16000

        def begin():
            reader = Reader(server.connect())
            self.addCleanup(reader.close)
            reader.connection.sendall(
                ("POST %s HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: %d"
                 "\r\n\r\n" % (infer_path("onnx.QLinearConv"), count)).encode())
            return reader, reader.answer().status

        for _ in range(SCRAPES_WITHOUT_MEMORY):
            self.leave_unread(server, "/metrics")
        for _ in range(1 + MEMORY_BYTES // count):
            reader, status = begin()
            if status == 503:
                break
            reader.connection.sendall(bytes(count - 1))
        self.assertEqual(status, 503)
        self.assertEqual(server.get("/v2").status, 503)

        def ask(method, template, path):
            answer = server.request(method, path)
            self.check(method, template, answer, answer.status)

        self.of_each(ask)

    def try_without_token(self):
        """Checks that health is open, and that all other paths describe the 401 and answer as usual
        with a token."""
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("some-token-0123456789\n")
            file.flush()
            server = Server("--token-file", file.name)
            self.addCleanup(server.stop)

            def ask(method, template, path):
                answer = server.request(method, path)
                if "401" in operation(method, template)["responses"]:
                    self.check(method, template, answer, 401)
                    self.assertEqual(operation(method, template).get("security"), None)
                else:
                    self.check(method, template, answer, 200)
                    self.assertEqual(operation(method, template)["security"], [])
                twice = raw(server, method, path, "Host: a" + 2 * "\r\nAuthorization: Bearer x")
                self.check(method, template, twice, 200 if answer.status == 200 else 400)

            self.of_each(ask)

    def try_console(self):
        """Checks the statuses that only the page has: the client already has it, it is off, or too
        many connections."""
        answer = self.server.request("GET", "/", headers={"If-None-Match": "*"})
        self.check("GET", "/", answer, 304)
        server = Server("--no-console", "--max-connections", "1")
        self.addCleanup(server.stop)
        self.check("GET", "/", server.get("/"), 404)
        client = server.client()
        self.addCleanup(client.close)
        while exchange(client, "GET", "/v2").status != 200:
            time.sleep(0.01)  # the first connection is not closed yet
        self.check("GET", "/", server.get("/"), 503)

    def try_draining(self):
        """Checks that a request on an open connection is still answered while the server drains,
        when it is no longer ready."""
        server = Server()
        clients = []
        for method, template, path in operations():
            client = server.connect()
            client.sendall(("%s %s HTTP/1.1\r\n" % (method, path)).encode())
            clients.append((method, template, Reader(client)))
        time.sleep(0.2)
        server.terminate()
        while "draining" not in server.stderr():
            time.sleep(0.01)
        for method, template, reader in clients:
            with self.subTest(method=method, path=template):
                reader.connection.sendall(b"Host: a\r\n\r\n")
                answer = reader.answer()
                self.check(method, template, answer, answer.status)
                reader.close()
        server.wait()

    def test_all(self):
        self.of_each(self.try_names_and_bodies)
        self.of_each(self.try_heads)
        self.try_without_memory()
        self.try_without_token()
        self.try_draining()
        self.try_console()
        self.of_each(lambda method, template, _: self.assertEqual(
            self.seen[method, template], set(operation(method, template)["responses"])))

    def test_refusals_of_inferences_are_the_same(self):
        """All inferences describe the same refusals. Only paths with a name to fill in have the
        404."""
        generic, *others = [operation(method, template)["responses"]
                            for method, template, _ in operations() if is_inference(template)]
        refusals = {status: response for status, response in generic.items() if status >= "400"}
        self.assertEqual(set(refusals), {"400", "401", "404", "413", "415", "501", "503"})
        self.assertGreater(len(others), 15)
        for responses in others:
            self.assertEqual({**refusals, **responses},
                             {**responses, "404": refusals["404"]})

    def test_what_is_always_empty(self):
        """The schema says which lists are always empty: it refuses an element in them."""
        tried = 0
        for method, template, path in operations():
            if method != "GET":
                continue
            answer = self.server.get(path)
            if answer.headers["Content-Type"] != "application/json" or "openapi" in path:
                continue
            for tree in longer_lists(answer.json()):
                body = json.dumps(tree).encode()
                self.assertIsNotNone(answer_problem(
                    method, template, Answer(answer.status, answer.headers, body)), tree)
                tried += 1
        self.assertGreaterEqual(tried, 7)


class Unreadable(ServerTest):
    """The answers to heads that cannot be read are described once."""

    def check(self, request, status):
        reader = Reader(self.server.connect())
        reader.connection.sendall(request.encode())
        answer = reader.answer()
        self.assertIsNone(unreadable_problem(answer, status))
        reader.file.read()  # up to the end of the connection
        reader.close()

    def test_all(self):
        for method, template, path in operations():
            for fields, status in UNREADABLE.items():
                with self.subTest(method=method, path=template, fields=fields[:60]):
                    self.check("%s %s HTTP/1.1\r\n%s\r\n\r\n" % (method, path, fields), status)
            for line, status in (("%s %s HTTP/2.0", 505), ("%s %s", 400), ("%s %s HTTP", 400),
                                 ("%%s %%s?%s HTTP/1.1" % ("a" * 40000), 414)):
                with self.subTest(method=method, path=template, line=line[:20]):
                    self.check(line % (method, path) + "\r\nHost: a\r\n\r\n", status)

    def test_blanks_in_the_path(self):
        answer = raw(self.server, "GET", "/v2 /x", "Host: a")
        if answer.status == 400:  # an answer of libmicrohttpd 1
            self.assertIsNone(unreadable_problem(answer, 400))
        else:
            self.assert_error(answer, 404, "/v2 /x")

    def test_statuses(self):
        """The description lists all of the statuses above and no others."""
        response = DOCUMENT["components"]["responses"]["Unreadable"]
        told = re.findall(r"^- (\d+): ", response["description"], re.MULTILINE)
        self.assertEqual(list(map(int, told)), sorted({*UNREADABLE.values(), 408, 414, 505}))
        self.assertEqual(sorted(response["headers"]), ["Connection", "Server-Timing"])
        self.assertIs(response["headers"]["Connection"]["required"], True)


if __name__ == "__main__":
    unittest.main()
