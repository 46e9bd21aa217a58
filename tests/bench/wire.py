"""The wire's part of `make bench`: what is left of a small request's speed, and of large bodies',
beside a server that does nothing with them, and beside FastAPI."""
import dataclasses
import http.client
import importlib.util
import json
import os
import statistics
import struct
import tempfile
import time
from pathlib import Path

import part
import rows
import shared
from libqk import FILES, ROOT, Libqk
from services import FastApi, clear_models, infer_head, post_text, write_onnx, Server
from tensors import KIB, MIB, random_bytes, size_text
from wire_report import PEERS, Report, one_line

MODEL = "/v2/models/onnx.DequantizeLinear/infer"
LENGTH = "Inference-Header-Content-Length"
SMALL = {"inputs": [
    {"name": "x", "datatype": "UINT8", "shape": [4], "data": [0, 128, 129, 255]},
    {"name": "x_scale", "datatype": "FP32", "shape": [], "data": [0.5]},
    {"name": "x_zero_point", "datatype": "UINT8", "shape": [], "data": [128]}]}
CONNECTIONS = (1, 8, 64, 256)
RATES = (1000, 2000, 4000, 8000, 12000, 16000, 24000, 32000, 48000, 64000, 96000, 128000)
RATE_CONNECTIONS = 64
KEPT_UP = 0.9  # of the rate: whoever answers fewer is not asked for more
ROUNDS, SLICE_MS, SMOKE_SLICE_MS = 5, 250, 20
LARGE_ROUNDS = 3
INFLIGHT_BYTES = 4 << 30  # 64 MiB on 8 connections take 2.6 GB, with their outputs
MIXED_RATE, MIXED_LARGE_CONNECTIONS = 2000, 2
MIXED_BEGIN_MS = 100  # in which large requests come, before those that are measured beside them
FREE_BYTES_LEAST = 2 * INFLIGHT_BYTES
FIRST_REQUESTS = 6  # of a server that has just started


@dataclasses.dataclass(frozen=True)
class Row:
    kind: str  # "small", "body", "shared", "rate", "mixed", "memory"
    connections: int
    threads: int
    body: int = 0  # bytes of a large x
    is_unix: bool = False

    x_bytes = 4  # of the model that FastAPI has
    y_bytes = 16

    def __str__(self):
        where = "%d connection%s" % (self.connections, "s" if self.connections > 1 else "")
        if self.kind == "small":
            return "small request, " + where
        if self.kind == "rate":
            return "small requests at a rate, " + where
        if self.kind == "mixed":
            return "small requests beside large ones"
        sizes = "%s to %s" % (size_text(self.body), size_text(4 * self.body))
        if self.kind == "shared":
            return "%s in shared memory, %s" % (sizes, where)
        if self.kind == "memory":
            return "%s on a server that has just started" % sizes
        return "%s, %s, %s" % (sizes, "Unix socket" if self.is_unix else "TCP", where)


def full(threads):
    selected = [Row("small", count, threads) for count in CONNECTIONS]
    for body in (MIB, 64 * MIB):
        selected += [Row("body", count, threads, body, is_unix)
                     for is_unix in (False, True) for count in (1, 8)]
        selected.append(Row("shared", 1, threads, body))
    return selected + [Row("memory", 1, threads, 64 * MIB),
                       Row("mixed", RATE_CONNECTIONS, threads, MIB),
                       Row("rate", RATE_CONNECTIONS, threads)]


def smoke(threads):
    return [Row("small", 2, threads), Row("body", 2, threads, 16 * KIB),
            Row("body", 2, threads, 16 * KIB, True), Row("shared", 1, threads, 64 * KIB),
            Row("memory", 1, threads, 256 * KIB), Row("mixed", 2, threads, 16 * KIB)]


def free_bytes():
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def body_request(size):
    """(body, headers) of UINT8 bytes that FP32 is made of, bytes in and out."""
    head = infer_head([("x", "UINT8", [size], size), ("x_scale", "FP32", [], 4)],
                      {"binary_data_output": True})
    scale = b"\x00\x00\x00\x3f"
    return head + random_bytes(size) + scale, {LENGTH: str(len(head))}


