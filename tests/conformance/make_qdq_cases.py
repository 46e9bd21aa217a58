"""Makes tests/data/qdq.jsonl: small graphs of the form QDQ, and what ONNX Runtime computes from
them with its defaults. All are graphs for which quantd has ONNX Runtime's bits.

Each line has the file as base64, the inputs, and the output.
"""
import base64
import json
from pathlib import Path

import numpy as np

from graph_writer import session

TARGET = Path(__file__).parent.parent / "data" / "qdq.jsonl"
DICE = np.random.default_rng(29)
KINDS = {"uint8": "UINT8", "int8": "INT8", "float32": "FP32", "bool": "BOOL"}
U, S = np.uint8, np.int8
LINES = []


class Case:
    """A graph that grows by calls of its methods, which return names of values."""

    def __init__(self, note, opset=17):
        self.note, self.opset = note, opset
        self.nodes, self.constants, self.feeds, self.made = [], [], {}, 0

    def name(self):
        self.made += 1
        return "v%d" % self.made

    def constant(self, array):
        from onnx import numpy_helper
        name = self.name()
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def feed(self, kind, *shape):
        name = self.name()
        low, high = (0, 1) if kind == bool else (np.iinfo(kind).min, np.iinfo(kind).max)
        self.feeds[name] = DICE.integers(low, high + 1, shape).astype(kind)
        return name

    def op(self, op, *inputs, **attributes):
        from onnx import helper
        name = self.name()
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def parameters(self, scale, zero):
        scale = self.constant(np.float32(scale))
        return [scale] if zero is None else [scale, self.constant(zero)]

    def dequantize(self, x, scale, zero=None, **attributes):
        return self.op("DequantizeLinear", x, *self.parameters(scale, zero), **attributes)

    def quantize(self, x, scale, zero=None):
        return self.op("QuantizeLinear", x, *self.parameters(scale, zero))

    def codes(self, *shape, kind=U, scale=0.05, zero=117):
        """Returns floats that an input of codes stands for."""
        return self.dequantize(self.feed(kind, *shape), scale, kind(zero))

    def weights(self, *shape, scale=0.01, zero=S(0), **attributes):
        codes = self.constant(DICE.integers(-127, 128, shape).astype(S))
        return self.dequantize(codes, scale, zero, **attributes)

    def packed(self, codes, scales, zeros=None, signed=True, raw=True, **attributes):
        """Returns what constants of 4 bits stand for: two codes in a byte, in raw_data or
        int32_data."""
        from onnx import TensorProto
        names = []
        for array in (codes, zeros):
            if array is None:
                continue
            name, kind = self.name(), TensorProto.INT4 if signed else TensorProto.UINT4
            tensor = TensorProto(name=name, data_type=kind, dims=np.shape(array))
            halves = np.ravel(array).astype(np.int64) & 15
            halves = np.append(halves, np.zeros(len(halves) % 2, np.int64)).reshape(-1, 2)
            packed = (halves @ [1, 16]).astype(U)
            if raw:
                tensor.raw_data = packed.tobytes()
            else:
                tensor.int32_data.extend(packed.tolist())
            self.constants.append(tensor)
            names.append(name)
        names.insert(1, self.constant(np.float32(scales)))
        return self.op("DequantizeLinear", *names, **attributes)

    def end(self, y, kind=np.float32):
        from onnx import helper
        inputs = [helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in self.feeds.items()]
        output = helper.make_tensor_value_info(
            y, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), None)
        graph = helper.make_graph(self.nodes, "g", inputs, [output], self.constants)
        model = helper.make_model(graph, ir_version=8,
                                  opset_imports=[helper.make_opsetid("", self.opset)])
        result = session(model, optimized=True).run(None, self.feeds)[0]
        LINES.append({"note": self.note,
                      "file": base64.b64encode(model.SerializeToString()).decode(),
                      "inputs": [described(*pair) for pair in self.feeds.items()],
                      "output": described(y, result)})

    def end_quantized(self, y, scale=0.05, zero=U(3)):
        self.end(self.quantize(y, scale, zero), U)


