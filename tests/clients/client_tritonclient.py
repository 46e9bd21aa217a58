"""A convolution in binary, a dequantization in JSON, and classes in both, with Triton's client:
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


def classify(client):
    """Asks for the two greatest elements of each row."""
    x = InferInput("x", [2, 4], "UINT8")
    x.set_data_from_numpy(np.array([[0, 128, 129, 255], [7, 9, 9, 8]], np.uint8))
    scale = InferInput("x_scale", [], "FP32")
    scale.set_data_from_numpy(np.array(0.5, np.float32))
    for binary in (True, False):
        output = InferRequestedOutput("y", binary_data=binary, class_count=2)
        y = client.infer("onnx.DequantizeLinear", [x, scale], outputs=[output]).as_numpy("y")
        if binary:
            y = np.char.decode(y.astype(np.bytes_))
        compare("classes", y.astype(np.str_), np.array([["127.500000:3", "64.500000:2"],
                                                        ["4.500000:1", "4.500000:2"]]))


def compare(what, y, expected):
    same = y.dtype == expected.dtype and np.array_equal(y, expected, equal_nan=y.dtype.kind == "f")
    if not same:
        sys.exit(f"{what}: expected {expected.tolist()}, got {y.tolist()}")


def check(what, y, expected):
    """Compares y, and prints it. Every client prints these two lines, which run.py compares."""
    compare(what, y, expected)
    print(f"{what}: {y.tolist()}")


try:
    with InferenceServerClient(url.removeprefix("http://")) as client_of_url:
        convolve(client_of_url)
        dequantize(client_of_url)
        classify(client_of_url)
except (InferenceServerException, OSError, ValueError) as error:
    sys.exit(f"{url}: {error}".replace("\n", " "))
