"""The wire's part of `make bench`: how fast quantd answers small requests and takes large bodies,
compared with a server that does nothing with them and with FastAPI; and how much memory it takes.
"""
import contextlib
import dataclasses
import http.client
import importlib.util
import json
import os
import re
import statistics
import struct
import tempfile
import time
from pathlib import Path

import figures
import layers
import rows
import shared
from libqk import FILES, ROOT, Libqk
from services import (MODEL, SMALL, FastApi, Quantd, Server, clear_models, infer_head,
                      json_request, post_text, write_onnx)
from tensors import KIB, MIB, random_bytes, size_text
from wire_report import PEERS, Report, one_line

LENGTH = "Inference-Header-Content-Length"
SMALL_COUNT, MANY_COUNT = 4, 100_000  # JSON numbers, in and out
CONNECTIONS = (1, 8, 64, 256)
RATES = (1000, 2000, 4000, 8000, 16000, 32000, 64000, 96000, 128000, 192000)
RATE_CONNECTIONS = 64
RATE_MS, RATE_REQUESTS = 500, 1500  # of a slice: at least both
KEPT_UP = 0.95  # of the rate: a server that answers fewer gets no higher rate
ROUNDS, SLICE_MS, SMOKE_SLICE_MS = 6, 250, 20
FEWER_ROUNDS = 5  # if slices are longer
LARGE_ROUNDS = 3
INFLIGHT_BYTES = 4 << 30  # 8 connections with 64 MiB each take 2.6 GB, with their outputs
MIXED_RATE, MIXED_LARGE_CONNECTIONS, MIXED_MS = 2000, 2, 1000
MIXED_BEGIN_MS = 100  # large requests begin this long before the measured small ones
FREE_BYTES_LEAST = 2 * INFLIGHT_BYTES
FIRST_REQUESTS = 6  # to a server that has just started
CHANNELS, SIDE, SMOKE_SIDE = 64, 1024, 16  # of a padded 3×3 convolution


@dataclasses.dataclass(frozen=True)
class Row:
    kind: str  # "small", "json", "body", "shared", "rate", "mixed", "memory"
    connections: int
    threads: int
    body: int = 0  # bytes of a large x, or its count of numbers
    is_unix: bool = False
    form: str = "bytes"  # for kind "memory": also "JSON", "convolution"

    x_bytes = 4  # of the model that FastAPI serves
    y_bytes = 16

    def __str__(self):
        where = "%d connection%s" % (self.connections, "s" if self.connections > 1 else "")
        if self.kind == "small":
            return "small request, " + where
        if self.kind == "rate":
            return "small requests at a rate, " + where
        if self.kind == "mixed":
            return "small requests beside large ones"
        if self.kind == "json":
            return "%d numbers as JSON, in and out, %s" % (self.body, where)
        sizes = "%s to %s" % (size_text(self.body), size_text(4 * self.body))
        if self.kind == "shared":
            return "%s in shared memory, %s" % (sizes, where)
        if self.kind == "memory" and self.form == "convolution":
            return "memory of a convolution, %s to as many" % size_text(self.body)
        if self.kind == "memory":
            return "memory of %s, %s" % (sizes, self.form)
        return "%s, %s, %s" % (sizes, "Unix socket" if self.is_unix else "TCP", where)


def full(threads):
    selected = [Row("small", count, threads) for count in CONNECTIONS]
    selected.append(Row("json", 1, threads, MANY_COUNT))
    for body in (MIB, 64 * MIB):
        selected += [Row("body", count, threads, body, is_unix)
                     for is_unix in (False, True) for count in (1, 8)]
        selected += [Row("shared", count, threads, body) for count in (1, 8)]
    return selected + [Row("memory", 1, threads, 64 * MIB),
                       Row("memory", 1, threads, 16 * MIB, form="JSON"),
                       Row("memory", 1, threads, CHANNELS * SIDE * SIDE, form="convolution"),
                       Row("mixed", RATE_CONNECTIONS, threads, MIB),
                       Row("rate", RATE_CONNECTIONS, threads)]


