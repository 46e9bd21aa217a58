"""Computes the expected outputs, with ONNX Runtime, onnx's reference evaluator, TensorFlow, and the
written rules.

An oracle takes a case and returns (its name, output datatype, shape, raw bytes).
"""
import ctypes
import dataclasses
import os
import pickle
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "e2e"))

# Use TensorFlow's own kernels: oneDNN's compute differently and lack some types. TensorFlow reads
# this variable when it is imported.
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np

import cases
from elements import BITS, bytes_of, count_of, limits, pack, to_numbers, to_raw, unpack
from quantd import Tensor

ONNX_NUMBERS = {"FP32": 1, "UINT8": 2, "INT8": 3, "UINT16": 4, "INT16": 5, "INT32": 6, "FP16": 10,
                "BF16": 16, "FP8E4M3FN": 17, "FP8E4M3FNUZ": 18, "FP8E5M2": 19, "FP8E5M2FNUZ": 20,
                "UINT4": 21, "INT4": 22, "FP4E2M1": 23, "FP8E8M0": 24, "UINT2": 25, "INT2": 26}
SLOTS = {cases.DEQUANTIZE: ["x", "x_scale", "x_zero_point"],
         cases.QUANTIZE: ["x", "y_scale", "y_zero_point"],
         cases.CONV: ["x", "x_scale", "x_zero_point", "w", "w_scale", "w_zero_point", "y_scale",
                      "y_zero_point", "B"]}
ONNX_NAMES = {number: name for name, number in ONNX_NUMBERS.items()}


class Unsupported(Exception):
    """The oracle does not implement this case."""


# The type names of NumPy and of ml_dtypes.
ARRAY_TYPES = {"float32": "FP32", "float16": "FP16", "bfloat16": "BF16", "uint8": "UINT8",
               "int8": "INT8", "uint16": "UINT16", "int16": "INT16", "int32": "INT32",
               "int64": "INT64", "bool": "BOOL", "uint4": "UINT4", "int4": "INT4",
               "uint2": "UINT2", "int2": "INT2", "float4_e2m1fn": "FP4E2M1",
               "float8_e4m3fn": "FP8E4M3FN", "float8_e4m3fnuz": "FP8E4M3FNUZ",
               "float8_e5m2": "FP8E5M2", "float8_e5m2fnuz": "FP8E5M2FNUZ"}


def out(name, array):
    datatype = ARRAY_TYPES[array.dtype.name]
    raw = array.tobytes()
    if BITS[datatype] < 8:
        raw = pack(datatype, [byte & ((1 << BITS[datatype]) - 1) for byte in raw])
    return name, datatype, list(array.shape), raw


# ---- The oracles that run ONNX models --------------------------------------------------------


def onnx_model(case):
    """Returns a model of one node. Its inputs are initializers, so they may have any element type.
    """
    from onnx import helper
    attributes = {}
    for name, value in case.attributes.items():
        is_name = name in ("output_dtype", "precision") and isinstance(value, str)
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
    if isinstance(number, str) or number != 0:
        return ONNX_NUMBERS.get(number, number)
    if case.model == cases.QUANTIZE:
        zero = case.tensor("y_zero_point")
        return ONNX_NUMBERS[zero.datatype if zero else "UINT8"]
    return ONNX_NUMBERS[case.tensor("x_scale").datatype]


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
        # Without this entry, CPUs without VNNI sum pairs of products in 16 bits, which saturates.
        self.options.add_session_config_entry("session.x64quantprecision", "1")

    def run(self, case):
        try:
            session = self.library.InferenceSession(onnx_model(case).SerializeToString(),
                                                    self.options,
                                                    providers=["CPUExecutionProvider"])
            return self.read(session, ONNX_NAMES[output_number(case)])
        except Exception as error:  # ONNX Runtime's exceptions have no common class
            raise Unsupported(str(error)) from None

    def read(self, session, datatype):
        """Reads the output's bytes in place, because not all types can become arrays. Clears the
        pad bits, which may have any value."""
        value = session.run_with_ort_values(None, {})[0]
        shape = list(value.shape())
        raw = ctypes.string_at(value.data_ptr(), bytes_of(datatype, count_of(shape)))
        return self.name, datatype, shape, pack(datatype, unpack(datatype, raw, count_of(shape)))


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
    """Asks ONNX Runtime. If it does not implement the case, asks onnx's reference, or applies the
    written rule where the reference is known to be wrong."""

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
            # The reference computes the minimum of the zero points, and fails if there are none.
            tensors = [tensor for tensor in case.tensors if tensor is not zero]
            case = dataclasses.replace(case, tensors=tensors)
        return self.reference.run(case)


