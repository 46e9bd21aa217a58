"""Turns the wire's results into text: which rows reach their targets, the part of RESULTS.md, and
one-liners."""
import math
import statistics

import figures
import plot
from figures import bold_below, ns_text
from tensors import MIB

PEERS = ("1 worker", "2 workers")
CONSTANT_SHARE, P99_MOST = 0.80, 1.5  # of libmicrohttpd's rate; times its p99
PEER_CONNECTIONS, PEER_TIMES, PEER_P50_TIMES = 64, 15, 4
MODEL_CPUS = 16  # the model of more loops is for this many CPUs
BARE_SHARE = 0.80
SHARED_SHARE = 0.70  # of the speed of one move of the same bytes plus a small request
MEMORY_MOST = 1.25
SWITCHES, WHEN = ("on", "off"), ("alone", "beside")  # of --loop-computes; of large requests


# ---- One row -------------------------------------------------------------------------------------


def median(row, name, what):
    return statistics.median(entry[what] for entry in row["series"][name])


def rate(row, name):
    return median(row, name, 0)


def p50_ns(row, name):
    return median(row, name, 1)


def p99_ns(row, name):
    return median(row, name, 2)


def share(row, limit):
    return rate(row, "quantd") / rate(row, limit)


def two_loops_times(row):
    """Returns the rate with two loops relative to one. None: two loops were not measured."""
    found = "two loops" in row.get("series", ())
    return rate(row, "two loops") / rate(row, "quantd") if found else None


def cpu_ns(row):
    """Returns the CPU time that an answer takes of the loop, of the workers and of the client, in
    nanoseconds."""
    return [median(row, "quantd", what) for what in (3, 4, 5)]


def model_rate(row, loops, cpus, with_client):
    """Returns the answers per second if only CPU time bounds them. A loop can use one CPU at most,
    and so can the client. All of them together can use `cpus` CPUs at most."""
    loop, workers, client = cpu_ns(row)
    bounds = [loops / loop, cpus / (loop + workers + with_client * client)]
    return 1e9 * min(bounds + ([1 / client] if with_client else []))


def model_loops(row):
    """Returns (how many of MODEL_CPUS CPUs should run loops, the rate with as many loops, the rate
    with one loop)."""
    loop, workers, _ = cpu_ns(row)
    wanted = math.ceil(MODEL_CPUS * loop / (loop + workers) - 0.01)
    return wanted, *(model_rate(row, loops, MODEL_CPUS, False) for loops in (wanted, 1))


def model_times(row):
    """Returns by what factor a second loop should raise the rate on this machine, which also runs
    the client."""
    return model_rate(row, 2, row["threads"], True) / model_rate(row, 1, row["threads"], True)


def p99_times(row):
    return p99_ns(row, "quantd") / p99_ns(row, "constant")


def peer_times(row):
    """Returns the rate relative to the better FastAPI. None: FastAPI was not measured."""
    rates = [rate(row, name) for name in PEERS if name in row["series"]]
    return rate(row, "quantd") / max(rates) if rates else None


def peer_p50_times(row):
    p50s = [p50_ns(row, name) for name in PEERS if name in row["series"]]
    return min(p50s) / p50_ns(row, "quantd") if p50s else None


def shared_share(row):
    """Returns the share of the bound that shared memory reaches: of p50 with one connection, of the
    rate with several."""
    if row["connections"] == 1:
        return (row["move_ns"] + p50_ns(row, "small")) / p50_ns(row, "shared")
    return rate(row, "shared") * (row["move_ns"] / 1e9 + 1 / rate(row, "small"))


def latency(row, switch, when):
    """Returns (p50, p99) of small requests."""
    name = "%s %s" % (switch, when)
    return p50_ns(row, name), p99_ns(row, name)


def mixed_text(row, switch):
    texts = ("%s p50 %s, p99 %s" % (when, *map(ns_text, latency(row, switch, when)))
             for when in WHEN)
    return "--loop-computes %s: %s, %.0f large ones/s" % (switch, ", ".join(texts),
                                                        rate(row, switch + " large"))


def memory_share(row):
    return row["peak"] / row["held"]


