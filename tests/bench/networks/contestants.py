"""What runs a network of one input x and one output y: quantd, ONNX Runtime and OpenVINO. Each has
run(), which returns the nanoseconds of a run, and y."""
import json
import time

import numpy as np
import onnxruntime
from services import HEAD_LENGTH, infer_head

try:
    import openvino
except ImportError:
    openvino = None


def infer_request(x, **parameters):
    """Returns (body, headers) with x as bytes."""
    head = infer_head([("x", "FP32", list(x.shape), x.nbytes)],
                      dict(parameters, binary_data_output=True))
    return head + x.tobytes(), {HEAD_LENGTH: str(len(head))}


class Asked:
    """A network that a server has loaded. The server itself says how long a run took."""

    def __init__(self, server, name, x):
        self.client, self.path = server.server.client(), "/v2/models/%s/infer" % name
        self.plain, self.profiled = infer_request(x), infer_request(x, profile=True)
        self.y = None

    def ask(self, request):
        """Returns the answer's parameters."""
        self.client.request("POST", self.path, *request)
        answer = self.client.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise SystemExit("bench: %s: %s" % (self.path, body[:500].decode()))
        head_bytes = int(answer.headers[HEAD_LENGTH])
        self.y = body[head_bytes:]
        return json.loads(body[:head_bytes])["parameters"]

    def run(self):
        return self.ask(self.plain)["compute_us"] * 1e3

    def nodes(self):
        """Runs the network. Returns (kernel, nanoseconds) of each node."""
        return [(node["kernel"], node["ns"]) for node in self.ask(self.profiled)["profile"]]

    def close(self):
        self.client.close()


class Session:
    """ONNX Runtime with input and output in memory that stays the same. `call_ns`: what any call
    of a session takes, which is Python's part."""

    def __init__(self, path, x, threads, call_ns):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, 3
        self.session = onnxruntime.InferenceSession(path, options,
                                                    providers=["CPUExecutionProvider"])
        self.binding, self.call_ns = self.session.io_binding(), call_ns
        self.x = onnxruntime.OrtValue.ortvalue_from_numpy(x)
        self.made = onnxruntime.OrtValue.ortvalue_from_shape_and_type(
            self.session.get_outputs()[0].shape, np.float32)
        self.binding.bind_ortvalue_input("x", self.x)
        self.binding.bind_ortvalue_output("y", self.made)

    def run(self):
        start = time.perf_counter_ns()
        self.session.run_with_iobinding(self.binding)
        return max(1.0, time.perf_counter_ns() - start - self.call_ns)

    @property
    def y(self):
        return self.made.numpy().tobytes()


class OpenVino:
    def __init__(self, path, x, threads):
        compiled = openvino.Core().compile_model(path, "CPU", {
            "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"})
        self.request = compiled.create_infer_request()
        self.request.set_input_tensor(openvino.Tensor(x))

    def run(self):
        start = time.perf_counter_ns()
        self.request.start_async()
        self.request.wait()
        return time.perf_counter_ns() - start


def open_vino(path, x, threads):
    """Returns OpenVINO with the network. None: it is not installed or cannot run the network."""
    try:
        return OpenVino(path, x, threads) if openvino else None
    except RuntimeError as error:
        print("bench: OpenVINO cannot run %s: %s" % (path.name, str(error)[:200]))
        return None


def versions():
    """Returns lines for the description of the machine."""
    return ["OpenVINO " + openvino.__version__.partition("-")[0] if openvino else "no OpenVINO"]
