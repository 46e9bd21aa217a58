"""Measures the throughput of 1, 2 and 3 replicas of one thread behind HAProxy, and what HAProxy
costs a small request, and writes the results into docker/scale.md.

Each round measures all of these, and the results are medians over the rounds. CPU times are those
of the processes. They say more than requests/s if other processes use the CPUs, too.
"""
import json
import os
import random
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fleet import HAPROXY, Fleet
from loading import CONV
from quantd import LENGTH, ROOT, Tensor, binary_request, infer_path
from samples import DEQUANTIZE, dequantize_json

PAGE = ROOT / "docker" / "scale.md"
ROUNDS, SECONDS, CONNECTIONS = 5, 3, 8
CHANNELS, SIZE, KERNEL = 512, 14, 3  # 0.46 G products for a body of 100 KB
# If other processes use more CPUs than this, requests/s cannot be compared.
OTHERS_MAX = 0.2
TICKS = os.sysconf("SC_CLK_TCK")
CPUS = len(os.sched_getaffinity(0))


def write_model(folder):
    """Writes a convolution model that keeps its weights."""
    random.seed(1)
    weights = random.randbytes(CHANNELS * CHANNELS * KERNEL * KERNEL)
    tensors = [Tensor.of("x_scale", "FP32", [], [1]), Tensor.of("x_zero_point", "UINT8", [], [0]),
               Tensor("w", "INT8", [CHANNELS, CHANNELS, KERNEL, KERNEL], weights),
               Tensor.of("w_scale", "FP32", [], [1]), Tensor.of("w_zero_point", "INT8", [], [0]),
               Tensor.of("y_scale", "FP32", [], [4096]),
               Tensor.of("y_zero_point", "UINT8", [], [0])]
    pads = {"pads": [KERNEL // 2] * 4}
    body, headers = binary_request(tensors, pads, model_name=CONV)
    json_bytes = int(headers[LENGTH])
    request = json.loads(body[:json_bytes])
    request["parameters"] = pads
    folder.mkdir(parents=True)
    (folder / "request.json").write_text(json.dumps(request))
    (folder / "request.bin").write_bytes(body[json_bytes:])


def cpu_s(process):
    fields = Path("/proc/%d/stat" % process.pid).read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def client_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def busy_s():
    """Returns how many seconds all CPUs together were busy, for any process."""
    fields = list(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]))
    return (sum(fields) - fields[3] - fields[4]) / TICKS


class Load:
    """A request in a file, as wrk takes it."""

    def __init__(self, folder, path, body, headers):
        self.path, self.file = path, folder / path.replace("/", "_")
        self.file.write_bytes(body)
        self.more = [headers[LENGTH]] if LENGTH in headers else []

    def post(self, address, replicas, proxy):
        """Returns requests/s, the CPU seconds of a request (replicas, HAProxy, client), and the
        CPUs that other processes used."""
        def times():
            return (sum(cpu_s(replica.server.process) for replica in replicas),
                    cpu_s(proxy.process), client_s(), busy_s(), time.monotonic())
        before = times()
        result = subprocess.run(
            ["wrk", "-t1", "-c%d" % CONNECTIONS, "-d%d" % SECONDS, "--timeout", "30s", "-s",
             str(ROOT / "tests" / "load" / "post.lua"), "http://%s%s" % (address, self.path), "--",
             str(self.file), *self.more],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=True)
        servers, haproxy, client, busy, elapsed = map(float.__sub__, times(), before)
        if "Non-2xx" in result.stdout or "Socket errors" in result.stdout:
            sys.exit("throughput.py: expected no errors, got:\n" + result.stdout)
        count = int(re.search(r"(\d+) requests in", result.stdout)[1])
        rate = float(re.search(r"Requests/sec: +(\S+)", result.stdout)[1])
        others = max(0, busy - servers - haproxy - client) / elapsed
        return rate, servers / count, haproxy / count, client / count, others


def medians(rows):
    return [statistics.median(column) for column in zip(*rows)]


