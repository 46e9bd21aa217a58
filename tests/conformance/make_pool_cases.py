#!/usr/bin/env python3
"""Writes tests/data/operators/pool.jsonl: MaxPool, QLinearAveragePool and QLinearGlobalAveragePool.

    python3 tests/conformance/make_pool_cases.py [--random COUNT FILE]

needs ONNX Runtime 1.32. With --random it writes COUNT random cases of each operator into FILE. The
unit test golden reads all files of tests/data/operators/, so such a file may lie there for a while.
"""
import sys

import numpy as np

from operator_cases import Cases

PATH = "tests/data/operators/pool.jsonl"
MICROSOFT = "com.microsoft"
TYPES = (np.uint8, np.int8)


def codes(cases, kind, shape):
    info = np.iinfo(kind)
    return cases.dice.integers(info.min, info.max + 1, size=shape).astype(kind)


def max_pool(cases, note, shape, kernel, kind=np.uint8, opset=12, **attributes):
    cases.add(note, "MaxPool", opset, {"X": codes(cases, kind, shape)}, outputs=("Y",),
              kernel_shape=kernel, **attributes)


def average(cases, note, op, shape, kind=np.uint8, scales=(0.05, 0.031), zeros=(3, 7), x=None,
            **attributes):
    x = codes(cases, kind, shape) if x is None else x
    operands = {"X": x, "x_scale": np.array(scales[0], np.float32),
                "x_zero_point": np.array(zeros[0], kind),
                "y_scale": np.array(scales[1], np.float32),
                "y_zero_point": np.array(zeros[1], kind)}
    cases.add(note, op, 1, operands, outputs=("Y",), domain=MICROSOFT, **attributes)


def average_pool(cases, note, shape, kernel, kind=np.uint8, **attributes):
    average(cases, note, "QLinearAveragePool", shape, kind, kernel_shape=kernel, **attributes)


def global_average(cases, note, shape, kind=np.uint8, **attributes):
    average(cases, note, "QLinearGlobalAveragePool", shape, kind, **attributes)


def add_max_pools(cases):
    for kind in TYPES:
        max_pool(cases, "3x3 /2 with pads", [1, 2, 15, 14], [3, 3], kind, strides=[2, 2],
                 pads=[1, 1, 1, 1])
        max_pool(cases, "2x2 /2", [2, 3, 8, 9], [2, 2], kind, 22, strides=[2, 2])
        max_pool(cases, "5x5 with pads", [1, 2, 9, 40], [5, 5], kind, 13, pads=[2, 2, 2, 2])
        max_pool(cases, "13x13 with pads", [1, 1, 20, 20], [13, 13], kind, pads=[6, 6, 6, 6])
        max_pool(cases, "long rows", [1, 1, 2, 300], [1, 7], kind, pads=[0, 3, 0, 2])
        max_pool(cases, "dilations", [1, 2, 9, 11], [2, 3], kind, dilations=[3, 2])
        max_pool(cases, "windows without elements", [1, 1, 1, 2], [2, 2], kind, pads=[1, 1, 1, 1],
                 dilations=[2, 2])
        max_pool(cases, "one axis", [2, 3, 33], [4], kind, strides=[3], pads=[1, 2])
        max_pool(cases, "three axes", [1, 2, 5, 6, 7], [2, 3, 2], kind, strides=[2, 1, 2],
                 pads=[0, 1, 1, 1, 1, 0])
        max_pool(cases, "no images", [0, 2, 5, 5], [2, 2], kind)
        max_pool(cases, "the whole image", [2, 5, 4, 6], [4, 6], kind)
        for mode in (0, 1):
            for pads in ([0, 0, 0, 0], [1, 1, 0, 1]):
                max_pool(cases, "ceil_mode", [1, 2, 8, 9], [3, 2], kind, ceil_mode=mode,
                         strides=[2, 3], pads=pads)
        for mode in ("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"):
            max_pool(cases, mode, [1, 2, 10, 9], [3, 2], kind, auto_pad=mode, strides=[2, 3])
        max_pool(cases, "SAME of a stride beyond the kernel", [1, 1, 11, 12], [1, 2], kind,
                 auto_pad="SAME_LOWER", strides=[4, 5])
        max_pool(cases, "SAME with dilations", [1, 1, 9, 12], [3, 2], kind, 22,
                 auto_pad="SAME_UPPER", strides=[2, 2], dilations=[2, 3])
    max_pool(cases, "a window less than a stride too large", [1, 1, 5, 5], [6, 6], strides=[2, 2])
    max_pool(cases, "a window a stride too large", [1, 1, 5, 5], [7, 3], strides=[2, 2])
    max_pool(cases, "pads are not read with VALID", [1, 1, 6, 6], [3, 3], auto_pad="VALID",
             pads=[1, 1, 1, 1])
    max_pool(cases, "storage_order", [1, 1, 6, 6], [3, 3], storage_order=1)
    max_pool(cases, "a pad of the kernel's size", [1, 1, 6, 6], [3, 3], pads=[0, 3, 0, 0])
    max_pool(cases, "a negative pad", [1, 1, 6, 6], [3, 3], pads=[0, -1, 0, 0])
    max_pool(cases, "no such auto_pad", [1, 1, 6, 6], [3, 3], auto_pad="SAME")
    max_pool(cases, "a stride of 0", [1, 1, 6, 6], [3, 3], strides=[0, 1])
    max_pool(cases, "too few strides", [1, 1, 6, 6], [3, 3], strides=[1])
    max_pool(cases, "too few pads", [1, 1, 6, 6], [3, 3], pads=[1, 1])
    max_pool(cases, "too few dilations", [1, 1, 6, 6], [3, 3], dilations=[1])
    max_pool(cases, "a kernel of 0", [1, 1, 6, 6], [3, 0])
    max_pool(cases, "another rank", [1, 1, 6], [3, 3])
    max_pool(cases, "no channels", [1, 0, 6, 6], [3, 3])
    max_pool(cases, "an empty axis", [1, 1, 0, 6], [1, 3])
    max_pool(cases, "a window that does not fit", [1, 1, 5, 5], [9, 3], strides=[2, 2])
    max_pool(cases, "four axes", [1, 1, 4, 4, 4, 4], [2, 2, 2, 2])


