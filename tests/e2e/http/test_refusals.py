"""Requests that libmicrohttpd would answer by itself: the server sends its own answer, as JSON and
once."""
import json
import re
import tempfile
import threading
import time
import unittest

from quantd import (ONE_IO_THREAD, Reader, Server, ServerTest, connect_unix, infer_path,
                    parse_metrics, raw_infer, raw_request, receive_all)
from samples import DEQUANTIZE, dequantize_json

POST = b"POST %s HTTP/1.1\r\nHost: q\r\n" % infer_path(DEQUANTIZE).encode()
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
MANY = b"".join(b"X-%d: %s\r\n" % (i, b"a" * 100) for i in range(1000))

# What the client sends, and the allowed statuses of the answer.
REFUSED = {
    "a long first line": (b"GET /%s HTTP/1.1\r\nHost: q\r\n\r\n" % (b"a" * 100000), (414,)),
    "an endless first line": (b"GET /" + b"a" * 200000, (414,)),
    "a large header": (b"GET /v2 HTTP/1.1\r\nHost: q\r\nX-A: %s\r\n\r\n" % (b"a" * 100000), (431,)),
    "many headers": (b"GET /v2 HTTP/1.1\r\nHost: q\r\n" + MANY + b"\r\n", (431,)),
    "a large head of an upload": (POST + MANY + b"Content-Length: 5\r\n\r\nhello", (431,)),
    "a future version": (b"GET /v2 HTTP/2.0\r\nHost: q\r\n\r\n", (505,)),
    "an old version": (b"GET /v2 HTTP/0.9\r\nHost: q\r\n\r\n", (505, 400)),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (505,)),
    "no version": (b"GET /v2\r\nHost: q\r\n\r\n", (400,)),
    "a bad version": (b"GET /v2 HTTP/x.y\r\nHost: q\r\n\r\n", (400,)),
    "two blanks behind the method": (b"GET  /v2 HTTP/1.1\r\nHost: q\r\n\r\n", (400,)),
    "two blanks behind the target": (b"GET /v2  HTTP/1.1\r\nHost: q\r\n\r\n", (400,)),
    "a blank in the target": (b"GET /v2 x HTTP/1.1\r\nHost: q\r\n\r\n", (400,)),
    "a header that is none": (b"GET /v2 HTTP/1.1\r\nHost: q\r\nwhat\r\n\r\n", (400,)),
    "a length that is no number": (POST + b"Content-Length: five\r\n\r\nhello", (400,)),
    "a negative length": (POST + b"Content-Length: -5\r\n\r\nhello", (400,)),
    "a length with a sign": (POST + b"Content-Length: +5\r\n\r\nhello", (400,)),
    "a length of two": (POST + b"Content-Length: 5, 5\r\n\r\nhello", (400,)),
    "a length beyond 64 bits": (POST + b"Content-Length: 99999999999999999999\r\n\r\n", (413,)),
    "a chunk size that is no number": (CHUNKED + b"x\r\nhello\r\n0\r\n\r\n", (400,)),
    "a negative chunk size": (CHUNKED + b"-1\r\nhello\r\n0\r\n\r\n", (400,)),
    "a chunk size beyond 64 bits": (CHUNKED + b"f" * 20 + b"\r\nhello", (413,)),
    "a chunk without its end": (CHUNKED + b"5\r\nhelloX\r\n0\r\n\r\n", (400,)),
    "a bad second chunk": (CHUNKED + b"5\r\nhello\r\nzz\r\n", (400,)),
    "a bad trailer": (CHUNKED + b"5\r\nhello\r\n0\r\nwhat\r\n\r\n", (400,)),
    "a large trailer": (CHUNKED + b"5\r\nhello\r\n0\r\n" + MANY + b"\r\n", (413, 431)),
}


