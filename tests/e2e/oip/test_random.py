"""Random dequantizations, quantizations and convolutions over HTTP, compared with the naive oracle
byte by byte."""
import json
import random
import struct
import unittest

import oracle
from elements import count_of, to_raw
from quantd import ServerTest, Tensor, binary_request, exchange, infer_path, json_request
from samples import CONV, DEQUANTIZE, QUANTIZE

INTEGERS = {"UINT8": (0, 255), "INT8": (-128, 127), "INT32": (-2147483648, 2147483647)}


def some(rng, datatype, count):
    low, high = INTEGERS[datatype]
    return [rng.choice((low, high, 0, rng.randint(low, high), rng.randint(low, high)))
            for _ in range(count)]


def some_scale(rng):
    """Returns a scale: mostly ordinary, sometimes negative, a power of two, subnormal or huge."""
    value = rng.choice((rng.uniform(0.001, 2), rng.uniform(0.001, 2), 2.0 ** rng.randint(-20, 20),
                        -rng.uniform(0.01, 1), 1e-42, 3e38))
    return oracle.fl32(value)


def some_shapes(rng):
    """Returns a shape of x, and of the scales along one of its axes or for all of it."""
    shape = [rng.randint(1, 5) for _ in range(rng.randint(0, 4))]
    if rng.random() < 0.2:
        shape = [rng.randint(100, 700)]
    attributes, channels, axis = {}, 1, 0
    if shape and rng.random() < 0.6:
        axis = rng.randrange(len(shape))
        channels = shape[axis]
        attributes["axis"] = rng.choice((axis, axis - len(shape)))
    scale_shape = [channels] if channels > 1 or rng.random() < 0.5 else []
    return shape, attributes, axis, channels, scale_shape


def dequantize_case(rng):
    datatype = rng.choice(("UINT8", "INT8", "INT32"))
    shape, attributes, axis, channels, scale_shape = some_shapes(rng)
    tensors = {"x": (datatype, shape, some(rng, datatype, count_of(shape))),
               "x_scale": ("FP32", scale_shape, [some_scale(rng) for _ in range(channels)])}
    if rng.random() < 0.7:
        tensors["x_zero_point"] = (datatype, scale_shape, some(rng, datatype, channels))
    y = oracle.dequantize(tensors["x"][2], shape, tensors["x_scale"][2],
                          tensors.get("x_zero_point", (None, None, []))[2], axis)
    return tensors, attributes, ("FP32", shape, to_raw("FP32", y))


def quantize_case(rng):
    datatype = rng.choice(("UINT8", "INT8"))
    shape, attributes, axis, channels, scale_shape = some_shapes(rng)
    x = [oracle.fl32(rng.choice((rng.randint(-600, 600) / 2, rng.gauss(0, 50), 1e30, -3e38, 0.0)))
         for _ in range(count_of(shape))]
    tensors = {"x": ("FP32", shape, x),
               "y_scale": ("FP32", scale_shape, [some_scale(rng) for _ in range(channels)])}
    if datatype != "UINT8" or rng.random() < 0.7:
        tensors["y_zero_point"] = (datatype, scale_shape, some(rng, datatype, channels))
    y = oracle.quantize(x, shape, tensors["y_scale"][2],
                        tensors.get("y_zero_point", (None, None, []))[2], axis, INTEGERS[datatype])
    return tensors, attributes, (datatype, shape, to_raw(datatype, y))


def conv_case(rng):
    """Returns a case, or None if the random kernel does not fit its input."""
    spatial = rng.choice((1, 2, 2, 2, 3, 4))
    group = rng.choice((1, 1, 2, 3))
    inner, per_group = rng.randint(1, 3), rng.randint(1, 3)
    filters = group * per_group
    limit = {1: 12, 2: 7, 3: 4, 4: 3}[spatial]
    x_type, w_type, y_type = (rng.choice(("UINT8", "INT8")) for _ in range(3))
    x_shape = [rng.randint(1, 2), group * inner] + [rng.randint(1, limit) for _ in range(spatial)]
    w_shape = [filters, inner] + [rng.randint(1, 3) for _ in range(spatial)]
    attributes = {}
    if group > 1:
        attributes["group"] = group
    if rng.random() < 0.5:
        attributes["strides"] = [rng.randint(1, 3) for _ in range(spatial)]
    if rng.random() < 0.4:
        attributes["dilations"] = [rng.randint(1, 3) for _ in range(spatial)]
    how = rng.random()
    if how < 0.5:
        attributes["pads"] = [rng.randint(0, 3) for _ in range(2 * spatial)]
    elif how < 0.75:
        attributes["auto_pad"] = rng.choice(("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"))
    if rng.random() < 0.3:
        attributes["kernel_shape"] = w_shape[2:]

    def numbers(datatype, shape):
        return datatype, shape, some(rng, datatype, count_of(shape))

    def per_channel():
        return rng.choice(([], [1], [filters]))

    w_scale_shape = per_channel()
    case = {"x": numbers(x_type, x_shape),
            "x_scale": ("FP32", [], [oracle.fl32(rng.uniform(0.005, 0.1))]),
            "x_zero_point": numbers(x_type, rng.choice(([], [1]))),
            "w": numbers(w_type, w_shape),
            "w_scale": ("FP32", w_scale_shape, [oracle.fl32(rng.uniform(0.005, 0.1))
                                                for _ in range(count_of(w_scale_shape))]),
            "w_zero_point": numbers(w_type, per_channel()),
            "y_scale": ("FP32", [], [oracle.fl32(rng.uniform(0.02, 2))]),
            "y_zero_point": numbers(y_type, [])}
    if rng.random() < 0.5:
        case["B"] = ("INT32", [filters], [rng.choice((rng.randint(-9999, 9999), 2147483647,
                                                      -2147483648)) for _ in range(filters)])
    case["attributes"] = attributes
    try:
        y_shape, y = oracle.convolve(case)
    except ValueError:
        return None
    tensors = {name: value for name, value in case.items() if name != "attributes"}
    return tensors, attributes, (y_type, y_shape, to_raw(y_type, y))