def one_line(row):
    if row["kind"] == "rate":
        return "%s: up to %s" % (row["name"], ", ".join(
            "%s %d/s" % (name, points[-1][0]) for name, points in row["points"].items()))
    if row["kind"] == "mixed":
        return "%s: %s" % (row["name"], "; ".join(mixed_text(row, switch)
                                                 for switch in SWITCHES))
    if row["kind"] == "memory":
        return "%s: %.0f MiB at most, %.2f × of what it needs; the first %s, then %s" % (
            row["name"], row["peak"] / MIB, memory_share(row), ns_text(row["first_ns"]),
            ns_text(row["later_ns"]))
    if row["kind"] == "shared":
        return "%s: p50 %s, %.2f of a move (%s) and a small request (%s); the first %s" % (
            row["name"], ns_text(p50_ns(row, "shared")), shared_share(row),
            ns_text(row["move_ns"]), ns_text(p50_ns(row, "small")), ns_text(row["first_ns"]))
    text = "%s: %.0f/s, p50 %s, p99 %s" % (row["name"], rate(row, "quantd"),
                                           *map(ns_text, (p50_ns(row, "quantd"),
                                                          p99_ns(row, "quantd"))))
    if row["kind"] == "small":
        text += "; %.2f of libmicrohttpd (p99 %.2f ×)" % (share(row, "constant"), p99_times(row))
    if row["kind"] in ("small", "body"):
        text += ", %.2f of a bare socket" % share(row, "bare")
    if two_loops_times(row):
        text += "; with two loops %.2f × (%.2f by the model)" % (two_loops_times(row),
                                                                 model_times(row))
    if peer_times(row):
        text += "; %.1f × FastAPI, p50 %.1f × shorter" % (peer_times(row), peer_p50_times(row))
    return text


# ---- All rows ------------------------------------------------------------------------------------


