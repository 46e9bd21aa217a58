"""Random cases of single operators, and what ONNX Runtime makes of the same node.

A generator draws the nodes of a family. Each case has dice of its own, so that its name and the
seed give it again. Operators with an endpoint are asked by it; those that only graphs have are
loaded as a file of one node.
"""
import dataclasses
import itertools
import multiprocessing
import re
import signal
import zlib

import numpy as np

from operator_cases import NAMES, PREFIXES
from quantd import Tensor

BYTES = (np.uint8, np.int8)


@dataclasses.dataclass
class Node:
    operands: dict  # name -> array; None: absent
    outputs: list
    attributes: dict = dataclasses.field(default_factory=dict)
    constants: tuple = ()  # the operands that a file holds
    kind: type = None  # the outputs' type, unless it is the first operand's


class Draw:
    """Draws the parts of one node."""

    def __init__(self, seed, op, version):
        self.dice = np.random.default_rng(seed)
        self.op, self.version = op, version

    def pick(self, *choices):
        return choices[int(self.dice.integers(len(choices)))]

    def number(self, low, high):
        return int(self.dice.integers(low, high + 1))

    def chance(self, one_in):
        return self.number(1, one_in) == 1

    def shape(self, least=0, most=4, longest=7):
        """Returns a random shape. One in twenty has a dimension of 0."""
        shape = [self.number(1, longest) for _ in range(self.number(least, most))]
        if shape and self.chance(20):
            shape[self.number(0, len(shape) - 1)] = 0
        return shape

    def part(self, shape):
        """Returns a shape that broadcasts to `shape`; one in thirty may not."""
        kept = shape[self.number(0, len(shape)):] if self.chance(3) else list(shape)
        kept = [1 if self.chance(4) else size for size in kept]
        return kept + [3] if self.chance(30) else kept

    def array(self, kind, shape):
        kind = np.dtype(kind)
        if kind == np.bool_:
            return self.dice.integers(0, 2, shape).astype(kind)
        if kind.kind == "f":
            array = self.dice.normal(0, self.pick(0.1, 1, 4, 60), shape)
            if self.chance(5):
                array = self.dice.choice([0.0, -0.0, 0.5, 1.5, np.inf, -np.inf, 1e-40, 3e38, 1.0],
                                         shape)
            return np.asarray(array).astype(kind)
        limits = np.iinfo(kind)
        if self.chance(4):
            return np.asarray(self.dice.choice([limits.min, limits.max, 0], shape)).astype(kind)
        return np.asarray(self.dice.integers(limits.min, limits.max, shape, kind, endpoint=True))

    def quantized(self, names, kind, shape=()):
        """Returns name -> scale and name -> zero point, which may be absent if it has a name that
        ends in '?'."""
        scale, zero = names
        absent = zero.endswith("?") and self.chance(12)
        scales = np.exp(self.dice.uniform(-7, self.pick(0, 0, 6), shape)).astype(np.float32)
        return {scale: scales, zero.rstrip("?"): None if absent else self.array(kind, shape)}


# ---- Quantized operators ---------------------------------------------------------------------


def binary(draw):
    kind, shape = draw.pick(*BYTES), draw.shape()
    a, b = draw.part(shape), draw.part(shape)
    return Node({"A": draw.array(kind, a), **draw.quantized(("A_scale", "A_zero_point?"), kind),
                 "B": draw.array(kind, b), **draw.quantized(("B_scale", "B_zero_point?"), kind),
                 **draw.quantized(("C_scale", "C_zero_point"), kind)}, ["C"])


def pairs(draw):
    """All pairs of codes."""
    kind = draw.pick(*BYTES)
    codes = np.arange(256).astype(np.uint8).view(kind)
    node = binary(draw)
    for name, array in node.operands.items():
        if name.endswith("zero_point"):
            node.operands[name] = draw.array(kind, ())
        elif name in "AB":
            node.operands[name] = codes.reshape((256, 1) if name == "A" else (1, 256))
    return node


