"""Makes tests/data/operators/float.jsonl: functions of floats, run by ONNX Runtime. See
operator_cases.py."""
import numpy as np

from operator_cases import Cases

EXTREMES = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3.4e38, -3.4e38, 18, -18,
                     2.5, -2.5, 3, -3], np.float32)


def main():
    cases = Cases(2807)
    # What DequantizeLinear makes of 256 codes, and values of all sizes.
    codes = (np.float32(0.0371) * (np.arange(256) - 117).astype(np.float32)).astype(np.float32)
    sizes = (cases.dice.standard_normal(64) * 10.0 ** cases.dice.uniform(-3, 2, 64))
    sizes = sizes.astype(np.float32)

    def add(op, version, **attributes):
        for note, x in (("codes", codes), ("random", sizes.reshape(4, 16)),
                        ("extremes", EXTREMES)):
            cases.add(note, op, version, {"X": x}, outputs=("Y",), **attributes)

    add("HardSigmoid", 6)
    add("HardSigmoid", 22, alpha=0.1666666716337204, beta=0.5)
    add("HardSwish", 14)
    add("LeakyRelu", 6)
    add("LeakyRelu", 16, alpha=0.30000001192092896)
    add("Sigmoid", 6)
    add("Sigmoid", 13)
    add("Abs", 13)
    add("Neg", 6)
    add("Sqrt", 13)
    def combine(op, version, *pairs):
        for a, b in pairs:
            cases.add("of shapes", op, version, {"A": np.float32(a), "B": np.float32(b)},
                      outputs=("C",))

    three, deep = np.array([3.1], np.float32), np.full((1, 1, 1), -0.7, np.float32)
    for op in ("Add", "Sub", "Mul", "Div"):
        combine(op, 7, (codes, three), (three, codes), (sizes, sizes[::-1]))
        combine(op, 14, (codes[:16].reshape(2, 8), deep), (EXTREMES, three), (three[0], three))
    for op in ("Min", "Max"):
        for a, b in ((codes, three), (three, codes), (EXTREMES[:4], deep), (three[0], codes[:0])):
            cases.add("of shapes", op, 13, {"data_0": a, "data_1": b}, outputs=(op.lower(),))
    cases.add("empty", "Sigmoid", 13, {"X": codes[:0]}, outputs=("Y",))
    cases.add("a scalar", "Abs", 13, {"X": codes[3].reshape(())}, outputs=("Y",))
    cases.write("tests/data/operators/float.jsonl")


if __name__ == "__main__":
    main()
