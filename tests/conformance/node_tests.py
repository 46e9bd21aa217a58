"""The tests of single operators that the onnx package has, as files for the server to load.

A test is taken if the table of api_schema/loading.md has all operators of its graph.
"""
import dataclasses
import re

import numpy as np

import operators
import oracles
from elements import BITS
from quantd import ROOT, Tensor

# Types of tensors that oracles.py does not need -> their names in ONNX.
MORE_NAMES = {7: "INT64", 9: "BOOL", 12: "UINT32"}
# The newest opset that ONNX Runtime has, if it refuses a test's. The operators here are the same.
NEWEST_OPSET = 25
FUNCTIONS = "functions of several nodes"

# What quantd refuses, by its text, and what api_schema/loading.md says of it. Any other refusal is
# a failure.
LIMITS = (("only on UINT8 or INT8 behind DequantizeLinear",
           "Conv, Gemm and MatMul only where a QDQ file quantizes them"),
          ("for version [0-9]+ of [a-zA-Z.]+, got|: to: expected", "other types"),
          ("(this input, got none|at most [0-9]+ inputs)", "two inputs"),
          ("fmod: expected 0", "not fmod"),
          ("count_include_pad: expected 0 with ceil_mode", "not count_include_pad with ceil_mode"),
          ("does not compute this output|expected 1 to 1 outputs|training_mode: expected false",
           "for inference, and no mask and no Indices"),
          ("axes: expected the last axes", "means over the last axes"),
          ("axes: expected a constant or an input", "means over constant axes"),
          ("pads: expected a constant, or a value that follows from shapes", "planned inputs"),
          ("one exponent", "one exponent"),
          ("expected the output of an operator", "no constants as outputs"),
          ("onnx.Resize.: (mode|antialias|coordinate_transformation_mode|X): expected",
           "Resize to the nearest element, or linear of 8 bits and FP32"))

# Tests of which ONNX Runtime, and so quantd, computes something else, and what.
OTHERS = {"test_resize_downsample_scales_linear_align_corners":
          "ONNX Runtime's bytes: it aligns corners by y's size, and the test by the size times the "
          "scale, which is no whole number"}


@dataclasses.dataclass
class Test:
    name: str
    operator: str  # of the node, or FUNCTIONS
    model: object
    unknown: str = None  # values that quantd does not have: nothing is asked
    inputs: list = None  # of Tensor
    wants: list = None   # of (name, datatype, shape, raw)
    tolerance: tuple = None  # the test's own: relative and absolute


def known_operators():
    """Returns the pairs (domain, operator) of the table."""
    found, domain = set(), ""
    for line in (ROOT / "api_schema" / "loading.md").read_text().splitlines():
        row = re.match(r"\| (ONNX|com\.microsoft|) ?\| (\w+) \| \d", line)
        if row:
            domain = row.group(1) or domain
            found.add(("" if domain == "ONNX" else domain, row.group(2)))
    return found


def tests():
    """Yields all tests, in the order of their operators and names; functions come last."""
    from onnx.backend.test.case.node import collect_testcases
    known = known_operators() | {("", "Constant")}
    with np.errstate(all="ignore"):
        found = collect_testcases(None)
    for test in sorted(found, key=lambda test: (operator(test) == FUNCTIONS, operator(test),
                                                test.name)):
        if any((node.domain, node.op_type) not in known for node in test.model.graph.node):
            continue
        for inputs, outputs in test.data_sets:
            yield made(test, operator(test), inputs, outputs)


def operator(test):
    nodes = test.model.graph.node
    return FUNCTIONS if len(nodes) > 1 else nodes[0].op_type


def made(test, name, inputs, outputs):
    graph = test.model.graph
    result = Test(test.name, name, test.model, tolerance=(test.rtol, test.atol))
    try:
        pairs = [tensor(value.name, array)
                 for value, array in zip([*graph.input, *graph.output], inputs + outputs)]
    except LookupError as error:
        result.unknown = str(error.args[0])
        return result
    result.inputs = pairs[:len(inputs)]
    result.wants = [(item.name, item.datatype, item.shape, item.raw)
                    for item in pairs[len(inputs):]]
    return result


def tensor(name, value):
    """Raises LookupError for types that quantd does not have."""
    from onnx import TensorProto, numpy_helper
    if isinstance(value, (list, dict)) or value is None:
        raise LookupError("sequences or optional values")
    proto = value if hasattr(value, "data_type") else numpy_helper.from_array(np.asarray(value))
    if not hasattr(proto, "data_type"):
        raise LookupError("sequences or optional values")
    if proto.data_type in oracles.ONNX_NAMES and proto.data_type not in (1, *MORE_NAMES):
        return oracles.proto_tensor(name, proto)
    if proto.data_type != 1 and proto.data_type not in MORE_NAMES:
        raise LookupError(TensorProto.DataType.Name(proto.data_type))
    return operators.tensor(name, numpy_helper.to_array(proto))


def explained(text):
    """Returns what is said of a refusal, or None."""
    return next((said for pattern, said in LIMITS if re.search(pattern, text)), None)


def judged(judge, test):
    """Returns the right outputs, and who says so: ONNX Runtime or, if it refuses, the test."""
    import onnx
    import onnxruntime
    kinds = {name: np.dtype(kind) for kind, name in operators.NAMES.items()}
    opsets = (None, NEWEST_OPSET)
    if any(item.datatype not in kinds for item in test.inputs):
        opsets = ()
    for opset in opsets:
        feed = {item.name: np.frombuffer(item.raw, kinds[item.datatype]).reshape(item.shape)
                for item in test.inputs}
        model = onnx.ModelProto.FromString(test.model.SerializeToString())
        for entry in model.opset_import:
            entry.version = entry.version if opset is None or entry.domain else opset
        results, _ = judge.compute(model.SerializeToString(), operators.level(test.operator), feed,
                                   [want[0] for want in test.wants])
        if results is not None:
            return results, "ONNX Runtime " + onnxruntime.__version__
    return test.wants, "onnx " + onnx.__version__


def is_near(test, got):
    """Tells whether outputs are within the test's tolerance."""
    for (_, datatype, shape, raw), (_, other, other_shape, expected) in zip(got, test.wants):
        if (datatype, shape) != (other, other_shape):
            return False
        if datatype not in ("FP32", "FP16"):
            if raw != expected:
                return False
            continue
        kind = np.float32 if datatype == "FP32" else np.float16
        if not np.allclose(np.frombuffer(raw, kind), np.frombuffer(expected, kind), *test.tolerance,
                           equal_nan=True):
            return False
    return True