def unary(draw):
    kind = draw.pick(*BYTES)
    attributes = {}
    shape = draw.shape(1)
    x = ("X_scale", "X_zero_point?")
    y = ("Y_scale", "Y_zero_point?")
    if draw.op == "QLinearLeakyRelu":
        attributes = {"alpha": draw.pick(0.01, 0.25, 1.5, -0.5)}
    elif draw.op == "QLinearSoftmax":
        attributes = {"axis": draw.number(-len(shape), len(shape) - 1), "opset": draw.pick(11, 13)}
        x, y = ("X_scale", "x_zero_point?"), ("y_scale", "y_zero_point")
    elif draw.op == "QLinearGlobalAveragePool":
        attributes = {"channels_last": draw.number(0, 1)}
        shape = draw.shape(3, 4, 20)
        x, y = ("x_scale", "x_zero_point"), ("y_scale", "y_zero_point")
    operands = {"X": draw.array(kind, shape), **draw.quantized(x, kind), **draw.quantized(y, kind)}
    if draw.op == "QLinearSoftmax":  # ONNX Runtime has a table for each scale of y: 1/256 is usual
        operands["y_scale"] = np.float32(draw.pick(1 / 256, 0.01))
    return Node(operands, ["Y"], attributes)


def window(draw, dims, sizes):
    """Returns the attributes of a window with `sizes`, without kernel_shape."""
    attributes = {}
    if draw.chance(2):
        attributes["strides"] = [draw.number(1, 3) for _ in range(dims)]
    if draw.chance(4):
        attributes["auto_pad"] = draw.pick("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET")
    elif draw.chance(2):
        attributes["pads"] = [draw.number(0, max(sizes[i % dims] - 1, 0)) for i in range(2 * dims)]
    return attributes


def pool(draw):
    dims = draw.number(1, 3) if draw.op == "MaxPool" else 2
    sizes = [draw.number(1, 4) for _ in range(dims)]
    attributes = {"kernel_shape": sizes, **window(draw, dims, sizes)}
    kind = draw.pick(*BYTES)
    space = [draw.number(3, 12) for _ in range(dims)]
    if draw.chance(3) and draw.version in (1, *range(10, 30)):
        attributes["ceil_mode"] = 1
    if draw.op == "QLinearAveragePool":
        attributes.update(count_include_pad=draw.number(0, 1), channels_last=draw.number(0, 1))
    elif draw.op == "AveragePool":
        attributes.update(count_include_pad=draw.number(0, 1))
        kind = np.float32
    elif draw.chance(4) and draw.version != 8:
        attributes["dilations"] = [draw.number(1, 2) for _ in range(dims)]
    if draw.op == "MaxPool" and (draw.version < 12 or draw.chance(3)):
        kind = np.float32
    batch, channels = draw.number(1, 2), draw.number(1, 20)
    last = draw.op == "NhwcMaxPool" or attributes.get("channels_last")
    shape = [batch, *space, channels] if last else [batch, channels, *space]
    if draw.op == "QLinearAveragePool":
        return Node({"X": draw.array(kind, shape),
                     **draw.quantized(("x_scale", "x_zero_point"), kind),
                     **draw.quantized(("y_scale", "y_zero_point"), kind)}, ["Y"], attributes)
    nhwc = draw.op == "NhwcMaxPool"
    return Node({"x" if nhwc else "X": draw.array(kind, shape)}, ["y" if nhwc else "Y"], attributes)


