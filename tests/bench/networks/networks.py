"""The networks' part of `make bench`: how long whole networks take, beside ONNX Runtime and
OpenVINO, where the time goes, and what a client gets over HTTP, beside FastAPI. Also how long a
network takes to load, beside reading its file, and how much memory it keeps, beside its weights.
tests/kernels/graph/test_graph_scratch.c bounds the memory between nodes."""
import contextlib
import dataclasses
import statistics
import time

import figures
from networks_report import (FLOATS, FORMS, HTTP, LOADING, OPENVINO, ORT, QUANTD, Report, at,
                             one_line)
from near import Near
from peer import SPIN_SECONDS
from served import read_ns
from services import Quantd, clear_models, linked_names, write_links, write_onnx
from tensors import MIB, random_bytes

try:
    import contestants
    import network_service
    import quantized
except ImportError as error:
    quantized, MISSING = None, error

THREADS_MAX = 2
TURN_NS = 15e6  # how long a contestant runs in each round, but at least once
WARM_NS = 100e6  # a run that took less warms up, and another one counts
ROUNDS = (3, 15)  # least, most
PROFILES = 4  # in a round; the first warms up
LOADED = "ResNet-50"
LOADS = 15  # with a new name each; the best counts
NAME = "network"  # of the model that is loaded so often
SMOKE = ("keywords", "ResNet-8")


@dataclasses.dataclass(frozen=True)
class Row:
    network: str
    what: str  # one of FORMS, HTTP or LOADING
    threads: int
    x_bytes = y_bytes = MIB

    form = property(lambda self: self.what if self.what in FORMS else quantized.SERVED)

    def __str__(self):
        return "%s, %s" % (self.network, self.what)


def turn(contestant):
    """Returns the mean of the middle half of some runs in a row. A median would be as coarse as
    quantd's answers, which tell microseconds."""
    first = contestant.run()
    series = [] if first < WARM_NS else [first]
    while sum(series) < TURN_NS:
        series.append(contestant.run())
    quarter = len(series) // 4
    return statistics.mean(sorted(series)[quarter:len(series) - quarter])


class Part(figures.Part):
    one_line = staticmethod(one_line)
    x_bytes = staticmethod(random_bytes)

    def __init__(self, budget_seconds):
        self.budget_seconds = budget_seconds
        self.servers = {}  # count of threads -> quantd
        self.floats = None, {}  # a network, and count of threads -> its session

    @staticmethod
    def falls_short(_):
        return False  # medians do not get better

    @staticmethod
    def select(options, threads, _):
        if options.without_peer or not quantized:
            print("bench: without networks: ONNX Runtime and onnx make them%s" % (
                "" if quantized else " (%s)" % MISSING))
            return []
        names, forms = quantized.NAMES, FORMS
        if options.smoke:
            names, forms = SMOKE, FORMS[:2]
        rows = [Row(names[0] if options.smoke else LOADED, LOADING, threads)]
        rows += [Row(name, HTTP, threads) for name in network_service.NETWORKS if name in names]
        return rows + [Row(name, form, threads) for name in names for form in forms]

    def open(self, selected, libqk, peer):
        """Makes the files and starts a server for each count of threads."""
        for row in selected:
            quantized.file(row.network, row.form)
        counts = sorted({1, min(THREADS_MAX, selected[0].threads)})
        self.servers = {threads: Quantd("--threads", str(threads), "--worker-nice", "0",
                                        folder=quantized.folder())
                        for threads in counts}
        return selected

    def close(self):
        for server in self.servers.values():
            server.close()
        self.servers = {}

    def measure(self, row, libqk, peer, seconds):
        if row.what == LOADING:
            return measure_loading(row)
        if row.what == HTTP:
            return network_service.measure(row, libqk, seconds)
        name = quantized.name(row.network, row.what)
        for server in self.servers.values():
            server.load(name)
        with contextlib.ExitStack() as stack:
            found = self.contestants(row, peer, stack)
            series, nodes, near = rounds(found, found[at(QUANTD, 1)], libqk, seconds)
            answers = {found[at(QUANTD, threads)].y for threads in self.servers}
            expected = found[at(ORT, 1)].y
        for server in self.servers.values():
            server.unload(name)
        return {"name": str(row), "network": row.network, "form": row.what, "nodes": nodes,
                "ns": {name: near.median(times) for name, times in series.items()},
                "apart": {name: near.median_apart(times) for name, times in series.items()},
                "line": near.line_ns, "rounds": near.count(),
                "answers": "same" if answers == {expected} else "differ",
                "same": len(answers) == 1}

    def contestants(self, row, peer, stack):
        """Returns name -> contestant, for each count of threads."""
        path = quantized.file(row.network, row.form)
        x, found = quantized.sample(row.network, quantized.SAMPLES), {}
        if self.floats[0] != row.network:
            floats = quantized.file(row.network, quantized.FLOATS)
            self.floats = row.network, {
                threads: contestants.Session(floats, x, threads, peer.call_ns(threads))
                for threads in self.servers}
        for threads, server in self.servers.items():
            asked = contestants.Asked(server, path.stem, x)
            stack.callback(asked.close)
            made = {QUANTD: asked, FLOATS: self.floats[1][threads],
                    ORT: contestants.Session(path, x, threads, peer.call_ns(threads)),
                    OPENVINO: row.form.startswith("QDQ") and contestants.open_vino(
                        path, x, threads)}
            found.update((at(name, threads), one) for name, one in made.items() if one)
        return found

    @staticmethod
    def report(results, machine_lines, _):
        return Report(results, machine_lines + contestants.versions())


def rounds(found, asked, libqk, seconds):
    """Measures the contestants in turn, then the nodes of `asked`, again and again. Returns name ->
    series of nanoseconds, (kernel, median nanoseconds) of each node, and which rounds count."""
    (least, most), end = ROUNDS, time.monotonic() + seconds
    series, profiles, near = {name: [] for name in found}, [], Near(libqk)
    for _ in range(most):
        for name, contestant in found.items():
            series[name].append(turn(contestant))
            if not name.endswith(", 1"):
                time.sleep(SPIN_SECONDS)
        profiles += [asked.nodes() for _ in range(PROFILES)][1:]
        near.end_round()
        if near.count() >= least and time.monotonic() > end:
            break
    return series, [(node[0][0], statistics.median(ns for _, ns in node))
                    for node in zip(*profiles)], near


# ---- Loading -------------------------------------------------------------------------------------


def measure_loading(row):
    path, found = quantized.file(row.network, row.form), []
    clear_models()
    paths = write_onnx(NAME, path.read_bytes())
    write_links(NAME, LOADS)
    server = Quantd()
    server.call_ns(name=NAME)
    before = server.model_bytes()
    for link in linked_names(NAME, LOADS):
        found.append((server.load(link), server.call_ns(name=NAME), read_ns(paths, {})))
    resident = (server.model_bytes() - before) / LOADS
    server.close()
    load_ns, call_ns, file_ns = map(min, zip(*found))
    return {"name": str(row), "ns": {"load": load_ns - call_ns, "read": file_ns},
            "resident": resident, "weights": quantized.weight_bytes(path), "rounds": LOADS,
            "same": None, "file": path.stat().st_size}
