"""More large requests at once than there is memory for: what fits is answered, one after another,
who is refused is refused early, small ones do not notice, and nobody holds the others out."""
import contextlib
import threading
import time
import unittest

from quantd import (SLOW, Reader, Server, Tensor, binary_request, parse_metrics,
                    raw_infer, run_threads)
from samples import DEQUANTIZE, dequantize_json

MIB = 1 << 20
PATIENCE_S = 30 * SLOW


def tensors(mebibytes):
    """The answer has four times as many."""
    count = mebibytes * MIB
    return [Tensor("x", "UINT8", [count], bytes(count)), Tensor.of("x_scale", "FP32", [], [1])]


def binary(mebibytes):
    return raw_infer(DEQUANTIZE, *binary_request(tensors(mebibytes)))


def json_text(mebibytes):
    """So much text, a quarter of it as tensors, and as much again as FP32."""
    count = mebibytes * MIB // 4
    body = (b'{"inputs":[{"name":"x","datatype":"UINT8","shape":[%d],"data":[' % count
            + b"200," * (count - 1) + b'200]},{"name":"x_scale","datatype":"FP32","shape":[],'
            b'"data":[1]}],"parameters":{"binary_data_output":true}}')
    return raw_infer(DEQUANTIZE, body)


def chunked(request):
    head, body = request.split(b"\r\n\r\n", 1)
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"content-length")]
    pieces = [body[i:i + MIB] for i in range(0, len(body), MIB)]
    return b"".join([b"\r\n".join(lines), b"\r\nTransfer-Encoding: chunked\r\n\r\n"]
                    + [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces]
                    + [b"0\r\n\r\n"])


class Overload(unittest.TestCase):
    def start(self, *flags):
        server = Server("--threads", "2", "--min-rate", "0", *flags)
        self.addCleanup(server.stop)
        return server

    def ask_at_once(self, server, request, count):
        """All but their last bytes first, so that all of them are there. Their answers."""
        readers = [Reader(server.connect(PATIENCE_S)) for _ in range(count)]
        for reader in readers:
            with contextlib.suppress(OSError):  # it is refused already
                reader.connection.sendall(request[:-1])
        answers = []

        def end(reader):
            with contextlib.suppress(OSError):
                reader.connection.sendall(request[-1:])
            answers.append(reader.answer())
            reader.close()

        run_threads([lambda reader=reader: end(reader) for reader in readers])
        return answers

    def assert_that_what_fits_is_answered(self, request, least, *flags):
        server = self.start("--max-inflight-bytes", "64M", *flags)
        small = []
        over = threading.Event()

        def ask_small():
            while not over.is_set():
                small.append(server.infer(DEQUANTIZE, dequantize_json()).status)

        asking = threading.Thread(target=ask_small)
        asking.start()
        try:
            answers = self.ask_at_once(server, request, 24)
        finally:
            over.set()
            asking.join()
        self.assertLessEqual({answer.status for answer in answers}, {200, 503})
        for answer in answers:
            if answer.status == 503:
                self.assertIn("--max-inflight-bytes", answer.json()["error"])
                self.assertIn(int(answer.headers["Retry-After"]), range(1, PATIENCE_S + 1))
        self.assertGreaterEqual([answer.status for answer in answers].count(200), least)
        self.assertEqual(set(small), {200})

    def test_binary(self):
        # 4 MiB become 20 in all. Some 15 of them fill the memory; of these 11 wait while one is
        # computed. Without that order, three were answered.
        self.assert_that_what_fits_is_answered(binary(4), 6)

    def test_several_loops(self):
        self.assert_that_what_fits_is_answered(binary(4), 6, "--io-threads", "2")

    def test_json(self):
        self.assert_that_what_fits_is_answered(json_text(6), 7)

    def test_chunked(self):
        # Each takes up to 2 MiB more than it has, since nobody knows its end.
        self.assert_that_what_fits_is_answered(chunked(binary(4)), 4)

    def test_half_sent_bodies_hold_nobody_out(self):
        server = self.start("--max-inflight-bytes", "32M")
        request = binary(4)
        halves = [server.connect() for _ in range(12)]
        for half in halves:
            with contextlib.suppress(OSError):
                half.sendall(request[:-1000])
        end = time.monotonic() + PATIENCE_S
        while self.inflight(server) <= 24 * MIB:  # the kernel has some of them yet
            self.assertLess(time.monotonic(), end, "the bodies' halves are not read")
            time.sleep(0.01)
        while (answer := self.ask_at_once(server, request, 1)[0]).status != 200:
            self.assertEqual(answer.status, 503)
            self.assertLess(time.monotonic(), end, "bodies that do not come hold all the memory")
            time.sleep(0.1)
        for half in halves:
            half.close()

    def inflight(self, server):
        return parse_metrics(server.get("/metrics").body.decode())["quantd_inflight_bytes", ()]


if __name__ == "__main__":
    unittest.main()
