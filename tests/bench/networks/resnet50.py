"""ResNet-50 as a QOperator file, such as quantize_static(..., per_channel=True) writes, but with
random weights: the figures of loading do not depend on what the network has learned."""
import numpy as np
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
MICROSOFT = "com.microsoft"
BLOCKS = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))  # blocks, width, first stride
WIDENING = 4  # the channels that leave a block / its width
CLASSES = 1000
SCALE, ZERO_POINT = "scale", "zero_point"  # of all activations


class Network:
    def __init__(self):
        self.dice = np.random.default_rng(50)
        self.nodes, self.constants = [], []
        self.constant(SCALE, np.float32(1 / 32))
        self.constant(ZERO_POINT, np.uint8(100))

    def constant(self, name, array):
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, operator, inputs, domain=None, **attributes):
        name = "v%d" % len(self.nodes)
        self.nodes.append(helper.make_node(operator, inputs, [name], name, domain=domain,
                                           **attributes))
        return name

    def weights(self, *shape):
        """Returns the names of weights, their scales, zero points and bias. The scales keep the
        spread of activations about the same from layer to layer."""
        end, terms = len(self.nodes), int(np.prod(shape[1:]))
        scales = self.dice.uniform(0.5, 1.5, shape[0]) / 32 / np.sqrt(terms)
        return [self.constant("w%d" % end, np.clip(self.dice.normal(0, 32, shape), -127, 127)
                              .astype(np.int8)),
                self.constant("w_scale%d" % end, scales.astype(np.float32)),
                self.constant("w_zero_point%d" % end, np.zeros(shape[0], np.int8)),
                self.constant("b%d" % end, self.dice.integers(-999, 999, shape[0], np.int32))]

    def conv(self, x, channels, filters, kernel, stride=1):
        *weights, bias = self.weights(filters, channels, kernel, kernel)
        return self.node("QLinearConv", [x, SCALE, ZERO_POINT, *weights, SCALE, ZERO_POINT, bias],
                         kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2] * 4)

    def block(self, x, channels, width, stride):
        """Three convolutions beside a shortcut. The shortcut has a convolution, too, where the
        channels or the size of the images change."""
        wide = width * WIDENING
        at = self.conv(x, channels, width, 1)
        at = self.conv(self.conv(at, width, width, 3, stride), width, wide, 1)
        if channels != wide:
            x = self.conv(x, channels, wide, 1, stride)
        return self.node("QLinearAdd", [at, SCALE, ZERO_POINT, x, SCALE, ZERO_POINT, SCALE,
                                        ZERO_POINT], MICROSOFT)

    def classify(self, x, channels):
        at = self.node("QLinearGlobalAveragePool", [x, SCALE, ZERO_POINT, SCALE, ZERO_POINT],
                       MICROSOFT)
        *weights, bias = self.weights(CLASSES, channels)
        at = self.node("QGemm", [self.node("Flatten", [at]), SCALE, ZERO_POINT, *weights, bias,
                                 SCALE, ZERO_POINT], MICROSOFT, transB=1)
        return self.node("DequantizeLinear", [at, SCALE, ZERO_POINT])


def make():
    """Returns the model."""
    net = Network()
    at = net.node("QuantizeLinear", ["x", SCALE, ZERO_POINT])
    at = net.node("MaxPool", [net.conv(at, 3, 64, 7, 2)], kernel_shape=[3, 3], strides=[2, 2],
                  pads=[1] * 4)
    channels = 64
    for count, width, stride in BLOCKS:
        for index in range(count):
            at = net.block(at, channels, width, stride if index == 0 else 1)
            channels = width * WIDENING
    at = net.classify(at, channels)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", *shape])
             for name, shape in (("x", (3, 224, 224)), (at, (CLASSES,)))]
    graph = helper.make_graph(net.nodes, "resnet50", ports[:1], ports[1:], net.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET),
                                                   helper.make_opsetid(MICROSOFT, 1)],
                             ir_version=8)
