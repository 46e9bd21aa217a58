"""Makes tests/data/operators/float.jsonl: functions of floats, run by ONNX Runtime. See
operator_cases.py.

ONNX Runtime computes the last elements of a tensor, less than four, by another function in Elu,
Celu, Selu, Softplus, Log and Mish. So all tensors here have a multiple of four elements.
"""
import numpy as np

from operator_cases import Cases

# Each length is a multiple of four.
EXTREMES = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3.4e38, -3.4e38, 18, -18,
                     2.5, -2.5, 3, -3, -104.5], np.float32)
FEW = np.array([-90, -88.5, -20, -9.5, -4, -1.5, -1, -0.93, -0.5, -0.01, 0.01, 0.5, 0.92, 1, 1.5,
                2, 4, 9.5, 20, 88, 89, 100, 0, -0.0], np.float32)


def functions(cases, codes, sizes):
    def add(op, version, *inputs, **attributes):
        for note, x in inputs:
            cases.add(note, op, version, {"X": x}, outputs=("Y",), **attributes)

    all_inputs = (("codes", codes), ("random", sizes.reshape(4, 16)), ("extremes", EXTREMES))
    few = (("random", sizes[:24]), ("few", FEW), ("extremes", EXTREMES))
    add("HardSigmoid", 6, *all_inputs)
    add("HardSigmoid", 22, *few, alpha=0.1666666716337204, beta=0.5)
    add("HardSwish", 14, *few)
    add("LeakyRelu", 6, *few)
    add("LeakyRelu", 16, *few, alpha=0.30000001192092896)
    for op, version in (("Sigmoid", 6), ("Tanh", 13), ("Exp", 6), ("Erf", 13), ("Elu", 6),
                        ("Softplus", 1), ("Gelu", 20)):
        add(op, version, *all_inputs)
    positive = [(note, np.abs(x)) for note, x in (("codes", codes), ("random", sizes))]
    add("Log", 13, *positive, ("extremes", EXTREMES))
    add("Gelu", 20, *few, approximate="tanh")
    add("Elu", 22, *few, alpha=0.30000001192092896)
    add("Celu", 12, *few)
    add("Celu", 12, *few, alpha=0.699999988079071)
    add("Selu", 6, *few)
    add("Selu", 22, *few, alpha=1.2999999523162842, gamma=0.699999988079071)
    add("Mish", 18, *few)
    add("Softsign", 1, *few)
    add("ThresholdedRelu", 10, *few)
    add("ThresholdedRelu", 22, *few, alpha=-0.4000000059604645)
    for op, version in (("Abs", 13), ("Neg", 6), ("Sqrt", 13), ("Reciprocal", 6), ("Sign", 13),
                        ("Floor", 6), ("Ceil", 13)):
        add(op, version, *few[1:])
    add("Round", 11, ("ties", (np.arange(-8, 8) / 2).astype(np.float32)), few[2])
    cases.add("empty", "Sigmoid", 13, {"X": codes[:0]}, outputs=("Y",))
    cases.add("a scalar", "Abs", 13, {"X": codes[3].reshape(())}, outputs=("Y",))
    cases.add("other text", "Gelu", 20, {"X": FEW}, outputs=("Y",), approximate="sigmoid")


def limits(cases):
    """Clip and Relu, of floats."""
    for version in (6, 13, 14):
        cases.add("floats", "Relu", version, {"X": EXTREMES}, outputs=("Y",))
    for attributes in ({}, {"min": -2.0}, {"max": 2.5}, {"min": 0.0, "max": 6.0},
                       {"min": 3.0, "max": -1.0}):
        cases.add("floats", "Clip", 6, {"input": EXTREMES}, outputs=("output",), **attributes)
        operands = {"input": EXTREMES, "min": None, "max": None}
        operands.update({key: np.float32(value) for key, value in attributes.items()})
        for version in (11, 13):
            cases.add("floats", "Clip", version, operands, outputs=("output",))
    cases.add("attributes", "Clip", 13, {"input": EXTREMES}, outputs=("output",), min=0.0)


