"""Networks of floats with the layers of well-known ones and random weights: how long a network
takes does not depend on what it has learned. Batch normalization is in the weights already."""
import numpy as np
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
CLASSES = 1000


class Network:
    """A network that grows node by node. The methods return the name of a value."""

    def __init__(self, shape):
        self.dice = np.random.default_rng(30)
        self.nodes, self.weights = [], []
        self.shapes = {"x": tuple(shape)}  # of values, without the batch

    # ---- Nodes -----------------------------------------------------------------------------------

    def constant(self, array):
        name = "c%d" % len(self.weights)
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def random(self, *shape, gain=2):
        terms = max(1, int(np.prod(shape[1:])))
        return self.constant(self.dice.normal(0, np.sqrt(gain / terms), shape).astype(np.float32))

    def node(self, operator, *inputs, shape=None, outputs=1, **attributes):
        """Adds a node. `shape`: of each output, if it is not that of the first input."""
        names = ["v%d_%d" % (len(self.nodes), k) for k in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, names, names[0], **attributes))
        self.shapes.update((name, shape or self.shapes[inputs[0]]) for name in names)
        return names[0] if outputs == 1 else names

    def window(self, operator, x, inputs, channels, kernel, stride, pads=None, **attributes):
        """Adds a convolution or a pool. Its pads keep the size of the image at stride 1."""
        kernel, stride = pair(kernel), pair(stride)
        before = [size // 2 for size in kernel] if pads is None else pair(pads)
        after = [size - 1 - pad if pads is None else pad for size, pad in zip(kernel, before)]
        sizes = [(size + first + last - span) // step + 1 for size, first, last, span, step in
                 zip(self.shapes[x][1:], before, after, kernel, stride)]
        return self.node(operator, x, *inputs, shape=(channels, *sizes), kernel_shape=kernel,
                         strides=stride, pads=[*before, *after], **attributes)

    def conv(self, x, filters, kernel=3, stride=1, act="Relu", group=1, **attributes):
        kernel = pair(kernel)
        weights = self.random(filters, self.shapes[x][0] // group, *kernel, gain=2 if act else 0.5)
        made = self.window("Conv", x, (weights, self.random(filters, gain=0.01)), filters, kernel,
                           stride, group=group, **attributes)
        return self.act(made, act)

    def depthwise(self, x, kernel=3, stride=1, act="Relu"):
        channels = self.shapes[x][0]
        return self.conv(x, channels, kernel, stride, act, channels)

    def separable(self, x, filters, stride=1, act="Relu", kernel=3):
        return self.conv(self.depthwise(x, kernel, stride, act), filters, 1, act=act)

    def act(self, x, act):
        if act == "Relu6":
            return self.node("Clip", x, self.constant(np.float32(0)), self.constant(np.float32(6)))
        if act == "SiLU":
            return self.node("Mul", x, self.node("Sigmoid", x))
        return self.node(act, x) if act else x

    def pool(self, x, kernel=3, stride=2, operator="MaxPool", **attributes):
        return self.window(operator, x, (), self.shapes[x][0], kernel, stride, **attributes)

    def mean(self, x):
        return self.node("GlobalAveragePool", x, shape=(self.shapes[x][0], 1, 1))

    def concat(self, *values, axis=1):
        shape = list(self.shapes[values[0]])
        shape[axis - 1] = sum(self.shapes[value][axis - 1] for value in values)
        return self.node("Concat", *values, shape=tuple(shape), axis=axis)

    def reshape(self, x, *shape):
        return self.node("Reshape", x, self.constant(np.int64([1, *shape])), shape=shape)

    def transpose(self, x, *order):
        return self.node("Transpose", x, perm=[0, *order],
                         shape=tuple(self.shapes[x][axis - 1] for axis in order))

    def split(self, x, *sizes):
        """Splits channels."""
        names = self.node("Split", x, self.constant(np.int64(sizes)), outputs=len(sizes), axis=1)
        self.shapes.update((name, (size, *self.shapes[x][1:])) for name, size in zip(names, sizes))
        return names

    def double(self, x):
        """Doubles the image's height and width."""
        channels, *sizes = self.shapes[x]
        return self.node("Resize", x, "", self.constant(np.float32([1, 1, 2, 2])),
                         shape=(channels, *(2 * size for size in sizes)), mode="nearest",
                         coordinate_transformation_mode="asymmetric", nearest_mode="floor")

    def dense(self, x, outputs=CLASSES, act=None):
        if len(self.shapes[x]) > 1:
            x = self.node("Flatten", x, shape=(int(np.prod(self.shapes[x])),))
        weights = self.random(outputs, self.shapes[x][0], gain=2 if act else 1)
        return self.act(self.node("Gemm", x, weights, self.random(outputs, gain=0.01),
                                  shape=(outputs,), transB=1), act)

    def head(self, x, outputs=CLASSES):
        return self.dense(self.mean(x), outputs)

    def excite(self, x, width, act="Relu", gate="HardSigmoid"):
        """Multiplies each channel by a factor, which is computed from the means of all."""
        at = self.conv(self.mean(x), width, 1, act=act)
        at = self.conv(at, self.shapes[x][0], 1, act=None)
        return self.node("Mul", x, self.node(gate, at, **(
            {"alpha": 1 / 6} if gate == "HardSigmoid" else {})))

    def model(self, result):
        ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, *self.shapes[value]])
                 for name, value in (("x", "x"), ("y", result))]
        for node in self.nodes:
            node.output[:] = ["y" if name == result else name for name in node.output]
            node.input[:] = ["y" if name == result else name for name in node.input]
        return helper.make_model(
            helper.make_graph(self.nodes, "network", ports[:1], ports[1:], self.weights),
            opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


def pair(value):
    return list(value) if isinstance(value, (tuple, list)) else [value] * 2


# ---- Classifiers ---------------------------------------------------------------------------------


def resnet(net, blocks, wide):
    """`wide`: the channels that leave a block of three convolutions / its width. 1: blocks have
    two convolutions."""
    at = net.pool(net.conv("x", 64, 7, 2))
    for stage, count in enumerate(blocks):
        for index in range(count):
            width, stride = 64 << stage, 2 if stage and not index else 1
            if wide > 1:
                made = net.conv(net.conv(at, width, 1), width, 3, stride)
            else:
                made = net.conv(at, width, 3, stride)
            made = net.conv(made, width * wide, 1 if wide > 1 else 3, act=None)
            at = shortcut(net, at, made, stride)
    return net.head(at)


def shortcut(net, x, made, stride):
    if net.shapes[x] != net.shapes[made]:
        x = net.conv(x, net.shapes[made][0], 1, stride, act=None)
    return net.act(net.node("Add", made, x), "Relu")


def vgg(net):
    at = "x"
    for filters, count in ((64, 1), (128, 1), (256, 2), (512, 2), (512, 2)):
        for _ in range(count):
            at = net.conv(at, filters)
        at = net.pool(at, 2, 2, pads=0)
    return net.dense(net.dense(at, 1024, "Relu"))


def mobilenet_v1(net, width=1.0, outputs=CLASSES):
    at = net.conv("x", int(32 * width), 3, 2)
    for filters, stride in ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2),
                            *[(512, 1)] * 5, (1024, 2), (1024, 1)):
        at = net.separable(at, int(filters * width), stride)
    return net.head(at, outputs)


