"""More large requests at once than there is memory for: the requests that fit are answered one
after another, the others are refused early, small requests are not affected, and no client can keep
the others out."""
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
    """Returns the tensors of a request whose answer has four times as many bytes."""
    count = mebibytes * MIB
    return [Tensor("x", "UINT8", [count], bytes(count)), Tensor.of("x_scale", "FP32", [], [1])]


def binary(mebibytes):
    return raw_infer(DEQUANTIZE, *binary_request(tensors(mebibytes)))


def json_text(mebibytes):
    """Returns a request with that much JSON text. Its tensors have a quarter of the bytes, and its
    FP32 answer as many as the text."""
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
        """Sends all requests but their last bytes first, so that the server has all of them.
        Returns the answers."""
        readers = [Reader(server.connect(PATIENCE_S)) for _ in range(count)]
        for reader in readers:
            with contextlib.suppress(OSError):  # the server has already refused it
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
        """Asks several times if fewer are answered: a busy machine may let the last bytes come one
        after another."""
        server = self.start("--max-inflight-bytes", "64M", *flags)
        small = []
        over = threading.Event()

        def ask_small():
            while not over.is_set():
                small.append(server.infer(DEQUANTIZE, dequantize_json()).status)

        asking = threading.Thread(target=ask_small)
        asking.start()
        try:
            for _ in range(5):
                answers = self.ask_at_once(server, request, 24)
                self.check_refusals(answers)
                answered = [answer.status for answer in answers].count(200)
                if answered >= least:
                    break
        finally:
            over.set()
            asking.join()
        self.assertGreaterEqual(answered, least)
        self.assertEqual(set(small), {200})

    def check_refusals(self, answers):
        self.assertLessEqual({answer.status for answer in answers}, {200, 503})
        for answer in answers:
            if answer.status == 503:
                self.assertIn("--max-inflight-bytes", answer.json()["error"])
                self.assertIn(int(answer.headers["Retry-After"]), range(1, PATIENCE_S + 1))

    def test_binary(self):
        # A body of 4 MiB needs 20 MiB in all. About 15 bodies fill the memory; 11 of them wait
        # while one is computed. Without that order, three requests were answered.
        self.assert_that_what_fits_is_answered(binary(4), 6)

    def test_several_loops(self):
        self.assert_that_what_fits_is_answered(binary(4), 6, "--io-threads", "2")

    def test_json(self):
        self.assert_that_what_fits_is_answered(json_text(6), 7)

    def test_chunked(self):
        # Each body reserves up to 2 MiB more than it has, because its length is unknown.
        self.assert_that_what_fits_is_answered(chunked(binary(4)), 4)

    def test_half_sent_bodies_hold_nobody_out(self):
        server = self.start("--max-inflight-bytes", "32M")
        request = binary(4)
        halves = [server.connect() for _ in range(12)]
        for half in halves:
            with contextlib.suppress(OSError):
                half.sendall(request[:-1000])
        end = time.monotonic() + PATIENCE_S
        while self.inflight(server) <= 24 * MIB:  # the kernel still has some of the bytes
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
