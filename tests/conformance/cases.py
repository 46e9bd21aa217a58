"""The cases: each is one call and its row in the table. Uses Python's standard library only.

A random case depends only on the seed, its family and its number, so it can be made again. The
families' types and rules are written down here from the operators' definitions. The server is not
asked for them.
"""
import dataclasses
import json
import math
import random

from elements import BITS, bytes_of, count_of, encode, is_nan, limits, pack, to_raw
from quantd import ROOT, Tensor

DEQUANTIZE = "onnx.DequantizeLinear"
QUANTIZE = "onnx.QuantizeLinear"
CONV = "onnx.QLinearConv"
DIRECTML = "directml.ElementWiseDequantizeLinear"
TENSORFLOW = "tensorflow.Dequantize"


@dataclasses.dataclass
class Case:
    name: str  # as --only takes it
    model: str
    version: str
    kind: str  # the table's columns: type and granularity
    granularity: str
    tensors: list
    attributes: dict

    def tensor(self, name):
        return next((tensor for tensor in self.tensors if tensor.name == name), None)


# ---- Values ----------------------------------------------------------------------------------


def some_bits(rng, datatype, count):
    """Returns `count` random elements as bits. Integers are more often at the ends of the range
    than by chance."""
    bits = BITS[datatype]
    if not datatype.startswith(("INT", "UINT")):
        return [rng.getrandbits(bits) for _ in range(count)]
    low, high = limits(datatype)
    return [encode(datatype, rng.choice((low, high, 0, low + rng.getrandbits(bits),
                                         low + rng.getrandbits(bits), low + rng.getrandbits(bits))))
            for _ in range(count)]


def some(rng, name, datatype, shape):
    return Tensor(name, datatype, shape, pack(datatype, some_bits(rng, datatype, count_of(shape))))


def ordinary_scale(rng):
    return math.copysign(math.exp(rng.uniform(-6, 3)), rng.choice((1, 1, 1, -1)))


def scale_bits(rng, datatype):
    """Returns the bits of a scale. Most are ordinary numbers; some are zero, subnormal, huge,
    infinite or NaN."""
    if datatype == "FP8E8M0":
        return rng.getrandbits(8) if rng.random() < 0.2 else rng.randint(117, 132)
    odd = rng.random()
    if odd < 0.06:
        return rng.getrandbits(BITS[datatype])
    if odd < 0.12:
        return encode(datatype, rng.choice((0.0, -0.0, math.inf, -math.inf, math.nan, 6e-8, -1e-7)))
    return encode(datatype, ordinary_scale(rng))


def scales(rng, name, datatype, shape):
    return Tensor(name, datatype, shape,
                  pack(datatype, [scale_bits(rng, datatype) for _ in range(count_of(shape))]))


def some_shape(rng, least_rank, most_rank, empty=0.04):
    """Returns a random shape. Most are small; some have a long last axis or an empty one."""
    rank = rng.randint(least_rank, most_rank)
    shape = [rng.randint(1, 6 if rank < 5 else 3) for _ in range(rank)]
    if rank and rank < 4 and rng.random() < 0.25:
        shape[-1] = rng.randint(17, 300)
    if rank and rng.random() < empty:
        shape[rng.randrange(rank)] = 0
    return shape


# ---- onnx.DequantizeLinear -------------------------------------------------------------------

FLOAT8 = ["FP8E4M3FN", "FP8E4M3FNUZ", "FP8E5M2", "FP8E5M2FNUZ"]
X_TYPES = {10: ["INT8", "UINT8", "INT32"]}
X_TYPES[13] = X_TYPES[10]
X_TYPES[19] = X_TYPES[13] + FLOAT8
X_TYPES[21] = X_TYPES[19] + ["INT16", "UINT16", "INT4", "UINT4"]
X_TYPES[23] = X_TYPES[21] + ["FP4E2M1"]
X_TYPES[24] = X_TYPES[23]
X_TYPES[25] = X_TYPES[24] + ["INT2", "UINT2"]
OUTPUT_NUMBERS = {"FP32": 1, "FP16": 10, "BF16": 16}


def dequantize_rows():
    for version, kinds in X_TYPES.items():
        for kind in kinds:
            for granularity in (["per-tensor"] + ["per-axis"] * (version >= 13)
                                + ["blocked"] * (version >= 21)):
                yield version, kind, granularity


