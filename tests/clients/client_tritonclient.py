"""A convolution in binary and a dequantization in JSON, with Triton's client:
client_tritonclient.py URL
"""
import sys

import numpy as np
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

if len(sys.argv) != 2:
    sys.exit("usage: client_tritonclient.py URL")
url = sys.argv[1]


def infer(client, model, inputs, parameters, binary):
    """Returns y. `inputs`: name -> NumPy array, whose datatype and shape the input gets."""
    tensors = []
    for name, array in inputs.items():
        tensors.append(InferInput(name, array.shape, np_to_triton_dtype(array.dtype)))
        tensors[-1].set_data_from_numpy(array, binary_data=binary)
    output = InferRequestedOutput("y", binary_data=binary)
    answer = client.infer(model, tensors, outputs=[output], parameters=parameters)
    return answer.as_numpy("y")


def convolve(client):
    y = infer(client, "onnx.QLinearConv", {
        "x": np.array([37 * i % 256 for i in range(32)], np.uint8).reshape(1, 2, 4, 4),
        "x_scale": np.array(0.02, np.float32),
        "x_zero_point": np.array(100, np.uint8),
        "w": np.array([5 * i % 17 - 8 for i in range(54)], np.int8).reshape(3, 2, 3, 3),
        "w_scale": np.array([0.5, 0.25, 0.1], np.float32),
        "w_zero_point": np.array(1, np.int8),
        "y_scale": np.array(0.2, np.float32),
        "y_zero_point": np.array(120, np.uint8),
        "B": np.array([100, -200, 300], np.int32),
    }, {"pads": "1,0,0,1", "strides": "2,1"}, binary=True)
    check("convolution", y, np.array([[[[56, 86, 203], [46, 62, 109]],
                                       [[146, 90, 92], [138, 54, 95]],
                                       [[127, 125, 118], [114, 131, 116]]]], np.uint8))


def dequantize(client):
    y = infer(client, "onnx.DequantizeLinear", {
        "x": np.array([[0, 128, 255], [127, 128, 129]], np.uint8),
        "x_scale": np.array([0.5, np.inf], np.float32),
        "x_zero_point": np.array([128, 128], np.uint8),
    }, {"axis": 0}, binary=False)
    check("dequantization", y, np.array([[-64, 0, 63.5], [-np.inf, np.nan, np.inf]], np.float32))


def check(what, y, expected):
    same = y.dtype == expected.dtype and np.array_equal(y, expected, equal_nan=y.dtype.kind == "f")
    if not same:
        sys.exit(f"{what}: expected {expected.tolist()}, got {y.tolist()}")
    print(f"{what}: {y.tolist()}")


try:
    with InferenceServerClient(url.removeprefix("http://")) as client_of_url:
        convolve(client_of_url)
        dequantize(client_of_url)
except (InferenceServerException, OSError, ValueError) as error:
    sys.exit(f"{url}: {error}".replace("\n", " "))
