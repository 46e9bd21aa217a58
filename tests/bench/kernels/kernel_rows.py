"""The rows of operators that look up, add, pool and move bytes, which `make bench` measures in a
cache and in memory."""
import dataclasses
import struct
from typing import Any

from tensors import KIB, MIB, product, random_bytes, size_text

SIZES = (256 * KIB, 64 * MIB)  # of x, or a little less
SIDE = 32  # of the planes
SMALL_SIDE = 7  # before a classifier


def floats(*numbers):
    return struct.pack("<%df" % len(numbers), *numbers)


def whole(*numbers):
    return struct.pack("<%dq" % len(numbers), *numbers)


def scalar(number):
    """Returns a scale or, of an integer, a zero point, as an input."""
    if isinstance(number, float):
        return "FP32", [], floats(number)
    return "UINT8", [], bytes([number])


def indices(*numbers):
    return "INT64", [len(numbers)], whole(*numbers)


ABSENT = ("", None, None)


@dataclasses.dataclass(frozen=True)
class Kind:
    """An operator and its parameters. `more` returns the inputs behind x, each as (type, shape,
    bytes), from x's shape. `y` returns y's shape. `variable` is the number of inputs that come with
    each run. `parts` is the number of outputs, which have one shape."""
    name: str
    model: str
    group: str
    attributes: dict
    more: Any = lambda shape: []
    y: Any = lambda shape: shape
    variable: int = 1
    side: int = SIDE
    parts: int = 1


def twin(shape):
    return "UINT8", shape, random_bytes(product(shape))


def binary(name, shape_of_b):
    return lambda shape: [scalar(0.02), scalar(120),
                          ("UINT8", shape_of_b(shape), random_bytes(product(shape_of_b(shape)))),
                          scalar(0.03), scalar(99), scalar(0.04 if name == "Add" else 2.0),
                          scalar(128)]


def scaled(*numbers):
    return lambda shape: [scalar(number) for number in numbers]


