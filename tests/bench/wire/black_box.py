"""make bench A=--http: what a client sees.

Posts tensors of 64 MiB, and layers at batch 1 with their weights, to a server with its default
flags, over one connection. Compares the `compute` of each answer's Server-Timing with libqk's time
for the same bytes without a server, and with ONNX Runtime's. The first request of a size is slower,
because the pages of its output are new.
"""
import json
import statistics
import sys
import time

import layers
import rows
from figures import ns_text
from libqk import ROOT, Libqk
from peer import SPIN_SECONDS, OnnxRuntime, Unsupported
from tensors import MIB, OPSET, random_bytes

sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from quantd import Server  # pylint: disable=wrong-import-position

SIZE = 64 * MIB
TYPES = (("UINT8", "FP32"), ("INT8", "FP32"), ("UINT16", "FP32"), ("INT16", "FP32"),
         ("INT32", "FP32"), ("UINT4", "FP32"), ("FP8E4M3FN", "FP32"), ("FP8E5M2", "FP32"),
         ("UINT8", "FP16"), ("INT16", "FP16"), ("UINT8", "BF16"))
LAYER_STEP = 4  # measures each LAYER_STEP-th layer
REQUESTS = {"dequantize": 7, "quantize": 7, "conv": 30}


def request(row, x):
    """Returns (the request's JSON and all tensors' bytes, headers)."""
    tensors = [(name, datatype, shape, x[:row.x_bytes] if raw is None else raw)
               for name, datatype, shape, raw in row.inputs]
    head = json.dumps({
        "parameters": dict(row.attributes, binary_data_output=True),
        "inputs": [{"name": name, "datatype": datatype, "shape": dims,
                    "parameters": {"binary_data_size": len(raw)}}
                   for name, datatype, dims, raw in tensors]}).encode()
    return head + b"".join(raw for *_, raw in tensors), {
        "Inference-Header-Content-Length": str(len(head)),
        "Content-Type": "application/octet-stream"}


def post(client, row, body, headers, room):
    """Posts a request. Returns (nanoseconds of compute, nanoseconds of the whole exchange as the
    client sees it, kernel, y)."""
    start = time.perf_counter()
    client.request("POST", "/v2/models/%s/versions/%d/infer" % (row.model, OPSET), body, headers)
    answer = client.getresponse()
    if answer.status != 200:
        raise SystemExit("bench: status %d: %s" % (answer.status, answer.read().decode()))
    length = int(answer.headers["Content-Length"])
    view, at = memoryview(room)[:length], 0
    while at < length:
        at += answer.readinto(view[at:])
    took = time.perf_counter() - start
    stages = dict(entry.strip().split(";dur=")
                  for entry in answer.headers["Server-Timing"].split(","))
    split = int(answer.headers["Inference-Header-Content-Length"])
    head = json.loads(bytes(view[:split]))
    return (float(stages["compute"]) * 1e6, took * 1e9, head["parameters"]["kernel"],
            view[split:length])


def time_once(run):
    start = time.perf_counter_ns()
    run()
    return time.perf_counter_ns() - start


def prepare_peer(part, row, peer):
    """Returns name -> a function that runs the row once."""
    if not peer:
        return {}
    try:
        if part == "conv":
            return {"constant weights": peer.prepare(row),
                    "weights as input": peer.prepare(row, ("x", "w"))}
        return {"fresh output": peer.prepare(row, fresh=True), "reused": peer.prepare(row)}
    except Unsupported:
        return {}


def measure(part, client, row, x, libqk, peer, room):
    """Measures all contestants in turn. Returns name -> series of nanoseconds, the kernel, and
    whether ONNX Runtime's bytes agree."""
    body, headers = request(row, x)
    libqk.prepare(row)
    runs = prepare_peer(part, row, peer)
    series = {name: [] for name in ("compute", "total", *runs)}
    for _ in range(REQUESTS[part]):
        compute, total, kernel, y = post(client, row, body, headers, room)
        series["compute"].append(compute)
        series["total"].append(total)
        names = ("run", "fresh") if part == "conv" else ("run", "store", "stream")
        for name, ns in libqk.round(*names).items():
            series.setdefault(name, []).append(ns)
        for name, run in runs.items():
            series[name].append(time_once(run))
            if row.threads > 1:
                time.sleep(SPIN_SECONDS)
    same = y == peer.output(row, runs["constant weights"]) if part == "conv" and runs else True
    return series, kernel, list(runs), same


def line(row, series, kernel, peers, same):
    best = {name: min(values) for name, values in series.items()}
    words = ["%s: %s, compute %s (first %s, median %s), exchange %s; without the server" % (
        row, kernel, ns_text(best["compute"]), ns_text(series["compute"][0]),
        ns_text(statistics.median(series["compute"])), ns_text(best["total"]))]
    words.append(", ".join("%s %s" % (name, ns_text(best[name]))
                           for name in ("run", "fresh", "store", "stream") if name in best))
    if peers:
        words.append("; ONNX Runtime, " + ", ".join("%s %s: %.2f ×" % (
            name, ns_text(best[name]), best[name] / best["compute"]) for name in peers))
    return " ".join(words) + ("" if same else "; OTHER BYTES")


def select(part, threads):
    if part != "conv":
        model = rows.DEQUANTIZE if part == "dequantize" else rows.QUANTIZE
        return [rows.Row(model, code, real, "tensor", SIZE, threads) for code, real in TYPES
                if part == "dequantize" or code != "INT32"]
    found = [row for row in layers.full(threads, ())
             if (row.batch, row.threads) == (1, threads)]
    return found[::LAYER_STEP]


def main(thread_counts, parts, with_peer):
    x = random_bytes(SIZE)
    libqk = Libqk("auto")
    libqk.give(x)
    selected = [(part, row) for threads in thread_counts for part in REQUESTS if part in parts
                for row in select(part, threads)]
    largest = max(row.y_bytes for _, row in selected)
    peer = OnnxRuntime(x) if with_peer else None
    if peer:
        peer.reserve(largest)
    room = bytearray(largest + MIB)
    wrong = 0
    for threads in thread_counts:
        server = Server("--threads", str(threads))
        client = server.client(timeout=120)
        for part, row in selected:
            if row.threads == threads:
                result = measure(part, client, row, x, libqk, peer, room)
                wrong += not result[-1]
                print(line(row, *result), flush=True)
        client.close()
        server.stop()
    libqk.close()
    return 1 if wrong else 0