class Report:
    def __init__(self, results, machine_lines):
        self.results, self.machine = results, machine_lines

    def of_kind(self, kind):
        return [row for row in self.results if row["kind"] == kind]

    def print_rows(self):
        for row in self.results:
            print(one_line(row))

    def target_lines(self):
        small, bodies, shared, memory = map(self.of_kind, ("small", "body", "shared", "memory"))
        with_peers = [row for row in small if peer_times(row)]
        many = [row for row in with_peers if row["connections"] == PEER_CONNECTIONS]
        alone = [row for row in with_peers if row["connections"] == 1]
        return list(figures.target_lines((
            ("small requests: requests/s ≥ %.2f × libmicrohttpd's with a constant answer",
             CONSTANT_SHARE, [share(row, "constant") for row in small], True),
            ("the same: p99 ≤ %.1f ×", P99_MOST, list(map(p99_times, small)), False),
            ("the same: requests/s ≥ %d × the better FastAPI, 64 connections", PEER_TIMES,
             list(map(peer_times, many)), True),
            ("the same: p50 ≥ %d × shorter than the better FastAPI's, 1 connection",
             PEER_P50_TIMES, list(map(peer_p50_times, alone)), True),
            ("100,000 numbers as JSON: requests/s ≥ %.2f × the better FastAPI with orjson", 1,
             list(filter(None, map(peer_times, self.of_kind("json")))), True),
            ("bodies: ≥ %.2f × a bare socket's answers", BARE_SHARE,
             [share(row, "bare") for row in bodies], True),
            ("shared memory: ≥ %.2f × one move of the same bytes and a small request",
             SHARED_SHARE, list(map(shared_share, shared)), True),
            ("memory: at most %.2f × bodies, tensors, packed weights and workspaces", MEMORY_MOST,
             list(map(memory_share, memory)), False))))

    def print_summary(self):
        figures.print_targets("The wire", self.target_lines())
        self.print_rows()

    # ---- RESULTS.md ------------------------------------------------------------------------------

    def write(self, folder):
        lines = ["# Speed of the wire", "", HEAD, ""]
        lines += ["- " + line for line in self.machine]
        lines += ["", "![latency against load](wire.svg)", "", "## Targets", "",
                  *figures.TARGET_HEAD, *self.target_lines()]
        lines += ["", "## Small requests", "", *self.small_table()]
        if any(map(peer_times, self.of_kind("json"))):
            lines += ["", "## Numbers as JSON", "", *self.json_table()]
        lines += ["", "## Large bodies", "", *self.body_table()]
        lines += ["", "## More loops", "", LOOPS_HEAD, "", *self.loops_table()]
        if self.of_kind("shared"):
            lines += ["", "## Shared memory", "", SHARED_HEAD, "", *self.shared_table()]
        lines += ["", "## Memory, and the first request", "", *self.memory_table()]
        for row in self.of_kind("mixed"):
            lines += ["", "## Small requests beside large ones", "", MIXED_HEAD, "",
                      *self.mixed_table(row)]
        for row in self.of_kind("rate"):
            lines += ["", "## Latency against load", "", RATE_HEAD, "", *self.rate_table(row)]
            (folder / "wire.svg").write_text(plot.latency_svg(row["points"]))
        figures.write_section(folder, lines)

    def small_table(self):
        yield ("| connections | quantd/s | p50 | p99 | "
               "libmicrohttpd/s | p99 | share | p99 × | bare socket/s | share | "
               "FastAPI/s | p50 | × | p50 × shorter |")
        yield "|" + "---:|" * 14
        for row in self.of_kind("small"):
            cells = ["%.0f | %s | %s" % (rate(row, "quantd"), ns_text(p50_ns(row, "quantd")),
                                         ns_text(p99_ns(row, "quantd"))),
                     "%.0f | %s" % (rate(row, "constant"), ns_text(p99_ns(row, "constant"))),
                     bold_below("%.2f", share(row, "constant"), CONSTANT_SHARE),
                     ("**%.2f**" if p99_times(row) > P99_MOST else "%.2f") % p99_times(row),
                     "%.0f | %.2f" % (rate(row, "bare"), share(row, "bare"))]
            cells.append("%.0f | %s | %.1f | %.1f" % (
                rate(row, "quantd") / peer_times(row),
                ns_text(p50_ns(row, "quantd") * peer_p50_times(row)), peer_times(row),
                peer_p50_times(row)) if peer_times(row) else "– | – | – | –")
            yield "| %d | %s |" % (row["connections"], " | ".join(cells))

    def json_table(self):
        yield ("| numbers in and out | quantd/s | p50 | FastAPI/s, 1 worker | 2 workers | "
               "p50, 1 worker | 2 workers | × | p50 × shorter |")
        yield "|---|" + "---:|" * 8
        for row in self.of_kind("json"):
            yield "| %s | %.0f | %s | %s | %s | %.1f | %.1f |" % (
                row["name"], rate(row, "quantd"), ns_text(p50_ns(row, "quantd")),
                " | ".join("%.0f" % rate(row, name) for name in PEERS),
                " | ".join(ns_text(p50_ns(row, name)) for name in PEERS), peer_times(row),
                peer_p50_times(row))

    def loops_table(self):
        yield ("| requests | loop | workers | client | two loops/s | p99 | × | by the model | "
               "loops of %d CPUs | answers/s | × one loop |" % MODEL_CPUS)
        yield "|---|" + "---:|" * 10
        for row in filter(two_loops_times, self.results):
            wanted, with_them, with_one = model_loops(row)
            yield "| %s | %s | %.4g | %s | %.2f | %.2f | %d | %.3g | %.1f |" % (
                row["name"], " | ".join(map(ns_text, cpu_ns(row))), rate(row, "two loops"),
                ns_text(p99_ns(row, "two loops")), two_loops_times(row), model_times(row), wanted,
                with_them, with_them / with_one)

    def body_table(self):
        yield "| bodies | quantd/s | p50 | p99 | bare socket/s | p50 | share |"
        yield "|---|" + "---:|" * 6
        for row in self.of_kind("body"):
            yield "| %s | %.4g | %s | %s | %.4g | %s | %s |" % (
                row["name"], rate(row, "quantd"), ns_text(p50_ns(row, "quantd")),
                ns_text(p99_ns(row, "quantd")), rate(row, "bare"), ns_text(p50_ns(row, "bare")),
                bold_below("%.2f", share(row, "bare"), BARE_SHARE))

    def shared_table(self):
        yield "| tensors | quantd/s | p50 | p99 | move | small request | share | first |"
        yield "|---|" + "---:|" * 7
        for row in self.of_kind("shared"):
            yield "| %s | %.4g | %s | %s | %s | %s | %s | %s |" % (
                row["name"], rate(row, "shared"), ns_text(p50_ns(row, "shared")),
                ns_text(p99_ns(row, "shared")), ns_text(row["move_ns"]),
                ns_text(p50_ns(row, "small")),
                bold_below("%.2f", shared_share(row), SHARED_SHARE), ns_text(row["first_ns"]))

    def memory_table(self):
        yield "| requests | bodies and the like | held at most | × | first | later |"
        yield "|---|" + "---:|" * 5
        for row in self.of_kind("memory"):
            yield "| %s | %.0f MiB | %.0f MiB | %.2f | %s | %s |" % (
                row["name"], row["held"] / MIB, row["peak"] / MIB, memory_share(row),
                ns_text(row["first_ns"]), ns_text(row["later_ns"]))

    @staticmethod
    def mixed_table(row):
        yield "| --loop-computes | alone p50 | p99 | beside large ones p50 | p99 | large ones/s |"
        yield "|---|" + "---:|" * 5
        for switch in SWITCHES:
            yield "| %s | %s | %.4g |" % (
                switch, " | ".join(ns_text(ns) for when in WHEN
                                   for ns in latency(row, switch, when)),
                rate(row, switch + " large"))

    @staticmethod
    def rate_table(row):
        yield "| requests/s |" + "".join(" %s p50 | p99 |" % NAMES[name] for name in row["points"])
        yield "|---:|" + "---:|---:|" * len(row["points"])
        found = {name: {point[0]: point for point in points}
                 for name, points in row["points"].items()}
        for offered in sorted(set().union(*found.values())):
            yield "| %d |%s" % (offered, "".join(
                " %s | %s |" % (ns_text(points[offered][2]), ns_text(points[offered][3]))
                if offered in points else " – | – |" for points in found.values()))

    def readme_lines(self):
        return [self.machine[0] + ":", "", *figures.TARGET_HEAD, *self.target_lines()]


