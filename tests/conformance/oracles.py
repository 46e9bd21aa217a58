"""What must come out: ONNX Runtime, onnx's reference evaluator, TensorFlow, and the written rules.

An oracle takes a case and gives (its name, output datatype, shape, raw bytes).
"""
import dataclasses
import os

# TensorFlow's own kernels: oneDNN's have other arithmetic and not all types. Read at import.
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np

import cases
from elements import bytes_of, count_of
from quantd import Tensor

ONNX_NUMBERS = {"FP32": 1, "UINT8": 2, "INT8": 3, "UINT16": 4, "INT16": 5, "INT32": 6, "FP16": 10,
                "BF16": 16, "FP8E4M3FN": 17, "FP8E4M3FNUZ": 18, "FP8E5M2": 19, "FP8E5M2FNUZ": 20,
                "UINT4": 21, "INT4": 22, "FP4E2M1": 23, "FP8E8M0": 24, "UINT2": 25, "INT2": 26}
SLOTS = {cases.DEQUANTIZE: ["x", "x_scale", "x_zero_point"],
         cases.CONV: ["x", "x_scale", "x_zero_point", "w", "w_scale", "w_zero_point", "y_scale",
                      "y_zero_point", "B"]}
ONNX_NAMES = {number: name for name, number in ONNX_NUMBERS.items()}


class Unsupported(Exception):
    """The oracle does not implement this case."""


def out(name, array):
    datatype = {"float32": "FP32", "float16": "FP16", "bfloat16": "BF16", "uint8": "UINT8",
                "int8": "INT8"}[array.dtype.name]
    return name, datatype, list(array.shape), array.tobytes()


# ---- The two that take ONNX models -----------------------------------------------------------


def onnx_model(case):
    """One node; its inputs are initializers, so that any element type gets in."""
    from onnx import helper
    attributes = {}
    for name, value in case.attributes.items():
        is_name = name == "output_dtype" and isinstance(value, str)
        attributes[name] = ONNX_NUMBERS[value] if is_name else value
    given = {tensor.name for tensor in case.tensors}
    names = [slot for slot in SLOTS[case.model] if slot in given]
    node = helper.make_node(case.model.split(".")[1], names, ["y"], **attributes)
    constants = [helper.make_tensor(tensor.name, ONNX_NUMBERS[tensor.datatype], tensor.shape,
                                    tensor.raw, raw=True) for tensor in case.tensors]
    result = helper.make_tensor_value_info("y", output_number(case), None)
    graph = helper.make_graph([node], "case", [], [result], constants)
    opset = 21 if case.model == cases.CONV else int(case.version)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=13)


def output_number(case):
    if case.model == cases.CONV:
        return ONNX_NUMBERS[case.tensor("y_zero_point").datatype]
    number = case.attributes.get("output_dtype", 0)
    return ONNX_NUMBERS[number if isinstance(number, str) else
                        ONNX_NAMES.get(number, case.tensor("x_scale").datatype)]


class Runtime:
    def __init__(self):
        import onnxruntime
        self.library = onnxruntime
        self.name = "ONNX Runtime " + onnxruntime.__version__
        self.options = onnxruntime.SessionOptions()
        self.options.graph_optimization_level = (
            onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)
        self.options.intra_op_num_threads = 1
        self.options.log_severity_level = 4
        # Without it, CPUs that have no VNNI sum pairs in 16 bits and saturate.
        self.options.add_session_config_entry("session.x64quantprecision", "1")

    def run(self, case):
        try:
            session = self.library.InferenceSession(onnx_model(case).SerializeToString(),
                                                    self.options,
                                                    providers=["CPUExecutionProvider"])
            return out(self.name, session.run(None, {})[0])
        except Exception as error:  # its exceptions have no class of their own
            raise Unsupported(str(error)) from None


class Reference:
    def __init__(self):
        import onnx
        import onnx.reference
        self.library = onnx.reference
        self.name = "onnx reference " + onnx.__version__

    def run(self, case):
        try:
            with np.errstate(all="ignore"):
                return out(self.name, self.library.ReferenceEvaluator(onnx_model(case)).run(
                    None, {})[0])
        except Exception as error:
            raise Unsupported(str(error)) from None


# ---- Families --------------------------------------------------------------------------------


class Dequantize:
    """ONNX Runtime; where it does not implement the case, onnx's reference; and where that one is
    known to be wrong, the written rule."""

    def __init__(self):
        self.runtime, self.reference = Runtime(), Reference()

    def run(self, case):
        try:
            return self.runtime.run(case)
        except Unsupported:
            pass
        zero = case.tensor("x_zero_point")
        if case.kind == "INT32" and zero is not None:
            return written_int32(case)
        if zero is not None and not zero.raw:
            # No elements, and yet the reference wants to see the least of them.
            tensors = [tensor for tensor in case.tensors if tensor is not zero]
            case = dataclasses.replace(case, tensors=tensors)
        return self.reference.run(case)


