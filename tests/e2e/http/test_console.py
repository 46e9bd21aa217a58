"""The page at / as bytes: its contents, and what its headers let a browser do. tests/console/ tests
how it behaves in a browser."""
import base64
import hashlib
import json
import re
import tempfile
import unittest

from loading import chain_file
from quantd import ROOT, Server, ServerTest

FOLDER = ROOT / "server" / "console"
PAGE_BYTES_MAX = 100_000  # the page is sent uncompressed, and people read its source


def sha256(text):
    return "sha256-" + base64.b64encode(hashlib.sha256(text).digest()).decode()


class Page(ServerTest):
    def setUp(self):
        self.page = self.server.get("/")

    def test_page(self):
        self.assertEqual(self.page.status, 200)
        self.assertEqual(self.page.headers["Content-Type"], "text/html; charset=utf-8")
        self.assertEqual(self.page.headers["X-Content-Type-Options"], "nosniff")
        self.assertEqual(self.page.headers["Referrer-Policy"], "no-referrer")
        self.assertEqual(self.page.headers["Cache-Control"], "no-cache")
        self.assertTrue(self.page.body.startswith(b"<!DOCTYPE html>"))
        self.assertTrue(self.page.body.endswith(b"</html>\n"))
        self.assertLess(len(self.page.body), PAGE_BYTES_MAX)

    def test_all_files_are_in_it(self):
        for path in FOLDER.iterdir():
            if path.suffix != ".html":
                self.assertEqual(self.page.body.count(path.read_bytes()), 1, path.name)

    def test_names_nothing_outside(self):
        urls = set(re.findall(rb"https?://[^\s\"')]+", self.page.body))
        # An XML namespace, which a browser does not fetch.
        self.assertEqual(urls, {b"http://www.w3.org/2000/svg"})

    def test_policy_is_that_of_this_page(self):
        policy = dict(part.strip().split(" ", 1) for part in
                      self.page.headers["Content-Security-Policy"].split(";"))
        (style,) = re.findall(rb"<style>(.*?)</style>", self.page.body, re.S)
        (script,) = re.findall(rb"<script>(.*?)</script>", self.page.body, re.S)
        self.assertEqual(policy, {
            "default-src": "'none'", "connect-src": "'self'", "img-src": "data: blob:",
            "script-src": "'%s'" % sha256(script), "style-src": "'%s'" % sha256(style),
            "base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'",
            "require-trusted-types-for": "'script'"})

    def test_head(self):
        head = self.server.request("HEAD", "/")
        self.assertEqual((head.status, head.body), (200, b""))
        for name in ("Content-Length", "ETag", "Content-Security-Policy"):
            self.assertEqual(head.headers[name], self.page.headers[name])

    def test_not_modified(self):
        tag = self.page.headers["ETag"]
        self.assertRegex(tag, r'^"[0-9A-Za-z+/]{43}="$')
        for asked, status in ((tag, 304), ("W/" + tag, 304), ('"a", ' + tag, 304), ("*", 304),
                              ('"a"', 200), ("", 200)):
            answer = self.server.request("GET", "/", headers={"If-None-Match": asked})
            self.assertEqual(answer.status, status, asked)
            self.assertEqual(answer.headers["ETag"], tag)
            self.assertEqual(answer.body, b"" if status == 304 else self.page.body)
            # RFC 9110, 8.6: a 304 has the length that the page would have, or no length.
            self.assertEqual(answer.headers["Content-Length"], str(len(self.page.body)))

    def test_other_methods(self):
        answer = self.server.request("POST", "/", b"{}")
        self.assert_error(answer, 405, "GET, HEAD")
        self.assertEqual(answer.headers["Allow"], "GET, HEAD")


class Off(unittest.TestCase):
    def test_flag_and_variable(self):
        for flags, env, status in (((), {}, 200), (("--no-console",), {}, 404),
                                   (("--console", "off"), {}, 404),
                                   ((), {"QUANTD_CONSOLE": "off"}, 404),
                                   (("--console=on",), {"QUANTD_CONSOLE": "off"}, 200)):
            server = Server(*flags, env=env)
            try:
                self.assertEqual(server.get("/").status, status, (flags, env))
            finally:
                server.stop()


class Tokens(unittest.TestCase):
    """The page itself contains no secret and needs no token; otherwise a user could not type the
    token."""

    def test_page_is_open_and_nothing_else(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("a-token-of-more-than-32-characters\n")
            file.flush()
            for flags, status in (((), 200), (("--no-console",), 401)):
                server = Server("--token-file", file.name, *flags)
                try:
                    self.assertEqual(server.get("/").status, status)
                    self.assertEqual(server.get("/v2").status, 401)
                    self.assertEqual(server.get("/metrics").status, 401)
                finally:
                    server.stop()


class Properties(ServerTest):
    """The metadata has the server's properties that the page shows."""

    FLAGS = ("--threads", "3", "--max-body-bytes", "5M", "--idle-timeout", "1.5",
             "--model-control-mode", "explicit")

    def test_server(self):
        properties = self.server.get("/v2").json()["properties"]
        for name, value in (("threads", "3"), ("max-body-bytes", str(5 << 20)),
                            ("idle-timeout", "1.5"), ("console", "on"),
                            ("model-control-mode", "explicit")):
            self.assertEqual(properties[name], value)
        self.assertIn("This machine\n  CPU", properties["kernels"])
        self.assertNotIn("auto", properties.values())
        for name in ("token-file", "tls-key", "model-repository", "listen"):
            self.assertNotIn(name, properties)

    def test_bytes_of_a_model(self):
        body = {"parameters": {"file:1/model.onnx": base64.b64encode(chain_file()).decode()}}
        answer = self.server.request("POST", "/v2/repository/models/layer/load",
                                     json.dumps(body).encode())
        self.assertEqual(answer.status, 200, answer.body)
        loaded = self.server.get("/v2/models/layer").json()["properties"]
        self.assertGreater(int(loaded["bytes"]), 1000)
        built_in = self.server.get("/v2/models/onnx.QLinearConv").json()["properties"]
        self.assertNotIn("bytes", built_in)


if __name__ == "__main__":
    unittest.main()
