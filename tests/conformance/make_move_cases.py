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

    def split(self):
        def add(note, opset, x, sizes, kind="uint8", **more):
            names = [f"output_{i}" for i in range(len(sizes) if sizes is not None else
                                                  more.pop("outputs"))]
            operands = {"input": self.x(*x, kind=kind)}
            if sizes is not None and opset >= 13:
                operands["split"] = integers(*sizes)
            elif sizes is not None:
                more["split"] = sizes
            self.add(note, "Split", opset, operands, names, **more)
        for opset in (2, 11, 13, 18, 25):
            add("two axes", opset, (4, 5), (1, 3), kind="float32" if opset < 11 else "int8")
        for kind in ("uint8", "int8", "int16", "int64", "float16", "bool"):
            add(kind, 13, (3, 9), (2, 3, 4), kind=kind, axis=1)
        add("an empty part", 13, (4, 3), (4, 0), axis=0)
        add("four parts", 13, (2, 9, 3), (1, 2, 3, 3), axis=-2)
        add("one part", 13, (2, 3), (3,), axis=1)
        add("equal", 18, (6, 2), None, outputs=3, num_outputs=3)
        add("a smaller part", 18, (7, 2), None, outputs=3, num_outputs=3)
        add("eight parts", 13, (1, 17), (1, 2, 3, 1, 2, 3, 4, 1), axis=1)
        add("a smaller part of eight", 18, (15, 2), None, outputs=8, num_outputs=8)
        add("an empty last part", 18, (6, 2), None, outputs=4, num_outputs=4)
        for opset in (2, 11, 13, 18):
            add("as many as outputs", opset, (6, 2), None, outputs=3, kind="float32")
        add("one output", 13, (6, 2), None, outputs=1, axis=1)
        add("not divisible", 13, (7, 2), None, outputs=3)
        add("not divisible", 18, (7, 2), None, outputs=3)
        add("a negative last part", 18, (6, 2), None, outputs=5, num_outputs=5)
        add("sum", 13, (4, 3), (2, 1))
        add("negative", 13, (4, 3), (5, -1))
        add("axis beyond", 13, (4, 3), (2, 2), axis=2)

    def pad(self):
        def add(note, opset, x, pads, mode="constant", kind="uint8", value=None, axes=None):
            operands = {"data": self.x(*x, kind=kind), "pads": integers(*pads),
                        "constant_value": None if value is None else np.array(value, kind),
                        "axes": None if axes is None else integers(*axes)}
            if axes is None:
                del operands["axes"]
            self.add(note, "Pad", opset, operands, mode=mode)
        for opset in (11, 13, 18, 19, 21, 23, 24, 25):
            add("constant", opset, (2, 3), (1, 0, 2, 1), value=7)
        for kind in ("uint8", "int8", "int32", "int64", "float32", "float16", "bool"):
            add(kind, 21, (2, 5), (1, 1, 0, 2), kind=kind, value=1)
        for mode in ("constant", "edge", "reflect", "wrap"):
            for note, x, pads in (("both axes", (3, 4), (1, 2, 2, 3)),
                                  ("images", (1, 2, 5, 4), (0, 0, 1, 1, 0, 0, 2, 3)),
                                  ("crops", (5, 6), (-1, 2, 1, -2)), ("only crops", (5, 6),
                                                                     (-1, 0, 0, -2)),
                                  ("nothing", (2, 3), (0, 0, 0, 0)), ("one axis", (9,), (4, 3))):
                if mode != "wrap" or min(pads) >= 0:
                    add(f"{mode}, {note}", 21, x, pads, mode)
        add("axes", 18, (2, 3, 4), (1, 2), axes=(-1,))
        add("axes", 18, (2, 3, 4), (1, 2, 0, 1), "edge", axes=(2, 0))
        add("empty", 18, (0, 2), (1, 0, 1, 1), value=5)
        add("crops all", 18, (3,), (-2, -1))
        add("edge of nothing", 18, (0, 2), (1, 0, 0, 0), "edge")
        add("reflects too much", 18, (3,), (3, 0), "reflect")
        add("lengths", 18, (2, 3), (1, 1))

    def resize(self):
        def add(note, opset, x, scales=None, sizes=None, kind="uint8", **more):
            operands = {"X": self.x(*x, kind=kind), "roi": None,
                        "scales": None if scales is None else np.array(scales, np.float32),
                        "sizes": None if sizes is None else integers(*sizes)}
            if opset == 10:
                del operands["roi"], operands["sizes"]
            elif opset < 13:
                operands["roi"] = np.zeros(0, np.float32)
                if scales is None:
                    operands["scales"] = np.zeros(0, np.float32)
            if operands.get("sizes", 0) is None:
                del operands["sizes"]
            self.add(note, "Resize", opset, operands, mode="nearest", **more)
        for opset in (10, 11, 13, 18, 19, 21, 25):
            add("by 2", opset, (1, 2, 3, 4), (1, 1, 2, 2))
            add("smaller", opset, (1, 1, 7, 9), (1, 1, 0.6, 0.4), kind="int8")
            add("larger", opset, (1, 1, 4, 5), (1, 1, 1.7, 2.3))
            if opset > 10:
                add("sizes", opset, (1, 1, 5, 6), sizes=(1, 1, 7, 9))
        for coordinates in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel",
                            "tf_half_pixel_for_nn", "half_pixel_symmetric"):
            for nearest in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
                opset = 19 if coordinates == "half_pixel_symmetric" else (
                    11 if coordinates.startswith("tf") else 13)
                more = {"coordinate_transformation_mode": coordinates, "nearest_mode": nearest}
                add(f"{coordinates}, {nearest}", opset, (1, 1, 15, 4), sizes=(1, 1, 18, 1), **more)
                add(f"{coordinates}, {nearest}", opset, (1, 1, 6, 10), (1, 1, 2.5, 0.37), **more)
        add("both axes, by 3 and 4", 13, (2, 1, 3, 5), (1, 1, 3, 4),
            coordinate_transformation_mode="asymmetric", nearest_mode="floor")
        add("the same shape", 13, (1, 1, 3, 3), (1, 1, 1.1, 1.2))
        for policy in ("not_larger", "not_smaller"):
            add(policy, 18, (1, 1, 5, 6), sizes=(9, 7), axes=(2, 3),
                keep_aspect_ratio_policy=policy)
        add("axes", 18, (1, 1, 5, 6), (2,), axes=(-1,))
        add("lengths", 13, (1, 1, 5, 6), (2, 2))
        add("scale 0", 13, (1, 1, 5, 6), (1, 1, 0, 1))
        add("mode", 13, (1, 1, 2, 2), (1, 1, 2, 2), nearest_mode="up")

    def dropout(self):
        outside = {"training_mode": np.array(False)}
        for opset in (7, 10, 12, 13, 22, 25):
            for kind in ("float32", "float16"):
                self.add("copy", "Dropout", opset, {"data": self.x(2, 3, kind=kind)})
        for note, more in (("not for training", outside), ("shape [1]", {
                "training_mode": np.array([False])})):
            self.add(note, "Dropout", 13, {"data": self.x(5, kind="float32"),
                                           "ratio": np.array(0.3, np.float32), **more})
        self.add("a ratio", "Dropout", 7, {"data": self.x(5, kind="float32")}, ratio=0.9)
        self.add("a seed", "Dropout", 12, {"data": self.x(5, kind="float32")}, seed=3)
        self.add("a ratio of FP16", "Dropout", 13, {"data": self.x(5, kind="float32"),
                                                    "ratio": np.array(0.3, np.float16)})
        self.add("empty", "Dropout", 13, {"data": self.x(0, 2, kind="float32")})
        self.add("UINT8", "Dropout", 13, {"data": self.x(2)})
        self.add("two ratios", "Dropout", 13, {"data": self.x(5, kind="float32"),
                                               "ratio": np.array([0.3, 0.3], np.float32)})

    def odd_pads(self):
        """Pads that ONNX's text does not describe; each case asks ONNX Runtime."""
        def add(note, x, pads, mode="constant", axes=None, value=(), kind="uint8"):
            operands = {"data": self.x(*x, kind=kind), "pads": integers(*pads),
                        "constant_value": self.x(*value, kind=kind)}
            if axes is not None:
                operands["axes"] = np.array(axes, np.int32)
            self.add(note, "Pad", 21, operands, mode=mode)
        for mode in ("constant", "edge", "reflect", "wrap"):
            for note, x, pads in (
                    ("crops more than there is", (2,), (-3, 4)), ("and behind", (2,), (4, -3)),
                    ("crops all, and pads", (2,), (-2, 4)), ("nothing is left", (2,), (-3, 1)),
                    ("crops too much", (2,), (-3, 0)), ("all of a row", (3, 2), (1, -4, 1, 7)),
                    ("crops both sides", (5, 2), (-2, 1, -2, 0)),
                    ("a row of nothing", (0, 3), (0, 5, 0, 0)),
                    ("a row of nothing, cropped", (3, 0, 3), (1, 0, 0, -3, 0, 0)),
                    ("crops nothing", (0, 3), (0, -5, 0, 1)),
                    ("crops and pads nothing", (0, 3), (-1, 1, 1, 7)),
                    ("pads nothing", (0, 3), (1, 1, 1, 1))):
                # ONNX Runtime refuses wrap of data without elements even where it stays empty.
                if mode != "wrap" or 0 not in x:
                    add(f"{mode}, {note}", x, pads, mode)
        add("an axis twice", (3,), (1, 2, 3, 4), axes=(0, 0))
        add("an axis twice, from the end", (3, 2), (-1, 2, 0, 0), "edge", axes=(1, -1))
        add("no axes", (3, 2), (), axes=())
        add("no axes, but pads", (3, 2), (1, 1), axes=())
        for value in ((1, 1), (2,), (0,)):
            add(f"a constant of shape {value}", (2, 2), (1, 0, 0, 0), value=value, kind="float32")

    def depth_modes(self):
        for mode in ("DCR", "CRD"):
            self.add(mode, "SpaceToDepth", 28, {"input": self.x(2, 3, 4, 6)}, blocksize=2,
                     mode=mode)


FAMILIES = ("reshape", "flatten", "squeeze", "identity", "transpose", "concat",
            "slice", "gather", "depth", "split", "pad",
            "resize", "dropout", "odd_pads", "depth_modes")

if __name__ == "__main__":
    cases = Move(28)
    for family in FAMILIES:
        getattr(cases, family)()
    cases.write(sys.argv[1] if len(sys.argv) > 1 else PATH)