def smoke(threads):
    return [Row("small", 2, threads), Row("json", 1, threads, MANY_COUNT),
            Row("body", 2, threads, 16 * KIB), Row("body", 2, threads, 16 * KIB, True),
            Row("shared", 2, threads, 64 * KIB), Row("memory", 1, threads, 256 * KIB),
            Row("memory", 1, threads, 16 * KIB, form="JSON"),
            Row("memory", 1, threads, CHANNELS * SMOKE_SIDE * SMOKE_SIDE, form="convolution"),
            Row("mixed", 2, threads, 16 * KIB)]


def free_bytes():
    text = Path("/proc/meminfo").read_text()
    return int(re.search(r"^MemAvailable: *(\d+)", text, re.MULTILINE).group(1)) * KIB


def body_request(size):
    """Returns (body, headers) of the same request with bytes in and out."""
    head = infer_head([("x", "UINT8", [size], size), ("x_scale", "FP32", [], 4)],
                      {"binary_data_output": True})
    scale = b"\x00\x00\x00\x3f"
    return head + random_bytes(size) + scale, {LENGTH: str(len(head))}


def conv_row(row):
    """Returns a convolution whose x and y have as many bytes as the row says."""
    side = round((row.body / CHANNELS) ** 0.5)
    return layers.Row(layers.Layer("resnet50", (CHANNELS, side, side), (CHANNELS, 3, 3), (1, 1),
                                   (1, 1), 1, (1, 1)), 1, row.threads)


