"""The graph of graphs.py, which grows node by node, and the values that its nodes may read."""
import dataclasses

import numpy as np

ELEMENT_COUNT_MAX = 50000  # of a value
OPSETS = 11, 12, 13, 14, 16, 17, 18, 19, 21
MICROSOFT = "com.microsoft"


class Unfit(Exception):
    """The graph has no values that such a node could take, or ONNX Runtime refuses the node."""


@dataclasses.dataclass(eq=False)
class Value:
    """A value and its elements. `scale` and `zero` name the constants that quantize it."""
    name: str
    array: np.ndarray
    scale: str = None
    zero: str = None

    @property
    def shape(self):
        return self.array.shape

    @property
    def rank(self):
        return self.array.ndim

    @property
    def kind(self):
        return self.array.dtype

    @property
    def quantized(self):
        return self.scale is not None


def session(model, optimized=False):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimized else (
        levels.ORT_DISABLE_ALL)
    return onnxruntime.InferenceSession(model.SerializeToString(), options,
                                        providers=["CPUExecutionProvider"])


def described(name, array, shape="same"):
    from onnx import helper
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype),
                                         array.shape if isinstance(shape, str) else shape)


class Graph:
    """A graph that grows. `values` has what a further node may read, and `constants` the rest."""

    def __init__(self, seed):
        self.dice = np.random.default_rng(seed)
        self.opset = int(self.dice.choice(OPSETS))
        self.nodes, self.values, self.constants, self.inputs = [], [], {}, []
        self.known = {}  # name -> its elements
        self.made = 0
        self.prefix = self.choose("", "", "/model/x.1/", "ü \"q\" ")

    # ---- Choices -----------------------------------------------------------------------------

    def number(self, low, high):
        """Returns an integer from low to high."""
        return int(self.dice.integers(low, high, endpoint=True))

    def chance(self, probability=0.5):
        return self.dice.random() < probability

    def choose(self, *choices):
        return choices[self.dice.integers(len(choices))]

    def pick(self, fits=lambda value: True):
        """Returns a value, preferably a late one."""
        found = [value for value in self.values if fits(value)]
        if not found:
            raise Unfit()
        return found[max(self.dice.integers(len(found)), self.dice.integers(len(found)))]

    def array(self, kind, shape):
        kind = np.dtype(kind)
        if kind == np.float32:
            return self.dice.normal(0, 2, shape).astype(kind)
        if kind == np.bool_:
            return self.dice.integers(0, 2, shape).astype(kind)
        if kind.itemsize > 1:
            return self.dice.integers(-9, 10, shape).astype(kind)
        limits = np.iinfo(kind)
        return self.dice.integers(limits.min, limits.max, shape, kind, endpoint=True)

    # ---- Parts -------------------------------------------------------------------------------

    def name(self, what):
        self.made += 1
        return "%s%s%d" % (self.prefix, what, self.made)

    def constant(self, array, what="c"):
        name = self.name(what)
        self.constants[name] = self.known[name] = np.asarray(array)
        return name

    def integers(self, *numbers):
        return self.constant(np.array(numbers, np.int64))

    def parameters(self, kind, scale, shape=()):
        """Returns the names of a scale and a zero point."""
        scales = scale * self.dice.uniform(0.7, 1.5, shape)
        limits = np.iinfo(kind)
        zero = self.choose(0, limits.min, self.number(limits.min, limits.max))
        if shape:
            zero = 0 if np.dtype(kind) == np.int8 else 128
        return (self.constant(np.float32(scales), "s"),
                self.constant(np.full(shape, zero, kind), "z"))

    def scale_of(self, value):
        return float(np.mean(self.constants[value.scale]))

    def add(self, op, inputs, count=1, quantized=(), domain="", **attributes):
        """Adds a node and returns the value it makes, or a list if `count` is more than 1. The
        inputs are values and names of constants. `quantized`: the scale and zero point of what it
        makes."""
        names = [value.name if isinstance(value, Value) else value for value in inputs]
        from onnx import helper
        made = [self.name(op.lower() + "_") for _ in range(count)]
        node = helper.make_node(op, names, made, made[0], domain=domain, **attributes)
        arrays = self.alone(node)
        if any(array.size > ELEMENT_COUNT_MAX for array in arrays):
            raise Unfit()
        self.nodes.append(node)
        results = [Value(name, array, *quantized) for name, array in zip(made, arrays)]
        self.values += results
        self.known.update(zip(made, arrays))
        return results if count > 1 else results[0]

    def alone(self, node):
        """Returns what ONNX Runtime makes of a node by itself."""
        from onnx import helper
        read = [name for name in dict.fromkeys(node.input) if name]
        feed = {name: self.known[name] for name in read if name not in self.constants}
        graph = helper.make_graph([node], "node", [described(*pair) for pair in feed.items()],
                                  [helper.make_empty_tensor_value_info(name)
                                   for name in node.output],
                                  [self.initializer(name) for name in read
                                   if name in self.constants])
        try:
            return session(self.file(graph)).run(None, feed)
        except Exception as error:  # ONNX Runtime has many kinds of errors
            raise Unfit(str(error)) from None

    def initializer(self, name):
        from onnx import numpy_helper
        return numpy_helper.from_array(self.constants[name], name)

    def file(self, graph):
        from onnx import helper
        return helper.make_model(graph, ir_version=8, opset_imports=[
            helper.make_opsetid("", self.opset), helper.make_opsetid(MICROSOFT, 1)])

    def model(self, outputs, symbolic, late):
        """Returns the whole graph. `symbolic`: whether a request chooses the first dimension.
        `late`: constants that come with each request. The others are initializers or Constant
        nodes."""
        from onnx import helper
        inputs = [described(value.name, value.array,
                            ["n", *value.shape[1:]] if symbolic and value.rank else value.shape)
                  for value in self.inputs]
        inputs += [described(name, self.known[name]) for name in late]
        nodes, constants = [], []
        for name in self.constants:
            if name not in late and self.chance(0.1):
                nodes.append(helper.make_node("Constant", [], [name], value=self.initializer(name)))
            elif name not in late:
                constants.append(self.initializer(name))
        return self.file(helper.make_graph(
            nodes + self.nodes, "graph", inputs,
            [described(value.name, value.array, None) for value in outputs], constants))

    # ---- What a graph begins with ------------------------------------------------------------

    def begin(self):
        self.begin_inputs()
        self.begin_folds()

    def begin_inputs(self):
        rank = self.choose(4, 4, 4, 4, 4, 4, 3, 3, 2, 2, 5, 1)
        shape = [self.number(1, 3), self.choose(1, 3, 4, 6, 8, 12, 16, 17, 32, 64),
                 self.number(1, 9), self.number(1, 11), 2][:rank]
        for number in range(self.choose(1, 1, 2)):
            kind = self.choose(np.uint8, np.int8, np.float32)
            if number == 1 and self.chance(0.3):
                shape = [shape[0]] + shape[1:][::-1]
            value = Value("x%d" % number, self.array(kind, shape))
            self.inputs.append(value)
            self.known[value.name] = value.array
            self.values.append(value)
            if kind == np.float32:
                self.quantize(value, self.choose(np.uint8, np.int8))
            else:
                value.scale, value.zero = self.parameters(kind, 0.05)

    def begin_planes(self):
        """Adds an input whose planes mostly begin at multiples of 64 bytes."""
        shape = [self.choose(*[1] * 6, 2), self.number(1, 6), 8, self.choose(*[8] * 6, 16, 7)]
        value = Value("x0", self.array(self.choose(np.uint8, np.int8), shape))
        value.scale, value.zero = self.parameters(value.kind, 0.05)
        self.inputs.append(value)
        self.known[value.name] = value.array
        self.values.append(value)

    def begin_folds(self):
        """Adds constants that nodes may read as their data, so that they are folded."""
        for _ in range(self.choose(0, 0, 1, 2)):
            kind = self.choose(np.uint8, np.int8, np.float32)
            shape = [size if self.chance(0.7) else 1 for size in self.inputs[0].shape]
            name = self.constant(self.array(kind, shape), "k")
            given = () if kind == np.float32 else self.parameters(kind, 0.05)
            self.values.insert(0, Value(name, self.constants[name], *given))

    def grow(self, steps):
        """Adds one node, or a few that belong together. Returns false if none fits."""
        start = len(self.nodes), len(self.values), set(self.constants)
        try:
            self.choose(*steps)(self)
            return True
        except Unfit:
            del self.nodes[start[0]:], self.values[start[1]:]
            for name in set(self.constants) - start[2]:
                del self.constants[name]
            return False

    def quantize(self, value, kind, what="QuantizeLinear"):
        spread = float(np.max(np.abs(value.array), initial=1e-3))
        if not np.isfinite(spread):
            raise Unfit()
        given = self.parameters(kind, min(max(spread, 1e-6), 1e30) / 100)
        return self.add(what, [value, *given], quantized=given)
