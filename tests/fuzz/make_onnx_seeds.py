#!/usr/bin/env python3
"""make_onnx_seeds.py FOLDER: writes small ONNX files as seeds for fuzz_onnx."""
import itertools
import struct
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

from onnx_writer import (BOOL, FLOAT, INT4, INT8, INT32, INT64, UINT8, constant,  # noqa: E402
                         message, model, node, tensor, value_info, varint)

SCALE = tensor("s", FLOAT, [], (4, struct.pack("<f", 0.5)))
ZERO = tensor("z", UINT8, [], (5, varint(128)))
WEIGHTS = tensor("w", INT8, [2, 1, 2, 2], (9, bytes(range(8))))
BIAS = tensor("b", INT32, [2], (9, struct.pack("<2i", 5, -5)))
CONV = ["x", "s", "z", "w", "s", "wz", "s", "z"]
WEIGHTS_ZERO = tensor("wz", INT8, [], (9, b"\0"))


def external(location, offset):
    entries = [(13, message((1, key), (2, value)))
               for key, value in (("location", location), ("offset", offset), ("length", "8"))]
    return tensor("w", INT8, [2, 1, 2, 2], *entries, (14, 1))


def seeds():
    x, y = value_info("x", UINT8, ["n", 1, 4, 4]), value_info("y", UINT8, ["n", 2, 3, 3])
    conv = node("QLinearConv", CONV + ["b"], ["y"], strides=[1, 1], pads=[0, 0, 0, 0], group=1)
    yield "conv", model(10, [conv], [SCALE, ZERO, WEIGHTS, WEIGHTS_ZERO, BIAS], [x], [y])
    yield "external", model(
        10, [node("QLinearConv", CONV, ["y"], auto_pad="SAME_UPPER", dilations=[1, 1])],
        [SCALE, ZERO, external("weights.bin", "64"), WEIGHTS_ZERO], [x], [y])
    yield "chain", model(
        13, [node("QuantizeLinear", ["a", "s", "z"], ["x"]),
             node("QLinearConv", CONV, ["y"], kernel_shape=[2, 2]),
             node("DequantizeLinear", ["y", "s", "z"], ["c"])],
        [SCALE, ZERO, WEIGHTS, WEIGHTS_ZERO], [value_info("a", FLOAT, [1, 1, 3, 5])],
        [value_info("c", FLOAT), y])
    yield "late", model(
        25, [node("DequantizeLinear", ["x", "s", ""], ["y"], axis=0, block_size=2)], [],
        [value_info("x", INT4, [4]), value_info("s", FLOAT, [2])], [value_info("y", FLOAT, [4])])
    yield "constants", model(
        21, [constant("s", (1, "value_floats"), (7, 0.5), (7, 2.0), (20, 6)),
             constant("z", (1, "value"), (5, tensor("", INT4, [2], (5, varint(0x71)))), (20, 4)),
             node("QuantizeLinear", ["x", "s", "z"], ["y"], axis=-1, saturate=1)], [],
        [value_info("x", FLOAT, [3, 2])], [value_info("y", INT4, [3, 2])])
    shape = tensor("n", INT64, [2], (7, varint(1) + varint(-1)))
    reshape = node("Reshape", ["x", "n"], ["y"])
    yield "shape", model(13, [reshape], [shape], [x], [value_info("y", UINT8, [1, 16])])
    yield "list", model(21, [constant("n", (1, "value_ints"), (8, 1), (8, -1), (20, 7)), reshape],
                        [], [x], [value_info("y", UINT8, [1, 16])])
    microsoft = message((7, "com.microsoft"))
    imports = message((8, message((1, "com.microsoft"), (2, 1))))
    condition = tensor("c", BOOL, [2], (5, varint(1) + varint(0)))
    where = node("QLinearWhere", ["c", "x", "s", "z", "x", "s", "z", "s", "z"], ["y"]) + microsoft
    relu = node("QLinearLeakyRelu", ["x", "s", "z", "s", "z"], ["y"], alpha=0.25) + microsoft
    yield "condition", model(13, [where], [condition, SCALE, ZERO], [x], [y]) + imports
    yield "alpha", model(13, [relu], [SCALE, ZERO], [x], [y]) + imports


def integers(name, *numbers):
    return tensor(name, INT64, [len(numbers)], (7, b"".join(varint(number) for number in numbers)))


