"""Writes tests/data/operators/resize.jsonl: cases of Resize in mode linear.

Run as `python make_resize_cases.py [COUNT [PATH]]` in this folder, with ONNX Runtime 1.32 on x86:
COUNT random cases of 8 bits, half as many of FP32, and some chosen ones.
"""
import os
import sys

import numpy as np

from operator_cases import Cases

PATH = os.path.join(os.path.dirname(__file__), "../data/operators/resize.jsonl")
COUNT = 160
COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel",
               "half_pixel_symmetric")


class Resize(Cases):
    def linear(self, note, opset, x, scales=None, sizes=None, **more):
        operands = {"X": x, "roi": None if opset >= 13 else np.zeros(0, np.float32),
                    "scales": None if scales is None else np.array(scales, np.float32),
                    "sizes": None if sizes is None else np.array(sizes, np.int64)}
        if opset == 10:
            del operands["roi"]
        elif scales is None and opset < 13:
            operands["scales"] = np.zeros(0, np.float32)
        if sizes is None:
            del operands["sizes"]
        self.add(note, "Resize", opset, operands, mode="linear", **more)

    def x(self, shape, kind):
        if kind == "float32":
            return self.dice.standard_normal(shape).astype(kind)
        limits = np.iinfo(kind)
        if self.dice.random() < 0.1:
            return np.full(shape, self.dice.choice([limits.min, limits.max]), kind)
        return self.dice.integers(limits.min, limits.max, shape, dtype=kind, endpoint=True)

    def random(self, *kinds):
        """Channels first, channels last, or neither."""
        kind = str(self.dice.choice(kinds))
        layout = str(self.dice.choice(["plane", "channels first", "channels last"]))
        opset = int(self.dice.choice([10, 11, 13, 18, 19, 25]))
        n, c, *size = (int(number) for number in self.dice.integers(1, [3, 4, 10, 10]))
        more = {}
        if opset > 10:
            modes = COORDINATES if opset >= 19 else COORDINATES[:4]
            more["coordinate_transformation_mode"] = str(self.dice.choice(modes))

        def of(size, n, c):
            return (size if layout == "plane" else [n, c, *size] if layout == "channels first"
                    else [n, *size, c])
        x = self.x(of(size, n, c), kind)
        scales = [float(np.float32(scale)) for scale in
                  (self.dice.choice([0.5, 1, 2, 3, 4], 2) if self.dice.random() < 0.4
                   else self.dice.random(2) * 3 + 0.4)]
        if opset > 10 and self.dice.random() < 0.5:
            sizes = [int(number) for number in self.dice.integers(1, 20, 2)]
            self.linear(layout, opset, x, sizes=of(sizes, n, c), **more)
        else:
            self.linear(layout, opset, x, of(scales, 1, 1), **more)

    def chosen(self):
        x = self.x((1, 2, 3, 4), "uint8")
        for opset in (10, 11, 13, 18, 19, 21, 25):
            self.linear("by 2", opset, x, (1, 1, 2, 2))
        self.linear("the same shape", 13, x, (1, 1, 1.1, 1.2))
        self.linear("empty", 13, self.x((0, 2, 3, 4), "uint8"), (1, 1, 2, 2))
        self.linear("nothing left", 13, x, (1, 1, 0.1, 2))
        self.linear("a long row", 13, self.x((1, 1, 2, 301), "int8"), (1, 1, 1.5, 1.01))
        self.linear("many channels", 13, self.x((1, 2, 2, 67), "int8"), (1, 1.5, 2, 1))
        self.linear("batches and columns", 13, x, (2, 1, 1, 2))
        for policy in ("not_larger", "not_smaller"):
            self.linear(policy, 18, self.x((1, 1, 5, 6), "uint8"), sizes=(9, 7), axes=(2, 3),
                        keep_aspect_ratio_policy=policy)

    def floats(self):
        limits = np.array([np.inf, -np.inf, 3e38, -3e38, 1e-45, -0.0, 0, 1], np.float32)
        self.linear("infinities, and sums beyond FP32", 13, limits.reshape(1, 1, 2, 4),
                    (1, 1, 1.7, 1.3))
        self.linear("a long row", 13, self.x((1, 1, 2, 301), "float32"), (1, 1, 1.5, 1.01))
        self.linear("many channels", 13, self.x((1, 2, 2, 67), "float32"), (1, 1.5, 2, 1))


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else COUNT
    cases = Resize(28 if count == COUNT else count)
    cases.chosen()
    for _ in range(count):
        cases.random("uint8", "int8")
    cases.floats()
    for _ in range(count // 2):
        cases.random("float32")
    cases.write(sys.argv[2] if len(sys.argv) > 2 else PATH)