def matmul(draw):
    kind, other = draw.pick(*BYTES), draw.pick(*BYTES)
    m, k, n = draw.number(1, 9), draw.number(1, 40), draw.number(1, 20)
    stack = draw.shape(0, 2, 3) if draw.chance(2) else []
    a = [] if draw.chance(10) else [m]
    a, b = (draw.part(stack) if a else []) + a + [k], draw.part(stack) + [k, n]
    if draw.op == "MatMulInteger":
        zeros = [draw.array(kind, ()), draw.array(other, draw.pick((), (n,)))]
        return Node({"A": draw.array(kind, a), "B": draw.array(other, b),
                     "a_zero_point": zeros[0], "b_zero_point": zeros[1]}, ["Y"], kind=np.int32)
    channel = draw.pick((), (n,))
    return Node({"a": draw.array(kind, a), **draw.quantized(("a_scale", "a_zero_point"), kind),
                 "b": draw.array(other, b),
                 **draw.quantized(("b_scale", "b_zero_point"), other, channel),
                 **draw.quantized(("y_scale", "y_zero_point"), kind)}, ["y"])


def gemm(draw):
    kind, other = draw.pick(*BYTES), draw.pick(*BYTES)
    m, k, n = draw.number(1, 9), draw.number(1, 40), draw.number(1, 20)
    turned = draw.number(0, 1), draw.number(0, 1)
    operands = {"A": draw.array(kind, (k, m) if turned[0] else (m, k)),
                **draw.quantized(("a_scale", "a_zero_point"), kind),
                "B": draw.array(other, (n, k) if turned[1] else (k, n)),
                **draw.quantized(("b_scale", "b_zero_point"), other, draw.pick((), (n,))),
                "C": draw.pick(None, draw.dice.integers(-9999, 9999, draw.pick(
                    (n,), (1, n), (m, 1), (m, n), (1,))).astype(np.int32))}
    if draw.chance(3):
        return Node(operands, ["Y"], {"transA": turned[0], "transB": turned[1],
                                      "alpha": draw.pick(1.0, 0.5)}, kind=np.float32)
    operands.update(draw.quantized(("y_scale", "y_zero_point"), kind))
    return Node(operands, ["Y"], {"transA": turned[0], "transB": turned[1]})


