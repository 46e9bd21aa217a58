"""The servers that the benchmark asks over HTTP: quantd, and what users would write instead of it,
on the same ONNX files."""
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time

from libqk import FILES, ROOT

sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from quantd import Server  # pylint: disable=wrong-import-position

PEERS = ROOT / "tests" / "bench" / "peers"
MODELS = FILES / "models"  # below ROOT; both kinds of servers read this folder
START_SECONDS = 60
WAIT_SECONDS = 0.01  # between two tries to reach a service that starts
MODEL = "/v2/models/onnx.DequantizeLinear/infer"  # what json_request asks
SMALL = [0, 128, 129, 255]  # the numbers of a small request
HEAD_LENGTH = "Inference-Header-Content-Length"


def post_text(path, body, headers):
    """Returns the bytes of the request as they go over the wire."""
    lines = ["POST %s HTTP/1.1" % path, "Host: 127.0.0.1", "Content-Length: %d" % len(body)]
    lines += ["%s: %s" % header for header in headers.items()]
    return "\r\n".join(lines + ["", ""]).encode() + body


def post(port, path, body, headers):
    """Posts a request and returns (head, body) of the answer. Any status but 200 ends the
    benchmark."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=START_SECONDS)
    client.request("POST", path, body, headers)
    answer = client.getresponse()
    body = answer.read()
    client.close()
    if answer.status != 200:
        raise SystemExit("bench: %s: status %d: %s" % (path, answer.status, body[:500].decode()))
    return answer.headers, body


def json_request(numbers):
    """Returns the body of a request that dequantizes UINT8 numbers to FP32, with JSON in and out.
    """
    return json.dumps({"inputs": [
        {"name": "x", "datatype": "UINT8", "shape": [len(numbers)], "data": list(numbers)},
        {"name": "x_scale", "datatype": "FP32", "shape": [], "data": [0.5]},
        {"name": "x_zero_point", "datatype": "UINT8", "shape": [], "data": [128]}]},
        separators=(",", ":")).encode()


# ---- Files ---------------------------------------------------------------------------------------


def infer_head(inputs, parameters):
    """Returns the request's JSON. `inputs`: (name, datatype, shape, count of bytes; None: the data
    comes with each request)."""
    described = []
    for name, datatype, shape, count in inputs:
        described.append({"name": name, "datatype": datatype, "shape": shape})
        if count is not None:
            described[-1]["parameters"] = {"binary_data_size": count}
    return json.dumps({"parameters": parameters, "inputs": described}).encode()


def write_onnx(name, model):
    """Writes the model in Triton's layout for quantd, and a link to the same file for FastAPI."""
    path = ROOT / MODELS / name / "1" / "model.onnx"
    path.parent.mkdir(parents=True)
    path.write_bytes(model)
    (ROOT / MODELS / (name + ".onnx")).symlink_to(path)
    return [path]


def write_request(name, row):
    """Writes the model as a request without x, which needs no packages."""
    folder = ROOT / MODELS / name / "1"
    folder.mkdir(parents=True)
    head = json.loads(infer_head([(*words, None if raw is None else len(raw))
                                  for *words, raw in row.inputs], row.attributes))
    (folder / "request.json").write_text(json.dumps(dict(head, model_name=row.model)))
    (folder / "request.bin").write_bytes(b"".join(raw for *_, raw in row.inputs if raw))
    return [folder / "request.json", folder / "request.bin"]


def linked_names(name, count):
    return ["%s-%d" % (name, index) for index in range(count)]


def write_links(name, count):
    """Makes `count` links to the model, each with a name of its own."""
    for link in linked_names(name, count):
        (ROOT / MODELS / link).symlink_to(name)


def clear_models():
    shutil.rmtree(ROOT / MODELS, ignore_errors=True)


# ---- Servers -------------------------------------------------------------------------------------


class Quantd:
    """Loads models of a folder by calls."""

    def __init__(self, *flags, folder=ROOT / MODELS):
        self.server = Server("--model-repository", str(folder),
                             "--model-control-mode", "explicit", *flags)
        self.port = self.server.port

    def load(self, name):
        return self.call_ns("load", name)

    def call_ns(self, action="unload", name="layer00"):
        """Returns the nanoseconds of a call. The default call does next to nothing."""
        start = time.perf_counter_ns()
        post(self.port, "/v2/repository/models/%s/%s" % (name, action), b"{}", {})
        return time.perf_counter_ns() - start

    def unload(self, name):
        self.call_ns("unload", name)

    def model_bytes(self):
        """Returns how many bytes all loaded models take."""
        text = self.server.get("/metrics").body.decode()
        return int(re.search(r"^quantd_model_bytes (\d+)$", text, re.MULTILINE).group(1))

    @staticmethod
    def request(name, row, x):
        """Returns a request to the loaded model, which has x alone."""
        head = infer_head([(*row.inputs[0][:3], len(x))], {"binary_data_output": True})
        return "/v2/models/%s/infer" % name, head + x, {HEAD_LENGTH: str(len(head))}

    @staticmethod
    def carried_request(row, x):
        """Returns a request to the operator itself, with all of its inputs."""
        inputs = [(*words, x if raw is None else raw) for *words, raw in row.inputs]
        head = infer_head([(*words, len(raw)) for *words, raw in inputs],
                          dict(row.attributes, binary_data_output=True))
        return ("/v2/models/%s/infer" % row.model, head + b"".join(raw for *_, raw in inputs),
                {HEAD_LENGTH: str(len(head))})

    @staticmethod
    def output(headers, body):
        return body[int(headers[HEAD_LENGTH]):]

    def close(self):
        self.server.stop()


class FastApi:
    """Runs peers/service.py with `workers` workers of `threads` threads each."""

    def __init__(self, workers, threads):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "--app-dir", PEERS, "--port", str(self.port),
             "--workers", str(workers), "--loop", "uvloop", "--http", "httptools",
             "--no-access-log", "--log-level", "warning", "service:app"],
            env=dict(os.environ, MODELS=str(ROOT / MODELS), THREADS=str(threads)))

    def wait(self):
        """Waits until the service answers. The workers of one service load at the same time."""
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            try:
                client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=START_SECONDS)
                client.request("GET", "/")
                client.getresponse().read()
                return
            except OSError:
                time.sleep(WAIT_SECONDS)
            finally:
                client.close()
        raise SystemExit("bench: FastAPI's service does not answer")

    @staticmethod
    def request(name, _, x):
        return "/" + name, x, {"Content-Type": "application/octet-stream"}

    @staticmethod
    def output(_, body):
        return body

    def close(self):
        self.process.terminate()
        self.process.wait()
