"""Makes tests/data/operators/matmul.jsonl: QGemm, QLinearMatMul and MatMulInteger, run by ONNX
Runtime. See operator_cases.py."""
import sys

import numpy as np
from operator_cases import Cases, tensor

TYPES = [(np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8), (np.int8, np.uint8)]


class Matmul(Cases):
    def codes(self, kind, shape, extreme=False):
        info = np.iinfo(kind)
        if extreme:
            return self.dice.choice(np.array([info.min, info.max], kind), shape)
        return self.dice.integers(info.min, info.max, shape, kind, endpoint=True)

    def scale(self, shape, around=0.02):
        return np.asarray(self.dice.uniform(around / 2, around * 2, shape), np.float32)

    def add(self, note, op, version, operands, *more, **attributes):
        """Adds a case. ONNX Runtime has no QGemm and QLinearMatMul of INT8 by UINT8: it multiplies
        the INT8 codes that stand for the same numbers by a zero point that is 128 less."""
        given = {name: array for name, array in operands.items() if array is not None}
        kinds = {name: np.asarray(array).dtype for name, array in given.items()}
        b = "B" if "B" in operands else "b"
        if op == "MatMulInteger" or (next(iter(kinds.values())), kinds[b]) != TYPES[3]:
            super().add(note, op, version, operands, *more, **attributes)
            return
        signed = {name: (np.asarray(operands[name]) ^ np.uint8(128)).view(np.int8)
                  for name in (b, "b_zero_point")}
        super().add(note, op, version, {**operands, **signed}, *more, **attributes)
        self.lines[-1]["inputs"] = [tensor(name, np.asarray(array))
                                    for name, array in given.items()]
        self.lines[-1]["how"] += ", with weights of INT8"

    def gemm(self, note, m, k, n, kinds=TYPES[1], each=False, c=None, quantized=True,
             extreme=False, **attributes):
        """`c` is the shape of C. `each`: a scale and a zero point for each column of B."""
        a_kind, b_kind = kinds
        shape = (n,) if each else ()
        bound = max(1, k) * (16256 if extreme else 5000)
        operands = {
            "A": self.codes(a_kind, (k, m) if attributes.get("transA") else (m, k), extreme),
            "a_scale": self.scale(()), "a_zero_point": self.codes(a_kind, ()),
            "B": self.codes(b_kind, (n, k) if attributes.get("transB") else (k, n), extreme),
            "b_scale": self.scale(shape), "b_zero_point": self.codes(b_kind, shape),
            "C": None if c is None else
                 self.dice.integers(-bound, bound, c, np.int32, endpoint=True)}
        if quantized:
            operands["y_scale"] = self.scale((), 0.02 * np.sqrt(max(1, k)))
            operands["y_zero_point"] = self.codes(a_kind, ())
        self.add(note, "QGemm", 1, operands, ("Y",), "com.microsoft",
                 [a_kind if quantized else np.float32], **attributes)

    def matmul(self, note, a, b, kinds=TYPES[1], opset=10, scales=(), zero_points=(),
               extreme=False):
        """`a` and `b` are shapes, as are `scales` and `zero_points` of B."""
        a_kind, b_kind = kinds
        k = max(1, a[-1])
        self.add(note, "QLinearMatMul", opset, {
            "a": self.codes(a_kind, a, extreme), "a_scale": self.scale(()),
            "a_zero_point": self.codes(a_kind, ()),
            "b": self.codes(b_kind, b, extreme), "b_scale": self.scale(scales),
            "b_zero_point": self.codes(b_kind, zero_points),
            "y_scale": self.scale((), 0.02 * np.sqrt(k)), "y_zero_point": self.codes(a_kind, ())})

    def integer(self, note, a, b, kinds=TYPES[1], a_zero_point=(), b_zero_point=(),
                extreme=False):
        a_kind, b_kind = kinds
        self.add(note, "MatMulInteger", 10, {
            "A": self.codes(a_kind, a, extreme), "B": self.codes(b_kind, b, extreme),
            "a_zero_point": None if a_zero_point is None else self.codes(a_kind, a_zero_point),
            "b_zero_point": None if b_zero_point is None else self.codes(b_kind, b_zero_point)},
            ("Y",), types=[np.int32])


