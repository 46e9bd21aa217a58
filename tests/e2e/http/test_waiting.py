"""Bounds on how long a request may wait, how long a shutdown may take, and how large an answer may
be."""
import math
import select
import socket
import threading
import time
import unittest

from quantd import (SLOW, Reader, Server, ServerTest, Tensor, binary_request, infer_path,
                    parse_metrics, raw_infer)
from samples import CONV, DEQUANTIZE, conv_tensors, dequantize_json

PATIENCE_S = 30 * SLOW


def gauge(server, name):
    return parse_metrics(server.get("/metrics").body.decode())[(name, ())]


def request_of(body, headers):
    lines = ["POST %s HTTP/1.1" % infer_path(CONV), "Host: q", "Content-Length: %d" % len(body)]
    return "\r\n".join(lines + ["%s: %s" % pair for pair in headers.items()]
                       + ["", ""]).encode() + body


def long_request(**parameters):
    """Returns a convolution of short units that takes far longer than any test waits."""
    shapes = {"x": ("UINT8", [1, 64, 16, 16]), "w": ("INT8", [64, 64, 63, 63])}
    tensors = [Tensor(name, kind, shape, bytes(math.prod(shape)))
               for name, (kind, shape) in shapes.items()]
    for name, kind in (("x", "UINT8"), ("w", "INT8"), ("y", "UINT8")):
        tensors += [Tensor.of(name + "_scale", "FP32", [], [1]),
                    Tensor.of(name + "_zero_point", kind, [], [0])]
    return request_of(*binary_request(tensors, dict(parameters, pads=[500] * 4)))


class Waiting(unittest.TestCase):
    def start(self, *flags):
        self.server = Server("--threads", "1", *flags)
        self.addCleanup(lambda: self.server.terminated or self.server.stop())

    def begin(self, request):
        """Sends a request, and waits until the only worker has it."""
        reader = Reader(self.server.connect())
        self.addCleanup(reader.close)
        reader.connection.sendall(request)
        deadline = time.monotonic() + PATIENCE_S
        while gauge(self.server, "quantd_workers_busy") == 0:
            self.assertLess(time.monotonic(), deadline)
        return reader

    def assert_waits(self, reader):
        self.assertEqual(select.select([reader.connection], [], [], 0)[0], [])

    def test_timeout(self):
        self.start()
        first = self.begin(long_request())
        second = Reader(self.server.connect())
        self.addCleanup(second.close)
        second.connection.sendall(long_request(timeout=1))
        answer = second.answer()
        self.assertEqual(answer.status, 503, answer.body[:300])
        self.assertIn("timeout", answer.json()["error"])
        self.assertGreaterEqual(int(answer.headers["Retry-After"]), 1)
        self.assert_waits(first)
        answer = self.server.infer(DEQUANTIZE, dequantize_json(parameters={"timeout": 10 ** 12}))
        self.assertEqual(answer.status, 200, answer.body[:300])
        self.assert_waits(first)

    def test_drain_timeout(self):
        self.start("--drain-timeout", "0.2")
        reader = self.begin(long_request())
        self.server.terminate()
        answer = reader.answer()
        if answer is not None:
            self.assertEqual(answer.status, 503, answer.body[:300])
        self.assertIn("drain timeout: closing the remaining connections", self.server.wait())

    def test_the_end_waits_for_a_client_that_waits(self):
        self.start("--drain-timeout", "1000")
        reader = self.begin(long_request())
        self.server.terminate()
        deadline = time.monotonic() + PATIENCE_S
        while 'msg="draining"' not in self.server.stderr():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        self.assert_waits(reader)
        self.assertIsNone(self.server.process.poll())
        reader.close()
        self.assertNotIn("drain timeout", self.server.wait())


class TheEnd(unittest.TestCase):
    def test_answers_arrive_although_more_requests_do(self):
        """If the server closed with unread requests in its socket, the kernel would reset the
        connection. The client's kernel then discards answers that have come, and ours discards
        answers that it has not sent."""
        server = Server()
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client.connect((server.host, server.port))
        requests = raw_infer(DEQUANTIZE, dequantize_json(id="i" * 700)) * 3000
        sender = threading.Thread(target=self.send, args=(client, requests))
        sender.start()
        time.sleep(0.5)
        server.terminate()
        time.sleep(0.2)
        reader = Reader(client)
        closes = False
        while not closes:
            answer = reader.answer()
            self.assertEqual(answer.status, 200)
            closes = answer.headers.get("Connection") == "close"
        self.assertIsNone(reader.answer())
        reader.close()
        sender.join()
        server.wait()

    @staticmethod
    def send(client, requests):
        try:
            client.sendall(requests)
        except OSError:
            pass  # the server has closed


class AnswersBound(ServerTest):
    """An answer may have 64 MiB plus 16 times the bytes of the request."""

    def grow(self, pad):
        """Sends one number, which becomes (1 + 2 pad) squared numbers."""
        body, headers = binary_request(conv_tensors([1], [1, 1, 1, 1], [1], [1, 1, 1, 1]),
                                       {"pads": [pad] * 4})
        return self.server.infer(CONV, body, headers=headers)

    def test_the_largest(self):
        side = 1 + 2 * 4095
        answer = self.grow(4095)
        self.assertEqual(answer.status, 200, answer.body[:300])
        self.assertEqual(answer.outputs()["y"][1], [1, 1, side, side])

    def test_more(self):
        for pad in (4097 + 100, 16384, 1 << 20):
            self.assert_error(self.grow(pad), 413, "bytes")
        deadline = time.monotonic() + PATIENCE_S
        while gauge(self.server, "quantd_inflight_bytes") > 0:
            self.assertLess(time.monotonic(), deadline)


if __name__ == "__main__":
    unittest.main()
