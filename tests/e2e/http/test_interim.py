"""An interim answer meets a full socket. The bytes that the socket did not take must all be sent
before the final answer."""
import math
import os
import socket
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from quantd import (SANITIZED, SLOW, Reader, Server, ServerTest, Tensor, binary_request, infer_path,
                    parse_metrics, raw_infer, unless_emulated)
from samples import CONV, DEQUANTIZE, dequantize_json
from shim import shim
from tls import TlsTest, TwoWayTls

COMPUTE_S = 2 * SLOW
# Plain C takes minutes for WAITING; a fast CPU's own kernels may take less than COMPUTE_S.
FLAGS = ("--threads", "1", "--compute-timeout", str(COMPUTE_S), "--cpu", "scalar")
# However long a busy machine takes to read their answers, these clients are not cut off.
SLOW_READERS_FLAGS = (*FLAGS, "--min-rate", "0", "--idle-timeout", "3600", "--receive-timeout",
                      "3600")


def waiting_request():
    """Returns a convolution that takes longer than COMPUTE_S but has a small body."""
    shapes = {"x": ("UINT8", [1, 64, 16, 16]), "w": ("INT8", [64, 64, 31, 31])}
    tensors = [Tensor(name, kind, shape, bytes(math.prod(shape)))
               for name, (kind, shape) in shapes.items()]
    for name, kind in (("x", "UINT8"), ("w", "INT8"), ("y", "UINT8")):
        tensors += [Tensor.of(name + "_scale", "FP32", [], [1]),
                    Tensor.of(name + "_zero_point", kind, [], [0])]
    body, headers = binary_request(tensors, {"pads": [480] * 4})
    return raw_infer(CONV, body, headers)


WAITING = waiting_request()


def shut_sending_side(connection):
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        same.shutdown(socket.SHUT_WR)


class InterimTest:
    """For servers with one worker and a compute timeout of COMPUTE_S."""

    def read_answers(self, reader, count):
        """Reads `count` small answers, then the answer to WAITING, with interim answers before it,
        to the end of the connection. Returns how many interim answers came."""
        for _ in range(count):
            answer = reader.answer()
            self.assertEqual(answer.status, 200, answer.body[:300])
            self.assertEqual(answer.outputs()["y"][1], [4])
        answer = reader.answer()
        interims = 0
        while answer is not None and answer.status == 100:
            interims += 1
            answer = reader.answer()
        self.assertIsNotNone(answer)
        self.assertEqual(answer.status, 503, answer.body[:200])
        self.assertIn("--compute-timeout", answer.json()["error"])
        self.assertEqual(reader.file.read(), b"")
        return interims


class Preloaded(InterimTest):
    """The preloaded library makes the socket full at exactly the moment of the interim answer."""

    TAKEN = (0, 1, 24)

    def with_each(self, check, *flags):
        """Starts a server for each of TAKEN (how many bytes the full socket takes), and checks all
        of them at once."""
        preloaded = shim(self, "full_socket")
        servers = [self.start(*FLAGS, *flags, env={"LD_PRELOAD": preloaded,
                                                   "FULL_SOCKET": str(taken)})
                   for taken in self.TAKEN]
        try:
            with ThreadPoolExecutor(len(servers)) as pool:
                list(pool.map(check, servers, self.TAKEN))
        finally:
            for server in servers:
                server.stop()

    def test_ours(self):
        def check(server, taken):
            reader = Reader(server.connect())
            reader.connection.sendall(WAITING)
            shut_sending_side(reader.connection)
            # If the socket took nothing, other bytes of the server are still on their way to the
            # client, so over TCP the server need not probe the connection with an interim answer.
            # With TLS, GnuTLS has buffered the interim answer all the same.
            interims = self.read_answers(reader, 0)
            self.assertEqual(interims, 1 if taken > 0 or server.tls else 0)
            reader.close()

        self.with_each(check)

    def test_the_librarys(self):
        """A client that never sends the body that it has announced is refused directly, without
        libmicrohttpd."""
        def check(server, _):
            reader = Reader(server.connect())
            reader.connection.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
                                      b"Content-Length: 100\r\n\r\n"
                                      % infer_path(DEQUANTIZE).encode())
            answers = [reader.answer()]
            if answers[0].status == 100:
                answers.append(reader.answer())
            self.assertEqual(answers[-1].status, 408)
            self.assertIn("the body", answers[-1].json()["error"])
            self.assertEqual(reader.file.read(), b"")
            reader.close()

        self.with_each(check, "--receive-timeout", str(0.5 * SLOW))


