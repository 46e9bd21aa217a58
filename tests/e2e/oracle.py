"""Computes the expected results of the operators, directly from their definitions.

Shares no code with kernels/. Slow, so for small tensors only.
"""
import itertools
import math
import struct

RANGES = {"UINT8": (0, 255), "INT8": (-128, 127)}


def fl32(value):
    """Rounds a double to binary32, to nearest even. A value that is too large becomes infinite.

    The sum, difference, product or quotient of two binary32 numbers, rounded to double and then to
    binary32, equals the single rounding that is wanted, because 53 >= 2 * 24 + 2.
    """
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def wrap32(value):
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def offset_of(index, shape):
    result = 0
    for position, size in zip(index, shape):
        result = result * size + position
    return result


def dequantize(x, shape, scale, zero_point, axis):
    """Computes DequantizeLinear 10 and 13. scale and zero_point have one element, or one for each
    slice."""
    result = []
    for index in itertools.product(*map(range, shape)):
        channel = index[axis] if len(scale) > 1 else 0
        zero = zero_point[channel if len(zero_point) > 1 else 0] if zero_point else 0
        difference = wrap32(x[offset_of(index, shape)] - zero)
        result.append(fl32(fl32(difference) * scale[channel]))
    return result


def quantize(x, shape, scale, zero_point, axis, limits):
    """Computes QuantizeLinear 10 and 13 of FP32, for scales that are not 0. Python's round() rounds
    ties to even."""
    result = []
    for index in itertools.product(*map(range, shape)):
        channel = index[axis] if len(scale) > 1 else 0
        zero = zero_point[channel if len(zero_point) > 1 else 0] if zero_point else 0
        quotient = fl32(x[offset_of(index, shape)] / scale[channel])
        quotient = max(min(quotient, 1e6), -1e6)
        result.append(min(max(round(quotient) + zero, limits[0]), limits[1]))
    return result


def geometry(sizes, kernel, attributes):
    """Returns (pads at the beginning, output sizes) for each spatial axis."""
    spatial = len(sizes)
    strides = attributes.get("strides", [1] * spatial)
    dilations = attributes.get("dilations", [1] * spatial)
    pads = attributes.get("pads", [0] * (2 * spatial))
    auto_pad = attributes.get("auto_pad", "NOTSET")
    begins, outputs = [], []
    for i in range(spatial):
        reach = dilations[i] * (kernel[i] - 1) + 1
        if auto_pad.startswith("SAME"):
            out = -(-sizes[i] // strides[i])
            total = max(0, (out - 1) * strides[i] + reach - sizes[i])
            begin = total // 2 if auto_pad == "SAME_UPPER" else (total + 1) // 2
        else:
            begin = pads[i]
            room = sizes[i] + pads[i] + pads[i + spatial] - reach
            if room < 0:
                raise ValueError("the kernel is larger than the padded input")
            out = room // strides[i] + 1
        begins.append(begin)
        outputs.append(out)
    return begins, outputs


def requantize(accumulated, x_scale, w_scale, y_scale, y_zero, y_type):
    low, high = RANGES[y_type]
    multiplier = fl32(fl32(x_scale * w_scale) / y_scale)
    value = fl32(fl32(accumulated) * multiplier)
    value = min(max(value, low - y_zero), high - y_zero)
    return round(value) + y_zero  # Python rounds ties to even


def convolve(case):
    """Computes QLinearConv. case: a dict with the inputs as (type, shape, numbers) and the
    attributes."""
    _, x_shape, x = case["x"]
    _, w_shape, w = case["w"]
    attributes = case["attributes"]
    spatial = len(x_shape) - 2
    group = attributes.get("group", 1)
    strides = attributes.get("strides", [1] * spatial)
    dilations = attributes.get("dilations", [1] * spatial)
    begins, outputs = geometry(x_shape[2:], w_shape[2:], attributes)
    x_zero = case["x_zero_point"][2][0]
    y_type, _, (y_zero,) = case["y_zero_point"]
    y_shape = [x_shape[0], w_shape[0]] + outputs
    result = []
    for index in itertools.product(*map(range, y_shape)):
        image, channel, place = index[0], index[1], index[2:]
        w_zero = pick(case["w_zero_point"][2], channel)
        first = channel // (w_shape[0] // group) * w_shape[1]
        total = case["B"][2][channel] if "B" in case else 0
        for tap in itertools.product(*map(range, w_shape[1:])):
            at = [place[i] * strides[i] - begins[i] + tap[i + 1] * dilations[i]
                  for i in range(spatial)]
            if all(0 <= at[i] < x_shape[i + 2] for i in range(spatial)):
                value = x[offset_of([image, first + tap[0]] + at, x_shape)] - x_zero
                total += value * (w[offset_of((channel,) + tap, w_shape)] - w_zero)
        result.append(requantize(wrap32(total), case["x_scale"][2][0],
                                 pick(case["w_scale"][2], channel), case["y_scale"][2][0], y_zero,
                                 y_type))
    return y_shape, result


def pick(values, channel):
    return values[channel] if len(values) > 1 else values[0]