def all_codes(kind, groups):
    return np.tile(np.arange(256, dtype=np.uint8).view(kind), groups)


def add_averages(cases):
    for kind in TYPES:
        for last in (0, 1):
            def layout(channels, *spatial, images=1, last=last):
                return ([images, *spatial, channels] if last else [images, channels, *spatial])
            common = {"kind": kind, "channels_last": last}
            average_pool(cases, "3x3 /2 with pads", layout(3, 15, 14), [3, 3], strides=[2, 2],
                         pads=[1, 1, 1, 1], **common)
            average_pool(cases, "2x2 /2", layout(2, 8, 9, images=2), [2, 2], strides=[2, 2],
                         **common)
            average_pool(cases, "5x3, padding counts", layout(2, 9, 12), [5, 3],
                         pads=[2, 1, 2, 1], count_include_pad=1, **common)
            average_pool(cases, "ceil_mode, padding counts", layout(1, 8, 9), [3, 2],
                         strides=[2, 3], pads=[1, 0, 1, 1], ceil_mode=1, count_include_pad=1,
                         **common)
            average_pool(cases, "ceil_mode", layout(3, 8, 9), [3, 2], strides=[2, 3],
                         ceil_mode=1, **common)
            average_pool(cases, "one axis", layout(3, 40), [4], strides=[3], pads=[1, 2],
                         **common)
            average_pool(cases, "three axes", layout(2, 4, 5, 6), [2, 3, 2], strides=[2, 1, 2],
                         pads=[0, 1, 1, 1, 1, 0], **common)
            average_pool(cases, "the whole image", layout(5, 4, 6), [4, 6], **common)
            average_pool(cases, "the whole image, with a pad", layout(5, 4, 6), [4, 6],
                         pads=[0, 0, 0, 1], **common)
            for mode in ("SAME_UPPER", "SAME_LOWER"):
                average_pool(cases, mode, layout(2, 10, 9), [3, 2], auto_pad=mode,
                             strides=[2, 3], **common)
            average_pool(cases, "no images", layout(2, 5, 5, images=0), [2, 2], **common)
            global_average(cases, "7x7", layout(17, 7, 7, images=2), zeros=(120, 9), **common)
            global_average(cases, "one channel", layout(1, 5, 9), **common)
            global_average(cases, "three axes", layout(3, 2, 3, 4), **common)
            global_average(cases, "no images", layout(3, 2, 3, images=0), **common)
            global_average(cases, "no channels", layout(0, 2, 3), **common)
            global_average(cases, "no elements", layout(3, 0, 3), **common)
        tall = all_codes(kind, 2).reshape(1, 2, 16, 16)
        for scales in ((1.0, 1.0), (0.5, 0.25), (1.0, 4.0), (3e38, 1e-3), (float("nan"), 1.0),
                       (1.0, 0.0), (-1.0, 1.0), (1.0, float("inf"))):
            average_pool(cases, f"ties and extremes {scales}", None, [1, 2], kind, x=tall,
                         strides=[1, 2], scales=scales)
            global_average(cases, f"extremes {scales}", None, kind, x=tall, scales=scales)
        global_average(cases, "4 dimensions more", [1, 2, 1, 2, 1, 3], kind)
        global_average(cases, "the least multiplier", [1, 1, 2], kind, scales=(2.0 ** -31, 1.0))
        global_average(cases, "less than that", [1, 1, 2], kind, scales=(2.0 ** -32, 1.0))
        global_average(cases, "a multiplier of 256", [1, 1, 2], kind, scales=(512.0, 1.0))
        global_average(cases, "just below", [1, 1, 2], kind, scales=(511.9, 1.0))
    average_pool(cases, "a global multiplier of 256", [1, 1, 2, 1], [2, 1], scales=(512.0, 1.0))
    average_pool(cases, "rows of an image", [1, 3, 30], [30])
    average_pool(cases, "a pad of the kernel's size", [1, 1, 6, 6], [3, 3], pads=[0, 3, 0, 0])
    average_pool(cases, "another rank", [1, 1, 6], [3, 3])
    average_pool(cases, "no channels", [1, 0, 6, 6], [3, 3])
    average_pool(cases, "a window that does not fit", [1, 1, 5, 5], [9, 3], strides=[2, 2])
    average_pool(cases, "a window less than a stride too large", [1, 1, 5, 5], [6, 6],
                 strides=[2, 2])
    average_pool(cases, "no such auto_pad", [1, 1, 6, 6], [3, 3], auto_pad="SAME")
    global_average(cases, "rank 2", [2, 3])


