"""The networks' part of `make bench`: how long a whole network takes to load, beside reading its
file, and how much memory it keeps, beside its weights. tests/kernels/graph/test_graph_scratch.c
bounds the memory between nodes."""
import dataclasses

import figures
from figures import ns_text
from served import linked_names, model_name, read_ns
from services import Quantd, clear_models, write_links, write_onnx
from tensors import MIB, random_bytes

NAME = "resnet50"
LOADS = 15  # of the network, under a new name each; the best counts
LOAD_MOST = 3.0  # times the file is read
RESIDENT_MOST = 1.3  # times the weights


@dataclasses.dataclass(frozen=True)
class Row:
    name = "ResNet-50, QOperator"
    x_bytes = y_bytes = MIB

    def __str__(self):
        return self.name


def times_read(row):
    return row["ns"]["load"] / row["ns"]["read"]


def times_weights(row):
    return row["resident"] / row["weights"]


def one_line(row):
    return ("%s: loaded in %s, %.2f × reading its file of %.1f MiB; keeps %.3f × its weights" % (
        row["name"], ns_text(row["ns"]["load"]), times_read(row), row["file"] / MIB,
        times_weights(row)))


class Part(figures.Part):
    one_line = staticmethod(one_line)
    x_bytes = staticmethod(random_bytes)

    def __init__(self, budget_seconds):
        self.budget_seconds = budget_seconds
        self.server, self.paths, self.weights = None, [], 0

    @staticmethod
    def falls_short(row):
        return times_read(row) > LOAD_MOST or times_weights(row) > RESIDENT_MOST

    @staticmethod
    def select(options, *_):
        return figures.chosen(options, [Row()])

    def open(self, selected, libqk, peer):
        if not peer:
            print("bench: without networks: the onnx package makes them")
            return []
        import resnet50  # needs the onnx package
        model = resnet50.make()
        clear_models()
        self.weights = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
        self.paths = write_onnx(NAME, model.SerializeToString())
        write_links(NAME, LOADS)
        self.server = Quantd()
        return selected

    def close(self):
        if self.server:
            self.server.close()

    def measure(self, row, libqk, peer, seconds):
        server, found = self.server, []
        links = linked_names(model_name(self.paths), LOADS)
        server.call_ns(name=NAME)
        before = server.model_bytes()
        for link in links:
            found.append((server.load(link), server.call_ns(name=NAME), read_ns(self.paths, {})))
        resident = (server.model_bytes() - before) / LOADS
        for link in links:
            server.unload(link)
        load_ns, call_ns, file_ns = map(min, zip(*found))
        return {"name": str(row), "ns": {"load": load_ns - call_ns, "read": file_ns},
                "resident": resident, "weights": self.weights, "rounds": LOADS, "same": None,
                "file": sum(path.stat().st_size for path in self.paths)}

    @staticmethod
    def report(results, machine_lines, _):
        return Report(results, machine_lines)


class Report:
    def __init__(self, results, machine_lines):
        self.results, self.machine = results, machine_lines

    def targets(self):
        return list(figures.target_lines([
            ("a network is loaded in ≤ %.1f × the time of reading its file", LOAD_MOST,
             list(map(times_read, self.results)), False),
            ("a network keeps ≤ %.1f × its weights", RESIDENT_MOST,
             list(map(times_weights, self.results)), False)]))

    def print_rows(self):
        for row in self.results:
            print(one_line(row))

    def print_summary(self):
        figures.print_targets("Networks", self.targets())

    def readme_lines(self):
        return [self.machine[0] + ":", "", *figures.TARGET_HEAD, *self.targets()]

    def write(self, folder):
        lines = ["# Networks", "", HEAD, ""] + ["- " + line for line in self.machine]
        lines += ["", *figures.TARGET_HEAD, *self.targets(), ""]
        lines += ["- " + one_line(row) for row in self.results]
        figures.write_section(folder, lines)


HEAD = """\
Written by `make bench`; not by hand. The network has ResNet-50's layers and random weights. The
file is in the page cache. Each load has a new name, and all stay loaded until the last one is, so
every load takes new memory, as reading the file does. The best of several loads and readings
counts."""
