"""Turns the networks' results into text: which rows reach their targets, the part of RESULTS.md,
and one-liners."""
import statistics

import figures
import plot
from figures import (bold_above, bold_below, geometric_mean, ns_text, ratio_text,
                     threads_text)
from served_report import (CONNECTIONS, ECHO_FACTOR, PEERS, connections_text, mean_text,
                           p50_ns, rate, series_name, times)
from tensors import MIB

FORMS = ("QOperator U8S8", "QDQ U8S8", "QOperator S8S8", "QDQ S8S8")
HTTP, LOADING = "over HTTP", "loading"
QUANTD, ORT, FLOATS, OPENVINO = "quantd", "ONNX Runtime", "float32", "OpenVINO"
at = series_name
# Small requests beside a network.
ALONE, SMALL_RATE = "small", 500

# Contestant -> the geometric mean and the least, as times quantd's time.
TARGETS = {ORT: (2.0, 1.2), FLOATS: (3.0, 1.0), OPENVINO: (1.5, 1.0)}
# What the README calls a contestant, its name, and which forms count.
UNSIGNED = tuple(form for form in FORMS if form.endswith(" U8S8"))
CONTESTANTS = (("ONNX Runtime, U8S8", ORT, UNSIGNED),
               ("ONNX Runtime, S8S8 as QOperator", ORT, ("QOperator S8S8",)),
               ("ONNX Runtime, S8S8 as QDQ", ORT, ("QDQ S8S8",)),
               ("ONNX Runtime, float32", FLOATS, UNSIGNED), ("OpenVINO, QDQ", OPENVINO, FORMS))
SIGNED_MEAN = 10.0  # S8S8 in ONNX Runtime
SIGNED_MOST = 1.1  # times quantd's own U8S8
CONVOLVED_MOST = ((1.25, ("ResNet-50", "VGG", "YOLO")), (1.6, ("MobileNet", "EfficientNet")))
THREADS_LEAST = ((1.7, 10e6), (1.4, 2e6))  # 2 threads against 1, of networks that take so many ns
HTTP_MEAN, HTTP_LEAST = 2.0, 1.2  # times the answers of the better FastAPI
BOUND_MOST, MEMORY_MOST, COLD_MOST = 1.0, 0.25, 0.2
COLD = "ResNet-50"
SMALL_FACTOR, SMALL_NS = 3, 2e6  # times alone, and two of the scheduler's quanta (QD_QUANTUM_NS)
LOAD_MOST, RESIDENT_MOST = 3.0, 1.3  # times the file is read; times the weights

# Kind -> how the names of its kernels begin.
KINDS = {"depthwise": ("conv_depthwise",), "convolutions": ("conv_",), "dense": ("matmul_",),
         "pooling": ("pool_", "float_mean", "float_max"),
         "elementwise": ("add_", "multiply_", "lookup_", "float_"),
         "moves": ("move_", "resize_", "concat_"), "rest": ("",)}


# ---- One row -------------------------------------------------------------------------------------


def is_signed(row):
    return row["form"].endswith(" S8S8")


def faster(row, name, threads):
    """Returns a contestant's time, divided by quantd's. None: it was not measured."""
    ns = row["ns"].get(at(name, threads))
    return ns / row["ns"][at(QUANTD, threads)] if ns else None


def gained(row):
    """Returns how many times as fast 2 threads are. None: one CPU."""
    ns = row["ns"].get(at(QUANTD, 2))
    return row["ns"][at(QUANTD, 1)] / ns if ns else None


def node_times(row):
    """Returns kind -> nanoseconds of its nodes."""
    found = dict.fromkeys(KINDS, 0)
    for kernel, ns in row["nodes"]:
        found[next(kind for kind, begins in KINDS.items() if kernel.startswith(begins))] += ns
    return found


def convolved(row):
    """Returns the network's time divided by the sum of its convolutions'. None: it has none."""
    found = node_times(row)
    ns = found["convolutions"] + found["depthwise"]
    return row["ns"][at(QUANTD, 1)] / ns if ns else None


def bound_share(row):
    """Returns the p50 of an answer relative to the sum of the run and the echo."""
    return p50_ns(row, QUANTD) / (row["run"] + ECHO_FACTOR * p50_ns(row, "echo"))


