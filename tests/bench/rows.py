"""What the dequantizers' part of `make bench` measures: the rows, and the bytes that go in."""
import dataclasses
import functools
import itertools
import struct

from tensors import BITS as ALL_BITS
from tensors import KIB, MIB, product, repeat, size_text

SIZES = (4 * KIB, 256 * KIB, 256 * MIB)  # of x, in bytes
Y_TYPES = ("FP32", "FP16", "BF16")
BITS = {name: bits for name, bits in ALL_BITS.items() if name not in Y_TYPES}

# Name -> (run, channels, block): x is [outer, channels, run], one scale for each channel; or
# [rows, columns], one for each block of columns.
GRAINS = {
    "tensor": None,
    "axis, runs of 64": (64, 64, 0),
    "axis, runs of 169": (169, 64, 0),
    "axis, runs of 4096": (4096, 64, 0),
    "last axis of 64": (1, 64, 0),
    "last axis of 1000": (1, 1000, 0),
    "blocks of 32": (1, 4096, 32),
}
LONG_RUNS = ("tensor", "axis, runs of 64", "axis, runs of 169", "axis, runs of 4096")


@dataclasses.dataclass(frozen=True)
class Row:
    x: str
    y: str
    grain: str
    size: int  # about: x has so many bytes, or a few less where its shape wants it
    threads: int

    model = "onnx.DequantizeLinear"
    gemm = "auto"

    def __str__(self):
        return "%s %s, %s, %s, %d thread%s" % (self.x, self.y, self.grain, size_text(self.size),
                                               self.threads, "s" if self.threads > 1 else "")

    @functools.cached_property
    def shapes(self):
        """(shape of x, shape of the scales, attributes); None: x has too few elements for it."""
        count = self.size * 8 // BITS[self.x]
        if self.grain == "tensor":
            return [count], [], {}
        run, channels, block = GRAINS[self.grain]
        if block:
            columns = min(channels, count)
            return ([count // columns, columns], [count // columns, columns // block],
                    {"axis": 1, "block_size": block})
        channels = min(channels, count // run)
        if channels < 2:
            return None
        return [count // (channels * run), channels, run], [channels], {"axis": 1}

    @property
    def x_bytes(self):
        return self.size

    @property
    def attributes(self):
        return self.shapes[2]

    @property
    def y_shape(self):
        return self.shapes[0]

    @property
    def inputs(self):
        """(name, type, shape, bytes; None: of x)"""
        x_shape, shape, _ = self.shapes
        found = [("x", self.x, x_shape, None), ("x_scale", self.y, shape, self.scales())]
        if self.zero_points() is not None:
            found.append(("x_zero_point", self.x, shape, self.zero_points()))
        return found

    @property
    def y_bytes(self):
        return product(self.y_shape) * ALL_BITS[self.y] // 8

    def scales(self):
        """Seven values in turn, which are exact in all three types."""
        base = 2.0 ** -17 if self.x == "INT32" else 1.0 if self.x.startswith("FP") else 2.0 ** -7
        values = [base * (8 + i) / 8 for i in range(7)]
        if self.y == "BF16":
            period = b"".join(struct.pack("<f", value)[2:] for value in values)
        else:
            period = struct.pack("<7" + {"FP32": "f", "FP16": "e"}[self.y], *values)
        return repeat(period, product(self.shapes[1]) * ALL_BITS[self.y] // 8)

    def zero_points(self):
        """0, 1, 2 in turn; None for the floats, which have none."""
        if self.x.startswith("FP"):
            return None
        bits = BITS[self.x]
        packed = sum(i % 3 << i * bits for i in range(12))
        return repeat(packed.to_bytes(12 * bits // 8, "little"),
                      (product(self.shapes[1]) * bits + 7) // 8)


def full(threads):
    return [row for row in (Row(x, y, grain, size, count)
                            for size, count, grain, x, y in itertools.product(
                                SIZES, sorted({1, threads}), GRAINS, BITS, Y_TYPES))
            if row.shapes]


def is_quick(row):
    """Everything small on one thread; what is large, or on all threads, by examples."""
    example = row.x in ("UINT8", "INT16", "UINT4", "FP8E4M3FN")
    plain = row.grain == "tensor" and row.y == "FP32"
    if row.threads > 1:
        return example and plain and row.size > SIZES[0]
    if row.size < SIZES[2]:
        return True
    return plain or (example and (row.grain == "tensor" or row.y == "FP32"))


def smoke(threads):
    return [row for row in full(threads)
            if row.size == SIZES[0] and row.x in ("UINT8", "INT4") and row.y != "BF16"]
