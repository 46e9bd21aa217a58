"""Makes tests/data/operators/conv.jsonl: ConvInteger, com.microsoft.QLinearConv and
com.microsoft.NhwcMaxPool, run by ONNX Runtime. See operator_cases.py."""
import sys

import numpy as np
from operator_cases import Cases

U8, S8 = np.uint8, np.int8
PAIRS = [(U8, U8), (U8, S8), (S8, S8), (S8, U8)]


class Conv(Cases):
    def codes(self, kind, shape, extreme=False):
        info = np.iinfo(kind)
        if extreme:
            return self.dice.choice(np.array([info.min, info.max], kind), shape)
        return self.dice.integers(info.min, info.max, shape, kind, endpoint=True)

    def integer(self, note, x, w, kinds=PAIRS[1], x_zero_point=(), w_zero_point=(), extreme=False,
                **attributes):
        """`x_zero_point` and `w_zero_point` are shapes, or None."""
        self.add(note, "ConvInteger", 10, {
            "x": self.codes(kinds[0], x, extreme), "w": self.codes(kinds[1], w, extreme),
            "x_zero_point": None if x_zero_point is None else self.codes(kinds[0], x_zero_point),
            "w_zero_point": None if w_zero_point is None else self.codes(kinds[1], w_zero_point)},
            types=[np.int32], **attributes)

    def qlinear(self, note, x, w, kinds=PAIRS[1], each=False, bias=True, channels_last=1,
                wide=False, **attributes):
        """`x` is [N, C, D1..Dn]. `wide`: w has a zero point that is not 0."""
        if channels_last:
            x = (x[0], *x[2:], x[1])
        terms = int(np.prod(w[1:]))
        shape = (w[0],) if each else ()
        zero_points = self.codes(kinds[1], shape) if wide else np.full(
            shape, 0 if kinds[1] is S8 else 128, kinds[1])
        self.add(note, "QLinearConv", 1, {
            "x": self.codes(kinds[0], x), "x_scale": np.float32(0.02),
            "x_zero_point": self.codes(kinds[0], ()), "w": self.codes(kinds[1], w),
            "w_scale": np.asarray(self.dice.uniform(0.01, 0.03, shape), np.float32),
            "w_zero_point": zero_points,
            "y_scale": np.float32(0.03 * np.sqrt(max(1, terms))),
            "y_zero_point": self.codes(kinds[0], ()),
            "B": self.dice.integers(-3000, 3000, w[0], np.int32) if bias else None},
            domain="com.microsoft", channels_last=channels_last, **attributes)


def add_integers(cases):
    for kinds in PAIRS:
        cases.integer("pads", (1, 3, 6, 5), (4, 3, 3, 3), kinds, pads=[1, 0, 2, 1])
        cases.integer("extremes", (1, 17, 3, 3), (5, 17, 3, 3), kinds, extreme=True)
        cases.integer("depthwise", (2, 6, 7, 6), (6, 1, 3, 3), kinds, group=6, pads=[1] * 4)
        cases.integer("no zero points", (1, 4, 5), (3, 4, 2), kinds, None, None, pads=[1, 1])
    cases.integer("only w_zero_point", (1, 2, 5), (3, 2, 3), x_zero_point=None, pads=[2, 0])
    cases.integer("only x_zero_point", (1, 2, 5), (3, 2, 3), w_zero_point=None, pads=[2, 0])
    cases.integer("shapes [1]", (1, 2, 5), (3, 2, 3), x_zero_point=(1,), w_zero_point=(1,))
    cases.integer("one channel", (1, 2, 5), (1, 2, 3), w_zero_point=(1,))
    cases.integer("groups, strides", (2, 4, 7, 5), (6, 2, 3, 2), group=2, strides=[2, 1])
    cases.integer("dilations", (1, 3, 9, 9), (40, 3, 3, 3), dilations=[2, 3], pads=[2, 3, 2, 3])
    cases.integer("SAME_UPPER", (1, 3, 6, 7), (4, 3, 4, 3), auto_pad="SAME_UPPER", strides=[2, 3])
    cases.integer("many rows and terms", (1, 70, 4, 4), (37, 70, 1, 1))
    cases.integer("positions of several tiles", (1, 8, 11, 13), (35, 8, 3, 3), pads=[1] * 4)
    cases.integer("3-D", (1, 2, 3, 4, 5), (3, 2, 2, 2, 2), pads=[1, 0, 0, 0, 1, 1])
    cases.integer("one position", (3, 20, 1, 1), (18, 20, 1, 1))
    cases.integer("no image", (0, 2, 5), (3, 2, 3))
    cases.integer("multiplier 2", (1, 3, 6, 6), (6, 1, 3, 3), group=3)
    cases.integer("x has other channels", (1, 3, 5), (3, 2, 3))
    cases.integer("kernel_shape differs", (1, 2, 5), (3, 2, 3), kernel_shape=[2])


