"""Models to load, and the calls that load them."""
import base64
import json
import struct
import subprocess
import tempfile
import time
from pathlib import Path

from onnx_writer import FLOAT, INT8, UINT8, message, model, node, tensor, value_info
from quantd import (COMMAND, SLOW, Server, ServerTest, Tensor, binary_request, json_request,
                    raw_request)
from samples import CONV


def scalar(name, value):
    return tensor(name, FLOAT, [], (9, struct.pack("<f", value)))


POLL = ("--model-control-mode", "poll", "--repository-poll-secs", "0.1")
ZEROS = [tensor("zero", UINT8, [], (9, b"\0")), tensor("w_zero", INT8, [], (9, b"\0"))]


def conv_inputs(x="x", w="w"):
    return [x, "one", "zero", w, "one", "w_zero", "one", "zero"]


def conv_file(weights, dims=("n", 1, "length"), w_dims=None, **more):
    """Returns a file of y = x * weights along one axis, saturated to UINT8; all scales are 1. Many
    weights may be given as their bytes."""
    raw = weights if isinstance(weights, bytes) else struct.pack("%db" % len(weights), *weights)
    w = tensor("w", INT8, w_dims or [1, 1, len(weights)], (9, raw))
    return model(10, [node("QLinearConv", conv_inputs(), ["y"], **more)],
                 [scalar("one", 1.0), w] + ZEROS, [value_info("x", UINT8, dims)],
                 [value_info("y", UINT8, ["n", "m", "out"])])


def external_file(location, offset=0, length=3):
    """Returns conv_file with three weights that are stored in another file."""
    entries = [("location", location), ("offset", str(offset)), ("length", str(length))]
    w = tensor("w", INT8, [1, 1, 3], (14, 1),
               *[(13, message((1, key), (2, value))) for key, value in entries])
    return model(10, [node("QLinearConv", conv_inputs(), ["y"])],
                 [scalar("one", 1.0), w] + ZEROS, [value_info("x", UINT8, ["n", 1, "length"])],
                 [value_info("y", UINT8, ["n", 1, "out"])])


def chain_file():
    """Returns a file with floats in and out: quantize, convolve twice, dequantize."""
    w = tensor("w", INT8, [1, 1, 2], (9, struct.pack("2b", 1, 2)))
    nodes = [node("QuantizeLinear", ["x", "one", "zero"], ["a"]),
             node("QLinearConv", conv_inputs("a"), ["b"]),
             node("QLinearConv", conv_inputs("b"), ["c"]),
             node("DequantizeLinear", ["c", "half", "zero"], ["y"])]
    return model(13, nodes, [scalar("one", 1.0), scalar("half", 0.5), w] + ZEROS,
                 [value_info("x", FLOAT, [1, 1, "length"])],
                 [value_info("y", FLOAT, [1, 1, "out"])])


def convolve(numbers, weights):
    """Returns the result of conv_file's model for one row."""
    count = len(numbers) - len(weights) + 1
    return [max(0, min(255, sum(w * numbers[i + k] for k, w in enumerate(weights))))
            for i in range(count)]


def conv_constants(weights, x=None):
    """Returns a request for QLinearConv without x, or with x declared."""
    tensors = [Tensor.of("x_scale", "FP32", [], [1]), Tensor.of("x_zero_point", "UINT8", [], [0]),
               Tensor.of("w", "INT8", [1, 1, len(weights)], weights),
               Tensor.of("w_scale", "FP32", [], [1]), Tensor.of("w_zero_point", "INT8", [], [0]),
               Tensor.of("y_scale", "FP32", [], [1]), Tensor.of("y_zero_point", "UINT8", [], [0])]
    return tensors, ([] if x is None else [x])


def kept_request(weights, x=None, **more):
    """Returns the same request as a dict that a load call takes as its body."""
    tensors, declared = conv_constants(weights, x)
    request = json_request(tensors, model_name=CONV, **more)
    request["inputs"] += declared
    return request


def kept_binary_request(weights):
    """Returns (JSON, binary tensors), the contents of request.json and request.bin."""
    body, headers = binary_request(conv_constants(weights)[0], model_name=CONV)
    json_bytes = int(list(headers.values())[0])
    request = json.loads(body[:json_bytes])
    del request["parameters"]
    return json.dumps(request).encode(), body[json_bytes:]


def load(name, body=b""):
    """Returns the bytes of a request that loads a model."""
    return raw_request("POST", "/v2/repository/models/%s/load" % name, body)