def written_int32(case):
    """The reference subtracts in floating point, and with NumPy 2 goes on in float64. Written: the
    difference wraps, is rounded to float32, multiplied there, and then rounded to the output."""
    from ml_dtypes import bfloat16, float8_e8m0fnu
    kinds = {"FP32": np.float32, "FP16": np.float16, "BF16": bfloat16, "FP8E8M0": float8_e8m0fnu}
    x = np.frombuffer(case.tensor("x").raw, np.int32).reshape(case.tensor("x").shape)
    scale = case.tensor("x_scale")
    s = np.frombuffer(scale.raw, kinds[scale.datatype]).astype(np.float32).reshape(scale.shape)
    z = np.frombuffer(case.tensor("x_zero_point").raw, np.int32)
    z = z.reshape(case.tensor("x_zero_point").shape)
    with np.errstate(all="ignore"):
        y = (x - spread(z, x.shape, case)).astype(np.float32) * spread(s, x.shape, case)
        result = y.astype(kinds[ONNX_NAMES[output_number(case)]])
    return out("written rule", result)


def spread(array, shape, case):
    """Scale or zero point, one for each element of x."""
    if case.granularity == "per-tensor":
        return np.broadcast_to(array.reshape(()), shape)
    axis = case.attributes.get("axis", 1) % len(shape)
    if case.granularity == "per-axis":
        return np.broadcast_to(array.reshape([-1] + [1] * (len(shape) - axis - 1)), shape)
    index = np.arange(shape[axis]) // case.attributes["block_size"]
    return np.take(array, index, axis)


class Conv:
    """ONNX Runtime, on an equal call that it implements.

    It has kernels for three of the eight combinations of types. Adding 128 to an 8-bit tensor and
    to its zero point changes no result, so all become UINT8. SAME padding goes as explicit pads, by
    the operator's definition: it refuses dilations there, and does not clamp negative padding.

    onnx's reference is a second opinion only: it adds the zero point before it rounds, in float64,
    and takes SAME padding from the wrong axes.
    """

    def __init__(self):
        self.runtime, self.reference = Runtime(), Reference()
        self.compared = self.differ = self.most = 0

    def second_opinion(self, case, raw, datatype):
        spatial = len(case.tensor("x").shape) - 2
        if case.attributes.get("auto_pad", "NOTSET") != "NOTSET" or (
                spatial != 2 and case.granularity != "per-tensor"):
            return
        try:
            _, _, _, other = self.reference.run(case)
        except Unsupported:
            return
        kind = datatype.lower()
        difference = np.abs(np.frombuffer(raw, kind).astype(int) -
                            np.frombuffer(other, kind).astype(int))
        self.compared += difference.size
        self.differ += np.count_nonzero(difference)
        self.most = max(self.most, difference.max(initial=0))

    def run(self, case):
        tensors = [shifted(tensor) if tensor.datatype == "INT8" else tensor
                   for tensor in case.tensors]
        attributes = dict(case.attributes)
        if attributes.get("auto_pad", "").startswith("SAME"):
            attributes["pads"] = same_pads(case)
            del attributes["auto_pad"]
        equal = dataclasses.replace(case, tensors=tensors, attributes=attributes)
        name, _, shape, raw = self.runtime.run(equal)
        y_type = case.tensor("y_zero_point").datatype
        if y_type == "INT8":
            raw = bytes(byte ^ 0x80 for byte in raw)
        self.second_opinion(case, raw, y_type)
        return name, y_type, shape, raw


def shifted(tensor):
    return Tensor(tensor.name, "UINT8", tensor.shape, bytes(byte ^ 0x80 for byte in tensor.raw))


