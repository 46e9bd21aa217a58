"""Makes tests/data/operators/softmax.jsonl: com.microsoft.QLinearSoftmax, run by ONNX Runtime. See
operator_cases.py."""
import numpy as np

from operator_cases import Cases

SHAPES = (([1, 12], 1), ([2, 3], -1), ([3, 1], -1), ([1, 10], 0), ([2, 3, 4], 1),
          ([2, 3, 4], -2), ([2, 3, 4], 2), ([2, 5, 2, 2], 1), ([1, 300], -1), ([7], 0),
          ([0, 4], -1), ([2, 2, 3], -3))
SCALES = ((0.1, 1 / 256), (0.37, 1 / 255), (0.01, 0.0039), (2.5, 1 / 256), (0.1, 0.25),
          (0.05, 1.5))


def main():
    cases = Cases(13)
    dice = cases.dice
    for i, (shape, axis) in enumerate(SHAPES):
        for kind in (np.uint8, np.int8):
            for opset in (11, 13):
                info = np.iinfo(kind)
                x = dice.integers(info.min, info.max + 1, shape).astype(kind)
                x_scale, y_scale = SCALES[(i + opset) % len(SCALES)]
                zero = info.min if i % 2 == 0 else int(dice.integers(info.min, info.max + 1))
                cases.add(f"{shape}, axis {axis}, opset {opset}", "QLinearSoftmax", 1,
                          {"X": x, "X_scale": np.float32(x_scale).reshape(()),
                           "x_zero_point": kind(dice.integers(0, 100)).reshape(()),
                           "y_scale": np.float32(y_scale).reshape(()),
                           "y_zero_point": kind(zero).reshape(())},
                          outputs=("Y",), domain="com.microsoft", axis=axis, opset=opset)
    every = np.arange(256).astype(np.uint8)
    for x_scale, y_scale in SCALES:
        cases.add("all codes in a row", "QLinearSoftmax", 1,
                  {"X": every[None], "X_scale": np.float32(x_scale).reshape(()),
                   "x_zero_point": None, "y_scale": np.float32(y_scale).reshape(()),
                   "y_zero_point": np.uint8(0).reshape(())},
                  outputs=("Y",), domain="com.microsoft", opset=13)
    cases.add("an axis too many", "QLinearSoftmax", 1,
              {"X": every[None], "X_scale": np.float32(1).reshape(()), "x_zero_point": None,
               "y_scale": np.float32(1).reshape(()), "y_zero_point": np.uint8(0).reshape(())},
              outputs=("Y",), domain="com.microsoft", opset=13, axis=2)
    for x_scale in (0, -0.5, np.nan, -np.inf):
        cases.add("an x_scale that is not above 0", "QLinearSoftmax", 1,
                  {"X": every[None], "X_scale": np.float32(x_scale).reshape(()),
                   "x_zero_point": None, "y_scale": np.float32(1 / 256).reshape(()),
                   "y_zero_point": np.uint8(0).reshape(())},
                  outputs=("Y",), domain="com.microsoft", opset=13)
    for x_scale, y_scale in ((3e38, 1 / 256), (1e-44, 1 / 256), (0.1, np.inf), (0.1, 1e-40)):
        cases.add("extreme scales", "QLinearSoftmax", 1,
                  {"X": every[None, :7], "X_scale": np.float32(x_scale).reshape(()),
                   "x_zero_point": None, "y_scale": np.float32(y_scale).reshape(()),
                   "y_zero_point": np.uint8(3).reshape(())},
                  outputs=("Y",), domain="com.microsoft", opset=13)
    cases.add("no axis, opset 11", "QLinearSoftmax", 1,
              {"X": every[:12].reshape(2, 2, 3), "X_scale": np.float32(0.1).reshape(()),
               "x_zero_point": None, "y_scale": np.float32(1 / 256).reshape(()),
               "y_zero_point": np.uint8(0).reshape(())},
              outputs=("Y",), domain="com.microsoft", opset=11)
    cases.write("tests/data/operators/softmax.jsonl")


if __name__ == "__main__":
    main()