def add_qlinear(cases):
    for kinds in PAIRS[:3]:
        for each in (False, True):
            cases.qlinear("3 x 3", (1, 16, 6, 7), (33, 16, 3, 3), kinds, each, pads=[1] * 4)
        cases.qlinear("depthwise", (1, 16, 8, 7), (16, 1, 3, 3), kinds, True, group=16,
                      pads=[1] * 4)
        cases.qlinear("zero points", (1, 7, 5, 5), (9, 7, 3, 3), kinds, pads=[1] * 4, wide=True)
    for channels in (1, 2, 3, 4, 5, 8, 18, 66):
        cases.qlinear(f"{channels} channels", (1, channels, 5, 9), (6, channels, 3, 3),
                      pads=[1, 1, 1, 1])
        cases.qlinear(f"1 x 1, {channels} channels", (2, channels, 4, 4), (19, channels, 1, 1))
    cases.qlinear("first layer", (1, 3, 20, 22), (8, 3, 7, 7), strides=[2, 2], pads=[3] * 4)
    cases.qlinear("stride 2", (1, 2, 9, 40), (3, 2, 3, 3), strides=[2, 2], pads=[1] * 4)
    cases.qlinear("stride 2, one channel", (1, 1, 9, 40), (3, 1, 3, 3), strides=[2, 2])
    cases.qlinear("groups", (2, 12, 6, 6), (9, 4, 3, 3), group=3, pads=[1] * 4)
    cases.qlinear("two groups of one", (1, 2, 7, 41), (4, 1, 3, 5), group=2, pads=[1, 2, 1, 2])
    cases.qlinear("groups of 5", (1, 10, 6, 6), (4, 5, 2, 2), group=2)
    cases.qlinear("dilations", (1, 6, 9, 9), (5, 6, 3, 3), dilations=[2, 3], pads=[2, 3, 2, 3])
    cases.qlinear("SAME_LOWER", (1, 5, 6, 7), (4, 5, 4, 3), auto_pad="SAME_LOWER",
                  strides=[2, 3])
    cases.qlinear("wide kernel", (1, 4, 3, 12), (3, 4, 1, 9), pads=[0, 4, 0, 4])
    cases.qlinear("one position", (3, 20, 1, 1), (18, 20, 1, 1))
    cases.qlinear("depthwise, one position", (2, 18, 3, 3), (18, 1, 3, 3), group=18)
    cases.qlinear("multiplier 3", (1, 5, 6, 6), (15, 1, 3, 3), group=5)
    cases.qlinear("no bias", (1, 4, 5, 5), (4, 4, 3, 3), bias=False)
    cases.qlinear("1-D", (1, 4, 9), (5, 4, 3), pads=[1, 1])
    cases.qlinear("3-D", (1, 3, 4, 5, 6), (5, 3, 2, 3, 2), pads=[1, 0, 1, 0, 1, 0])
    cases.qlinear("channels first", (1, 4, 6, 6), (5, 4, 3, 3), channels_last=0, pads=[1] * 4)
    cases.qlinear("no image", (0, 4, 6, 6), (5, 4, 3, 3))
    cases.qlinear("other channels", (1, 4, 6, 6), (5, 3, 3, 3))


def add_pools(cases):
    for kind in (U8, S8):
        cases.add("3 x 3", "NhwcMaxPool", 1, {"x": cases.codes(kind, (1, 7, 6, 5))},
                  domain="com.microsoft", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
        cases.add("ceil_mode, dilations", "NhwcMaxPool", 1,
                  {"x": cases.codes(kind, (2, 8, 9, 17))}, domain="com.microsoft",
                  kernel_shape=[2, 3], strides=[3, 2], dilations=[2, 1], ceil_mode=1)
    cases.add("SAME_UPPER", "NhwcMaxPool", 1, {"x": cases.codes(U8, (1, 5, 6, 33))},
              domain="com.microsoft", kernel_shape=[2, 2], auto_pad="SAME_UPPER")
    cases.add("1-D", "NhwcMaxPool", 1, {"x": cases.codes(U8, (1, 5, 4))},
              domain="com.microsoft", kernel_shape=[2])


def main():
    cases = Conv(20)
    add_integers(cases)
    add_qlinear(cases)
    add_pools(cases)
    cases.write(sys.argv[1] if len(sys.argv) > 1 else "tests/data/operators/conv.jsonl")


if __name__ == "__main__":
    main()
