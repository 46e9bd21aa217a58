"""Writes tests/data/operators/move.jsonl: cases of the operators that only move elements.

Run as `python make_move_cases.py` in this folder, with ONNX Runtime 1.32.
"""
import os
import sys

import numpy as np

from operator_cases import Cases

PATH = os.path.join(os.path.dirname(__file__), "../data/operators/move.jsonl")
TYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "int64", "float32", "float16",
         "bool")


def integers(*numbers):
    return np.array(numbers, dtype=np.int64)


class Move(Cases):
    def x(self, *shape, kind="uint8"):
        """Random elements, any bits; floats are finite, so that they compare as bytes."""
        if kind == "bool":
            return self.dice.integers(0, 2, shape).astype(bool)
        if kind.startswith("float"):
            return self.dice.standard_normal(shape).astype(kind)
        limits = np.iinfo(kind)
        return self.dice.integers(limits.min, limits.max, shape, dtype=kind, endpoint=True)

    def reshape(self):
        for opset in (5, 13, 14, 19, 21, 23, 24, 25):
            self.add("infers -1, copies 0", "Reshape", opset,
                     {"data": self.x(2, 3, 4), "shape": integers(0, -1, 2)})
        for kind in TYPES:
            self.add(kind, "Reshape", 14, {"data": self.x(2, 3, 2, kind=kind),
                                           "shape": integers(4, 3)})
        for note, x, shape, more in (
                ("to a scalar", (1, 1), (), {}), ("from a scalar", (), (1, -1), {}),
                ("empty", (0, 3), (3, 0), {"allowzero": 1}), ("empty, copied", (0, 3), (0, 5), {}),
                ("empty, inferred", (0, 3), (-1, 3), {}), ("-1 beside 0", (0, 3), (0, -1), {}),
                ("two -1", (2, 3), (-1, -1), {}), ("other count", (2, 3), (2, 4), {}),
                ("not divisible", (2, 3), (4, -1), {}), ("0 beyond data", (2, 3), (6, 1, 0), {}),
                ("-2", (2, 3), (-2, 3), {}),
                ("0 is 0, but data is not empty", (2, 3), (0, 3), {"allowzero": 1})):
            self.add(note, "Reshape", 14, {"data": self.x(*x), "shape": integers(*shape)}, **more)

    def flatten(self):
        for opset in (9, 11, 13, 21, 23, 24, 25):
            self.add("default axis", "Flatten", opset, {"input": self.x(2, 3, 4)})
        for axis in (0, 2, 3, -1, -3, 4, -4):
            self.add(f"axis {axis}", "Flatten", 13, {"input": self.x(2, 3, 4, kind="int8")},
                     axis=axis)
        self.add("empty", "Flatten", 13, {"input": self.x(2, 0, 4)})
        self.add("scalar", "Flatten", 13, {"input": self.x()}, axis=0)

    def squeeze(self):
        for op, x, axes in (("Squeeze", (1, 3, 1, 2), (0, 2)), ("Unsqueeze", (3, 2), (0, 2))):
            first = "squeezed" if op == "Squeeze" else "expanded"
            for opset in (1, 11):
                self.add("attribute", op, opset, {"data": self.x(*x)}, (first,), axes=axes)
            for opset in (13, 21, 23, 24, 25):
                self.add("input", op, opset, {"data": self.x(*x, kind="int8"),
                                              "axes": integers(*axes)}, (first,))
            self.add("from the end", op, 13, {"data": self.x(*x), "axes": integers(-2)})
            self.add("beyond", op, 13, {"data": self.x(*x), "axes": integers(7)})
        self.add("all", "Squeeze", 11, {"data": self.x(1, 3, 1)})
        self.add("all", "Squeeze", 13, {"data": self.x(1, 3, 1)})
        self.add("not 1", "Squeeze", 13, {"data": self.x(1, 3, 1), "axes": integers(1)})
        self.add("twice", "Unsqueeze", 13, {"data": self.x(3), "axes": integers(0, 0)})

    def identity(self):
        for opset in (1, 13, 14, 16, 19, 21, 23, 24, 25):
            self.add("copy", "Identity", opset, {"input": self.x(2, 3)})
        self.add("empty", "Identity", 13, {"input": self.x(2, 0)})

    def transpose(self):
        self.add("scalar", "Transpose", 13, {"data": self.x()})
        for opset in (1, 13, 21, 23, 24, 25):
            self.add("reversed", "Transpose", opset, {"data": self.x(2, 3, 4)})
        for kind in TYPES:
            self.add(kind, "Transpose", 21, {"data": self.x(19, 18, kind=kind)}, perm=(1, 0))
        for shape, perm in (((1, 3, 5, 7), (0, 2, 3, 1)), ((1, 5, 7, 3), (0, 3, 1, 2)),
                            ((2, 2, 33, 2), (0, 2, 3, 1)), ((1, 4, 6, 6), (0, 2, 3, 1)),
                            ((3, 4, 5, 6), (3, 1, 0, 2)), ((3, 4, 5, 4), (1, 0, 2, 3)),
                            ((17, 2, 17), (2, 1, 0)), ((5, 7, 2), (1, 0, 2)),
                            ((5, 7, 3), (1, 0, 2)), ((2, 0, 3), (2, 0, 1)), ((7,), (0,)),
                            ((2, 3), (0, 0)), ((2, 3), (0, 2)), ((2, 3), (0, 1, 2)),
                            ((2, 3), (-1, 0))):
            self.add(f"{shape} by {perm}", "Transpose", 13, {"data": self.x(*shape)}, perm=perm)

    def concat(self):
        for opset in (4, 11, 13, 21, 25):
            self.add("two", "Concat", opset, {"input_0": self.x(2, 3), "input_1": self.x(4, 3)},
                     axis=0)
        for kind in TYPES:
            self.add(kind, "Concat", 13, {"input_0": self.x(2, 3, kind=kind),
                                          "input_1": self.x(2, 2, kind=kind)}, axis=1)
        for note, shapes, axis in (
                ("one", ((2, 3),), 0), ("channels", ((2, 3, 5, 4), (2, 1, 5, 4), (2, 2, 5, 4)), 1),
                ("last", ((3, 4, 3), (3, 4, 1), (3, 4, 2)), -1), ("empty", ((2, 0), (2, 3)), 1),
                ("all empty", ((0, 3), (0, 3)), 1), ("single elements", ((5, 1), (5, 1)), 1),
                ("32", ((1, 3),) * 32, 0), ("other rank", ((2, 3), (2,)), 0),
                ("other size", ((2, 3), (2, 4)), 0), ("axis beyond", ((2, 3), (2, 3)), 2),
                ("scalars", ((), ()), 0)):
            self.add(note, "Concat", 13,
                     {f"input_{i}": self.x(*shape) for i, shape in enumerate(shapes)}, axis=axis)

    def slice(self):
        for opset in (10, 11, 13, 21, 25):
            self.add("two axes", "Slice", opset,
                     {"data": self.x(4, 5, 6), "starts": integers(1, 2), "ends": integers(3, 6),
                      "axes": integers(0, 2), "steps": integers(1, 2)})
        for kind in TYPES:
            self.add(kind, "Slice", 13, {"data": self.x(3, 19, kind=kind), "starts": integers(1),
                                         "ends": integers(18), "axes": integers(1),
                                         "steps": integers(2)})
        least, most = np.iinfo(np.int64).min, np.iinfo(np.int64).max
        for note, starts, ends, axes, steps in (
                ("no axes", (1, 0), (2, 3), None, None),
                ("backwards", (most,), (least,), (1,), (-1,)),
                ("backwards by 3", (-1,), (0,), (1,), (-3,)),
                ("to before 0", (3,), (-40,), (1,), (-1,)),
                ("nothing", (3,), (3,), (0,), None),
                ("nothing, backwards", (2,), (5,), (1,), (-1,)),
                ("clamped", (-100,), (most,), (-1,), (5,)), ("by 3", (1,), (most,), (1,), (3,)),
                ("by 4", (0,), (most,), (1,), (4,)), ("largest step", (0,), (most,), (1,), (most,)),
                ("least step", (most,), (least,), (1,), (least,)),
                ("both backwards", (-1, -1), (least, least), (0, 1), (-1, -2)),
                ("step 0", (0,), (1,), (0,), (0,)), ("axis beyond", (0,), (1,), (2,), None),
                ("axis twice", (0, 0), (1, 1), (0, 0), None), ("lengths", (0, 0), (1,), None, None),
                ("lengths of steps", (0,), (1,), (0,), (1, 1))):
            self.add(note, "Slice", 13,
                     {"data": self.x(3, 18), "starts": integers(*starts), "ends": integers(*ends),
                      "axes": None if axes is None else integers(*axes),
                      "steps": None if steps is None else integers(*steps)})
        self.add("INT32", "Slice", 13, {"data": self.x(4), "starts": np.array([1], np.int32),
                                        "ends": np.array([-1], np.int32)})
        self.add("empty", "Slice", 13, {"data": self.x(0, 3), "starts": integers(-1),
                                        "ends": integers(-5), "axes": integers(0),
                                        "steps": integers(-1)})

    def gather(self):
        for opset in (1, 11, 13, 21, 25):
            self.add("rows", "Gather", opset, {"data": self.x(4, 5), "indices": integers(2, 0, 2)})
        for kind in TYPES:
            self.add(kind, "Gather", 13, {"data": self.x(3, 7, kind=kind),
                                          "indices": integers(6, -7, 3, 3)}, axis=1)
        for note, x, indices, axis in (
                ("a scalar", (3, 4), np.array(1), 0), ("a scalar from 1-D", (3,), np.array(-1), 0),
                ("two dimensions", (2, 5, 3), np.array([[0, 4], [1, -1]]), 1),
                ("nothing", (2, 5), integers(), 1), ("empty data", (0, 5), integers(1, 2), 1),
                ("evenly spaced", (2, 9), integers(7, 5, 3, 1), -1),
                ("beyond", (3, 4), integers(3), 0), ("before", (3, 4), integers(-4), 0),
                ("axis beyond", (3, 4), integers(0), 2)):
            self.add(note, "Gather", 13,
                     {"data": self.x(*x), "indices": np.asarray(indices, np.int64)},
                     axis=axis)
        self.add("INT32", "Gather", 13, {"data": self.x(4),
                                         "indices": np.array([3], np.int32)})

    def depth(self):
        for opset in (1, 11, 13, 25):
            self.add("blocks of 2", "DepthToSpace", opset,
                     {"input": self.x(1, 8, 2, 3, kind="float32" if opset < 11 else "uint8")},
                     blocksize=2)
        for opset in (1, 13, 25):
            self.add("blocks of 2", "SpaceToDepth", opset,
                     {"input": self.x(1, 2, 4, 6, kind="float32" if opset < 13 else "uint8")},
                     blocksize=2)
        for kind in ("uint8", "int8"):
            for mode in ("DCR", "CRD"):
                self.add(mode, "DepthToSpace", 13, {"input": self.x(2, 18, 2, 17, kind=kind)},
                         blocksize=3, mode=mode)
            self.add("blocks of 3", "SpaceToDepth", 13, {"input": self.x(2, 2, 6, 9, kind=kind)},
                     blocksize=3)
        self.add("blocks of 2", "DepthToSpace", 13, {"input": self.x(1, 4, 2, 33)}, blocksize=2)
        self.add("blocks of 1", "DepthToSpace", 13, {"input": self.x(1, 2, 3, 3)}, blocksize=1)
        self.add("channels", "DepthToSpace", 13, {"input": self.x(1, 6, 2, 2)}, blocksize=2)
        self.add("rows", "SpaceToDepth", 13, {"input": self.x(1, 1, 3, 2)}, blocksize=2)
        self.add("rank 3", "SpaceToDepth", 13, {"input": self.x(1, 2, 2)}, blocksize=2)
        self.add("mode", "DepthToSpace", 13, {"input": self.x(1, 4, 2, 2)}, blocksize=2,
                 mode="RCD")


FAMILIES = ("reshape", "flatten", "squeeze", "identity", "transpose", "concat",
            "slice", "gather", "depth")

if __name__ == "__main__":
    cases = Move(28)
    for family in FAMILIES:
        getattr(cases, family)()
    cases.write(sys.argv[1] if len(sys.argv) > 1 else PATH)
