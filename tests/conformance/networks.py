"""Whole networks, quantized by ONNX Runtime, for the server to load.

Each network is made of floats with the onnx package, and ONNX Runtime's quantize_static turns it
into files of the forms QOperator and QDQ. Their bits are compared as the quantizer wrote them, and
those of QOperator files also in a copy in which the values between the nodes are outputs.
"""
import dataclasses
import platform
from pathlib import Path

import numpy as np

from onnx_files import judged, quantized

OUTPUT_COUNT_MAX = 32  # of a graph that the server loads
OPSET = 17
SIDE = 12  # of the images

# What the server does not have yet: words of the error with which it refuses such a file, and a
# name. A network that is refused with these words is skipped and counted. When the server gets one
# of them, remove its line.
GAPS = (
    ("onnx.Split): num_outputs: expected", "Split without sizes before opset 18"),
)

class Network:
    """A network of floats, which grows node by node. The methods return the name of a value."""

    def __init__(self, dice, channels=3):
        self.dice = dice
        self.nodes, self.weights = [], []
        self.channels = {"x": channels}  # value -> its second dimension

    def constant(self, name, array):
        from onnx import numpy_helper
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def random(self, name, *shape):
        fan = max(1, int(np.prod(shape[1:])))
        return self.constant(name, self.dice.normal(0, 1.5 / np.sqrt(fan), shape)
                             .astype(np.float32))

    def node(self, operator, *sources, channels=None, outputs=1, **attributes):
        from onnx import helper
        name = "%s%d" % (operator.lower(), len(self.nodes))
        names = [name] if outputs == 1 else ["%s_%d" % (name, i) for i in range(outputs)]
        self.nodes.append(helper.make_node(operator, list(sources), names, name, **attributes))
        for made in names:
            self.channels[made] = channels or self.channels[sources[0]]
        return name if outputs == 1 else names

    def conv(self, source, filters, kernel=3, activation="Relu", **attributes):
        number = len(self.nodes)
        shape = (filters, self.channels[source] // attributes.get("group", 1), kernel, kernel)
        at = self.node("Conv", source, self.random("w%d" % number, *shape),
                       self.random("b%d" % number, filters), channels=filters,
                       pads=[kernel // 2] * 4, **attributes)
        return self.node(activation, at) if activation else at

    def depthwise(self, source, **attributes):
        channels = self.channels[source]
        return self.conv(source, channels, group=channels, **attributes)

    def relu6(self, source):
        limits = [self.constant("%s_%d" % (source, limit), np.float32(limit)) for limit in (0, 6)]
        return self.node("Clip", source, *limits)

    def head(self, source, classes=7):
        """Classifies: the mean of each channel, and a matrix product."""
        at = self.node("Flatten", self.node("GlobalAveragePool", source))
        number = len(self.nodes)
        weights = self.random("w%d" % number, classes, self.channels[source])
        return self.node("Gemm", at, weights, self.random("b%d" % number, classes), transB=1,
                         channels=classes)

    def model(self, result, rank):
        from onnx import TensorProto, helper
        graph = helper.make_graph(
            self.nodes, "network",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT,
                                           ["n", self.channels["x"], SIDE, SIDE])],
            [helper.make_tensor_value_info(result, TensorProto.FLOAT, ["n"] + [None] * (rank - 1))],
            self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)],
                                 ir_version=8)


# ---- The networks. Each returns (its result, the result's rank). -----------------------------


