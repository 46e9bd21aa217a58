"""If memory runs out, the server sends whole answers or none."""
import os
import tempfile
import unittest
from pathlib import Path

from quantd import SANITIZED, Reader, Server, Tensor, binary_request, infer_path, json_request
from shim import shim

DEQUANTIZE = "onnx.DequantizeLinear"


def post(path, body, headers=None):
    lines = ["POST %s HTTP/1.1" % path, "Host: q", "Content-Length: %d" % len(body)]
    lines += ["%s: %s" % pair for pair in (headers or {}).items()]
    return "\r\n".join(lines + ["", ""]).encode() + body


def get(path):
    return b"GET %s HTTP/1.1\r\nHost: q\r\n\r\n" % path.encode()


@unittest.skipIf(SANITIZED, "a sanitizer brings its own malloc")
class FailingMalloc(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.switch = os.path.join(directory.name, "switch")
        self.server = Server(env={"LD_PRELOAD": shim(self, "failing_malloc"),
                                  "FAILING_MALLOC_SWITCH": self.switch})

    def try_once(self, request):
        """Returns the answer, or None if the server closed the connection instead."""
        connection = self.server.connect()
        reader = Reader(connection)
        try:
            connection.sendall(request)
            return reader.answer()
        except (ConnectionError, BrokenPipeError):
            return None
        finally:
            reader.close()

    def test_whole_answers_or_none(self):
        count = 3000
        x = Tensor.of("x", "UINT8", [count], [i % 256 for i in range(count)])
        scale = Tensor.of("x_scale", "FP32", [], [0.5])
        expected = Tensor.of("y", "FP32", [count], [i % 256 / 2 for i in range(count)]).raw
        binary, headers = binary_request([x, scale])
        requests = {
            "json": post(infer_path(DEQUANTIZE), str(json_request([x, scale])).replace("'", '"')
                         .encode()),
            "binary": post(infer_path(DEQUANTIZE), binary, headers),
            "index": post("/v2/repository/index", b'{"ready":true}'),
            "metrics": get("/metrics"),
            "config": get("/v2/models/%s/config" % DEQUANTIZE),
        }
        statuses = {name: [] for name in requests}
        Path(self.switch).touch()
        for _ in range(300):
            for name, request in requests.items():
                answer = self.try_once(request)
                statuses[name].append(None if answer is None else answer.status)
                if answer is None:
                    continue
                self.assertIn(answer.status, (200, 503), answer.body[:500])
                self.assertIsNotNone(answer.headers["Content-Type"])
                if answer.status == 503:
                    self.assertIn("memory", answer.json()["error"])
                    self.assertIsNotNone(answer.headers["Retry-After"])
                elif name in ("json", "binary"):
                    self.assertEqual(answer.outputs()["y"], ("FP32", [count], expected))
        os.unlink(self.switch)
        for name, of_one in statuses.items():
            self.assertIn(200, of_one, name)
            self.assertTrue(None in of_one or 503 in of_one, "%s never met a failure" % name)
        self.assertEqual(self.server.metric_once(0, "quantd_inflight_bytes"), 0)
        self.server.stop()
