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
Written by `make bench`; not by hand. The small request dequantizes four numbers, with JSON as input
and output, in 250 bytes. Bodies are UINT8 tensors that become FP32, with bytes as input and output.
One client sends requests to all servers, over connections that stay open and have one request at a
time. Client and servers share the machine. The servers are measured in turn for 250 ms each, and
figures are medians of the rounds. quantd runs with its default flags, except that it gets memory
for eight large requests.

- With one connection, idle CPUs are kept from sleeping by /dev/cpu_dma_latency, if that can be
  opened. Otherwise waking them takes most of a request's time, some 40 µs on a virtual machine.
- *libmicrohttpd* is the library that quantd uses, with the same settings, on one thread. It reads
  the same request and always sends the same answer, with the headers that quantd sends.
- *bare socket* is a program that receives and sends as many bytes, without looking at them. For
  small requests it has one thread, and shows how fast the client can be. For bodies it has as many
  threads as quantd has workers.
- *FastAPI* is a service that a user might write instead (tests/bench/peers/service.py), on uvicorn,
  uvloop, httptools and orjson, with ONNX Runtime and constant scales and zero points. The better of
  one worker and two workers counts.
- *bodies and the like* is the sum of the request, the answer, the tensors that were numbers in
  JSON, the packed weights, and each worker's workspace. *held at most* is the largest size that the
  process had, including the pages of its program. The *×* beside it is its ratio to that sum.
- Bold figures miss their target."""

LOOPS_HEAD = """\
The first columns have the CPU time that an answer takes, of quantd's loop, of its other threads,
and of the client. *two loops* is quantd with `--io-threads 2`, on the same CPUs, which the client
uses, too. The *×* beside it is its number of answers divided by that of one loop.

The last columns come from a model that knows only these CPU times. A loop and a client use one CPU
each at most, and all threads together use no more CPUs than there are. *by the model* is what two
loops should bring on this machine. The columns after it say what %d CPUs without a client could do:
with how many loops, how many answers a second, and how many times as many as with one loop. The
model knows nothing of caches, locks, memory bandwidth and the network, so its figures are upper
bounds.""" % MODEL_CPUS

SHARED_HEAD = """\
x and y are in regions that the client has created, written and registered before. The request, over
TCP, only names them. *move* is the time to read as many bytes from the one region and to write as
many into the other, without computing anything. As many threads do that as quantd has workers, and
they wait by spinning. With one connection, the share is the time of a move and a small request
together, divided by the p50. With eight connections, it is computed from the answers in a second
instead, and all connections use the same regions. *first* is the time of the first request after
its regions were registered."""

MIXED_HEAD = """\
One client sends 2000 small requests a second, at random times, on 64 connections. First it is
alone. Then another client sends bodies of 1 MiB that become 4 MiB, on two connections, at the same
time. With `--loop-computes on`, the default, the loop computes requests that take some 50 µs in
all. With off, workers compute everything. Both clients run on the server's CPUs."""

RATE_HEAD = """\
Requests are due at random times, at the given rate, whether or not earlier ones are answered. They
are sent over %d connections. A request's time counts from when it is due, so it includes waiting
for a connection.""" % PEER_CONNECTIONS
