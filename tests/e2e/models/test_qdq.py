"""Small graphs of the form QDQ: the bits of ONNX Runtime with its defaults, and why others are
refused."""
import base64
import json
import struct
import unittest

from loading import ModelTest
from onnx_writer import FLOAT, INT4, INT8, INT64, UINT8, message, model, node, tensor, value_info
from quantd import ROOT, Tensor, binary_request

INT16, UINT16, FP8E4M3FN = 5, 4, 17
SCALE = tensor("s", FLOAT, [], (9, struct.pack("<f", 0.5)))
ZERO = tensor("z", UINT8, [], (9, b"\x80"))
WEIGHTS = tensor("w", INT8, [2, 1], (9, b"\1\2"))
FLOATS = tensor("f", FLOAT, [2, 1], (9, struct.pack("<2f", 1, 2)))


class Files(ModelTest):
    def load(self, file, **others):
        return self.load_files("m", {}, model_onnx=file, **others)


class Bits(Files):
    def check(self, case):
        answer = self.load(base64.b64decode(case["file"]))
        self.assertEqual(answer.status, 200, answer.body[:500])
        body, headers = binary_request([
            Tensor(given["name"], given["datatype"], given["shape"],
                   bytes.fromhex(given["raw_hex"])) for given in case["inputs"]])
        answer = self.server.infer("m", body, headers=headers)
        self.assertEqual(answer.status, 200, answer.body[:500])
        wanted = case["output"]
        self.assertEqual(answer.outputs()[wanted["name"]],
                         (wanted["datatype"], wanted["shape"], bytes.fromhex(wanted["raw_hex"])))

    def test_bits_of_onnx_runtime(self):
        with open(ROOT / "tests" / "data" / "qdq.jsonl", encoding="utf-8") as lines:
            for line in lines:
                case = json.loads(line)
                with self.subTest(case["note"]):
                    self.check(case)


def narrow_file(opset=21, w=None, scales=(1, 2), shape=(2, 1), **attributes):
    """Returns a MatMul by 3 weights of INT4, with a scale for each block of 2."""
    attributes = attributes or {"axis": 0, "block_size": 2}
    pair = tensor("p", FLOAT, shape, (9, struct.pack("<2f", *scales)))
    w = w or tensor("w", INT4, [3, 1], (9, b"\xe1\x03"))
    return model(opset, [node("DequantizeLinear", ["x", "s"], ["a"]),
                         node("DequantizeLinear", ["w", "p"], ["b"], **attributes),
                         node("MatMul", ["a", "b"], ["y"])], [SCALE, w, pair],
                 [value_info("x", UINT8, ["n", 3])], [value_info("y", FLOAT, ["n", 1])])


class NarrowWeights(Files):
    def test_external_data(self):
        places = [message((1, key), (2, value)) for key, value in (
            ("location", "weights"), ("offset", "1"), ("length", "2"))]
        w = tensor("w", INT4, [3, 1], (14, 1), *[(13, place) for place in places])
        self.assertEqual(self.load(narrow_file(w=w), weights=b"\x99\xe1\x03").status, 200)
        body, headers = binary_request([Tensor("x", "UINT8", [1, 3], b"\2\4\6")])
        sums = .5 * (1 * 2 - 2 * 4 + 2 * 3 * 6)  # the last weight has the scale 2
        self.assertEqual(self.server.infer("m", body, headers=headers).outputs()["y"],
                         ("FP32", [1, 1], struct.pack("<f", sums)))

    def test_one_byte_too_few(self):
        w = tensor("w", INT4, [3, 1], (9, b"\xe1"))
        self.assert_error(self.load(narrow_file(w=w)), 400, "raw_data: expected 2 bytes for 3")

    def test_blocks_of_no_common_scale(self):
        for scales in ((1, 1.5), (1, 100), (1, -1), (0, 1), (1, float("inf")), (1, float("nan"))):
            self.assert_error(self.load(narrow_file(scales=scales)), 400, "onnx.MatMul",
                              "B: expected blocks that integers of 8 bits stand for exactly")

    def test_what_dequantize_linear_refuses(self):
        self.assert_error(self.load(narrow_file(13)), 400, "onnx.DequantizeLinear")
        self.assert_error(self.load(narrow_file(shape=(1, 2))), 400, "x_scale: expected shape")
        self.assert_error(self.load(narrow_file(axis=2, block_size=2)), 400, "axis: expected")
        self.assert_error(self.load(narrow_file(axis=0, block_size=1)), 400, "x_scale: expected")
        self.assert_error(self.load(narrow_file(axis=0, block_size=-1)), 400, "block_size: exp")


