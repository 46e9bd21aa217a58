"""A convolution in binary and a dequantization in JSON, with requests: client_requests.py URL"""
import json
import sys

import requests

if len(sys.argv) != 2:
    sys.exit("usage: client_requests.py URL")
url = sys.argv[1]
session = requests.Session()  # keeps the connection open


def infer(model, body, headers=None):
    answer = session.post(f"{url}/v2/models/{model}/infer", data=body, headers=headers, timeout=10)
    if answer.status_code != 200:
        sys.exit(f"{model}: HTTP {answer.status_code}: {answer.json()['error']}")
    return answer


def convolve():
    """Sends tensors as bytes after the JSON, little-endian and row by row, in the order of inputs.
    """
    x = bytes(37 * i % 256 for i in range(32))
    w = bytes((5 * i % 17 - 8) % 256 for i in range(54))
    header = json.dumps({
        "parameters": {"pads": [1, 0, 0, 1], "strides": [2, 1], "binary_data_output": True},
        "inputs": [
            {"name": "x", "datatype": "UINT8", "shape": [1, 2, 4, 4],
             "parameters": {"binary_data_size": len(x)}},
            {"name": "x_scale", "datatype": "FP32", "shape": [], "data": [0.02]},
            {"name": "x_zero_point", "datatype": "UINT8", "shape": [], "data": [100]},
            {"name": "w", "datatype": "INT8", "shape": [3, 2, 3, 3],
             "parameters": {"binary_data_size": len(w)}},
            {"name": "w_scale", "datatype": "FP32", "shape": [3], "data": [0.5, 0.25, 0.1]},
            {"name": "w_zero_point", "datatype": "INT8", "shape": [], "data": [1]},
            {"name": "y_scale", "datatype": "FP32", "shape": [], "data": [0.2]},
            {"name": "y_zero_point", "datatype": "UINT8", "shape": [], "data": [120]},
            {"name": "B", "datatype": "INT32", "shape": [3], "data": [100, -200, 300]}]}).encode()
    answer = infer("onnx.QLinearConv", header + x + w,
                   {"Inference-Header-Content-Length": str(len(header))})
    y = answer.content[int(answer.headers.get("Inference-Header-Content-Length", 0)):]
    check("convolution", list(y), [56, 86, 203, 46, 62, 109, 146, 90, 92,
                                   138, 54, 95, 127, 125, 118, 114, 131, 116])


def dequantize():
    answer = infer("onnx.DequantizeLinear", json.dumps({
        "parameters": {"axis": 0},
        "inputs": [
            {"name": "x", "datatype": "UINT8", "shape": [2, 3],
             "data": [[0, 128, 255], [127, 128, 129]]},
            {"name": "x_scale", "datatype": "FP32", "shape": [2], "data": [0.5, "Infinity"]},
            {"name": "x_zero_point", "datatype": "UINT8", "shape": [2], "data": [128, 128]}]}))
    check("dequantization", answer.json()["outputs"][0]["data"],
          [-64, 0, 63.5, "-Infinity", "NaN", "Infinity"])


def check(what, y, expected):
    if y != expected:
        sys.exit(f"{what}: expected {expected}, got {y}")
    print(f"{what}: {y}")


try:
    convolve()
    dequantize()
except requests.RequestException as error:
    sys.exit(f"{url}: {error}")
