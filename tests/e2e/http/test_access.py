"""Access control: bearer tokens, and reloads of the token file."""
import json
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

from quantd import (COMMAND, ONE_IO_THREAD, SLOW, Reader, Server, ServerTest, StartTest, Tensor,
                    exchange, infer_path, json_request, parse_metrics, raw_request, run_threads)

MODEL = "onnx.DequantizeLinear"
BODY = json.dumps(json_request([Tensor.of("x", "UINT8", [2], [1, 2]),
                                Tensor.of("x_scale", "FP32", [], [0.5])])).encode()
TOKEN = "c2VydmVyLXRva2VuLW9uZQ=="
OTHER = "another-token.0123456789~+/"
FILE = "# tokens\n\n%s first\n%s\n" % (TOKEN, OTHER)


def bearer(token=TOKEN):
    return {"Authorization": "Bearer " + token}


class TokenTest(ServerTest):
    """A server with a file of two tokens, and helpers that read its log while it runs."""

    TEXT = FILE

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.file = Path(cls.folder.name, "tokens")
        cls.write(cls.TEXT)
        cls.server = Server("--token-file", str(cls.file), *cls.FLAGS)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.folder.cleanup()

    @classmethod
    def write(cls, text, mode=0o600):
        """Replaces the file in one step, as an editor or Kubernetes does."""
        new = cls.file.with_suffix(".new")
        new.write_text(text)
        new.chmod(mode)
        new.rename(cls.file)

    def reload(self, text, line, mode=0o600):
        """Writes the file, sends SIGHUP, and waits until the log has the line once more."""
        count = self.server.stderr().count(line)
        self.write(text, mode)
        self.server.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 10 * SLOW
        while self.server.stderr().count(line) == count:
            self.assertLess(time.monotonic(), deadline, self.server.stderr())
            time.sleep(0.005)

    def raw(self, lines, body=b""):
        """Sends these header lines as they are and returns the answer."""
        connection = self.server.connect()
        connection.sendall("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
        reader = Reader(connection)
        answer = reader.answer()
        reader.close()
        return answer

    def assert_refused(self, answer, error=None):
        self.assert_error(answer, 401, "header Authorization: expected")
        challenge = 'Bearer realm="quantd"' + (', error="%s"' % error if error else "")
        self.assertEqual(answer.headers.get_all("WWW-Authenticate"), [challenge])
        self.assertNotIn(TOKEN, answer.body.decode())


class Tokens(TokenTest):
    def test_with_a_token_all_is_as_ever(self):
        for token in (TOKEN, OTHER):
            answer = self.server.infer(MODEL, BODY, headers=bearer(token))
            self.assertEqual(answer.status, 200, answer.body)
            self.assertIsNone(answer.headers.get("WWW-Authenticate"))
        for path in ("/v2", "/metrics", "/openapi.yaml", "/v2/models/" + MODEL):
            self.assertEqual(self.server.request("GET", path, headers=bearer()).status, 200)
        self.assert_error(self.server.request("GET", "/nope", headers=bearer()), 404)

    def test_without_nothing_is_told(self):
        for method, path in (("GET", "/v2"), ("GET", "/metrics"), ("GET", "/openapi.yaml"),
                             ("GET", "/nope"), ("GET", "/v2/models/nope"), ("GET", "/%zz"),
                             ("PUT", "/v2"), ("OPTIONS", "/v2"), ("GET", "/v2/health"),
                             ("GET", "/v2/health/live/x"), ("GET", "//v2/health/live"),
                             ("GET", "/v2/health/live/../../metrics"),
                             ("POST", "/v2/repository/index"), ("POST", infer_path(MODEL)),
                             ("POST", "/v2/repository/models/x/load")):
            with self.subTest(method=method, path=path):
                self.assert_refused(self.server.request(method, path))
                self.assert_refused(self.server.request(method, path, headers=bearer("x" * 24)),
                                    "invalid_token")

    def test_health_is_open(self):
        for path in ("/v2/health/live", "/v2/health/ready", "/v2/health/%6Cive",
                     "/v2/health/live?x=1"):
            for headers in ({}, bearer(), bearer("wrong"), {"Authorization": "Basic eDp5"}):
                answer = self.server.request("GET", path, headers=headers)
                self.assertEqual(answer.status, 200, (path, headers))

    def test_values_that_are_no_known_token(self):
        for value in (TOKEN, "Basic " + TOKEN, "Bearer", "Bearer ", "Bearer\t" + TOKEN,
                      "Bearer=" + TOKEN, "Bearer:" + TOKEN, "BearerX " + TOKEN,
                      '"Bearer ' + TOKEN + '"', "Token " + TOKEN):
            with self.subTest(value=value):
                self.assert_refused(self.raw(["GET /v2 HTTP/1.1", "Host: x",
                                              "Authorization: " + value]))
        for token in (TOKEN[:-1], TOKEN + "=", TOKEN.lower(), "x" + TOKEN, '"%s"' % TOKEN,
                      TOKEN + "," + TOKEN, TOKEN + " " + OTHER, TOKEN + ", Bearer " + TOKEN,
                      "first", "line-4", "a" * 4096, "a" * 20000, "\xe9" * 30, "%s"):
            with self.subTest(token=token[:40]):
                self.assert_refused(self.raw(["GET /v2 HTTP/1.1", "Host: x",
                                              "Authorization: Bearer " + token]),
                                    "invalid_token")

    def test_forms_that_mean_the_same(self):
        for line in ("Authorization: bearer " + TOKEN, "AUTHORIZATION: BEARER " + TOKEN,
                     "authorization:Bearer   " + TOKEN, "Authorization: Bearer %s \t " % TOKEN):
            self.assertEqual(self.raw(["GET /v2 HTTP/1.1", "Host: x", line]).status, 200, line)

    def test_two_headers_are_refused(self):
        for first, second in ((TOKEN, TOKEN), (TOKEN, "wrong"), ("wrong", TOKEN)):
            answer = self.raw(["GET /v2 HTTP/1.1", "Host: x", "Authorization: Bearer " + first,
                               "authorization: Bearer " + second])
            self.assert_error(answer, 400, "Authorization", "at most one")
            self.assertEqual(answer.headers["WWW-Authenticate"],
                             'Bearer realm="quantd", error="invalid_request"')

    def test_a_second_line_is_no_token(self):
        answer = self.raw(["GET /v2 HTTP/1.1", "Host: x", "Authorization: Bearer", " " + TOKEN])
        self.assertIn(answer.status, (400, 401))

    def test_a_token_larger_than_a_head(self):
        answer = self.raw(["GET /v2 HTTP/1.1", "Host: x", "Authorization: Bearer " + "a" * 65536])
        self.assertIn(answer.status, (400, 401, 413, 431))
        self.assertEqual(self.server.request("GET", "/v2", headers=bearer()).status, 200)

    def test_it_comes_before_the_body(self):
        head = ["POST %s HTTP/1.1" % infer_path(MODEL), "Host: x", "Authorization: Bearer wrong"]
        answer = self.raw(head + ["Content-Length: 100", "Expect: 100-continue"])
        self.assert_refused(answer, "invalid_token")
        self.assertEqual(answer.headers["Connection"], "close")
        # The length that the head announces makes no difference.
        self.assert_refused(self.raw(head + ["Content-Length: 99999999999"]), "invalid_token")
        self.assert_refused(self.raw(head + ["Content-Encoding: gzip", "Content-Length: 2"], b"{}"),
                            "invalid_token")

    def test_no_memory_is_held_for_strangers(self):
        connections = [self.server.connect() for _ in range(8)]
        for connection in connections:
            connection.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 200000000\r\n\r\n{"
                               % infer_path(MODEL).encode())
        metrics = self.server.request("GET", "/metrics", headers=bearer())
        held = parse_metrics(metrics.body.decode())[("quantd_inflight_bytes", ())]
        self.assertLess(held, 1 << 20)
        self.assertEqual(self.server.infer(MODEL, BODY, headers=bearer()).status, 200)
        for connection in connections:
            connection.close()

    def test_a_refused_connection_may_go_on(self):
        client = self.server.client()
        self.assert_refused(exchange(client, "POST", infer_path(MODEL), BODY))
        self.assertEqual(exchange(client, "POST", infer_path(MODEL), BODY, bearer()).status, 200)
        # A client that was let in must still send its token with each request.
        self.assert_refused(exchange(client, "POST", infer_path(MODEL), BODY))
        client.close()

    @unittest.skipIf(shutil.which("curl") is None, "curl is not installed")
    def test_curl(self):
        url = self.server.addresses[0] + infer_path(MODEL)
        for flags, status in ((["--oauth2-bearer", TOKEN], "200"), ([], "401"),
                              (["-u", "first:" + TOKEN], "401")):
            result = subprocess.run(["curl", "-sS", "-o", os.devnull, "-w", "%{http_code}", "-d",
                                     BODY.decode(), *flags, url], capture_output=True, text=True,
                                    timeout=20 * SLOW, check=False)
            self.assertEqual((result.returncode, result.stdout), (0, status), result.stderr)

    def test_healthcheck(self):
        for flags in ([], ["--token-file", str(self.file)]):
            result = subprocess.run(
                [*COMMAND, "--healthcheck", "--listen",
                 "%s:%d" % (self.server.host, self.server.port), *flags],
                capture_output=True, text=True, timeout=20 * SLOW, check=False)
            self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_refusals_are_counted(self):
        def count():
            metrics = server.request("GET", "/metrics", headers=bearer()).body.decode()
            return sum(value for (name, labels), value in parse_metrics(metrics).items()
                       if name == "quantd_answers_total" and ("code", "401") in labels)

        server = Server("--token-file", str(self.file), *ONE_IO_THREAD)
        self.addCleanup(server.stop)
        self.assertEqual(count(), 0)
        server.get("/v2")
        self.assertEqual(count(), 1)


class Reload(TokenTest):
    READ = 'msg="tokens are read"'
    KEPT = 'msg="the tokens stay as they were"'

    def status(self, token):
        return self.server.request("GET", "/v2", headers=bearer(token)).status

    def test_new_tokens(self):
        self.reload("new-token-0123456789 next\n" + OTHER, self.READ)
        self.assertEqual([self.status(token) for token in
                          (TOKEN, OTHER, "new-token-0123456789")], [401, 200, 200])
        self.reload(FILE, self.READ)
        self.assertEqual([self.status(token) for token in
                          (TOKEN, OTHER, "new-token-0123456789")], [200, 200, 401])

    def test_a_bad_file_changes_nothing(self):
        for text, why in (("", "expected at least one token, got none"),
                          ("good-token-0123456789\nb\"ad", "line 2: expected a token of letters"),
                          ("x" * (1 << 20) + "y", "expected at most 1048576 bytes")):
            self.reload(text, self.KEPT)
            self.server.wait_for_log(why)
            self.assertEqual([self.status(TOKEN), self.status("good-token-0123456789")],
                             [200, 401])
        self.file.unlink()
        self.file.mkdir()  # a folder at this path; the file is not replaced by a rename
        count = self.server.stderr().count(self.KEPT)
        self.server.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 10 * SLOW
        while self.server.stderr().count(self.KEPT) == count and time.monotonic() < deadline:
            time.sleep(0.005)
        self.server.wait_for_log("expected a regular file, got a folder")
        self.assertEqual(self.status(TOKEN), 200)
        self.file.rmdir()
        self.reload(FILE, self.READ)

    def test_no_token_is_in_the_log(self):
        self.reload("good-token-0123456789\ngood-token-0123456789", self.KEPT)
        self.reload(FILE, self.READ)
        for secret in (TOKEN, OTHER, "good-token"):
            self.assertNotIn(secret, self.server.stderr())

    def test_who_may_read_it_and_short_ones(self):
        self.reload("short x\n" + FILE, self.READ, mode=0o644)
        self.server.wait_for_log("everybody on this host may read the tokens")
        self.server.wait_for_log("short tokens may be guessed")
        self.assertEqual(self.status("short"), 200)
        self.reload(FILE, self.READ)

    def test_requests_go_on_meanwhile(self):
        stop = threading.Event()

        def ask():
            client = self.server.client()
            while not stop.is_set():
                answer = exchange(client, "POST", infer_path(MODEL), BODY, bearer(OTHER))
                self.assertEqual(answer.status, 200)
            client.close()

        def reload():
            try:
                for i in range(20):
                    self.reload(("new-%016d\n" % i) + FILE, self.READ)
            finally:
                stop.set()

        run_threads([ask, ask, reload])
        self.reload(FILE, self.READ)

    def test_a_body_that_is_under_way(self):
        headers = dict(bearer(TOKEN), Expect="100-continue")
        request = raw_request("POST", infer_path(MODEL), BODY, headers)
        reader = Reader(self.server.connect())
        reader.connection.sendall(request[:-len(BODY)])
        self.assertEqual(reader.answer().status, 100)  # the server has checked the token
        reader.connection.sendall(BODY[:10])
        self.reload(OTHER, self.READ)
        reader.connection.sendall(BODY[10:])
        self.assertEqual(reader.answer().status, 200)
        reader.close()
        self.assertEqual(self.status(TOKEN), 401)
        self.reload(FILE, self.READ)


APP = "https://app.example"


class ReloadBesideLoops(Reload):
    """Each I/O thread reads the tokens while the first one replaces them."""

    FLAGS = ("--io-threads", "3")


class Cors(TokenTest):
    """CORS: a browser's requests and the headers that it reads, on a server with tokens."""

    FLAGS = ("--cors-origin", APP, "--cors-origin", "http://localhost:3000",
             "--max-body-bytes", "1000")

    def preflight(self, path, origin=APP, method="POST", headers="authorization, "
                                                                 "content-type"):
        return self.server.request("OPTIONS", path, headers={
            "Origin": origin, "Access-Control-Request-Method": method,
            "Access-Control-Request-Headers": headers})

    def words(self, answer, header):
        return {word.strip().lower() for word in answer.headers[header].split(",")}

    def test_preflight(self):
        for path, methods in ((infer_path(MODEL), {"post", "options"}),
                              ("/v2", {"get", "head", "options"}),
                              ("/v2/health/live", {"get", "head", "options"})):
            for origin in (APP, "http://localhost:3000"):
                answer = self.preflight(path, origin)
                self.assertEqual((answer.status, answer.body), (204, b""))
                self.assertEqual(answer.headers.get_all("Access-Control-Allow-Origin"), [origin])
                self.assertEqual(self.words(answer, "Access-Control-Allow-Methods"), methods)
                self.assertLessEqual({"authorization", "content-encoding", "content-type",
                                      "inference-header-content-length"},
                                     self.words(answer, "Access-Control-Allow-Headers"))
                self.assertGreater(int(answer.headers["Access-Control-Max-Age"]), 0)
                self.assertEqual(answer.headers["Vary"], "Origin")
                self.assertEqual(self.words(answer, "Allow"), methods)
                for header in ("Content-Length", "Content-Type", "WWW-Authenticate",
                               "Access-Control-Allow-Credentials"):
                    self.assertIsNone(answer.headers.get(header), header)

    def test_preflight_of_others(self):
        for origin in ("https://evil.example", APP + ".evil.example", APP.upper(), "null",
                       "http://app.example", APP + "/", ""):
            answer = self.preflight("/v2", origin)
            self.assertEqual(answer.status, 204)
            self.assertFalse([name for name in answer.headers if name.startswith("Access-")])
            self.assertEqual(answer.headers["Vary"], "Origin")
        self.assert_error(self.preflight("/nope"), 404)

    def test_answers(self):
        answer = self.server.infer(MODEL, BODY, headers={"Origin": APP, **bearer()})
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.headers["Access-Control-Allow-Origin"], APP)
        self.assertLessEqual({"inference-header-content-length", "server-timing"},
                             self.words(answer, "Access-Control-Expose-Headers"))
        self.assertEqual(answer.headers["Vary"], "Origin")
        for headers in ({}, {"Origin": "https://evil.example"}):
            answer = self.server.infer(MODEL, BODY, headers={**headers, **bearer()})
            self.assertEqual((answer.status, answer.headers["Vary"]), (200, "Origin"))
            self.assertIsNone(answer.headers.get("Access-Control-Allow-Origin"))

    def test_a_page_may_read_refusals(self):
        for status, path, headers, body in ((401, "/v2", {}, None), (404, "/nope", bearer(), None),
                                            (405, "/v2", bearer(), b"{}"),
                                            (400, infer_path(MODEL), bearer(), b"{"),
                                            (413, infer_path(MODEL), bearer(), b"x" * 2000)):
            method = "GET" if body is None else "POST"
            answer = self.server.request(method, path, body, {"Origin": APP, **headers})
            self.assert_error(answer, status)
            self.assertEqual(answer.headers.get_all("Access-Control-Allow-Origin"), [APP])

    def test_a_connection_goes_on_behind_it(self):
        client = self.server.client()
        for _ in range(3):
            answer = exchange(client, "OPTIONS", infer_path(MODEL), None, {"Origin": APP})
            self.assertEqual(answer.status, 204)
            answer = exchange(client, "POST", infer_path(MODEL), BODY,
                              {"Origin": APP, **bearer()})
            self.assertEqual(answer.status, 200)
        client.close()


