"""Senders and readers must keep a minimum rate, whatever the size. A client that does not is told,
or cut off."""
import contextlib
import math
import os
import select
import socket
import tempfile
import time
import unittest
from pathlib import Path

from quantd import (SANITIZED, SLOW, Reader, Server, ServerTest, Tensor, binary_request,
                    connect_unix, exchange, infer_path, parse_metrics, receive_all, reset,
                    wait_until)
from samples import DEQUANTIZE
from tls import TlsTest

MIB = 1 << 20
PATIENCE_S = 30 * SLOW  # for what should come at once, and will even on a busy machine
POST = "POST %s HTTP/1.1\r\nHost: q\r\n" % infer_path(DEQUANTIZE)


def large(elements):
    """Returns a binary request with `elements` elements, as bytes."""
    body, headers = binary_request([Tensor("x", "UINT8", [elements], bytes(elements)),
                                    Tensor.of("x_scale", "FP32", [], [2])])
    lines = ["%s: %s" % pair for pair in headers.items()] + ["Content-Length: %d" % len(body)]
    return POST.encode() + "\r\n".join(lines + ["", ""]).encode() + body


def cpu_seconds(server):
    with open("/proc/%d/stat" % server.pid) as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class PaceTest(ServerTest):
    FLAGS = ("--receive-timeout", "0.5", "--min-rate", "20000", "--max-body-bytes", "8M")

    def open(self):
        reader = Reader(self.server.connect())
        self.addCleanup(reader.close)
        return reader

    def inflight(self):
        metrics = parse_metrics(self.server.get("/metrics").body.decode())
        return metrics[("quantd_inflight_bytes", ())]

    def wait_until_free(self):
        deadline = time.monotonic() + PATIENCE_S
        while self.inflight() > MIB:
            self.assertLess(time.monotonic(), deadline, "its memory is not free")
            time.sleep(0.05)

    def drip(self, reader, drip, pause=0.1):
        """Sends `drip` every `pause` seconds until there is an answer. Returns the answer."""
        started = time.monotonic()
        reader.connection.settimeout(pause)
        while True:
            self.assertLess(time.monotonic() - started, PATIENCE_S, "no answer")
            try:
                if reader.connection.recv(1, socket.MSG_PEEK):
                    break
            except socket.timeout:
                reader.connection.sendall(drip)
        reader.connection.settimeout(PATIENCE_S)
        return reader.answer()


