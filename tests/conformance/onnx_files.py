"""ONNX files for the server to load, and what ONNX Runtime computes with them.

The files are made with the onnx package, in all the forms that its writers produce, and with ONNX
Runtime's own quantizer, from small networks of floats with random weights.
"""
import dataclasses
import logging
import tempfile
from pathlib import Path

import numpy as np

import oracles
from elements import BITS
from quantd import Tensor

KNOWN = ("QuantizeLinear", "QLinearConv", "DequantizeLinear")


@dataclasses.dataclass
class File:
    name: str
    model: object  # a ModelProto
    inputs: list   # of Tensor
    wants: list    # of (name, datatype, shape, raw)
    oracle: str


# ---- ONNX's node tests -----------------------------------------------------------------------


def node_files():
    """Yields the node tests' files unchanged. They have no constants, so all inputs come with the
    request."""
    import onnx
    from onnx import numpy_helper
    from onnx.backend.test.case.node import collect_testcases
    with np.errstate(all="ignore"):
        found = collect_testcases(None)
    for test in found:
        graph = test.model.graph
        if len(graph.node) != 1 or graph.node[0].op_type not in KNOWN:
            continue
        for inputs, outputs in test.data_sets:
            protos = [value if hasattr(value, "data_type") else
                      numpy_helper.from_array(np.asarray(value)) for value in inputs + outputs]
            if any(proto.data_type not in oracles.ONNX_NAMES for proto in protos):
                continue
            names = [value.name for value in [*graph.input, *graph.output]]
            tensors = [oracles.proto_tensor(*pair) for pair in zip(names, protos)]
            want = tensors.pop()
            yield File(test.name, test.model, tensors,
                       [(want.name, want.datatype, want.shape, want.raw)],
                       "onnx " + onnx.__version__)


# ---- ONNX Runtime ----------------------------------------------------------------------------


def random_array(dice, kind, shape):
    if kind == np.float32:
        return dice.normal(0, 2, shape).astype(kind)
    limits = np.iinfo(kind)
    return dice.integers(limits.min, limits.max, shape, kind, endpoint=True)


def random_feed(model, dice):
    """Returns name -> a random array, for each input of the model."""
    from onnx import helper
    constants = {constant.name for constant in model.graph.initializer}
    feed = {}
    for value in model.graph.input:
        if value.name in constants:
            continue
        tensor_type = value.type.tensor_type
        shape = [dim.dim_value or int(dice.integers(9, 13)) for dim in tensor_type.shape.dim]
        kind = helper.tensor_dtype_to_np_dtype(tensor_type.elem_type)
        feed[value.name] = random_array(dice, kind, shape)
    return feed


def judged(name, model, feed):
    """Returns the file with these inputs, and the outputs that ONNX Runtime computes from them."""
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # Otherwise some operators of INT8 between DequantizeLinear and QuantizeLinear run as floats.
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    outputs = session.run(None, feed)
    inputs = [Tensor(*oracles.out(key, array)) for key, array in feed.items()]
    wants = [oracles.out(value.name, array) for value, array in zip(session.get_outputs(), outputs)]
    return File(name, model, inputs, wants, "ONNX Runtime " + onnxruntime.__version__)


