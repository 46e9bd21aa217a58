"""Random graphs of the form QDQ: operators on floats between DequantizeLinear and QuantizeLinear.

A graph is cut into parts. A part is what computes one value: codes that a QuantizeLinear makes, or
an output of floats, from the nearest codes before it. ONNX Runtime computes each part from the
codes that the server has computed, so that one difference does not hide what follows from it.
"""
import dataclasses
import multiprocessing
import os
import re
import tempfile
import threading
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np

OPSETS = 13, 17, 19, 21, 23, 25
MICROSOFT = "com.microsoft"
SIDE = 6  # of the images
NODE_COUNT_MAX = 8
KINDS = ((np.uint8,), (np.uint8,), (np.uint8,), (np.int8,), (np.uint8, np.int8))  # of codes
OUTPUT_COUNT_MAX = 32  # of a graph that the server loads

# The differences from ONNX Runtime that api_schema/loading.md documents: the first cells of the
# rows of its table.
INT8 = "INT8 activations"
TYPES = "x and y of Conv, Gemm or MatMul of different types, or INT8 x and UINT8 w"
LAST_BITS = ("a float result of Conv, MatMul or Gemm, unless it is that of MatMul or Gemm without "
             "a bias, or with a bias of INT32, and no QuantizeLinear reads it")
BARE = "Gemm, or MatMul and Add, whose x or w has no zero point"
MOVED = ("Conv, Gemm, MatMul, Softmax, Add, Mul or averages behind a Concat, DepthToSpace, "
         "Flatten, Gather, Resize, SpaceToDepth, Split or Where without a pair between, or weights "
         "that are reshaped")
MERGED = ("two pairs of QuantizeLinear and DequantizeLinear behind each other, with different "
          "scales")
LIMITED = "a Relu or Clip with limits inside the range of y behind Conv, Gemm or MatMul"
SOFTMAX = "Softmax in one of these rows"
NARROW = "weights of 4 or 2 bits, or with blocks"
REFUSED = "INT8 activations, from opset 21 on"
DOCUMENTED = INT8, TYPES, LAST_BITS, BARE, MOVED, MERGED, LIMITED, SOFTMAX, REFUSED, \
    NARROW
WHY_REFUSED = "output_dtype INT8 does not match y_zero_point type UINT8"

# How ONNX Runtime may compute a part: the level of optimization, and session.qdqisint8allowed.
DEFAULTS = "ORT_ENABLE_ALL", "0"
INT8_ALLOWED = "ORT_ENABLE_ALL", "1"
UNFUSED = "ORT_DISABLE_ALL", "0"  # the operators as the file has them

# Operators that ONNX Runtime leaves in floats in a row of the table. quantd's codes must then be as
# near to the exact result as rounding allows.
PRODUCTS = {"Conv", "FusedConv", "Gemm", "FusedGemm", "MatMul", "FusedMatMul", "MatMulNBits",
            "MatMulIntegerToFloat"}
AVERAGES = {"AveragePool", "GlobalAveragePool", "Add", "Mul"}
ORDERS = {"Concat", "Flatten", "Gather", "Resize", "Split", "Where", "Reshape"}
ROUNDING = 1e-3  # of floats in sums and scales, in codes
# Half of the largest bias scale, .2 x .02, in codes of the smallest scale of y, .02: quantd
# quantizes a bias of floats at load.
BIAS_ROUNDING = .1
FLOAT_ERROR = 1e-5  # of floats, relative to the greatest of them

SAME = "the same bits"

# Operators that move single elements of one input.
MOVES = {"Transpose", "Identity", "Dropout", "Reshape", "Gather", "Squeeze", "Unsqueeze", "Slice",
         "Split", "MaxPool", "Resize", "Flatten"}
# A part of these alone quantizes again what it has dequantized.
REQUANTIZES = MOVES | {"DequantizeLinear", "QuantizeLinear", "Relu", "Clip"}

# Words of the error with which the server refuses a graph, and the name of what it lacks.
UNQUANTIZED = "operators on floats that nothing quantizes"
GAPS = (
    ("expected the output of DequantizeLinear, as a quantized file has", UNQUANTIZED),
    ("expected DequantizeLinear of UINT8 or INT8, got ", UNQUANTIZED),
)