class Refused(Files):
    """The error says which condition failed."""

    def refuse(self, nodes, *words):
        file = model(13, nodes, [SCALE, ZERO, WEIGHTS, FLOATS], [value_info("x", UINT8, ["n", 2])],
                     [value_info("y", FLOAT, ["n", 1])])
        self.assert_error(self.load(file), 400, *words)

    def test_floats(self):
        x = node("DequantizeLinear", ["x", "s", "z"], ["a"])
        self.refuse([x, node("MatMul", ["a", "f"], ["y"])],
                    "B: expected the output of DequantizeLinear, as a quantized file has it, got "
                    "other floats. quantd computes onnx.MatMul only on UINT8 or INT8 behind "
                    "DequantizeLinear")
        self.refuse([x, node("MatMul", ["f", "a"], ["y"])], "A: expected the output of")

    def test_network_of_floats(self):
        file = model(13, [node("MatMul", ["x", "f"], ["y"])], [FLOATS],
                     [value_info("x", FLOAT, ["n", 2])], [value_info("y", FLOAT, ["n", 1])])
        self.assert_error(self.load(file), 400,
                          "onnx.MatMul): expected a quantized network, got one of floats. "
                          "quantd computes onnx.MatMul only on UINT8 or INT8 behind "
                          "DequantizeLinear. quantize_static of Python's onnxruntime.quantization "
                          "can quantize the network")

    def test_network_of_fp16(self):
        """A node that quantizes makes it a question of types."""
        fp16 = 10
        product = node("MatMul", ["x", "f"], ["a"])
        microsoft = message((7, "com.microsoft"))
        imports = message((8, message((1, "com.microsoft"), (2, 1))))
        for word, lasts in (
                ("a quantized network, got one of FP16;", (
                    node("Relu", ["a"], ["y"]),
                    node("QuickGelu", ["a"], ["y"]) + microsoft)),
                ('quantized operators that quantd has, got "MatMulNBits" in a network of FP16', (
                    node("MatMulNBits", ["a", "s"], ["y"]) + microsoft,)),
                ('quantized operators that quantd has, got "QuantizeLinear" in a network', (
                    node("QuantizeLinear", ["a", "s"], ["y"]) + message((7, "of.others")),)),
                ("FP32 for version", (
                    node("QuantizeLinear", ["a", "s", "z"], ["y"]),
                    node("QuantizeLinear", ["a", "s"], ["y"]) + microsoft,
                    node("QLinearSigmoid", ["a", "s", "", "s"], ["y"]) + microsoft,
                    node("DynamicQuantizeLinear", ["a"], ["y", "u", "v"]),
                    node("MatMulInteger", ["a", "x"], ["y"])))):
            floats = tensor("f", fp16, [2, 1], (9, struct.pack("<2e", 1, 2)))
            for last in lasts:
                file = model(13, [product, last], [SCALE, ZERO, floats],
                             [value_info("x", fp16, ["n", 2])], [value_info("y", fp16, ["n", 1])])
                self.assert_error(self.load(file + imports), 400,
                                  '"MatMul"): A: expected ' + word)

    def test_types(self):
        """The error names the type."""
        scale = node("DequantizeLinear", ["x", "s"], ["a"])
        weights = node("DequantizeLinear", ["w", "s"], ["b"])
        product = node("MatMul", ["a", "b"], ["m"])
        last = node("QuantizeLinear", ["m", "s", "z"], ["y"])
        for kind, code in ((UINT16, "UINT16"), (INT16, "INT16"), (FP8E4M3FN, "FP8E4M3FN")):
            file = model(21, [scale, weights, product, last], [SCALE, ZERO, WEIGHTS],
                         [value_info("x", kind, ["n", 2])],
                         [value_info("y", UINT8, ["n", 1])])
            self.assert_error(self.load(file), 400,
                              "A: expected DequantizeLinear of UINT8 or INT8, got %s. " % code)

    def test_products_behind_each_other(self):
        """quantd computes the first product as integers. The error speaks of the file's nodes."""
        for first in (node("MatMul", ["a", "b"], ["c"]), node("Gemm", ["a", "b"], ["c"]),
                      node("Gemm", ["a", "b", "h"], ["c"])):
            square = tensor("v", INT8, [2, 2], (9, b"\1\2\3\4"))
            bias = tensor("h", FLOAT, [2], (9, struct.pack("<2f", 1, 2)))
            file = model(13, [node("DequantizeLinear", ["x", "s", "z"], ["a"]),
                              node("DequantizeLinear", ["v", "s"], ["b"]), first,
                              node("DequantizeLinear", ["w", "s"], ["d"]),
                              node("MatMul", ["c", "d"], ["y"])],
                         [SCALE, ZERO, WEIGHTS, square, bias],
                         [value_info("x", UINT8, ["n", 2])], [value_info("y", FLOAT, ["n", 1])])
            self.assert_error(self.load(file), 400, "node 4 (", "onnx.MatMul): A: expected the "
                              "output of DequantizeLinear, as a quantized file has it, got the "
                              "floats of a Conv, Gemm or MatMul that no QuantizeLinear reads")

    def test_scales_of_another_axis(self):
        pair = tensor("p", FLOAT, [2], (9, struct.pack("<2f", 1, 2)))
        file = model(13, [node("DequantizeLinear", ["x", "s", "z"], ["a"]),
                          node("DequantizeLinear", ["w", "p"], ["b"], axis=0),
                          node("MatMul", ["a", "b"], ["y"])], [SCALE, ZERO, WEIGHTS, pair],
                     [value_info("x", UINT8, ["n", 2])], [value_info("y", FLOAT, ["n", 1])])
        self.assert_error(self.load(file), 400, "onnx.MatMul", "B: expected one scale, or for")

    def gemm_file(self, shape):
        c = tensor("c", FLOAT, shape, (9, struct.pack("<2f", 1, 2)))
        return model(13, [node("DequantizeLinear", ["x", "s", "z"], ["a"]),
                          node("DequantizeLinear", ["w", "s"], ["b"]),
                          node("Gemm", ["a", "b", "c"], ["y"])], [SCALE, ZERO, WEIGHTS, c],
                     [value_info("x", UINT8, ["n", 2])], [value_info("y", FLOAT, ["n", "m"])])

    def test_gemm_of_a_larger_c(self):
        for shape in ([2], [1, 2], [2, 1, 1]):
            answer = self.load(self.gemm_file(shape))
            if answer.status == 200:
                answer = self.infer_rows(2)
            self.assert_error(answer, 400, "C: expected a shape that broadcasts to y's [")
        self.assertEqual(self.load(self.gemm_file([2, 1])).status, 200)
        self.assertEqual(self.infer_rows(2).outputs()["y"][:2], ("FP32", [2, 1]))
        self.assert_error(self.infer_rows(1), 400,
                          "C: expected a shape that broadcasts to y's [1,1], got [2,1]")

    def infer_rows(self, count):
        body, headers = binary_request([Tensor("x", "UINT8", [count, 2], bytes(2 * count))])
        return self.server.infer("m", body, headers=headers)

    def test_gemm_of_a_beta(self):
        self.refuse([node("DequantizeLinear", ["x", "s", "z"], ["a"]),
                     node("DequantizeLinear", ["w", "s"], ["b"]),
                     node("Gemm", ["a", "b", "f"], ["y"], beta=2.0)],
                    "C: expected beta of 1 beside it, got another")