def unload(name):
    """Returns the bytes of a request that unloads a model."""
    return raw_request("POST", "/v2/repository/models/%s/unload" % name)


class ModelTest(ServerTest):
    """Helpers for calls that load models and for requests to these models."""

    FLAGS = ("--model-control-mode", "explicit")

    def post(self, name, action, body=b"", headers=None):
        if isinstance(body, dict):
            body = json.dumps(body).encode()
        path = "/v2/repository/models/%s/%s" % (name, action)
        return self.server.request("POST", path, body, headers or {})

    def load_files(self, name, config=None, **files):
        """Loads a model with files as tritonclient does it. The keyword model_onnx means
        "model.onnx" of version 1."""
        named = {"file:1/" + key.replace("_", "."): value for key, value in files.items()}
        return self.load_named(name, config, named)

    @staticmethod
    def load_body(config, files):
        parameters = {key: base64.b64encode(value).decode() for key, value in files.items()}
        if config is not None:
            parameters["config"] = config if isinstance(config, str) else json.dumps(config)
        return json.dumps({"parameters": parameters}).encode()

    def load_named(self, name, config, files):
        return self.post(name, "load", self.load_body(config, files))

    def assert_done(self, answer):
        self.assertEqual((answer.status, answer.body), (200, b""))
        self.assertIsNone(answer.headers.get("Content-Type"))

    def ask(self, name, numbers, version=None):
        """Sends one row to a model such as conv_file's."""
        x = Tensor.of("x", "UINT8", [1, 1, len(numbers)], numbers)
        return self.server.infer(name, json_request([x]), version)

    def assert_convolves(self, name, weights, version=None):
        numbers = [3, 1, 4, 1, 5, 9, 2, 6]
        answer = self.ask(name, numbers, version)
        self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual(answer.json()["outputs"][0]["data"], convolve(numbers, weights))

    def entries(self, name, ready=None):
        """Returns the entries of the index once none is UNLOADING: a request holds its model until
        just after its client has the answer."""
        body = b"" if ready is None else json.dumps({"ready": ready}).encode()
        deadline = time.monotonic() + 30 * SLOW
        while True:
            index = self.server.request("POST", "/v2/repository/index", body).json()
            entries = [entry for entry in index if entry["name"] == name]
            if "UNLOADING" not in [entry["state"] for entry in entries] or \
                    time.monotonic() > deadline:
                return entries
            time.sleep(0.01)

    def states(self, name):
        return [entry["state"] for entry in self.entries(name)]


class RepositoryTest(ModelTest):
    """Each test has a folder of models, and servers that are stopped when the test ends."""

    @classmethod
    def setUpClass(cls):
        pass

    @classmethod
    def tearDownClass(cls):
        pass

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name) / "models"
        self.folder.mkdir()
        self.server = None

    def write(self, path, data):
        """Replaces a file in one step, so that it is never half written."""
        path = self.folder / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_name(".new").write_bytes(data if isinstance(data, bytes) else data.encode())
        path.with_name(".new").rename(path)

    def start(self, *flags):
        self.server = Server("--model-repository", str(self.folder), *flags)
        self.addCleanup(self.server.stop)

    def fail_to_start(self, *flags, repository=True, status=1):
        """Starts a server that must fail, and returns the one line that it prints."""
        flags = (["--model-repository", str(self.folder)] if repository else []) + list(flags)
        result = subprocess.run([*COMMAND, "--listen", "127.0.0.1:0", "--log-level", "error",
                                 *flags], stdin=subprocess.DEVNULL, capture_output=True,
                                timeout=30 * SLOW, check=False)
        self.assertEqual((result.returncode, result.stdout), (status, b""), result.stderr)
        line, = result.stderr.decode().splitlines()
        return line

    def follow(self, path, weights):
        """Writes a file and waits until its model, whose name the path begins with, is that one."""
        self.write(path, conv_file(weights))
        name = path.partition("/")[0].removesuffix(".onnx")
        self.wait_for(lambda: self.is_convolving(name, weights))

    def is_convolving(self, name, weights):
        try:
            self.assert_convolves(name, weights)
            return True
        except (AssertionError, KeyError):
            return False

    def wait_for(self, condition, seconds=10):
        end = time.monotonic() + seconds * SLOW
        while not condition():
            self.assertLess(time.monotonic(), end, self.server.stderr())
            time.sleep(0.02)