def pairs(cases, codes, sizes):
    """Functions of two tensors, which broadcast."""
    def combine(op, version, *operands):
        for a, b in operands:
            cases.add("of shapes", op, version, {"A": np.float32(a), "B": np.float32(b)},
                      outputs=("C",))

    three, deep = np.array([3.1], np.float32), np.full((1, 1, 1), -0.7, np.float32)
    image = sizes[:48].reshape(2, 3, 2, 4)
    channels = np.array([0.3, -2.5, 7], np.float32).reshape(3, 1, 1)
    for op in ("Add", "Sub", "Mul", "Div"):
        combine(op, 7, (codes[:64], three), (three, codes[:64]), (sizes, sizes[::-1]))
        combine(op, 14, (codes[:16].reshape(2, 8), deep), (EXTREMES, three), (three[0], three))
        combine(op, 13, (image, channels), (channels, image), (image[:1, :, :1], image[:, :1]))
    combine("Mul", 13, (np.repeat(image, 40, axis=3), image[:, :, :1, :1]))
    combine("Add", 13, (image, channels[:2]))
    for op in ("Min", "Max"):
        for a, b in ((codes[:64], three), (three, codes[:64]), (EXTREMES[:4], deep),
                     (three[0], codes[:0]), (image, channels)):
            cases.add("of shapes", op, 13, {"data_0": a, "data_1": b}, outputs=(op.lower(),))
    for exponent in (2, 3, 0.5, -1, 1.5, 0, 4):
        x = sizes[:32] if exponent == int(exponent) else np.abs(sizes[:32])
        cases.add("an exponent", "Pow", 13, {"X": x, "Y": np.float32(exponent)}, outputs=("Z",))
    for version, slope in ((7, three), (9, np.float32(-0.2)), (16, channels)):
        cases.add("a slope", "PRelu", version, {"X": image, "slope": slope}, outputs=("Y",))
    for slope in (three, np.float32(-0.2)):
        cases.add("a slope", "PRelu", 16, {"X": EXTREMES, "slope": slope}, outputs=("Y",))


def means(cases):
    def image(*shape):
        return cases.dice.normal(0, 3, shape).astype(np.float32)

    for version, shape in ((1, (2, 3, 7, 7)), (13, (1, 5, 3)), (22, (2, 2, 3, 4, 5)),
                           (17, (1, 2, 1, 1)), (17, (0, 3, 2, 2)), (17, (3, 1, 17)),
                           (17, (2, 3, 31, 2))):
        cases.add("means", "GlobalAveragePool", version, {"X": image(*shape)}, outputs=("Y",))
    cases.add("rank 2", "GlobalAveragePool", 17, {"X": image(2, 3)}, outputs=("Y",))
    for version, shape, attributes in (
            (11, (2, 3, 7, 7), {"axes": [2, 3]}), (13, (2, 3, 5, 3), {"axes": [-1, -2]}),
            (13, (2, 3, 5, 3), {"axes": [3], "keepdims": 0}), (13, (4, 19), {"axes": [1]}),
            (13, (3, 5, 7), {}), (13, (3, 5, 7), {"keepdims": 0}), (1, (5, 33), {"axes": [1]}),
            (13, (7, 3), {"axes": [1]}), (13, (5, 1), {"axes": [1]}),
            (13, (0, 3), {"axes": [1]})):
        cases.add("means", "ReduceMean", version, {"data": image(*shape)}, outputs=("reduced",),
                  **attributes)
    for axes, attributes in (([2, 3], {}), ([-1], {"keepdims": 0}), (None, {})):
        operands = {"data": image(2, 3, 6, 7),
                    "axes": None if axes is None else np.array(axes, np.int64)}
        cases.add("means", "ReduceMean", 18, operands, outputs=("reduced",), **attributes)
    cases.add("an axis too large", "ReduceMean", 13, {"data": image(2, 3)}, outputs=("reduced",),
              axes=[2])


def softmaxes(cases):
    """Softmax of floats: rows of less and of more than 16 lanes, and rows whose elements are apart.
    ONNX Runtime has these bits on CPUs with AVX-512."""
    for version, shape, attributes in (
            (1, (2, 3, 4), {}), (9, (2, 3, 4), {"axis": 2}), (11, (3, 5, 7), {"axis": -2}),
            (13, (4, 10), {}), (13, (2, 150), {"axis": 1}), (13, (2, 37, 3), {"axis": 1}),
            (17, (19, 2, 2), {"axis": 0}), (22, (3, 1), {}), (13, (0, 4), {})):
        x = cases.dice.normal(0, 3, shape).astype(np.float32)
        cases.add("rows", "Softmax", version, {"input": x}, outputs=("output",), **attributes)
    for few in ([-np.inf, 1, 2, 3], [np.inf, 1, 2, 3], [np.nan, 1, 2, 3], [-np.inf] * 4,
                [3e38, -3e38, 0, 3e38], [0, -87, -88.5, -104]):
        cases.add("extremes", "Softmax", 13, {"input": np.array([few], np.float32)},
                  outputs=("output",))
    cases.add("an axis too large", "Softmax", 13, {"input": x[:, :2]}, outputs=("output",), axis=2)


