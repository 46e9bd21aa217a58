"""Which requests HAProxy sends again and which not; requests larger than its buffer; overload."""
import http.client
import json
import random
import signal
import threading
import unittest

from fleet import PATIENCE_S
from loading import kept_request
from quantd import ONE_IO_THREAD, Tensor, binary_request, exchange, infer_path, run_threads
from samples import CONV, DEQUANTIZE, dequantize_json
from test_loss import FleetTest

MIB = 1 << 20
LOST = (502, "application/json", b'{"error":"the replica was lost"}')


def dequantize_request(count):
    """Returns (body, headers), and the expected bytes of the output."""
    x = random.Random(count).randbytes(count)
    half = [Tensor("x", "UINT8", [count], x), Tensor.of("x_scale", "FP32", [], [0.5])]
    values = [Tensor.of("y", "FP32", [1], [i * 0.5]).raw for i in range(256)]
    return binary_request(half), b"".join(map(values.__getitem__, x))


def conv_request(channels, size):
    """Returns a request with much computation for each of its bytes."""
    x, w = (random.Random(size).randbytes(count) for count in
            (channels * size * size, channels * channels * 9))
    tensors = [Tensor("x", "UINT8", [1, channels, size, size], x),
               Tensor.of("x_scale", "FP32", [], [1]), Tensor.of("x_zero_point", "UINT8", [], [0]),
               Tensor("w", "INT8", [channels, channels, 3, 3], w),
               Tensor.of("w_scale", "FP32", [], [1]), Tensor.of("w_zero_point", "INT8", [], [0]),
               Tensor.of("y_scale", "FP32", [], [4096]),
               Tensor.of("y_zero_point", "UINT8", [], [0])]
    return binary_request(tensors)


class Call(threading.Thread):
    """Sends a request through HAProxy in a thread, and keeps its answer."""

    def __init__(self, port, path, body, headers=None):
        super().__init__(daemon=True)
        self.port, self.request = port, ("POST", path, body, headers or {})
        self.answer = None
        self.start()

    def run(self):
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            self.answer = exchange(client, *self.request)
        finally:
            client.close()

    def end(self):
        self.join(2 * PATIENCE_S)
        if self.answer is None:
            raise AssertionError("no answer")
        return self.answer

    def brief(self):
        answer = self.end()
        return answer.status, answer.headers["Content-Type"], answer.body


class SentAnew(FleetTest):
    FLAGS = (*FleetTest.FLAGS, "--model-control-mode", "explicit")

    def lose(self, path, body, headers=None):
        """Sends a request, and kills the replica that has it. All replicas are stopped until then,
        so the request is not computed. Returns the call."""
        for replica in self.replicas:
            replica.signal(signal.SIGSTOP)
        call = Call(self.proxy.port, path, body, headers)
        self.replicas[self.proxy.busy()].kill()
        for replica in self.replicas:
            if replica.server is not None:
                replica.signal(signal.SIGCONT)
        return call

    def test_an_inference_is(self):
        for body, headers in ((json.dumps(dequantize_json()), {}), dequantize_request(50000)[0]):
            call = self.lose(infer_path(DEQUANTIZE), body, headers)
            answer = call.end()
            self.assertEqual(answer.status, 200, answer.body[:300])
            self.setUp()

    def test_a_load_is_not(self):
        call = self.lose("/v2/repository/models/layer/load", json.dumps(kept_request([1, 2])))
        self.assertEqual(call.brief(), LOST)
        for replica in self.replicas:
            if replica.server is not None:
                index = replica.server.request("POST", "/v2/repository/index").json()
                self.assertNotIn("layer", [model["name"] for model in index])

    def test_what_is_larger_than_the_buffer_is_not(self):
        (body, headers), _ = dequantize_request(MIB)
        self.assertEqual(self.lose(infer_path(DEQUANTIZE), body, headers).brief(), LOST)

    def test_what_is_larger_passes_and_goes_elsewhere_where_it_is_refused(self):
        (body, headers), expected = dequantize_request(2 * MIB)
        self.replicas[0].kill()
        calls = [Call(self.proxy.port, infer_path(DEQUANTIZE), body, headers) for _ in range(6)]
        for call in calls:
            answer = call.end()
            self.assertEqual(answer.status, 200, answer.body[:300])
            self.assertEqual(answer.outputs()["y"][2], expected)


class Drain(FleetTest):
    """A replica that shuts down answers the requests that it has, also large and long ones."""

    FLAGS = ("--threads", "1", "--cpu", "scalar", "--measure", "off", "--drain-timeout", "100")

    def test_what_is_under_way_is_answered(self):
        """The request takes longer than two health checks, and is too large to be sent again."""
        body, headers = conv_request(160, 96)
        call = Call(self.proxy.port, infer_path(CONV), body, headers)
        index = self.proxy.busy()
        self.replicas[index].server.terminate()
        self.replicas[index].server.wait(2 * PATIENCE_S)
        answer = call.end()
        self.assertEqual(answer.status, 200, answer.body[:300])
        other = self.replicas[index - 1].server.infer(CONV, body, headers=headers)
        self.assertEqual(answer.outputs(), other.outputs())
        self.replicas[index].start()


class TooMuch(FleetTest):
    """Each replica computes one request and queues another."""

    FLAGS = ("--threads", "1", "--max-queue", "1", "--cpu", "scalar", "--loop-computes", "off",
             *ONE_IO_THREAD)

    def test_refusals_are_passed_on_and_nobody_else_is_asked(self):
        body, headers = conv_request(32, 40)
        expected = self.replicas[0].server.infer(CONV, body, headers=headers).outputs()
        answers = []

        def ask():
            client = http.client.HTTPConnection("127.0.0.1", self.proxy.port, timeout=PATIENCE_S)
            for _ in range(15):
                answers.append(exchange(client, "POST", infer_path(CONV), body, headers))
            client.close()

        run_threads([ask] * 12)
        refused = [answer for answer in answers if answer.status != 200]
        for answer in refused:
            self.assertEqual(answer.status, 503, answer.body)
            self.assertIn("--max-queue", answer.json()["error"])
            self.assertGreaterEqual(int(answer.headers["Retry-After"]), 1)
        for answer in answers:
            if answer.status == 200:
                self.assertEqual(answer.outputs(), expected)
        self.assertGreater(len(answers), len(refused))
        self.assertGreater(len(refused), 0)
        self.assertEqual(sum(replica.refusals("queue") for replica in self.replicas), len(refused))


if __name__ == "__main__":
    unittest.main()
