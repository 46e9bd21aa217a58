"""Makes tests/data/operators/binary.jsonl: com.microsoft.QLinearAdd and QLinearMul, run by ONNX
Runtime. See operator_cases.py."""
import numpy as np

from operator_cases import Cases

TYPES = (np.uint8, np.int8)
# Scales of a, b and y. Decimal ones make sums that lie near ties.
SCALES = ((0.1, 0.2, 0.3), (0.02, 0.05, 0.01), (0.0037, 0.0123, 0.0171), (0.5, 0.25, 0.5))
SHAPES = (
    ((), ()), ((), (5,)), ((3, 1), (1,)), ((1,), (7,)), ((7,), (1,)), ((1, 1), (1,)),
    ((2, 8, 5, 5), (8, 1, 1)), ((8, 1, 1), (2, 8, 5, 5)), ((2, 3, 1), (2, 1, 5)),
    ((1, 6, 1, 1), (2, 6, 4, 3)), ((2, 1, 33), (2, 5, 33)), ((4, 1), (4, 130)), ((130,), (2, 130)),
    ((2, 1, 200), (1, 3, 1)), ((0, 3), (3,)), ((2, 0), (1, 1)), ((0,), (1,)), ((1,) * 9, (1,) * 9),
    ((3, 1, 1), (3, 1, 1)), ((2, 2, 2, 2, 2), (2, 1, 2, 1, 2)),
)
WRONG = (((2, 3), (3, 2)), ((0,), (2,)), ((4,), (3,)))
EXTREMES = ((np.nan, 1, 1), (1, 1, 0), (np.inf, 1, 1), (3e38, 3e38, 1), (1e30, 1, 1e-8),
            (-0.5, 0.5, 0.5), (0, 0, 1), (1e-45, 1, 1), (1, 1, np.inf), (2.0 ** 23, 1, 1),
            (2.0 ** 24, 1, 1))


def operands(a, b, scales, zeros):
    kind = a.dtype.type
    parts = {"A": a, "B": b}
    result = {}
    for name, scale, zero in zip("ABC", scales, zeros):
        if name in parts:
            result[name] = parts[name]
        result[name + "_scale"] = np.float32(scale).reshape(())
        result[name + "_zero_point"] = kind(zero).reshape(())
    return {name: np.asarray(array) for name, array in result.items()}


def codes(dice, kind, shape):
    info = np.iinfo(kind)
    return dice.integers(info.min, info.max + 1, shape).astype(kind)


def main():
    cases = Cases(28)
    dice = cases.dice

    def add(note, op, a, b, scales, zeros, **changes):
        given = operands(a, b, scales, zeros)
        given.update(changes)
        cases.add(note, op, 1, given, outputs=("C",), domain="com.microsoft")

    for op in ("QLinearAdd", "QLinearMul"):
        for i, (first, second) in enumerate(SHAPES):
            for kind in TYPES if i < 10 else TYPES[i % 2:][:1]:
                zeros = codes(dice, kind, 3)
                add(f"{list(first)} and {list(second)}", op, codes(dice, kind, first),
                    codes(dice, kind, second), SCALES[i % len(SCALES)], zeros)
        for kind in TYPES:
            info = np.iinfo(kind)
            every = np.arange(info.min, info.max + 1).astype(kind)
            for scales in SCALES:
                add("all codes of a, shuffled codes of b", op, every, dice.permutation(every),
                    scales, codes(dice, kind, 3))
            add("zero points at the ends", op, every, every[::-1], SCALES[0],
                (info.min, info.max, info.min))
            for scales in EXTREMES:
                add(f"scales {scales}", op, codes(dice, kind, 37), codes(dice, kind, 37), scales,
                    codes(dice, kind, 3))
        for first, second in WRONG:
            add(f"{list(first)} and {list(second)}", op, codes(dice, np.uint8, first),
                codes(dice, np.uint8, second), SCALES[0], (1, 2, 3))
        a = codes(dice, np.uint8, (3,))
        add("a scale of shape [2]", op, a, a, SCALES[0], (1, 2, 3),
            A_scale=np.array([0.1, 0.2], np.float32))
        add("a zero point of shape [2]", op, a, a, SCALES[0], (1, 2, 3),
            B_zero_point=np.array([1, 2], np.uint8))
        add("b of another type", op, a, a, SCALES[0], (1, 2, 3), B=a.astype(np.int8))
        add("a zero point of another type", op, a, a, SCALES[0], (1, 2, 3),
            C_zero_point=np.array(3, np.int8))
    cases.write("tests/data/operators/binary.jsonl")


if __name__ == "__main__":
    main()