class Bias(Files):
    def test_channel_of_x_that_is_nearly_0(self):
        """The sums of such a channel have a scale that leaves no room for the bias."""
        for scale in (2.0 ** -10, 2.0 ** -40, 2.0 ** -120):
            scales = tensor("c", FLOAT, [2], (9, struct.pack("<2f", 0.5, scale)))
            w = tensor("w", INT8, [2, 1, 1], (9, b"\1\1"))
            bias = tensor("b", FLOAT, [2], (9, struct.pack("<2f", 1, -2)))
            answer = self.load(model(
                13, [node("DequantizeLinear", ["x", "c"], ["a"], axis=1),
                     node("DequantizeLinear", ["w", "s"], ["v"]),
                     node("Conv", ["a", "v", "b"], ["f"], group=2),
                     node("QuantizeLinear", ["f", "s", "z"], ["y"])],
                [SCALE, ZERO, scales, w, bias],
                [value_info("x", UINT8, ["n", 2, 3])], [value_info("y", UINT8)]))
            self.assertEqual(answer.status, 200, answer.body)
            body, headers = binary_request([Tensor("x", "UINT8", [1, 2, 3], b"\0\2\4\0\2\4")])
            self.assertEqual(self.server.infer("m", body, headers=headers).outputs()["y"],
                             ("UINT8", [1, 2, 3], bytes([130, 131, 132, 124, 124, 124])))