class Writer:
    """Writes one random chain. If the format leaves a choice, the dice decide."""

    def __init__(self, seed):
        self.dice = np.random.default_rng(seed)
        self.opset = int(self.dice.choice([10, 13, 19, 21]))
        self.nodes, self.initializers, self.inputs, self.outputs = [], [], [], []
        self.x_type = self.dice.choice([np.uint8, np.int8])
        self.channels = int(self.dice.integers(1, 6))

    def choose(self, *choices):
        return choices[self.dice.integers(len(choices))]

    def constant(self, name, array):
        """Adds a constant: an initializer, raw or as numbers, which may also be listed as an input,
        or a Constant node."""
        from onnx import helper
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        raw = self.choose(True, False)
        tensor = helper.make_tensor(name, kind, array.shape,
                                    array.tobytes() if raw else array.flatten(), raw=raw)
        form = self.choose("initializer", "initializer", "input", "Constant", "number")
        if form == "number" and array.dtype == np.float32 and self.opset >= 12:
            key, value = ("value_float", float(array)) if array.ndim == 0 else (
                "value_floats", [float(number) for number in array])
            self.nodes.append(helper.make_node("Constant", [], [name], **{key: value}))
        elif form == "Constant":
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        else:
            self.initializers.append(tensor)
            if form == "input":
                self.inputs.append(helper.make_tensor_value_info(name, kind, array.shape))
        return name

    def scale(self, name, shape=()):
        return self.constant(name, self.dice.uniform(0.01, 0.2, shape).astype(np.float32))

    def zero_point(self, name, kind, shape=()):
        return self.constant(name, random_array(self.dice, kind, shape) // 4)

    def value(self, name, kind, shape):
        from onnx import helper
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)),
                                             shape)

    def conv(self, number, source, parameters):
        """Adds a convolution. `parameters`: the scale and zero point of the source, which is its x.
        """
        from onnx import helper
        group = self.choose(1, 1, self.channels)
        filters = group * int(self.dice.integers(1, 4))
        kernel = int(self.dice.integers(1, 4))
        shape = (filters, self.channels // group, kernel, kernel)
        w_type = self.choose(np.int8, np.uint8) if self.x_type == np.uint8 else np.int8
        per_channel = self.choose((), (filters,))
        name = "conv%d" % number
        mine = [self.scale(name + "_scale"), self.zero_point(name + "_zero", self.x_type)]
        # ONNX Runtime supports only one zero point for all of w.
        given = [source, *parameters,
                 self.constant(name + "_w", random_array(self.dice, w_type, shape)),
                 self.scale(name + "_w_scale", per_channel),
                 self.zero_point(name + "_w_zero", w_type), *mine]
        if self.choose(True, False):
            bias = self.dice.integers(-5000, 5000, filters).astype(np.int32)
            given.append(self.constant(name + "_b", bias))
        pads = {"pads": [int(pad) for pad in self.dice.integers(0, kernel, 4)]}
        attributes = self.choose({}, pads, {"auto_pad": "VALID"})
        if number == 0: # only once, or too little would be left for later kernels
            attributes = dict(attributes, strides=[1, self.choose(1, 2)])
        self.nodes.append(helper.make_node("QLinearConv", given, [name], name=name, group=group,
                                           **attributes))
        self.channels = filters
        return name, mine

    def write(self):
        """Returns a model: an optional QuantizeLinear, one to four convolutions, an optional
        DequantizeLinear, and sometimes an output in between."""
        from onnx import helper
        shape = [self.choose("batch", 2), self.channels, self.choose("rows", 12), 21]
        parameters = [self.scale("scale"), self.zero_point("zero", self.x_type)]
        if self.choose(True, False):
            self.inputs.append(self.value("x", np.float32, shape))
            self.nodes.append(helper.make_node("QuantizeLinear", ["x"] + parameters, ["q"]))
            at = "q"
        else:
            self.inputs.append(self.value("x", self.x_type, shape))
            at = "x"
        for number in range(self.dice.integers(1, 5)):
            at, parameters = self.conv(number, at, parameters)
            if self.choose(True, False, False):
                self.outputs.append(self.value(at, self.x_type, [None] * 4))
        if self.choose(True, False) or not self.outputs:
            self.nodes.append(helper.make_node("DequantizeLinear", [at] + parameters, ["y"]))
            self.outputs.append(self.value("y", np.float32, [None] * 4))
        graph = helper.make_graph(self.nodes, "chain", self.inputs, self.outputs,
                                  self.initializers)
        imports = [helper.make_opsetid(self.choose("", "ai.onnx"), self.opset),
                   helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=self.choose(5, 8))


def chain_files(seed, count):
    for number in range(count):
        writer = Writer([seed, number])
        model = writer.write()
        yield judged("chain/%d" % number, model, random_feed(model, writer.dice))


# ---- ONNX Runtime's quantizer ----------------------------------------------------------------


def float_network(dice):
    """Returns a network of Conv, Relu and MaxPool, with one branch that is added again."""
    from onnx import TensorProto, helper, numpy_helper
    nodes, weights = [], []

    def conv(name, source, channels, filters, kernel, **attributes):
        shape = (filters, channels // attributes.get("group", 1), kernel, kernel)
        for key, array in (("w", dice.normal(0, 0.3, shape)), ("b", dice.normal(0, 0.3, filters))):
            weights.append(numpy_helper.from_array(array.astype(np.float32), name + key))
        nodes.append(helper.make_node("Conv", [source, name + "w", name + "b"], [name], name=name,
                                      pads=[kernel // 2] * 4, **attributes))
        return name

    def unary(operator, source, **attributes):
        name = "%s_%s" % (operator.lower(), source)
        nodes.append(helper.make_node(operator, [source], [name], name=name, **attributes))
        return name

    at = unary("Relu", conv("first", "x", 3, 8, 3, strides=[2, 2]))
    at = unary("MaxPool", at, kernel_shape=[2, 2], strides=[2, 2])
    branch = conv("depthwise", at, 8, 8, 3, group=8)
    branch = conv("pointwise", branch, 8, 8, 1)
    nodes.append(helper.make_node("Add", [at, branch], ["sum"], name="sum"))
    at = conv("last", conv("next", "sum", 8, 16, 3), 16, 4, 1)
    graph = helper.make_graph(
        nodes, "network", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 32, 32])],
        [helper.make_tensor_value_info(at, TensorProto.FLOAT, ["n", 4, 8, 8])], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def quantized(model, dice, **options):
    """Returns what the quantizer makes of a network of floats with one input, x, as QOperator
    unless the options say otherwise."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static
    import onnx
    dims = model.graph.input[0].type.tensor_type.shape.dim
    shape = [1] + [dim.dim_value for dim in dims[1:]]

    class Reader(CalibrationDataReader):
        left = 4

        def get_next(self):
            self.left -= 1
            return {"x": dice.normal(0, 1, shape).astype(np.float32)} if self.left >= 0 else None

    logging.disable(logging.WARNING)  # the quantizer recommends other networks
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "float.onnx", Path(folder) / "quantized.onnx"
        onnx.save(model, source)
        quantize_static(source, target, Reader(),
                        **{"quant_format": QuantFormat.QOperator, **options})
        return onnx.load(target)


def parts(model):
    """Returns the connected groups of nodes that the server supports, each as a list."""
    groups = []
    for node in model.graph.node:
        if node.op_type not in KNOWN:
            continue
        touching = [group for group in groups
                    if any(set(node.input) & set(other.output) for other in group)]
        groups = [group for group in groups if group not in touching]
        groups.append([other for group in touching for other in group] + [node])
    return groups


def part_model(model, nodes):
    """Returns these nodes as a model of their own, with its constants."""
    from onnx import TensorProto, helper
    constants = {constant.name: constant for constant in model.graph.initializer}
    made = {name for node in nodes for name in node.output}
    wanted = {name for node in model.graph.node if node not in nodes for name in node.input}
    wanted |= {value.name for value in model.graph.output}
    read = [name for node in nodes for name in node.input]
    inputs, outputs = [], []
    for name in dict.fromkeys(read):
        if name not in made and name not in constants:
            user = next(node for node in nodes if name in node.input)
            kind = TensorProto.FLOAT if user.op_type == "QuantizeLinear" else (
                constants[user.input[2]].data_type)
            shape = ["n", 3, "h", "w"]
            if user.op_type == "QLinearConv":
                group = next((attribute.i for attribute in user.attribute
                              if attribute.name == "group"), 1)
                shape[1] = constants[user.input[3]].dims[1] * group
            inputs.append(helper.make_tensor_value_info(name, kind, shape))
    for node in nodes:
        if node.output[0] in wanted:
            kind = TensorProto.FLOAT if node.op_type == "DequantizeLinear" else (
                constants[node.input[2 if node.op_type == "QuantizeLinear" else 7]].data_type)
            outputs.append(helper.make_tensor_value_info(node.output[0], kind, None))
    graph = helper.make_graph(nodes, "part", inputs, outputs,
                              [constants[name] for name in dict.fromkeys(read)
                               if name in constants])
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


def quantizer_files(seed):
    from onnxruntime.quantization import QuantType
    for activations, weights, per_channel in (
            (QuantType.QUInt8, QuantType.QInt8, True), (QuantType.QUInt8, QuantType.QUInt8, False),
            (QuantType.QInt8, QuantType.QInt8, True)):
        dice = np.random.default_rng([seed, int(per_channel), activations.value])
        model = quantized(float_network(dice), dice, activation_type=activations,
                          weight_type=weights, per_channel=per_channel)
        for number, nodes in enumerate(parts(model)):
            name = "%s_%s_%d" % (activations, weights, number)
            part = part_model(model, nodes)
            yield judged("quantizer/" + name, part, random_feed(part, dice))


# ---- All files -------------------------------------------------------------------------------


def all_files(seed, chain_count):
    """Yields ((what made the file, its nodes), file)."""
    for source, files in (("ONNX's node tests", node_files()),
                          ("ONNX Runtime's quantizer", quantizer_files(seed)),
                          ("onnx.helper, at random", chain_files(seed, chain_count))):
        for file in files:
            nodes = [node.op_type for node in file.model.graph.node if node.op_type in KNOWN]
            text = ", ".join(dict.fromkeys(
                node if nodes.count(node) == 1 else "%d × %s" % (nodes.count(node), node)
                for node in nodes))
            yield (source, "%d nodes" % len(nodes) if "random" in source else text), file