def fill(before, filler, after, count):
    """Returns a request of `count` bytes."""
    room = count - len(before) - len(after)
    return before + (filler * (room // len(filler) + 1))[:room] + after


GET = b"GET /v2 HTTP/1.1\r\nHost: q\r\nConnection: close\r\n"
UPLOAD = POST + b"Content-Length: 2\r\nConnection: close\r\n"
END = b"\r\n\r\n"

# Heads of a given size, and the statuses that they get if they are too large.
SIZED = {
    "a path": (b"GET /", b"p", b" HTTP/1.1\r\nHost: q\r\nConnection: close" + END, (414, 431)),
    "a query": (b"GET /v2?", b"q", b" HTTP/1.1\r\nHost: q\r\nConnection: close" + END, (414, 431)),
    "a value": (GET + b"X: ", b"a", END, (431,)),
    "headers": (GET, b"A: b\r\n", b"\r\nX: " + END, (431,)),
    "long headers": (GET, b"A: %s\r\n" % (b"b" * 120), b"\r\nX: " + END, (431,)),
    "a cookie": (GET + b"Cookie: a=", b"b", END, (431,)),
    "cookies": (GET + b"Cookie: ", b"a=b; ", END, (431,)),
    "empty lines": (b"\r\n", b"\r\n", GET + b"\r\n", (400,)),
    "an upload": (UPLOAD + b"X: ", b"a", END + b"{}", (431,)),
    "an upload that asks": (UPLOAD + b"Expect: 100-continue\r\nX: ", b"a", END + b"{}", (431,)),
    "a trailer": (POST + b"Transfer-Encoding: chunked\r\nConnection: close" + END + b"0\r\n",
                  b"A: b\r\n", b"\r\nX: " + END, (431,)),
}


class Sizes(ServerTest):
    """A head of any size is answered. Our bound is below libmicrohttpd's memory. Without it,
    libmicrohttpd closed without an answer if a head left no room for the answer's head."""

    def statuses(self, request):
        connection = self.server.connect(timeout=10)
        connection.sendall(request)
        got = receive_all(connection)
        connection.close()
        got = got.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.assertEqual(got.count(b"\r\nContent-Type: application/json\r\n"),
                         got.count(b"HTTP/1.1"))
        return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+)", got)]

    def test_each_is_answered_once(self):
        sizes = [*range(1000, 34000, 997), *range(24 << 10, (24 << 10) + 200, 41),
                 *range(31900, 33000, 61)]
        for name, (before, filler, after, refusals) in SIZED.items():
            for size in sorted(sizes):
                request = fill(before, filler, after, size)
                if filler.endswith(b"\n") and not request.removesuffix(after).endswith(b"\n"):
                    request = request.replace(b"\r\r\n", b"\r\n")
                with self.subTest(name, size=size):
                    statuses = self.statuses(request)
                    self.assertEqual(len(statuses), 1)
                    self.assertIn(statuses[0], (200, 400, 404, *refusals))
                    if size > 28000:
                        self.assertIn(statuses[0], refusals)

    def test_with_more_requests_behind_it(self):
        behind = fill(GET.replace(b"close", b"keep-alive") + b"X: ", b"a", END, 900) * 20
        for count in range(20, 400, 10):
            with self.subTest(headers=count):
                statuses = self.statuses(GET.replace(b"close", b"keep-alive") + b"A: b\r\n" * count
                                         + b"\r\n" + behind + GET + b"\r\n")
                self.assertIn(statuses, ([200] * 22, [431]))


class Refusals(ServerTest):
    def talk(self, request):
        connection = self.server.connect(timeout=10)
        try:
            connection.sendall(request)
            return receive_all(connection)
        finally:
            connection.close()

    def check(self, got, statuses, has_body=True):
        """Checks that there is exactly one answer and then the end of the connection."""
        head, _, body = got.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        match = re.fullmatch(r"HTTP/1\.[01] (\d{3}) [A-Za-z ]+", lines[0])
        self.assertIsNotNone(match, got[:300])
        self.assertIn(int(match.group(1)), statuses, got[:300])
        headers = {}
        for line in lines[1:]:
            name, value = line.split(": ", 1)
            self.assertNotIn(name.lower(), headers, "a header twice")
            headers[name.lower()] = value
        self.assertEqual(headers["content-type"], "application/json")
        self.assertEqual(headers["connection"].lower(), "close")
        self.assertIn("date", headers)
        if not has_body:
            self.assertEqual(body, b"")
            return
        self.assertEqual(int(headers["content-length"]), len(body), got[:300])
        tree = json.loads(body)
        self.assertEqual(list(tree), ["error"])
        self.assertGreater(len(tree["error"]), 10)

    def test_each_is_our_json_and_once(self):
        for name, (request, statuses) in REFUSED.items():
            with self.subTest(name):
                self.check(self.talk(request), statuses)

    def test_after_a_good_request_on_the_same_connection(self):
        good = b"GET /v2/health/live HTTP/1.1\r\nHost: q\r\n\r\n"
        for name, (request, statuses) in REFUSED.items():
            with self.subTest(name):
                got = self.talk(good + request)
                self.assertTrue(got.startswith(b"HTTP/1.1 200 OK\r\n"), got[:100])
                _, live, rest = got.partition(b'{"live":true}')
                self.assertEqual(live, b'{"live":true}')
                self.check(rest, statuses)

    def test_not_a_request_at_all(self):
        for garbage in (b"what\r\n\r\n", b"\r\n\r\nwhat\r\n\r\n"):
            got = self.talk(garbage)
            if got:
                self.check(got, (400,))

    def test_head_gets_no_body(self):
        for request in (b"HEAD /v2 HTTP/1.1\r\nHost: q\r\nwhat\r\n\r\n",
                        b"HEAD /v2 HTTP/1.1\r\nHost: q\r\n" + MANY + b"\r\n",
                        b"HEAD /v2 HTTP/1.1\r\n\r\n"):
            self.check(self.talk(request), (400, 431), has_body=False)

    def test_the_answer_outlives_what_is_still_sent(self):
        # This client sends everything before it reads, and far more than the kernel keeps.
        for request in (CHUNKED + b"zz\r\n", POST + b"Content-Length: five\r\n\r\n",
                        b"GET /v2 HTTP/2.0\r\nHost: q\r\n\r\n"):
            connection = self.server.connect(timeout=10)
            connection.sendall(request)
            for _ in range(200):
                connection.sendall(bytes(100000))
            self.check(receive_all(connection), (400, 413, 505))
            connection.close()

    def test_who_does_not_close_does_not_hold_the_server(self):
        server = Server("--drain-timeout", "600")
        connection = server.connect()
        connection.sendall(b"GET /v2 HTTP/2.0\r\nHost: q\r\n\r\n")
        self.check(receive_all(connection), (505,))
        server.stop()
        connection.close()

    def test_the_end_comes_at_once(self):
        """The connection ends at once, also after another answer, even if the client does not
        close. It used to take a second."""
        def wait():
            connection = self.server.connect(timeout=10)
            begun = time.monotonic()
            connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: q\r\n\r\nGET /\r\n\r\n")
            got = receive_all(connection)
            connection.close()
            self.assertEqual(len(re.findall(rb"HTTP/1.1 (200|400) ", got)), 2)
            return time.monotonic() - begun

        self.assertLess(min(wait() for _ in range(5)), 0.5)

    def test_counted(self):
        server = Server(*ONE_IO_THREAD)
        self.addCleanup(server.stop)
        connection = server.connect()
        connection.sendall(b"GET /v2 HTTP/2.0\r\nHost: q\r\n\r\n")
        receive_all(connection)
        connection.close()
        metrics = parse_metrics(server.get("/metrics").body.decode())
        self.assertEqual(metrics[("quantd_answers_total", (("code", "505"),))], 1)

    def test_who_asks_first(self):
        """There is no 100, and the connection ends after the refusal, because the server cannot
        tell whether the client sends the body."""
        target = infer_path(DEQUANTIZE)
        length = "Content-Length: 5"
        for status, method, path, *fields in (
                (404, "POST", "/nowhere", length),
                (404, "POST", infer_path("nobody"), length),
                (405, "PUT", "/v2", length),
                (405, "DELETE", target, "Transfer-Encoding: chunked"),
                (413, "POST", target, "Content-Length: 8000000000"),
                (413, "POST", "/v2/repository/index", "Content-Length: 20000"),
                (415, "POST", target, length, "Content-Encoding: br"),
                (400, "POST", target, "Content-Length: -5"),
                (501, "POST", target, "Transfer-Encoding: gzip")):
            with self.subTest(status=status, path=path):
                lines = ["%s %s HTTP/1.1" % (method, path), "Host: q", *fields,
                         "Expect: 100-continue"]
                self.check(self.talk("\r\n".join(lines + ["", ""]).encode()), (status,))

    def test_other_protocols_are_not_spoken(self):
        """A client that offers another protocol gets plain HTTP/1.1, and the connection stays
        open."""
        offers = (
            {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c",
             "HTTP2-Settings": "AAMAAABkAAQAAP__"},
            {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
             "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="},
            {"Connection": "keep-alive, Upgrade", "Upgrade": "TLS/1.0"},
        )
        for offer in offers:
            reader = Reader(self.server.connect())
            reader.connection.sendall(
                raw_request("GET", "/v2/health/live", headers=offer)
                + raw_infer(DEQUANTIZE, dequantize_json(), offer)
                + raw_request("GET", "/v2/health/live"))
            for _ in range(3):
                answer = reader.answer()
                self.assertEqual(answer.status, 200, answer.body)
                self.assertIsNone(answer.headers.get("Upgrade"))
                self.assertEqual(answer.headers.get("Connection"), "Keep-Alive")
            reader.close()


class FreedMemory(unittest.TestCase):
    def test_refused_cookies(self):
        """libmicrohttpd 0.9.75 used to free a connection's memory after cookies that it refuses,
        and to go on reading their head there. The C library overwrites freed memory here."""
        server = Server(env={"GLIBC_TUNABLES": "glibc.malloc.perturb=165"})
        self.addCleanup(server.stop)
        for method, has_body in ((b"GET", True), (b"HEAD", False)):
            for host in (b"Host: q\r\n", b""):
                with self.subTest(method=method, host=host), server.connect() as connection:
                    connection.sendall(method + b" /v2 HTTP/1.1\r\n" + host + b"Cookie: "
                                       + b"a=1; " * 3000 + b"b=1\r\n\r\n")
                    received = receive_all(connection)
                    self.assertEqual(received.count(b"HTTP/1.1 "), 1, received)
                    self.assertTrue(received.startswith(b"HTTP/1.1 431 "), received)
                    self.assertEqual(received.endswith(b'"}'), has_body, received)


class FullSocket(unittest.TestCase):
    COUNTS = range(16, 80)

    def test_the_refusal_finds_room(self):
        """A body that is too large follows requests whose answers the client has not read yet. With
        one of these counts the socket is exactly full; the 413 used to be lost then."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = folder.name + "/s"
        server = Server("--max-body-bytes", "64K", "--min-rate", "0", "--max-connections", "1000",
                        listen=("unix:" + path,))
        self.addCleanup(server.stop)
        connections = [self.ask(path, count) for count in self.COUNTS]
        time.sleep(0.5)
        for count, connection in zip(self.COUNTS, connections):
            got = receive_all(connection)
            connection.close()
            self.assertEqual(got.count(b"HTTP/1.1 200 "), count)
            self.assertEqual(got.count(b"HTTP/1.1 413 "), 1, "behind %d answers" % count)
            self.assertTrue(got.endswith(b'"}'), got[-100:])

    @staticmethod
    def ask(path, count):
        connection = connect_unix(path)
        body = CHUNKED + b"10001\r\n" + b"x" * 0x10001 + b"\r\n"
        request = raw_request("GET", "/v2/models/" + DEQUANTIZE) * count + body
        threading.Thread(target=send, args=(connection, request), daemon=True).start()
        return connection


def send(connection, request):
    try:
        connection.sendall(request)
    except OSError:
        pass  # the server refuses the request before its end


if __name__ == "__main__":
    unittest.main()