def normalizations(cases):
    def channels(count):
        return cases.dice.normal(0, 1, count).astype(np.float32)

    for version, shape, attributes in (
            (7, (2, 3, 4, 5), {}), (9, (1, 17, 3), {"epsilon": 9.999999974752427e-07}),
            (14, (3, 5), {"momentum": 0.5}), (15, (1, 4, 2, 3, 7), {"epsilon": 0.5}),
            (15, (0, 2, 3), {})):
        x = cases.dice.normal(0, 3, shape).astype(np.float32)
        operands = {"X": x, "scale": channels(shape[1]), "B": channels(shape[1]),
                    "input_mean": channels(shape[1]), "input_var": abs(channels(shape[1]))}
        cases.add("normalizations", "BatchNormalization", version, operands, outputs=("Y",),
                  **attributes)
    cases.add("other channels", "BatchNormalization", 15, dict(operands, X=x[:, :1]),
              outputs=("Y",))


def maxima(cases):
    """MaxPool of floats."""
    for version, shape, attributes in (
            (1, (1, 3, 6, 7), {"kernel_shape": [2, 2], "strides": [2, 2]}),
            (8, (2, 2, 5, 5), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
            (10, (1, 2, 7, 8), {"kernel_shape": [3, 2], "strides": [2, 3], "ceil_mode": 1}),
            (11, (1, 2, 9, 9), {"kernel_shape": [2, 3], "dilations": [2, 3]}),
            (12, (2, 3, 11), {"kernel_shape": [4], "strides": [3], "pads": [2, 1]}),
            (22, (1, 2, 3, 4, 5), {"kernel_shape": [2, 2, 2], "auto_pad": "SAME_UPPER"}),
            (12, (0, 2, 4, 4), {"kernel_shape": [2, 2]}),
            (12, (1, 2, 1, 4), {"kernel_shape": [3, 2]})):
        x = cases.dice.normal(0, 3, shape).astype(np.float32)
        cases.add("maxima", "MaxPool", version, {"X": x}, outputs=("Y",), **attributes)


def averages(cases):
    """AveragePool of floats, in each order of additions."""
    for version, shape, attributes in (
            (7, (1, 3, 6, 7), {"kernel_shape": [2, 2], "strides": [2, 2]}),
            (10, (2, 2, 5, 5), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
            (11, (1, 2, 7, 8), {"kernel_shape": [3, 2], "strides": [2, 3], "ceil_mode": 1}),
            (11, (1, 2, 7, 8), {"kernel_shape": [3, 3], "strides": [1, 2], "ceil_mode": 1}),
            (11, (2, 2, 5, 5), {"kernel_shape": [3, 3], "pads": [1] * 4, "count_include_pad": 1}),
            (11, (1, 2, 5, 5), {"kernel_shape": [5, 5]}),
            (11, (1, 2, 5, 5), {"kernel_shape": [5, 5], "strides": [2, 2]}),
            (11, (1, 1, 34, 3), {"kernel_shape": [33, 2]}),
            (11, (2, 3, 11), {"kernel_shape": [4], "strides": [3], "pads": [2, 1]}),
            (11, (1, 2, 3, 4, 5), {"kernel_shape": [2, 2, 2], "auto_pad": "SAME_UPPER"}),
            (19, (2, 2, 5, 5), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
            (19, (1, 2, 5, 5), {"kernel_shape": [5, 5]}),
            (19, (1, 2, 9, 9), {"kernel_shape": [2, 3], "dilations": [2, 3], "pads": [1, 2, 0, 1]}),
            (22, (1, 2, 9, 9), {"kernel_shape": [2, 3], "dilations": [2, 3], "pads": [1, 2, 0, 1],
                                "count_include_pad": 1}),
            (22, (1, 2, 3, 4, 5), {"kernel_shape": [2, 2, 2], "auto_pad": "SAME_LOWER"}),
            (22, (0, 2, 4, 4), {"kernel_shape": [2, 2]})):
        x = cases.dice.normal(0, 3, shape).astype(np.float32)
        cases.add("averages", "AveragePool", version, {"X": x}, outputs=("Y",), **attributes)


def zeros(cases):
    """What depends on the order of a reduction: the signs of zeros, NaN, -infinity."""
    few = np.array([-np.inf, -0.0, 0, -1, np.nan], np.float32)
    for likely, ways in (([0.6, 0.1, 0.1, 0.1, 0.1], ("MaxPool", "AveragePool")),
                         ([0, 0.7, 0.3, 0, 0], ("MaxPool", "AveragePool"))):
        for version, shape, attributes in (
                (12, (2, 3, 11), {"kernel_shape": [3], "strides": [2], "pads": [2, 1]}),
                (12, (1, 3, 6, 11), {"kernel_shape": [3, 2], "strides": [2, 2]}),
                (12, (1, 3, 6, 11), {"kernel_shape": [3, 2], "strides": [1, 3]}),
                (12, (1, 3, 5, 7), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
                (12, (1, 5, 4, 5), {"kernel_shape": [4, 5]}),
                (12, (1, 3, 3, 4, 6), {"kernel_shape": [2, 2, 2], "pads": [0, 1, 1, 0, 0, 1]}),
                (12, (2, 3, 2, 3, 5), {"kernel_shape": [2, 3, 5]}),
                (19, (1, 3, 7, 9), {"kernel_shape": [2, 2], "dilations": [2, 3]}),
                (22, (1, 3, 1, 9), {"kernel_shape": [2, 2], "dilations": [2, 2], "pads": [1] * 4})):
            for op in ways:
                x = cases.dice.choice(few, shape, p=likely)
                cases.add("zeros", op, version, {"X": x}, outputs=("Y",),
                          **attributes)
    for op in ("Min", "Max"):
        for shape, other in (((8,), (8,)), ((8,), ()), ((), (8,)), ((3, 4), (4,)),
                             ((3, 1), (3, 8)), ((1,), (1,))):
            a, b = (cases.dice.choice(few[1:3], size) for size in (shape, other))
            cases.add("zeros", op, 13, {"data_0": a, "data_1": b}, outputs=(op.lower(),))


def large_windows(cases):
    """Windows that are larger than the image: since opset 19, only taps in it and its pads count.
    """
    for version in (11, 19, 22):
        for attributes in ({"kernel_shape": [4, 1], "strides": [2, 2], "auto_pad": "VALID"},
                           {"kernel_shape": [3, 6], "pads": [0, 1, 0, 0], "strides": [2, 2]}):
            x = cases.dice.normal(0, 3, (1, 2, 3, 4)).astype(np.float32)
            cases.add("large windows", "AveragePool", version, {"X": x}, outputs=("Y",),
                      count_include_pad=1, **attributes)


def blocks(cases):
    """AveragePool of 16 channels or a multiple of them, in the order of additions for these."""
    for version, shape, attributes in (
            (11, (1, 16, 5, 5), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
            (11, (1, 16, 4, 4), {"kernel_shape": [3, 3], "pads": [1] * 4, "count_include_pad": 1}),
            (11, (1, 32, 4, 3), {"kernel_shape": [3, 2], "strides": [2, 1], "ceil_mode": 1}),
            (11, (1, 16, 4, 9), {"kernel_shape": [4, 9]}), (11, (1, 16, 9), {"kernel_shape": [3]}),
            (19, (1, 3, 7, 3), {"kernel_shape": [7, 3]})):
        x = cases.dice.normal(0, 3, shape).astype(np.float32)
        cases.add("blocks", "AveragePool", version, {"X": x}, outputs=("Y",), **attributes)


def main():
    cases = Cases(2807)
    # What DequantizeLinear makes of 256 codes, and values of all sizes.
    codes = (np.float32(0.0371) * (np.arange(256) - 117).astype(np.float32)).astype(np.float32)
    sizes = (cases.dice.standard_normal(64) * 10.0 ** cases.dice.uniform(-3, 2, 64))
    sizes = sizes.astype(np.float32)
    functions(cases, codes, sizes)
    limits(cases)
    pairs(cases, codes, sizes)
    means(cases)
    maxima(cases)
    averages(cases)
    normalizations(cases)
    for a, b in ((sizes, codes[:64]), (codes[:8].reshape(2, 4), sizes[:1])):
        cases.add("of shapes", "Sum", 13, {"data_0": a, "data_1": b}, outputs=("sum",))
    zeros(cases)
    large_windows(cases)
    softmaxes(cases)
    blocks(cases)
    cases.write("tests/data/operators/float.jsonl")


if __name__ == "__main__":
    main()
