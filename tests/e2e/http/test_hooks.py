"""libmicrohttpd without our hooks: the variable QD_UNHOOKED disables each one, as if libmicrohttpd
did not call it. The server says so at its start, and its answers are right all the same."""
import re
import ssl
import time
import unittest

from quantd import (SANITIZED, Reader, Server, ServerTest, Tensor, binary_request, infer_path,
                    json_request, raw_infer, raw_request, receive_all, unless_emulated)
from samples import DEQUANTIZE, DEQUANTIZED, dequantize_json
from shim import shim
from tls import TlsTest

WARNING = "libmicrohttpd does not call a function as expected"
SCALE = Tensor.of("x_scale", "FP32", [], [1])
FLAGS = ("--max-body-bytes", "16M")
SLOW_FLAGS = ("--receive-timeout", "4", "--min-rate", "20000")


def large(count):
    """Returns (body, headers) of a request with `count` bytes, each of which becomes a float."""
    x = Tensor("x", "UINT8", [count], bytes(range(256)) * (count // 256))
    return binary_request([x, SCALE], json_names=("x_scale",))


def floats(answer):
    return list(memoryview(answer.outputs()["y"][2]).cast("f"))


def chunked(body, count):
    """Returns the request in chunks of `count` bytes."""
    chunks = [body[i:i + count] for i in range(0, len(body), count)] + [b""]
    return (b"POST %s HTTP/1.1\r\nHost: q\r\nTransfer-Encoding: chunked\r\n\r\n"
            % infer_path(DEQUANTIZE).encode() +
            b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks))


def answer_count(received):
    return len(re.findall(rb"HTTP/1\.[01] \d\d\d ", received))


class Unhooked:
    """The tests of a server. Subclasses disable a hook of its connections."""

    FUNCTION = None
    is_plain = True  # a connection ends after one answer

    def setUp(self):
        self.reader = None

    def open(self):
        self.reader = Reader(self.server.connect())
        self.addCleanup(self.reader.close)
        return self.reader

    def ask(self, request, method="POST"):
        """Sends a request on a connection of its own. Returns the final answer."""
        reader = self.open()
        reader.connection.sendall(request)
        answer = reader.answer(method)
        return reader.answer(method) if answer is not None and answer.status == 100 else answer

    def assert_end(self):
        """Nothing follows the answer that was read, neither bytes nor a reset."""
        self.assertEqual(self.reader.file.read(), b"")

    def assert_right(self, answer):
        self.assertEqual(answer.status, 200, answer.body[:500])
        self.assertEqual(floats(answer), DEQUANTIZED)

    def test_the_log_says_so(self):
        log = self.server.stderr()
        if self.FUNCTION is None:
            self.assertNotIn(WARNING, log)
        else:
            self.assertRegex(log, r"%s\" function=%s version=\S+ effect=" % (WARNING,
                                                                             self.FUNCTION))

    def test_small(self):
        answer = self.ask(raw_infer(DEQUANTIZE, dequantize_json()))
        self.assert_right(answer)
        self.assertEqual(answer.headers.get("Connection") == "close", self.is_plain)
        if self.is_plain:
            self.assert_end()

    def test_many(self):
        for _ in range(20):
            self.assert_right(self.server.infer(DEQUANTIZE, dequantize_json()))
        self.assert_alive()

    def test_other_methods(self):
        answer = self.ask(raw_request("HEAD", "/v2"), "HEAD")
        self.assertEqual((answer.status, answer.body), (200, b""))
        self.assertGreater(len(self.server.get("/metrics").body), 1000)
        self.assert_error(self.server.request("PUT", "/v2"), 405)

    def test_pipelined(self):
        """The second request is not read if nothing has checked where the first one ends."""
        reader = self.open()
        reader.connection.sendall(2 * raw_infer(DEQUANTIZE, dequantize_json()))
        self.assert_right(reader.answer())
        if self.is_plain:
            self.assert_end()
        else:
            self.assert_right(reader.answer())

    def test_large(self):
        """The answer of 8 MiB has several parts."""
        body, headers = large(2 << 20)
        answer = self.ask(raw_infer(DEQUANTIZE, body, headers))
        self.assertEqual(answer.status, 200, answer.body[:500])
        numbers = floats(answer)
        self.assertEqual(numbers[:256], list(range(256)))
        self.assertEqual(numbers[-256:], list(range(256)))
        self.assertEqual(len(numbers), 2 << 20)

    def test_large_json(self):
        x = Tensor.of("x", "UINT8", [100000], [i % 251 for i in range(100000)])
        answer = self.server.infer(DEQUANTIZE, json_request([x, SCALE]))
        self.assertEqual(answer.status, 200, answer.body[:500])
        self.assertEqual(floats(answer), [i % 251 for i in range(100000)])

    def test_chunks(self):
        body = raw_infer(DEQUANTIZE, dequantize_json()).split(b"\r\n\r\n", 1)[1]
        for count in (7, 100, 10000):
            self.assert_right(self.ask(chunked(body, count)))

    def test_expect(self):
        body = raw_infer(DEQUANTIZE, dequantize_json(), {"Expect": "100-continue"})
        head, rest = body.split(b"\r\n\r\n", 1)
        reader = self.open()
        reader.connection.sendall(head + b"\r\n\r\n")
        self.assertEqual(reader.answer().status, 100)
        reader.connection.sendall(rest)
        self.assert_right(reader.answer())

    def test_errors(self):
        self.assert_error(self.server.get("/nowhere"), 404)
        self.assert_error(self.server.infer(DEQUANTIZE, b"{"), 400)
        if not self.is_plain:
            self.assert_error(self.ask(raw_infer(DEQUANTIZE, b"{}", {"Host": "r"})), 400, "Host")
        self.assert_error(self.ask(raw_request("GET", "/v2", headers={"X": 25000 * "a"})), 431,
                          "the head")

    def test_too_large(self):
        """The refusal is written past the library."""
        head = b"POST %s HTTP/1.1\r\nHost: q\r\n" % infer_path(DEQUANTIZE).encode()
        answer = self.ask(head + b"Content-Length: 17000000\r\nExpect: 100-continue\r\n\r\n")
        self.assert_error(answer, 413, "--max-body-bytes")
        self.assert_end()
        self.assert_error(self.ask(chunked(b" " * (17 << 20), 1 << 20)), 413, "--max-body-bytes")
        self.assert_end()

    def test_slow_senders(self):
        """The refusal is written past the library."""
        whole = raw_infer(DEQUANTIZE, dequantize_json())
        server = self.start(*SLOW_FLAGS)
        self.addCleanup(server.stop)
        readers = []
        for count in (60, len(whole) - 1):  # in the head and in the body
            reader = Reader(server.connect())
            self.addCleanup(reader.close)
            reader.connection.sendall(whole[:count])
            readers.append(reader)
        for reader in readers:
            self.assert_error(reader.answer(), 408)
            reader.connection.sendall(b"{")
            self.assertEqual(reader.file.read(), b"")

    def test_unreadable(self):
        """The library refuses it or framing.c does. What follows is not read as a request."""
        follows = raw_infer(DEQUANTIZE, dequantize_json())
        for request in (b"GET /v2 HTTP/2.0\r\nHost: q\r\n\r\n",
                        b"GET /%s HTTP/1.1\r\nHost: q\r\n\r\n" % (b"a" * 100000),
                        b"GET /v2 HTTP/1.1\r\nHost: q\r\nwhat\r\n\r\n",
                        b"GET /v2 HTTP/1.1\r\nHost: q\r\nCookie: %s\r\n\r\n" % (b"a=b; " * 9000),
                        chunked(b"{}", 2).replace(b"2\r\n{}", b"zz\r\n{}")):
            self.assert_unreadable(self.exchange_refused(request + follows))
        self.assert_alive()

    def exchange_refused(self, request):
        """Sends what the server refuses before it has read all. Returns what it sends back. Over
        TLS a client sends several records, and libmicrohttpd closes without waiting for all of
        them, so its answer can be lost. Returns b"" then."""
        reader = self.open()
        try:
            reader.connection.sendall(request)
            return receive_all(reader.connection)
        except OSError:
            if not self.loses_answers():
                raise
            return b""

    def loses_answers(self):
        return self.is_plain and self.server.tls is not None

    def assert_unreadable(self, received):
        if self.loses_answers() and received == b"":
            return
        self.assertRegex(received, rb"^HTTP/1\.[01] (400|414|431|505) ")
        if self.is_plain:  # libmicrohttpd's own error. 0.9.75 sends the head of some of them twice.
            self.assertNotIn(b"HTTP/1.1 200", received)
            return
        self.assertEqual(answer_count(received), 1, received)
        self.assertIn(b'{"error":', received)

    def test_bytes_that_two_readers_read_differently(self):
        """No second answer, whatever the head looks like."""
        hidden = raw_infer(DEQUANTIZE, dequantize_json())
        for field in (b"X: y\nContent-Length: 5", b"Content-Length: 0\r\nContent-Length: 5",
                      b"Transfer-Encoding: chunked\r\nContent-Length: 5"):
            reader = self.open()
            reader.connection.sendall(b"POST /v2 HTTP/1.1\r\nHost: q\r\n" + field +
                                      b"\r\n\r\n0\r\n\r\n" + hidden)
            self.assertEqual(answer_count(receive_all(reader.connection)), 1, field)

    def test_drain(self):
        """A request whose body still arrives is answered."""
        whole = raw_infer(DEQUANTIZE, dequantize_json())
        server = self.start()
        reader = Reader(server.connect())
        self.addCleanup(reader.close)
        reader.connection.sendall(whole[:-1])
        time.sleep(0.1)
        server.terminate()
        time.sleep(0.1)
        reader.connection.sendall(whole[-1:])
        self.assert_right(reader.answer())
        self.assertEqual(reader.file.read(), b"")
        server.wait()


class OverTcp(Unhooked):
    @classmethod
    def start(cls, *more):
        return Server(*FLAGS, *more, env={"QD_UNHOOKED": cls.FUNCTION or ""})

    @classmethod
    def setUpClass(cls):
        cls.server = cls.start()


class WithAllHooks(OverTcp, ServerTest):
    is_plain = False


class WithoutRecv(OverTcp, ServerTest):
    FUNCTION = "recv"


class WithoutSend(OverTcp, ServerTest):
    FUNCTION = "send"


class WithoutSendmsg(OverTcp, ServerTest):
    FUNCTION = "sendmsg"


class OverTls(Unhooked):
    @classmethod
    def start(cls, *more):
        return Server("--tls-cert", str(cls.folder / "cert"), "--tls-key", str(cls.folder / "key"),
                      *FLAGS, *more, env={"QD_UNHOOKED": cls.FUNCTION or ""})

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server.stop()
        cls.server = cls.start()

    def test_drip(self):
        """A handshake in small pieces."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = self.server.tls.wrap_bio(incoming, outgoing)
        connection = self.server.connect_tcp()
        self.addCleanup(connection.close)
        while True:
            try:
                session.do_handshake()
                break
            except ssl.SSLWantReadError:
                hello = outgoing.read()
                for i in range(0, len(hello), 100):
                    connection.sendall(hello[i:i + 100])
                    time.sleep(0.01)
                incoming.write(connection.recv(1 << 16))
        session.write(raw_request("GET", "/v2/health/live"))
        connection.sendall(outgoing.read())
        text = b""
        while not text.endswith(b"}"):
            try:
                text += session.read(1 << 16)
            except ssl.SSLWantReadError:
                incoming.write(connection.recv(1 << 16))
        self.assertTrue(text.startswith(b"HTTP/1.1 200 OK\r\n"), text)


class TlsWithAllHooks(OverTls, TlsTest):
    is_plain = False


class WithoutHandshake(OverTls, TlsTest):
    FUNCTION = "gnutls_handshake"


class WithoutRecordRecv(OverTls, TlsTest):
    FUNCTION = "gnutls_record_recv"


class WithoutRecordSend(OverTls, TlsTest):
    FUNCTION = "gnutls_record_send"


class WithoutBye(OverTls, TlsTest):
    FUNCTION = "gnutls_bye"


@unittest.skipIf(SANITIZED, "a sanitizer wants to be loaded first")
@unless_emulated("preloading")
class FreedSession(TlsTest):
    """libmicrohttpd frees the session of TLS before it says that the connection is closed."""

    def test_nobody_asks_it(self):
        env = {"QD_UNHOOKED": "gnutls_bye", "LD_PRELOAD": shim(self, "freed_session")}
        server = Server("--tls-cert", str(self.folder / "cert"), "--tls-key",
                        str(self.folder / "key"), env=env)
        try:
            for _ in range(3):
                self.assertEqual(server.get("/v2/health/live").status, 200)
        finally:
            server.stop()