def described(name, array):
    return {"name": name, "datatype": KINDS[array.dtype.name], "shape": list(array.shape),
            "raw_hex": array.tobytes().hex()}


def floats(*shape):
    return DICE.standard_normal(shape).astype(np.float32)


def make_limits():
    """Relu and Clip that the codes absorb or not. In decimal scales, Add and Mul of floats often
    round in another way than QLinearAdd and QLinearMul."""
    for op in ("Add", "Mul", "AveragePool", "GlobalAveragePool"):
        for limit in ("Relu", "Clip"):
            for zero in (0, 37):
                case = Case("%s, %s, zero point %d" % (op, limit, zero))
                operands = [case.codes(1, 4, 12, 12, scale=0.1, zero=100)]
                if op in ("Add", "Mul"):
                    operands.append(case.codes(1, 4, 12, 12, scale=0.2, zero=90))
                made = {"kernel_shape": [2, 2]} if op == "AveragePool" else {}
                y = case.op(op, *operands, **made)
                limits = [case.constant(np.float32(0)), case.constant(np.float32(6))]
                y = case.op(limit, y, *(limits if limit == "Clip" else ()))
                case.end_quantized(y, 0.1, U(zero))


def make_products():
    for op in ("Gemm", "MatMul"):
        for scale, zero in (([.01], None), ([.01], np.zeros(1, S)), (.01, S(0)),
                            (np.full(8, .01), np.zeros(8, S)), (np.full(8, .01), None)):
            case = Case("%s of scale %s, zero point %s" % (op, np.shape(scale), np.shape(zero)))
            weights = case.weights(6, 8, scale=scale, zero=zero, axis=1)
            case.end_quantized(case.op(op, case.codes(5, 6), weights))
        case = Case(op + " without zero points")
        x = case.dequantize(case.feed(U, 5, 6), [.05])
        y = case.op(op, x, case.weights(6, 8, scale=[.01], zero=None))
        case.end(case.quantize(y, [.05]), U)
    for shape in ((5, 6), (2, 5, 6), (6,)):
        for scale in (.01, np.full(8, .01)):
            case = Case("MatMul of %s to floats" % list(shape))
            weights = case.weights(6, 8, scale=scale, zero=np.zeros(np.shape(scale), S), axis=1)
            case.end(case.op("MatMul", case.codes(*shape), weights))
    case = Case("Gemm to floats")
    bias = case.dequantize(case.constant(DICE.integers(-99, 99, 8).astype(np.int32)), .0005)
    case.end(case.op("Relu", case.op("Gemm", case.codes(5, 6), case.weights(6, 8), bias)))


def make_biases():
    """MatMul and Add, which ONNX Runtime makes a Gemm of."""
    for shape in ((5, 6), (2, 5, 6), (2, 1, 5, 6)):
        for kind in ("floats", "INT32"):
            case = Case("MatMul of %s and Add of %s" % (list(shape), kind))
            bias = case.constant(floats(8)) if kind == "floats" else case.dequantize(
                case.constant(DICE.integers(-999, 999, 8).astype(np.int32)), .0005, np.int32(0))
            y = case.op("MatMul", case.codes(*shape), case.weights(6, 8))
            operands = [bias, y] if len(shape) == 3 else [y, bias]
            case.end_quantized(case.op("Relu", case.op("Add", *operands)), zero=U(0))
    case = Case("MatMul and Add of one float")
    y = case.op("MatMul", case.codes(5, 6), case.weights(6, 8))
    case.end_quantized(case.op("Add", y, case.constant(np.float32(.7))))


def make_constants():
    for op in ("Gemm", "MatMul"):
        for scale in (.01, DICE.random(8) * .02):
            case = Case("%s of weights that are transposed, scale %s" % (op, np.shape(scale)))
            weights = case.weights(8, 6, scale=scale, zero=np.zeros(np.shape(scale), S), axis=0)
            weights = case.op("Transpose", weights, perm=[1, 0])
            case.end_quantized(case.op(op, case.codes(5, 6), weights))
    case = Case("MatMul of weights that are reshaped")
    weights = case.op("Reshape", case.weights(48), case.constant(np.int64([6, 8])))
    case.end_quantized(case.op("MatMul", case.codes(5, 6), weights))


