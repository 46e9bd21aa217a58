"""Turns the served layers' results into text: which rows reach their targets, the part of
RESULTS.md, and one-liners."""
import statistics

import figures
import plot
from figures import bold_above, bold_below, geometric_mean, ns_text, ratio_text
from tensors import KIB

CONNECTIONS = (1, 4, 16)
PEERS = ("1 worker", "2 workers")
PEER_MEAN, PEER_LEAST = 1.5, 1.1  # times the answers of the better FastAPI
ECHO_FACTOR, BOUND_MEAN = 1.3, 1.0
LOAD_MOST, RESIDENT_MOST = 3.0, 1.3  # times reading the files; times the constants
LOAD_BYTES = 64 * KIB  # with smaller files, the call costs more than reading them


# ---- One row -------------------------------------------------------------------------------------


def series_name(name, connections):
    return "%s, %d" % (name, connections)


def median(row, name, connections, what):
    """Returns the median of the row's series for `name`, `connections` and `what`. None: it was not
    measured."""
    series = row["series"].get(series_name(name, connections))
    return statistics.median(entry[what] for entry in series) if series else None


def rate(row, name, connections):
    return median(row, name, connections, 0)


def p50_ns(row, name, connections=1):
    return median(row, name, connections, 1)


def times(row, connections):
    """Returns quantd's rate relative to the better FastAPI's. None: FastAPI was not measured."""
    rates = [rate(row, name, connections) for name in PEERS]
    return rate(row, "quantd", connections) / max(rates) if None not in rates else None


def run_ns(row):
    return statistics.median(row["series"]["run"]) if "run" in row["series"] else None


def bound_share(row):
    """Returns quantd's time for an answer relative to the sum of ONNX Runtime's run and the echo.
    None: ONNX Runtime was not measured."""
    if "run" not in row["series"]:
        return None
    return p50_ns(row, "quantd") / (run_ns(row) + ECHO_FACTOR * p50_ns(row, "echo"))


def load_share(row):
    return row["load"]["ns"] / row["load"]["read_ns"]


def again_share(row):
    return row["load"]["again_ns"] / row["load"]["read_again_ns"]


def resident_share(row):
    return row["load"]["resident"] / row["load"]["constant"]


def load_counts(row):
    return row["load"]["file"] >= LOAD_BYTES


def missed(row):
    """Yields (share of the target that was reached, text) for each target that the row misses."""
    for count in CONNECTIONS:
        if times(row, count) and times(row, count) < PEER_LEAST:
            yield times(row, count) / PEER_LEAST, "%.2f × FastAPI, %s (target %.2f)" % (
                times(row, count), connections_text(count), PEER_LEAST)
    if load_counts(row):
        for share, most, text in ((load_share(row), LOAD_MOST, "× reading its file to load"),
                                  (resident_share(row), RESIDENT_MOST, "× its constants kept")):
            if share > most:
                yield most / share, "%.2f %s (target %.2f)" % (share, text, most)


def falls_short(row):
    """True if the row may do better when it is measured again."""
    return any(missed(row)) or (bound_share(row) or 0) > BOUND_MEAN


def settle(first, second):
    """Combines two measurements of one row: keeps all rounds of both."""
    both = dict(second, same=first["same"] and second["same"])
    both["series"] = {name: first["series"].get(name, []) + series
                      for name, series in second["series"].items()}
    both["load"] = {name: min(value, first["load"][name])
                    for name, value in second["load"].items()}
    return both


def connections_text(count):
    return "%d connection%s" % (count, "s" if count > 1 else "")


def one_line(row):
    text = row["name"] + ": " + ", ".join(
        "%.0f/s" % rate(row, "quantd", count) + (" (%.2f × FastAPI)" % times(row, count)
                                                 if times(row, count) else "")
        for count in CONNECTIONS)
    text += " on 1, 4, 16 connections; p50 %s, echo %s" % (
        ns_text(p50_ns(row, "quantd")), ns_text(p50_ns(row, "echo")))
    if run_ns(row):
        text += ", ONNX Runtime %s: %.2f of the bound" % (ns_text(run_ns(row)), bound_share(row))
    return text + ("; OTHER BYTES" if row["same"] is False else "")


