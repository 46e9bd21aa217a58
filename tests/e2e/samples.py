"""Requests that many tests send: one small dequantization and one small convolution."""
from quantd import Tensor, json_request

DEQUANTIZE = "onnx.DequantizeLinear"
QUANTIZE = "onnx.QuantizeLinear"
CONV = "onnx.QLinearConv"

# y = (x - 128) * 0.5
DEQUANTIZED = [-64, 0, 0.5, 63.5]


def dequantize_tensors():
    return [Tensor.of("x", "UINT8", [4], [0, 128, 129, 255]),
            Tensor.of("x_scale", "FP32", [], [0.5]),
            Tensor.of("x_zero_point", "UINT8", [], [128])]


def dequantize_json(**more):
    """Returns the request as a dict, which the caller may change."""
    return json_request(dequantize_tensors(), **more)


def spoiled(which, /, **fields):
    """Returns dequantize_json with some fields of one input replaced; None removes a field."""
    request = dequantize_json()
    for tensor in request["inputs"]:
        if tensor["name"] == which:
            for field, value in fields.items():
                if value is None:
                    del tensor[field]
                else:
                    tensor[field] = value
    return request


def conv_tensors(x_numbers, shape, w_numbers, w_shape):
    """Returns the tensors of a UINT8 x INT8 -> UINT8 convolution with all scales 1 and all zero
    points 0."""
    return [Tensor.of("x", "UINT8", shape, x_numbers),
            Tensor.of("x_scale", "FP32", [], [1]),
            Tensor.of("x_zero_point", "UINT8", [], [0]),
            Tensor.of("w", "INT8", w_shape, w_numbers),
            Tensor.of("w_scale", "FP32", [], [1]),
            Tensor.of("w_zero_point", "INT8", [], [0]),
            Tensor.of("y_scale", "FP32", [], [1]),
            Tensor.of("y_zero_point", "UINT8", [], [0])]
