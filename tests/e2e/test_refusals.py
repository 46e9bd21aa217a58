"""What libmicrohttpd would answer by itself: ours, as JSON and once."""
import json
import re
import time
import unittest

from quantd import SLOW, Server, infer_path, parse_metrics, receive_all
from samples import DEQUANTIZE

POST = b"POST %s HTTP/1.1\r\nHost: q\r\n" % infer_path(DEQUANTIZE).encode()
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
MANY = b"".join(b"X-%d: %s\r\n" % (i, b"a" * 100) for i in range(1000))

# What comes, and the statuses of which it gets one.
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


class Refusals(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def talk(self, request):
        connection = self.server.connect(timeout=10)
        try:
            connection.sendall(request)
            return receive_all(connection)
        finally:
            connection.close()

    def check(self, got, statuses, has_body=True):
        """Exactly one answer, and the end."""
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

    def test_counted(self):
        def count():
            metrics = parse_metrics(self.server.get("/metrics").body.decode())
            return metrics.get(("quantd_answers_total", (("code", "505"),)), 0)

        before = count()
        self.talk(b"GET /v2 HTTP/2.0\r\nHost: q\r\n\r\n")
        self.assertEqual(count(), before + 1)


if __name__ == "__main__":
    unittest.main()