def graph_seeds():
    """Yields a node of each of the operators that only graphs use, by family."""
    x, y = value_info("x", UINT8, [1, 4, 6, 6]), value_info("y", UINT8)
    lists = [integers("pair", 1, -1), integers("quad", 1, 4, 3, 12),
             integers("pads", 0, 0, 1, 2, 0, -1, 0, 1)]
    quarter = tensor("q", UINT8, [1, 4, 1, 1], (5, varint(1) + varint(2) + varint(3) + varint(4)))
    for name, op, inputs, attributes in (
            ("slice", "Slice", ["x", "pair", "pair"], {}),
            ("gather", "Gather", ["x", "pair"], {"axis": 1}),
            ("pad", "Pad", ["x", "pads", "z"], {"mode": "constant"}),
            ("reflect", "Pad", ["x", "pads"], {"mode": "reflect"}),
            ("resize", "Resize", ["x", "", "", "quad"], {"nearest_mode": "floor"}),
            ("concat", "Concat", ["x", "x", "q"], {"axis": 1}),
            ("split", "Split", ["x", "pair"], {"axis": 1}),
            ("transpose", "Transpose", ["x"], {"perm": [0, 2, 3, 1]}),
            ("space", "DepthToSpace", ["x"], {"blocksize": 2, "mode": "CRD"}),
            ("depth", "SpaceToDepth", ["x"], {"blocksize": 3}),
            ("unsqueeze", "Unsqueeze", ["x", "pair"], {}),
            ("flatten", "Flatten", ["x"], {"axis": -2}),
            ("clip", "Clip", ["x", "z", "z"], {}),
            ("pool", "MaxPool", ["x"], {"kernel_shape": [2, 3], "ceil_mode": 1}),
            ("product", "QLinearMatMul", ["x", "s", "z", "x", "s", "z", "s", "z"], {}),
            ("integer", "MatMulInteger", ["x", "x"], {})):
        outputs = ["y", "rest"] if op == "Split" else ["y"]
        yield name, model(13, [node(op, inputs, outputs, **attributes)],
                          [SCALE, ZERO, quarter, *lists], [x], [y])
    microsoft = message((7, "com.microsoft"))
    imports = message((8, message((1, "com.microsoft"), (2, 1))))
    for name, op, inputs, attributes in (
            ("add", "QLinearAdd", ["x", "s", "z", "q", "s", "z", "s", "z"], {}),
            ("average", "QLinearAveragePool", ["x", "s", "z", "s", "z"],
             {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
            ("global", "QLinearGlobalAveragePool", ["x", "s", "z", "s", "z"], {}),
            ("join", "QLinearConcat", ["s", "z", "x", "s", "z", "q", "s", "z"], {"axis": 1}),
            ("softmax", "QLinearSoftmax", ["x", "s", "z", "s", "z"], {"opset": 13})):
        yield name, model(13, [node(op, inputs, ["y"], **attributes) + microsoft],
                          [SCALE, ZERO, quarter], [x], [y]) + imports
    fold = [node("Pad", ["q", "pads"], ["a"]), node("Concat", ["a", "q"], ["b"], axis=0),
            node("Concat", ["x", "b"], ["y"], axis=0)]
    yield "fold", model(13, fold, [quarter, *lists], [x], [y])


class Pairs:
    """A network of floats with a QuantizeLinear and a DequantizeLinear behind each operator."""

    def __init__(self):
        self.nodes, self.constants = [], [SCALE, ZERO, WEIGHTS_ZERO]

    def dequantized(self, name, zero="z"):
        self.nodes.append(node("DequantizeLinear", [name, "s", zero], [name + "_f"]))
        return name + "_f"

    def weights(self, name, *dims):
        count = 1
        for dim in dims:
            count *= dim
        self.constants.append(tensor(name, INT8, dims, (9, bytes(i % 128 for i in range(count)))))
        return self.dequantized(name, "wz")

    def add(self, *operators):
        """Adds operators in a chain, each as (operator, inputs behind the first, attributes), and
        a pair. The first one's first input stands before its other inputs. Returns the name of the
        pair's floats."""
        name = None
        for operator, inputs, attributes in operators:
            inputs = ([name] if name else []) + inputs
            name = "v%d" % len(self.nodes)
            self.nodes.append(node(operator, inputs, [name], **attributes))
        self.nodes.append(node("QuantizeLinear", [name, "s", "z"], [name + "_q"]))
        return self.dequantized(name + "_q")

    def model(self, x, y, *more):
        self.nodes.append(node("QuantizeLinear", [y, "s", "z"], ["y"]))
        return model(17, self.nodes, self.constants + list(more), [value_info("x", UINT8, x)],
                     [value_info("y", UINT8)])


def pairs_seeds():
    """Yields whole networks of the form QDQ, so that fuzzing reaches the passes that lower them."""
    nine = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    net = Pairs()
    a = net.add(("Conv", [net.dequantized("x"), net.weights("w1", 4, 2, 3, 3)], nine),
                ("Relu", [], {}))
    b = net.add(("Conv", [a, net.weights("w2", 4, 1, 3, 3)], {"group": 4, **nine}),
                ("Clip", ["low", "high"], {}))
    c = net.add(("Add", [a, b], {}), ("Relu", [], {}))
    d = net.add(("HardSigmoid", [net.add(("GlobalAveragePool", [c], {}))], {}))
    e = net.add(("Concat", [net.add(("Mul", [c, d], {})), a], {"axis": 1}))
    f = net.add(("Flatten", [net.add(("AveragePool", [e], {"kernel_shape": [2, 2]}))], {}))
    g = net.add(("Gemm", [f, net.weights("w3", 72, 3)], {}))
    limits = [tensor(name, FLOAT, [], (4, struct.pack("<f", value)))
              for name, value in (("low", 0.0), ("high", 6.0))]
    yield "qdq_images", net.model([1, 2, 4, 4], net.add(("Softmax", [g], {})), *limits)

    net = Pairs()
    x = net.dequantized("x")
    a = net.add(("MatMul", [x, net.weights("w1", 6, 6)], {}))
    b = net.add(("Reshape", [net.add(("Transpose", [a], {"perm": [0, 2, 1]})), "shape"], {}))
    c = net.add(("Sigmoid", [b], {}), ("Mul", ["low"], {}), ("Tanh", [], {}))
    d = net.add(("Slice", [net.add(("Concat", [c, b], {"axis": 2})), "one", "six", "one"], {}))
    net.nodes += [node("Shape", ["x"], ["sizes"]), node("Gather", ["sizes", "one"], ["rows"]),
                  node("Concat", ["rows", "minus"], ["target"], axis=0),
                  node("Reshape", [d, "target"], ["last"])]
    yield "qdq_rows", net.model(["n", 6, 6], "last", limits[1], limits[0],
                                integers("shape", 0, 6, 6), integers("one", 1),
                                integers("six", 6), integers("minus", -1))


def network_seeds():
    yield "digits", (ROOT / "tests/demo/digits/models/digits/1/model.onnx").read_bytes()
    microsoft = message((7, "com.microsoft"))
    codes = ["s", "z"]
    nodes = [node("QuantizeLinear", ["a", *codes], ["x"]),
             node("QLinearConv", CONV + ["b"], ["v"], pads=[1, 1, 0, 0]),
             node("MaxPool", ["v"], ["p"], kernel_shape=[2, 2], pads=[1, 1, 0, 0]),
             node("QLinearAdd", ["v", *codes, "p", *codes, *codes], ["r"]) + microsoft,
             node("QLinearConcat", [*codes, "r", *codes, "v", *codes], ["c"], axis=1) + microsoft,
             node("QLinearGlobalAveragePool", ["c", *codes, *codes], ["g"],
                  channels_last=0) + microsoft,
             node("Flatten", ["g"], ["f"]),
             node("QGemm", ["f", *codes, "k", "s", "wz", "", *codes], ["h"], transB=1) + microsoft,
             node("DequantizeLinear", ["h", *codes], ["y"])]
    last = tensor("k", INT8, [3, 4], (9, bytes(range(12))))
    yield "codes", model(
        13, nodes, [SCALE, ZERO, WEIGHTS, WEIGHTS_ZERO, BIAS, last],
        [value_info("a", FLOAT, ["n", 1, 4, 4])],
        [value_info("y", FLOAT)]) + message((8, message((1, "com.microsoft"), (2, 1))))
    # A part of it runs, so the server looks for where to cut it.
    foreign = [node("Reverse", ["v"], ["w2"]), node("Relu", ["w2"], ["y"])]
    yield "part", model(13, nodes[:2] + foreign, [SCALE, ZERO, WEIGHTS, WEIGHTS_ZERO, BIAS],
                        [value_info("a", FLOAT, [1, 1, 4, 4])], [value_info("y", UINT8)])


# File types that models/onnx/foreign.c recognizes. A fuzzer does not find them by itself, because
# no magic number in the code leads it there.
FOREIGN = (b"version https://git-lfs.github.com/spec/v1\noid", b"<?xml version='1.0'?><net", b"{}",
           b"PK\3\4..data.pkl", b"\x1c\0\0\0TFL3", b"\x80\4}.", b"\2\0\0\0\0\0\0\0{}",
           b"\x0a\x05\x0a\x01x\x12\0", b"\x08\x01\x12\x02\x0a\0", b"\x08\x01\x10\x01\x4a\0",
           b"\x08\x04\x12\x02\x0a\0\xa2\x1f\0", b"CAgSB3B5dG9yY2g6AAAAAAAA")


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, bytes_ in itertools.chain(seeds(), graph_seeds(), pairs_seeds(),
                                        network_seeds()):
        (folder / name).write_bytes(bytes_)
    for index, bytes_ in enumerate(FOREIGN):
        (folder / ("foreign%d" % index)).write_bytes(bytes_)


if __name__ == "__main__":
    main()
