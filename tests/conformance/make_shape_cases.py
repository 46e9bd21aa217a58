"""Writes tests/data/operators/shape.jsonl: cases of the operators that compute shapes.

Run as `python make_shape_cases.py` in this folder, with ONNX Runtime 1.32.
"""
import os
import sys

import numpy as np

from operator_cases import Cases, tensor

PATH = os.path.join(os.path.dirname(__file__), "../data/operators/shape.jsonl")
LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def integers(*numbers, kind="int64"):
    return np.array(numbers, dtype=kind)


class Shapes(Cases):
    def x(self, *shape, kind="uint8"):
        if kind == "bool":
            return self.dice.integers(0, 2, shape).astype(bool)
        if kind.startswith("float"):
            return self.dice.standard_normal(shape).astype(kind)
        limits = np.iinfo(kind)
        return self.dice.integers(limits.min, limits.max, shape, dtype=kind, endpoint=True)

    def shape(self):
        for opset in (1, 13, 15, 19, 21, 23, 24, 25):
            self.add("all", "Shape", opset, {"data": self.x(2, 3, 4)}, types=["int64"])
        for kind in ("int8", "int32", "int64", "float32", "float16", "bool"):
            self.add(kind, "Shape", 13, {"data": self.x(2, 5, kind=kind)}, types=["int64"])
        for start, end in ((1, None), (None, -1), (-2, None), (0, 2), (2, 1), (-9, 9), (9, None),
                           (None, -9), (1, 1)):
            more = {name: number for name, number in (("start", start), ("end", end))
                    if number is not None}
            self.add(f"{start} to {end}", "Shape", 15, {"data": self.x(2, 3, 4)}, types=["int64"],
                     **more)
        self.add("scalar", "Shape", 13, {"data": self.x()}, types=["int64"])
        self.add("empty", "Shape", 13, {"data": self.x(0, 3)}, types=["int64"])
        for opset in (1, 13, 19, 21, 23, 24, 25):
            self.add("count", "Size", opset, {"data": self.x(2, 3)}, types=["int64"])
        self.add("scalar", "Size", 13, {"data": self.x(kind="float32")}, types=["int64"])
        self.add("empty", "Size", 13, {"data": self.x(2, 0)}, types=["int64"])

    def range(self):
        for start, limit, delta in ((0, 5, 1), (3, 10, 3), (10, 3, -3), (5, 5, 1), (5, 0, 1),
                                    (0, 5, -1), (-3, 4, 2), (0, 1, 100), (MOST - 2, MOST, 1),
                                    (LEAST, LEAST + 3, 2)):
            self.add(f"{start} to {limit} by {delta}", "Range", 11,
                     {"start": np.int64(start), "limit": np.int64(limit),
                      "delta": np.int64(delta)})
        self.add("INT32", "Range", 11, {"start": np.int32(7), "limit": np.int32(-7),
                                        "delta": np.int32(-5)})
        self.add("delta 0", "Range", 11, {"start": np.int64(0), "limit": np.int64(5),
                                          "delta": np.int64(0)})
        for start, limit, delta in ((0, 2, 0.1), (-1.5, -9, -0.7), (0, 1, 1), (3, 1, 2), (0, 5, 0)):
            self.add("floats", "Range", 11, {"start": np.float32(start), "limit": np.float32(limit),
                                             "delta": np.float32(delta)})

    def expand(self):
        for opset in (8, 13):
            self.add("rows", "Expand", opset, {"input": self.x(3, 1), "shape": integers(2, 1, 4)})
        for kind in ("int8", "uint16", "int32", "int64", "float32", "float16", "bool"):
            self.add(kind, "Expand", 13, {"input": self.x(3, 1, kind=kind),
                                          "shape": integers(3, 5)})
        for note, x, shape in (
                ("scalar", (), (2, 3)), ("to itself", (2, 3), (1,)), ("no shape", (2, 3), ()),
                ("fewer", (2, 1, 3), (4, 1)), ("inner", (4, 1, 5), (4, 6, 5)),
                ("outer", (1, 7), (9, 7)), ("both", (1, 5, 1), (3, 5, 8)),
                ("empty", (2, 1), (2, 0)), ("of empty", (2, 0), (2, 1)),
                ("single elements", (1, 1), (40, 40)),
                ("other size", (2, 3), (2, 4)), ("negative", (2, 1), (2, -1))):
            self.add(note, "Expand", 13, {"input": self.x(*x), "shape": integers(*shape)})

    def constant(self):
        """ONNX has the value as an attribute, quantd as an input."""
        from onnx import numpy_helper
        for opset in (9, 20, 21, 23, 24, 25):
            self.add("default", "ConstantOfShape", opset, {"input": integers(2, 3)},
                     types=["float32"])
        for kind in ("uint8", "int8", "int16", "int32", "int64", "float32", "float16", "bool"):
            value = np.array([1 if kind == "bool" else -3 if kind[0] != "u" else 200]).astype(kind)
            self.add(kind, "ConstantOfShape", 9, {"input": integers(2, 5)}, types=[kind],
                     value=numpy_helper.from_array(value, "value"))
            self.lines[-1]["inputs"].append(tensor("value", value))
            self.lines[-1]["attributes"] = {}
        for shape in ((), (0, 3), (7,), (-1,)):
            self.add(str(shape), "ConstantOfShape", 9, {"input": integers(*shape)},
                     types=["float32"])

    def arithmetic(self):
        for op, name in (("Add", "A"), ("Sub", "A"), ("Mul", "A"), ("Div", "A"), ("Mod", "A"),
                         ("Min", "data_0"), ("Max", "data_0")):
            names = ("A", "B") if name == "A" else ("data_0", "data_1")
            first = {"Mod": 10, "Min": 12, "Max": 12}.get(op, 7)
            for opset in (first, 13, 14, 25):
                self.add("INT64", op, opset, dict(zip(names, (integers(7, -7, 7, -7, 0),
                                                              integers(2, 2, -2, -2, 3)))))
            self.add("INT32", op, 13, dict(zip(names, (integers(7, -7, 2**31 - 1, kind="int32"),
                                                       integers(2, -3, 5, kind="int32")))))
            self.add("overflow", op, 13, dict(zip(names, (integers(MOST, LEAST, 2**62, -3),
                                                          integers(MOST, 2, 4, MOST)))))
            for a, b in (((), ()), ((3,), ()), ((), (1, 3)), ((2, 3), (3,)), ((2, 1), (1, 4)),
                         ((2, 1, 3), (4, 1)), ((2, 0), (2, 1)), ((2, 0), (1,)), ((2, 3), (2,)),
                         ((1,), (0, 3))):
                left = self.dice.integers(-9, 10, a)
                right = self.dice.integers(1, 5, b)
                self.add(f"{a} and {b}", op, 13, dict(zip(names, (left, right))))
            self.add("other type", op, 13, dict(zip(names, (integers(1, kind="int32"),
                                                            integers(1)))))

    def choices(self):
        for opset in (7, 11, 13, 19):
            self.add("INT64", "Equal", opset, {"A": integers(1, -1, 3), "B": integers(1, 1, 3)},
                     types=["bool"])
        self.add("INT32", "Equal", 13, {"A": integers(1, -1, 3, kind="int32"),
                                        "B": integers(-1, kind="int32")}, types=["bool"])
        self.add("BOOL", "Equal", 13, {"A": np.array([True, False]), "B": np.array([True, True])},
                 types=["bool"])
        self.add("broadcast", "Equal", 13, {"A": integers(1, 2), "B": integers(2, 1)[:, None]},
                 types=["bool"])
        for opset in (9, 16):
            self.add("INT64", "Where", opset, {"condition": np.array([True, False, True]),
                                               "X": integers(1, 2, 3), "Y": integers(4, 5, 6)},
                     types=["int64"])
        for kind in ("uint8", "int32", "float32"):
            self.add(kind, "Where", 16, {"condition": self.x(2, 1, 3, kind="bool"),
                                         "X": self.x(4, 1, kind=kind), "Y": self.x(3, kind=kind)},
                     types=[kind])
        self.add("empty", "Where", 16, {"condition": np.zeros((0, 1), bool), "X": integers(1, 2),
                                        "Y": integers(3)}, types=["int64"])
        self.add("shapes", "Where", 16, {"condition": np.array([True, False]),
                                         "X": integers(1, 2, 3), "Y": integers(3)},
                 types=["int64"])
        for kind in ("float32", "float16"):
            zeros = np.array([-0.0, -0.0, 0, -1], kind)
            self.add("negative zeros", "Where", 16,
                     {"condition": np.array([[True], [False]]), "X": zeros, "Y": zeros[::-1]},
                     types=[kind])


def main():
    cases = Shapes(2811)
    for family in ("shape", "range", "expand", "constant", "arithmetic", "choices"):
        getattr(cases, family)()
    cases.write(PATH)


if __name__ == "__main__":
    sys.exit(main())
