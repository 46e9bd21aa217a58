"""Makes tests/data/operators/concat.jsonl: com.microsoft.QLinearConcat, run by ONNX Runtime. See
operator_cases.py."""
import numpy as np

from operator_cases import Cases

TYPES = (np.uint8, np.int8)
# The shape of the first input, the axis, and how long the axis is in the others.
SHAPES = (([1, 3, 4, 4], 1, (5,)), ([2, 6], -1, (1, 9)), ([4, 2, 3], 1, ()), ([7], 0, (1, 33)),
          ([2, 3, 1], -3, (1, 1)), ([3, 2, 5], 2, (5, 1, 8)), ([1, 2, 3, 1, 2], -2, (4,)),
          ([2, 65], 1, (130,)), ([1, 1], 1, (1,) * 9), ([5, 2], 0, (3, 2, 1)))
EMPTY = (([0, 3], 0, (2,)), ([2, 0], 1, (0, 3)), ([2, 0, 3], 0, (4,)), ([0], 0, ()),
         ([3, 4], 0, (0,)))
SCALES = (0.1, 1 / 256, 0.05, 1 / 255, 0.0371, 0.5, 0.25, 1, 3, 1e-3)
# Scales of Y and x.
EXTREMES = ((np.nan, 1), (1, np.nan), (np.nan, np.nan), (np.inf, 1), (1, np.inf), (np.inf, np.inf),
            (1, 0), (0, 1), (0, 0), (-0.0, 0), (1, -1), (-2, 1), (1e-3, 3e38), (1, 1e-45),
            (1e-45, 1))


def scalar(kind, value):
    return np.asarray(np.array(value).astype(kind).reshape(()))


def operands(y_scale, y_zero, parts):
    """`parts` are the x, each with its scale and zero point. The type is that of y_zero."""
    made = {"Y_scale": scalar(np.float32, y_scale), "Y_zero_point": y_zero}
    for i, (x, scale, zero) in enumerate(parts):
        made.update({f"x_{i}": x, f"x_{i}_scale": scalar(np.float32, scale),
                     f"x_{i}_zero_point": scalar(x.dtype, zero)})
    return made


def add(cases, note, given, **attributes):
    cases.add(note, "QLinearConcat", 1, given, outputs=("Y",), domain="com.microsoft",
              types=(given["Y_zero_point"].dtype,), **attributes)


def add_shapes(cases):
    dice = cases.dice
    for i, (shape, axis, others) in enumerate(SHAPES + EMPTY):
        kind = TYPES[i % 2]
        info = np.iinfo(kind)
        y = (SCALES[i % len(SCALES)], int(dice.integers(info.min, info.max + 1)))
        parts = []
        for k, length in enumerate((shape[axis],) + others):
            dims = list(shape)
            dims[axis] = length
            x = dice.integers(info.min, info.max + 1, dims).astype(kind)
            own = (SCALES[(i + k * 3) % len(SCALES)], int(dice.integers(info.min, info.max + 1)))
            parts.append((x, *(y if k == 1 else own)))
        add(cases, f"{shape}, axis {axis}, others {others}",
            operands(y[0], scalar(kind, y[1]), parts), axis=axis)


def add_codes(cases):
    dice = cases.dice
    for kind in TYPES:
        info = np.iinfo(kind)
        codes = np.arange(info.min, info.max + 1).astype(kind)
        for i, y_scale in enumerate(SCALES[:4]):
            parts = [(codes, scale, int(dice.choice(codes))) for scale in SCALES[i::5]]
            add(cases, f"all codes to scale {y_scale}",
                operands(y_scale, scalar(kind, dice.choice(codes)), parts), axis=0)
        add(cases, "equal scales, zero points that differ by one",
            operands(0.1, scalar(kind, codes[100]), [(codes, 0.1, codes[101])]), axis=0)
        add(cases, "ties", operands(2, scalar(kind, codes[101]), [(codes, 1, codes[128])]), axis=0)
    for i, (y_scale, x_scale) in enumerate(EXTREMES):
        kind = TYPES[i % 2]
        codes = np.arange(np.iinfo(kind).min, np.iinfo(kind).max + 1).astype(kind)
        alike = y_scale == x_scale or y_scale != y_scale
        for x_zero in (codes[140], codes[70])[:1 + alike]:
            add(cases, f"scale {x_scale} to {y_scale}, zero points {x_zero}, {codes[70]}",
                operands(y_scale, scalar(kind, codes[70]), [(codes[::15], x_scale, x_zero)]),
                axis=0)


# ONNX Runtime crashes if an input is absent, and reads the first of two scales of an x, so the unit
# tests have these calls.
def add_wrong(cases):
    x = np.arange(6).astype(np.uint8).reshape(2, 3)
    zero = scalar(np.uint8, 0)
    right = operands(1, zero, [(x, 1, 0), (x, 2, 3)])
    for axis in (2, -3, 2**40):
        add(cases, f"axis {axis}", right, axis=axis)
    add(cases, "no axis", right)
    add(cases, "parameters of shape [1]",
        {name: value.reshape(1) if value.ndim == 0 else value for name, value in right.items()},
        axis=1)
    for name, value in (("x_1", x[:1]), ("x_1", x[None]), ("x_1", x.astype(np.int8)),
                        ("x_1", x[:0, :2]), ("x_0", x[:0, :2]), ("x_1", x[0, :0]),
                        ("x_1_zero_point", scalar(np.int8, 0)),
                        ("Y_scale", np.ones(2, "f")), ("Y_zero_point", np.zeros(2, np.uint8)),
                        ("Y_zero_point", scalar(np.int8, 0))):
        add(cases, f"{name}: {value.dtype} {list(value.shape)}", {**right, name: value}, axis=1)
    for count in (3, 4):
        add(cases, f"only {count + 2} inputs", dict(list(right.items())[:count + 2]), axis=1)
    add(cases, "a scalar", operands(1, zero, [(zero, 1, 0)]), axis=0)


def main():
    cases = Cases(2813)
    add_shapes(cases)
    add_codes(cases)
    add_wrong(cases)
    cases.write("tests/data/operators/concat.jsonl")


if __name__ == "__main__":
    main()
