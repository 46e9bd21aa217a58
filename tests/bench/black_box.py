"""make bench A=--http: what a client sees.

Tensors of 64 MiB are posted to a server with its default flags, over one connection; the `compute`
of each answer's Server-Timing stands beside libqk's own time for the same bytes, without a server,
and beside ONNX Runtime's. The first request of a size also pays for the pages of its output.
"""
import json
import statistics
import sys
import time

import rows
from libqk import ROOT, Libqk
from peer import OnnxRuntime, Unsupported
from report import ns_text

sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from quantd import Server  # pylint: disable=wrong-import-position

SIZE = 64 * rows.MIB
MODEL = "onnx.DequantizeLinear"
TYPES = (("UINT8", "FP32"), ("INT8", "FP32"), ("UINT16", "FP32"), ("INT16", "FP32"),
         ("INT32", "FP32"), ("UINT4", "FP32"), ("FP8E4M3FN", "FP32"), ("FP8E5M2", "FP32"),
         ("UINT8", "FP16"), ("INT16", "FP16"), ("UINT8", "BF16"))
REQUESTS = 7


def request(row, x):
    """(head of the request's JSON and parameters' bytes, headers); x goes behind it."""
    shape, scale_shape, attributes = row.shapes
    tensors = [("x", row.x, shape, x), ("x_scale", row.y, scale_shape, row.scales())]
    if row.zero_points() is not None:
        tensors.append(("x_zero_point", row.x, scale_shape, row.zero_points()))
    head = json.dumps({
        "parameters": dict(attributes, binary_data_output=True),
        "inputs": [{"name": name, "datatype": datatype, "shape": dims,
                    "parameters": {"binary_data_size": len(raw)}}
                   for name, datatype, dims, raw in tensors]}).encode()
    return head + b"".join(raw for *_, raw in tensors), {
        "Inference-Header-Content-Length": str(len(head)),
        "Content-Type": "application/octet-stream"}


def post(client, body, headers, room):
    """(nanoseconds of compute, of the whole exchange as the client sees it, kernel)."""
    start = time.perf_counter()
    client.request("POST", "/v2/models/%s/versions/%d/infer" % (MODEL, rows.OPSET), body, headers)
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
    head = json.loads(bytes(view[:int(answer.headers["Inference-Header-Content-Length"])]))
    return float(stages["compute"]) * 1e6, took * 1e9, head["parameters"]["kernel"]


def time_once(run):
    start = time.perf_counter_ns()
    run()
    return time.perf_counter_ns() - start


def measure(client, row, x, libqk, peer, room):
    """Name -> series of nanoseconds, all taken in turn; and the kernel."""
    body, headers = request(row, x)
    libqk.prepare(row)
    series = {"compute": [], "total": [], "alone": [], "limit": []}
    runs = {}
    if peer:
        try:
            runs = {"fresh": peer.prepare(row, fresh=True), "reused": peer.prepare(row)}
        except Unsupported:
            pass
    series.update({name: [] for name in runs})
    for _ in range(REQUESTS):
        compute, total, kernel = post(client, body, headers, room)
        series["compute"].append(compute)
        series["total"].append(total)
        times = libqk.round("run", "store", "stream")
        series["alone"].append(times["run"])
        series["limit"].append(min(times["store"], times["stream"]))
        for name, run in runs.items():
            series[name].append(time_once(run))
    return series, kernel


def line(row, series, kernel):
    best = {name: min(values) for name, values in series.items()}
    words = ["%s → %s, %d thread%s, %s:" % (row.x, row.y, row.threads,
                                            "s" if row.threads > 1 else "", kernel),
             "compute %s (first %s, median %s)," % (
                 ns_text(best["compute"]), ns_text(series["compute"][0]),
                 ns_text(statistics.median(series["compute"]))),
             "alone %s, limit %s, exchange %s" % (ns_text(best["alone"]), ns_text(best["limit"]),
                                                  ns_text(best["total"]))]
    if "fresh" in best:
        words.append("; ONNX Runtime %s with fresh output, %s with reused: %.1f × and %.1f ×" % (
            ns_text(best["fresh"]), ns_text(best["reused"]), best["fresh"] / best["compute"],
            best["reused"] / best["compute"]))
    return " ".join(words)


def main(thread_counts, with_peer):
    x = rows.x_bytes(SIZE)
    libqk = Libqk("auto", x)
    selected = [rows.Row(x_type, y, "tensor", SIZE, threads)
                for threads in thread_counts for x_type, y in TYPES]
    largest = max(row.y_bytes for row in selected)
    peer = None
    if with_peer:
        peer = OnnxRuntime(x)
        peer.reserve(largest)
    room = bytearray(largest + rows.MIB)
    for threads in thread_counts:
        server = Server("--threads", str(threads))
        client = server.client(timeout=120)
        for row in selected:
            if row.threads == threads:
                print(line(row, *measure(client, row, x, libqk, peer, room)), flush=True)
        client.close()
        server.stop()
    libqk.close()
    return 0