def make_joins():
    for scales in ((.05, .05, .05), (.05, .07, .06), (.1, .05, .1)):
        case = Case("Concat of scales %s" % (scales,))
        parts = [case.codes(1, 4, 3, scale=scales[0]), case.codes(1, 2, 3, scale=scales[1])]
        case.end_quantized(case.op("Concat", *parts, axis=1), scales[2], U(117))
        case = Case("Where of scales %s" % (scales,))
        parts = [case.feed(bool, 4, 3), case.codes(4, 3, scale=scales[0]),
                 case.codes(4, 1, scale=scales[1])]
        case.end_quantized(case.op("Where", *parts), scales[2], U(117))
    case = Case("Concat of 20 scales, two of them constants")
    parts = [case.codes(1, 2, 3, scale=.05 + i / 300, zero=100 + i) for i in range(18)]
    parts += [case.constant(floats(1, 2, 3)), case.weights(1, 5, 3)]
    case.end_quantized(case.op("Concat", *parts, axis=1))
    case = Case("Concat behind Concat and Transpose")
    inner = case.op("Concat", case.codes(1, 2, 3), case.codes(1, 4, 3, scale=.07), axis=1)
    inner = case.op("Transpose", inner, perm=[0, 2, 1])
    case.end_quantized(case.op("Concat", inner, case.codes(1, 3, 5), axis=2))
    case = Case("Dropout")
    y = case.op("Dropout", case.codes(5, 6))
    case.end_quantized(case.op("MatMul", y, case.weights(6, 8)))


def make_depthwise():
    """A depthwise Conv whose x has a scale for each channel, as NNCF writes it. ONNX Runtime
    computes floats, or fails if QuantizeLinear follows. These scales are powers of 2, so that its
    floats are exact."""
    for outputs in (1, 2):
        for scale in (.0078125, [.015625, .0078125, .00390625] * outputs):
            case = Case("Conv of %d channels, scales of x, w %s" % (outputs * 3, np.shape(scale)))
            x = case.dequantize(case.feed(U, 2, 3, 6, 5), [.25, .5, .125], np.full(3, 7, U))
            weights = case.weights(3 * outputs, 1, 3, 3, scale=scale,
                                   zero=np.zeros(np.shape(scale), S), axis=0)
            y = case.op("Conv", x, weights, group=3, pads=[1] * 4)
            case.end(y)


def make_opsets():
    for opset in range(13, 26):
        case = Case("opset %d" % opset, opset)
        weights = case.weights(4, 4, 3, 3, scale=np.full(4, .01), zero=np.zeros(4, S), axis=0)
        bias = case.dequantize(case.constant(DICE.integers(-999, 999, 4).astype(np.int32)),
                               np.full(4, .0005), np.zeros(4, np.int32), axis=0)
        y = case.op("Conv", case.codes(1, 4, 6, 6), weights, bias)
        case.end_quantized(case.op("Relu", y), zero=U(0))


def multiples(*shape):
    """Returns scales, of which the greater ones are multiples of the smaller ones."""
    return np.float32(2.0 ** DICE.integers(-8, -5, shape))