def peer_share(row, what):
    """Returns quantd's memory or start relative to FastAPI's with one worker. None: not
    measured."""
    return row[what][QUANTD] / row[what][PEERS[0]] if PEERS[0] in row[what] else None


def beside(connections):
    return "small beside %d" % connections


def small_ns(row, name, what):
    """Returns the median of the p50 (1) or the p99 (2) of small requests."""
    return statistics.median(entry[what] for entry in row["series"][name])


def small_share(row, connections):
    """Returns the p99 of small requests beside a network, relative to their bound."""
    bound = SMALL_FACTOR * small_ns(row, ALONE, 2) + SMALL_NS
    return small_ns(row, beside(connections), 2) / bound


def times_read(row):
    return row["ns"]["load"] / row["ns"]["read"]


def times_weights(row):
    return row["resident"] / row["weights"]


def one_line(row):
    if "nodes" in row:
        return "%s: %s; answers %s" % (row["name"], "; ".join(
            "%s %s" % (threads_text(threads), ", ".join(
                "%s %s" % (name, ns_text(row["ns"][at(name, threads)]))
                + (" (%.2f ×)" % faster(row, name, threads) if name != QUANTD else "")
                for name in (QUANTD, ORT, FLOATS, OPENVINO) if at(name, threads) in row["ns"]))
            for threads in threads_of([row])), row["answers"])
    if "series" in row:
        return "%s: %s on 1, 4, 16 connections; p50 %s, %.2f of the bound; first answer in %s" % (
            row["name"], ", ".join("%.0f/s%s" % (
                rate(row, QUANTD, count), " (%.2f × FastAPI)" % times(row, count)
                if times(row, count) else "") for count in CONNECTIONS),
            ns_text(p50_ns(row, QUANTD)), bound_share(row), ns_text(row["cold"][QUANTD]))
    return "%s: loaded in %s, %.2f × reading its file of %.1f MiB; keeps %.3f × its weights" % (
        row["name"], ns_text(row["ns"]["load"]), times_read(row), row["file"] / MIB,
        times_weights(row))


# ---- All rows ------------------------------------------------------------------------------------


def threads_of(rows):
    return [threads for threads in (1, 2) if any(at(QUANTD, threads) in row["ns"] for row in rows)]


def mean_target(text, least, rows, value):
    """Yields a row of the targets' table, if there are values."""
    values = [value(row) for row in rows if value(row)]
    if values:
        mean = geometric_mean(values)
        yield ("%s: ≥ %.1f × in the geometric mean" % (text, least), mean >= least, 1,
               ratio_text(mean, least))


def each_target(text, bound, rows, value, at_least=True):
    found = sorted((value(row), row["name"]) for row in rows if value(row))
    if found:
        worst, name = found[0 if at_least else -1]
        reached = sum(ratio >= bound if at_least else ratio <= bound for ratio, _ in found)
        yield ("%s: each %s %.4g ×" % (text, "≥" if at_least else "≤", bound), reached, len(found),
               "%s %s (%s), median %.2f" % ("least" if at_least else "most",
                                            ratio_text(worst, bound, at_least), name,
                                            statistics.median(ratio for ratio, _ in found)))