def ask(port, path, body, headers=None):
    """The answer as it came, its head with it, and its body."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    client.request("POST", path, body, headers or {})
    answer = client.getresponse()
    content = answer.read()
    client.close()
    if answer.status != 200:
        raise SystemExit("bench: %s: status %d: %s" % (path, answer.status, content[:500]))
    head = "".join("%s: %s\r\n" % header for header in answer.getheaders())
    return ("HTTP/1.1 200 OK\r\n%s\r\n" % head).encode() + content, content


def numbers(content):
    return json.loads(content)["outputs"][0]["data"]


def peak_bytes(pid):
    text = Path("/proc/%d/status" % pid).read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) * KIB


class Part(part.Part):
    one_line = staticmethod(one_line)
    x_bytes = staticmethod(random_bytes)

    def __init__(self, budget_seconds):
        self.budget_seconds = budget_seconds
        self.folder = self.quantd = self.two_loops = self.limits = None
        self.peers, self.ports, self.requests, self.same = {}, {}, {}, None

    @staticmethod
    def select(options, threads, _):
        selected = smoke(threads) if options.smoke else full(threads)
        if not shared.is_here():
            selected = [row for row in selected if row.kind != "shared"]
        if free_bytes() < FREE_BYTES_LEAST:
            selected = [row for row in selected if row.connections * row.body < 512 * MIB]
        for words in options.only or []:
            selected = [row for row in selected if words in str(row)]
        return selected

    @staticmethod
    def falls_short(_):
        return False  # its rounds are many

    def unix_path(self, name):
        return os.path.join(self.folder.name, name)

    def open(self, selected, libqk, peer):
        self.folder = tempfile.TemporaryDirectory()
        self.quantd = Server("--max-inflight-bytes", str(INFLIGHT_BYTES),
                             "--allow-shared-memory", shared.PREFIX,
                             listen=("127.0.0.1:0", "unix:" + self.unix_path("quantd")))
        self.two_loops = Server("--io-threads", "2")
        self.limits = Libqk("auto")  # a process of its own
        if peer and importlib.util.find_spec("uvicorn"):
            clear_models()
            row = rows.Row(rows.DEQUANTIZE, "UINT8", "FP32", "tensor", 4, 1)
            write_onnx("small", peer.model(row, ("x",)).SerializeToString())
            self.peers = {name: FastApi(workers + 1, 1) for workers, name in enumerate(PEERS)}
            for service in self.peers.values():
                service.wait()
        self.open_small()
        return selected

    def open_small(self):
        """All who answer small requests, and what they are asked."""
        body = json.dumps(SMALL).encode()
        answer, content = ask(self.quantd.port, MODEL, body)
        self.same = numbers(content) == [-64, 0, 0.5, 63.5]
        (ROOT / FILES / "answer").write_bytes(answer)
        self.write_request("small", MODEL, body, {})
        request_bytes = (ROOT / self.request_file("small")).stat().st_size
        self.ports = {"quantd": self.quantd.port, "two loops": self.two_loops.port,
                      "constant": self.limits.constant(FILES / "answer"),
                      "bare": self.limits.echo(request_bytes, len(content), 1)}
        for name, service in self.peers.items():
            self.ports[name] = service.port
            self.write_request(name, "/json/small", body, {})
            self.same = self.same and len(numbers(ask(service.port, "/json/small", body)[1])) == 4

    def request_file(self, name):
        return FILES / ("wire-" + name.replace(" ", "-"))

    def write_request(self, name, path, body, headers):
        (ROOT / self.request_file(name)).write_bytes(post_text(path, body, headers))

    def small_file(self, name):
        return self.request_file(name if name in PEERS else "small")

    def close(self):
        for service in self.peers.values():
            service.close()
        self.peers = {}
        if self.limits:
            self.limits.close()
        for server in filter(None, (self.quantd, self.two_loops)):
            server.stop()
        if self.folder:
            self.folder.cleanup()
        self.quantd = self.two_loops = self.limits = self.folder = None

    @staticmethod
    def report(results, machine_lines, _):
        return Report(results, machine_lines)

    def measure(self, row, libqk, _, seconds):
        smoke_only = seconds < 1
        measures = {"small": self.small, "body": self.body, "shared": self.shared,
                    "rate": self.rates, "mixed": self.mixed, "memory": self.memory}
        return {"name": str(row), "same": self.same, "threads": row.threads,
                **dataclasses.asdict(row), **measures[row.kind](row, libqk, smoke_only)}

    def small(self, row, libqk, smoke_only):
        series = {}
        for _ in range(1 if smoke_only else ROUNDS):
            for name, port in self.ports.items():
                series.setdefault(name, []).append(libqk.exchange(
                    port, row.connections, SMOKE_SLICE_MS if smoke_only else SLICE_MS,
                    self.small_file(name)))
        return {"series": series}

    def body(self, row, libqk, smoke_only):
        body, headers = body_request(row.body)
        self.write_request("body", MODEL, body, headers)
        _, content = ask(self.quantd.port, MODEL, body, headers)
        sent = (ROOT / self.request_file("body")).stat().st_size
        address = self.unix_path("bare") if row.is_unix else "0"
        port = self.limits.echo(sent, len(content), row.threads, address)
        where = {"quantd": self.unix_path("quantd") if row.is_unix else self.quantd.port,
                 "bare": address if row.is_unix else port}
        series = {}
        for _ in range(1 if smoke_only else ROUNDS if row.body == MIB else LARGE_ROUNDS):
            for name, address in where.items():
                series.setdefault(name, []).append(libqk.exchange(
                    address, row.connections, SMOKE_SLICE_MS if smoke_only else SLICE_MS,
                    self.request_file("body")))
        return {"series": series}

    def shared(self, row, libqk, smoke_only):
        """Beside a small request, and as many threads as quantd has workers, which only move the
        bytes from the one region to the other."""
        x = shared.Region("x", random_bytes(row.body))
        y = shared.Region("y", bytes(4 * row.body))
        body = shared.request_of(x, y, 0.5)
        self.write_request("shared", MODEL, body, {})
        first_ns = shared.first_ns(self.quantd.port, (x, y), MODEL, body,
                                   1 if smoke_only else shared.FIRST_ROUNDS)
        same = y.bytes[:4 * KIB] == b"".join(struct.pack("<f", byte / 2) for byte in x.bytes[:KIB])
        series, move_ns = {}, []
        for _ in range(1 if smoke_only else ROUNDS):
            for name in ("small", "shared"):
                series.setdefault(name, []).append(libqk.exchange(
                    self.quantd.port, row.connections, SMOKE_SLICE_MS if smoke_only else SLICE_MS,
                    self.request_file(name)))
            move_ns.append(libqk.regions_ns(x.path, y.path, row.threads))
        shared.unregister_all(self.quantd.port)
        x.close()
        y.close()
        return {"series": series, "move_ns": statistics.median(move_ns), "first_ns": first_ns,
                "same": same}

    def mixed(self, row, libqk, smoke_only):
        """Small requests at a rate, alone and beside large ones, which another client sends: where
        the loop computes what is brief, and where workers compute everything."""
        self.write_request("body", MODEL, *body_request(row.body))
        others = Libqk("auto")
        servers = {switch: Server("--loop-computes", switch) for switch in ("on", "off")}
        ms, series = SMOKE_SLICE_MS if smoke_only else 2 * SLICE_MS, {}
        for _ in range(1 if smoke_only else ROUNDS):
            for switch, server in servers.items():
                small = (server.port, row.connections, ms, self.request_file("small"), MIXED_RATE)
                series.setdefault(switch + " alone", []).append(libqk.exchange(*small))
                others.begin_exchange(server.port, MIXED_LARGE_CONNECTIONS, ms + 2 * MIXED_BEGIN_MS,
                                      self.request_file("body"))
                time.sleep(MIXED_BEGIN_MS / 1000)
                series.setdefault(switch + " beside", []).append(libqk.exchange(*small))
                series.setdefault(switch + " large", []).append(others.end_exchange())
        for server in servers.values():
            server.stop()
        others.close()
        return {"series": series}

    def memory(self, row, _, smoke_only):
        """Of one connection's requests, one after the other: what the server held at most, and how
        long the first took, whose pages are all new, beside the others."""
        body, headers = body_request(row.body)
        server = Server("--max-inflight-bytes", str(INFLIGHT_BYTES))
        took = []
        for _ in range(2 if smoke_only else FIRST_REQUESTS):
            start = time.perf_counter_ns()
            _, content = ask(server.port, MODEL, body, headers)
            took.append(time.perf_counter_ns() - start)
        peak = peak_bytes(server.pid)
        server.stop()
        return {"peak": peak, "held": len(body) + len(content), "first_ns": took[0],
                "later_ns": statistics.median(took[1:])}

    def rates(self, row, libqk, _):
        """Name -> [(rate, answers in a second, p50, p99)], while it keeps up."""
        points = {}
        for name, port in self.ports.items():
            if name in ("bare", "two loops"):
                continue
            for rate in RATES:
                found = libqk.exchange(port, row.connections, SLICE_MS, self.small_file(name), rate)
                if found[0] < KEPT_UP * rate:
                    break
                points.setdefault(name, []).append((rate, *found))
        return {"points": points}