@unittest.skipIf(SANITIZED, "a sanitizer wants to be loaded first")
@unless_emulated("preloading")
class PreloadedPlain(Preloaded, unittest.TestCase):
    start = Server


@unittest.skipIf(SANITIZED, "a sanitizer wants to be loaded first")
@unless_emulated("preloading")
class PreloadedTls(Preloaded, TlsTest):
    def start(self, *flags, env):
        return Server("--tls-cert", str(self.folder / "cert"), "--tls-key",
                      str(self.folder / "key"), *flags, env=env)

    def test_the_end(self):
        """Without close_notify, a client could not know whether the server or an attacker has ended
        the connection."""
        more_than_normal = 2 * (128 << 10) + 1  # the kernel doubles a socket's size
        server = self.start(env={"LD_PRELOAD": shim(self, "full_socket"),
                                 "FULL_AT_END": str(more_than_normal)})
        try:
            for head in (b"", b"Connection: close\r\n", b"Transfer-Encoding: other\r\n"):
                with self.subTest(head=head):
                    request = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n%s\r\n" % head
                    connection = TwoWayTls(server.connect_tcp(), server.tls)
                    reader = Reader(connection)
                    connection.sendall(request)
                    shut_sending_side(connection)
                    self.assertIn(reader.answer().status, (200, 400, 501))
                    self.assertEqual(reader.file.read(), b"")
                    reader.close()
        finally:
            server.stop()


class SlowReaders(InterimTest):
    """Clients with a tiny receive window that read only when all requests have been sent."""

    def connect_narrow(self):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.settimeout(60 * SLOW)
        connection.connect((self.server.host, self.server.port))
        return TwoWayTls(connection, self.server.tls) if self.server.tls else connection

    def small(self, pad=0):
        return raw_infer(DEQUANTIZE, dequantize_json(id="i" * pad))

    def done(self):
        samples = parse_metrics(self.server.get("/metrics").body.decode())
        return sum(value for (name, labels), value in samples.items()
                   if name == "nv_inference_request_success" and ("model", DEQUANTIZE) in labels)

    def send(self, connection, requests, shuts=True):
        """Starts a thread that sends as far as the server reads. It ends when everything is sent or
        the connection fails. Returns the thread."""
        def run():
            try:
                connection.sendall(requests)
                if shuts:
                    shut_sending_side(connection)
            except OSError:
                pass  # the thread that reads finds the error

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def count_that_fit(self):
        """Returns how many small answers the sockets hold for a client that reads none."""
        connection = self.connect_narrow()
        before = self.done()
        thread = self.send(connection, self.small() * 2500, shuts=False)
        fitting = self.done_at_rest(before) - before
        shut_sending_side(connection)
        with socket.socket(fileno=os.dup(connection.fileno())) as same:
            same.shutdown(socket.SHUT_RDWR)
        thread.join()
        connection.close()
        return int(fitting)

    def done_at_rest(self, before):
        """Waits until the server has answered more than `before` requests and the count is stable.
        Returns the count."""
        last, quiet = before, 0
        while quiet < 10:
            time.sleep(0.02 * SLOW)
            now = self.done()
            quiet = quiet + 1 if now == last and now > before else 0
            last = now
        return last

    def test_answers_are_whole(self):
        """The last small answer has a different length on each connection, so one of them leaves
        hardly any room in the socket."""
        fitting = self.count_that_fit()
        self.assertGreater(fitting, 100)
        before = self.done()
        readers, small_ones = [], []
        for pad in range(0, 480, 20):
            connection = self.connect_narrow()
            requests = self.small() * (fitting - 2) + self.small(pad)
            readers.append(Reader(connection))
            small_ones.append(self.send(connection, requests, shuts=False))
        # The only worker is free until this wait ends. Otherwise small requests on a busy machine
        # could wait for it longer than --compute-timeout.
        self.done_at_rest(before)
        for thread in small_ones:
            thread.join()
        waiting_ones = [self.send(reader.connection, WAITING) for reader in readers]
        time.sleep(COMPUTE_S / 2)  # by then the server has probed each connection
        for reader, thread in zip(readers, waiting_ones):
            self.read_answers(reader, fitting - 1)
            thread.join()
            reader.close()


class SlowReadersPlain(SlowReaders, ServerTest):
    FLAGS = SLOW_READERS_FLAGS


class SlowReadersTls(SlowReaders, TlsTest):
    FLAGS = SLOW_READERS_FLAGS


if __name__ == "__main__":
    unittest.main()
