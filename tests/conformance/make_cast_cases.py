"""Writes tests/data/operators/cast.jsonl: cases of Cast.

Run as `python make_cast_cases.py` in this folder, with ONNX Runtime 1.32 on x86.
"""
import os

import numpy as np
from onnx import helper

from operator_cases import Cases

PATH = os.path.join(os.path.dirname(__file__), "../data/operators/cast.jsonl")
TYPES = ("uint8", "int8", "uint16", "int16", "int32", "int64", "bool", "float32", "float16")
#: Around the limits of all types, and what no integer can hold. The least and the greatest float32
#: below a limit differ from it in the last bit.
REALS = [0, -0.0, 0.5, -0.5, 1.5, -1.5, 2.5, 127.9, 128, -128.9, -129, 255.9, 256, 300.7, -300.7,
         32767.5, 32768, -32769, 65519, 65520, 65535, 65536 + 7, -65536 - 7, 2.0 ** 31 - 128,
         2.0 ** 31, -2.0 ** 31, -2.0 ** 31 - 256, 3e9, 2.0 ** 40 + 2.0 ** 20, 2.0 ** 62,
         2.0 ** 63 - 2.0 ** 39, 2.0 ** 63, -2.0 ** 63, -2.0 ** 63 - 2.0 ** 40, 1e30, -1e30,
         float("inf"), -float("inf"), 1e-7, 6e-8, 3e-8, -6e-5, 1e-40]


class Cast(Cases):
    def x(self, kind, count=67):
        if kind == "bool":
            return self.dice.integers(0, 2, count).astype(bool)
        if kind == "float32":
            return np.array(REALS, np.float32)
        if kind == "float16":
            bits = self.dice.integers(0, 1 << 16, 3 * count, dtype=np.uint16)
            x = np.concatenate([bits.view(np.float16), np.array([0, -0.0, np.inf, -np.inf, 0.5,
                                                                 -1.5, 300], np.float16)])
            return x[~np.isnan(x)]
        limits = np.iinfo(kind)
        edges = [limits.min, limits.max, 0, 1, limits.max // 2 + 1, limits.max - 1]
        if limits.bits > 32:
            edges += [2 ** 24 + 1, 2 ** 24 + 3, 2 ** 53 + 1, 65520, 65519, -65521, -2 ** 40]
        elif limits.bits > 16:
            edges += [2 ** 24 + 1, 2 ** 24 + 3, 65520, 65519, -65521]
        x = self.dice.integers(limits.min, limits.max, count, dtype=kind, endpoint=True)
        return np.concatenate([x, x >> (limits.bits // 2), np.array(edges, kind)])

    def cast(self, note, opset, x, to, **attributes):
        self.add(note, "Cast", opset, {"input": x}, types=[np.dtype(to)],
                 to=helper.np_dtype_to_tensor_dtype(np.dtype(to)), **attributes)

    def all(self):
        for opset in (6, 9, 13, 19, 21, 23, 24, 25):
            self.cast("FP32 to INT8", opset, self.x("float32"), "int8")
        for kind in TYPES:
            for to in TYPES:
                self.cast(f"{kind} to {to}", 21, self.x(kind), to)
        nan = np.array([np.nan, -np.nan, 1], np.float32)
        for to in TYPES[:-1]:
            self.cast("NaN", 21, nan, to)
        self.cast("saturate is for float8", 21, np.array([300, -1], np.float32), "uint8",
                  saturate=0)
        self.cast("a scalar", 13, np.array(300, np.int32), "uint8")
        self.cast("empty", 13, np.zeros((2, 0, 3), np.float32), "int64")


if __name__ == "__main__":
    cases = Cast(28)
    cases.all()
    cases.write(PATH)
