"""Makes tests/data/operators/lookup.jsonl: operators on 8 bits that are tables, run by ONNX
Runtime. See operator_cases.py."""
import numpy as np

from operator_cases import Cases

TYPES = (np.uint8, np.int8)
# Scales of x and y. The first ones make sums that lie near ties.
SCALES = ((0.1, 1 / 256), (0.05, 1 / 255), (0.0371, 0.0043), (0.5, 0.25), (1, 0.01), (0.3, 3),
          (1e-3, 1e-3))
EXTREMES = ((np.nan, 1), (1, np.nan), (np.inf, 1), (1, np.inf), (1, 0), (0, 0), (-1, 1), (1, -1),
            (3e38, 1e-3), (1e-45, 1), (1, 1e-45), (3e38, 3e38))
ALPHAS = (0.2, -0.5, 0.0, 1.5, -1e30, 1e30)
DOMAIN = "com.microsoft"


def every_code(kind):
    info = np.iinfo(kind)
    return np.arange(info.min, info.max + 1).astype(kind)


def scalar(kind, value):
    return np.asarray(np.array(value).astype(kind).reshape(()))


def add_microsoft(cases):
    dice = cases.dice

    def add(note, op, x, scales, zeros, **attributes):
        kind = x.dtype.type
        x_zero, y_zero = [None if zero is None else scalar(kind, zero) for zero in zeros]
        cases.add(note, op, 1, {"X": x, "X_scale": scalar(np.float32, scales[0]),
                                "X_zero_point": x_zero, "Y_scale": scalar(np.float32, scales[1]),
                                "Y_zero_point": y_zero},
                  outputs=("Y",), domain=DOMAIN, **attributes)

    for op in ("QLinearSigmoid", "QLinearLeakyRelu"):
        for i, kind in enumerate(TYPES):
            codes = every_code(kind)
            for scales in SCALES:
                zeros = [int(dice.choice(codes)) for _ in range(2)]
                add(f"all codes, scales {scales}", op, codes, scales, zeros)
            add("zero points at the ends", op, codes, SCALES[i], (codes[0], codes[-1]))
            add("no zero points", op, codes, SCALES[i], (None, None))
            add("no zero point of x", op, codes[100:133], SCALES[i], (None, codes[9]))
            add("no zero point of y", op, codes[100:133], SCALES[i], (codes[99], None))
            for scales in EXTREMES[i::2]:
                add(f"scales {scales}", op, codes[::5], scales, (codes[70], codes[140]))
            for shape in ((), (1,), (0,), (3, 0, 2), (2, 3, 5, 1)):
                add(f"shape {list(shape)}", op, np.resize(codes[90:], shape).astype(kind),
                    SCALES[i], (codes[128], codes[7]))
    for i, alpha in enumerate(ALPHAS):
        codes = every_code(TYPES[i % 2])
        add(f"alpha {alpha}", "QLinearLeakyRelu", codes, SCALES[i], (codes[150], codes[60]),
            alpha=alpha)


def add_wrong(cases):
    x = every_code(np.uint8)[:4]
    one, zero = scalar(np.float32, 1), scalar(np.uint8, 0)
    for op in ("QLinearSigmoid", "QLinearLeakyRelu"):
        for name, value in (("X_scale", np.ones(2, np.float32)), ("Y_scale", None),
                            ("X_zero_point", scalar(np.int8, 0)),
                            ("Y_zero_point", np.zeros(2, np.uint8))):
            given = {"X": x, "X_scale": one, "X_zero_point": zero, "Y_scale": one,
                     "Y_zero_point": zero}
            given[name] = value
            cases.add(f"wrong {name}", op, 1, given, outputs=("Y",), domain=DOMAIN)


def add_onnx(cases):
    for kind in TYPES:
        codes = every_code(kind)
        pairs = ((codes[10], codes[200]), (None, codes[100]), (codes[100], None), (None, None),
                 (codes[200], codes[10]), (codes[0], codes[-1]), (codes[7], codes[7]))
        for i, (low, high) in enumerate(pairs):
            cases.add(f"all codes from {low} to {high}", "Clip", (12, 13, 25)[i % 3],
                      {"input": codes, "min": None if low is None else scalar(kind, low),
                       "max": None if high is None else scalar(kind, high)}, outputs=("output",))
        cases.add("empty", "Clip", 13, {"input": codes[:0], "min": scalar(kind, codes[9])},
                  outputs=("output",))
        cases.add("a minimum of shape [2]", "Clip", 13, {"input": codes[:3], "min": codes[:2]},
                  outputs=("output",))
    cases.add("a minimum of another type", "Clip", 13,
              {"input": codes[:3], "min": scalar(np.uint8, 1)}, outputs=("output",))
    for opset, x in ((14, codes), (25, codes[100:131].reshape(1, 31)), (14, codes[:0]),
                     (14, scalar(np.int8, -3))):
        cases.add("all or some codes", "Relu", opset, {"X": x}, outputs=("Y",))


def main():
    cases = Cases(2802)
    add_microsoft(cases)
    add_wrong(cases)
    add_onnx(cases)
    cases.write("tests/data/operators/lookup.jsonl")


if __name__ == "__main__":
    main()
