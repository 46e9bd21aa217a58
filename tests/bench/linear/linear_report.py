"""Turns the results of dequantizers and quantizers into text: which rows reach their targets, the
part of RESULTS.md, and one-liners."""
import math
import statistics

import figures
import plot
from figures import (bold_below, geometric_mean, ns_text, peer_net_ns, ratio_text,
                     threads_text)
from rows import CODES, DEQUANTIZE, LONG_RUNS, QUANTIZE, SIZES
from tensors import size_text

WIDE = ("UINT8", "INT8", "UINT16", "INT16")

# Group -> (whether a row belongs to it, for rows whose granularity has long runs; for each operator
# the smallest shares of the limit for each of SIZES, 0: no target). Rows with short runs are the
# last group.
GROUPS = {
    "8- and 16-bit, FP32, long runs": (
        lambda row: row["real"] == "FP32" and row["code"] in WIDE,
        {DEQUANTIZE: (0.33, 0.90, 0.95), QUANTIZE: (0, 0, 0.80)}),
    "4- and 2-bit, float8 and float4, FP32, long runs": (
        lambda row: row["real"] == "FP32" and row["code"] not in WIDE + ("INT32",),
        {DEQUANTIZE: (0.25, 0.60, 0.90), QUANTIZE: (0, 0, 0.80)}),
    "FP16 and BF16, long runs": (
        lambda row: row["real"] != "FP32",
        {DEQUANTIZE: (0.25, 0.60, 0.85), QUANTIZE: (0, 0, 0.80)}),
    "INT32, FP32, long runs": (
        lambda row: row["code"] == "INT32",
        {DEQUANTIZE: (0, 0, 0)}),
    "one scale for each element of a row, or for 32": (
        lambda row: True,
        {DEQUANTIZE: (0.20, 0.50, 0.80), QUANTIZE: (0, 0, 0.80)}),
}
SHORT_RUNS = list(GROUPS)[-1]
PEER_LEAST = 1.0
PEER_MEAN = {DEQUANTIZE: 4.0, QUANTIZE: 3.0}
NAMES = {DEQUANTIZE: "dequantize", QUANTIZE: "quantize"}


# ---- One row -------------------------------------------------------------------------------------


def limit_ns(row):
    return min(row["ns"]["store"], row["ns"]["stream"])


def share(row):
    return limit_ns(row) / row["ns"]["run"]


def gb_per_s(row):
    return (row["read"] + row["written"]) / row["ns"]["run"]


def times_peer(row):
    """Returns how many times as fast as ONNX Runtime libqk is. None: ONNX Runtime has no such
    kernel."""
    return peer_net_ns(row) / row["ns"]["run"] if "peer" in row["ns"] else None


def name(row):
    return "%s → %s, %s, %s, %s" % (row["x"], row["y"], row["grain"], size_text(row["size"]),
                                    threads_text(row["threads"]))


def one_line(row):
    times = times_peer(row)
    return "%s: %s, %.1f GB/s, %.2f of the limit%s%s" % (
        name(row), ns_text(row["ns"]["run"]), gb_per_s(row), share(row),
        ", %.1f × ONNX Runtime" % times if times else "",
        "; OTHER BYTES" if row["same"] is False else "")


def group_of(row):
    if row["grain"] not in LONG_RUNS:
        return SHORT_RUNS
    return next(group for group, (contains, _) in GROUPS.items() if contains(row))


def target(row):
    return GROUPS[group_of(row)][1][row["model"]][SIZES.index(row["size"])]


def falls_short(row):
    return share(row) < target(row) or (times_peer(row) or math.inf) < PEER_LEAST


# ---- All rows ------------------------------------------------------------------------------------


