"""The served part of `make bench`: layers as seen by a client that has loaded them into quantd, and
by a client that asks FastAPI with ONNX Runtime instead; and the bounds of both."""
import dataclasses
import importlib.util
import mmap
import os
import statistics
import time

import figures
import layers
import stopwatch
from figures import threads_text
from libqk import FILES, ROOT
from peer import SPIN_SECONDS
from served_report import (CONNECTIONS, PEERS, Report, falls_short, one_line, series_name, settle)
from services import (FastApi, Quantd, clear_models, linked_names, post, post_text, write_links,
                      write_onnx, write_request)
from tensors import random_bytes

SLICE_MS, SMOKE_SLICE_MS = 100, 20
SECONDS_MIN = 0.5  # the least time for a row that leaves its slices whole
ROUNDS_MAX = 7
RUN_SECONDS, RUNS_MIN = 0.04, 9  # for runs of ONNX Runtime in this process
LOADS = 15  # how often: loads are short, so much can delay them, and the best counts
CHAINS = (("256×56×56 → 64×1×1", "64×56×56 → 64×3×3", "64×56×56 → 256×1×1"),
          ("1024×14×14 → 256×1×1", "256×14×14 → 256×3×3", "256×14×14 → 1024×1×1"),
          ("2048×7×7 → 512×1×1", "512×7×7 → 512×3×3", "512×7×7 → 2048×1×1"))


@dataclasses.dataclass(frozen=True)
class Chain:
    """Layers in a row: each layer's input is the output of the layer before."""
    stages: tuple  # rows of layers.py

    class Layer(list):
        kind = "chain"

        def __str__(self):
            return "chain: " + ", then ".join(map(str, self))

    batch, y = 1, "UINT8"

    def __str__(self):
        return "%s, batch 1, %s" % (self.layer, threads_text(self.threads))

    layer = property(lambda self: Chain.Layer([stage.layer for stage in self.stages]))
    threads = property(lambda self: self.stages[0].threads)
    inputs = property(lambda self: self.stages[0].inputs)
    x_bytes = property(lambda self: self.stages[0].x_bytes)
    y_shape = property(lambda self: self.stages[-1].y_shape)
    y_bytes = property(lambda self: self.stages[-1].y_bytes)


def chains(rows):
    by_name = {str(row.layer): row for row in rows}
    return [Chain(tuple(by_name[name] for name in names)) for names in CHAINS
            if all(name in by_name for name in names)]


def stages(row):
    return row.stages if isinstance(row, Chain) else (row,)


def model_name(paths):
    """Returns the NAME in paths of the form MODELS/NAME/VERSION/FILE."""
    return paths[0].parent.parent.name


def request_file(name):
    return "request-" + name.replace(" ", "-")


def read_ns(paths, rooms):
    """Returns the nanoseconds that reading a model's files takes, which are in the page cache.
    Reads each file into the memory that `rooms` has for it, or into new memory, which is then added
    to `rooms`."""
    start = time.perf_counter_ns()
    for path in paths:
        file = os.open(path, os.O_RDONLY)
        size = os.fstat(file).st_size
        if path not in rooms:
            rooms[path] = mmap.mmap(-1, size)
        os.readv(file, [rooms[path]])
        os.close(file)
    return time.perf_counter_ns() - start


def median_ns(run):
    series, end = [], time.monotonic() + RUN_SECONDS
    while len(series) < RUNS_MIN or time.monotonic() < end:
        series.append(stopwatch.time_batch(run, 1))
    return statistics.median(series)


