"""An answer to HEAD never has a body, whichever part of the server makes it and whatever is wrong
with the request."""
import signal
import ssl
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from quantd import ONE_IO_THREAD, SLOW, Reader, Server, ServerTest, receive_all
from tls import TlsTest

TIMEOUT_S = 0.3 * SLOW
FLAGS = ("--idle-timeout", str(20 * SLOW), "--max-body-bytes", "1000000")


def split_answers(received):
    """Returns the heads of answers without bodies, and the bytes after the last head."""
    *heads, rest = received.split(b"\r\n\r\n")
    return heads, rest


class Refused:
    """Each answer is the last on its connection. ServerTest starts the server of most cases. The
    slow cases have a server of their own with a short timeout, because on a busy machine any client
    may be slow."""

    CASES = (
        ("a slow head", 408, b"HEAD /v2 HTTP/1.1\r\nHost: x\r\nX: "),
        ("a slow body", 408, b"HEAD /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"),
        ("a slow body in chunks", 408,
         b"HEAD /v2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"),
        ("a large body", 413, b"HEAD /v2 HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
         b"Content-Length: 99999999\r\n\r\n"),
        ("a huge body", 413, b"HEAD /v2 HTTP/1.1\r\nHost: x\r\n"
         b"Content-Length: 99999999999999999999999\r\n\r\n"),
        ("a huge chunk", 413, b"HEAD /v2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
         b"fffffffffffffffff\r\n"),
        ("a large chunk", 413, b"HEAD /v2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
         b"fffffff\r\n"),
        ("no chunk", 400, b"HEAD /v2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nx"),
        ("no length", 400, b"HEAD /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n"),
        ("two lengths", 400,
         b"HEAD /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"),
        ("no host", 400, b"HEAD /v2 HTTP/1.1\r\n\r\n"),
        ("no colon", 400, b"HEAD /v2 HTTP/1.1\r\nHost: x\r\nabc\r\n\r\n"),
        ("a fold", 400, b"HEAD /v2 HTTP/1.1\r\nHost: x\r\n abc\r\n\r\n"),
        ("a control character", 400, b"HEAD /v2 HTTP/1.1\r\nHost: x\r\nX: \0\r\n\r\n"),
        ("a bare LF", 400, b"HEAD /v2 HTTP/1.1\nHost: x\r\n\r\n"),
        ("no target", 400, b"HEAD\r\nHost: x\r\n\r\n"),
        ("two blanks", 400, b"HEAD  /v2 HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("another coding", 501,
         b"HEAD /v2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n"),
        ("another version", 505, b"HEAD /v2 HTTP/9.9\r\nHost: x\r\n\r\n"),
        ("a long target", 414, b"HEAD /" + b"a" * 40000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("a long field", 431, b"HEAD /v2 HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 40000 + b"\r\n\r\n"),
        ("many fields", 431,
         b"HEAD /v2 HTTP/1.1\r\nHost: x\r\n" + b"X: a\r\n" * 2000 + b"\r\n\r\n"),
        ("many cookies", 431,
         b"HEAD /v2 HTTP/1.1\r\nHost: x\r\nCookie: " + b"a=1; " * 3000 + b"b=1\r\n\r\n"),
    )

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.impatient = cls.start(*cls.FLAGS, "--receive-timeout", "%.1f" % TIMEOUT_S)

    @classmethod
    def tearDownClass(cls):
        cls.impatient.stop()
        super().tearDownClass()

    def ask(self, name, sent):
        connection = (self.impatient if "slow" in name else self.server).connect()
        try:
            connection.sendall(sent)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the server refuses it before all bytes are sent
        received = receive_all(connection)
        connection.close()
        return received

    def assert_no_body(self, received, *statuses):
        heads, rest = split_answers(received)
        self.assertEqual([int(head.split()[1]) for head in heads], list(statuses), received[:300])
        self.assertEqual(rest, b"")

    def ask_all(self, make):
        """Sends make(name, its request) of all cases at once, because some are slow. Yields each
        case with the bytes received."""
        with ThreadPoolExecutor(len(self.CASES)) as pool:
            received = pool.map(lambda case: self.ask(case[0], make(case[0], case[2])),
                                self.CASES)
            yield from ((*case[:2], answer) for case, answer in zip(self.CASES, received))

    def test_each_alone(self):
        for name, status, received in self.ask_all(lambda _, sent: sent):
            with self.subTest(name):
                self.assert_no_body(received, status)

    def test_each_behind_another_and_before_more(self):
        """If several requests are pipelined, the server uses the method of the right one."""
        before = b"HEAD /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
        more = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n" * 3
        for name, status, received in self.ask_all(
                lambda name, sent: before + sent + more * ("slow" not in name)):
            with self.subTest(name):
                self.assert_no_body(received, 200, status)

    def test_a_get_behind_it_has_one(self):
        before = b"HEAD /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
        for name, status, received in self.ask_all(
                lambda _, sent: before + sent.replace(b"HEAD", b"GET", 1)):
            with self.subTest(name):
                heads, rest = split_answers(received)
                self.assertEqual([int(head.split()[1]) for head in heads], [200, status])
                self.assertRegex(rest, rb'^\{"error":".*"\}$')


class Plain(Refused, ServerTest):
    FLAGS = FLAGS
    start = Server


class OverTls(Refused, TlsTest):
    FLAGS = FLAGS

    @classmethod
    def start(cls, *flags):
        return Server("--tls-cert", str(cls.folder / "cert"), "--tls-key", str(cls.folder / "key"),
                      *flags)

    def ask(self, name, sent):
        try:
            return super().ask(name, sent)
        except ssl.SSLEOFError:
            self.fail("the connection ended without an answer")


class Kept(ServerTest):
    """Answers after which the connection stays open: a body would be taken for the next answer's
    head."""

    FLAGS = ("--idle-timeout", str(20 * SLOW))

    def test_each(self):
        cases = ((200, "/v2"), (200, "/metrics"), (200, "/v2/models/stats"), (404, "/nope"),
                 (405, "/v2/models/onnx.DequantizeLinear/infer"), (200, "/"))
        reader = Reader(self.server.connect())
        for status, path in cases:
            request = " %s HTTP/1.1\r\nHost: x\r\n\r\n" % path
            reader.connection.sendall(("HEAD" + request).encode())
            head = reader.answer("HEAD")
            self.assertEqual(head.status, status, path)
            if head.headers["Connection"] == "close":  # a stream of unknown length
                self.assertEqual(reader.file.read(), b"")
                reader.close()
                reader = Reader(self.server.connect())
        reader.close()


class Elsewhere(unittest.TestCase):
    def test_one_connection_too_many(self):
        server = Server("--max-connections", "1")
        first = Reader(server.connect())
        first.connection.sendall(b"HEAD /v2 HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assertEqual(first.answer("HEAD").status, 200)
        # The last one is incomplete, and times out.
        for more in (b"\r\n", b"Content-Length: 9\r\n\r\n", b""):
            second = server.connect()
            second.sendall(b"HEAD /v2 HTTP/1.1\r\nHost: x\r\n" + more)
            heads, rest = split_answers(receive_all(second))
            self.assertEqual([head.split()[1] for head in heads], [b"503"])
            self.assertEqual(rest, b"")
            second.close()
        first.close()
        server.stop()

    def test_without_a_token(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("token-0123456789abcdef\n")
            file.flush()
            server = Server("--token-file", file.name)
            reader = Reader(server.connect())
            for _ in range(2):
                reader.connection.sendall(b"HEAD /v2 HTTP/1.1\r\nHost: x\r\n\r\n")
                self.assertEqual(reader.answer("HEAD").status, 401)
            reader.close()
            server.stop()

    def test_while_it_drains(self):
        server = Server(*ONE_IO_THREAD)  # another one could drain later than the log says so
        connection = server.connect()
        connection.sendall(b"HEAD /v2 HTTP/1.1\r\nHost: x\r\n")
        deadline = time.monotonic() + 20 * SLOW
        server.process.send_signal(signal.SIGTERM)
        server.terminated = True
        while "draining" not in server.stderr():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        connection.sendall(b"\r\n")
        heads, rest = split_answers(receive_all(connection))
        self.assertEqual((len(heads), rest), (1, b""))
        self.assertIn(b"\r\nConnection: close", heads[0])
        connection.close()
        server.wait()


if __name__ == "__main__":
    unittest.main()