class Graph:
    """A graph that grows. `values` are the names of floats of shape [1, channels, SIDE, SIDE]."""

    def __init__(self, seed):
        self.dice = np.random.default_rng(seed)
        self.opset = int(self.choose(*OPSETS))
        self.kinds = self.choose(*KINDS)
        self.channels = self.choose(1, 3, 4, 8)
        self.shape = [1, self.channels, SIDE, SIDE]
        self.nodes, self.constants, self.inputs, self.values = [], [], [], []
        self.domain = "" if self.chance(.9) else MICROSOFT  # of QuantizeLinear and its inverse
        self.given = []  # scales and zero points

    # ---- Choices -----------------------------------------------------------------------------

    def choose(self, *choices):
        return choices[self.dice.integers(len(choices))]

    def chance(self, probability):
        return self.dice.random() < probability

    def pick(self):
        """Returns a value, preferably a late one."""
        count = len(self.values)
        return self.values[max(self.dice.integers(count), self.dice.integers(count))]

    # ---- Parts -------------------------------------------------------------------------------

    def constant(self, array):
        from onnx import numpy_helper
        name = "c%d" % len(self.constants)
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def floats(self, *shape):
        return self.constant(self.dice.normal(0, 2, shape).astype(np.float32))

    def add(self, op, *sources, count=1, **attributes):
        from onnx import helper
        name = "%s%d" % (op.lower(), len(self.nodes))
        if op in ("QuantizeLinear", "DequantizeLinear"):
            attributes["domain"] = self.domain
        names = [name] if count == 1 else ["%s_%d" % (name, i) for i in range(count)]
        self.nodes.append(helper.make_node(op, list(sources), names, name, **attributes))
        return name if count == 1 else names

    def parameters(self, kind=None):
        """Adds a scale and a zero point, or takes those of an earlier value. A zero point is left
        out where the type is known without it."""
        if kind is None and self.given and self.chance(.3):
            return self.choose(*self.given)
        kind = np.dtype(kind or self.choose(*self.kinds))
        limits = np.iinfo(kind)
        zero = self.choose(limits.min, (limits.min + limits.max + 1) // 2,
                           self.dice.integers(limits.min, limits.max + 1))
        scale = self.constant(np.float32(self.dice.uniform(.02, .2)))
        bare = zero == 0 and kind == np.uint8 and self.chance(.3)
        self.given.append([scale] if bare else [scale, self.constant(kind.type(zero))])
        return self.given[-1]

    def pair(self, value):
        """Quantizes a value and dequantizes it by the same parameters."""
        given = self.parameters()
        return self.add("DequantizeLinear", self.add("QuantizeLinear", value, *given), *given)

    def weights(self, shape, axis):
        """Adds constant codes and their DequantizeLinear, with one scale or one for each index of
        an axis. Returns the value and the scale, or None with a scale for each block."""
        if self.opset >= 21 and not self.domain and self.chance(.2):
            return self.narrow_weights(shape, axis)
        kind = np.dtype(self.choose(np.int8, np.int8, np.int8, np.uint8))
        limits = np.iinfo(kind)
        codes = self.constant(self.dice.integers(limits.min, limits.max, shape, kind))
        count = shape[axis]
        many = self.chance(.3)
        scale = self.dice.uniform(.002, .02, count if many else ()).astype(np.float32)
        zero = 0 if kind == np.int8 else 128
        if not many and self.chance(.2):
            zero = self.dice.integers(limits.min, limits.max)
        zeros = np.full(count if many else (), zero, kind)
        made = self.add("DequantizeLinear", codes, self.constant(scale), self.constant(zeros),
                        **({"axis": axis} if many else {}))
        return made, scale

    def narrow_weights(self, shape, axis):
        """The same with codes of 4 bits, and sometimes blocks along another axis."""
        import ml_dtypes
        kind, least = self.choose((ml_dtypes.int4, -8), (ml_dtypes.uint4, 0))
        codes = self.constant(self.dice.integers(least, least + 16, shape).astype(kind))
        grouped, more = 1 - axis, {"axis": axis}
        size = self.choose((), (shape[axis],), None)
        if size is None:
            more = {"axis": grouped, "block_size": int(self.dice.integers(1, shape[grouped] + 1))}
            size = list(shape)
            size[grouped] = -(-size[grouped] // more["block_size"])
        scale = self.dice.uniform(.002, .005, shape[axis] if size else ()).astype(np.float32)
        scales = scale
        if "block_size" in more:
            places = [1] * len(shape)
            places[axis] = -1
            times = self.dice.choice(np.float32([1, 2, 4]), size)
            scales = np.reshape(scale, places) * times
        given = [self.constant(scales)]
        if least == 0 or self.chance(.3):
            zeros = self.dice.integers(least, least + 16, scales.shape) if self.chance(.3) else (
                np.full(scales.shape, least + 8))
            given.append(self.constant(zeros.astype(kind)))
        made = self.add("DequantizeLinear", codes, *given, **more)
        return made, None if "block_size" in more else scale

    def output(self, name, kind):
        from onnx import helper
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)),
                                             None)

    def begin(self):
        from onnx import helper
        for number in range(self.choose(1, 2)):
            name, kind = "x%d" % number, np.dtype(self.choose(*self.kinds))
            self.inputs.append(helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(kind), self.shape))
            self.values.append(self.add("DequantizeLinear", name, *self.parameters(kind)))

    def model(self, outputs):
        """Returns the nodes that the outputs need: others keep ONNX Runtime from fusing, too."""
        from onnx import helper
        graph = helper.make_graph(needed(self.nodes, outputs), "pairs", self.inputs, outputs,
                                  self.constants)
        return helper.make_model(graph, ir_version=8 if self.opset < 21 else 10,
                                 opset_imports=[
            helper.make_opsetid("", self.opset), helper.make_opsetid(MICROSOFT, 1)])