class Part(figures.Part):
    falls_short, one_line = staticmethod(falls_short), staticmethod(one_line)
    best_of = staticmethod(settle)
    x_bytes = staticmethod(random_bytes)

    def __init__(self, budget_seconds):
        self.budget_seconds = budget_seconds
        self.services, self.paths = {}, {}

    @staticmethod
    def select(options, threads, _):
        rows = layers.smoke(threads, ()) if options.smoke else layers.full(threads, (), (1,))
        selected = [row for row in rows if row.threads == threads]
        if not options.without_peer:
            selected += chains(selected)
        return selected

    def open(self, selected, libqk, peer):
        """Writes the files of all models, then starts the servers."""
        clear_models()
        if not peer:
            selected = [row for row in selected if not isinstance(row, Chain)]
        for index, row in enumerate(selected):
            name = "layer%02d" % index
            self.paths[row] = (write_onnx(name, peer.model(row, ("x",)).SerializeToString())
                               if peer else write_request(name, row))
            write_links(name, LOADS)
        threads = selected[0].threads
        self.services["quantd"] = Quantd()
        if peer and importlib.util.find_spec("uvicorn"):
            self.services["1 worker"] = FastApi(1, threads)
            self.services["2 workers"] = FastApi(2, max(1, threads // 2))
            for name in PEERS:
                self.services[name].wait()
        return selected

    def close(self):
        for service in self.services.values():
            service.close()
        self.services = {}

    @staticmethod
    def report(results, machine_lines, _):
        return Report(results, machine_lines)

    def load(self, row):
        """Measures loading and returns the best of LOADS times for each of: loading a new model,
        where all models stay loaded until the last one is; loading a model again and again in the
        memory that it has just given back; and reading the files, into new and into used memory."""
        quantd, paths, name = self.services["quantd"], self.paths[row], model_name(self.paths[row])
        links, rooms, found, again = linked_names(name, LOADS), {}, [], []
        before = quantd.model_bytes()
        for link in links:
            found.append((quantd.load(link), quantd.call_ns(), read_ns(paths, {})))
        resident = (quantd.model_bytes() - before) / LOADS
        for _ in range(LOADS):
            quantd.unload(name)
            again.append((quantd.load(name), read_ns(paths, rooms)))
        for link in links:
            quantd.unload(link)
        constants = (raw for stage in stages(row) for *_, raw in stage.inputs)
        load_ns, call_ns, file_ns = map(min, zip(*found))
        again_ns, file_again_ns = map(min, zip(*again))
        return {"ns": load_ns - call_ns, "read_ns": file_ns,
                "again_ns": again_ns - call_ns, "read_again_ns": file_again_ns,
                "constant": sum(len(raw) for raw in constants if raw),
                "file": sum(path.stat().st_size for path in paths), "resident": resident}

    def measure(self, row, libqk, peer, seconds):
        """Measures a row and returns the result as a dict that JSON can hold, with a series for
        each quantity that rounds measure."""
        x, load = random_bytes(row.x_bytes), self.load(row)
        requests = {name: service.request(model_name(self.paths[row]), row, x)
                    for name, service in self.services.items()}
        ports = {name: service.port for name, service in self.services.items()}
        outputs = [service.output(*post(service.port, *requests[name]))
                   for name, service in self.services.items()]
        if not isinstance(row, Chain):
            requests["carried"] = Quantd.carried_request(row, x)
            ports["carried"] = ports["quantd"]
            libqk.prepare(row)
            outputs.append(libqk.output())
        run = peer.prepare(row) if peer else None
        if run:
            outputs.append(peer.output(row, run))
        requests["echo"] = requests["quantd"]
        ports["echo"] = libqk.echo(len(post_text(*requests["echo"])), row.y_bytes)
        for name, request in requests.items():
            (ROOT / FILES / request_file(name)).write_bytes(post_text(*request))
        return {"name": str(row), "kind": row.layer.kind, "layer": str(row.layer),
                "stages": [str(stage.layer) for stage in stages(row)], "x": row.x_bytes,
                "y": row.y_bytes, "threads": row.threads, "load": load,
                "series": self.rounds(libqk, ports, run, seconds),
                "same": all(output == outputs[0] for output in outputs)}

    def rounds(self, libqk, ports, run, seconds):
        slice_ms = SLICE_MS if seconds >= SECONDS_MIN else SMOKE_SLICE_MS
        series, start = {}, time.monotonic()
        for count in range(1, ROUNDS_MAX + 1):
            for name, port in ports.items():
                for connections in CONNECTIONS if name in self.services else CONNECTIONS[:1]:
                    series.setdefault(series_name(name, connections), []).append(
                        libqk.exchange(port, connections, slice_ms, FILES / request_file(name)))
                if name in PEERS:
                    time.sleep(SPIN_SECONDS)
            if run:
                series.setdefault("run", []).append(median_ns(run))
                time.sleep(SPIN_SECONDS)
            spent = time.monotonic() - start
            if spent + spent / count > seconds:
                break
        return series
