"""Computes the values that the clients expect, with ONNX Runtime and onnx's reference evaluator.

Run it where the Python packages onnx and onnxruntime are installed, such as after `make
conformance`: build/conformance/venv/bin/python tests/clients/expected.py
"""
import numpy as np
import onnx
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info
from onnx.reference import ReferenceEvaluator
from onnxruntime import InferenceSession


def evaluate(operator, opset, inputs, y_type, y_rank, **attributes):
    """Prints y, after both have agreed on every bit of it."""
    node = make_node(operator, list(inputs), ["y"], **attributes)
    graph = make_graph(
        [node], "client",
        [make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype),
                                value.shape) for name, value in inputs.items()],
        [make_tensor_value_info("y", y_type, [None] * y_rank)])
    model = make_model(graph, opset_imports=[make_opsetid("", opset)], ir_version=8)
    y = InferenceSession(model.SerializeToString()).run(None, inputs)[0]
    reference = ReferenceEvaluator(model).run(None, inputs)[0]
    if (y.dtype, y.tobytes()) != (reference.dtype, reference.tobytes()):
        raise SystemExit("%s: ONNX Runtime and onnx differ:\n%s\n%s" % (operator, y, reference))
    print(operator, list(y.shape), y.ravel().tolist())


evaluate("QLinearConv", 10, {
    "x": np.array([37 * i % 256 for i in range(32)], np.uint8).reshape(1, 2, 4, 4),
    "x_scale": np.array(0.02, np.float32),
    "x_zero_point": np.array(100, np.uint8),
    "w": np.array([5 * i % 17 - 8 for i in range(54)], np.int8).reshape(3, 2, 3, 3),
    "w_scale": np.array([0.5, 0.25, 0.1], np.float32),
    "w_zero_point": np.array(1, np.int8),
    "y_scale": np.array(0.2, np.float32),
    "y_zero_point": np.array(120, np.uint8),
    "B": np.array([100, -200, 300], np.int32),
}, onnx.TensorProto.UINT8, 4, pads=[1, 0, 0, 1], strides=[2, 1])
evaluate("DequantizeLinear", 19, {
    "x": np.array([[0, 128, 255], [127, 128, 129]], np.uint8),
    "x_scale": np.array([0.5, np.inf], np.float32),
    "x_zero_point": np.array([128, 128], np.uint8),
}, onnx.TensorProto.FLOAT, 2, axis=0)
