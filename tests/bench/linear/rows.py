"""The rows of dequantizers and quantizers that `make bench` measures, and the bytes of their
inputs."""
import dataclasses
import functools
import itertools
import struct

from tensors import BITS, KIB, MIB, float_bytes, product, random_bytes, repeat, size_text

DEQUANTIZE, QUANTIZE = "onnx.DequantizeLinear", "onnx.QuantizeLinear"
SIZES = (4 * KIB, 256 * KIB, 256 * MIB)  # of x, in bytes
REALS = ("FP32", "FP16", "BF16")
CODES = [name for name in BITS if name not in REALS]
EXAMPLES = ("UINT8", "INT16", "UINT4", "FP8E4M3FN")

# Name -> (run, channels, block). x is [outer, channels, run] with a scale for each channel, or
# [rows, columns] with a scale for each block of columns.
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
    model: str
    code: str  # the quantized type: x's of a dequantizer, y's of a quantizer
    real: str  # the floating-point type: y's of a dequantizer, x's of a quantizer
    grain: str
    size: int  # bytes of x, or a few less if the shape needs that
    threads: int

    gemm = "auto"

    def __str__(self):
        return "%s %s, %s, %s, %d thread%s" % (self.x, self.y, self.grain, size_text(self.size),
                                               self.threads, "s" if self.threads > 1 else "")

    @property
    def x(self):
        return self.code if self.model == DEQUANTIZE else self.real

    @property
    def y(self):
        return self.real if self.model == DEQUANTIZE else self.code

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
        """A tuple (name, type, shape, bytes) for each input; x has None as bytes."""
        x_shape, shape, _ = self.shapes
        prefix = "x" if self.model == DEQUANTIZE else "y"
        found = [("x", self.x, x_shape, None), (prefix + "_scale", self.real, shape, self.scales())]
        if self.zero_points() is not None:
            found.append((prefix + "_zero_point", self.code, shape, self.zero_points()))
        return found

    @property
    def y_bytes(self):
        return (product(self.y_shape) * BITS[self.y] + 7) // 8

    def scales(self):
        """The scales: seven values in turn, which are exact in all three types. A quantizer's
        scales map its x, which reaches 128 or, as FP16, 4, to about y's range."""
        if self.model == QUANTIZE:
            reach = 4 if self.real == "FP16" else 128
            base = reach / (128 if self.code.startswith("FP") else 2 ** (BITS[self.code] - 1))
        else:
            base = 2.0 ** (-17 if self.code == "INT32" else 0 if self.code.startswith("FP") else -7)
        values = [base * (8 + i) / 8 for i in range(7)]
        if self.real == "BF16":
            period = b"".join(struct.pack("<f", value)[2:] for value in values)
        else:
            period = struct.pack("<7" + {"FP32": "f", "FP16": "e"}[self.real], *values)
        return repeat(period, product(self.shapes[1]) * BITS[self.real] // 8)

    def zero_points(self):
        """The zero points: 0, 1, 2 in turn. A float type allows only 0; a quantizer needs the zero
        point, because it determines y's type."""
        bits = BITS[self.code]
        size = (product(self.shapes[1]) * bits + 7) // 8
        if self.code.startswith("FP"):
            return bytes(size) if self.model == QUANTIZE else None
        packed = sum(i % 3 << i * bits for i in range(12))
        return repeat(packed.to_bytes(12 * bits // 8, "little"), size)


def x_bytes(model, size):
    """Returns `size` bytes. Each row's x is the beginning of these bytes."""
    return random_bytes(size) if model == DEQUANTIZE else float_bytes(size)


def full(model, threads):
    codes = [code for code in CODES if model == DEQUANTIZE or code != "INT32"]
    return [row for row in (Row(model, code, real, grain, size, count)
                            for size, count, grain, code, real in itertools.product(
                                SIZES, sorted({1, threads}), GRAINS, codes, REALS))
            if row.shapes]


def is_quick(row):
    """Tells whether a quick run has the row: almost all small rows on one thread, and examples of
    large rows and of rows on all threads."""
    example = row.code in EXAMPLES
    plain = row.grain == "tensor" and row.real == "FP32"
    if row.threads > 1:
        return example and plain and row.size > SIZES[0]
    if row.size < SIZES[2]:
        return example or row.real == "FP32" or row.model == DEQUANTIZE
    return plain or (example and (row.grain == "tensor" or row.real == "FP32"))


def smoke(model, threads):
    return [row for row in full(model, threads)
            if row.size == SIZES[0] and row.code in ("UINT8", "INT4") and row.real != "BF16"]