class AnyOrigin(ServerTest):
    FLAGS = ("--cors-origin", "*")

    def test_any_origin(self):
        for origin in (APP, "null", "https://evil.example"):
            answer = self.server.request("GET", "/v2", headers={"Origin": origin})
            self.assertEqual(answer.headers["Access-Control-Allow-Origin"], "*")
            self.assertIsNone(answer.headers.get("Vary"))
            self.assertEqual(self.server.request("OPTIONS", "/v2").status, 204)


class BadStarts(StartTest):
    def test_files_that_are_none(self):
        for text, why in ((None, "No such file or directory"),
                          (b"", "expected at least one token, got none"),
                          (b"a\0b", "line 1: expected a token of letters, digits and -._~+/ with = "
                                    "at its end, at most 4096"),
                          (b"\xff" * 100, "line 1: expected a token of letters, digits and "
                                          "-._~+/ with = at its end, at most 4096")):
            path = self.folder + "/tokens"
            if text is not None:
                Path(path).write_bytes(text)
            self.assert_fails(self.start("--token-file", path, "--listen", "127.0.0.1:0"),
                              "--token-file %s: %s" % (path, why))

    def test_kinds_of_files(self):
        os.mkfifo(self.folder + "/fifo")
        os.mknod(self.folder + "/socket", 0o600 | stat.S_IFSOCK)
        for path, kind in ((self.folder, "a folder"), (self.folder + "/fifo", "a FIFO"),
                           (self.folder + "/socket", "a socket"), ("/dev/zero", "a device")):
            self.assert_fails(self.start("--token-file", path), "--token-file %s: expected a "
                              "regular file, got %s" % (path, kind))

    def test_a_file_of_somebody_else(self):
        path = Path(self.folder, "tokens")
        path.write_text(FILE)
        path.chmod(0)
        self.assert_fails(self.start("--token-file", str(path), unprivileged=True),
                          "--token-file %s: Permission denied" % path)


class NoTokens(unittest.TestCase):
    def test_no_origin_may_ask(self):
        server = Server()
        for method, status in (("GET", 200), ("OPTIONS", 405)):
            answer = server.request(method, "/v2", headers={"Origin": APP})
            self.assertEqual(answer.status, status)
            self.assertFalse([name for name in answer.headers
                              if name.startswith("Access-") or name == "Vary"])
            self.assertNotIn("OPTIONS", answer.headers.get("Allow", ""))
        server.stop()

    def test_a_reload_without_files(self):
        server = Server()
        server.process.send_signal(signal.SIGHUP)
        self.assertEqual(server.get("/v2").status, 200)
        self.assertEqual(server.request("GET", "/v2", headers=bearer()).status, 200)
        server.stop()


if __name__ == "__main__":
    unittest.main()
