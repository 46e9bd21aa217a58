"""What the convolutions' part of `make bench` measures: the layers of shapes.txt, and the bytes of
their inputs."""
import dataclasses
import functools
import math
import struct
from pathlib import Path

from figures import threads_text
from tensors import product, random_bytes, repeat

SHAPES = Path(__file__).resolve().parent / "shapes.txt"
NETWORKS = {"resnet50": "ResNet-50", "mobilenet_v2": "MobileNetV2", "audio": "audio",
            "video": "video"}
BATCHES = (1, 8)  # 8: with --full
GEMMS = ("blas", "avx2", "avxvnni", "vnni_novbmi", "vnni",  # forced, one by one
         "neon", "dotprod", "i8mm")
X_ZERO_POINT, Y_ZERO_POINT = 117, 128


@dataclasses.dataclass(frozen=True)
class Layer:
    network: str
    x: tuple  # channels, axes
    w: tuple  # output channels, kernel
    stride: tuple
    pad: tuple
    group: int
    dilation: tuple

    def __str__(self):
        text = "%s → %s" % (times(self.x), times(self.w))
        if max(self.stride) > 1:
            text += " /" + short(self.stride)
        if max(self.dilation) > 1:
            text += " dilated " + short(self.dilation)
        return text + (" depthwise" if self.group > 1 else "")

    @functools.cached_property
    def axes(self):
        """The lengths of the output's spatial axes."""
        return [(size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
                for size, pad, dilation, kernel, stride in zip(
                    self.x[1:], self.pad, self.dilation, self.w[1:], self.stride)]

    @property
    def depth(self):
        """The number of terms of one sum."""
        return self.x[0] // self.group * product(self.w[1:])

    @property
    def kind(self):
        if self.network in ("audio", "video"):
            return "1-D" if self.network == "audio" else "3-D"
        if self.group > 1:
            return "depthwise"
        if self.x[0] < 4:
            return "stem"
        return times(self.w[1:]) + ", " + NETWORKS[self.network]


@dataclasses.dataclass(frozen=True)
class Row:
    layer: Layer
    batch: int
    threads: int
    gemm: str = "auto"

    model = "onnx.QLinearConv"
    y = "UINT8"

    def __str__(self):
        return "%s %s, batch %d, %s%s" % (
            NETWORKS[self.layer.network], self.layer, self.batch,
            "" if self.gemm == "auto" else self.gemm + ", ", threads_text(self.threads))

    @property
    def y_shape(self):
        return [self.batch, self.layer.w[0], *self.layer.axes]

    @property
    def y_bytes(self):
        return product(self.y_shape)

    @property
    def x_bytes(self):
        return self.batch * product(self.layer.x)

    @property
    def operations(self):
        return 2 * self.y_bytes * self.layer.depth

    @property
    def sgemm(self):
        """m, n and k of the matrix product to which one group of one image comes."""
        return (self.layer.w[0] // self.layer.group, product(self.layer.axes), self.layer.depth)

    @property
    def sgemm_operations(self):
        return 2 * product(self.sgemm)

    @property
    def attributes(self):
        layer = self.layer
        return {"strides": list(layer.stride), "pads": list(layer.pad) * 2, "group": layer.group,
                "dilations": list(layer.dilation)}

    @functools.cached_property
    def inputs(self):
        """A tuple (name, type, shape, bytes) for each input; x has None as bytes. Weights use seven
        bits, because some of ONNX Runtime's kernels for older CPUs saturate with eight. With the
        chosen scale, few sums leave y's range."""
        layer, channels = self.layer, self.layer.w[0]
        w_shape = [channels, layer.x[0] // layer.group, *layer.w[1:]]
        y_scale = 0.02 * 0.01 * 74 * 37 * math.sqrt(layer.depth) / 50
        return [
            ("x", "UINT8", [self.batch, *layer.x], None),
            ("x_scale", "FP32", [], struct.pack("<f", 0.02)),
            ("x_zero_point", "UINT8", [], bytes([X_ZERO_POINT])),
            ("w", "INT8", w_shape, weights(product(w_shape))),
            ("w_scale", "FP32", [channels],
             repeat(struct.pack("<7f", *(0.01 * (8 + i) / 8 for i in range(7))), 4 * channels)),
            ("w_zero_point", "INT8", [channels], bytes(channels)),
            ("y_scale", "FP32", [], struct.pack("<f", y_scale)),
            ("y_zero_point", "UINT8", [], bytes([Y_ZERO_POINT])),
            ("B", "INT32", [channels],
             repeat(struct.pack("<5i", -900, 1800, 0, 450, -2700), 4 * channels)),
        ]


def weights(count):
    seven_bits = bytes((byte % 129 - 64) & 255 for byte in range(256))
    return random_bytes(count).translate(seven_bits)


def times(numbers):
    return "×".join(map(str, numbers))


def short(numbers):
    return str(numbers[0]) if len(set(numbers)) == 1 else ",".join(map(str, numbers))


def read(network):
    section = None
    for line in SHAPES.read_text().splitlines():
        if line.endswith(":"):
            section = line[:-1]
        if section != network or line.endswith(":") or not line or line.startswith("#"):
            continue
        x, w, stride, pad, group, dilation = line.split()
        x, w = (tuple(map(int, text.split("x"))) for text in (x, w))
        lists = [tuple(map(int, text.split(","))) for text in (stride, pad, dilation)]
        stride, pad, dilation = [list_ * (len(x) - 1) if len(list_) == 1 else list_
                                 for list_ in lists]
        yield Layer(network, x, w, stride, pad, int(group), dilation)


def full(threads, gemms, batches=BATCHES):
    """Returns all rows with the automatic choice of the backend, then rows on one thread for each
    of the `gemms`, the backends that the CPU has."""
    layers = [layer for network in NETWORKS for layer in read(network)]
    counts = sorted({1, threads})
    forced = [gemm for gemm in GEMMS if gemm in gemms]
    return ([Row(layer, batch, count) for layer in layers for batch in batches
             for count in counts] +
            [Row(layer, 1, 1, gemm) for gemm in forced for layer in layers])


def smoke(threads, gemms):
    """Returns the smallest layer of each kind, and a row for each backend."""
    smallest = {}
    for row in full(threads, gemms, BATCHES[:1]):
        key = (row.layer.kind, row.threads, row.gemm)
        if key not in smallest or row.operations < smallest[key].operations:
            smallest[key] = row
    return list(smallest.values())
