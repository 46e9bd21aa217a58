"""A few calls of each operator with results that can be computed by hand, in each form that a
tensor can have. tests/conformance has thousands of comparisons with the references."""
import json
import unittest

from elements import to_raw
from quantd import ServerTest, Tensor, binary_request, json_request
from samples import DEQUANTIZE, QUANTIZE

DIRECTML = "directml.ElementWiseDequantizeLinear"
TENSORFLOW = "tensorflow.Dequantize"


class OperatorTest(ServerTest):
    def check(self, model, version, tensors, parameters, want):
        """Sends a call as JSON, as bytes, and as bytes declared as UINT8. want: (datatype, shape,
        numbers)."""
        carried = [Tensor(t.name, "UINT8", [len(t.raw)], t.raw) for t in tensors]
        meaning = dict(parameters)
        for tensor in tensors:
            meaning[tensor.name + ".datatype"] = tensor.datatype
            meaning[tensor.name + ".shape"] = tensor.shape
        datatype, shape, numbers = want
        for body, headers in ((json.dumps(json_request(tensors, parameters)), {}),
                              binary_request(tensors, parameters),
                              binary_request(carried, meaning),
                              (json.dumps(json_request(carried, meaning)), {})):
            with self.subTest(body=body[:300]):
                answer = self.server.infer(model, body, version, headers)
                self.assertEqual(answer.status, 200, answer.body[:500])
                self.assertEqual(answer.tree()["model_version"], version)
                (output,) = answer.outputs().values()
                self.assertEqual(output, (datatype, shape, to_raw(datatype, numbers)))

    def refused(self, model, version, tensors, parameters, *words):
        answer = self.server.infer(model, json_request(tensors, parameters), version)
        self.assert_error(answer, 400, *words)


