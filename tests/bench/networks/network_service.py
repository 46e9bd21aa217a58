"""Networks over HTTP: what a client gets from quantd and from FastAPI with ONNX Runtime, how long
both take to start, and their memory."""
import importlib.util
import statistics
import time
from pathlib import Path

import quantized
from contestants import Asked, infer_request
from libqk import FILES, ROOT, Libqk
from near import Near
from networks_report import ALONE, CONNECTIONS, PEERS, QUANTD, SMALL_RATE, at, beside
from peer import SPIN_SECONDS
from served import request_file
from services import (MODEL, SMALL, FastApi, Quantd, Server, clear_models, json_request, post,
                      post_text, write_onnx)
from tensors import KIB

NETWORKS = ("ResNet-50", "MobileNetV2", "YOLOv8n", "keywords")
NAME = "network"
ROUNDS, ROUNDS_MOST, STARTS, RUNS = 3, 9, 3, 9
SLICE_MS, SMOKE_SLICE_MS = 200, 20
SLICE_RUNS = 8  # a slice takes at least as long as this many runs
SMALL_CONNECTIONS, SMALL_MS, BEGIN_MS = 16, 1000, 100
SMOKE_SECONDS = 0.5  # rows with less time are for smoke
REST_SECONDS = 21  # quantd returns idle memory to the system after 10 to 20 s


class Alone:
    """A quantd with its default flags that serves one network."""

    def __init__(self, path):
        self.server = Server("--model", "%s=%s" % (NAME, path))
        self.port, self.pid, self.close = self.server.port, self.server.pid, self.server.stop

    def wait(self):
        """Does nothing: it listens when the network is loaded."""

    @staticmethod
    def network_request(x):
        return ("/v2/models/%s/infer" % NAME, *infer_request(x))

    output = staticmethod(Quantd.output)


class Service(FastApi):
    def __init__(self, workers, threads):
        super().__init__(workers, threads)
        self.pid = self.process.pid

    @staticmethod
    def network_request(x):
        return FastApi.request(NAME, None, x.tobytes())


def memory_bytes(pid):
    """Returns the resident memory of a process, now and at most."""
    text = Path("/proc/%d/status" % pid).read_text()
    return [int(text.partition(name)[2].split()[0]) * KIB for name in ("VmRSS:", "VmHWM:")]


def first_answer(start, x):
    """Starts a server. Returns (the server, nanoseconds until it has answered a request, the
    output)."""
    began = time.perf_counter_ns()
    server = start()
    server.wait()
    output = server.output(*post(server.port, *server.network_request(x)))
    return server, time.perf_counter_ns() - began, output


def contestants(path, threads):
    """Returns name -> what starts the server."""
    found = {QUANTD: lambda: Alone(path)}
    if importlib.util.find_spec("uvicorn"):
        found[PEERS[0]] = lambda: Service(1, threads)
        found[PEERS[1]] = lambda: Service(2, max(1, threads // 2))
    return found


def measure(row, libqk, seconds):
    """FastAPI's memory is that of one worker."""
    smoke, x = seconds < SMOKE_SECONDS, quantized.sample(row.network, quantized.SAMPLES)
    clear_models()
    path, = write_onnx(NAME, quantized.file(row.network, row.form).read_bytes())
    starts, servers, cold, outputs = contestants(path, row.threads), {}, {}, {}
    for _ in range(1 if smoke else STARTS):
        for server in servers.values():
            server.close()
        for name, start in starts.items():
            servers[name], ns, outputs[name] = first_answer(start, x)
            cold.setdefault(name, []).append(ns)
    time.sleep(0 if smoke else REST_SECONDS)
    idle = {name: memory_bytes(server.pid)[0] for name, server in servers.items()}
    series, run_ns, line_ns = rounds(libqk, servers, x, len(outputs[QUANTD]), smoke)
    series.update(small_requests(libqk, servers[QUANTD].port, smoke))
    result = {"name": str(row), "network": row.network, "series": series, "run": run_ns,
              "line": line_ns,
              "cold": {name: statistics.median(found) for name, found in cold.items()},
              "idle": idle, "same": None,
              "peak": {name: memory_bytes(server.pid)[1] for name, server in servers.items()},
              "answers": "same" if len(set(outputs.values())) == 1 else "differ"}
    for server in servers.values():
        server.close()
    return result


def rounds(libqk, servers, x, y_bytes, smoke):
    """Returns "NAME, CONNECTIONS" -> [(answers per second, p50, p99)], the median nanoseconds of
    quantd's runs in these rounds, as quantd says, and how near the CPUs were."""
    asked = Asked(servers[QUANTD], NAME, x)
    requests = {name: post_text(*server.network_request(x)) for name, server in servers.items()}
    requests["echo"] = requests[QUANTD]
    for name, request in requests.items():
        (ROOT / FILES / request_file(name)).write_bytes(request)
    ports = {name: server.port for name, server in servers.items()}
    ports["echo"] = libqk.echo(len(requests["echo"]), y_bytes)
    slice_ms = max(SMOKE_SLICE_MS if smoke else SLICE_MS, round(SLICE_RUNS * asked.run() / 1e6))
    series, runs, near = {}, [], Near(libqk)
    for _ in range(1 if smoke else ROUNDS_MOST):
        for name, port in ports.items():
            for count in CONNECTIONS if name in servers else CONNECTIONS[:1]:
                series.setdefault(at(name, count), []).append(
                    libqk.exchange(port, count, slice_ms, FILES / request_file(name)))
            if name in PEERS:
                time.sleep(SPIN_SECONDS)
        runs.append(statistics.median(asked.run() for _ in range(RUNS)))
        near.end_round()
        if near.count() >= ROUNDS:
            break
    asked.close()
    counted = {name: near.chosen(entries) for name, entries in series.items()}
    return counted, near.median(runs), near.line_ns


def small_requests(libqk, port, smoke):
    """Measures small requests to quantd at a fixed rate: alone, and beside clients that ask for the
    network again and again. Returns ALONE or beside(CONNECTIONS) -> [(answers per second, p50,
    p99)]."""
    path = FILES / request_file("small")
    (ROOT / path).write_bytes(post_text(MODEL, json_request(SMALL), {}))
    ms, others, series = SMOKE_SLICE_MS if smoke else SMALL_MS, Libqk("auto"), {}
    small = port, SMALL_CONNECTIONS, ms, path, SMALL_RATE
    for _ in range(1 if smoke else ROUNDS):
        series.setdefault(ALONE, []).append(libqk.exchange(*small))
        for count in CONNECTIONS:
            others.begin_exchange(port, count, ms + 2 * BEGIN_MS, FILES / request_file(QUANTD))
            time.sleep(BEGIN_MS / 1000)
            series.setdefault(beside(count), []).append(libqk.exchange(*small))
            others.end_exchange()
    others.close()
    return series