class Senders(PaceTest):
    def test_stalled_bodies(self):
        heads = ("Content-Length: 100\r\n\r\nhello", "Content-Length: 8000000\r\n\r\n",
                 "Transfer-Encoding: chunked\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\nff",
                 "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-T",
                 "Content-Length: 10\r\nExpect: 100-continue\r\n\r\n")
        readers = [(head, self.open()) for head in heads]
        started = time.monotonic()
        for head, reader in readers:
            reader.connection.sendall((POST + head).encode())
        for head, reader in readers:
            with self.subTest(head):
                answer = reader.answer()
                if answer.status == 100:
                    answer = reader.answer()
                self.assert_error(answer, 408, "--min-rate")
                self.assertEqual(answer.headers["Connection"], "close")
                self.assertLess(0.3, time.monotonic() - started)
                self.assertIsNone(reader.answer())
        self.assertGreaterEqual(self.server.refusals("slow_sender", len(heads)), len(heads))

    def test_drips(self):
        for head, drip in (("Content-Length: 100000\r\n\r\n", b" "),
                           ("Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
                           ("Transfer-Encoding: chunked\r\n\r\n", b"0")):
            reader = self.open()
            reader.connection.sendall((POST + head).encode())
            self.assert_error(self.drip(reader, drip), 408, "--min-rate")

    def test_a_head_in_pieces(self):
        reader = self.open()
        reader.connection.sendall(POST.encode() + b"X-A: ")
        self.assert_error(self.drip(reader, b"a"), 408, "--receive-timeout")

    def test_what_a_slow_one_held_is_free(self):
        """A busy machine may delay the test so that the server cuts us off before everything is
        sent. The test then tries again."""
        request = large(7 * MIB)
        for _ in range(20):
            reader = self.open()
            try:
                reader.connection.sendall(request[:6 * MIB])
                break
            except OSError:
                pass
        self.assert_error(reader.answer(), 408)
        self.wait_until_free()

    def test_slow_but_fair(self):
        """Takes three times as long as --receive-timeout, but sends faster than --min-rate. A busy
        machine may delay the test so that the rate is too low. The test then tries again."""
        request = large(60000)
        for _ in range(20):
            reader = self.open()
            last, longest = time.monotonic(), 0
            for i in range(0, len(request), 4000):
                reader.connection.sendall(request[i:i + 4000])
                time.sleep(0.1)
                last, before = time.monotonic(), last
                longest = max(longest, last - before)
            answer = reader.answer()
            if answer.status == 200 or longest < 0.2:
                break
        self.assertEqual(answer.status, 200, (answer.body[:200], longest))

    def test_too_large_in_chunks_is_refused_at_once(self):
        server = Server("--max-body-bytes", "8M")  # it does not refuse a client that pauses
        self.addCleanup(server.stop)
        reader = Reader(server.connect())
        self.addCleanup(reader.close)
        reader.connection.sendall((POST + "Transfer-Encoding: chunked\r\n\r\n").encode())
        chunk = b"100000\r\n" + bytes(MIB) + b"\r\n"
        for _ in range(9):
            reader.connection.sendall(chunk)
        self.assert_error(reader.answer(), 413, "--max-body-bytes")
        self.assertIsNone(reader.answer())

    def test_the_refusal_outlives_what_is_still_sent(self):
        server = Server("--max-body-bytes", "8M")
        self.addCleanup(server.stop)
        reader = Reader(server.connect())
        self.addCleanup(reader.close)
        reader.connection.sendall((POST + "Transfer-Encoding: chunked\r\n\r\n").encode())
        chunk = b"100000\r\n" + bytes(MIB) + b"\r\n"
        for _ in range(100):
            reader.connection.sendall(chunk)
        self.assert_error(reader.answer(), 413, "--max-body-bytes")

    def test_a_length_that_is_too_large_is_refused_at_once(self):
        """The client, which does not ask with Expect, gets the refusal before it sends the body."""
        server = Server("--max-body-bytes", "8M", "--min-rate", "0")
        self.addCleanup(server.stop)
        for path, count in ((infer_path(DEQUANTIZE), 9 * MIB), ("/v2/repository/index", 20000)):
            with self.subTest(path):
                reader = Reader(server.connect())
                self.addCleanup(reader.close)
                reader.connection.sendall(
                    b"POST %s HTTP/1.1\r\nHost: q\r\nContent-Length: %d\r\n\r\n"
                    % (path.encode(), count))
                self.assert_error(reader.answer(), 413, str(count))
                self.assertIsNone(reader.answer())

    def test_the_refusal_waits_for_a_slow_sender(self):
        """A client that sends all of its body before it reads gets the refusal, although the body
        takes longer than --receive-timeout. A busy machine may delay the test so that the rate is
        too low. The test then tries again."""
        server = Server("--max-body-bytes", "1K", "--receive-timeout", "1", "--min-rate", "1000")
        self.addCleanup(server.stop)
        answer = None
        for _ in range(20):
            reader = Reader(server.connect())
            self.addCleanup(reader.close)
            with contextlib.suppress(OSError):
                reader.connection.sendall((POST + "Content-Length: 30000\r\n\r\n").encode())
                for _ in range(30):
                    reader.connection.sendall(bytes(1000))
                    time.sleep(0.1)
                answer = reader.answer()
                if answer is not None:
                    break
        self.assert_error(answer, 413, "--max-body-bytes")

    def test_the_refusal_does_not_wait_for_a_silent_one(self):
        server = Server("--max-body-bytes", "1K", "--receive-timeout", "0.5")
        self.addCleanup(server.stop)
        fds = server.open_fds()
        reader = Reader(server.connect())
        self.addCleanup(reader.close)
        reader.connection.sendall((POST + "Content-Length: 30000\r\n\r\n").encode())
        self.assert_error(reader.answer(), 413)
        deadline = time.monotonic() + PATIENCE_S
        while server.open_fds() > fds:
            self.assertLess(time.monotonic(), deadline, "it is still connected")
            time.sleep(0.05)

    def test_silence_without_a_rate(self):
        """Without --min-rate, a body that stops gets its answer after the other two timeouts."""
        server = Server("--receive-timeout", "0.3", "--idle-timeout", "0.6", "--min-rate", "0")
        self.addCleanup(server.stop)
        chunked = "Transfer-Encoding: chunked\r\n\r\n"
        for body in ("Content-Length: 100\r\n\r\nhello", chunked + "9\r\nhello",
                     chunked + "5\r\nhello\r\n", chunked + "5\r\nhello\r\n0\r\nX-T"):
            with self.subTest(body):
                reader = Reader(server.connect())
                self.addCleanup(reader.close)
                started = time.monotonic()
                reader.connection.sendall((POST + body).encode())
                self.assert_error(reader.answer(), 408, "--receive-timeout", "--idle-timeout",
                                  "got 5")
                self.assertLess(0.5, time.monotonic() - started)
                self.assertIsNone(reader.answer())

    def test_no_rate(self):
        server = Server("--receive-timeout", "0.3", "--min-rate", "0")
        self.addCleanup(server.stop)
        connection = server.connect()
        request = large(100)
        connection.sendall(request[:-1])
        time.sleep(1)
        connection.sendall(request[-1:])
        reader = Reader(connection)
        self.addCleanup(reader.close)
        self.assertEqual(reader.answer().status, 200)


class Stuck(unittest.TestCase):
    def test_a_chunks_line_without_end(self):
        """The line fills the buffer of libmicrohttpd, which then loops without progress (0.9.75) or
        refuses the line. The rate is measured over 10 s here, and the I/O thread must not be busy
        for that time."""
        server = Server()
        self.addCleanup(server.stop)
        for line in (b"5;" + b"a" * 40000, b"0" * 200000):
            with self.subTest(line[:2]):
                reader = Reader(server.connect())
                self.addCleanup(reader.close)
                before = cpu_seconds(server)
                reader.connection.sendall((POST + "Transfer-Encoding: chunked\r\n\r\n").encode())
                reader.connection.sendall(line)
                answer = reader.answer()
                self.assertIn(answer.status, (400, 408, 413, 431))
                self.assertTrue(answer.json()["error"])
                self.assertLess(cpu_seconds(server) - before, 3)


class Readers(PaceTest):
    FLAGS = ("--receive-timeout", "1", "--min-rate", "20000", "--max-body-bytes", "8M")

    def wait_for_its_begin(self, connection):
        """Waits until an answer begins that is far larger than what the kernel keeps of it. The
        server has the rest until the client reads it or is cut off."""
        ready, _, _ = select.select([connection], [], [], PATIENCE_S)
        self.assertTrue(ready, "no answer")

    def check_cut(self, connection):
        """Checks that a client that reads nothing is cut off, and then gets only the bytes that
        were already sent."""
        cut = self.server.refusals("slow_reader")
        request = large(4 * MIB)
        connection.sendall(request)
        self.wait_for_its_begin(connection)
        self.wait_until_free()
        self.assertEqual(self.server.refusals("slow_reader", cut + 1), cut + 1)
        self.assertLess(len(receive_all(connection)), 16 * MIB)
        connection.close()

    def check_fair(self, connect):
        """Checks that a client gets the whole answer although it takes longer than
        --receive-timeout. A busy machine may delay the test so that the rate is too low. The test
        then tries again."""
        for _ in range(20):
            count, longest = self.read_slowly(connect())
            if count >= 4 * MIB or longest < 0.4:
                break
        self.assertGreaterEqual(count, 4 * MIB, longest)

    def read_slowly(self, connection):
        """Returns how many bytes of an answer came, and the longest time between two reads."""
        last, longest, count, got = time.monotonic(), 0, 0, b" "
        with connection, contextlib.suppress(ConnectionError):
            connection.sendall(large(MIB))
            started = time.monotonic()
            while count < 4 * MIB and got:
                got = connection.recv(64 << 10)
                count += len(got)
                if time.monotonic() - started < 3:
                    time.sleep(0.1)
                last, before = time.monotonic(), last
                longest = max(longest, last - before)
        return count, longest

    def test_tcp(self):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((self.server.host, self.server.port))
        self.check_cut(connection)

    def test_fair_tcp(self):
        def connect():
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            connection.connect((self.server.host, self.server.port))
            return connection

        self.check_fair(connect)

    def test_trickled_tcp(self):
        """A few bytes now and then do not keep the minimum rate."""
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((self.server.host, self.server.port))
        connection.sendall(large(4 * MIB))
        self.wait_for_its_begin(connection)
        deadline = time.monotonic() + PATIENCE_S
        while self.inflight() > MIB:
            self.assertLess(time.monotonic(), deadline, "its memory is not free")
            connection.recv(10)
            time.sleep(0.05)
        connection.close()

    def test_unix(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "s")
            server = Server(*self.FLAGS, listen=("127.0.0.1:0", "unix:" + path))
            self.addCleanup(server.stop)
            self.server, before = server, self.server
            try:
                self.check_fair(lambda: connect_unix(path))
                self.check_cut(connect_unix(path))
            finally:
                self.server = before


class OverTls(TlsTest):
    """Bytes that bypass libmicrohttpd are encrypted, too."""

    FLAGS = ("--receive-timeout", "1", "--min-rate", "20000", "--max-body-bytes", "8M")

    def test_stalled_body(self):
        reader = Reader(self.server.connect())
        reader.connection.sendall((POST + "Content-Length: 100\r\n\r\nhello").encode())
        self.assert_error(reader.answer(), 408, "--min-rate")
        self.assertIsNone(reader.answer())
        reader.close()

    def test_reader_that_stops(self):
        fds = self.server.open_fds()
        connection = self.server.connect()
        connection.sendall(large(7 * MIB))
        self.assertTrue(select.select([connection], [], [], PATIENCE_S)[0], "no answer")
        deadline = time.monotonic() + PATIENCE_S
        while self.server.open_fds() > fds:
            self.assertLess(time.monotonic(), deadline, "it is still connected")
            time.sleep(0.05)
        connection.close()


class LargeOverTls(TlsTest):
    """The server does not refuse a client that pauses for a while."""

    FLAGS = ("--max-body-bytes", "8M")

    def test_too_large_in_chunks(self):
        reader = Reader(self.server.connect())
        reader.connection.sendall((POST + "Transfer-Encoding: chunked\r\n\r\n").encode())
        for _ in range(9):
            reader.connection.sendall(b"100000\r\n" + bytes(MIB) + b"\r\n")
        self.assert_error(reader.answer(), 413, "--max-body-bytes")
        reader.close()


class Memory(PaceTest):
    """A head alone reserves no memory: only bytes that have come count."""

    FLAGS = ("--max-inflight-bytes", "32M", "--max-body-bytes", "16M", "--min-rate", "0")

    def test_heads_without_bodies(self):
        readers = [self.open() for _ in range(8)]
        for reader in readers:
            reader.connection.sendall((POST + "Content-Length: 16000000\r\n\r\n").encode())
        reader = self.open()
        reader.connection.sendall(large(2 * MIB))
        self.assertEqual(reader.answer().status, 200)
        self.wait_until_free()

    def test_small_heads_without_bodies(self):
        """Blocks below 256 KiB count as a whole, so the announced bytes are not reserved at
        once."""
        readers = [self.open() for _ in range(120)]
        for reader, size in zip(readers, (100000, 200000, 255000) * 40):
            head = POST + "Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % size
            reader.connection.sendall(head.encode())
        for reader in readers:
            self.assertEqual(reader.answer().status, 100)
        self.assertLess(self.inflight(), len(readers) * 32 << 10)
        reader = self.open()
        reader.connection.sendall(large(200000))
        self.assertEqual(reader.answer().status, 200)

    def assert_told_that_it_is_full(self, answer):
        self.assert_error(answer, 503, "--max-inflight-bytes")
        self.assertGreaterEqual(int(answer.headers["Retry-After"]), 1)

    def test_full_in_the_middle(self):
        """The server asks each client for its body while there is room for it. Ten bodies fill the
        bound before one is complete. At least four clients are therefore told before their bodies
        end, including clients that have sent all but the last byte and then lost their memory. The
        others are answered, or told if there is no room for their outputs. A client that comes
        after these is answered."""
        request = large(3 * MIB)
        head, body = request.split(b"\r\n\r\n", 1)
        waiting = [self.open() for _ in range(14)]
        for reader in waiting:
            reader.connection.sendall(head + b"\r\nExpect: 100-continue\r\n\r\n")
        for reader in waiting:
            self.assertEqual(reader.answer().status, 100)
        for reader in waiting:
            with contextlib.suppress(OSError):  # the server has already refused it
                reader.connection.sendall(body[:-1])
        while len(waiting) > 10:
            ready, _, _ = select.select([reader.connection for reader in waiting], [], [],
                                        PATIENCE_S)
            self.assertTrue(ready, "%d bodies of 3 MiB are in 32 MiB" % len(waiting))
            for reader in [reader for reader in waiting if reader.connection in ready]:
                self.assert_told_that_it_is_full(reader.answer())
                waiting.remove(reader)
        self.assertLessEqual(self.inflight(), 32 * MIB)
        for reader in waiting:
            with contextlib.suppress(OSError):  # the server has refused it meanwhile
                reader.connection.sendall(request[-1:])
        for reader in waiting:
            answer = reader.answer()
            if answer.status != 200:
                self.assert_told_that_it_is_full(answer)
        self.wait_until_free()
        reader = self.open()
        reader.connection.sendall(request)
        self.assertEqual(reader.answer().status, 200)
        self.wait_until_free()

    def test_many_small_chunks(self):
        reader = self.open()
        reader.connection.sendall((POST + "Transfer-Encoding: chunked\r\n\r\n").encode())
        piece, count = b"1\r\n \r\n" * 50000, 0
        reader.connection.settimeout(0)
        answer = None
        # The kernel keeps some bytes that the server has not read yet.
        while answer is None and count < 400:
            reader.connection.settimeout(30 * SLOW)
            reader.connection.sendall(piece)
            count += 1
            reader.connection.settimeout(0)
            try:
                answer = reader.connection.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                pass
        reader.connection.settimeout(30 * SLOW)
        self.assertLessEqual(20, count)
        self.assert_error(reader.answer(), 413, "chunks")


class Gone(unittest.TestCase):
    """Work for a client that has left ends at the next unit."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "s")
        self.log = Path(self.folder.name, "access.log")
        self.server = Server("--threads", "1", "--access-log", str(self.log),
                             "--compute-timeout", "1000",  # for a sanitizer on a busy machine
                             listen=("127.0.0.1:0", "unix:" + self.path))
        self.addCleanup(self.server.stop)

    def busy(self):
        metrics = parse_metrics(self.server.get("/metrics").body.decode())
        return (metrics[("quantd_workers_busy", ())] + metrics[("quantd_queue_length", ())])

    def start(self, connection, batch=4, kernel=31):
        """Sends a request that by default takes several seconds."""
        shapes = {"x": ("UINT8", [batch, 64, 512, 512]), "w": ("INT8", [64, 64, kernel, kernel])}
        tensors = [Tensor(name, kind, shape, bytes(math.prod(shape)))
                   for name, (kind, shape) in shapes.items()]
        for name, kind in (("x", "UINT8"), ("w", "INT8"), ("y", "UINT8")):
            tensors += [Tensor.of(name + "_scale", "FP32", [], [1]),
                        Tensor.of(name + "_zero_point", kind, [], [0])]
        body, headers = binary_request(tensors, {"pads": [kernel // 2] * 4})
        lines = ["POST %s HTTP/1.1" % infer_path("onnx.QLinearConv"), "Host: q",
                 "Content-Length: %d" % len(body)] + ["%s: %s" % pair for pair in headers.items()]
        connection.sendall("\r\n".join(lines + ["", ""]).encode() + body)
        deadline = time.monotonic() + PATIENCE_S
        while self.busy() == 0 and not select.select([connection], [], [], 0)[0]:
            self.assertLess(time.monotonic(), deadline)

    def check_ends(self):
        """Checks that the work ends early: a request that is computed to its end logs no error."""
        deadline = time.monotonic() + PATIENCE_S
        while b"onnx.QLinearConv" not in self.log.read_bytes():
            self.assertLess(time.monotonic(), deadline, "it still computes")
            time.sleep(0.02)
        line, = [line for line in self.log.read_text().splitlines() if "onnx.QLinearConv" in line]
        self.assertIn('msg="gone before the answer"', line)
        self.assertIn('error="the client has gone"', line)
        wait_until(lambda: self.busy() == 0, "idle workers")

    def test_closed(self):
        connection = self.server.connect()
        self.start(connection)
        connection.close()
        self.check_ends()

    def test_reset(self):
        connection = self.server.connect()
        self.start(connection)
        reset(connection)
        self.check_ends()

    def test_unix(self):
        connection = connect_unix(self.path)
        self.start(connection)
        connection.close()
        self.check_ends()

    def test_who_has_only_shut_its_sending_side_gets_its_answer(self):
        reader = Reader(self.server.connect(60))
        self.addCleanup(reader.close)
        # With a sanitizer, computing is about ten times slower, and in an emulator slower still.
        batch, kernel = (1, 5) if SLOW > 1 else (4, 7)
        self.start(reader.connection, batch, kernel)
        reader.connection.shutdown(socket.SHUT_WR)
        answer = reader.final_answer()
        self.assertEqual(answer.status, 200, answer.body[:200])
        self.assertEqual(len(answer.outputs()["y"][2]), batch * 64 * 512 * 512)


@unittest.skipIf(SANITIZED, "they make calls of their own")
class Idle(unittest.TestCase):
    """Idle connections take no CPU time."""

    def test_no_context_switches(self):
        server = Server()
        self.addCleanup(server.stop)
        clients = [server.client() for _ in range(20)]
        for client in clients:
            exchange(client, "GET", "/v2/health/live")

        def switches():
            with open("/proc/%d/status" % server.pid) as file:
                lines = dict(line.split(":\t") for line in file if ":\t" in line)
            return int(lines["voluntary_ctxt_switches"])

        counts = []
        while not counts or counts[-1] > 2:  # the last work for the new connections ends some time
            self.assertLess(len(counts), 30, counts)
            before = switches()
            time.sleep(1)
            counts.append(switches() - before)
        for client in clients:
            client.close()


if __name__ == "__main__":
    unittest.main()
