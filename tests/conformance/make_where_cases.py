"""Makes tests/data/operators/where.jsonl: com.microsoft.QLinearWhere, run by ONNX Runtime. See
operator_cases.py."""
import numpy as np

from operator_cases import Cases

TYPES = (np.uint8, np.int8)
# Shapes of the condition, X and Y.
SHAPES = (([3, 4], [3, 4], [3, 4]), ([3, 1, 5], [4, 5], [3, 4, 1]), ([], [6], [6]),
          ([6], [], [6]), ([6], [6], []), ([], [], []), ([1], [1], [1, 1]), ([7], [1], [1]),
          ([1], [7], [1]), ([2, 1], [1, 3], [1]), ([2, 3, 4], [4], [3, 1]),
          ([2, 3, 4], [2, 1, 4], [1, 3, 4]), ([1, 3, 1, 5], [2, 1, 4, 1], [1]),
          ([2, 2, 2, 2], [2, 2], [2, 1, 2, 2]), ([65], [65], [65]), ([2, 33], [33], [2, 1]),
          ([0], [1], [1]), ([2, 1], [0], [2, 1]), ([2, 0, 3], [1, 3], []), ([1], [3, 0], [3, 1]))
WRONG = (([2], [3], [1]), ([1], [2], [3]), ([2, 3], [2], [1]), ([0], [2], [1]))
# Scales of X, Y and Z.
SCALES = ((0.1, 0.05, 0.07), (1, 0.5, 2), (0.3, 1 / 255, 1 / 256), (1, 1, 1), (3, 1e-3, 0.5))
EXTREMES = ((np.nan, 1, 1), (1, 1, np.nan), (np.inf, 1, np.inf), (0, 1, 0), (1, -1, 1),
            (3e38, 1e-45, 1e-3))


def scalar(kind, value):
    return np.asarray(np.array(value).astype(kind).reshape(()))


def operands(condition, x, y, scales, zeros):
    given = {"condition": condition, "X": x, "x_scale": scalar(np.float32, scales[0]),
             "x_zero_point": scalar(x.dtype, zeros[0]), "Y": y,
             "y_scale": scalar(np.float32, scales[1]), "y_zero_point": scalar(x.dtype, zeros[1]),
             "z_scale": scalar(np.float32, scales[2]), "z_zero_point": scalar(x.dtype, zeros[2])}
    return given


def add(cases, note, given):
    cases.add(note, "QLinearWhere", 1, given, outputs=("Z",), domain="com.microsoft",
              types=(given["X"].dtype,))


def main():
    cases = Cases(2814)
    dice = cases.dice
    for i, shapes in enumerate(SHAPES + WRONG):
        kind = TYPES[i % 2]
        info = np.iinfo(kind)
        condition = np.asarray(dice.integers(0, 2, shapes[0]).astype(bool))
        x, y = [np.asarray(dice.integers(info.min, info.max + 1, shape).astype(kind))
                for shape in shapes[1:]]
        zeros = dice.integers(info.min, info.max + 1, 3)
        add(cases, f"shapes {shapes}", operands(condition, x, y, SCALES[i % len(SCALES)], zeros))
    for kind in TYPES:
        codes = np.arange(np.iinfo(kind).min, np.iinfo(kind).max + 1).astype(kind)
        for scales in SCALES[kind is np.int8::2]:
            zeros = [int(dice.choice(codes)) for _ in range(3)]
            add(cases, f"all codes, scales {scales}",
                operands(dice.integers(0, 2, 256).astype(bool), codes, codes[::-1].copy(), scales,
                         zeros))
        for scales in EXTREMES:
            for zeros in ((codes[70], codes[140], codes[9]), (codes[70],) * 3):
                add(cases, f"scales {scales}, zero points {zeros}",
                    operands(np.arange(13) % 2 == 1, codes[::20], codes[::-20].copy(), scales,
                             zeros))
    x = np.arange(6).astype(np.uint8)
    right = operands(x > 2, x, x + np.uint8(9), (1, 2, 3), (4, 5, 6))
    add(cases, "parameters of shape [1]",
        {name: value.reshape(1) if value.ndim == 0 else value for name, value in right.items()})
    for name, value in (("Y", x.astype(np.int8)), ("condition", x),
                        ("y_zero_point", scalar(np.int8, 0)), ("z_scale", np.ones(2, "f")),
                        ("z_zero_point", np.zeros(2, np.uint8)), ("x_scale", np.ones(2, "f"))):
        add(cases, f"{name}: {value.dtype} {list(value.shape)}", {**right, name: value})
    cases.write("tests/data/operators/where.jsonl")


if __name__ == "__main__":
    main()