def inverted(net, x, filters, wide, kernel, stride, act, squeeze=None):
    """A depthwise convolution between one that widens and one that narrows. `squeeze`: adds
    squeeze and excitation to a value."""
    at = net.conv(x, wide, 1, act=act) if wide != net.shapes[x][0] else x
    at = net.depthwise(at, kernel, stride, act)
    at = net.conv(squeeze(at) if squeeze else at, filters, 1, act=None)
    return net.node("Add", x, at) if net.shapes[x] == net.shapes[at] else at


def mobilenet_v2(net):
    at = net.conv("x", 32, 3, 2, "Relu6")
    for factor, filters, count, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2),
                                           (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
                                           (6, 320, 1, 1)):
        for index in range(count):
            at = inverted(net, at, filters, factor * net.shapes[at][0], 3,
                          1 if index else stride, "Relu6")
    return net.head(net.conv(at, 1280, 1, act="Relu6"))


V3_SMALL = ((3, 16, 16, 1, 0, 2), (3, 72, 24, 0, 0, 2), (3, 88, 24, 0, 0, 1), (5, 96, 40, 1, 1, 2),
            (5, 240, 40, 1, 1, 1), (5, 240, 40, 1, 1, 1), (5, 120, 48, 1, 1, 1),
            (5, 144, 48, 1, 1, 1), (5, 288, 96, 1, 1, 2), (5, 576, 96, 1, 1, 1),
            (5, 576, 96, 1, 1, 1))  # kernel, wide, filters, squeeze, HardSwish, stride