def conv(draw):
    kind, other, group = draw.pick(*BYTES), draw.pick(*BYTES), draw.pick(1, 1, 2, 3)
    dims = draw.pick(1, 2, 2, 2, 3)
    sizes = [draw.number(1, 3) for _ in range(dims)]
    channels, filters = group * draw.number(1, 5), group * draw.number(1, 5)
    space = [draw.number(3, 9) for _ in range(dims)]
    attributes = {"group": group, **window(draw, dims, sizes)}
    if "auto_pad" not in attributes and draw.chance(4):
        attributes["dilations"] = [draw.number(1, 2) for _ in range(dims)]
    weights = draw.array(other, [filters, channels // group, *sizes])
    if draw.op == "ConvInteger":
        return Node({"x": draw.array(kind, [draw.number(1, 2), channels, *space]), "w": weights,
                     "x_zero_point": draw.array(kind, ()), "w_zero_point": draw.array(other, ())},
                    ["y"], attributes, kind=np.int32)
    attributes["channels_last"] = draw.number(0, 1)
    shape = [*space, channels] if attributes["channels_last"] else [channels, *space]
    w = draw.quantized(("w_scale", "w_zero_point"), other)
    if draw.chance(2):
        w["w_scale"] = np.full(filters, w["w_scale"]) * draw.dice.uniform(
            0.5, 2, filters).astype(np.float32)
    bias = draw.pick(None, draw.dice.integers(-9999, 9999, filters).astype(np.int32))
    return Node({"x": draw.array(kind, [draw.number(1, 2), *shape]),
                 **draw.quantized(("x_scale", "x_zero_point"), kind), "w": weights, **w,
                 **draw.quantized(("y_scale", "y_zero_point"), kind), "B": bias}, ["y"], attributes)


def joined(draw, shape, axis):
    """Returns the shapes of one to five tensors, to be joined along `axis`."""
    return [shape[:axis] + [draw.number(0 if draw.chance(9) else 1, 5)] + shape[axis + 1:]
            for _ in range(draw.number(1, 5))]


def concat(draw):
    shape = draw.shape(1)
    axis = draw.number(0, len(shape) - 1)
    attributes = {"axis": axis - draw.pick(0, len(shape))}
    kind = draw.pick(*BYTES)
    if draw.op == "Concat":
        kind = draw.pick(*KINDS)
        return Node({"input_%d" % i: draw.array(kind, part)
                     for i, part in enumerate(joined(draw, shape, axis))},
                    ["concat_result"], attributes)
    operands = draw.quantized(("Y_scale", "Y_zero_point"), kind)
    for i, part in enumerate(joined(draw, shape, axis)):
        name = "x_%d" % i
        operands.update({name: draw.array(kind, part),
                         **draw.quantized((name + "_scale", name + "_zero_point"), kind)})
    return Node(operands, ["Y"], attributes, kind=kind)


def where(draw):
    kind, shape = draw.pick(*BYTES), draw.shape(1)
    return Node({"condition": draw.array(np.bool_, draw.part(shape)),
                 "X": draw.array(kind, draw.part(shape)),
                 **draw.quantized(("x_scale", "x_zero_point"), kind),
                 "Y": draw.array(kind, draw.part(shape)),
                 **draw.quantized(("y_scale", "y_zero_point"), kind),
                 **draw.quantized(("z_scale", "z_zero_point"), kind)}, ["Z"], kind=kind)


# ---- Plain operators -------------------------------------------------------------------------

KINDS = (np.uint8, np.int8, np.int32, np.int64, np.float32)


def convert(draw):
    """Operators that compute each element, or a row, without parameters."""
    x = draw.array(np.float32, draw.shape(1))
    if draw.op == "DynamicQuantizeLinear":
        return Node({"x": np.nan_to_num(x, posinf=9, neginf=-9)},
                    ["y", "y_scale", "y_zero_point"], kind=(np.uint8, np.float32, np.uint8))
    if draw.op == "Relu":
        return Node({"X": draw.array(draw.pick(np.float32, np.int8), x.shape)}, ["Y"])
    if draw.op in ("ArgMax", "ArgMin"):
        attributes = {"axis": draw.number(-x.ndim, x.ndim - 1), "keepdims": draw.number(0, 1)}
        if draw.version >= 12:
            attributes["select_last_index"] = draw.number(0, 1)
        return Node({"data": draw.array(draw.pick(*BYTES, np.int32, np.float32), x.shape)},
                    ["reduced"], attributes, kind=np.int64)
    if draw.op == "Cast":
        kinds = (*KINDS, np.uint16, np.int16, np.bool_, np.float16)
        # What C++ leaves undefined, a float beyond the integer's range, is not asked.
        kind, small = draw.pick(*kinds), draw.dice.integers(0, 128, x.shape)
        target = draw.pick(*kinds)
        source = small.astype(kind) if np.dtype(kind).kind == "f" else draw.array(kind, x.shape)
        return Node({"input": source}, ["output"], {"to": number_of(target)}, kind=target)
    kind = draw.pick(np.float32, *BYTES)
    limits = np.sort(draw.array(kind, 2))
    if draw.version < 11:
        return Node({"input": draw.array(np.float32, x.shape)}, ["output"],
                    {"min": -1.5, "max": 2.25})
    return Node({"input": draw.array(kind, x.shape), "min": draw.pick(None, limits[0]),
                 "max": draw.pick(None, limits[1])}, ["output"])


def number_of(kind):
    from onnx import helper
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(kind)))


def whole(numbers):
    return np.asarray(numbers, np.int64)