class Report:
    def __init__(self, model, results, machine_lines):
        self.model, self.results, self.machine = model, results, machine_lines
        self.name = NAMES[model]

    def short(self):
        """Returns the texts of the rows that miss their share of the limit, the worst first."""
        short = [row for row in self.results if share(row) < target(row)]
        return sorted(short, key=lambda row: share(row) / target(row))

    def slower(self):
        slow = [row for row in self.results if (times_peer(row) or math.inf) < PEER_LEAST]
        return sorted(slow, key=times_peer)

    def group_rows(self):
        """Yields (group, size, threads, rows) for each combination that has rows."""
        keys = sorted({(list(GROUPS).index(group_of(row)), row["threads"], row["size"])
                       for row in self.results})
        for index, threads, size in keys:
            group = list(GROUPS)[index]
            rows = [row for row in self.results if (group_of(row), row["threads"], row["size"]) ==
                    (group, threads, size)]
            yield group, size, threads, rows

    def peer_text(self):
        times = sorted(filter(None, map(times_peer, self.results)))
        if not times:
            return "ONNX Runtime was not measured."
        return ("Against ONNX Runtime, %d rows: geometric mean %.1f × as fast (target %.0f), least "
                "%.2f × (target %.0f), %d rows slower." % (
                    len(times), geometric_mean(times), PEER_MEAN[self.model], times[0], PEER_LEAST,
                    len(self.slower())))

    def limits(self):
        """Returns how fast the machine moves bytes with four bytes on one side for each byte on the
        other."""
        lines = []
        for row in self.results:
            if (row["code"], row["real"], row["grain"]) == ("UINT8", "FP32", "tensor"):
                lines.append("%.1f GB/s, reading %s and writing %s, %s, %s stores" % (
                    (row["read"] + row["written"]) / limit_ns(row), size_text(row["read"]),
                    size_text(row["written"]), threads_text(row["threads"]),
                    "normal" if row["ns"]["store"] == limit_ns(row) else "streaming"))
        return ["limit: " + line for line in lines]

    def print_rows(self):
        for row in self.results:
            print(one_line(row) + ", spread %.0f %%" % (100 * row["spread"]["run"]))

    def print_summary(self):
        print("\n%srs: share of the limit" % self.name.capitalize())
        for group, size, threads, rows in self.group_rows():
            least, shares = target(rows[0]), list(map(share, rows))
            reached = sum(value >= least for value in shares)
            print("  %-49s %7s, %-10s %3d of %3d reach %s; least %s, median %.2f" % (
                group, size_text(size), threads_text(threads) + ":", reached, len(shares),
                "%.2f" % least if least else "any ", ratio_text(min(shares), least),
                statistics.median(shares)))
        print(self.peer_text())
        figures.print_costs(self.costs())
        for title, rows in (("Farthest below their share", self.short()),
                            ("Slower than ONNX Runtime", self.slower())):
            if rows:
                print("%s (%d rows):" % (title, len(rows)))
            for row in rows[:10]:
                print("  " + one_line(row))

    # ---- RESULTS.md ------------------------------------------------------------------------------

    def write(self, folder):
        lines = ["# Speed of %srs" % self.name, "", HEAD, ""]
        lines += ["- " + line for line in self.machine + self.limits()]
        lines += ["", "![share of the limit, and ONNX Runtime's](%s.svg)" % self.name, "",
                  "## Targets", "", self.peer_text(), "",
                  "| group | x | threads | target | rows | reach it | least | median |",
                  "|---|---:|---:|---:|---:|---:|---:|---:|"]
        for group, size, threads, rows in self.group_rows():
            least, shares = target(rows[0]), list(map(share, rows))
            lines.append("| %s | %s | %d | %s | %d | %d | %s | %.2f |" % (
                group, size_text(size), threads, "%.2f" % least if least else "–", len(shares),
                sum(value >= least for value in shares), ratio_text(min(shares), least),
                statistics.median(shares)))
        lines += self.short_lines() + figures.cost_lines(self.costs())
        for threads in sorted({row["threads"] for row in self.results}):
            for grain in dict.fromkeys(row["grain"] for row in self.results):
                lines += self.table(threads, grain)
        figures.write_section(folder, lines)
        codes = [code for code in CODES if any(row["code"] == code for row in self.results)]
        (folder / (self.name + ".svg")).write_text(plot.linear_svg(
            {(row["code"], row["size"]): [share(row), limit_ns(row) / peer_net_ns(row)
                                          if "peer" in row["ns"] else None]
             for row in self.results
             if (row["real"], row["grain"], row["threads"]) == ("FP32", "tensor", 1)}, codes,
            SIZES))

    def costs(self):
        """Returns (group, [(the plan's estimate, the measured time)]) for each group, in
        nanoseconds."""
        for group, size, threads, rows in self.group_rows():
            if threads == 1:
                yield "%s, %s" % (group, size_text(size)), map(figures.run_cost, rows)
        yield "packing scales and zero points", [
            figures.pack_cost(row) for row in self.results
            if row["threads"] == 1 and row["pack_units"]]

    def readme_lines(self):
        """Returns the README's lines for one thread: the median share of the limit by size of x,
        and the speed relative to ONNX Runtime."""
        lines = [self.machine[0] + ":", "",
                 "| %s |" % self.name + "".join(" %s |" % size_text(size) for size in SIZES) +
                 " × ONNX Runtime | least |", "|---|" + "---:|" * (len(SIZES) + 2)]
        for group in GROUPS:
            rows = [row for row in self.results if (group_of(row), row["threads"]) == (group, 1)]
            if not rows:
                continue
            by_size = [[share(row) for row in rows if row["size"] == size] for size in SIZES]
            times = list(filter(None, map(times_peer, rows)))
            lines.append("| %s |%s %s |" % (
                group, "".join(" %s |" % ("%.2f" % statistics.median(shares) if shares else "")
                               for shares in by_size),
                "%.1f | %.1f" % (geometric_mean(times), min(times)) if times else " | "))
        return lines

    def short_lines(self):
        short = self.short()
        short += [row for row in self.slower() if row not in short]
        return figures.short_lines(["%s (target %.2f)" % (one_line(row), target(row))
                                    for row in short])

    def table(self, threads, grain):
        rows = [row for row in self.results if (row["threads"], row["grain"]) == (threads, grain)]
        if not rows:
            return []
        sizes = [size for size in SIZES if any(row["size"] == size for row in rows)]
        head = "".join(" %s | GB/s | limit | peer | ± |" % size_text(size) for size in sizes)
        lines = ["", "## %s, %s" % (grain.capitalize(), threads_text(threads)), "",
                 "| x | y |" + head, "|---|---|" + "---:|---:|---:|---:|---:|" * len(sizes)]
        by_key = {(row["x"], row["y"], row["size"]): row for row in rows}
        for x, y in dict.fromkeys((row["x"], row["y"]) for row in rows):
            cells = [cell(by_key.get((x, y, size))) for size in sizes]
            lines.append("| %s | %s |%s" % (x, y, "".join(cells)))
        return lines