def scale_type(rng, version):
    if version < 19:
        return "FP32"
    return rng.choice(["FP32", "FP32", "FP16", "BF16"] + ["FP8E8M0"] * (version >= 24))


def granules(rng, version, granularity):
    """Returns (shape of x, shape of the scale, shape of the zero point, attributes)."""
    shape = some_shape(rng, 0 if granularity == "per-tensor" else 1, rng.choice((4, 4, 4, 8)))
    attributes = {}
    if granularity == "per-tensor":
        scale_shape = rng.choice(([], [1]))
        if version >= 13 and rng.random() < 0.2:
            attributes["axis"] = rng.randint(-9, 9)  # ignored, whatever its value
        return shape, scale_shape, rng.choice((scale_shape, [], [1])), attributes
    axis = rng.randrange(len(shape))
    if axis != 1 or rng.random() < 0.7:
        attributes["axis"] = rng.choice((axis, axis - len(shape)))
    scale_shape = [shape[axis]]
    if granularity == "blocked":
        block = rng.randint(1, shape[axis] + 2)
        attributes["block_size"] = block
        scale_shape = shape[:axis] + [-(-shape[axis] // block)] + shape[axis + 1:]
    return shape, scale_shape, scale_shape, attributes


def dequantize(rng, version, kind, granularity):
    shape, scale_shape, zero_shape, attributes = granules(rng, version, granularity)
    of_scale = scale_type(rng, version)
    if version >= 23 and (of_scale == "FP8E8M0" or rng.random() < 0.5):
        name, number = rng.choice(list(OUTPUT_NUMBERS.items()))
        attributes["output_dtype"] = rng.choice((number, name))
    tensors = [some(rng, "x", kind, shape), scales(rng, "x_scale", of_scale, scale_shape)]
    if rng.random() < 0.7:
        zero = some(rng, "x_zero_point", kind, zero_shape)
        # Float types allow only a zero point of 0, and that of INT32 is "supposed to be" zero.
        if kind.startswith("FP") or (kind == "INT32" and rng.random() < 0.6):
            zero.raw = bytes(len(zero.raw))
        tensors.append(zero)
    return tensors, attributes


# ---- onnx.QuantizeLinear ---------------------------------------------------------------------

Y_TYPES = {version: [kind for kind in kinds if kind != "INT32"]
           for version, kinds in X_TYPES.items()}
PRECISIONS = {"FP32": 1, "FP16": 10, "BF16": 16}


def quantize_rows():
    for version, kinds in Y_TYPES.items():
        for kind in kinds:
            for granularity in (["per-tensor"] + ["per-axis"] * (version >= 13)
                                + ["blocked"] * (version >= 21)):
                yield version, kind, granularity


def quantize_types(rng, version):
    """Returns (datatype of x, datatype of y_scale)."""
    if version < 19:
        return rng.choice(("FP32", "FP32", "INT32")), "FP32"
    x = rng.choice(("FP32", "FP32", "FP16", "BF16", "INT32"))
    if version < 23 or rng.random() < 0.5:
        return x, x
    return x, rng.choice(["FP32", "FP16", "BF16", "INT32"] + ["FP8E8M0"] * (version >= 24))


def without_payload(datatype, bits):
    """Returns `bits`, but one fixed NaN for every NaN. JSON has only one NaN, without a sign, but a
    float8 would keep the sign and a float4 shows it."""
    return encode(datatype, math.nan) if is_nan(datatype, bits) else bits


def quotient_bits(rng, datatype):
    """Returns the bits of a number. Most, divided by a scale, give small integers and ties; some
    are any bits."""
    odd = rng.random()
    if odd < 0.1:
        return without_payload(datatype, rng.getrandbits(BITS[datatype]))
    if datatype == "INT32":
        return encode(datatype, rng.randint(-400, 400))
    if odd < 0.15:
        return encode(datatype, rng.choice((0.0, -0.0, math.inf, -math.inf, math.nan)))
    if odd < 0.4:
        return encode(datatype, rng.randint(-600, 600) / 2)
    return encode(datatype, rng.gauss(0, 60))


def quotient_scale_bits(rng, datatype):
    if datatype == "INT32":
        return rng.getrandbits(32) if rng.random() < 0.1 else encode(datatype, rng.randint(1, 9))
    if datatype != "FP8E8M0" and rng.random() < 0.4:
        return encode(datatype, 2.0 ** rng.randint(-4, 3))
    return without_payload(datatype, scale_bits(rng, datatype))


def quantize(rng, version, kind, granularity):
    shape, scale_shape, zero_shape, attributes = granules(rng, version, granularity)
    of_x, of_scale = quantize_types(rng, version)
    tensors = [Tensor("x", of_x, shape, pack(of_x, [quotient_bits(rng, of_x)
                                                    for _ in range(count_of(shape))])),
               Tensor("y_scale", of_scale, scale_shape,
                      pack(of_scale, [quotient_scale_bits(rng, of_scale)
                                      for _ in range(count_of(scale_shape))]))]
    named = version >= 21 and (kind != "UINT8" or rng.random() < 0.5) and rng.random() < 0.4
    if named:
        attributes["output_dtype"] = kind
    if (kind != "UINT8" and not named) or rng.random() < 0.5:
        tensors.append(some(rng, "y_zero_point", kind, zero_shape))
    if version >= 19 and rng.random() < 0.4:
        attributes["saturate"] = rng.randint(0, 1)
    if version >= 23 and rng.random() < 0.3:
        name, number = rng.choice(list(PRECISIONS.items()))
        attributes["precision"] = rng.choice((number, name))
    return tensors, attributes


# ---- onnx.QLinearConv ------------------------------------------------------------------------

EIGHT = ("UINT8", "INT8")


def conv_rows():
    for x in EIGHT:
        for w in EIGHT:
            for y in EIGHT:
                for granularity in ("per-tensor", "per-channel"):
                    yield 10, "%s x %s -> %s" % (x, w, y), granularity


def conv_geometry(rng, spatial):
    attributes = {}
    if rng.random() < 0.5:
        attributes["strides"] = [rng.randint(1, 3) for _ in range(spatial)]
    if rng.random() < 0.4:
        attributes["dilations"] = [rng.randint(1, 3) for _ in range(spatial)]
    how = rng.random()
    if how < 0.5:
        attributes["pads"] = [rng.randint(0, 3) for _ in range(2 * spatial)]
    elif how < 0.8:
        attributes["auto_pad"] = rng.choice(("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"))
    return attributes


def conv_fits(sizes, kernel, attributes):
    """Tells whether the kernel fits into the padded input. With SAME it always fits, because the
    padding makes up for the kernel."""
    if attributes.get("auto_pad", "").startswith("SAME"):
        return True
    spatial = len(sizes)
    pads = attributes.get("pads", [0] * 2 * spatial)
    dilations = attributes.get("dilations", [1] * spatial)
    return all(sizes[i] + pads[i] + pads[i + spatial] > dilations[i] * (kernel[i] - 1)
               for i in range(spatial))


def conv(rng, _, kind, granularity):
    x_type, _, w_type, _, y_type = kind.split()
    group = rng.choice((1, 1, 1, 2, 3))
    inner, filters = rng.choice((1, 2, 3, 4, 17)), group * rng.choice((1, 2, 3, 9))
    spatial = rng.choice((1, 2, 2, 2, 3, 4))
    most = {1: 40, 2: 9, 3: 5, 4: 3}[spatial]
    while True:
        sizes = [rng.randint(1, most) for _ in range(spatial)]
        kernel = [rng.randint(1, 4 if spatial < 3 else 2) for _ in range(spatial)]
        attributes = conv_geometry(rng, spatial)
        if conv_fits(sizes, kernel, attributes):
            break
    if group > 1 or rng.random() < 0.2:
        attributes["group"] = group
    if rng.random() < 0.3:
        attributes["kernel_shape"] = kernel
    batch = 0 if rng.random() < 0.02 else rng.randint(1, 2)
    one = rng.choice(([], [1]))
    weights = one if granularity == "per-tensor" else [filters]
    tensors = [
        some(rng, "x", x_type, [batch, group * inner] + sizes),
        conv_scale(rng, "x_scale", one), some(rng, "x_zero_point", x_type, one),
        some(rng, "w", w_type, [filters, inner] + kernel),
        conv_scale(rng, "w_scale", weights),
        some(rng, "w_zero_point", w_type, rng.choice((one, weights))),
        conv_scale(rng, "y_scale", one, 60), some(rng, "y_zero_point", y_type, one)]
    if rng.random() < 0.5:
        reach = rng.choice((99, 20000, 1 << 31))
        bias = [rng.randint(-reach, reach - 1) for _ in range(filters)]
        tensors.append(Tensor("B", "INT32", [filters], to_raw("INT32", bias)))
    return tensors, attributes


def conv_scale(rng, name, shape, times=1):
    """Returns a tensor of scales. They make most results lie within eight bits. Many are powers of
    two, which make ties, and a few are arbitrary."""
    def one():
        how = rng.random()
        if how < 0.03:
            return scale_bits(rng, "FP32")
        if how < 0.35:
            return encode("FP32", times * 2.0 ** rng.randint(-7, -3))
        return encode("FP32", times * rng.uniform(0.005, 0.1))
    return Tensor(name, "FP32", shape, pack("FP32", [one() for _ in range(count_of(shape))]))


# ---- directml.ElementWiseDequantizeLinear ----------------------------------------------------

DIRECTML_TYPES = {10: ["UINT8"]}
DIRECTML_TYPES.update(dict.fromkeys((21, 30, 60, 62), ["INT32", "INT16", "INT8", "UINT32", "UINT16",
                                                       "UINT8"]))


def directml_rows():
    for version, kinds in DIRECTML_TYPES.items():
        for kind in kinds:
            for granularity in ("packed", "broadcast strides", "padded strides"):
                yield version, kind, granularity


def packed_strides(rng, shape, padding, order):
    """Returns row-major strides for the axes in this order. With `padding`, some rows are longer
    than their elements need."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step = step * shape[axis] + (rng.randint(0, 3) if padding else 0)
    return strides


def layout(rng, shape, granularity):
    """Returns strides for one tensor. None: packed."""
    if granularity == "packed" or rng.random() < 0.1:
        return None
    order = list(range(len(shape)))
    if rng.random() < 0.3:
        rng.shuffle(order)
    if granularity == "padded strides":
        return packed_strides(rng, shape, True, order)
    kept = [size if rng.random() < 0.5 else 1 for size in shape]
    strides = packed_strides(rng, kept, False, order)
    return [stride if kept[axis] == shape[axis] else 0 for axis, stride in enumerate(strides)]


def directml(rng, version, kind, granularity):
    rank = 4 if version < 30 else rng.randint(1, 8)
    shape = [rng.randint(1, 5 if rank < 6 else 2) for _ in range(rank)]
    if rng.random() < 0.2:
        shape[-1] = rng.randint(17, 100)
    of_scale = rng.choice(("FP32", "FP16")) if version >= 60 else "FP32"
    tensors, attributes = [], {}
    for name, datatype in (("InputTensor", kind), ("ScaleTensor", of_scale),
                           ("ZeroPointTensor", kind)):
        if name == "ZeroPointTensor" and version >= 62 and rng.random() < 0.3:
            continue
        plain = name == "InputTensor" and granularity == "broadcast strides"
        strides = None if plain else layout(rng, shape, granularity)
        stored = count_of(shape)
        if strides is not None:
            attributes[name + ".strides"] = strides
            stored = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides))
        if name == "ScaleTensor":
            bits = [encode(datatype, ordinary_scale(rng)) for _ in range(stored)]
        else:
            bits = some_bits(rng, datatype, stored)
        tensors.append(Tensor(name, datatype, shape, pack(datatype, bits)))
    return tensors, attributes


# ---- tensorflow.Dequantize -------------------------------------------------------------------

TENSORFLOW_TYPES = ["UINT8", "INT8", "UINT16", "INT16", "INT32"]
MODES = ["MIN_COMBINED", "MIN_FIRST", "SCALED"]


def tensorflow_rows():
    for kind in TENSORFLOW_TYPES:
        for mode in MODES:
            for granularity in ("per-tensor", "per-axis"):
                yield 1, kind, "%s, %s" % (mode, granularity)


def some_range(rng):
    """Returns (min, max). They need not be ordered or different, or enclose zero. They give no
    subnormal results, because TensorFlow's threads flush those to zero."""
    how = rng.random()
    if how < 0.5:
        pair = rng.uniform(-8, 0), rng.uniform(0, 8)
    elif how < 0.7:
        pair = rng.gauss(0, 1), rng.gauss(0, 1)
    elif how < 0.8:
        pair = rng.gauss(0, 1000), rng.gauss(0, 1000)
    elif how < 0.85:
        pair = (rng.uniform(-2, 2),) * 2
    elif how < 0.97:
        pair = rng.choice(((0, 6), (-1, 1), (-128, 127), (0, 255), (0, 0), (-2, 1), (6, 0)))
    else:
        pair = [rng.choice((math.inf, -math.inf, math.nan, 3e38, -3e38, 1)) for _ in range(2)]
    return [encode("FP32", number) for number in pair]


def tensorflow(rng, _, kind, granularity):
    mode, per = granularity.split(", ")
    attributes = {"mode": mode} if mode != "MIN_COMBINED" or rng.random() < 0.5 else {}
    if per == "per-axis":
        shape = some_shape(rng, 1, 5)
        axis = rng.randrange(len(shape))
        if mode == "MIN_FIRST":
            shape[axis] = 1  # the kernel implements no other length
        attributes["axis"] = axis
        range_shape = [shape[axis]]
    else:
        shape, range_shape = some_shape(rng, 0, 5), []
        if rng.random() < 0.3:
            attributes["axis"] = -1
    if rng.random() < 0.4:
        attributes["narrow_range"] = rng.choice((True, False))
    if mode == "MIN_COMBINED" and rng.random() < 0.3:
        attributes["dtype"] = "bfloat16"
    elif rng.random() < 0.2:
        attributes["dtype"] = "float32"
    pairs = [some_range(rng) for _ in range(count_of(range_shape))]
    low, high = [pack("FP32", [pair[i] for pair in pairs]) for i in range(2)]
    return [some(rng, "input", kind, shape), Tensor("min_range", "FP32", range_shape, low),
            Tensor("max_range", "FP32", range_shape, high)], attributes


# ---- Random and golden -----------------------------------------------------------------------

FAMILIES = {"dequantize": (DEQUANTIZE, list(dequantize_rows()), dequantize),
            "quantize": (QUANTIZE, list(quantize_rows()), quantize),
            "conv": (CONV, list(conv_rows()), conv),
            "directml": (DIRECTML, list(directml_rows()), directml),
            "tensorflow": (TENSORFLOW, list(tensorflow_rows()), tensorflow)}


def random_case(seed, family, number):
    """Returns the case of this number. The rows take turns, so each row gets the same number of
    cases."""
    model, rows, make = FAMILIES[family]
    version, kind, granularity = rows[number % len(rows)]
    rng = random.Random("%s/%s/%s" % (seed, family, number))
    tensors, attributes = make(rng, version, kind, granularity)
    for tensor in tensors:
        stride_free = tensor.name + ".strides" not in attributes
        assert not stride_free or len(tensor.raw) == bytes_of(tensor.datatype,
                                                              count_of(tensor.shape))
    return Case("%s/%d" % (family, number), model, str(version), kind, granularity, tensors,
                attributes)


def golden_cases():
    """Yields (case, output as (name, datatype, shape, raw)). The output is None if the server must
    refuse the case."""
    for line in (ROOT / "tests" / "data" / "golden_cases.jsonl").read_text().splitlines():
        golden = json.loads(line)
        attributes = dict(golden["attributes"])
        tensors = []
        for entry in golden["inputs"]:
            tensors.append(Tensor(entry["name"], entry["datatype"], entry["shape"],
                                  bytes.fromhex(entry["raw_hex"])))
            if "strides" in entry:
                attributes[entry["name"] + ".strides"] = entry["strides"]
        case = Case("golden/" + golden["id"], golden["model"], golden["version"],
                    tensors[0].datatype, "", tensors, attributes)
        want = None
        if "expect_error" not in golden:
            (output,) = golden["outputs"]
            want = (output["name"], output["datatype"], output["shape"],
                    bytes.fromhex(output["raw_hex"]))
        yield case, want