def mobilenet_v3(net, width=1.0, stride_of=int):
    """Returns the value before the classifier. `stride_of`: the stride for one of MobileNet's."""
    at = net.conv("x", eights(16 * width), 3, 2, "HardSwish")
    for kernel, wide, filters, squeeze, swish, stride in V3_SMALL:
        wide = eights(wide * width)
        at = inverted(net, at, eights(filters * width), wide, kernel, stride_of(stride),
                      "HardSwish" if swish else "Relu",
                      (lambda x, wide=wide: net.excite(x, eights(wide / 4))) if squeeze else None)
    return net.conv(at, eights(576 * width), 1, act="HardSwish")


def eights(channels):
    """Rounds to a multiple of 8 that is not much smaller."""
    near = max(8, int(channels + 4) // 8 * 8)
    return near if near >= 0.9 * channels else near + 8


def mobilenet_v3_small(net):
    return net.dense(net.dense(net.mean(mobilenet_v3(net)), 1024, "HardSwish"))


def efficientnet_b0(net):
    at = net.conv("x", 32, 3, 2, "SiLU")
    for factor, filters, count, stride, kernel in (
            (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3),
            (6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)):
        for index in range(count):
            channels = net.shapes[at][0]
            at = inverted(net, at, filters, factor * channels, kernel, 1 if index else stride,
                          "SiLU", lambda x, width=channels // 4: net.excite(
                              x, width, "SiLU", "Sigmoid"))
    return net.head(net.conv(at, 1280, 1, act="SiLU"))


def squeezenet(net):
    at = net.pool(net.conv("x", 64, 3, 2, pads=0), pads=0)
    for count, narrow in enumerate((16, 16, 32, 32, 48, 48, 64, 64)):
        if count in (2, 4):
            at = net.pool(at, pads=0)
        at = net.conv(at, narrow, 1)
        at = net.concat(net.conv(at, 4 * narrow, 1), net.conv(at, 4 * narrow))
    return net.node("Flatten", net.mean(net.conv(at, CLASSES, 1)), shape=(CLASSES,))


def shufflenet(net):
    at = net.pool(net.conv("x", 24, 3, 2))
    for filters, count in ((48, 4), (96, 8), (192, 4)):
        half = filters // 2
        for index in range(count):
            if index:
                kept, at = net.split(at, half, half)
            else:
                kept = net.conv(net.depthwise(at, 3, 2, None), half, 1)
            at = net.depthwise(net.conv(at, half, 1), 3, 1 if index else 2, None)
            at = net.concat(kept, net.conv(at, half, 1))
            sizes = net.shapes[at][1:]
            at = net.transpose(net.reshape(at, 2, half, *sizes), 2, 1, 3, 4)
            at = net.reshape(at, filters, *sizes)
    return net.head(net.conv(at, 1024, 1))


INCEPTION = ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64), None,
             (192, 96, 208, 16, 48, 64), (160, 112, 224, 24, 64, 64), (128, 128, 256, 24, 64, 64),
             (112, 144, 288, 32, 64, 64), (256, 160, 320, 32, 128, 128), None,
             (256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128))