def pooled(kernel, stride, pad):
    def y(shape):
        sides = [(side + 2 * pad - kernel) // stride + 1 for side in shape[2:]]
        return shape[:2] + sides
    return {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}, y


def add_kinds(name, operator):
    return [Kind("%s, two tensors" % name, "com.microsoft.QLinear" + operator, "lookup, binary", {},
                 binary(operator, lambda shape: shape), variable=4),
            Kind("%s, one number a channel" % name, "com.microsoft.QLinear" + operator,
                 "lookup, binary", {}, binary(operator, lambda shape: [shape[1], 1, 1]),
                 variable=4)]


def pool_kinds():
    average = scaled(0.02, 120, 0.03, 99)
    halves, halved = pooled(2, 2, 0)
    threes, same = pooled(3, 1, 1)
    mean = "com.microsoft.QLinearGlobalAveragePool"
    return [Kind("MaxPool 2×2 /2", "onnx.MaxPool", "pools", halves, y=halved),
            Kind("MaxPool 3×3", "onnx.MaxPool", "pools", threes, y=same),
            Kind("AveragePool 2×2 /2", "com.microsoft.QLinearAveragePool", "pools", halves,
                 average, halved),
            Kind("AveragePool 3×3", "com.microsoft.QLinearAveragePool", "pools", threes, average,
                 same),
            Kind("GlobalAveragePool", mean, "pools", {}, average,
                 lambda shape: shape[:2] + [1, 1]),
            Kind("GlobalAveragePool 7×7", mean, "pools", {}, average,
                 lambda shape: shape[:2] + [1, 1], side=SMALL_SIDE)]


def last_pool_kinds():
    """Pools of 32 channels that come last: the shape's last axis."""
    average = scaled(0.02, 120, 0.03, 99)
    threes = pooled(3, 1, 1)[0]
    last = {"channels_last": 1}
    return [Kind("MaxPool 3×3, channels last", "com.microsoft.NhwcMaxPool", "pools", threes),
            Kind("AveragePool 3×3, channels last", "com.microsoft.QLinearAveragePool", "pools",
                 dict(threes, **last), average),
            Kind("GlobalAveragePool, channels last", "com.microsoft.QLinearGlobalAveragePool",
                 "pools", last, average, lambda shape: [shape[0], 1, 1, shape[3]])]


def move_kinds():
    def moved(name, attributes, y, more=lambda shape: [], variable=1, parts=1):
        return Kind(name, "onnx." + name.split()[0], "moves", attributes, more, y, variable,
                    parts=parts)

    def grown(by):
        return lambda shape: shape[:2] + [side + by for side in shape[2:]]

    return [moved("Transpose NCHW to NHWC", {"perm": [0, 2, 3, 1]},
                  lambda shape: [shape[0], *shape[2:], shape[1]]),
            moved("Transpose of images", {"perm": [0, 1, 3, 2]}, lambda shape: shape),
            moved("Concat of channels", {"axis": 1},
                  lambda shape: [shape[0], 2 * shape[1], *shape[2:]],
                  lambda shape: [twin(shape)], 2),
            moved("Split of channels", {"axis": 1, "num_outputs": 2},
                  lambda shape: [shape[0], shape[1] // 2, *shape[2:]], parts=2),
            moved("Slice of images", {}, grown(-2),
                  lambda shape: [indices(1, 1), indices(SIDE - 1, SIDE - 1), indices(2, 3)]),
            moved("Pad of images", {}, grown(2), lambda shape: [indices(0, 0, 1, 1, 0, 0, 1, 1)]),
            moved("Resize ×2", {}, lambda shape: shape[:2] + [2 * side for side in shape[2:]],
                  lambda shape: [ABSENT, ("FP32", [4], floats(1, 1, 2, 2))]),
            moved("DepthToSpace", {"blocksize": 2},
                  lambda shape: [shape[0], shape[1] // 4, *(2 * side for side in shape[2:])]),
            moved("SpaceToDepth", {"blocksize": 2},
                  lambda shape: [shape[0], shape[1] * 4, *(side // 2 for side in shape[2:])]),
            moved("Gather of channels", {"axis": 1}, lambda shape: shape,
                  lambda shape: [("INT64", [shape[1]], whole(*reversed(range(shape[1]))))])]


KINDS = [Kind("Sigmoid", "com.microsoft.QLinearSigmoid", "lookup, binary", {},
              scaled(0.02, 120, 0.0078125, 0)),
         *add_kinds("Add", "Add"), *add_kinds("Mul", "Mul"), *pool_kinds(), *last_pool_kinds(),
         *move_kinds()]


@dataclasses.dataclass(frozen=True)
class Row:
    kind: Kind
    size: int  # bytes of x, or a little less
    threads = 1
    gemm = "auto"
    y = "UINT8"
    limits = ("store", "stream")  # what measure.c moves in the same time

    def __str__(self):
        return "%s, %s" % (self.kind.name, size_text(self.size))

    __hash__ = object.__hash__

    @property
    def shape(self):
        plane = self.kind.side ** 2
        return [1, self.size // plane // 4 * 4, self.kind.side, self.kind.side]

    model = property(lambda self: self.kind.model)
    attributes = property(lambda self: self.kind.attributes)
    y_shape = property(lambda self: list(self.kind.y(self.shape)))
    parts = property(lambda self: self.kind.parts)
    y_bytes = property(lambda self: product(self.y_shape) * self.parts)
    x_bytes = property(lambda self: product(self.shape))

    @property
    def inputs(self):
        rest = self.kind.more(self.shape)
        return [("#0", "UINT8", self.shape, None),
                *(("#%d" % (i + 1) if datatype else "", datatype, shape, raw)
                  for i, (datatype, shape, raw) in enumerate(rest))]

    @property
    def variable(self):
        """The names of the inputs that are no constants of a model: x, and another tensor."""
        return ("#0", "#%d" % (self.kind.variable - 1))

    @property
    def read_bytes(self):
        """The bytes of x and of the other variable input."""
        return self.x_bytes + sum(product(shape) for name, _, shape, _ in self.inputs
                                  if name in self.variable[1:] and name != "#0")


@dataclasses.dataclass(frozen=True)
class Head(Row):
    """One row of A by a constant B, as in a classifier's last layer. All of B is read once, so the
    limit is reading it. `size` is B's."""
    terms: int = 0  # K
    limits = ("read",)
    fixed = ("#3", "#6")  # B and C
    shape = property(lambda self: [1, self.terms])
    columns = property(lambda self: self.size // self.terms)
    y_shape = property(lambda self: [1, self.columns])
    read_bytes = property(lambda self: self.size)

    @property
    def inputs(self):
        columns = self.columns
        more = [scalar(0.02), scalar(120),
                ("INT8", [self.terms, columns], random_bytes(self.size)), scalar(0.003),
                ("INT8", [], bytes(1)), ("INT32", [columns], random_bytes(4 * columns)),
                scalar(0.5), scalar(99)]
        return [("#0", "UINT8", self.shape, None),
                *(("#%d" % (i + 1), *rest) for i, rest in enumerate(more))]


def heads():
    return [Head(Kind("QGemm 1×%d by %d×%d" % (terms, terms, columns), "com.microsoft.QGemm",
                      "one row by B", {}), terms * columns, terms)
            for terms, columns in ((512, 1024), (2048, 1024), (4096, 4096))]


def full():
    return [Row(kind, size) for size in SIZES for kind in KINDS] + heads()
