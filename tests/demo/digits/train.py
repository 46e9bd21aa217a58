"""Trains the network of digits that `make demo` asks, and quantizes it with ONNX Runtime.

    python3 -m venv venv
    venv/bin/pip install scikit-learn onnx onnxruntime
    venv/bin/python tests/demo/digits/train.py

Writes into the folder of this script:
    models/digits/1/model.onnx   the network, as ONNX Runtime's quantize_static wrote it
    images.f32                   the held-out images, [360, 1, 8, 8] little-endian floats, 0 to 16
    labels.txt                   the digit that each of these images shows
    scores.f32                   ONNX Runtime's answers for these images, [360, 10] floats

The images are scikit-learn's copy of "Optical Recognition of Handwritten Digits" (E. Alpaydin and
C. Kaynak, UCI Machine Learning Repository, CC BY 4.0). The last 360 of its 1797 images are held
out. A random fifth would be an easier test, because neighbours are often by the same hand.
The seed is fixed, but another BLAS may round differently, and then the weights differ.
"""
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from sklearn.datasets import load_digits

FOLDER = Path(__file__).resolve().parent
HELD_OUT = 360
EPOCHS = 60
BATCH = 32


# ---- The network's layers: each has forward, and a backward that returns the input's gradient ----

class Conv:
    """A 3 x 3 convolution with a border of zeros, as a matrix product. With a skip, its input is
    added to its output."""

    def __init__(self, rng, inputs, outputs, skip=False):
        self.weights = rng.normal(0, np.sqrt(2 / (9 * inputs)), (outputs, inputs, 3, 3))
        self.bias = np.zeros(outputs)
        self.skip = skip

    def forward(self, x):
        n, _, height, width = x.shape
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
        self.columns = windows.transpose(0, 2, 3, 1, 4, 5).reshape(n * height * width, -1)
        y = self.columns @ self.weights.reshape(len(self.bias), -1).T + self.bias
        self.positive = y > 0
        y = (y * self.positive).reshape(n, height, width, -1).transpose(0, 3, 1, 2)
        return x + y if self.skip else y

    def backward(self, dy):
        n, channels, height, width = dy.shape
        flat = dy.transpose(0, 2, 3, 1).reshape(-1, channels) * self.positive
        self.gradients = (flat.T @ self.columns).reshape(self.weights.shape), flat.sum(0)
        parts = (flat @ self.weights.reshape(channels, -1)).reshape(n, height, width, -1, 3, 3)
        dx = np.zeros((n, parts.shape[3], height + 2, width + 2))
        for i in range(3):
            for j in range(3):
                dx[:, :, i:i + height, j:j + width] += parts[..., i, j].transpose(0, 3, 1, 2)
        dx = dx[:, :, 1:-1, 1:-1]
        return dx + dy if self.skip else dx