# ---- All rows ------------------------------------------------------------------------------------


def mean_text(rows, value, worst=min):
    """Returns a text with the geometric mean and the worst value."""
    values = [value(row) for row in rows if value(row)]
    return "%.2f, %.2f" % (geometric_mean(values), worst(values)) if values else "–"


class Report:
    def __init__(self, results, machine_lines):
        self.results, self.machine = results, machine_lines

    def print_rows(self):
        for row in self.results:
            print(one_line(row))

    def target_rows(self):
        """Yields (target's text, how many rows reach it, of how many rows, detail)."""
        for count in CONNECTIONS:
            values = [times(row, count) for row in self.results if times(row, count)]
            if values:
                detail = "least %s, median %.2f" % (ratio_text(min(values), PEER_LEAST),
                                                    statistics.median(values))
                mean = geometric_mean(values)
                yield ("requests/s ≥ %.1f × the better FastAPI in the geometric mean, %s" % (
                    PEER_MEAN, connections_text(count)), mean >= PEER_MEAN, 1,
                       ratio_text(mean, PEER_MEAN))
                yield ("each row ≥ %.1f × the better FastAPI, %s" % (
                    PEER_LEAST, connections_text(count)),
                       sum(value >= PEER_LEAST for value in values), len(values), detail)
        shares = [bound_share(row) for row in self.results if bound_share(row)]
        if shares:
            mean = geometric_mean(shares)
            yield ("p50 on 1 connection ≤ ONNX Runtime in process + %.1f × the echo, geometric "
                   "mean" % ECHO_FACTOR, mean <= BOUND_MEAN, 1,
                   "%s; most %.2f" % (ratio_text(mean, BOUND_MEAN, False), max(shares)))
        rows = [row for row in self.results if load_counts(row)]
        for text, share, most in (
                ("loading ≤ %.1f × reading the file, of 64 KiB or more, both into new memory",
                 load_share, LOAD_MOST),
                ("kept ≤ %.1f × the constants, of 64 KiB or more", resident_share,
                 RESIDENT_MOST)):
            values = [share(row) for row in rows]
            if values:
                yield (text % most, sum(value <= most for value in values), len(values),
                       "most %s, median %.2f" % (ratio_text(max(values), most, False),
                                                 statistics.median(values)))
        if rows:
            values = [again_share(row) for row in rows]
            yield ("the same, both into memory that was used before (no target)",
                   sum(value <= LOAD_MOST for value in values), len(values),
                   "most %.2f, median %.2f" % (max(values), statistics.median(values)))

    def groups(self):
        """Yields (kind, rows) for each group."""
        for kind in dict.fromkeys(row["kind"] for row in self.results):
            yield kind, [row for row in self.results if row["kind"] == kind]

    def short(self):
        """Returns the texts of the rows that miss a target, the worst first."""
        found = [(far, "%s: %s" % (row["name"], text))
                 for row in self.results for far, text in missed(row)]
        return [text for _, text in sorted(found)]

    def chain_lines(self):
        """Yields (layers, p50 as one model, p50 as requests one after the other, FastAPI's p50 as
        one model)."""
        by_layer = {row["layer"]: row for row in self.results}
        for row in self.results:
            apart = [by_layer[stage] for stage in row["stages"] if stage in by_layer]
            if 1 < len(apart) == len(row["stages"]) and times(row, 1):
                yield (row["layer"], p50_ns(row, "quantd"),
                       sum(p50_ns(stage, "quantd") for stage in apart),
                       min(p50_ns(row, name) for name in PEERS))

    def print_summary(self):
        print("\nServed: who reaches the target")
        for text, reached, count, detail in self.target_rows():
            print("  %-90s %2d of %2d; %s" % (text, reached, count, detail))
        print("× the better FastAPI: geometric mean and least, 1, 4, 16 connections; "
              "p50 of the bound, most")
        for kind, rows in self.groups():
            print("  %-18s %2d rows: %s; %s" % (
                kind, len(rows), "; ".join(mean_text(rows, lambda row, count=count: times(
                    row, count)) for count in CONNECTIONS), mean_text(rows, bound_share, max)))
        for layers, one, three, peer in self.chain_lines():
            print("  %s: %s, as requests %s, FastAPI %s" % (layers, *map(ns_text, (one, three,
                                                                                  peer))))
        short = self.short()
        if short:
            print("Falls short (%d), the worst:" % len(short))
        for text in short[:20]:
            print("  " + text)

    # ---- RESULTS.md ------------------------------------------------------------------------------

    def write(self, folder):
        lines = ["# Speed of loaded operators, over HTTP", "", HEAD, ""]
        lines += ["- " + line for line in self.machine]
        lines += ["", "![times the better FastAPI](served.svg)", "", "## Targets", "",
                  "| target | reach it | of | |", "|---|---:|---:|---|"]
        lines += ["| %s | %d | %d | %s |" % row for row in self.target_rows()]
        lines += ["", "## Groups", "", "× the better FastAPI: geometric mean, and least. Of the "
                  "bound: geometric mean, and most.", "", *self.group_table()]
        lines += figures.short_lines(self.short()) + self.chain_table() + self.one_table()
        for count in CONNECTIONS[1:]:
            lines += self.table(count)
        figures.write_section(folder, lines + self.load_table())
        if all(times(row, 1) for row in self.results):
            (folder / "served.svg").write_text(plot.served_svg(
                [(row["layer"], row["kind"], *(times(row, count) for count in CONNECTIONS))
                 for row in self.results]))

    def group_table(self):
        yield "| layers | rows |%s p50 of the bound |" % "".join(
            " %s |" % connections_text(count) for count in CONNECTIONS)
        yield "|---|---:|" + "---:|" * (len(CONNECTIONS) + 1)
        for kind, rows in self.groups():
            yield "| %s | %d |%s %s |" % (kind, len(rows), "".join(
                " %s |" % mean_text(rows, lambda row, count=count: times(row, count))
                for count in CONNECTIONS), mean_text(rows, bound_share, max))

    def readme_lines(self):
        return [self.machine[0] + ":", "", *self.group_table()]

    def chain_table(self):
        rows = list(self.chain_lines())
        if not rows:
            return []
        return ["", "## Chains", "", CHAIN_HEAD, "",
                "| layers | one model | requests, in turn | saved | FastAPI, one model |",
                "|---|---:|---:|---:|---:|"] + [
                    "| %s | %s | %s | %.0f %% | %s |" % (
                        layers, ns_text(one), ns_text(three), 100 * (1 - one / three),
                        ns_text(peer)) for layers, one, three, peer in rows]

    def one_table(self):
        lines = ["", "## 1 connection", "",
                 "| layer | KiB in | out | quantd/s | p50 | FastAPI, 1 worker | p50 | 2 workers | "
                 "p50 | × the better | ONNX Runtime | echo | of the bound | "
                 "weights in each request |", "|---|" + "---:|" * 13]
        for row in self.results:
            cells = ["%.0f | %.0f" % (row["x"] / KIB, row["y"] / KIB)]
            cells += [cell(row, name, 1) for name in ("quantd", *PEERS)]
            cells += [bold_below("%.2f ×", times(row, 1), PEER_LEAST) if times(row, 1) else "–",
                      ns_text(run_ns(row)) if run_ns(row) else "–", ns_text(p50_ns(row, "echo")),
                      bold_above("%.2f", bound_share(row), BOUND_MEAN) if bound_share(row) else
                      "–", ns_text(p50_ns(row, "carried")) if p50_ns(row, "carried") else "–"]
            lines.append("| %s | %s |" % (row["layer"], " | ".join(cells)))
        return lines

    def table(self, count):
        lines = ["", "## %s" % connections_text(count), "",
                 "| layer | quantd/s | p50 | p99 | FastAPI, 1 worker | p50 | 2 workers | p50 | "
                 "× the better |", "|---|" + "---:|" * 8]
        for row in self.results:
            lines.append("| %s | %s | %s | %s | %s | %s |" % (
                row["layer"], cell(row, "quantd", count),
                ns_text(median(row, "quantd", count, 2)),
                *(cell(row, name, count) for name in PEERS),
                bold_below("%.2f ×", times(row, count), PEER_LEAST) if times(row, count) else "–"))
        return lines

    def load_table(self):
        lines = ["", "## Loading", "", LOAD_HEAD, "",
                 "| layer | KiB of files | reading | loading | × | reading again | loading again | "
                 "× | KiB of constants | kept | × |", "|---|" + "---:|" * 10]
        for row in self.results:
            load, counts = row["load"], load_counts(row)
            lines.append("| %s | %.1f | %s | %s | %s | %s | %s | %.2f | %.1f | %.1f | %s |" % (
                row["layer"], load["file"] / KIB, ns_text(load["read_ns"]), ns_text(load["ns"]),
                bold_above("%.2f", load_share(row), LOAD_MOST if counts else float("inf")),
                ns_text(load["read_again_ns"]), ns_text(load["again_ns"]), again_share(row),
                load["constant"] / KIB, load["resident"] / KIB,
                bold_above("%.2f", resident_share(row),
                           RESIDENT_MOST if counts else float("inf"))))
        return lines