def ask(port, path, body, headers=None):
    """Posts a request. Returns (the whole answer with its head, its body)."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    client.request("POST", path, body, headers or {})
    answer = client.getresponse()
    content = answer.read()
    client.close()
    if answer.status != 200:
        raise SystemExit("bench: %s: status %d: %s" % (path, answer.status, content[:500]))
    head = "".join("%s: %s\r\n" % header for header in answer.getheaders())
    return ("HTTP/1.1 200 OK\r\n%s\r\n" % head).encode() + content, content


def numbers_of(content):
    return json.loads(content)["outputs"][0]["data"]


def peak_bytes(pid):
    text = Path("/proc/%d/status" % pid).read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) * KIB


@contextlib.contextmanager
def awake(wanted):
    """Keeps idle CPUs from sleeping, if the system permits that. Linux' PM QoS does so as long as
    the file is open."""
    with contextlib.ExitStack() as stack:
        if wanted:
            with contextlib.suppress(OSError):
                file = stack.enter_context(open("/dev/cpu_dma_latency", "wb", buffering=0))
                file.write(struct.pack("i", 0))
        yield


def cpu_ns(pid):
    """Returns (CPU time of the process' first thread, of all its other threads) since it started,
    in nanoseconds."""
    spent = {int(path.name): int((path / "schedstat").read_text().split()[0])
             for path in Path("/proc/%d/task" % pid).iterdir()}
    return spent[pid], sum(spent.values()) - spent[pid]


class Part(figures.Part):
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
        return selected

    @staticmethod
    def falls_short(_):
        return False  # a row has many rounds already

    def unix_path(self, name):
        return os.path.join(self.folder.name, name)

    def open(self, selected, libqk, peer):
        self.folder = tempfile.TemporaryDirectory()
        flags = ("--max-inflight-bytes", str(INFLIGHT_BYTES))
        self.quantd = Server(*flags, "--allow-shared-memory", shared.PREFIX,
                             listen=("127.0.0.1:0", "unix:" + self.unix_path("quantd")))
        self.two_loops = Server(*flags, "--io-threads", "2")
        self.limits = Libqk("auto")  # in a process of its own
        if peer and importlib.util.find_spec("uvicorn"):
            clear_models()
            for name, count in (("small", SMALL_COUNT), ("many", MANY_COUNT)):
                row = rows.Row(rows.DEQUANTIZE, "UINT8", "FP32", "tensor", count, 1)
                write_onnx(name, peer.model(row, ("x",)).SerializeToString())
            self.peers = {name: FastApi(workers + 1, 1) for workers, name in enumerate(PEERS)}
            for service in self.peers.values():
                service.wait()
        answer, content = self.open_json("small", SMALL)
        self.same = numbers_of(content) == [-64, 0, 0.5, 63.5]
        (ROOT / FILES / "answer").write_bytes(answer)
        request_bytes = (ROOT / self.request_file("small")).stat().st_size
        self.ports = {"quantd": self.quantd.port, "two loops": self.two_loops.port,
                      "constant": self.limits.constant(FILES / "answer"),
                      "bare": self.limits.echo(request_bytes, len(content), 1)}
        self.ports.update((name, service.port) for name, service in self.peers.items())
        return selected

    def open_json(self, name, numbers):
        """Writes the request of that name for quantd and for its peers, and checks that each peer
        answers as many numbers. Returns quantd's answer."""
        body = json_request(numbers)
        self.write_request(name, MODEL, body, {})
        self.write_request(name + " of a peer", "/json/" + name, body, {})
        for service in self.peers.values():
            count = len(numbers_of(ask(service.port, "/json/" + name, body)[1]))
            if count != len(numbers):
                raise SystemExit("bench: FastAPI answers %d numbers" % count)
        return ask(self.quantd.port, MODEL, body)

    def request_file(self, name):
        return FILES / ("wire-" + name.replace(" ", "-"))

    def write_request(self, name, path, body, headers):
        (ROOT / self.request_file(name)).write_bytes(post_text(path, body, headers))

    def json_file(self, who, name):
        return self.request_file(name + " of a peer" if who in PEERS else name)

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
        measures = {"small": self.small, "json": self.json, "body": self.body,
                    "shared": self.shared, "rate": self.rates, "mixed": self.mixed,
                    "memory": self.memory}
        with awake(row.connections == 1):
            found = measures[row.kind](row, libqk, seconds < 1)
        return {"name": str(row), "same": self.same, **dataclasses.asdict(row), **found}

    def exchange(self, libqk, who, *words):
        """Returns (answers per second, p50, p99). For quantd, appends the CPU time that an answer
        takes of the loop, of the workers and of the client."""
        if who != "quantd":
            return libqk.exchange(*words)
        processes = self.quantd.pid, libqk.process.pid
        start, before = time.perf_counter(), [cpu_ns(pid) for pid in processes]
        found = libqk.exchange(*words)
        count = found[0] * (time.perf_counter() - start)
        (loop, workers), (client, _) = [
            [(after - then) / count for after, then in zip(cpu_ns(pid), spent)]
            for pid, spent in zip(processes, before)]
        return (*found, loop, workers, client)

    def in_turn(self, libqk, asked, connections, rounds):
        """Asks each server in turn, in each round. Returns name -> [what exchange() returns].
        `asked`: (name, address, file)."""
        series = {}
        for _ in range(rounds or 1):
            for who, address, path in asked:
                series.setdefault(who, []).append(self.exchange(
                    libqk, who, address, connections, SLICE_MS if rounds else SMOKE_SLICE_MS,
                    path))
        return series

    def small(self, row, libqk, smoke_only):
        return {"series": self.in_turn(
            libqk, [(who, port, self.json_file(who, "small")) for who, port in self.ports.items()],
            row.connections, 0 if smoke_only else ROUNDS)}

    def json(self, row, libqk, smoke_only):
        numbers = random_bytes(row.body)
        _, content = self.open_json("many", numbers)
        who_have_it = [who for who in self.ports if who == "quantd" or who in PEERS]
        series = self.in_turn(
            libqk, [(who, self.ports[who], self.json_file(who, "many")) for who in who_have_it],
            row.connections, 0 if smoke_only else ROUNDS)
        return {"series": series,
                "same": numbers_of(content) == [(number - 128) / 2 for number in numbers]}

    def body(self, row, libqk, smoke_only):
        body, headers = body_request(row.body)
        self.write_request("body", MODEL, body, headers)
        _, content = ask(self.quantd.port, MODEL, body, headers)
        sent = (ROOT / self.request_file("body")).stat().st_size
        address = self.unix_path("bare") if row.is_unix else "0"
        port = self.limits.echo(sent, len(content), row.threads, address)
        where = {"quantd": self.unix_path("quantd") if row.is_unix else self.quantd.port,
                 "bare": address if row.is_unix else port}
        if not row.is_unix and row.body <= MIB:
            where["two loops"] = self.two_loops.port
        rounds = 0 if smoke_only else ROUNDS if row.body <= MIB else LARGE_ROUNDS
        return {"series": self.in_turn(
            libqk, [(who, at, self.request_file("body")) for who, at in where.items()],
            row.connections, rounds)}

    def shared(self, row, libqk, smoke_only):
        """Compares requests in shared memory with a small request, and with as many threads as
        quantd has workers that only move the bytes from one region to the other."""
        x = shared.Region("x", random_bytes(row.body))
        y = shared.Region("y", bytes(4 * row.body))
        body = shared.request_of(x, y, 0.5)
        self.write_request("shared", MODEL, body, {})
        first_ns = shared.first_ns(self.quantd.port, (x, y), MODEL, body,
                                   1 if smoke_only else shared.FIRST_ROUNDS)
        same = y.bytes[:4 * KIB] == b"".join(struct.pack("<f", byte / 2) for byte in x.bytes[:KIB])
        series, move_ns = {}, []
        for _ in range(1 if smoke_only else FEWER_ROUNDS):
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
        """Measures small requests at a fixed rate, alone and beside large ones from another client.
        Does so with a loop that computes short requests itself, and with a loop that leaves
        everything to the workers."""
        self.write_request("body", MODEL, *body_request(row.body))
        others = Libqk("auto")
        servers = {switch: Server("--loop-computes", switch) for switch in ("on", "off")}
        ms, series = SMOKE_SLICE_MS if smoke_only else MIXED_MS, {}
        for _ in range(1 if smoke_only else FEWER_ROUNDS):
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

    def memory_request(self, row):
        """Returns (path, body, headers, bytes that the request needs beside body and answer) for
        the row's form. JSON needs its numbers as tensors, a convolution its packed weights and
        workspaces."""
        if row.form == "JSON":
            return MODEL, json_request(random_bytes(row.body)), {}, 5 * row.body
        if row.form == "convolution":
            conv, x = conv_row(row), random_bytes(row.body)
            self.limits.give(x)
            plan = self.limits.prepare(conv)
            return (*Quantd.carried_request(conv, x),
                    plan["resident"] + row.threads * plan["workspace"])
        return MODEL, *body_request(row.body), 0

    def memory(self, row, _, smoke_only):
        """Sends requests one after the other on a server that has just started. Returns the most
        memory that the server held, and the time of the first request, whose pages are all new,
        beside the median of the later ones."""
        path, body, headers, more = self.memory_request(row)
        server = Server("--max-inflight-bytes", str(INFLIGHT_BYTES))
        took = []
        for _ in range(2 if smoke_only else FIRST_REQUESTS):
            start = time.perf_counter_ns()
            _, content = ask(server.port, path, body, headers)
            took.append(time.perf_counter_ns() - start)
        peak = peak_bytes(server.pid)
        server.stop()
        return {"peak": peak, "held": len(body) + len(content) + more, "first_ns": took[0],
                "later_ns": statistics.median(took[1:])}

    def rates(self, row, libqk, _):
        """Returns name -> [(rate, answers per second, p50, p99)]. A server that does not keep up
        gets no higher rates."""
        points = {who: [] for who in self.ports if who not in ("bare", "two loops")}
        going = list(points)
        for rate in RATES:
            series = {who: [] for who in going}
            for _ in range(FEWER_ROUNDS):
                for who in going:
                    ms = max(RATE_MS, 1000 * RATE_REQUESTS // rate)
                    series[who].append(libqk.exchange(self.ports[who], row.connections, ms,
                                                      self.json_file(who, "small"), rate))
            for who, found in series.items():
                point = (rate, *map(statistics.median, zip(*found)))
                if point[1] < KEPT_UP * rate:
                    going.remove(who)
                else:
                    points[who].append(point)
        return {"points": points}