def written_int32(case):
    """Applies the written rule: the difference wraps, is rounded to float32, is multiplied there,
    and is then rounded to the output type. The reference subtracts in floating point, and with
    NumPy 2 continues in float64."""
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
    """Returns the scale or zero point expanded to one value for each element of x."""
    if case.granularity == "per-tensor":
        return np.broadcast_to(array.reshape(()), shape)
    axis = case.attributes.get("axis", 1) % len(shape)
    if case.granularity == "per-axis":
        return np.broadcast_to(array.reshape([-1] + [1] * (len(shape) - axis - 1)), shape)
    index = np.arange(shape[axis]) // case.attributes["block_size"]
    return np.take(array, index, axis)


class Quantize:
    """Asks ONNX Runtime. If it does not implement the case, asks onnx's reference, and tells it the
    type of the division. Applies the written rule to integer outputs with quotients that the
    reference converts by chance."""

    def __init__(self):
        self.runtime, self.reference = Runtime(), Reference()

    def run(self, case):
        if count_of(case.tensor("x").shape) == 0:  # empty blocks crash ONNX Runtime
            return ("written rule", ONNX_NAMES[output_number(case)], case.tensor("x").shape, b"")
        try:
            return self.runtime.run(plain(case))
        except Unsupported:
            pass
        for name in ("y_zero_point", "y_scale"):
            tensor = case.tensor(name)
            if tensor is not None and tensor.shape == [1] and case.granularity == "per-tensor":
                # The reference would divide by a NumPy scalar, which promotes types differently.
                case = dataclasses.replace(case, tensors=[
                    Tensor(t.name, t.datatype, [], t.raw) if t is tensor else t
                    for t in case.tensors])
        number = precision_number(case)
        if number:
            case = dataclasses.replace(case, attributes=dict(case.attributes, precision=number))
        if is_integer(case) and overflows(case):
            return written_quantize(case)
        return self.reference.run(case)


def is_integer(case):
    return not ONNX_NAMES[output_number(case)].startswith("FP")


def precision_number(case):
    """Returns the type of the division that the definition names. 0: it names none."""
    number = case.attributes.get("precision", 0)
    number = ONNX_NUMBERS.get(number, number)
    scale = case.tensor("y_scale").datatype
    if number or int(case.version) < 23 or scale not in cases.OUTPUT_NUMBERS:
        return number
    return ONNX_NUMBERS[scale]


def quotients(case):
    """Returns x / y_scale as float64, rounded as the division rounds. Before opset 23 ONNX Runtime
    divides FP16 in FP32."""
    from ml_dtypes import bfloat16, float8_e8m0fnu
    kinds = {"FP32": np.float32, "FP16": np.float16, "BF16": bfloat16, "INT32": np.int32,
             "FP8E8M0": float8_e8m0fnu}
    x, scale = (np.frombuffer(case.tensor(name).raw, kinds[case.tensor(name).datatype]).reshape(
        case.tensor(name).shape) for name in ("x", "y_scale"))
    number = precision_number(case)
    if number:
        kind = kinds[ONNX_NAMES[number]]
    elif np.int32 in (x.dtype, scale.dtype):
        kind = np.float64
    else:
        kind = bfloat16 if x.dtype == bfloat16 == scale.dtype else np.float32
    with np.errstate(all="ignore"):
        scale = spread(scale.astype(kind), x.shape, case)
        return (x.astype(kind) / scale).astype(np.float64)


def written_quantize(case):
    """Applies the written rule: saturate(round(x / y_scale) + y_zero_point). A NaN becomes the
    smallest value, as in ONNX Runtime since 1.32."""
    kind, zero = ONNX_NAMES[output_number(case)], case.tensor("y_zero_point")
    low, high = limits(kind)
    sums = np.rint(quotients(case))
    if zero is not None:
        numbers = np.array(to_numbers(kind, zero.raw, count_of(zero.shape)), np.float64)
        sums = sums + spread(numbers.reshape(zero.shape), sums.shape, case)
    y = np.clip(np.nan_to_num(sums, nan=low, posinf=high, neginf=low), low, high)
    return "written rule", kind, list(y.shape), to_raw(kind, [int(value) for value in y.flat])


def plain(case):
    """Returns the case with one scale for the whole tensor if its row is a single block, which ONNX
    Runtime refuses."""
    if case.tensor("y_scale").shape != [1] or "block_size" not in case.attributes:
        return case
    attributes = {name: value for name, value in case.attributes.items() if name != "block_size"}
    return dataclasses.replace(case, attributes=attributes)