class DequantizeLinear(OperatorTest):
    def dequantize(self, version, x, scale, want, zero=None, **parameters):
        tensors = [Tensor.of("x", *x), Tensor.of("x_scale", *scale)]
        if zero is not None:
            tensors.append(Tensor.of("x_zero_point", *zero))
        self.check(DEQUANTIZE, version, tensors, parameters, want)

    def test_small_integers(self):
        for version, datatype, numbers in (("21", "INT4", [-8, -1, 0, 7, 3]),
                                           ("21", "UINT4", [15, 1, 0, 7, 8]),
                                           ("25", "INT2", [-2, -1, 0, 1, -2]),
                                           ("25", "UINT2", [3, 2, 1, 0, 3])):
            want = [0.5 * (number - 1) for number in numbers]
            self.dequantize(version, (datatype, [5], numbers), ("FP32", [], [0.5]),
                            ("FP32", [5], want), (datatype, [], [1]))

    def test_small_floats(self):
        for version, datatype, numbers in (("19", "FP8E4M3FN", [448, -0.0, 2.0 ** -9]),
                                           ("19", "FP8E4M3FNUZ", [240, 0, 2.0 ** -10]),
                                           ("19", "FP8E5M2", [57344, -0.0, "-Infinity"]),
                                           ("19", "FP8E5M2FNUZ", [57344, 0, 2.0 ** -17]),
                                           ("23", "FP4E2M1", [6, -0.0, 0.5])):
            want = [2 * float(number) if isinstance(number, (int, float)) else number
                    for number in numbers]
            self.dequantize(version, (datatype, [3], numbers), ("FP32", [], [2]),
                            ("FP32", [3], want))

    def test_wide_integers(self):
        # The difference needs 17 bits.
        self.dequantize("21", ("INT16", [2], [-32768, 32767]), ("FP32", [1], [1]),
                        ("FP32", [2], [-65535, 0]), ("INT16", [1], [32767]))
        self.dequantize("21", ("UINT16", [2], [0, 65535]), ("FP32", [1], [1]),
                        ("FP32", [2], [-65535, 0]), ("UINT16", [1], [65535]))

    def test_scales_decide_the_output(self):
        for datatype in ("FP16", "BF16"):
            self.dequantize("19", ("INT8", [2], [-3, 5]), (datatype, [], [0.5]),
                            (datatype, [2], [-1.5, 2.5]))

    def test_output_dtype(self):
        for given in (10, "FP16"):
            self.dequantize("24", ("INT8", [3], [-3, 5, 127]), ("FP8E8M0", [], [2.0 ** 10]),
                            ("FP16", [3], [-3072, 5120, "Infinity"]), output_dtype=given)

    def test_blocks(self):
        # Blocks of three along an axis of five: the last one is short.
        self.dequantize("21", ("INT4", [2, 5], list(range(-5, 5))),
                        ("FP32", [2, 2], [1, 10, 100, 1000]),
                        ("FP32", [2, 5], [-5, -4, -3, -20, -10, 0, 100, 200, 3000, 4000]),
                        block_size=3)
        self.dequantize("21", ("INT4", [3, 2], [1, 2, 3, 4, 5, 6]),
                        ("FP32", [2, 2], [1, 10, 100, 1000]),
                        ("FP32", [3, 2], [1, 20, 3, 40, 500, 6000]), axis=-2, block_size=2)

    def test_refusals(self):
        tensors = [Tensor.of("x", "INT4", [2], [1, 2]), Tensor.of("x_scale", "FP32", [], [1])]
        self.refused(DEQUANTIZE, "19", tensors, {}, "x", "INT4")
        self.refused(DEQUANTIZE, "21", tensors, {"output_dtype": 1}, "output_dtype")
        self.refused(DEQUANTIZE, "21", tensors, {"block_size": -1}, "block_size")
        tensors[1] = Tensor.of("x_scale", "FP8E8M0", [], [1])
        self.refused(DEQUANTIZE, "24", tensors, {}, "output_dtype")

    def test_bytes_of_packed_types_must_be_exact(self):
        for raw in (b"\x21", b"\x21\x03\x00"):
            tensors = [Tensor("x", "INT4", [3], raw), Tensor.of("x_scale", "FP32", [], [1])]
            body, headers = binary_request(tensors)
            answer = self.server.infer(DEQUANTIZE, body, "21", headers)
            self.assert_error(answer, 400, "binary_data_size")

    def test_bits_behind_the_last_element_mean_nothing(self):
        tensors = [Tensor("x", "INT4", [3], b"\x21\xf3"), Tensor.of("x_scale", "FP32", [], [1])]
        body, headers = binary_request(tensors)
        answer = self.server.infer(DEQUANTIZE, body, "21", headers)
        self.assertEqual(answer.outputs()["y"][2], to_raw("FP32", [1, 2, 3]))