def inception(net):
    at = net.pool(net.conv("x", 64, 7, 2))
    at = net.pool(net.conv(net.conv(at, 64, 1), 192))
    for widths in INCEPTION:
        if widths is None:
            at = net.pool(at)
            continue
        one, narrow, three, thin, five, pooled = widths
        at = net.concat(net.conv(at, one, 1), net.conv(net.conv(at, narrow, 1), three),
                        net.conv(net.conv(at, thin, 1), five, 5),
                        net.conv(net.pool(at, 3, 1), pooled, 1))
    return net.head(at)


def densenet(net):
    at = net.pool(net.conv("x", 64, 7, 2))
    for count in (6, 12, 16, 8):
        for _ in range(count):
            at = net.concat(at, net.conv(net.conv(at, 128, 1), 32))
        if count != 8:
            at = net.pool(net.conv(at, net.shapes[at][0] // 2, 1), 2, 2, "AveragePool", pads=0)
    return net.head(at)


def text_direction(net):
    """PP-OCR's classifier. It halves a line's height only."""
    at = mobilenet_v3(net, 0.35, lambda stride: (stride, 1))
    return net.node("Softmax", net.head(net.pool(at, 2, 2, pads=0), 2), axis=-1)


# ---- MLPerf Tiny ---------------------------------------------------------------------------------


def keywords(net):
    at = net.conv("x", 64, (10, 4), 2)
    for _ in range(4):
        at = net.separable(at, 64)
    return net.node("Softmax", net.head(at, 12), axis=-1)


def resnet8(net):
    at = net.conv("x", 16)
    for filters, stride in ((16, 1), (32, 2), (64, 2)):
        made = net.conv(net.conv(at, filters, 3, stride), filters, act=None)
        at = shortcut(net, at, made, stride)
    return net.node("Softmax", net.head(at, 10), axis=-1)


def wake(net):
    return net.node("Softmax", mobilenet_v1(net, 0.25, 2), axis=-1)


def anomaly(net):
    at = "x"
    for width in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        at = net.dense(at, width, "Relu")
    return net.dense(at, 640)


# ---- Detectors -----------------------------------------------------------------------------------


def pyramid(net, values, fuse, down):
    """Joins images of three sizes from the small to the large and back."""
    large, middle, small = values
    middle = fuse(net.concat(net.double(small), middle), net.shapes[middle][0])
    large = fuse(net.concat(net.double(middle), large), net.shapes[large][0])
    middle = fuse(net.concat(down(large), middle), net.shapes[middle][0])
    small = fuse(net.concat(down(middle), small), net.shapes[small][0])
    return large, middle, small


def pools(net, x, kernels):
    """Concatenates images with their maxima, and halves the channels before."""
    channels = net.shapes[x][0]
    at = net.conv(x, channels // 2, 1, act="SiLU")
    return net.conv(net.concat(at, *kernels(at)), channels, 1, act="SiLU")


def in_turn(net):
    def kernels(at):
        found = [net.pool(at, 5, 1)]
        for _ in range(2):
            found.append(net.pool(found[-1], 5, 1))
        return found
    return kernels


def yolov8(net):
    def fuse(x, filters, count=1, residual=False):
        half = filters // 2
        parts = net.split(net.conv(x, filters, 1, act="SiLU"), half, half)
        for _ in range(count):
            at = net.conv(net.conv(parts[-1], half, act="SiLU"), half, act="SiLU")
            parts.append(net.node("Add", parts[-1], at) if residual else at)
        return net.conv(net.concat(*parts), filters, 1, act="SiLU")

    def down(x):
        return net.conv(x, net.shapes[x][0], 3, 2, "SiLU")

    at, kept = net.conv("x", 16, 3, 2, "SiLU"), []
    for filters, count in ((32, 1), (64, 2), (128, 2), (256, 1)):
        at = fuse(net.conv(at, filters, 3, 2, "SiLU"), filters, count, True)
        kept.append(at)
    kept[-1] = pools(net, at, in_turn(net))
    found = []
    for x in pyramid(net, kept[1:], fuse, down):
        at = [net.conv(net.conv(net.conv(x, width, act="SiLU"), width, act="SiLU"), last, 1,
                       act=None) for width, last in ((64, 64), (80, 80))]
        found.append(flat(net, net.concat(*at)))
    box, classes = net.split(net.concat(*found, axis=2), 64, 80)
    box = net.transpose(net.reshape(box, 4, 16, net.shapes[box][1]), 2, 1, 3)
    box = net.conv(net.node("Softmax", box, axis=1), 1, 1, act=None)
    return net.concat(net.reshape(box, *net.shapes[box][1:]), net.node("Sigmoid", classes))


def flat(net, x):
    channels, height, width = net.shapes[x]
    return net.reshape(x, channels, height * width)


def yolox(net):
    def fuse(x, filters, count=1, residual=False):
        half = filters // 2
        at = net.conv(x, half, 1, act="SiLU")
        for _ in range(count):
            made = net.separable(net.conv(at, half, 1, act="SiLU"), half, 1, "SiLU")
            at = net.node("Add", at, made) if residual else made
        return net.conv(net.concat(at, net.conv(x, half, 1, act="SiLU")), filters, 1, act="SiLU")

    def down(x):
        return net.separable(x, net.shapes[x][0], 2, "SiLU")

    at, kept = net.conv(focus(net, "x"), 16, act="SiLU"), []
    for filters, count in ((32, 1), (64, 3), (128, 3), (256, 1)):
        at = net.separable(at, filters, 2, "SiLU")
        if filters == 256:
            at = pools(net, at, lambda x: [net.pool(x, size, 1) for size in (5, 9, 13)])
        at = fuse(at, filters, count, filters < 256)
        kept.append(at)
    found = []
    for x in pyramid(net, kept[1:], fuse, down):
        x = net.conv(x, 64, 1, act="SiLU")
        classes, box = (net.separable(net.separable(x, 64, 1, "SiLU"), 64, 1, "SiLU")
                        for _ in range(2))
        at = [net.conv(box, 4, 1, act=None), net.conv(box, 1, 1, act="Sigmoid"),
              net.conv(classes, 80, 1, act="Sigmoid")]
        found.append(flat(net, net.concat(*at)))
    at = net.concat(*found, axis=2)
    return net.transpose(at, 2, 1)


def focus(net, x):
    """Moves each 2 × 2 pixels into the channels, by slices."""
    channels, height, width = net.shapes[x]
    end, axes, steps = (net.constant(np.int64(list(values)))
                        for values in ((height, width), (2, 3), (2, 2)))
    return net.concat(*(net.node("Slice", x, net.constant(np.int64([top, left])), end, axes, steps,
                                 shape=(channels, height // 2, width // 2))
                        for left in (0, 1) for top in (0, 1)))


# Name -> (shape of x without the batch, what makes the network, its arguments).
NETWORKS = {
    "ResNet-18": ((3, 224, 224), resnet, (2, 2, 2, 2), 1),
    "ResNet-50": ((3, 224, 224), resnet, (3, 4, 6, 3), 4),
    "VGG-11": ((3, 112, 112), vgg),
    "Inception": ((3, 224, 224), inception),
    "DenseNet": ((3, 112, 112), densenet),
    "MobileNetV1": ((3, 224, 224), mobilenet_v1),
    "MobileNetV2": ((3, 224, 224), mobilenet_v2),
    "MobileNetV3-small": ((3, 224, 224), mobilenet_v3_small),
    "EfficientNet-B0": ((3, 224, 224), efficientnet_b0),
    "SqueezeNet": ((3, 224, 224), squeezenet),
    "ShuffleNetV2 ×0.5": ((3, 224, 224), shufflenet),
    "YOLOv8n": ((3, 256, 256), yolov8),
    "YOLOX-nano": ((3, 256, 256), yolox),
    "text direction": ((3, 48, 192), text_direction),
    "keywords": ((1, 49, 10), keywords),
    "ResNet-8": ((3, 32, 32), resnet8),
    "wake": ((3, 96, 96), wake),
    "anomaly": ((640,), anomaly),
}


def make(name):
    """Returns the model of that name."""
    shape, build, *arguments = NETWORKS[name]
    net = Network(shape)
    return net.model(build(net, *arguments))