class MaxPool:
    """The largest of each 2 x 2."""

    def forward(self, x):
        n, channels, height, width = x.shape
        blocks = x.reshape(n, channels, height // 2, 2, width // 2, 2)
        y = blocks.max((3, 5), keepdims=True)
        largest = blocks == y
        self.share = largest / largest.sum((3, 5), keepdims=True)
        return y[:, :, :, 0, :, 0]

    def backward(self, dy):
        n, channels, height, width = dy.shape
        dx = self.share * dy[:, :, :, None, :, None]
        return dx.reshape(n, channels, 2 * height, 2 * width)


class Dense:
    """A product with a matrix, of all that a network computed of an image."""

    def __init__(self, rng, inputs, outputs):
        self.weights = rng.normal(0, np.sqrt(1 / inputs), (inputs, outputs))
        self.bias = np.zeros(outputs)

    def forward(self, x):
        self.shape = x.shape
        self.x = x.reshape(len(x), -1)
        return self.x @ self.weights + self.bias

    def backward(self, dy):
        self.gradients = self.x.T @ dy, dy.sum(0)
        return (dy @ self.weights.T).reshape(self.shape)


class Dropout:
    """Replaces some values by 0 while a network is trained, so that none is relied upon alone."""

    def __init__(self, rng):
        self.rng = rng

    def forward(self, x):
        self.kept = (self.rng.random(x.shape) > 0.3) / 0.7
        return x * self.kept

    def backward(self, dy):
        return dy * self.kept


# ---- Training ------------------------------------------------------------------------------------

def moved(rng, images):
    """Returns the images, each a little shifted, scaled, turned and slanted at random."""
    n = len(images)
    matrices = np.eye(2) + rng.normal(0, 0.1, (n, 2, 2))
    shifts = rng.uniform(-0.7, 0.7, (n, 2))
    grid = np.stack(np.meshgrid(np.arange(8), np.arange(8), indexing="ij"), -1).reshape(-1, 2)
    places = np.einsum("nij,kj->nki", matrices, grid - 3.5) + shifts[:, None] + 3.5
    places = np.clip(places + 1, 0, 8.999)  # in the padded image
    padded = np.pad(images[:, 0], ((0, 0), (1, 1), (1, 1)))
    corners = places.astype(int)
    parts = places - corners
    result = np.zeros((n, 64))
    for i in range(2):
        for j in range(2):
            corner = np.array([i, j])
            shares = np.abs(1 - corner - parts).prod(-1)
            at = corners + corner
            result += shares * padded[np.arange(n)[:, None], at[..., 0], at[..., 1]]
    return result.reshape(n, 1, 8, 8)


def forward(layers, x):
    for layer in layers:
        x = layer.forward(x)
    return x


def train(rng, images, labels):
    """Returns the layers, trained by stochastic gradient descent with momentum."""
    layers = [Conv(rng, 1, 16), MaxPool(), Conv(rng, 16, 32), Conv(rng, 32, 32, skip=True),
              MaxPool(), Dropout(rng), Dense(rng, 32 * 2 * 2, 10)]
    learning = [layer for layer in layers if hasattr(layer, "weights")]
    speeds = [[np.zeros_like(layer.weights), np.zeros_like(layer.bias)] for layer in learning]
    for epoch in range(EPOCHS):
        rate = 0.03 * (1 + np.cos(np.pi * epoch / EPOCHS)) / 2
        for batch in np.array_split(rng.permutation(len(images)), len(images) // BATCH):
            scores = forward(layers, moved(rng, images[batch]) / 16)
            gradient = np.exp(scores - scores.max(1, keepdims=True))
            gradient /= gradient.sum(1, keepdims=True)
            gradient[np.arange(len(batch)), labels[batch]] -= 1
            gradient /= len(batch)
            for layer in reversed(layers):
                gradient = layer.backward(gradient)
            for layer, speed in zip(learning, speeds):
                for i, values in enumerate((layer.weights, layer.bias)):
                    speed[i] = 0.9 * speed[i] - rate * (layer.gradients[i] + 2e-4 * values)
                    values += speed[i]
    layers.remove(next(layer for layer in layers if isinstance(layer, Dropout)))
    return layers


# ---- The file ------------------------------------------------------------------------------------

def float_model(layers):
    """Returns the network as an ONNX model of floats. Pixels are 0 to 16, so the first layer's
    weights take the division by 16."""
    conv1, _, conv2, conv3, _, dense = layers
    values = {"w1": conv1.weights / 16, "b1": conv1.bias, "w2": conv2.weights, "b2": conv2.bias,
              "w3": conv3.weights, "b3": conv3.bias, "w4": dense.weights, "b4": dense.bias}
    node = helper.make_node
    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [node("Conv", ["image", "w1", "b1"], ["c1"], "conv1", pads=[1] * 4),
             node("Relu", ["c1"], ["r1"], "relu1"),
             node("MaxPool", ["r1"], ["p1"], "pool1", **pool),
             node("Conv", ["p1", "w2", "b2"], ["c2"], "conv2", pads=[1] * 4),
             node("Relu", ["c2"], ["r2"], "relu2"),
             node("Conv", ["r2", "w3", "b3"], ["c3"], "conv3", pads=[1] * 4),
             node("Relu", ["c3"], ["r3"], "relu3"),
             node("Add", ["r2", "r3"], ["sum"], "add"),
             node("MaxPool", ["sum"], ["p2"], "pool2", **pool),
             node("Flatten", ["p2"], ["features"], "flatten"),
             node("Gemm", ["features", "w4", "b4"], ["logits"], "gemm"),
             node("Softmax", ["logits"], ["scores"], "softmax", axis=1)]
    tensors = [numpy_helper.from_array(value.astype(np.float32), name)
               for name, value in values.items()]
    graph = helper.make_graph(
        nodes, "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 1, 8, 8])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 10])], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


class Images(CalibrationDataReader):
    """The images from which ONNX Runtime learns each tensor's range."""

    def __init__(self, images):
        self.batches = iter(np.array_split(images, 10))

    def get_next(self):
        batch = next(self.batches, None)
        return None if batch is None else {"image": batch}


def run(path, images):
    """Returns ONNX Runtime's scores. The option makes it add exactly on x86 without VNNI."""
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    return session.run(None, {"image": images})[0]


def main():
    digits = load_digits()
    images = digits.images.astype(np.float32)[:, None]
    labels = digits.target
    known, held_out = images[:-HELD_OUT], images[-HELD_OUT:]
    layers = train(np.random.default_rng(28), known, labels[:-HELD_OUT])

    path = FOLDER / "models" / "digits" / "1" / "model.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder, "float.onnx")
        onnx.save(float_model(layers), before)
        quantize_static(before, path, Images(known), quant_format=QuantFormat.QOperator,
                        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
                        per_channel=True)
        in_floats = run(before, held_out)
    scores = run(path, held_out)

    held_out.astype("<f4").tofile(FOLDER / "images.f32")
    scores.astype("<f4").tofile(FOLDER / "scores.f32")
    (FOLDER / "labels.txt").write_text("".join("%d\n" % label for label in labels[-HELD_OUT:]))
    for name, answer in (("in floats", in_floats), ("quantized", scores)):
        right = int((answer.argmax(1) == labels[-HELD_OUT:]).sum())
        print("%s: %d of %d right" % (name, right, HELD_OUT))
    print("%s: %d bytes" % (path.name, path.stat().st_size))


if __name__ == "__main__":
    sys.exit(main())
