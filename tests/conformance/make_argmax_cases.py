"""Writes tests/data/operators/argmax.jsonl: cases of ArgMax and ArgMin.

Run as `python make_argmax_cases.py` in this folder, with ONNX Runtime 1.32.
"""
import os

import numpy as np

from operator_cases import Cases

PATH = os.path.join(os.path.dirname(__file__), "../data/operators/argmax.jsonl")
TYPES = ("uint8", "int8", "int32", "float32")


class ArgMax(Cases):
    def x(self, shape, kind, limit=None):
        """Random elements; with a limit, few different ones, so that there are equal ones."""
        if kind == "float32":
            x = self.dice.standard_normal(shape).astype(kind)
            return np.round(x * limit) if limit else x
        limits = np.iinfo(kind)
        least, most = limits.min, limits.max
        if limit:
            least, most = max(least, -limit), limit
        return self.dice.integers(least, most, shape, dtype=kind, endpoint=True)

    def arg(self, note, opset, x, ops=("ArgMax", "ArgMin"), **attributes):
        for op in ops:
            self.add(note, op, opset, {"data": x}, ("reduced",), types=["int64"], **attributes)

    def all(self):
        for opset in (1, 11, 12, 13, 21, 25):
            self.arg("rows", opset, self.x((3, 7), "uint8"), axis=1)
            self.arg("default axis", opset, self.x((3, 7), "float32"))
        for kind in TYPES:
            for shape, axis in (((2, 5, 67), -1), ((1, 7, 35), 1), ((1, 270), 1), ((260, 2), 0)):
                for last in (0, 1):
                    for limit in (None, 2):
                        op = "ArgMin" if limit is None else "ArgMax"
                        self.arg(f"{kind}, axis {axis} of {shape}", 13, self.x(shape, kind, limit),
                                 (op,), axis=axis, keepdims=0, select_last_index=last)
            self.arg("extremes", 13, np.array([[0, 1, 127, 128, 255, 127]]).astype(kind), axis=1)
        nan, inf = np.nan, np.inf
        for column in ((nan, 1, 2), (1, nan, 2), (2, nan, 1), (nan, nan, nan), (1, 2, nan),
                       (-inf, nan, nan), (inf, nan, inf), (0., -0., nan), (-0., 0., 0.)):
            for last in (0, 1):
                x = np.array(column, np.float32)
                self.arg(f"{column}", 13, np.stack([x, x], 1), axis=0, select_last_index=last)
                self.arg(f"{column}", 13, np.stack([x, x], 0), axis=1, select_last_index=last)
        self.arg("a scalar", 13, np.array(3, np.float32))
        self.arg("one element", 13, np.array([[3]], np.uint8), axis=1)
        self.arg("a vector", 13, self.x((9,), "int8"), keepdims=0)
        self.arg("empty", 13, np.zeros((0, 3), np.uint8), axis=1)
        self.arg("empty along axis", 13, np.zeros((0, 0), np.uint8), axis=1)
        self.arg("nothing to choose from", 13, np.zeros((2, 0), np.uint8), axis=1)
        self.arg("axis beyond", 13, self.x((2, 3), "uint8"), axis=2)


if __name__ == "__main__":
    cases = ArgMax(28)
    cases.all()
    cases.write(PATH)