def cell(row):
    if row is None:
        return " | | | | |"
    times = times_peer(row)
    return " %s | %.1f | %s | %s | %.0f %% |" % (
        ns_text(row["ns"]["run"]), gb_per_s(row), bold_below("%.2f", share(row), target(row)),
        bold_below("%.1f ×", times, PEER_LEAST) if times else "–", 100 * row["spread"]["run"])


HEAD = """\
Written by `make bench`; not by hand. Each figure is the best of several rounds. In each round
libqk, its limit and ONNX Runtime are measured one after another. A row that misses its target is
measured a second time, because other programs may have run on the machine. The better measurement
of each of the three counts.

- The first columns have the time for an x of that many bytes. Create and plan are done before, and
  buffers are reused. GB/s counts the bytes read and written.
- *limit* is libqk's speed divided by the limit's. The limit moves as many bytes as x and y have, by
  the CPU's widest loads and stores, in as many slices, and computes nothing. It uses normal or
  streaming stores, whichever are faster. It does not read scales and zero points, but libqk does.
- *peer* is libqk's speed divided by ONNX Runtime's. ONNX Runtime's input and output are bound to
  reused buffers, and the time of a call for one element (some 2 µs) is subtracted from its time. At
  4 KiB the difference is small and uncertain by some 40 ns. – means that it has no kernel.
- *±* says by how much the median round was slower than the best.
- Bold figures miss their target."""
