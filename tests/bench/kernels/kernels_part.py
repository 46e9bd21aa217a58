"""The part of `make bench` for operators that look up, add, pool and move bytes: measures each row,
and turns the results into text."""
import statistics

import figures
import kernel_rows as rows
from figures import bold_below, geometric_mean, ns_text, peer_net_ns, ratio_text
from peer import Unsupported
from stopwatch import best, spread, take_turns
from tensors import MIB, random_bytes, size_text

CACHED_BYTES = MIB  # an x, or a head's B, of at most this stays in a core's cache
SHARE_CACHED, SHARE_LARGE = 0.6, 0.9  # of the limit, at least
PEER_MEAN = 2.0
PEER_LARGE_ROUNDS = 3
CALL_ROUNDS = 8


def limit_ns(row):
    """Returns how long moving as many bytes takes. The limit was measured with x, with another
    variable input that is as large as x, and with a y whose size is the next smaller power of two
    times these. For one row by B it was measured with B."""
    if "read" in row["ns"]:
        return row["ns"]["read"]
    return min(row["ns"]["store"], row["ns"]["stream"]) * (
        (row["bytes_read"] + row["written"]) / row["bytes_moved"])


def share_least(size):
    return SHARE_CACHED if size <= CACHED_BYTES else SHARE_LARGE


def share(row):
    return limit_ns(row) / row["ns"]["run"]


def times_peer(row):
    return peer_net_ns(row) / row["ns"]["run"] if "peer" in row["ns"] else None


def one_line(row):
    times = times_peer(row)
    return "%s: %s, %.1f GB/s, %.2f of the limit%s%s" % (
        row["name"], ns_text(row["ns"]["run"]),
        (row["bytes_read"] + row["written"]) / row["ns"]["run"], share(row),
        ", %.1f × ONNX Runtime" % times if times else "",
        "; OTHER BYTES" if row["same"] is False else "")


def moved_bytes(row):
    """Returns how many bytes measure.c's limit reads and writes."""
    read = row.read_bytes if row.read_bytes == 2 * row.x_bytes else row.x_bytes
    power = 4
    while power > -4 and row.y_bytes < read * 2 ** power:
        power -= 1
    return read * (1 + 2 ** power)


class Part(figures.Part):
    one_line = staticmethod(one_line)
    x_bytes = staticmethod(random_bytes)

    def __init__(self, budget_seconds):
        self.budget_seconds = budget_seconds

    @staticmethod
    def falls_short(row):
        return share(row) < share_least(row["size"])

    @staticmethod
    def select(options, *_):
        return [row for row in figures.chosen(options, rows.full())
                if not options.smoke or row.size < MIB]

    @staticmethod
    def report(results, machine_lines, libqk):
        return Report(results, machine_lines + ["limit: %s loads and stores" % libqk.width])

    @staticmethod
    def measure(row, libqk, peer, seconds):
        made = libqk.prepare(row)
        large = row.x_bytes > MIB
        turns = [lambda _: libqk.round("run", *row.limits)]
        run, why = None, ""
        if peer:
            try:
                run = peer.prepare(row, row.variable)
                turns.append(lambda count: peer_round(row, peer, run, count, large))
            except Unsupported as error:
                why = str(error)
        series = take_turns(turns, *((3, 12) if large else (8, 24)), seconds)
        same = libqk.output() == peer.output(row, run) if run and not large else None
        return {"name": str(row), "kind": row.kind.name, "group": row.kind.group, "size": row.size,
                "ns": best(series), "spread": spread(series), "rounds": len(series["run"]),
                "same": same, "why": why, "bytes_read": row.read_bytes,
                "bytes_moved": moved_bytes(row), **made}


def peer_round(row, peer, run, count, large):
    if large and count > PEER_LARGE_ROUNDS:
        return {}
    found = {"peer": peer.time_round(run, row.threads)}
    if count <= CALL_ROUNDS:
        found["call"] = 0.0 if large else peer.call_ns(row.threads)
    return found


class Report:
    def __init__(self, results, machine_lines):
        self.results, self.machine = results, machine_lines

    def print_rows(self):
        for row in self.results:
            print(one_line(row) + ", spread %.0f %%" % (100 * row["spread"]["run"]))

    def group_lines(self):
        """Yields a table row for each group and size."""
        for group in dict.fromkeys(row["group"] for row in self.results):
            for size in sorted({row["size"] for row in self.results if row["group"] == group}):
                found = [row for row in self.results
                         if (row["group"], row["size"]) == (group, size)]
                shares, times = list(map(share, found)), list(filter(None, map(times_peer, found)))
                yield "| %s | %s | %d | %d | %.2f | %s | %s |" % (
                    group, size_text(size), len(found),
                    sum(value >= share_least(size) for value in shares),
                    statistics.median(shares), ratio_text(min(shares), share_least(size)),
                    "%.1f | %.1f" % (geometric_mean(times), min(times)) if times else " | ")

    def peer_text(self):
        times = list(filter(None, map(times_peer, self.results)))
        return ("Against ONNX Runtime, %d rows: geometric mean %.1f × as fast (target %.0f)." % (
            len(times), geometric_mean(times), PEER_MEAN) if times else
            "ONNX Runtime was not measured.")

    def readme_lines(self):
        return [self.machine[0] + ":", "", GROUP_HEAD, "|---|---:|---:|---:|---:|---:|---:|---:|",
                *self.group_lines()]

    def print_summary(self):
        print("\n".join(["", GROUP_HEAD, *self.group_lines(), self.peer_text()]))
        for row in sorted(filter(Part.falls_short, self.results), key=share):
            print("  short: " + one_line(row))

    def write(self, folder):
        lines = ["# Speed of kernels that look up, add, pool and move", "", HEAD, ""]
        lines += ["- " + line for line in self.machine]
        lines += ["", self.peer_text(), "", *self.readme_lines()[2:], ""]
        lines += figures.short_lines([one_line(row) for row in sorted(
            filter(Part.falls_short, self.results), key=share)])
        lines += ["", "## All rows", "", "| row | x | time | GB/s | limit | peer | ± |",
                  "|---|---:|---:|---:|---:|---:|---:|"]
        for row in self.results:
            times = times_peer(row)
            lines.append("| %s | %s | %s | %.1f | %s | %s | %.0f %% |" % (
                row["kind"], size_text(row["size"]), ns_text(row["ns"]["run"]),
                (row["bytes_read"] + row["written"]) / row["ns"]["run"],
                bold_below("%.2f", share(row), share_least(row["size"])),
                "%.1f ×" % times if times else "–", 100 * row["spread"]["run"]))
        figures.write_section(folder, lines)


GROUP_HEAD = ("| kernels | x | rows | reach it | limit, median | least | × ONNX Runtime | least |")
HEAD = """\
Written by `make bench`; not by hand. One thread, UINT8, planes of 32 × 32 unless the row says
otherwise. "limit" is the share of the speed at which the same machine moves as many bytes: it reads
x and another input that is as large as x, and writes as many bytes as y has. The limit of one row
by B only reads B, and the size is B's. The targets are 0.6 up to 1 MiB, and 0.9 above. "peer" is
the speed divided by ONNX Runtime's speed with a graph of one node. Each figure is the best of
several rounds. Outputs for an x of at most 1 MiB are compared with ONNX Runtime's."""