class Report:
    def __init__(self, results, machine_lines):
        self.results, self.machine = results, machine_lines
        self.timed = [row for row in results if "nodes" in row]
        self.served = [row for row in results if "series" in row]
        self.loaded = [row for row in results if "resident" in row]

    def print_rows(self):
        for row in self.results:
            print(one_line(row))

    # ---- Targets ---------------------------------------------------------------------------------

    def time_targets(self):
        unsigned = [row for row in self.timed if not is_signed(row)]
        signed = [row for row in self.timed if is_signed(row)]
        for threads in threads_of(self.timed):
            for name, (mean, least) in TARGETS.items():
                rows = self.timed if name == OPENVINO else unsigned
                text = "%s, %s%s" % (name, "" if name == OPENVINO else "U8S8, ",
                                     threads_text(threads))

                def value(row, name=name, threads=threads):
                    return faster(row, name, threads)

                yield from mean_target(text, mean, rows, value)
                yield from each_target(text, least, rows, value)
            yield from mean_target("%s, S8S8, %s" % (ORT, threads_text(threads)), SIGNED_MEAN,
                                   signed, lambda row, threads=threads: faster(row, ORT, threads))
        yield from each_target("S8S8 against quantd's own U8S8, 1 thread", SIGNED_MOST, signed,
                               self.own_share, False)
        for most, names in CONVOLVED_MOST:
            yield from each_target("the whole against its convolutions, %s" % ", ".join(names),
                                   most, [row for row in self.timed
                                          if row["network"].startswith(names)], convolved, False)
        for least, ns in THREADS_LEAST:
            rows = [row for row in self.timed if row["ns"][at(QUANTD, 1)] >= ns]
            yield from each_target("2 threads against 1, networks of ≥ %s" % ns_text(ns), least,
                                   rows, gained)

    def own_share(self, row):
        """Returns the time relative to that of the U8S8 file of the same layout."""
        other = row["name"].replace("S8S8", "U8S8")
        found = [one["ns"][at(QUANTD, 1)] for one in self.timed if one["name"] == other]
        return row["ns"][at(QUANTD, 1)] / found[0] if found else None

    def target_rows(self):
        """Yields (target's text, how many rows reach it, of how many rows, detail)."""
        yield from self.time_targets()
        for count in CONNECTIONS:
            text = "requests/s against the better FastAPI, " + connections_text(count)
            yield from mean_target(text, HTTP_MEAN, self.served,
                                   lambda row, count=count: times(row, count))
            yield from each_target(text, HTTP_LEAST, self.served,
                                   lambda row, count=count: times(row, count))
        yield from each_target("p50 on 1 connection against the run + %.1f × the echo" %
                               ECHO_FACTOR, BOUND_MOST, self.served, bound_share, False)
        for count in CONNECTIONS:
            yield from each_target(
                "p99 of small requests beside %s against %d × alone + %s" % (
                    connections_text(count), SMALL_FACTOR, ns_text(SMALL_NS)), 1, self.served,
                lambda row, count=count: small_share(row, count), False)
        for what, text in (("idle", "memory when idle"), ("peak", "memory at most")):
            yield from each_target(text + " against FastAPI's", MEMORY_MOST, self.served,
                                   lambda row, what=what: peer_share(row, what), False)
        yield from each_target("from start to first answer against FastAPI's, " + COLD, COLD_MOST,
                               [row for row in self.served if row["network"] == COLD],
                               lambda row: peer_share(row, "cold"), False)
        yield from each_target("loading against reading the file", LOAD_MOST, self.loaded,
                               times_read, False)
        yield from each_target("memory that is kept against the weights", RESIDENT_MOST,
                               self.loaded, times_weights, False)

    def target_lines(self):
        return figures.TARGET_HEAD + ["| %s | %d | %d | %s |" % row for row in self.target_rows()]

    def print_summary(self):
        print("\nNetworks: who reaches the target")
        for text, reached, count, detail in self.target_rows():
            print("  %-80s %2d of %2d; %s" % (text, reached, count, detail))

    def readme_lines(self):
        return [self.machine[0] + ":", "", *self.contestant_lines(), "", *self.service_lines()]

    def contestant_lines(self):
        """Yields a table with the geometric mean and the least for each contestant."""
        counts = threads_of(self.timed)
        yield "| its time ÷ quantd's: mean, least |%s" % "".join(
            " %s |" % threads_text(threads) for threads in counts)
        yield "|---|" + "---:|" * len(counts)
        for text, name, forms in CONTESTANTS:
            rows = [row for row in self.timed if row["form"] in forms]
            yield "| %s |%s" % (text, "".join(" %s |" % mean_text(
                rows, lambda row, name=name, threads=threads: faster(row, name, threads))
                for threads in counts))

    def service_lines(self):
        """Yields a table with each network that is asked over HTTP."""
        yield "| quantd ÷ FastAPI |%s first answer | idle memory | peak memory |" % "".join(
            " answers/s, %s |" % connections_text(count) for count in CONNECTIONS)
        yield "|---|" + "---:|" * (len(CONNECTIONS) + 3)
        for row in self.served:
            shares = [times(row, count) for count in CONNECTIONS]
            shares += [peer_share(row, what) for what in ("cold", "idle", "peak")]
            yield "| %s |%s" % (row["network"], "".join(
                " %.2f |" % share if share else " – |" for share in shares))

    # ---- RESULTS.md ------------------------------------------------------------------------------

    def write(self, folder):
        lines = ["# Networks", "", HEAD, ""] + ["- " + line for line in self.machine]
        lines += ["", "![times as fast](networks.svg)", "", "## Targets of networks", "",
                  *self.target_lines()]
        for threads in threads_of(self.timed):
            lines += self.time_table(threads)
        lines += self.node_table() + self.served_table() + self.small_table()
        lines += self.start_table()
        lines += ["", "## Loading of networks", ""]
        lines += ["- " + one_line(row) for row in self.loaded]
        figures.write_section(folder, lines)
        shown = sorted((row for row in self.timed if not is_signed(row)),
                       key=lambda row: FORMS.index(row["form"]))
        (folder / "networks.svg").write_text(plot.networks_svg(
            [(row["network"], row["form"], *(faster(row, name, threads) for name, threads in (
                (ORT, 1), (ORT, 2), (FLOATS, 1), (OPENVINO, 1)))) for row in shown]))

    def time_table(self, threads):
        names = [name for name in TARGETS if any(at(name, threads) in row["ns"]
                                                 for row in self.timed)]
        more = " × 1 thread | CPU to CPU |" if threads > 1 else ""
        lines = ["", "## Whole networks, %s" % threads_text(threads), "",
                 "| network | file | quantd |%s%s answers |" % (
                     "".join(" %s | × |" % name for name in names), more),
                 "|---|---|---:|%s---|" % ("---:|" * (2 * len(names) + more.count("|")))]
        for row in self.timed:
            cells = [row["network"], row["form"], ns_text(row["ns"][at(QUANTD, threads)])]
            for name in names:
                ratio, least = faster(row, name, threads), TARGETS[name][1]
                cells += [ns_text(row["ns"][at(name, threads)]),
                          bold_below("%.2f", ratio, least)] if ratio else ["–", "–"]
            if more:
                cells += ["%.2f" % gained(row), ns_text(row["line"])]
            lines.append("| %s | %s |" % (" | ".join(cells), row["answers"]))
        return lines + (self.apart_lines() if more else [])

    def apart_lines(self):
        """Returns what two threads take in the rounds that do not count."""
        lines = []
        for name in TARGETS:
            ratios = [row["apart"][at(name, 2)] / row["apart"][at(QUANTD, 2)] for row in self.timed
                      if row["apart"].get(at(name, 2))]
            if ratios:
                lines.append("- %s: %.2f × in the geometric mean of %d files, least %.2f" % (
                    name, geometric_mean(ratios), len(ratios), min(ratios)))
        head = ["", "In the rounds that do not count, because the CPUs did not share a cache:", ""]
        return head + lines if lines else []

    def node_table(self):
        lines = ["", "## Where the time of networks goes", "", NODE_HEAD, "",
                 "| network | file |%s nodes | whole | whole / convolutions |" % "".join(
                     " %s |" % kind for kind in KINDS), "|---|---|" + "---:|" * (len(KINDS) + 3)]
        for row in self.timed:
            found = node_times(row)
            total, ratio = sum(found.values()), convolved(row)
            lines.append("| %s | %s | %s | %s | %s | %s |" % (
                row["network"], row["form"],
                " | ".join("%.0f %%" % (100 * ns / total) for ns in found.values()),
                ns_text(total), ns_text(row["ns"][at(QUANTD, 1)]),
                "%.2f" % ratio if ratio else "–"))
        return lines

    def served_table(self):
        lines = ["", "## Networks over HTTP", "", SERVED_HEAD, "",
                 "| network | connections | quantd/s | p50 | FastAPI, 1 worker | p50 | 2 workers | "
                 "p50 | × the better | run | echo | of the bound | CPU to CPU |",
                 "|---|" + "---:|" * 12]
        for row in self.served:
            for count in CONNECTIONS:
                cells = ["%.1f | %s" % (rate(row, name, count), ns_text(p50_ns(row, name, count)))
                         if rate(row, name, count) else "– | –" for name in (QUANTD, *PEERS)]
                cells.append(bold_below("%.2f", times(row, count), HTTP_LEAST)
                             if times(row, count) else "–")
                cells += [ns_text(row["run"]), ns_text(p50_ns(row, "echo")),
                          bold_above("%.2f", bound_share(row), BOUND_MOST),
                          ns_text(row["line"])] if count == 1 else [""] * 4
                lines.append("| %s | %d | %s |" % (row["network"], count, " | ".join(cells)))
        return lines

    def small_table(self):
        lines = ["", "## Small requests beside a network", "", SMALL_HEAD, "",
                 "| network | alone p50 | p99 |%s" % "".join(
                     " beside %s p50 | p99 | of the bound |" % connections_text(count)
                     for count in CONNECTIONS), "|---|" + "---:|" * (2 + 3 * len(CONNECTIONS))]
        for row in self.served:
            cells = [ns_text(small_ns(row, ALONE, what)) for what in (1, 2)]
            for count in CONNECTIONS:
                cells += [ns_text(small_ns(row, beside(count), what)) for what in (1, 2)]
                cells.append(bold_above("%.2f", small_share(row, count), 1))
            lines.append("| %s | %s |" % (row["network"], " | ".join(cells)))
        return lines

    def start_table(self):
        lines = ["", "## Start and memory of a server with a network", "",
                 "| network | first answer | FastAPI's | × | MiB idle | FastAPI's | × | "
                 "MiB at most | FastAPI's | × | answers |", "|---|" + "---:|" * 9 + "---|"]
        for row in self.served:
            cells = []
            for what, most, text in (("cold", COLD_MOST, ns_text),
                                     ("idle", MEMORY_MOST, mib_text),
                                     ("peak", MEMORY_MOST, mib_text)):
                share = peer_share(row, what)
                cells += [text(row[what][QUANTD])]
                cells += ([text(row[what][PEERS[0]]), bold_above("%.2f", share, most)] if share
                          else ["–", "–"])
            lines.append("| %s | %s | %s |" % (row["network"], " | ".join(cells), row["answers"]))
        return lines