def cell(row, name, count):
    if rate(row, name, count) is None:
        return "– | –"
    return "%.0f | %s" % (rate(row, name, count), ns_text(p50_ns(row, name, count)))


HEAD = """\
Written by `make bench`; not by hand. Each layer, at batch 1, is loaded once as a model of its own.
One client sends requests over HTTP, with bytes as input and output, over 1, 4 and 16 connections.
The connections stay open and have one request at a time. Server and client share the machine.
quantd runs with its default flags. It is compared with a service that a user might write instead
(tests/bench/peers/service.py): FastAPI on uvicorn, uvloop and httptools, with ONNX Runtime and the
same ONNX files, as one worker with all threads, and as two workers that share the threads. The
better of the two counts. All answers are compared once, byte for byte. The servers are measured in
turn for 100 ms each. Figures are medians of all rounds that fit into the time.

- *ONNX Runtime* is the time of the same layer in process, with all threads, without a server: the
  median run.
- *echo* is the p50 of a bare server that reads the same request and sends an answer of the same
  length.
- *of the bound* is quantd's p50 on one connection, divided by the sum of ONNX Runtime's time and
  %.1f times the echo's.
- *weights in each request* is the p50 of the operator itself; its requests have all inputs.
- Bold figures miss their target.""" % ECHO_FACTOR

CHAIN_HEAD = """\
The p50 on one connection of a model of three layers, and the sum of the p50s of requests for each
of its layers alone."""

LOAD_HEAD = """\
*loading* is the time of a load call (`POST /v2/repository/models/NAME/load`) of a model in the
repository, less the time that any call takes. *reading* is the time of reading the model's files
from the system's cache, from open to close, by one thread that knows their sizes. Each is the best
of fifteen. Both need memory, and fresh memory costs more than reading. The model is therefore
loaded under fifteen names that all stay loaded, and the files are read into new memory. *again* is
the same with memory that was used before: an unloaded model is loaded, and files are read into the
buffer of the reading before. *again* has no target, because a call that a worker does takes longer
than reading some KiB. Constants are the bytes of all tensors in the file. Kept is the model's
memory, as the server reports it."""