class QuantizeLinear(OperatorTest):
    def quantize(self, version, x, scale, want, zero=None, **parameters):
        tensors = [Tensor.of("x", *x), Tensor.of("y_scale", *scale)]
        if zero is not None:
            tensors.append(Tensor.of("y_zero_point", *zero))
        self.check(QUANTIZE, version, tensors, parameters, want)

    def test_integers(self):
        # Ties are rounded to even before 1 is added.
        for version, datatype, low, high in (("10", "UINT8", 0, 255), ("10", "INT8", -128, 127),
                                             ("21", "UINT16", 0, 65535),
                                             ("21", "INT16", -32768, 32767), ("21", "UINT4", 0, 15),
                                             ("21", "INT4", -8, 7), ("25", "UINT2", 0, 3),
                                             ("25", "INT2", -2, 1)):
            want = [max(low, min(high, number)) for number in (1, 3, -1, 1, 10 ** 6, -10 ** 6)]
            self.quantize(version, ("FP32", [6], [0.25, 0.75, -1, -0.25, 10 ** 6, -10 ** 6]),
                          ("FP32", [], [0.5]), (datatype, [6], want), (datatype, [], [1]))

    def test_small_floats(self):
        for version, datatype, most in (("19", "FP8E4M3FN", 448), ("19", "FP8E4M3FNUZ", 240),
                                        ("19", "FP8E5M2", 57344), ("19", "FP8E5M2FNUZ", 57344),
                                        ("23", "FP4E2M1", 6)):
            self.quantize(version, ("FP32", [4], [2, -1e9, 3, 0]), ("FP32", [], [2]),
                          (datatype, [4], [1, -most, 1.5, 0]), (datatype, [], [0]))

    def test_not_saturating(self):
        for datatype, beyond in (("FP8E4M3FN", "NaN"), ("FP8E5M2", "Infinity")):
            self.quantize("19", ("FP16", [2], [1, 65504]), ("FP16", [], [0.5]),
                          (datatype, [2], [2, beyond]), (datatype, [], [0]), saturate=0)

    def test_output_dtype(self):
        for given in (22, "INT4"):
            self.quantize("21", ("FP32", [3], [-9, 1.5, 7]), ("FP32", [1], [1]),
                          ("INT4", [3], [-8, 2, 7]), output_dtype=given)
        self.quantize("21", ("FP32", [1], [3]), ("FP32", [], [1]), ("UINT8", [1], [3]))

    def test_precision(self):
        # FP16 cannot represent 2049. Without `precision`, the division uses the datatype of
        # y_scale.
        self.quantize("23", ("FP32", [2], [2049, 3]), ("FP32", [], [1]), ("INT16", [2], [2048, 3]),
                      output_dtype="INT16", precision="FP16")
        self.quantize("23", ("INT32", [2], [2049, 3]), ("FP16", [], [1]), ("INT16", [2], [2048, 3]),
                      output_dtype="INT16")
        self.quantize("23", ("INT32", [2], [2049, 3]), ("FP16", [], [1]), ("INT16", [2], [2049, 3]),
                      output_dtype="INT16", precision="FP32")

    def test_blocks(self):
        # Blocks of three along an axis of five: the last block is short, and rows begin within a
        # byte.
        self.quantize("21", ("FP32", [2, 5], [-5, -4, -3, -20, -10, 0, 100, 200, 3000, 4000]),
                      ("FP32", [2, 2], [1, 10, 100, 1000]),
                      ("INT4", [2, 5], list(range(-5, -2)) + [-2, -1, 0, 1, 2, 3, 4]),
                      block_size=3, output_dtype="INT4")

    def test_refusals(self):
        tensors = [Tensor.of("x", "FP32", [2], [1, 2]), Tensor.of("y_scale", "FP32", [], [1])]
        self.refused(QUANTIZE, "21", tensors, {"output_dtype": "FP32"}, "output_dtype", "got 1")
        self.refused(QUANTIZE, "23", tensors, {"precision": "INT8"}, "precision", "got 3")
        self.refused(QUANTIZE, "19", tensors, {"saturate": 7}, "saturate", "got 7")
        tensors.append(Tensor.of("y_zero_point", "INT8", [1, 1], [0]))
        self.refused(QUANTIZE, "13", tensors, {}, "y_zero_point", "[1,1]")

class DirectML(OperatorTest):
    def test_packed(self):
        shape = [1, 1, 2, 2]
        tensors = [Tensor.of("InputTensor", "UINT32", shape, [0, 1, 2, 4294967295]),
                   Tensor.of("ScaleTensor", "FP32", shape, [1, 2, 0.5, 1]),
                   Tensor.of("ZeroPointTensor", "UINT32", shape, [1, 0, 0, 4294967294])]
        self.check(DIRECTML, "21", tensors, {}, ("FP32", shape, [-1, 2, 1, 1]))

    def test_strides(self):
        # The input is stored by columns. The scale is stored once for each row, and the zero point
        # once.
        tensors = [Tensor("InputTensor", "INT8", [2, 3], to_raw("INT8", [1, 4, 2, 5, 3, 6])),
                   Tensor("ScaleTensor", "FP16", [2, 3], to_raw("FP16", [1, 10])),
                   Tensor("ZeroPointTensor", "INT8", [2, 3], to_raw("INT8", [1]))]
        strides = {"InputTensor.strides": [1, 2], "ScaleTensor.strides": "1,0",
                   "ZeroPointTensor.strides": [0, 0]}
        self.check(DIRECTML, "62", tensors, strides, ("FP16", [2, 3], [0, 1, 2, 30, 40, 50]))
        self.check(DIRECTML, "62", tensors[:2],
                   {"InputTensor.strides": [1, 2], "ScaleTensor.strides": [1, 0]},
                   ("FP16", [2, 3], [1, 2, 3, 40, 50, 60]))

    def test_refusals(self):
        tensors = [Tensor.of("InputTensor", "UINT8", [1, 2], [1, 2]),
                   Tensor.of("ScaleTensor", "FP32", [1, 2], [1, 2])]
        self.refused(DIRECTML, "60", tensors, {}, "ZeroPointTensor")
        zero = [Tensor.of("ZeroPointTensor", "UINT8", [1, 2], [1, 2])]
        self.refused(DIRECTML, "21", tensors + zero, {}, "4 dimensions", "[1,2]")
        self.refused(DIRECTML, "30", tensors + zero, {"InputTensor.strides": [1]},
                     "InputTensor.strides")


