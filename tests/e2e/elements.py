"""Element types as they are sent: packed bytes, and the numbers of JSON.

Uses only Python's standard library, and no code of kernels/ or server/. The formats are implemented
here once more, from ONNX's and IEEE's definitions, to check the server against.
"""
import functools
import math
import struct

INTEGERS = {"UINT2": 2, "INT2": 2, "UINT4": 4, "INT4": 4, "UINT8": 8, "INT8": 8, "UINT16": 16,
            "INT16": 16, "UINT32": 32, "INT32": 32, "INT64": 64}
FLOATS = {"FP4E2M1": 4, "FP8E4M3FN": 8, "FP8E4M3FNUZ": 8, "FP8E5M2": 8, "FP8E5M2FNUZ": 8,
          "FP8E8M0": 8, "FP16": 16, "BF16": 16, "FP32": 32}
BITS = dict(INTEGERS, BOOL=8, **FLOATS)
# Exponent bits, mantissa bits, bias.
SMALL_FLOATS = {"FP4E2M1": (2, 1, 1), "FP8E4M3FN": (4, 3, 7), "FP8E4M3FNUZ": (4, 3, 8),
                "FP8E5M2": (5, 2, 15), "FP8E5M2FNUZ": (5, 2, 16)}
# Types whose numbers the struct module packs as they are.
STRUCT = {"UINT8": "B", "INT8": "b", "UINT16": "H", "INT16": "h", "UINT32": "I", "INT32": "i",
          "INT64": "q", "BOOL": "?", "FP16": "e", "FP32": "f"}
CODES = {2: "B", 4: "B", 8: "B", 16: "H", 32: "I", 64: "Q"}


def count_of(shape):
    return math.prod(shape)


def bytes_of(datatype, count):
    return (count * BITS[datatype] + 7) // 8


def limits(datatype):
    """Returns the lowest and the highest value of an integer type."""
    bits = INTEGERS[datatype]
    if datatype.startswith("U"):
        return 0, (1 << bits) - 1
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


# ---- Bytes and bits --------------------------------------------------------------------------


def pack(datatype, elements):
    """Packs the bits of elements into bytes: little-endian, sub-byte types from the lowest bits
    up."""
    bits = BITS[datatype]
    if bits >= 8:
        return struct.pack("<%d%s" % (len(elements), CODES[bits]), *elements)
    result = bytearray(bytes_of(datatype, len(elements)))
    for index, element in enumerate(elements):
        result[index * bits // 8] |= element << index * bits % 8
    return bytes(result)


def unpack(datatype, raw, count=None):
    """Returns the bits of the elements in `raw`. Without a count, returns all elements that the
    bytes hold, for types of at least one byte."""
    bits = BITS[datatype]
    if bits >= 8:
        return list(struct.unpack("<%d%s" % (len(raw) * 8 // bits, CODES[bits]), raw))
    return [raw[index * bits // 8] >> index * bits % 8 & ((1 << bits) - 1)
            for index in range(count)]


# ---- Bits and numbers ------------------------------------------------------------------------


def decode(datatype, bits):
    """Returns the number that an element's bits mean: an int, or a float that holds it exactly."""
    if datatype in INTEGERS:
        low, _ = limits(datatype)
        return bits if bits < 1 << (BITS[datatype] - 1) or low == 0 else bits + 2 * low
    if datatype == "FP32":
        return struct.unpack("<f", struct.pack("<I", bits))[0]
    if datatype == "BF16":
        return struct.unpack("<f", struct.pack("<I", bits << 16))[0]
    if datatype == "FP16":
        return struct.unpack("<e", struct.pack("<H", bits))[0]
    if datatype == "FP8E8M0":
        return math.nan if bits == 255 else 2.0 ** (bits - 127)
    return decode_small(datatype, bits)


def decode_small(datatype, bits):
    exponent_bits, mantissa_bits, bias = SMALL_FLOATS[datatype]
    sign = -1.0 if bits >> (exponent_bits + mantissa_bits) else 1.0
    exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1)
    mantissa = bits & ((1 << mantissa_bits) - 1)
    if datatype.endswith("FNUZ") and bits == 0x80:
        return math.nan
    if datatype == "FP8E4M3FN" and bits & 0x7f == 0x7f:
        return math.nan
    if datatype == "FP8E5M2" and exponent == 31:
        return math.nan if mantissa else sign * math.inf
    if exponent == 0:
        return sign * math.ldexp(mantissa, 1 - bias - mantissa_bits)
    return sign * math.ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits)


@functools.lru_cache(maxsize=None)
def encodings(datatype):
    """Returns number -> bits for a small float type. The keys are the repr of the numbers, because
    0.0 and -0.0 differ."""
    return {repr(decode(datatype, bits)): bits for bits in reversed(range(1 << BITS[datatype]))}


def encode(datatype, number):
    """Returns the bits of a number. FP16, BF16 and FP32 round to nearest even."""
    if datatype in INTEGERS:
        low, high = limits(datatype)
        if not low <= number <= high:
            raise ValueError("%s is not in the range of %s" % (number, datatype))
        return number & ((1 << BITS[datatype]) - 1)
    number = float(number)
    if datatype == "FP32":
        return struct.unpack("<I", struct.pack("<f", number))[0]
    if datatype == "FP16":
        return struct.unpack("<H", struct.pack("<e", number))[0]
    if datatype == "BF16":
        if math.isnan(number):
            return 0x7fc0
        bits = encode("FP32", number)
        return bits + 0x7fff + (bits >> 16 & 1) >> 16
    return encodings(datatype)[repr(number)]


def from_json(value):
    """Returns a JSON number, or the number that a string stands for if it is not finite."""
    return float(value.replace("Infinity", "inf")) if isinstance(value, str) else value


def to_json(number):
    if isinstance(number, int) or math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


# ---- Whole tensors ---------------------------------------------------------------------------


def flatten(value):
    if not isinstance(value, list):
        return [value]
    if not any(isinstance(item, list) for item in value):
        return value
    return [number for item in value for number in flatten(item)]


def to_raw(datatype, numbers):
    """Returns JSON data, flat or nested, as little-endian bytes. BYTES are the strings of
    classifications, each with its length before it."""
    flat = flatten(numbers)
    if datatype == "BYTES":
        texts = [text.encode() for text in flat]
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)
    if any(isinstance(value, str) for value in flat):
        flat = [from_json(value) for value in flat]
    if datatype in STRUCT:  # in one call: a test may have millions of numbers
        try:
            return struct.pack("<%d%s" % (len(flat), STRUCT[datatype]), *flat)
        except struct.error as error:
            raise ValueError("a number that is none of %s: %s" % (datatype, error)) from error
    return pack(datatype, [encode(datatype, value) for value in flat])


def to_numbers(datatype, raw, count=None):
    """Returns bytes as flat JSON data."""
    if datatype in STRUCT:
        size = BITS[datatype] // 8
        numbers = struct.unpack("<%d%s" % (len(raw) // size, STRUCT[datatype]), raw)
        return list(numbers) if datatype in INTEGERS else [to_json(value) for value in numbers]
    return [to_json(decode(datatype, bits)) for bits in unpack(datatype, raw, count)]


def same_bits(datatype, got, want):
    """Compares byte by byte, except that any NaN equals any other NaN."""
    if got == want:
        return True
    if datatype not in FLOATS or len(got) != len(want):
        return False
    return all(a == b or (is_nan(datatype, a) and is_nan(datatype, b))
               for a, b in zip(unpack(datatype, got), unpack(datatype, want)))


def is_nan(datatype, bits):
    return datatype in FLOATS and math.isnan(decode(datatype, bits))