class Ranks(Files):
    """A load refuses what is wrong with a rank, whatever the sizes are."""

    def load_means(self, shape, axes):
        return self.load(model(17, [node("DequantizeLinear", ["x", "s", "z"], ["a"]),
                                    node("ReduceMean", ["a"], ["m"], axes=axes),
                                    node("QuantizeLinear", ["m", "s", "z"], ["y"])],
                               [SCALE, ZERO], [value_info("x", UINT8, shape)],
                               [value_info("y", UINT8)]))

    def test_axes_of_means(self):
        for shape in ([1, 3, 4], ["n", 3, 4], ["n", "c", "t"]):
            with self.subTest(shape):
                self.assert_error(self.load_means(shape, [1]), 400, "with inputs of the declared "
                                  "shapes: node 1 (\"a ReduceMean\", onnx.ReduceMean): axes: "
                                  "expected the last axes of data", "got others of rank 3")
                self.assertEqual(self.load_means(shape, [1, 2]).status, 200)

    def test_convolution(self):
        w = tensor("w", INT8, [2, 2, 1], (9, b"\1\1\1\1"))
        for shape, refused in ((["n", 2, "t"], None), (["n", 2, "h", "w"], "got 4")):
            answer = self.load(model(17, [
                node("DequantizeLinear", ["x", "s", "z"], ["a"]),
                node("DequantizeLinear", ["w", "s"], ["v"]), node("Conv", ["a", "v"], ["f"]),
                node("QuantizeLinear", ["f", "s", "z"], ["y"])],
                [SCALE, ZERO, w], [value_info("x", UINT8, shape)], [value_info("y", UINT8)]))
            if refused:
                self.assert_error(answer, 400, "x: expected rank 3 as w has, " + refused)
            else:
                self.assertEqual(answer.status, 200, answer.body)

    def test_squeeze(self):
        """Which rank it makes depends on the sizes: one image fits."""
        self.assertEqual(self.load(model(17, [
            node("DequantizeLinear", ["x", "s", "z"], ["a"]), node("Squeeze", ["a"], ["b"]),
            node("Transpose", ["b"], ["f"], perm=[1, 0]),
            node("QuantizeLinear", ["f", "s", "z"], ["y"])],
            [SCALE, ZERO], [value_info("x", UINT8, list("abc"))],
            [value_info("y", UINT8)])).status, 200)
        body, headers = binary_request([Tensor("x", "UINT8", [1, 2, 3], bytes(range(6)))])
        self.assertEqual(self.server.infer("m", body, headers=headers).outputs()["y"],
                         ("UINT8", [3, 2], bytes([0, 3, 1, 4, 2, 5])))

    def test_resize_to_one_image(self):
        """Only a request with one image of 3 channels can run, and the refusal names no size."""
        sizes = tensor("sizes", INT64, [4], (7, 1), (7, 3), (7, 2), (7, 2))
        answer = self.load(model(13, [node("DequantizeLinear", ["x", "s", "z"], ["a"]),
                                      node("Resize", ["a", "", "", "sizes"], ["y"],
                                           mode="linear")],
                                 [SCALE, ZERO, sizes], [value_info("x", UINT8, list("nchw"))],
                                 [value_info("y", FLOAT)]))
        self.assertEqual(answer.status, 200, answer.body)
        body, headers = binary_request([Tensor("x", "UINT8", [1, 3, 1, 1], b"\x82\x84\x86")])
        self.assertEqual(self.server.infer("m", body, headers=headers).outputs()["y"],
                         ("FP32", [1, 3, 2, 2], struct.pack("<12f", *[1] * 4, *[2] * 4, *[3] * 4)))


if __name__ == "__main__":
    unittest.main()