def overflows(case):
    """Tells whether some quotient does not fit into 32 bits."""
    return not np.all(np.abs(quotients(case)) < 2.0 ** 31 - 1)


# ---- The previous release --------------------------------------------------------------------

# Known changes in ONNX Runtime's answers: operator, release, what changed, and which cases it
# affects. If the previous release differs in any other case, that is a failure.
DIFFERENCES = [
    (cases.QUANTIZE, "1.32", "reads `precision`; before, it divided in FP32",
     lambda case: case.attributes.get("precision", 0) not in (0, 1, "FP32")),
    (cases.QUANTIZE, "1.32", "since opset 23 divides FP16 by FP16 in FP16; before, in FP32",
     lambda case: precision_number(case) == ONNX_NUMBERS["FP16"]),
    (cases.QUANTIZE, "1.32", "saturates infinity and quotients beyond 32 bits, and makes the least "
     "of a NaN; before, a cast that C++ leaves undefined made INT32_MIN of most",
     lambda case: is_integer(case) and overflows(case)),
]


def known_difference(case):
    """Returns (operator, since, what) of the known change that affects the case. None: no known
    change does."""
    return next(((model, since, what) for model, since, what, holds in DIFFERENCES
                 if model == case.model and holds(case)), None)


class Previous:
    """Asks the previous release of ONNX Runtime, in a process of its own, because one process
    cannot load both. run() returns None if that release does not implement the case."""

    def __init__(self, folder):
        environment = dict(os.environ, PYTHONPATH=str(folder))
        self.process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, env=environment)
        self.name = pickle.load(self.process.stdout)

    def run(self, case):
        if case.model == cases.QUANTIZE and count_of(case.tensor("x").shape) == 0:
            return None
        pickle.dump(case, self.process.stdin)
        self.process.stdin.flush()
        return pickle.load(self.process.stdout)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def serve():
    """Runs the process that Previous talks to."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # other prints go to standard error
    runtime, conv = Runtime(), Conv.__new__(Conv)
    conv.runtime, conv.second_opinion = runtime, lambda *_: None
    pickle.dump(runtime.name, answers)
    answers.flush()
    while True:
        try:
            case = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = (conv if case.model == cases.CONV else runtime).run(
                plain(case) if case.model == cases.QUANTIZE else case)[1:]
        except Unsupported:
            answer = None
        pickle.dump(answer, answers)
        answers.flush()


class Conv:
    """Asks ONNX Runtime for an equal call that it implements.

    ONNX Runtime has kernels for three of the eight combinations of types. Adding 128 to an 8-bit
    tensor and to its zero point changes no result, so all tensors become UINT8. SAME padding
    becomes explicit pads, by the operator's definition, because ONNX Runtime refuses dilations with
    SAME and does not clamp negative padding.

    onnx's reference is only a second opinion: it adds the zero point before it rounds, in float64,
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
    """Computes with NumPy, from the documentation, because DirectML does not run here: widen,
    subtract exactly, round to float32, multiply there, round to the output type."""

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


OPERATORS = {"DequantizeLinear": (cases.DEQUANTIZE, 25),
             "QuantizeLinear": (cases.QUANTIZE, 25), "QLinearConv": (cases.CONV, 10)}


def node_cases():
    """Yields (case, want) for each case of these operators in onnx's node tests, with want as in
    golden_cases, or (name, the type that the server does not know).

    For an opset that is newer than the server knows, the case asks for the newest that it knows:
    DequantizeLinear 28 differs from 25 only in two more element types.
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
                      numpy_helper.from_array(np.asarray(value)) for value in inputs + outputs]
            unknown = [TensorProto.DataType.Name(proto.data_type) for proto in protos
                       if proto.data_type not in ONNX_NAMES]
            if unknown:
                yield test.name, unknown[0]
                continue
            *protos, y = protos
            tensors = [proto_tensor(name, proto) for name, proto in zip(SLOTS[model], protos)]
            case = cases.Case("node/" + test.name, model, str(min(opset, newest)),
                              tensors[0].datatype, "opset %d" % opset, tensors,
                              node_attributes(node))
            y = proto_tensor("y", y)
            yield case, (y.name, y.datatype, y.shape, y.raw)


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
        # int32_data holds integers, the packed bytes of sub-byte types, and the codes of float8.
        size = max(1, BITS[datatype] // 8)
        raw = b"".join((value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
                       for value in proto.int32_data)
    assert len(raw) == bytes_of(datatype, count_of(shape)), name
    return Tensor(name, datatype, shape, raw)


if __name__ == "__main__":
    sys.modules["oracles"] = sys.modules["__main__"]
    serve()
