"""More connections than the limit: the server tells the additional clients once, and other clients
are not disturbed."""
import os
import resource
import socket
import tempfile
import time
import unittest

from quantd import (SLOW, Reader, Server, ServerTest, infer_path, parse_metrics, raw_infer,
                    raw_request, receive_all)
from samples import DEQUANTIZE, dequantize_json
from tls import TlsTest

PATIENCE_S = 60 * SLOW  # for what should come at once, and will even on a busy machine
REFUSED_COUNT_MAX = 64  # as in server/base/limits.h
METADATA = raw_request("GET", "/v2")
LIVE = raw_request("GET", "/v2/health/live")


def ask(connection, request=METADATA):
    """Sends a request and returns its answer, or None if the server closed instead."""
    try:
        connection.sendall(request)
        return Reader(connection).answer()
    except (ConnectionResetError, BrokenPipeError):
        return None


def is_closed(connection):
    """Waits until the server closes the connection, and returns true if it sent nothing."""
    return receive_all(connection) == b""


class Crowded(ServerTest):
    """The server has as many connections as it allows. One of them is used for all its metrics."""

    FLAGS = ("--max-connections", "4")
    FLAG = "--max-connections"

    def setUp(self):
        self.opened = []
        self.attempts = 0
        self.addCleanup(self.close_all)
        self.inside = []
        deadline = time.monotonic() + PATIENCE_S
        while len(self.inside) < 4:  # connections of the previous test may still be closing
            self.assertLess(time.monotonic(), deadline)
            connection = self.connect()
            answer = ask(connection)
            if answer is not None and answer.status == 200:
                self.inside.append(connection)
            else:
                time.sleep(0.01)

    def connect(self):
        connection = self.server.connect(PATIENCE_S / SLOW)
        self.opened.append(connection)
        return connection

    def close_all(self):
        for connection in self.opened:
            connection.close()

    def assert_inside_served(self):
        for connection in self.inside:
            self.assertEqual(ask(connection).status, 200)

    def ask_anew(self, request, method="POST"):
        """Sends the request on new connections until one gets an answer: the server closes a
        connection without one if it is slower than two seconds or if too many are being refused.
        Returns (answer, reader)."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            connection = self.connect()
            self.attempts += 1
            reader = Reader(connection)
            try:
                connection.sendall(request)
                answer = reader.answer(method)
            except (ConnectionResetError, BrokenPipeError):
                answer = None
            if answer is not None:
                return answer, reader
            reader.close()
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def assert_refused(self, request, method="POST"):
        answer, reader = self.ask_anew(request, method)
        self.assertEqual(answer.status, 503)
        if method != "HEAD":
            self.assert_error(answer, 503, self.FLAG, "at most 4 ")
        self.assertEqual(answer.headers["Connection"], "close")
        self.assertGreaterEqual(int(answer.headers["Retry-After"]), 1)
        self.assertIsNone(reader.answer())

    def metric(self, name):
        metrics = parse_metrics(ask(self.inside[0], raw_request("GET", "/metrics")).body.decode())
        return metrics[(name, (("listener", self.server.addresses[0]),))]


class Told:
    """Clients that connect to a full server and send requests."""

    def test_one_too_many_is_told(self):
        before = self.metric("quantd_listener_connections_refused_total")
        self.assert_refused(METADATA)
        self.assert_refused(raw_request("HEAD", "/v2"), "HEAD")
        self.assert_refused(raw_infer(DEQUANTIZE, dequantize_json()))
        self.assert_refused(raw_request("GET", "/nowhere"))
        self.assertEqual(self.metric("quantd_listener_connections_refused_total"),
                         before + self.attempts)
        self.assertEqual(self.metric("quantd_listener_connections"), 4)
        self.assert_inside_served()

    def test_before_its_body_has_come(self):
        head = "POST %s HTTP/1.1\r\nHost: q\r\n" % infer_path(DEQUANTIZE)
        for rest in ("Content-Length: 1000\r\n\r\n{",
                     "Content-Length: 1000\r\nExpect: 100-continue\r\n\r\n",
                     "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"):
            self.assert_refused((head + rest).encode())

    def test_once(self):
        """Further requests of the same client are not answered."""
        self.assert_refused(METADATA + METADATA)

    def test_health_is_answered_all_the_same(self):
        """A probe must not take a busy server for a dead one."""
        for path in ("/v2/health/live", "/v2/health/ready"):
            answer, _ = self.ask_anew(raw_request("GET", path))
            self.assertEqual(answer.status, 200)
            self.assertEqual(answer.headers["Connection"], "close")

    def test_who_leaves_makes_room(self):
        self.inside.pop().close()
        deadline = time.monotonic() + PATIENCE_S
        answer = ask(self.connect())
        while answer is None or answer.status != 200:
            self.assertLess(time.monotonic(), deadline)
            answer = ask(self.connect())


class Silent:
    """Clients that connect to a full server and send no request. They are closed after two
    seconds."""

    def test_who_says_nothing_is_closed(self):
        silent = [self.connect() for _ in range(3)]
        slow = self.connect()
        slow.sendall(b"GET /v2 HT")
        self.assertTrue(is_closed(slow))
        for connection in silent:
            self.assertTrue(is_closed(connection))
        self.assert_inside_served()

    def test_whose_head_does_not_end_is_told(self):
        self.assert_refused(b"GET /v2 HTTP/1.1\r\nHost:")

    def test_many_who_say_nothing(self):
        """Silent clients take all places for refused connections. The next client waits until one
        of these is free."""
        silent = [self.connect() for _ in range(REFUSED_COUNT_MAX + 10)]
        self.assert_inside_served()
        self.assert_refused(METADATA)
        for connection in silent:
            self.assertTrue(is_closed(connection))


class OverTcp(Told, Silent, Crowded):
    pass


class OverTls(Told, Crowded, TlsTest):
    @classmethod
    def setUpClass(cls):
        TlsTest.setUpClass.__func__(cls)


class OverUnixSockets(Told, Crowded):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = os.path.join(cls.folder.name, "s")
        cls.server = Server(*cls.FLAGS, "--max-connections-per-address", "1",
                            listen=("unix:" + cls.path,))

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def connect(self):
        connection = socket.socket(socket.AF_UNIX)
        self.opened.append(connection)
        connection.settimeout(PATIENCE_S)
        connection.connect(self.path)
        return connection


class OfAnAddress(Told, Silent, Crowded):
    FLAGS = ("--max-connections-per-address", "4")
    FLAG = "--max-connections-per-address"

    def connect(self, host="127.0.0.1"):
        connection = socket.socket()
        self.opened.append(connection)
        connection.settimeout(PATIENCE_S)
        connection.bind((host, 0))
        connection.connect((self.server.host, self.server.port))
        return connection

    def test_another_address(self):
        for _ in range(4):
            self.assertEqual(ask(self.connect("127.0.0.2")).status, 200)

    def test_many_who_say_nothing(self):
        """If more connections of one address come than the server can refuse with an answer at a
        time, it closes some at once. Connections of other addresses are accepted."""
        silent = [self.connect() for _ in range(REFUSED_COUNT_MAX + 10)]
        self.assertEqual(ask(self.connect("127.0.0.3")).status, 200)
        self.assert_inside_served()
        for connection in silent:
            self.assertTrue(is_closed(connection))


class Many(unittest.TestCase):
    def test_more_than_1024(self):
        soft = len(os.listdir("/proc/self/fd")) + 1300
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limits[1] != resource.RLIM_INFINITY and limits[1] < soft:
            self.skipTest("the hard limit on open files is %d" % limits[1])
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limits[0]), limits[1]))
        server = Server()
        try:
            connections = [server.connect() for _ in range(1200)]
            for connection in connections[::100] + [connections[-1]]:
                connection.sendall(LIVE)
                self.assertEqual(connection.recv(12), b"HTTP/1.1 200")
            for connection in connections:
                connection.close()
        finally:
            server.stop()
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