def residual(net):
    at = net.node("MaxPool", net.conv("x", 8), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for filters, stride in ((8, 1), (12, 2)):
        branch = net.conv(net.conv(at, filters, strides=[stride] * 2), filters, activation=None)
        if stride > 1:
            at = net.conv(at, filters, 1, None, strides=[stride] * 2)
        at = net.node("Relu", net.node("Add", branch, at))
    return net.head(at), 2


def dense(net):
    at = net.conv("x", 6)
    for _ in range(3):
        grown = net.conv(at, 4)
        at = net.node("Concat", at, grown, axis=1, channels=net.channels[at] + 4)
    at = net.conv(at, 8, 1)
    return net.head(net.node("AveragePool", at, kernel_shape=[2, 2], strides=[2, 2])), 2


def inception(net):
    at = net.conv("x", 6)
    pooled = net.node("MaxPool", at, kernel_shape=[3, 3], pads=[1] * 4)
    averaged = net.node("AveragePool", at, kernel_shape=[3, 3], pads=[1] * 4)
    branches = [net.conv(at, 4, 1), net.conv(net.conv(at, 4, 1), 5, 3), net.conv(pooled, 3, 1),
                net.conv(averaged, 4, 1)]
    at = net.node("Concat", *branches, axis=1, channels=16)
    return net.conv(at, 5, 1, None), 4


def squeezed(net):
    """MobileNet's inverted bottleneck, with EfficientNet's gate for each channel."""
    at = net.conv("x", 6)
    wide = net.depthwise(net.conv(at, 18, 1))
    gate = net.conv(net.node("GlobalAveragePool", wide), 4, 1)
    gate = net.conv(gate, 18, 1, "Sigmoid")
    narrow = net.conv(net.node("Mul", wide, gate), 6, 1, None)
    at = net.node("Add", narrow, at)
    inner = net.conv(at, 8, 1, None)  # and its activation, x * sigmoid(x)
    return net.head(net.node("Mul", inner, net.node("Sigmoid", inner))), 2


def depthwise(net):
    at = net.relu6(net.conv("x", 8, activation=None, strides=[2, 2]))
    for filters, stride in ((12, 1), (16, 2)):
        at = net.relu6(net.depthwise(at, activation=None, strides=[stride] * 2))
        at = net.conv(at, filters, 1, None)
    return net.head(net.depthwise(at, kernel=5, activation="LeakyRelu")), 2


def pyramid(net):
    """A feature pyramid: a coarse level is enlarged and joined with a fine one."""
    fine = net.conv("x", 6)
    coarse = net.conv(fine, 8, strides=[2, 2])
    sizes = net.constant("sizes", np.array([1, 1, 2, 2], np.float32))
    large = net.node("Resize", coarse, "", sizes, mode="nearest", nearest_mode="floor",
                     coordinate_transformation_mode="asymmetric")
    at = net.node("Concat", large, fine, axis=1, channels=14)
    lateral = net.conv(at, 8, 1)
    large = net.node("Resize", net.conv(coarse, 8, 1, None), "", sizes, mode="nearest")
    return net.conv(net.node("Add", large, lateral), 4, 3, None), 4


def classifier(net):
    """Only a head, whose result are probabilities."""
    return net.node("Softmax", net.head(net.conv("x", 10)), axis=1), 2


def shuffled(net):
    """Moves elements: halves of the channels, a shuffle, blocks of pixels, an edge."""
    at = net.conv("x", 8)
    sizes = net.constant("sizes", np.array([4, 4]))
    halves = net.node("Split", at, sizes, outputs=2, axis=1, channels=4)
    at = net.node("Concat", halves[0], net.conv(halves[1], 4), axis=1, channels=8)
    parts = net.constant("parts", np.array([0, 2, 4, SIDE, SIDE], np.int64))
    whole = net.constant("whole", np.array([0, 8, SIDE, SIDE], np.int64))
    at = net.node("Reshape", at, parts)
    at = net.node("Reshape", net.node("Transpose", at, perm=[0, 2, 1, 3, 4]), whole, channels=8)
    at = net.node("SpaceToDepth", net.conv(at, 4, 1), blocksize=2, channels=16)
    return net.conv(at, 5, 1, None), 4


def attention(net):
    """Products of matrices that are no constants, and one that is."""
    at = net.conv("x", 8, strides=[2, 2])
    shape = net.constant("rows", np.array([0, 8, -1], np.int64))
    keys = net.node("Reshape", at, shape)
    rows = net.node("Transpose", keys, perm=[0, 2, 1])
    at = net.node("Softmax", net.node("MatMul", rows, keys), axis=-1)
    at = net.node("MatMul", at, rows, channels=8)
    return net.node("MatMul", at, net.random("w", 8, 6)), 3


def cut(net):
    """YOLOX's focus, between edges that are added and removed."""
    edges = net.constant("edges", np.array([0, 0, 1, 1, 0, 0, 1, 1]))
    at = net.node("Pad", net.conv("x", 4), edges)
    parts = []
    for number, (row, column) in enumerate(((1, 1), (2, 1), (1, 2), (2, 2))):
        slices = [net.constant("%s%d" % (key, number), np.array(values)) for key, values in (
            ("starts", [row, column]), ("ends", [-1, SIDE + 1]), ("axes", [2, 3]),
            ("steps", [2, 2]))]
        parts.append(net.node("Slice", at, *slices))
    return net.conv(net.node("Concat", *parts, axis=1, channels=16), 5, 1, None), 4


def halved(net):
    """A Split without sizes, as it may be before opset 18."""
    halves = net.node("Split", net.conv("x", 8), outputs=2, axis=1, channels=4)
    return net.conv(net.node("Add", *halves), 5, 1, None), 4


def hard(net):
    """MobileNetV3's activation, which the quantizer leaves in floats."""
    at = net.conv("x", 8, activation=None)
    return net.head(net.node("Mul", at, net.node("HardSigmoid", at, alpha=1 / 6, beta=0.5))), 2


def spelled_out(net):
    """HardSwish and Gelu in parts, as exporters write them if the opset lacks them."""
    at = net.conv("x", 8, activation=None)
    gate = net.relu6(net.node("Add", at, net.constant("three", np.float32(3))))
    at = net.node("Div", net.node("Mul", at, gate), net.constant("six", np.float32(6)))
    at = net.conv(at, 8, activation=None)
    erf = net.node("Erf", net.node("Div", at, net.constant("root", np.float32(2 ** 0.5))))
    at = net.node("Mul", at, net.node("Add", erf, net.constant("one", np.float32(1))))
    return net.head(net.node("Mul", at, net.constant("half", np.float32(0.5)))), 2


def floats(net):
    """Operators that the quantizer leaves in floats: functions, pools, and a slope a channel."""
    at = net.conv("x", 8, activation=None)
    at = net.node("Mul", at, net.node("Tanh", net.node("Softplus", at)))  # Mish
    at = net.node("PRelu", net.conv(at, 8, activation=None), net.random("slopes", 8, 1, 1))
    at = net.node("AveragePool", net.node("Elu", at), kernel_shape=[3, 3], strides=[2, 2])
    return net.conv(net.node("ReduceMean", net.node("Erf", at), axes=[2, 3]), 5, 1, None), 4


def computed_shape(net):
    """A shape that nodes compute from that of a value, as exporters write it."""
    at = net.conv("x", 8, strides=[2, 2])
    batch = net.node("Gather", net.node("Shape", at), net.constant("first", np.array([0])), axis=0)
    shape = net.node("Concat", batch, net.constant("rest", np.array([-1])), axis=0)
    return net.node("Reshape", at, shape), 2


def size_of(net, shape, axis):
    """One size of a shape, as PyTorch exports x.size(axis)."""
    return net.node("Gather", shape, net.constant("axis%d" % len(net.nodes), np.array(axis)),
                    axis=0)


def listed(net, *sizes):
    """A list of sizes, which are values or numbers, as PyTorch exports a tuple."""
    zero = net.constant("zero%d" % len(net.nodes), np.array([0]))
    return net.node("Concat", *[
        net.node("Unsqueeze", size, zero) if isinstance(size, str)
        else net.constant("size%d_%d" % (len(net.nodes), i), np.array([size]))
        for i, size in enumerate(sizes)], axis=0)


def shuffled_any(net):
    """ShuffleNet's shuffle of channels for any batch and any size of images, as PyTorch exports
    it."""
    at = net.conv("x", 8)
    shape = net.node("Shape", at)
    batch, channels, height = (size_of(net, shape, axis) for axis in (0, 1, 2))
    half = net.node("Div", channels, net.constant("two", np.array(2)))
    at = net.node("Reshape", at, listed(net, batch, 2, half, height, SIDE))
    at = net.node("Transpose", at, perm=[0, 2, 1, 3, 4])
    at = net.node("Reshape", at, listed(net, batch, -1, height, SIDE), channels=8)
    return net.conv(at, 4, 1, None), 4


def expanded(net):
    """A token for each image, as PyTorch exports token.expand(x.size(0), 8, -1, -1)."""
    at = net.conv("x", 8)
    wanted = listed(net, size_of(net, net.node("Shape", at), 0), 8, -1, -1)
    ones = net.node("ConstantOfShape", net.constant("rank", np.array([4])), value=one(),
                    channels=1)
    kept = net.node("Equal", wanted, net.node("Mul", ones, net.constant("minus", np.array(-1))))
    shape = net.node("Where", kept, ones, wanted)
    token = net.node("Expand", net.random("token", 1, 8, SIDE, 1), shape, channels=8)
    return net.conv(net.node("Add", at, token), 4, 3, None), 4


def one():
    from onnx import helper
    return helper.make_tensor("value", 7, [1], [1])


def upside_down(net):
    """The upper half of the rows, upside down: a slice and a Range up to what Shape says."""
    at = net.conv("x", 6)
    height = size_of(net, net.node("Shape", at), 2)
    half = net.node("Div", height, net.constant("two", np.array(2)))
    zero, unit = net.constant("zero", np.array(0)), net.constant("unit", np.array(1))
    at = net.node("Slice", at, net.constant("starts", np.array([0])),
                  net.node("Unsqueeze", half, net.constant("first", np.array([0]))),
                  net.constant("axes", np.array([2])))
    rows = net.node("Range", zero, half, unit, channels=1)
    rows = net.node("Sub", net.node("Sub", half, unit), rows)
    return net.conv(net.node("Gather", at, rows, axis=2, channels=6), 4, 3, None), 4


NETWORKS = (residual, dense, inception, squeezed, depthwise, pyramid, classifier, shuffled,
            attention, cut, halved, hard, spelled_out, floats, computed_shape, shuffled_any,
            expanded, upside_down)


def digits():
    """Returns the network that `make demo` asks, with its images."""
    import onnx
    folder = Path(__file__).resolve().parent.parent / "demo" / "digits"
    model = onnx.load(folder / "models" / "digits" / "1" / "model.onnx")
    images = np.fromfile(folder / "images.f32", "<f4").reshape(-1, 1, 8, 8)
    return Quantized("digits", "U8S8, per channel", [
        ("digits/%s" % what, file, [{"image": images}, {"image": images[7:8]}])
        for what, file in (("file", model), ("values", with_all_outputs(model)))])


# ---- Files -----------------------------------------------------------------------------------


def sums_saturate():
    """Tells whether ONNX Runtime adds products of INT8 in 16 bits here, where they overflow. It
    does so on x86 CPUs without VNNI."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return False
    words = set(Path("/proc/cpuinfo").read_text().split())
    return not words & {"avx512_vnni", "avx_vnni"}


def copy_of(model):
    from onnx import ModelProto
    return ModelProto.FromString(model.SerializeToString())


def with_batch(model, batch):
    """Returns a copy whose input has this batch: a number or a name."""
    copy = copy_of(model)
    del copy.graph.value_info[:]
    for value in [*copy.graph.input, *copy.graph.output]:
        first = value.type.tensor_type.shape.dim[0]
        if isinstance(batch, int):
            first.dim_value = batch
        else:
            first.dim_param = batch
    return copy


def with_all_outputs(model):
    """Returns a copy in which what each node makes is an output, too."""
    import onnxruntime
    from onnx import TensorProto, helper
    copy = copy_of(model)
    known = {value.name for value in copy.graph.output}
    made = [name for node in copy.graph.node for name in node.output if name not in known]
    if len(made) + len(known) > OUTPUT_COUNT_MAX:
        raise ValueError("expected a network of at most %d values, got %d"
                         % (OUTPUT_COUNT_MAX, len(made) + len(known)))
    untyped = copy_of(model)
    untyped.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in made)
    types = {"tensor(uint8)": TensorProto.UINT8, "tensor(int8)": TensorProto.INT8,
             "tensor(float)": TensorProto.FLOAT, "tensor(int64)": TensorProto.INT64,
             "tensor(bool)": TensorProto.BOOL}
    session = onnxruntime.InferenceSession(untyped.SerializeToString())
    copy.graph.output.extend(
        helper.make_tensor_value_info(value.name, types[value.type], None)
        for value in session.get_outputs() if value.name not in known)
    return copy


def feeds(model, batch, dice):
    """Yields inputs: random ones, and for a batch of any size also some of extreme values."""
    dims = model.graph.input[0].type.tensor_type.shape.dim
    shape = [dim.dim_value for dim in dims[1:]]
    count = batch if isinstance(batch, int) else 2
    yield {"x": dice.normal(0, 1, [count] + shape).astype(np.float32)}
    if count != batch:
        values = np.array([0, 1e-3, -1e-3, 2.5, -2.5, 1e30, -1e30], np.float32)
        yield {"x": np.stack([np.full(shape, value) for value in values])}
        yield {"x": dice.choice(values, [3] + shape)}


@dataclasses.dataclass
class Quantized:
    """A network as it was quantized in one way."""
    name: str  # of the network
    way: str
    files: list  # of (name, model, list of inputs)
    skipped: str = None  # why it is not checked here


def networks(seed):
    """Yields Quantized networks."""
    from onnxruntime.quantization import QuantFormat, QuantType
    saturating = sums_saturate()  # then weights of 7 bits keep the sums of convolutions exact
    for number, network in enumerate(NETWORKS):
        for way, activations, per_channel, options in (
                ("U8S8, per tensor", QuantType.QUInt8, False, {}),
                ("U8S8, per channel", QuantType.QUInt8, True, {}),
                ("S8S8, per tensor", QuantType.QInt8, False, {}),
                ("S8S8, per channel", QuantType.QInt8, True, {}),
                ("S8S8, symmetric", QuantType.QInt8, True, {"ActivationSymmetric": True}),
                ("QDQ U8S8, per tensor", QuantType.QUInt8, False, {}),
                ("QDQ U8S8, per channel", QuantType.QUInt8, True, {}),
                ("QDQ S8S8, per channel", QuantType.QInt8, True, {})):
            pairs = way.startswith("QDQ")
            dice = np.random.default_rng([seed, number, len(way), activations.value])
            net = Network(dice)
            model = quantized(net.model(*network(net)), dice, activation_type=activations,
                              weight_type=QuantType.QInt8, per_channel=per_channel,
                              reduce_range=saturating, extra_options=options,
                              quant_format=QuantFormat.QDQ if pairs else QuantFormat.QOperator)
            made = Quantized(network.__name__, way, [])
            if saturating and network is attention and activations == QuantType.QInt8:
                made.skipped = "ONNX Runtime's sums overflow on this CPU"
            for batch in (1, 3, "n"):
                whole = with_batch(model, batch)
                # An output between a pair's nodes would keep ONNX Runtime from joining them.
                files = [("file", whole)] + (
                    [] if pairs else [("values", with_all_outputs(whole))])
                for what, file in files:
                    name = "%s/%s/batch %s/%s" % (network.__name__, way, batch, what)
                    made.files.append((name.replace(", ", "_").replace(" ", "_"), file,
                                       list(feeds(whole, batch, dice))))
            yield made
    made = digits()
    if saturating:
        made.skipped = "ONNX Runtime's sums overflow on this CPU"
    yield made


def lacks(refusal):
    """Returns why a network that was refused like this is skipped. None: it is a failure."""
    return next(("quantd has no " + gap for words, gap in GAPS if words in refusal), None)


def judge(name, model, inputs):
    """Yields the file with each of the inputs, and what ONNX Runtime computes."""
    for number, feed in enumerate(inputs):
        yield judged("%s/%d" % (name, number), model, feed)