class Random(ServerTest):
    def check(self, client, model, case, name):
        tensors, attributes, want = case
        as_tensors = [Tensor(key, datatype, shape, to_raw(datatype, numbers))
                      for key, (datatype, shape, numbers) in tensors.items()]
        text = {key: ",".join(map(str, value)) if isinstance(value, list) else value
                for key, value in attributes.items()}
        body, headers = binary_request(as_tensors, text)
        binary = exchange(client, "POST", infer_path(model), body, headers)
        body = json.dumps(json_request(as_tensors, attributes))
        plain = exchange(client, "POST", infer_path(model), body)
        for answer in (binary, plain):
            self.assertEqual(answer.status, 200, (name, answer.body[:300], tensors, attributes))
            self.assertEqual(answer.outputs()["y"], want, (name, tensors, attributes))

    def test_dequantize(self):
        client = self.server.client()
        for seed in range(150):
            self.check(client, DEQUANTIZE, dequantize_case(random.Random(seed)), seed)
        client.close()

    def test_quantize(self):
        client = self.server.client()
        for seed in range(150):
            self.check(client, QUANTIZE, quantize_case(random.Random(seed)), seed)
        client.close()

    def test_conv(self):
        client = self.server.client()
        done = 0
        for seed in range(400):
            case = conv_case(random.Random(seed))
            if case is not None:
                self.check(client, CONV, case, seed)
                done += 1
            if done == 150:
                break
        self.assertEqual(done, 150)
        client.close()

    def test_long_sums_are_exact(self):
        # 1 x 1 kernels over many channels, with sums beyond 2^24, where a float sum would lose
        # bits, and beyond 2^31, where the accumulator wraps.
        client = self.server.client()
        rng = random.Random(7)
        for channels, kind in ((1023, "random"), (1024, "random"), (1025, "random"),
                               (3000, "random"), (2100, "large"), (40000, "large")):
            numbers = ([255] * channels if kind == "large"
                       else [rng.randint(0, 255) for _ in range(channels)])
            weights = ([255] * channels if kind == "large"
                       else [rng.randint(0, 255) for _ in range(channels)])
            case = {"x": ("UINT8", [1, channels, 1], numbers),
                    "x_scale": ("FP32", [], [1.0]), "x_zero_point": ("UINT8", [], [0]),
                    "w": ("UINT8", [1, channels, 1], weights),
                    "w_scale": ("FP32", [], [1.0]), "w_zero_point": ("UINT8", [], [0]),
                    "y_zero_point": ("INT8", [], [0]), "attributes": {}}
            total = oracle.wrap32(sum(a * b for a, b in zip(numbers, weights)))
            # A scale that shows the sum's last bits in the eight bits of the output.
            bias = -total + 100 if kind == "random" else 0
            case["B"] = ("INT32", [1], [oracle.wrap32(bias)])
            case["y_scale"] = ("FP32", [], [1.0 if kind == "random" else 2.0 ** 24])
            y_shape, y = oracle.convolve(case)
            tensors = {name: value for name, value in case.items() if name != "attributes"}
            self.check(client, CONV, (tensors, {}, ("INT8", y_shape, to_raw("INT8", y))), channels)
        client.close()

    def test_rounding_of_floats_in_json(self):
        # Every float of a JSON answer must read back to the same bits.
        rng = random.Random(11)
        scales = [struct.unpack("<f", struct.pack("<I", rng.randrange(1 << 32)))[0]
                  for _ in range(3000)]
        scales = [scale for scale in scales if scale - scale == 0]
        tensors = [Tensor.of("x", "UINT8", [len(scales)], [1] * len(scales)),
                   Tensor.of("x_scale", "FP32", [len(scales)], scales)]
        answer = self.server.infer(DEQUANTIZE, json_request(tensors, {"axis": 0}))
        self.assertEqual(answer.status, 200, answer.body[:300])
        self.assertEqual(answer.outputs()["y"][2], to_raw("FP32", scales))


if __name__ == "__main__":
    unittest.main()
