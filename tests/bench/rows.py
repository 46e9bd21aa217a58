"""What `make bench` measures: the rows, their geometry, and the bytes that go in."""
import dataclasses
import functools
import itertools
import random
import struct

KIB = 1 << 10
MIB = 1 << 20
SIZES = (4 * KIB, 256 * KIB, 256 * MIB)  # of x, in bytes

BITS = {"UINT8": 8, "INT8": 8, "UINT16": 16, "INT16": 16, "INT32": 32, "UINT4": 4, "INT4": 4,
        "UINT2": 2, "INT2": 2, "FP4E2M1": 4, "FP8E4M3FN": 8, "FP8E4M3FNUZ": 8, "FP8E5M2": 8,
        "FP8E5M2FNUZ": 8}
Y_BITS = {"FP32": 32, "FP16": 16, "BF16": 16}
NUMBERS = {"FP32": 1, "UINT8": 2, "INT8": 3, "UINT16": 4, "INT16": 5, "INT32": 6, "FP16": 10,
           "BF16": 16, "FP8E4M3FN": 17, "FP8E4M3FNUZ": 18, "FP8E5M2": 19, "FP8E5M2FNUZ": 20,
           "UINT4": 21, "INT4": 22, "FP4E2M1": 23, "UINT2": 25, "INT2": 26}  # TensorProto.DataType
OPSET = 25

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
    def count(self):
        return product(self.shapes[0])

    @property
    def y_bytes(self):
        return self.count * Y_BITS[self.y] // 8

    def scales(self):
        """Seven values in turn, which are exact in all three types."""
        base = 2.0 ** -17 if self.x == "INT32" else 1.0 if self.x.startswith("FP") else 2.0 ** -7
        values = [base * (8 + i) / 8 for i in range(7)]
        if self.y == "BF16":
            period = b"".join(struct.pack("<f", value)[2:] for value in values)
        else:
            period = struct.pack("<7" + {"FP32": "f", "FP16": "e"}[self.y], *values)
        return repeat(period, product(self.shapes[1]) * Y_BITS[self.y] // 8)

    def zero_points(self):
        """0, 1, 2 in turn; None for the floats, which have none."""
        if self.x.startswith("FP"):
            return None
        bits = BITS[self.x]
        packed = sum(i % 3 << i * bits for i in range(12))
        return repeat(packed.to_bytes(12 * bits // 8, "little"),
                      (product(self.shapes[1]) * bits + 7) // 8)


def size_text(size):
    return "%d MiB" % (size // MIB) if size >= MIB else "%d KiB" % (size // KIB)


def product(numbers):
    return functools.reduce(lambda a, b: a * b, numbers, 1)


def repeat(period, size):
    return (period * (size // len(period) + 1))[:size]


def x_bytes(size):
    """The same on every machine; a smaller x is the beginning of a larger one."""
    source = random.Random(5)
    return b"".join(source.randbytes(64 * KIB) for _ in range(size // (64 * KIB) + 1))[:size]


def full(threads):
    return [row for row in (Row(x, y, grain, size, count)
                            for size, count, grain, x, y in itertools.product(
                                SIZES, sorted({1, threads}), GRAINS, BITS, Y_BITS))
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