# ---- Operators -------------------------------------------------------------------------------


def scale_of(graph, value):
    """Returns the scale of the DequantizeLinear that makes a value, or None."""
    from onnx import numpy_helper
    node = next(node for node in graph.nodes if value in node.output)
    found = [constant for constant in graph.constants if constant.name == node.input[1]] if (
        node.op_type == "DequantizeLinear") else []
    return numpy_helper.to_array(found[0]) if found else None


def bias(graph, x, scale, count):
    """Adds a bias of floats, or of INT32 with the scale of the products."""
    own = scale_of(graph, x)
    if own is None or scale is None or graph.chance(.5):
        return graph.floats(count)
    codes = graph.constant(graph.dice.integers(-3000, 3000, count).astype(np.int32))
    given = [graph.constant(own * scale)]
    if graph.chance(.5):
        given.append(graph.constant(np.zeros(scale.shape, np.int32)))
    return graph.add("DequantizeLinear", codes, *given, **({"axis": 0} if scale.ndim else {}))


def conv(graph, x):
    kernel, group = graph.choose(1, 3), graph.choose(1, 1, graph.channels)
    w, scale = graph.weights((graph.channels, graph.channels // group, kernel, kernel), 0)
    given = [x, w] + ([bias(graph, x, scale, graph.channels)] if graph.chance(.5) else [])
    return graph.add("Conv", *given, pads=[kernel // 2] * 4, group=group)


def matmul(graph, x):
    w, scale = graph.weights((SIDE, SIDE), 1)
    made = graph.add("MatMul", x, w)
    if graph.chance(.5):
        b = bias(graph, x, scale, SIDE)
        made = graph.add("Add", *graph.choose((made, b), (b, made)))
    return made


def gemm(graph, x):
    over = graph.choose(0, 1)
    rows = graph.add("Flatten", x, axis=3)
    if graph.chance(.5):
        rows = graph.pair(rows)
    w, scale = graph.weights((SIDE, SIDE), 0 if over else 1)
    given = [rows, w] + ([bias(graph, rows, scale, SIDE)] if graph.chance(.6) else [])
    made = graph.add("Gemm", *given, transB=over)
    if graph.chance(.6):
        made = graph.pair(made)
    return graph.add("Reshape", made, graph.constant(np.array(graph.shape)))


def product(graph, x):
    return graph.add("MatMul", x, graph.pick())


def binary(graph, x):
    return graph.add(graph.choose("Add", "Mul", "Add", "Mul", "Sub", "Max"), x, graph.pick())


def constant_operand(graph, x):
    shape = graph.choose((), (graph.channels, 1, 1), (1,))
    given = x, graph.floats(*shape)
    return graph.add(graph.choose("Add", "Mul", "Div"), *given)


def gate(graph, x):
    mean = graph.pair(graph.add("GlobalAveragePool", x))
    if graph.chance(.5):
        mean = graph.pair(graph.add("Sigmoid", mean))
    return graph.add("Mul", *graph.choose((x, mean), (mean, x)))


def pool(graph, x):
    more = {"count_include_pad": 1} if graph.chance(.3) else {}
    if graph.chance(.5):
        return graph.add("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4)
    return graph.add("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4, **more)


def resized(graph, x):
    sizes = graph.constant(np.array([1, 1, 2, 2], np.float32))
    large = graph.add("Resize", x, "", sizes, mode="nearest", nearest_mode="floor",
                      coordinate_transformation_mode="asymmetric")
    if graph.chance(.5):
        large = graph.pair(large)
    return graph.add(graph.choose("MaxPool", "AveragePool"), large, kernel_shape=[2, 2],
                     strides=[2, 2])


def joined(graph, x):
    both = graph.add("Concat", x, graph.pick(), axis=1)
    if graph.chance(.3):
        both = graph.pair(both)
    ends = [graph.constant(np.array([size])) for size in (
        graph.channels // 2, graph.channels // 2 + graph.channels, 1)]
    return graph.add("Slice", both, *ends)


def split(graph, x):
    parts = graph.add("Split", x, graph.constant(np.array([2, SIDE - 2])), count=2, axis=3)
    return graph.add("Concat", *parts[::graph.choose(1, -1)], axis=3)


def moved(graph, x):
    op = graph.choose("Transpose", "Transpose", "Identity", "Dropout", "Reshape", "Gather",
                      "Squeeze")
    if op == "Transpose":
        return graph.add(op, x, perm=[0, 1, 3, 2])
    if op == "Reshape":
        whole = graph.constant(np.array(graph.shape))
        return graph.add(op, graph.add(op, x, graph.constant(np.array([1, -1, SIDE]))), whole)
    if op == "Gather":
        order = graph.constant(graph.dice.integers(0, SIDE, SIDE))
        return graph.add(op, x, order, axis=graph.choose(2, 3))
    if op == "Squeeze":
        axes = graph.constant(np.array([0]))
        return graph.add("Unsqueeze", graph.add(op, x, axes), axes)
    return graph.add(op, x)


def function(graph, x):
    op = graph.choose("Sigmoid", "LeakyRelu", "Tanh", "HardSigmoid", "Relu", "Swish", "PRelu")
    if op == "Swish":
        return graph.add("Mul", x, graph.add("Sigmoid", x))
    if op == "PRelu":
        return graph.add(op, x, graph.floats(graph.channels, 1, 1))
    return graph.add(op, x)


def softmax(graph, x):
    return graph.add("Softmax", x, axis=graph.choose(1, -1))


def chosen(graph, x):
    return graph.add("Where", graph.constant(graph.dice.integers(0, 2, graph.shape).astype(bool)),
                     x, graph.pick())


def clip(graph, x):
    return graph.add("Clip", x, graph.constant(np.float32(graph.choose(0, 0, -1))),
                     graph.constant(np.float32(6)))


STEPS = (conv, conv, conv, matmul, matmul, gemm, product, binary, binary, constant_operand, gate,
         pool, pool, resized, joined, split, moved, moved, function, function, softmax, chosen,
         clip)


def make(seed, number):
    """Returns the random graph of this number, and its inputs."""
    graph = Graph([seed, number])
    graph.begin()
    for _ in range(graph.dice.integers(2, NODE_COUNT_MAX + 1)):
        step = graph.choose(*STEPS)
        at = step(graph, graph.pick())
        if graph.chance(.3):
            at = graph.add("Relu", at) if graph.chance(.7) else clip(graph, at)
        if step is softmax or graph.chance(.9):
            at = graph.pair(at)
        graph.values.append(at)
    return finish(graph)


def finish(graph):
    """Returns the model and its inputs. Outputs are the last codes, and sometimes floats."""
    last = graph.nodes[-1]
    if last.op_type == "DequantizeLinear":
        del graph.nodes[-1]
        codes, given = last.input[0], list(last.input[1:])
    else:
        given = graph.parameters()
        codes = graph.add("QuantizeLinear", last.output[0], *given)
    outputs = [graph.output(codes, kind_of(graph, given))]
    others = [value for value in graph.values if value != last.output[0]]
    if graph.chance(.2):
        outputs.append(graph.output(graph.add("Identity", graph.choose(*others)), np.float32))
    feed = {}
    for value in graph.inputs:
        from onnx import helper
        kind = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        limits = np.iinfo(kind)
        feed[value.name] = graph.dice.integers(limits.min, limits.max, graph.shape, kind,
                                               endpoint=True)
    return graph.model(outputs), feed


def kind_of(graph, parameters):
    """Returns the type of the codes that QuantizeLinear makes by these parameters."""
    from onnx import helper
    return next((helper.tensor_dtype_to_np_dtype(constant.data_type)
                 for constant in graph.constants if constant.name in parameters[1:]), np.uint8)


# ---- Parts -----------------------------------------------------------------------------------


@dataclasses.dataclass
class Part:
    """The nodes that compute one value from codes."""
    value: str
    model: object
    sources: list  # the names of the codes

    def feed(self, known):
        """Returns the inputs, and says their shapes in the model, without which ONNX Runtime fuses
        less. `known`: name -> array."""
        from onnx import helper
        for value in self.model.graph.input:
            kind = value.type.tensor_type.elem_type
            value.CopyFrom(helper.make_tensor_value_info(value.name, kind,
                                                         known[value.name].shape))
        return {name: known[name] for name in self.sources}

    def operators(self):
        return [node.op_type for node in self.model.graph.node]


def needed(nodes, outputs):
    """Returns the nodes that the outputs need."""
    wanted = {value.name for value in outputs}
    found = []
    for node in reversed(nodes):
        if wanted & set(node.output):
            found.insert(0, node)
            wanted |= set(node.input)
    return found


def parts(model):
    """Returns the parts of a graph, in an order in which each reads codes of earlier ones."""
    from onnx import TensorProto, helper
    nodes = needed(model.graph.node, model.graph.output)
    makers = {name: node for node in nodes for name in node.output}
    constants = {constant.name: constant for constant in model.graph.initializer}
    types = {constant.name: constant.data_type for constant in model.graph.initializer}

    def code_type(node):
        return types[node.input[2]] if len(node.input) > 2 else TensorProto.UINT8

    inputs = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    ends = [node.output[0] for node in nodes if node.op_type == "QuantizeLinear"]
    ends += [value.name for value in model.graph.output if value.name not in ends]
    made = []
    for end in ends:
        inside, sources, left = [], {}, [end]
        while left:
            name = left.pop()
            node = makers.get(name)
            if name in inputs or (node and node.op_type == "QuantizeLinear" and name != end):
                sources[name] = inputs[name] if name in inputs else code_type(node)
            elif node and node not in inside:
                inside.append(node)
                left += node.input
        inside = [node for node in nodes if node in inside]
        names = {name for node in inside for name in node.output}
        # What others read, too, is not fused; the part then has the same readers.
        also = {name for node in nodes if node not in inside for name in node.input
                if name in names and makers[name].op_type != "DequantizeLinear"}
        also |= {value.name for value in model.graph.output if value.name in names}
        last = makers[end]
        kind = code_type(last) if last.op_type == "QuantizeLinear" else TensorProto.FLOAT
        outputs = [helper.make_tensor_value_info(end, kind, None)]
        outputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
                    for name in sorted(also - {end})]
        read = {name for node in inside for name in node.input}
        graph = helper.make_graph(
            inside, "part", [helper.make_tensor_value_info(name, kind, None)
                             for name, kind in sorted(sources.items())], outputs,
            [constants[name] for name in sorted(read & set(constants))])
        made.append(Part(end, helper.make_model(graph, opset_imports=model.opset_import,
                                                ir_version=model.ir_version), sorted(sources)))
    return made


def with_codes(model, part_list):
    """Returns a copy in which the value of each part is an output."""
    from onnx import ModelProto
    copy = ModelProto.FromString(model.SerializeToString())
    known = {value.name for value in copy.graph.output}
    copy.graph.output.extend([part.model.graph.output[0] for part in part_list
                              if part.value not in known][:OUTPUT_COUNT_MAX - len(known)])
    return copy


# ---- ONNX Runtime ----------------------------------------------------------------------------


class Crashed(Exception):
    """ONNX Runtime ended the process that it ran in."""


class Runtime:
    """ONNX Runtime in a process of its own, which it may end."""

    def __init__(self):
        self.pool = None

    def run(self, model, feed, way=DEFAULTS):
        """Returns what ONNX Runtime computes."""
        return self.call(compute, model.SerializeToString(), feed, way)

    def fused_operators(self, model):
        """Returns the operators that ONNX Runtime runs with its defaults."""
        return self.call(optimize, model.SerializeToString())

    def call(self, function, *given):
        if self.pool is None:
            self.pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"),
                                            end_with_parent)
        try:
            return self.pool.submit(function, *given).result()
        except BrokenProcessPool:
            self.close()
            raise Crashed("ONNX Runtime crashed") from None

    def close(self):
        if self.pool is not None:
            self.pool.shutdown()
        self.pool = None


def end_with_parent():
    """Ends this process as soon as the one that started it is gone, even if it was killed."""
    def wait():
        multiprocessing.parent_process().join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def session(model, way, optimized=None):
    """`optimized`: the file for the graph that ONNX Runtime runs."""
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, way[0])
    options.add_session_config_entry("session.x64quantprecision", "1")
    options.add_session_config_entry("session.qdqisint8allowed", way[1])
    if optimized:
        options.optimized_model_filepath = str(optimized)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def compute(model, feed, way):
    """Runs in the process of ONNX Runtime."""
    try:
        return session(model, way).run(None, feed)
    except Exception as error:  # ONNX Runtime has many kinds, and not all can be pickled
        raise RuntimeError(str(error)) from None


def optimize(model):
    """Runs in the process of ONNX Runtime."""
    import onnx
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "optimized.onnx"
        session(model, DEFAULTS, path)
        return {node.op_type for node in onnx.load(path).graph.node}


# ---- Comparison ------------------------------------------------------------------------------


def array_of(datatype, shape, raw):
    kinds = {"UINT8": np.uint8, "INT8": np.int8, "FP32": np.float32}
    return np.frombuffer(raw, kinds[datatype]).reshape(shape)


def same(one, other):
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


def are_near(got, want):
    """Tells whether floats differ in their last bits alone."""
    return got.shape == want.shape and got.dtype == want.dtype and (
        np.max(np.abs(got.astype(np.float64) - want)) <= FLOAT_ERROR * np.max(np.abs(want)))


def exact(part, known, on_codes):
    """Returns a part's codes in FP64, before they are rounded, but within their type's limits.
    `on_codes`: by QLinearSoftmax."""
    from onnx import TensorProto, helper, numpy_helper
    from onnx.reference import ReferenceEvaluator
    arrays = {constant.name: numpy_helper.to_array(constant)
              for constant in part.model.graph.initializer}
    arrays.update(known)
    nodes = list(part.model.graph.node)
    last = nodes.pop()
    for node in [node for node in nodes if node.op_type == "DequantizeLinear"]:
        nodes.remove(node)
        codes, scale, zero = parameters(node, arrays)
        arrays[node.output[0]] = (codes.astype(np.float64) - zero.astype(np.float64)) * scale
    read = {name for node in nodes for name in node.input if name in arrays}
    feed = {name: arrays[name].astype(np.float64) if arrays[name].dtype == np.float32
            else arrays[name] for name in read}
    made = arrays.get(last.input[0])
    if made is None:
        graph = helper.make_graph(
            nodes, "exact",
            [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype),
                                           array.shape) for name, array in feed.items()],
            [helper.make_tensor_value_info(last.input[0], TensorProto.DOUBLE, None)])
        model = helper.make_model(graph, opset_imports=part.model.opset_import,
                                  ir_version=part.model.ir_version)
        made = ReferenceEvaluator(model).run(None, feed)[0]
    arrays[last.input[0]] = made
    made, scale, zero = parameters(last, arrays)
    if on_codes:
        scale = 1 / np.floor(1 / scale)  # as QLinearSoftmax does
    limits = np.iinfo(zero.dtype)
    return np.clip(made / scale + zero, limits.min, limits.max)


def parameters(node, arrays):
    """Returns the operand of QuantizeLinear or DequantizeLinear, and the scale and the zero point
    with axes so that they apply to it."""
    operand = arrays[node.input[0]]
    scale = arrays[node.input[1]].astype(np.float64)
    zero = arrays[node.input[2]] if len(node.input) > 2 else np.uint8(0)
    axis = next((item.i for item in node.attribute if item.name == "axis"), 1)
    size = next((item.i for item in node.attribute if item.name == "block_size"), 0)
    if size:
        index = np.arange(operand.shape[axis]) // size
        scale, zero = (np.take(np.broadcast_to(array, scale.shape), index, axis)
                       for array in (scale, zero))
    elif scale.ndim:
        shape = [-1 if index == axis else 1 for index in range(operand.ndim)]
        scale, zero = scale.reshape(shape), np.asarray(zero).reshape(shape)
    return operand, scale, np.asarray(zero)


def error_of(part, known):
    """Returns how far the codes that the server has computed lie from the exact result."""
    got, errors = known[part.value], [np.inf]
    for on_codes in (False, True) if "Softmax" in part.operators() else (False,):
        want = exact(part, known, on_codes)
        if got.shape == want.shape:
            errors.append(np.max(np.abs(got - want)))
    return min(errors)


def has_float_bias(part):
    """Tells whether a part has floats that are neither scales nor limits."""
    from onnx import TensorProto
    given = {name for node in part.model.graph.node if node.op_type in ("Conv", "Gemm", "Add")
             for name in node.input}
    return any(constant.data_type == TensorProto.FLOAT and constant.name in given
               for constant in part.model.graph.initializer)


def is_narrow(part):
    """Tells whether a part has codes of 4 bits, which all weights in blocks have."""
    from onnx import TensorProto
    return any(constant.data_type in (TensorProto.INT4, TensorProto.UINT4)
               for constant in part.model.graph.initializer)


def row_of(part, known, operators):
    """Returns the row of loading.md's table that lets a part differ from ONNX Runtime, which runs
    these operators, or None."""
    from onnx import TensorProto
    own = set(part.operators())
    got = known[part.value]
    if got.dtype == np.float32:
        return LAST_BITS if own & PRODUCTS else None
    is_limited = own & {"Relu", "Clip"}
    makers = {node.input[0] for node in part.model.graph.node}
    kinds = {known[name].dtype for name in part.sources}
    kinds |= {np.dtype(np.uint8) for constant in part.model.graph.initializer
              if constant.name in makers and constant.data_type == TensorProto.UINT8}
    has_types = kinds != {got.dtype}
    if "Softmax" in operators:
        if own & PRODUCTS:
            return LAST_BITS
        return SOFTMAX if own & ORDERS else None
    if not operators & PRODUCTS:
        if own & PRODUCTS:
            return TYPES if has_types else None  # on codes, but of other types
        return MOVED if operators & AVERAGES and own & ORDERS else None
    if is_limited or own & ORDERS:
        return LIMITED if is_limited else MOVED
    if has_types:
        return TYPES
    if is_narrow(part):
        return NARROW
    bare = any(node.op_type == "DequantizeLinear" and len(node.input) < 3
               for node in part.model.graph.node)
    return BARE if bare and own & {"Gemm", "MatMul"} else None


def part_difference(part, known, runtime):
    """Returns (the row of loading.md's table that has the difference of a part's value, what is
    wrong or None). (None, None): its bits are ONNX Runtime's. `known`: name -> what the server has
    computed."""
    feed, got, wants = part.feed(known), known[part.value], {}
    for way in (DEFAULTS, INT8_ALLOWED, UNFUSED):
        try:
            wants[way] = runtime.run(part.model, feed, way)[0]
        except (RuntimeError, Crashed):  # it has no kernels for some operators that it fuses
            continue
        if way == DEFAULTS and same(got, wants[way]):
            return None, None
    if not wants:
        return "wrong", "ONNX Runtime runs %s of %s in no way" % (
            part.value, ", ".join(part.operators()))
    signed = any(known[name].dtype == np.int8 for name in (part.value, *part.sources))
    if signed and INT8_ALLOWED in wants and same(got, wants[INT8_ALLOWED]):
        return INT8, None
    operators = set(part.operators())
    if DEFAULTS in wants:
        operators = runtime.fused_operators(part.model)
        row = row_of(part, known, operators)
    elif any(same(got, want) for want in wants.values()):
        return REFUSED, None
    else:
        row = REFUSED
    error = None
    if got.dtype == np.float32:
        is_near = any(are_near(got, want) for want in wants.values())
    else:
        error = error_of(part, known)
        is_near = error <= .5 + ROUNDING + BIAS_ROUNDING * has_float_bias(part)
    if row and is_near:
        return row, None
    return "wrong", "%s of %s, which ONNX Runtime runs as %s%s%s:\n    got      %s\n" \
        "    expected %s" % (
            part.value, ", ".join(part.operators()), ", ".join(sorted(operators)),
            "" if error is None else ", %.4f codes from the exact result" % error,
            "" if row is None else ", %s" % row, got.tobytes().hex(),
            next(iter(wants.values())).tobytes().hex())


def across_parts(model, feed, whole, known, runtime):
    """Names the difference of a graph of which no part differs, as `comparison` does. ONNX Runtime
    then has fused across parts. It must give the same bits where it cannot, because the codes
    between the parts are outputs, or may keep INT8."""
    names = [value.name for value in model.graph.output]
    kept = with_codes(model, whole)
    ways = (kept, DEFAULTS), (model, INT8_ALLOWED), (kept, INT8_ALLOWED)
    for one, way in ways:
        try:
            made = runtime.run(one, feed, way)
        except (RuntimeError, Crashed):
            continue
        if all(same(known[name], array) for name, array in zip(names, made)):
            if any(set(part.operators()) <= REQUANTIZES for part in whole):
                return MERGED, None
            if any(array.dtype == np.int8 for array in known.values()):
                return INT8, None
    return "wrong", "differs as a whole from ONNX Runtime, but no part does"


def comparison(model, feed, ask, runtime):
    """Compares a graph with ONNX Runtime. Returns (what the outcome is called, what is wrong or
    None). `ask` returns name -> array, the outputs that the server computes from a model and its
    inputs."""
    try:
        want = runtime.run(model, feed)
    except Crashed:
        return "ONNX Runtime crashes", None
    except RuntimeError as error:
        if WHY_REFUSED not in str(error):
            return "wrong", "ONNX Runtime refuses it: %s" % error
        want = None
    got = ask(model, feed)
    names = [value.name for value in model.graph.output]
    whole = parts(model)
    known = {**feed, **ask(with_codes(model, whole), feed)}
    for name in names:
        if not same(got[name], known[name]):
            return "wrong", "%s has other bits if other values are outputs, too" % name
    found = []
    for part in whole:
        if any(name not in known for name in (part.value, *part.sources)):
            return "wrong", "more than %d values to compare" % OUTPUT_COUNT_MAX
        name, wrong = part_difference(part, known, runtime)
        if wrong:
            return name, wrong
        found += [name] if name else []
    if want is None:
        return REFUSED, None
    if all(same(got[name], array) for name, array in zip(names, want)):
        return SAME, None
    return (found[0], None) if found else across_parts(model, feed, whole, known, runtime)


def gap(model, refusal):
    """Returns the name of what the server lacks. None: the refusal is a failure."""
    found = next((name for words, name in GAPS if words in refusal), None)
    place = re.search(r": node (\d+) \(.*\): (\w+): ", refusal)
    if found != UNQUANTIZED or not place:
        return found
    nodes = {name: node for node in model.graph.node for name in node.output}
    name = model.graph.node[int(place[1])].input[place[2] in ("B", "W")]
    while name in nodes and nodes[name].op_type in MOVES:
        name = nodes[name].input[0]
    return None if name in nodes and nodes[name].op_type == "DequantizeLinear" else found