def move(draw):
    """Operators that move data, but for those below."""
    kind, shape = draw.pick(*KINDS), draw.shape(1)
    rank = len(shape)
    data = draw.array(kind, shape)
    if draw.op == "Flatten":
        return Node({"input": data}, ["output"], {"axis": draw.number(
            0 if draw.version < 11 else -rank, rank)})
    if draw.op == "Identity":
        return Node({"input": data}, ["output"])
    if draw.op == "Transpose":
        order = [int(axis) for axis in draw.dice.permutation(rank)]
        return Node({"data": data}, ["transposed"], draw.pick({}, {"perm": order}, {"perm": order}))
    if draw.op == "Reshape":
        count, target = data.size, []
        for size in [int(size) for size in draw.dice.permutation(shape)][:draw.number(1, 3)]:
            target.append(size)
            count //= max(size, 1)
        target.append(draw.pick(count, -1))
        if draw.chance(6):
            target[0] = 0
        return Node({"data": data, "shape": whole(target)}, ["reshaped"])
    if draw.op == "Gather":
        axis = draw.number(0, rank - 1)
        high = shape[axis] if draw.chance(30) else max(shape[axis] - 1, 0)
        indices = draw.dice.integers(-shape[axis], high + 1, draw.shape(0, 2, 4))
        return Node({"data": data, "indices": indices.astype(draw.pick(np.int32, np.int64))},
                    ["output"], {"axis": axis})
    if draw.op == "Slice":
        axes = [int(axis) for axis in draw.dice.permutation(rank)[:draw.number(1, rank)]]
        ends = [[draw.number(-9, 9) for _ in axes] for _ in "se"]
        steps = [draw.pick(1, 1, 2, -1, -2) for _ in axes]
        return Node({"data": data, "starts": whole(ends[0]), "ends": whole(ends[1]),
                     "axes": whole(axes), "steps": whole(steps)}, ["output"])
    raise ValueError(draw.op)


def axes_of(draw):
    """Squeeze, Unsqueeze and Split, whose lists became inputs in opset 13."""
    shape = draw.shape(1)
    if draw.op == "Split":
        axis = draw.number(0, len(shape) - 1)
        sizes = [draw.number(0 if draw.chance(9) else 1, 3) for _ in range(draw.number(1, 5))]
        shape[axis] = sum(sizes) + draw.chance(30)
        name, key, numbers = "input", "split", sizes
        outputs = ["output_%d" % i for i in range(len(sizes))]
        more = {"axis": axis}
    else:
        inserted = draw.op == "Unsqueeze"
        name, key, more = "data", "axes", {}
        outputs = ["expanded" if inserted else "squeezed"]
        rank = len(shape) + (2 if inserted else 0)
        numbers = [int(axis) for axis in draw.dice.permutation(rank)[:2]]
        for axis in [] if inserted or draw.chance(9) else numbers:
            shape[axis] = 1
    data = draw.array(draw.pick(*KINDS), shape)
    if draw.version < 13:
        return Node({name: data}, outputs, {key: numbers, **more})
    return Node({name: data, key: whole(numbers)}, outputs, more)


def space(draw):
    block, channels = draw.number(1, 3), draw.number(1, 4)
    high, wide = draw.number(1, 4), draw.number(1, 4)
    kind = draw.pick(np.uint8, np.int8, np.float32)
    if draw.op == "SpaceToDepth":
        shape, attributes = [2, channels, high * block, wide * block], {}
    else:
        shape = [2, channels * block * block, high, wide]
        attributes = {"mode": draw.pick("DCR", "CRD")} if draw.version >= 11 else {}
    return Node({"input": draw.array(kind, shape)}, ["output"], {"blocksize": block, **attributes})


def pad(draw):
    kind, shape = draw.pick(*KINDS), draw.shape(1, 4)
    mode = draw.pick("constant", "constant", "edge", "reflect",
                     *(["wrap"] if draw.version >= 19 else []))
    low = 0 if draw.chance(2) else -1
    pads = [draw.number(low, 2) for _ in range(2 * len(shape))]
    value = draw.array(kind, ()) if mode == "constant" and draw.chance(2) else None
    return Node({"data": draw.array(kind, shape), "pads": whole(pads), "constant_value": value},
                ["output"], {"mode": mode})