NAMES = {"quantd": "quantd", "constant": "libmicrohttpd", "1 worker": "FastAPI, 1 worker",
         "2 workers": "FastAPI, 2 workers"}

HEAD = """\
Written by `make bench`; not by hand. The small request dequantizes four numbers, JSON in and out,
in 250 bytes; bodies are UINT8 that become FP32, bytes in and bytes out. One client asks everybody,
over connections that stay open and have one request at a time; it shares the machine with the
servers, which take turns of 250 ms, and figures are medians of the rounds. quantd runs with its
default flags, but for memory for eight large requests.

- On one connection CPUs are kept from sleeping while nothing is to do, by /dev/cpu_dma_latency,
  where that may be opened: else a request takes as long as waking them does, on a virtual machine
  some 40 µs.
- *libmicrohttpd* is the library that quantd stands on, with the same settings, on one thread: it
  reads the same request and answers always the same bytes, quantd's headers among them.
- *bare socket* is a program that receives as many bytes and sends as many, without looking at them:
  on one thread for small requests, where it shows what the client can do, on as many as quantd
  has workers for bodies.
- *FastAPI* is what a user writes instead (tests/bench/peers/service.py), on uvicorn, uvloop,
  httptools and orjson, with ONNX Runtime, whose scale and zero point are constants: the better of
  one worker and two.
- *held at most* is the largest that the process has been, its program's pages with it, beside the
  sum of request, answer, JSON's numbers as tensors, packed weights, and each worker's workspace.
- Bold is what misses its target."""

LOOPS_HEAD = """\
The first columns say what an answer takes of the CPU time of quantd's loop, of its other threads,
and of the client. *two loops* is quantd with `--io-threads 2` on the same CPUs, where the client
is, too, and *×* how many times as many answers that are as with one. The model knows only these
times: a loop and a client are on one CPU each, and all together on no more than there are. It says
what two loops should bring here, and then what %d CPUs without a client could do: how many loops
they want, the answers in a second, and how many times those of one loop these are. It knows nothing
of caches, locks, memory's speed and the network, so it is a bound.""" % MODEL_CPUS

SHARED_HEAD = """\
x and y lie in regions that the client has made, written and registered: the request, over TCP, only
names them. *move* is what it takes to read as many bytes from the one region and to write as many
into the other, doing nothing with them, by as many threads, which spin, as quantd has workers. The
share is what a move and a small request, one after the other, take of the p50; *first* is the first
request after its regions were registered. Of eight connections the share is of the answers in a
second instead, and the regions are the same for all."""

MIXED_HEAD = """\
2000 small requests in a second, at random times, on 64 connections; then the same while another
client sends bodies of 1 MiB that become 4 MiB, on two connections. With `--loop-computes on`, as it
is by default, what takes some 50 µs in all is computed where it comes in; with off, workers compute
everything. Both clients run on the server's CPUs."""

RATE_HEAD = """\
Requests come at random times, so many in a second, whether or not there are answers to those
before, and go out over %d connections. A request's time begins when it comes, also where it then
waits for a connection.""" % PEER_CONNECTIONS