def make_narrow_weights():
    """4 bits. ONNX Runtime computes floats, which are exact: scales are powers of two."""
    for signed in (True, False):
        least = -8 if signed else 0
        zero = None if signed else 8
        name = "INT4" if signed else "UINT4"

        def draw(*shape, least=least):
            return DICE.integers(least, least + 16, shape)

        def zeros(*shape, zero=zero):
            return None if zero is None else np.full(shape, zero)

        given = {"signed": signed}
        for raw in (True, False):
            for each in (False, True):
                case = Case("Conv of %s, an odd number of weights" % name, 21)
                scale = multiples(3) if each else multiples()
                weights = case.packed(draw(3, 3, 3, 3), scale, zeros(*scale.shape), raw=raw, axis=0,
                                      **given)
                case.end_quantized(case.op("Conv", case.codes(1, 3, 6, 6, scale=2 ** -5), weights),
                                   2 ** -3)
        case = Case("Gemm of %s, transposed" % name, 21)
        weights = case.packed(draw(8, 6), multiples(8), zeros(8), axis=0, **given)
        bias = case.constant(np.float32(DICE.integers(-9, 9, 8)))
        x = case.codes(5, 6, scale=2 ** -5)
        case.end_quantized(case.op("Gemm", x, weights, bias, transB=1), 2 ** -3)
        case = Case("MatMul of %s and Add" % name, 21)
        weights = case.packed(draw(6, 8), multiples(8), zeros(8), axis=1, **given)
        y = case.op("MatMul", case.codes(2, 5, 6, scale=2 ** -5), weights)
        bias = case.constant(np.float32(DICE.integers(-9, 9, 8)))
        case.end_quantized(case.op("Relu", case.op("Add", y, bias)), 2 ** -3)
        case = Case("MatMul of %s that Transpose turns, to floats" % name, 21)
        weights = case.packed(draw(8, 6), multiples(8), zeros(8), axis=0, **given)
        weights = case.op("Transpose", weights, perm=[1, 0])
        case.end(case.op("MatMul", case.codes(5, 6, scale=2 ** -5), weights))
        make_blocks(name, draw, zeros, given)


def make_blocks(name, draw, zeros, given):
    for blocks, size in ((1, 6), (3, 2), (2, 4)):
        case = Case("MatMul of %s, %d blocks of %d" % (name, blocks, size), 21)
        weights = case.packed(draw(6, 8), multiples(blocks, 8), zeros(blocks, 8), axis=0,
                              block_size=size, **given)
        case.end_quantized(case.op("MatMul", case.codes(5, 6, scale=2 ** -5), weights), 2 ** -3)
    case = Case("Gemm of %s, blocks along the last axis" % name, 21)
    weights = case.packed(draw(8, 7), multiples(8, 2), zeros(8, 2), axis=-1, block_size=4, **given)
    bias = case.constant(np.float32(DICE.integers(-9, 9, 8)))
    x = case.codes(5, 7, scale=2 ** -5)
    case.end_quantized(case.op("Gemm", x, weights, bias, transB=1), 2 ** -3)
    case = Case("Conv of %s, blocks of channels" % name, 21)
    scales = np.tile(multiples(5, 3, 1, 1), (1, 1, 3, 3))
    weights = case.packed(draw(5, 6, 3, 3), scales, zeros(5, 3, 3, 3), axis=1, block_size=2,
                          **given)
    case.end_quantized(case.op("Conv", case.codes(1, 6, 6, 6, scale=2 ** -5), weights), 2 ** -3)
    case = Case("MatMul of %s, blocks of zero points" % name, 21)
    weights = case.packed(draw(6, 8), np.full((3, 8), 2 ** -6), draw(3, 8), axis=0, block_size=2,
                          **given)
    weights = case.op("Transpose", case.op("Transpose", weights, perm=[1, 0]), perm=[1, 0])
    case.end(case.op("MatMul", case.codes(5, 6, scale=2 ** -5), weights))


def make_blocks_of_bytes():
    for zero in (0, 128, 200):
        case = Case("MatMul of UINT8, a block with zero point %d" % zero, 21)
        codes = case.constant(DICE.integers(0, 256, (6, 8)).astype(U))
        weights = case.op("DequantizeLinear", codes, case.constant(multiples(1, 8)),
                          case.constant(np.full((1, 8), zero, U)), axis=0, block_size=6)
        case.end_quantized(case.op("MatMul", case.codes(5, 6, scale=2 ** -5), weights), 2 ** -2)
    case = Case("Mul by codes of 4 bits", 21)
    scale = case.packed(DICE.integers(-8, 8, (4, 1, 1)), .25)
    case.end_quantized(case.op("Mul", case.codes(1, 4, 3, 3), scale))


def main():
    for make in (make_limits, make_products, make_biases, make_constants, make_joins, make_opsets,
                 make_narrow_weights, make_blocks_of_bytes, make_depthwise):
        make()
    TARGET.write_text("".join(json.dumps(line) + "\n" for line in LINES))


if __name__ == "__main__":
    main()