def random_windows(dice, spatial, fits):
    rank = len(spatial)

    def some(least, most, count=rank):
        return [int(number) for number in dice.integers(least, most + 1, size=count)]
    kernel = some(1, 5)
    if fits:
        kernel = [min(pair) for pair in zip(kernel, spatial)]
    attributes = {"strides": some(1, 4), "ceil_mode": int(dice.integers(2))}
    mode = dice.integers(6)
    if mode < 2:
        attributes["auto_pad"] = ("SAME_UPPER", "SAME_LOWER")[mode]
    elif mode < 5:
        attributes["pads"] = [int(dice.integers(0, size)) for size in kernel + kernel]
    return kernel, attributes


def add_random(cases, count):
    dice = cases.dice
    for index in range(count):
        kind = TYPES[index % 2]
        rank = int(dice.integers(1, 4))
        spatial = [int(size) for size in dice.integers(1, 14, size=rank)]
        if dice.integers(4) == 0:
            spatial[-1] = int(dice.integers(14, 200))
        images, channels = int(dice.integers(1, 3)), int(dice.integers(1, 5))
        last = int(dice.integers(2))
        # With channels last and no position, ONNX Runtime divides by 0.
        kernel, attributes = random_windows(dice, spatial, fits=bool(last))
        dilations = {"dilations": [int(d) for d in dice.integers(1, 4, size=rank)]}
        max_pool(cases, "random", [images, channels, *spatial], kernel, kind,
                 int(dice.choice([12, 22])), **attributes,
                 **(dilations if dice.integers(2) else {}))
        channels = int(dice.choice([1, 2, 7, 40]))
        shape = [images, *spatial, channels] if last else [images, channels, *spatial]
        low = np.iinfo(kind).min
        parameters = {"scales": tuple(dice.uniform(0.01, 0.4, size=2)), "channels_last": last,
                      "zeros": tuple(int(zero) + low for zero in dice.integers(0, 256, size=2))}
        average_pool(cases, "random", shape, kernel, kind, **attributes, **parameters,
                     count_include_pad=int(dice.integers(2)))
        global_average(cases, "random", shape, kind, **parameters)


def main():
    if sys.argv[1:2] == ["--random"]:
        cases = Cases(int.from_bytes(np.random.default_rng().bytes(4), "little"))
        add_random(cases, int(sys.argv[2]))
        cases.write(sys.argv[3])
        return
    cases = Cases(28)
    add_max_pools(cases)
    add_averages(cases)
    cases.write(PATH)


main()