def add_gemms(cases):
    for kinds in TYPES[:3]:
        cases.gemm("one row", 1, 70, 37, kinds, c=(37,))
        cases.gemm("for each column", 5, 33, 35, kinds, each=True, c=(35,))
        cases.gemm("FP32", 3, 20, 9, kinds, each=True, c=(9,), quantized=False)
        cases.gemm("extremes", 4, 130, 6, kinds, extreme=True)
    for c in ((), (1,), (7,), (1, 7), (3, 1), (3, 7), (1, 1)):
        cases.gemm(f"C of {c}", 3, 10, 7, c=c)
    for trans_a in (0, 1):
        for trans_b in (0, 1):
            cases.gemm("transposed", 6, 9, 5, each=True, c=(6, 5), transA=trans_a, transB=trans_b)
            cases.gemm("transposed, a row", 1, 19, 34, transA=trans_a, transB=trans_b)
    for alpha in (0.25, -1.0, 0.0, 3e38):
        cases.gemm("alpha", 2, 5, 6, c=(6,), alpha=alpha)
    cases.gemm("alpha, FP32", 2, 5, 6, c=(2, 1), quantized=False, alpha=1.7)
    for m, k, n in ((2, 1, 1), (17, 3, 2), (14, 4, 32), (15, 64, 33), (66, 7, 3), (1, 260, 3)):
        cases.gemm("sizes", m, k, n, c=(n,))
    cases.gemm("no row", 0, 4, 5)
    cases.gemm("no column", 3, 4, 0)
    cases.gemm("C that does not fit", 3, 4, 5, c=(3,))
    cases.gemm("C of three axes", 3, 4, 5, c=(1, 3, 5))
    cases.gemm("INT8 by UINT8", 3, 4, 5, TYPES[3])
    one = {"A": np.zeros((2, 3), np.uint8), "a_scale": np.float32(1),
           "a_zero_point": np.uint8(0), "B": np.zeros((3, 4), np.int8), "b_scale": np.float32(1),
           "b_zero_point": np.int8(0), "C": None, "y_scale": np.float32(1),
           "y_zero_point": np.uint8(0)}
    for name, value in (("A", np.zeros(3, np.uint8)), ("A", np.zeros((2, 4), np.uint8)),
                        ("B", np.zeros((1, 3, 4), np.int8)), ("b_scale", np.ones(4, np.float32)),
                        ("b_scale", np.ones(1, np.float32)), ("a_scale", np.ones(2, np.float32)),
                        ("y_zero_point", np.int8(0))):
        operands = {key: np.asarray(value if key == name else old) if old is not None else None
                    for key, old in one.items()}
        cases.add(f"refused {name}", "QGemm", 1, operands, ("Y",), "com.microsoft")


def add_matmuls(cases):
    for kinds in TYPES[:3]:
        cases.matmul("a matrix by a matrix", (5, 19), (19, 34), kinds, 21)
        cases.matmul("for each column", (4, 66), (66, 7), kinds, 10, (7,), (7,))
        cases.matmul("extremes", (3, 70), (70, 3), kinds, 10, extreme=True)
    for a, b in (((7,), (7, 5)), ((4, 7), (7,)), ((7,), (7,)), ((2, 3, 7), (7,)), ((7,), (2, 7, 3)),
                 ((2, 4, 7), (2, 7, 5)), ((2, 1, 4, 7), (3, 7, 5)), ((3, 4, 7), (1, 7, 5)),
                 ((4, 7), (3, 2, 7, 5)), ((1, 3, 1, 7), (2, 1, 7, 4)), ((0, 3, 7), (7, 5)),
                 ((2, 0, 7), (2, 7, 5)), ((3, 7), (7, 0)), ((3, 4), (5, 4)), ((3,), (4,))):
        cases.matmul("shapes", a, b)
    cases.matmul("only scales for each column", (2, 4, 7), (2, 7, 5), scales=(2, 1, 5))
    cases.matmul("only zero points", (2, 4, 7), (2, 7, 5), zero_points=(2, 1, 5))
    cases.matmul("of one matrix", (4, 7), (7, 5), scales=(1, 5), zero_points=(5,))
    cases.matmul("of a vector", (4, 7), (7,), scales=(1,), zero_points=(1,))
    cases.matmul("refused scales", (2, 4, 7), (2, 7, 5), scales=(5,))
    cases.matmul("refused scales", (2, 4, 7), (2, 7, 5), scales=(1, 1, 5))
    cases.matmul("refused zero points", (4, 7), (7, 5), zero_points=(4,))
    cases.matmul("INT8 by UINT8", (4, 7), (7, 5), TYPES[3])


def add_integers(cases):
    for kinds in TYPES:
        cases.integer("all pairs of types", (5, 19), (19, 8), kinds)
        cases.integer("for each column", (1, 67), (67, 33), kinds, (1,), (33,))
        cases.integer("without zero points", (3, 70), (70, 5), kinds, None, None, extreme=True)
    cases.integer("only a's", (3, 7), (7, 5), b_zero_point=None)
    cases.integer("only b's", (3, 7), (7, 5), a_zero_point=None)
    for a, b in (((7,), (7,)), ((2, 4, 7), (2, 7, 5)), ((2, 1, 4, 7), (3, 7, 5)), ((0, 7), (7, 2))):
        cases.integer("shapes", a, b)
    cases.integer("stacks", (2, 4, 7), (2, 7, 5), b_zero_point=(2, 1, 5))
    cases.integer("refused zero point", (3, 7), (7, 5), b_zero_point=(7,))


def add_signed_by_unsigned(cases):
    cases.gemm("INT8 by UINT8, for each column", 5, 33, 35, TYPES[3], each=True, c=(35,))
    cases.gemm("INT8 by UINT8, FP32", 3, 20, 9, TYPES[3], each=True, c=(9,), quantized=False)
    cases.gemm("INT8 by UINT8, extremes", 4, 130, 6, TYPES[3], extreme=True)
    cases.matmul("INT8 by UINT8, for each column", (4, 66), (66, 7), TYPES[3], 10, (7,), (7,))
    cases.matmul("INT8 by UINT8, extremes", (3, 70), (70, 3), TYPES[3], 21, extreme=True)
    cases.matmul("INT8 by UINT8, stacks", (2, 1, 4, 7), (3, 7, 5), TYPES[3])


def main():
    cases = Matmul(28)
    add_gemms(cases)
    add_matmuls(cases)
    add_integers(cases)
    add_signed_by_unsigned(cases)
    cases.write(sys.argv[1] if len(sys.argv) > 1 else "tests/data/operators/matmul.jsonl")


if __name__ == "__main__":
    main()