def resize(draw):
    shape = [1, draw.number(1, 3), draw.number(1, 9), draw.number(1, 9)]
    mode = draw.pick("nearest", "nearest", "linear")
    kind = draw.pick(*BYTES, np.float32)
    attributes = {"mode": mode}
    scales = np.array([1, 1, draw.pick(1, 2, 3, 0.5, 1.7), draw.pick(1, 2, 0.6)], np.float32)
    data = draw.array(kind, shape)
    if draw.version < 11:
        return Node({"X": data, "scales": scales}, ["Y"], attributes)
    attributes["coordinate_transformation_mode"] = draw.pick(
        "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    if mode == "nearest":
        attributes["nearest_mode"] = draw.pick("round_prefer_floor", "round_prefer_ceil", "floor",
                                               "ceil")
    roi = np.zeros(0, np.float32) if draw.version < 13 else None
    if draw.chance(2):
        sizes = whole(shape[:2] + [draw.number(1, 20), draw.number(1, 20)])
        return Node({"X": data, "roi": roi, "scales": roi, "sizes": sizes}, ["Y"], attributes)
    return Node({"X": data, "roi": roi, "scales": scales}, ["Y"], attributes)


# ---- Operators of graphs ---------------------------------------------------------------------


def float_unary(draw):
    return Node({"X": draw.array(np.float32, draw.shape(1))}, ["Y"])


def float_binary(draw):
    shape, kind = draw.shape(1), draw.pick(np.float32, np.int32, np.int64)
    if draw.op in ("Sum", "PRelu"):
        kind = np.float32
    if draw.op in ("Equal", "Mod"):
        kind = draw.pick(np.int32, np.int64)
    a, b = draw.array(kind, draw.part(shape)), draw.array(kind, draw.part(shape))
    if draw.op == "PRelu":
        a = draw.array(kind, shape)
    if kind != np.float32:  # the processor traps on a quotient by 0 and on the least by -1
        a, b = a // 2, b // 2
        b = np.asarray(np.where(b == 0, 3, b)).astype(kind)
    return Node({"A": a, "B": b}, ["C"], kind=np.bool_ if draw.op == "Equal" else None)


def float_rows(draw):
    if draw.op == "GlobalAveragePool":
        return Node({"X": draw.array(np.float32, draw.shape(3, 4, 20))}, ["Y"])
    shape = draw.shape(2)
    first = draw.number(1, len(shape) - 1)
    if draw.op == "Softmax":
        return Node({"X": draw.array(np.float32, shape)}, ["Y"], {"axis": first})
    data = draw.array(np.float32, shape)
    axes, attributes = list(range(first, len(shape))), {"keepdims": draw.number(0, 1)}
    if draw.version < 18:
        return Node({"X": data}, ["Y"], {"axes": axes, **attributes})
    return Node({"X": data, "axes": whole(axes)}, ["Y"], attributes, ("axes",))


# The generator of each family -> its operators. Those with a point have an endpoint.
MICROSOFT = {binary: "QLinearAdd QLinearMul", pairs: "QLinearAdd QLinearMul",
             unary: "QLinearLeakyRelu QLinearSigmoid QLinearSoftmax QLinearGlobalAveragePool",
             pool: "QLinearAveragePool NhwcMaxPool", gemm: "QGemm", conv: "QLinearConv",
             concat: "QLinearConcat", where: "QLinearWhere"}
ONNX = {pool: "MaxPool", matmul: "QLinearMatMul MatMulInteger", conv: "ConvInteger",
        concat: "Concat", convert: "Relu Clip Cast ArgMax ArgMin DynamicQuantizeLinear",
        move: "Flatten Identity Transpose Reshape Gather Slice", space: "SpaceToDepth DepthToSpace",
        axes_of: "Squeeze Unsqueeze Split", pad: "Pad", resize: "Resize"}
GRAPH = {float_unary: "Abs Ceil Celu Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Log "
                      "Mish Neg Reciprocal Round Selu Sigmoid Sign Softplus Softsign Sqrt Tanh "
                      "ThresholdedRelu",
         float_binary: "Add Sub Mul Div Min Max Sum PRelu Equal Mod", pool: "AveragePool",
         float_rows: "GlobalAveragePool ReduceMean Softmax"}
GRAPH_OPSETS = (13, 17, 20, 22)
PAIRS = 16  # of scales and zero points, for all pairs of codes
GRAPH_SHARE = 4  # so many times fewer cases of graphs' operators

VECTOR = 4  # elements of ONNX Runtime's vectors
# Operators whose last elements ONNX Runtime computes by another function. This changes at most the
# last two bits, or, of a small difference of numbers near 1, their last two bits.
LAST_BITS = ("Celu", "Elu", "Log", "Mish", "Selu", "Softplus")
LAST_UNITS, LAST_DIFFERENCE = 3, 2.0 ** -22
# Operators of which ONNX Runtime takes another one of two zeros in the last elements of a row.
EXTREMA = ("Max", "Min")
# Operators whose bits depend on the CPU at ONNX Runtime's highest level, because it then arranges
# channels in blocks of a vector's length.
REARRANGED = ("MaxPool", "AveragePool", "GlobalAveragePool")

# What quantd refuses and ONNX Runtime computes: operator, the refusal's text, where it is said.
# Any other such refusal is a failure.
LIMITS = [("AveragePool", "count_include_pad", "loading.md, not count_include_pad with ceil_mode"),
          ("ReduceMean", "reduced axes above 0", "loading.md, not means of nothing")]


def operators():
    """Yields (domain, operator, generator, whether it has an endpoint)."""
    for domain, endpoint, table in (("com.microsoft", True, MICROSOFT), ("", True, ONNX),
                                    ("", False, GRAPH)):
        for generator, names in table.items():
            for name in names.split():
                yield domain, name, generator, endpoint


def random_cases(seed, count, versions):
    """Yields (case's name, operator, version, node, model, whether it has an endpoint). `versions`
    returns an endpoint's versions."""
    for domain, op, generator, endpoint in operators():
        model = PREFIXES[domain] + op
        known = versions(model) if endpoint else GRAPH_OPSETS
        known = [version for version in known if domain or version >= 7] or known[-1:]
        amount = PAIRS if generator is pairs else count if endpoint else -(-count // GRAPH_SHARE)
        for number in range(amount):
            key = [seed, zlib.crc32((generator.__name__ + op).encode()), number]
            dice = np.random.default_rng(key)
            draw = Draw(key, op, known[int(dice.integers(len(known)))])
            kind = "pairs/" if generator is pairs else ""
            yield ("operators/%s/%s%d" % (model, kind, number), model, draw.version,
                   generator(draw), domain, endpoint)


def proto(op, domain, version, node):
    """Returns a file of this node."""
    from onnx import helper, numpy_helper
    names = ["" if array is None else name for name, array in node.operands.items()]
    # ONNX Runtime's QGemm reads beyond the list of inputs if C is not even named as absent.
    while not domain and not names[-1]:
        names.pop()
    arrays = {name: array for name, array in node.operands.items() if array is not None}
    first = next(iter(arrays.values())).dtype
    kinds = node.kind if isinstance(node.kind, tuple) else [node.kind or first] * len(node.outputs)
    inputs = [helper.make_tensor_value_info(name, number_of(array.dtype), array.shape)
              for name, array in arrays.items() if name not in node.constants]
    outputs = [helper.make_tensor_value_info(name, number_of(kind), None)
               for name, kind in zip(node.outputs, kinds)]
    attributes = dict(node.attributes)
    if op == "Split" and version >= 18 and "split" not in arrays:
        attributes["num_outputs"] = len(node.outputs)
    graph = helper.make_graph(
        [helper.make_node(op, names, node.outputs, domain=domain, **attributes)], op, inputs,
        outputs, [numpy_helper.from_array(arrays[name], name) for name in node.constants])
    opsets = [helper.make_opsetid("", 21 if domain else version)]
    if domain:
        opsets.append(helper.make_opsetid(domain, version))
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def tensors(node):
    return [tensor(name, array) for name, array in node.operands.items()
            if array is not None and name not in node.constants]


def tensor(name, array):
    array = np.asarray(array)
    return Tensor(name, NAMES[array.dtype.name], list(array.shape), array.tobytes())


def level(op):
    """Returns the name of the level at which ONNX Runtime's bits are the same on all CPUs."""
    return "ORT_ENABLE_EXTENDED" if op in REARRANGED else "ORT_ENABLE_ALL"


def computed(file, level_name, feed, outputs):
    """Returns (outputs, None), or (None, why ONNX Runtime refuses the node)."""
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel,
                                               level_name)
    try:
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        results = session.run(None, feed)
    except Exception as error:  # ONNX Runtime's exceptions have no common class
        return None, reason(str(error))
    made = [tensor(*pair) for pair in zip(outputs, results)]
    return [(item.name, item.datatype, item.shape, item.raw) for item in made], None


def serve(pipe):
    """Computes what comes from the pipe, until its other end is closed."""
    while True:
        try:
            asked = pipe.recv()
        except EOFError:
            return
        pipe.send(computed(*asked))


class Judge:
    """Runs nodes with ONNX Runtime in a process of its own, because some nodes crash it. The
    process ends with the `with` statement, even after an exception: it has a copy of the pipe to
    oracles.Previous, which would wait for the pipe's end forever."""

    def __init__(self):
        self.process = self.pipe = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process is not None:
            self.pipe.close()
            self.process.terminate()
            self.process.join()

    def start(self):
        context = multiprocessing.get_context("fork")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other,), daemon=True)
        self.process.start()
        other.close()

    def run(self, op, file, node):
        """Returns what computed() returns."""
        feed = {name: np.asarray(array) for name, array in node.operands.items()
                if array is not None and name not in node.constants}
        return self.compute(file.SerializeToString(), level(op), feed, node.outputs)

    def compute(self, *asked):
        """Passes the arguments to computed()."""
        if self.process is None:
            self.start()
        self.pipe.send(asked)
        try:
            return self.pipe.recv()
        except EOFError:
            self.process.join()
            code, self.process = self.process.exitcode, None
            return None, "it crashes: " + signal.Signals(-code).name