def measure(folder):
    """Returns the rows by number of replicas, and the rows of a small request: directly, and
    through HAProxy."""
    write_model(folder / "models" / "layer" / "1")
    x = Tensor("x", "UINT8", [1, CHANNELS, SIZE, SIZE], random.randbytes(CHANNELS * SIZE * SIZE))
    large = Load(folder, infer_path("layer"), *binary_request([x]))
    small = Load(folder, infer_path(DEQUANTIZE), json.dumps(dequantize_json()).encode(), {})
    fleet = Fleet("--threads", "1", "--model-repository", str(folder / "models"))
    by_count, ways = {1: [], 2: [], 3: []}, ([], [])
    try:
        replicas, proxy = fleet.replicas, fleet.proxy
        for _ in range(ROUNDS):
            for count in (3, 2, 1):
                for replica in replicas[count:]:
                    if replica.server is not None:
                        replica.server.stop()
                        replica.server = None
                proxy.wait_for(*["UP"] * count + ["NOLB"] * (3 - count))
                by_count[count].append(large.post(proxy.address, replicas[:count], proxy))
            for way, address in zip(ways, (replicas[0].address, proxy.address)):
                way.append(small.post(address, replicas[:1], proxy))
            for replica in replicas[1:]:
                replica.start()
            proxy.wait_for("UP", "UP", "UP")
    finally:
        fleet.stop()
    return {count: medians(rows) for count, rows in by_count.items()}, list(map(medians, ways))


def machine():
    text = Path("/proc/cpuinfo").read_text()
    name, family, model = (re.search(r"^%s\s*: (.*)$" % key, text, re.MULTILINE)[1]
                           for key in ("model name", "cpu family", "model"))
    return "%s (family %s, model %s), %d CPUs" % (name, family, model, CPUS)


def report(by_count, ways):
    version = subprocess.run([HAPROXY, "-v"], capture_output=True, text=True, check=True).stdout
    others = statistics.median(row[4] for row in [*by_count.values(), *ways])
    lines = ["%s, of which other processes used %.1f; HAProxy %s, wrk with %d connections; medians "
             "of %d rounds:" % (machine(), others, re.search(r"version ([\d.]+)", version)[1],
                                CONNECTIONS, ROUNDS), "",
             "| replicas | requests/s | × one | CPU of a request, ms: replica | HAProxy | client |"
             " the CPUs allow | × one |", "|" + "---:|" * 8]
    allowed = {count: min(count / row[1], CPUS / sum(row[1:4])) for count, row in by_count.items()}
    for count, (rate, *used, _) in by_count.items():
        ratio = "–" if others > OTHERS_MAX else "%.2f" % (rate / by_count[1][0])
        lines.append("| %d | %.1f | %s | %s | %.1f | %.2f |" % (
            count, rate, ratio, " | ".join("%.2f" % (1000 * s) for s in used),
            allowed[count], allowed[count] / allowed[1]))
    lines += ["", "| small request | requests/s | replica, µs of CPU | HAProxy | client |",
              "|---|---:|---:|---:|---:|"]
    for name, (rate, *used, _) in zip(("directly to a replica", "through HAProxy"), ways):
        lines.append("| %s | %.0f | %s |" % (name, rate,
                                            " | ".join("%.0f" % (1e6 * s) for s in used)))
    return "\n".join(lines)


def main():
    if shutil.which("wrk") is None:
        sys.exit("throughput.py: expected wrk (Debian: apt-get install wrk), got none")
    with tempfile.TemporaryDirectory() as folder:
        text = report(*measure(Path(folder)))
    print(text)
    page, count = re.subn(r"(<!-- replicas: [^\n]*-->\n).*?(<!-- end of replicas -->)",
                          lambda found: found[1] + text + "\n" + found[2], PAGE.read_text(),
                          flags=re.DOTALL)
    if count != 1:
        sys.exit("throughput.py: expected the marks of its table in %s, got none" % PAGE)
    PAGE.write_text(page)