class TensorFlow(OperatorTest):
    def dequantize(self, x, low, high, want, **parameters):
        self.check(TENSORFLOW, "1", [Tensor.of("input", *x), Tensor.of("min_range", "FP32", *low),
                                     Tensor.of("max_range", "FP32", *high)], parameters, want)

    def test_min_combined(self):
        self.dequantize(("INT8", [3], [-128, 0, 127]), ([], [0]), ([], [255]),
                        ("FP32", [3], [0, 128, 255]))
        self.dequantize(("UINT8", [2], [0, 255]), ([1], [-1]), ([1], [2]), ("BF16", [2], [-1, 2]),
                        dtype="bfloat16")

    def test_min_first(self):
        # The scale is 1, and min_range is rounded to a multiple of it: -1.
        self.dequantize(("UINT8", [2], [0, 255]), ([], [-0.75]), ([], [254.25]),
                        ("FP32", [2], [-1, 254]), mode="MIN_FIRST")

    def test_scaled(self):
        self.dequantize(("INT8", [2], [-128, 64]), ([], [-2]), ([], [1]), ("FP32", [2], [-2, 1]),
                        mode="SCALED")
        self.dequantize(("INT8", [2], [-127, 127]), ([], [-127]), ([], [1]),
                        ("FP32", [2], [-127, 127]), mode="SCALED", narrow_range=True)

    def test_scaled_int32(self):
        # Verified in TensorFlow: with one range, a value that rounds to 2^31 overflows on the way.
        x = [2147483647, 2147483584, 2147483583]
        self.dequantize(("INT32", [1, 3], x), ([], [-1]), ([], [1]),
                        ("FP32", [1, 3], [-1, -1, 1 - 2.0 ** -24]), mode="SCALED")
        self.dequantize(("INT32", [1, 3], x), ([1], [-1]), ([1], [1]),
                        ("FP32", [1, 3], [-1, -1, 1 - 2.0 ** -24]), mode="SCALED", axis=0)
        self.dequantize(("INT32", [3], x), ([3], [-1, -1, -1]), ([3], [1, 1, 1]),
                        ("FP32", [3], [1, 1, 1 - 2.0 ** -24]), mode="SCALED", axis=0)

    def test_axis(self):
        self.dequantize(("UINT8", [2, 2], [0, 1, 0, 1]), ([2], [0, 10]), ([2], [255, 265]),
                        ("FP32", [2, 2], [0, 1, 10, 11]), axis=0)

    def test_refusals(self):
        tensors = [Tensor.of("input", "UINT8", [2], [1, 2]),
                   Tensor.of("min_range", "FP32", [], [0]), Tensor.of("max_range", "FP32", [], [1])]
        self.refused(TENSORFLOW, "1", tensors, {"mode": "MIN"}, "mode")
        self.refused(TENSORFLOW, "1", tensors, {"axis": -2}, "axis")
        self.refused(TENSORFLOW, "1", tensors, {"mode": "SCALED", "dtype": "bfloat16"}, "dtype")


if __name__ == "__main__":
    unittest.main()