class Allowance:
    """What api_schema/loading.md says of the last elements, which fill no vector of ONNX Runtime's.
    `used` says what was found, or is None."""

    def __init__(self, op, shapes):
        self.op, self.shapes, self.used = op, set(shapes), None

    def allows(self, datatype, got, want):
        if datatype != "FP32" or self.op not in (*LAST_BITS, *EXTREMA):
            return False
        got, want = np.frombuffer(got, np.uint32), np.frombuffer(want, np.uint32)
        differ = np.flatnonzero(got != want)
        differ = differ[~(np.isnan(got.view(np.float32)) & np.isnan(want.view(np.float32)))[differ]]
        one_row = len(self.shapes) == 1 or () in self.shapes
        if (self.op in LAST_BITS or one_row) and differ.min() < got.size - got.size % VECTOR:
            return False
        got, want = got[differ], want[differ]
        if self.op in EXTREMA:
            self.used = "the same bytes, but for the signs of zeros at the ends of rows"
            return not ((got | want) & 0x7fffffff).any()
        self.used = "the same bytes, but for the last bits of the last elements, up to three"
        units = np.abs(got.astype(np.int64) - want)
        away = np.abs(got.view(np.float32) - want.view(np.float32))
        return bool(((units <= LAST_UNITS) | (away <= LAST_DIFFERENCE)).all())


def reason(text):
    """Returns a refusal's text without what differs from case to case."""
    text = re.sub(r"\s+", " ", text.split("\n")[0])
    text = re.sub(r"(/[\w.-]+)+/|'[^']*'|\{[^}]*\}|\[[^\]]*\]|-?\d[\d.,x]*", "…", text)
    return text.replace("|", "/")[-110:]


def explained(model, text):
    """Returns where a refusal of quantd's is documented, or None."""
    found = (said for op, pattern, said in LIMITS if re.search(op, model) and
             re.search(pattern, text))
    return next(itertools.islice(found, 1), None)