def mib_text(count):
    return "%.1f" % (count / MIB)


HEAD = """\
Written by `make bench`; not by hand. The networks have the layers of well-known ones and random
weights (tests/bench/networks/architectures.py). ONNX Runtime's `quantize_static` made the files,
U8S8 per channel and S8S8 per tensor. Every network has batch 1. A contestant's time is the median
of rounds. In each round the contestants run for 15 ms in turn, after a run that warms up.

- *quantd* is `compute_us`, which a server with that many workers says in its answers over HTTP: the
  time of the network without HTTP and without waiting. Its caches are colder than a peer's, which
  runs in a loop. This counts for networks of less than 100 µs.
- *ONNX Runtime* is the same file in a default session with that many threads, less the time that
  any call from Python takes. Input and output stay in the same memory.
- *float32* is the network before it was quantized, in ONNX Runtime.
- *OpenVINO* has the QDQ file, the latency hint and that many threads.
- *×* is the contestant's time divided by quantd's.
- *answers* says whether quantd's bytes are those of ONNX Runtime. On CPUs without VNNI, the 16-bit
  sums of ONNX Runtime's products of UINT8 and INT8 can saturate, and quantd's sums are exact, so
  the bytes differ. In S8S8 QDQ files ONNX Runtime fuses fewer nodes than quantd.
- *CPU to CPU* is how long a cache line takes from one CPU to the other and back, which is shorter
  if both share an L3 cache. The host of a virtual machine may change that every second. Only the
  rounds count in which the CPUs were as near to each other as in the best one.
- Bold figures miss their target."""

NODE_HEAD = """\
Shares of the sum of all nodes' times, on one thread, as a request with `profile` reports them. Each
node's time is a median. A node that was fused into another one, such as an addition into a
convolution, counts as a part of it. *whole / convolutions* is the network's time divided by the sum
of its convolutions' times, depthwise ones included."""

SERVED_HEAD = """\
The QDQ U8S8 file. quantd runs with its default flags. FastAPI is tests/bench/peers/service.py, as
one worker with all threads, and as two workers that share the threads. Server and client share the
machine. *run* is the median of quantd's `compute_us` in the same rounds, *echo* the p50 of a bare
server that reads the same request and sends an answer of the same length, and *of the bound* is
quantd's p50, divided by the run plus %.1f times the echo.""" % ECHO_FACTOR

SMALL_HEAD = """\
One client sends %d small requests a second to quantd, at random times, as JSON: four numbers to
dequantize. First it is alone. Then other clients ask for the network again and again. *of the
bound* is the p99 divided by %d times the p99 alone plus %s. All clients run on the server's
CPUs.""" % (SMALL_RATE, SMALL_FACTOR, ns_text(SMALL_NS))