def same_pads(case):
    sizes, kernel = case.tensor("x").shape[2:], case.tensor("w").shape[2:]
    begins, ends = [], []
    for i, size in enumerate(sizes):
        stride = case.attributes.get("strides", [1] * len(sizes))[i]
        dilation = case.attributes.get("dilations", [1] * len(sizes))[i]
        out_size = -(-size // stride)
        total = max(0, (out_size - 1) * stride + dilation * (kernel[i] - 1) + 1 - size)
        smaller, larger = total // 2, total - total // 2
        upper = case.attributes["auto_pad"] == "SAME_UPPER"
        begins.append(smaller if upper else larger)
        ends.append(larger if upper else smaller)
    return begins + ends


class DirectML:
    """No DirectML runs here: NumPy, from the documentation. Widen, subtract exactly, round to
    float32, multiply there, round to the output type."""

    name = "written rule (NumPy)"

    def run(self, case):
        difference = self.view(case, "InputTensor").astype(np.int64)
        if case.tensor("ZeroPointTensor") is not None:
            difference = difference - self.view(case, "ZeroPointTensor").astype(np.int64)
        scale = self.view(case, "ScaleTensor")
        with np.errstate(all="ignore"):
            y = difference.astype(np.float32) * scale.astype(np.float32)
            return out(self.name, y.astype(scale.dtype))

    @staticmethod
    def view(case, name):
        tensor = case.tensor(name)
        kind = np.dtype({"FP32": "f4", "FP16": "f2"}.get(tensor.datatype) or
                        tensor.datatype.lower())
        flat = np.frombuffer(tensor.raw, kind)
        strides = case.attributes.get(name + ".strides")
        if strides is None:
            return flat.reshape(tensor.shape)
        return np.lib.stride_tricks.as_strided(flat, tensor.shape,
                                               [kind.itemsize * stride for stride in strides])


class TensorFlow:
    def __init__(self):
        import tensorflow
        self.library = tensorflow
        tensorflow.config.threading.set_intra_op_parallelism_threads(1)
        self.name = "TensorFlow " + tensorflow.__version__
        self.kinds = {"UINT8": tensorflow.quint8, "INT8": tensorflow.qint8,
                      "UINT16": tensorflow.quint16, "INT16": tensorflow.qint16,
                      "INT32": tensorflow.qint32}

    def run(self, case):
        tf = self.library
        x, low, high = (np.frombuffer(tensor.raw, kind).reshape(tensor.shape)
                        for tensor, kind in zip(case.tensors, (case.kind.lower(), "f4", "f4")))
        attributes = dict(case.attributes)
        attributes["dtype"] = getattr(tf, attributes.get("dtype", "float32"))
        y = tf.raw_ops.Dequantize(input=tf.bitcast(tf.constant(x), self.kinds[case.kind]),
                                  min_range=tf.constant(low), max_range=tf.constant(high),
                                  **attributes)
        return out(self.name, y.numpy())


# ---- onnx's own test cases -------------------------------------------------------------------


OPERATORS = {"DequantizeLinear": (cases.DEQUANTIZE, 25), "QLinearConv": (cases.CONV, 10)}


def node_cases():
    """(case, want) for each DequantizeLinear and QLinearConv case of onnx's node tests, with want
    as in golden_cases; or (name, the type that the server does not know).

    A newer opset than the server knows is asked for as its newest: DequantizeLinear 28 differs from
    25 by nothing but two element types.
    """
    from onnx import TensorProto, numpy_helper
    from onnx.backend.test.case.node import collect_testcases
    with np.errstate(all="ignore"):
        found = collect_testcases(None)
    for test in found:
        node = test.model.graph.node[0]
        if node.op_type not in OPERATORS or len(test.model.graph.node) != 1:
            continue
        model, newest = OPERATORS[node.op_type]
        opset = max(entry.version for entry in test.model.opset_import)
        for inputs, outputs in test.data_sets:
            protos = [value if hasattr(value, "data_type") else
                      numpy_helper.from_array(np.asarray(value)) for value in inputs]
            unknown = [TensorProto.DataType.Name(proto.data_type) for proto in protos
                       if proto.data_type not in ONNX_NAMES]
            if unknown:
                yield test.name, unknown[0]
                continue
            tensors = [proto_tensor(name, proto) for name, proto in zip(SLOTS[model], protos)]
            case = cases.Case("node/" + test.name, model, str(min(opset, newest)),
                              tensors[0].datatype, "opset %d" % opset, tensors,
                              node_attributes(node))
            _, *want = out("", np.asarray(outputs[0]))
            yield case, ("y", *want)


def node_attributes(node):
    from onnx import helper
    values = {attribute.name: helper.get_attribute_value(attribute)
              for attribute in node.attribute}
    return {name: value.decode() if isinstance(value, bytes) else value
            for name, value in values.items()}


def proto_tensor(name, proto):
    datatype, shape = ONNX_NAMES[proto.data_type], list(proto.dims)
    if proto.HasField("raw_data"):
        raw = proto.raw_data
    else:
        # int32_data holds the packed bytes of sub-byte types, and the codes of float8.
        raw = bytes(byte & 0xff for byte in proto.int32_data)
    assert len(raw) == bytes_of(datatype, count_of(shape)), name
    return Tensor(name, datatype, shape, raw)
