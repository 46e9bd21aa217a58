"""What the rows of all parts share: types, bytes, texts."""
import functools
import random

KIB = 1 << 10
MIB = 1 << 20

BITS = {"UINT8": 8, "INT8": 8, "UINT16": 16, "INT16": 16, "INT32": 32, "UINT4": 4, "INT4": 4,
        "UINT2": 2, "INT2": 2, "FP4E2M1": 4, "FP8E4M3FN": 8, "FP8E4M3FNUZ": 8, "FP8E5M2": 8,
        "FP8E5M2FNUZ": 8, "FP32": 32, "FP16": 16, "BF16": 16}
NUMBERS = {"FP32": 1, "UINT8": 2, "INT8": 3, "UINT16": 4, "INT16": 5, "INT32": 6, "INT64": 7,
           "FP16": 10, "BF16": 16, "FP8E4M3FN": 17, "FP8E4M3FNUZ": 18, "FP8E5M2": 19,
           "FP8E5M2FNUZ": 20, "UINT4": 21, "INT4": 22, "FP4E2M1": 23, "UINT2": 25,
           "INT2": 26}  # TensorProto.DataType
OPSET = 25


def size_text(size):
    return "%d MiB" % (size // MIB) if size >= MIB else "%d KiB" % (size // KIB)


def product(numbers):
    return functools.reduce(lambda a, b: a * b, numbers, 1)


def repeat(period, size):
    return (period * (size // len(period) + 1))[:size]


def random_bytes(size):
    """Returns random bytes, the same on every machine. A smaller size gives the beginning of a
    larger one."""
    source = random.Random(5)
    return b"".join(source.randbytes(64 * KIB) for _ in range(size // (64 * KIB) + 1))[:size]


def float_bytes(size):
    """Returns bytes that are ordinary numbers of both signs, whichever float type reads them: up to
    128 as FP32 and BF16, whose biased exponents are 120 to 133 (the bias is 127), and from 1 to 4
    as FP16."""
    data = bytearray(random_bytes(size))
    high = bytes(60 + byte % 7 | byte & 128 for byte in range(256))
    data[1::2] = data[1::2].translate(high)
    return bytes(data)
