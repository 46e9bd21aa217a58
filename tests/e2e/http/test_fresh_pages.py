"""A server's first large bodies are received into fresh pages. A thread prefaults these pages, and
the bodies wait for it."""
import array
import socket
import time
import unittest

from quantd import (SLOW, Reader, Server, Tensor, binary_request, infer_path, parse_metrics,
                    raw_request, reset, run_threads)
from samples import DEQUANTIZE
from tls import TlsTest

MIB = 1 << 20
PATTERN = bytes(i * 37 % 251 for i in range(8191))  # no two pages begin with the same bytes
EXPECTED = array.array("f", list(PATTERN)).tobytes()


def large(mebibytes):
    """Returns (body, headers, expected output bytes) of a dequantization."""
    count = mebibytes * MIB // len(PATTERN)
    body, headers = binary_request([
        Tensor("x", "UINT8", [count * len(PATTERN)], PATTERN * count),
        Tensor.of("x_scale", "FP32", [], [1])])
    return body, headers, EXPECTED * count


def chunked(body, headers, size):
    lines = ["POST %s HTTP/1.1" % infer_path(DEQUANTIZE), "Host: q", "Transfer-Encoding: chunked"]
    lines += ["%s: %s" % pair for pair in headers.items()]
    pieces = [body[i:i + size] for i in range(0, len(body), size)]
    return ("\r\n".join(lines + ["", ""]).encode()
            + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n")


class Bodies(unittest.TestCase):
    def ask(self, server, mebibytes, chunk_bytes=0, ends=False):
        body, headers, expected = large(mebibytes)
        request = chunked(body, headers, chunk_bytes) if chunk_bytes else \
            raw_request("POST", infer_path(DEQUANTIZE), body, headers)
        reader = Reader(server.connect())
        try:
            reader.connection.sendall(request)
            if ends:
                reader.connection.shutdown(socket.SHUT_WR)
            answer = reader.final_answer()
            self.assertEqual(answer.status, 200, answer.body[:300])
            self.assertTrue(answer.outputs()["y"][2] == expected, "the answer is wrong")
        finally:
            reader.close()

    def wait_until_free(self, server):
        deadline = time.monotonic() + 30 * SLOW
        while parse_metrics(server.get("/metrics").body.decode())[
                ("quantd_inflight_bytes", ())] > MIB:
            self.assertLess(time.monotonic(), deadline, "its memory is not free")
            time.sleep(0.02)

    def test_each_kind(self):
        for options in ({}, {"ends": True}, {"chunk_bytes": 1 << 20}, {"chunk_bytes": 50001},
                        {"chunk_bytes": 3 << 20, "ends": True}):
            with self.subTest(options):
                server = Server()
                self.ask(server, 5, **options)
                self.ask(server, 6, **options)
                server.stop()

    def test_several_at_a_time(self):
        server = Server("--max-inflight-bytes", "512M")
        run_threads([lambda i=i: self.ask(server, 5 + i, chunk_bytes=i % 2 * 100000, ends=i > 1)
                     for i in range(4)])
        self.wait_until_free(server)
        server.stop()

    def test_clients_that_leave(self):
        server = Server("--max-inflight-bytes", "512M")
        body, headers, _ = large(8)
        request = raw_request("POST", infer_path(DEQUANTIZE), body, headers)
        for i in range(20):
            connection = server.connect()
            connection.sendall(request[:(i % 10 + 1) * 800000])
            if i % 2 == 0:
                reset(connection)
            else:
                connection.close()
        self.wait_until_free(server)
        self.ask(server, 8)
        server.stop()

    def test_an_end_in_the_middle(self):
        body, headers, _ = large(16)
        request = raw_request("POST", infer_path(DEQUANTIZE), body, headers)
        for bytes_ in (1200000, 2500000, 5000000, 7900000):
            server = Server("--drain-timeout", "0.05")
            connection = server.connect()
            connection.sendall(request[:bytes_])
            server.stop()
            connection.close()


class OverTls(TlsTest):
    def test_a_first_body(self):
        body, headers, expected = large(9)
        answer = self.server.infer(DEQUANTIZE, body, headers=headers)
        self.assertEqual(answer.status, 200, answer.body[:300])
        self.assertTrue(answer.outputs()["y"][2] == expected, "the answer is wrong")


if __name__ == "__main__":
    unittest.main()
