"""Bodies made to harm the server: it refuses them with 4xx, and its memory afterwards is as small
as before."""
import json
import random
import unittest

from quantd import SANITIZED, ServerTest, binary_request, exchange, infer_path, json_request
from samples import CONV, DEQUANTIZE, conv_tensors, dequantize_json, dequantize_tensors

MIB = 1 << 20


class Hostile(ServerTest):
    FLAGS = ("--max-body-bytes", "64M")

    def setUp(self):
        self.client = self.server.client(60)

    def tearDown(self):
        self.client.close()

    def assert_refused(self, body, headers=None, model=DEQUANTIZE):
        answer = exchange(self.client, "POST", infer_path(model), body, headers)
        self.assert_error(answer, answer.status)
        self.assertIn(answer.status, (400, 413))
        return answer

    def test_nested_brackets(self):
        deep = 100000
        for body in (b"[" * deep, b"[" * deep + b"]" * deep, b'{"a":' * deep, b"{" * deep,
                     b'{"inputs":' + b"[" * deep, b'{"inputs":[{"data":' + b"[" * deep,
                     b'{"inputs":[{"name":"x","shape":[1],"datatype":"UINT8","data":'
                     + b"[" * deep + b"1" + b"]" * deep + b"}]}",
                     b'{"parameters":{"a":' + b"[" * deep + b"]" * deep + b"}}",
                     b'{"id":' + b'{"x":' * deep + b"1" + b"}" * deep + b"}"):
            self.assert_refused(body)
        self.assert_alive()

    def test_nested_data_of_high_rank(self):
        for rank in (32, 33, 100, 5000):
            body = ('{"inputs":[{"name":"x","datatype":"UINT8","shape":[%s],"data":%s1%s},'
                    '{"name":"x_scale","datatype":"FP32","shape":[],"data":[1]}]}'
                    % (",".join(["1"] * rank), "[" * rank, "]" * rank))
            answer = exchange(self.client, "POST", infer_path(DEQUANTIZE), body)
            self.assertIn(answer.status, (200, 400), rank)
            self.assertEqual(answer.status == 200, rank <= 32, answer.body[:200])

    def test_many_of_everything(self):
        for body in (
                '{"inputs":[%s]}' % ",".join(['{"name":"q"}'] * 50000),
                '{"inputs":[%s]}' % ",".join(["{}"] * 500000),
                '{"outputs":[%s]}' % ",".join(['{"name":"y"}'] * 50000),
                '{"parameters":{%s}}' % ",".join('"p%d":1' % i for i in range(50000)),
                '{%s}' % ",".join('"p%d":1' % i for i in range(50000)),
                '{"id":"%s"' % ("x" * 5000000),
                '{"inputs":[{"name":"%s"}]}' % ("x" * 5000000),
                '{"inputs":[{"name":"x","shape":[%s]}]}' % ",".join(["1"] * 500000),
                '{"inputs":[{"name":"x","datatype":"%s"}]}' % ("U" * 3000000),
                '{"parameters":{"pads":"%s"}}' % ",".join(["1"] * 500000)):
            self.assert_refused(body)
        self.assert_alive()

    def test_output_much_larger_than_the_input(self):
        # A tiny request must not make the server allocate a huge answer: 1 x 1 input padded to 2^31
        # and beyond.
        tiny = {"inputs": [
            {"name": "x", "datatype": "UINT8", "shape": [1, 1, 1, 1], "data": [1]},
            {"name": "x_scale", "datatype": "FP32", "shape": [], "data": [1]},
            {"name": "x_zero_point", "datatype": "UINT8", "shape": [], "data": [0]},
            {"name": "w", "datatype": "INT8", "shape": [1, 1, 1, 1], "data": [1]},
            {"name": "w_scale", "datatype": "FP32", "shape": [], "data": [1]},
            {"name": "w_zero_point", "datatype": "INT8", "shape": [], "data": [0]},
            {"name": "y_scale", "datatype": "FP32", "shape": [], "data": [1]},
            {"name": "y_zero_point", "datatype": "UINT8", "shape": [], "data": [0]}]}
        for pads in ("100000,100000,100000,100000", "4611686018427387904,0,0,0",
                     "9223372036854775807,9223372036854775807,9223372036854775807,9",
                     "4294967296,4294967296,0,0", "2147483647,0,0,0"):
            tiny["parameters"] = {"pads": pads}
            answer = exchange(self.client, "POST", infer_path(CONV), json.dumps(tiny))
            self.assertIn(answer.status, (400, 413, 503), pads)
            self.assert_error(answer, answer.status)
        self.assert_alive()

    def test_geometry_that_wraps(self):
        # Strides, dilations and pads whose products wrap in 64 bits to small numbers, with one
        # channel in a group. They once made a kernel read outside its workspace.
        wrapping = 1537228672809129302  # times 12 bytes: 2^64 + 8
        huge = 1 << 62
        for field, kernel, parameters in (
                ("dilations", [4, 3], {"strides": [2, 1], "dilations": [wrapping, 1],
                                       "pads": [huge, 1, 0, 1]}),
                ("strides", [1, 3], {"strides": [huge, 1], "pads": [huge, 1, 0, 1]}),
                ("strides", [1, 3], {"strides": [1, huge], "pads": [0, huge, 0, huge]}),
                ("dilations", [4, 3], {"dilations": [1, wrapping], "auto_pad": "SAME_UPPER"})):
            taps = kernel[0] * kernel[1]
            tensors = conv_tensors([1] * 720, [1, 8, 30, 3], [1] * 8 * taps, [8, 1, *kernel])
            request = json_request(tensors, {"group": 8, **parameters})
            answer = exchange(self.client, "POST", infer_path(CONV), json.dumps(request))
            self.assert_error(answer, 400, field + ": expected integers from 1 to 2147483647, got")
        self.assert_alive()

    def test_integers_over_64_bits(self):
        # Sets each number of each attribute to values near powers of two and at the ends of its
        # range. The result must always be an answer or a refusal.
        rng = random.Random(26)

        def draw(least):
            if rng.random() < 0.5:
                return least + rng.randrange(4)
            if rng.random() < 0.2:
                return rng.randrange(-(1 << 63), 1 << 63)
            return min((1 << rng.randrange(64)) + rng.randrange(-2, 3), (1 << 63) - 1)

        statuses = set()
        for _ in range(300):
            channels = rng.choice((1, 2, 8))
            group = rng.choice((1, channels, draw(1)))
            kernel = [1 + rng.randrange(4), 1 + rng.randrange(4)]
            count = channels * (1 if group == channels else channels)
            tensors = conv_tensors(
                [1] * channels * 90, [1, channels, 30, 3], [1] * count * kernel[0] * kernel[1],
                [channels, count // channels, *kernel])
            parameters = {"group": group,
                          "strides": [draw(1), draw(1)], "dilations": [draw(1), draw(1)],
                          "pads": [draw(0) for _ in range(4)]}
            request = json_request(tensors, parameters)
            answer = exchange(self.client, "POST", infer_path(CONV), json.dumps(request))
            self.assertIn(answer.status, (200, 400, 413, 503), parameters)
            statuses.add(answer.status)
        self.assertLessEqual({200, 400}, statuses)
        self.assert_alive()

    def test_empty_dimensions_beside_huge_ones(self):
        for shape in ([0, 1 << 62], [1 << 40, 0, 1 << 40], [0] * 32):
            body = json.dumps({"inputs": [
                {"name": "x", "datatype": "UINT8", "shape": shape, "data": []},
                {"name": "x_scale", "datatype": "FP32", "shape": [], "data": [1]}]})
            answer = exchange(self.client, "POST", infer_path(DEQUANTIZE), body)
            self.assertIn(answer.status, (200, 400))
        self.assert_alive()

    def test_mutations(self):
        # A fixed set of broken requests, and not a fuzzer. Each is answered, and none ends the
        # server.
        rng = random.Random(3)
        whole, headers = binary_request(dequantize_tensors())
        plain = json.dumps(dequantize_json()).encode()
        for i in range(600):
            body = bytearray(whole if i % 2 else plain)
            for _ in range(rng.randint(1, 4)):
                at = rng.randrange(len(body))
                kind = rng.random()
                if kind < 0.4:
                    body[at] = rng.randrange(256)
                elif kind < 0.6:
                    del body[at:at + rng.randint(1, 20)]
                elif kind < 0.8:
                    body[at:at] = body[at:at + rng.randint(1, 30)]
                else:
                    body[at:at + 1] = rng.choice((b"[", b"}", b'"', b"\\", b"-", b"\0", b"1e999"))
            answer = exchange(self.client, "POST", infer_path(DEQUANTIZE), bytes(body),
                              headers if i % 2 else {})
            self.assertIn(answer.status, (200, 400), bytes(body))
            if answer.status == 400:
                self.assert_error(answer, 400)

    @unittest.skipIf(SANITIZED, "sanitizers keep freed memory")
    def test_memory_stays_bounded(self):
        def attack():
            for body in (b"[" * (8 * MIB), b'{"inputs":[{"data":[' + b"1," * (8 * MIB),
                         b'{"a":"' + b"x" * (16 * MIB), b"[1]," * (4 * MIB),
                         b'{"inputs":[' + b"{}," * (4 * MIB) + b"{}]}"):
                self.assert_refused(body)

        attack()
        before = self.server.rss_bytes()
        for _ in range(8):
            attack()
        self.assertLess(self.server.rss_bytes(), before + 64 * MIB)
        self.assertLess(self.server.rss_bytes(), 400 * MIB)


if __name__ == "__main__":
    unittest.main()
