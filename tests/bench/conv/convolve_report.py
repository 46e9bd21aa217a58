"""Turns the convolutions' results into text: which rows reach their targets, the part of
RESULTS.md, and one-liners."""
import statistics

import figures
import plot
from figures import (bold_below, geometric_mean, ns_text, peer_net_ns, ratio_text,
                     threads_text)
from layers import NETWORKS
from tensors import KIB

PEER_LEAST = 0.95  # of each row
PEER_MEAN = 1.0  # of each group
FRESH_LEAST = 1.0
SPLIT_NS = 50e3  # rows that take less on one thread have no target on more
PACK_LEAST = 0.5  # of the memory's copy speed
PACK_BYTES = 64 * KIB  # with fewer bytes, the call costs more than moving them
# The end of a kernel's name -> the peak measurement of the instructions that the kernel uses.
LOOPS = ("fma", "madd", "avxvnni", "vnni", "amx", "neon", "dotprod", "i8mm")  # of peak.h
PEAKS = {"amx": "amx", "vnni": "vnni", "vnni_novbmi": "vnni", "avxvnni": "avxvnni", "avx2": "madd",
         "neon": "neon", "dotprod": "dotprod", "i8mm": "i8mm", "sgemm": "sgemm"}


# ---- One row -------------------------------------------------------------------------------------


def gops(row):
    return row["operations"] / row["ns"]["run"]


def packed_times(row):
    """Returns how many times as fast as ONNX Runtime libqk is if the weights are known beforehand.
    None: ONNX Runtime was not measured."""
    return peer_net_ns(row) / row["ns"]["run"] if "peer" in row["ns"] else None


def fresh_times(row):
    """Like packed_times, if the weights come with x: the time of packing counts."""
    return peer_net_ns(row, "peer_fresh") / row["ns"]["fresh"] if "peer" in row["ns"] else None


def has_target(row):
    return row["ns"].get("alone", SPLIT_NS) >= SPLIT_NS


def peak_share(row):
    """Returns the share of the peak of its kernel's instructions that the row reaches. None: the
    peak was not measured."""
    names = [name for end, name in PEAKS.items() if row["kernel"].endswith("_" + end)]
    return gops(row) / row["gops"][names[0]] if names and names[0] in row["gops"] else None


def scaling(row):
    return row["ns"]["alone"] / row["ns"]["run"]


def pack_speed(row):
    """Returns the speed of packing the weights, in GB/s."""
    return row["constant"] / row["ns"]["pack"]


def pack_share(row):
    """Returns the speed of packing as a share of the speed at which as many threads copy from
    memory to memory."""
    return pack_speed(row) / row["copy"]


def pack_counts(row):
    return row["constant"] >= PACK_BYTES


def targets(row):
    """Yields (what, value, target) for each target that the row should reach."""
    if packed_times(row):
        if has_target(row):
            yield "× ONNX Runtime, weights packed", packed_times(row), PEER_LEAST
        yield "× ONNX Runtime, packing included", fresh_times(row), FRESH_LEAST
    if "pack" in row["ns"] and pack_counts(row):
        yield "of the memory's copy speed, packing", pack_share(row), PACK_LEAST


def missed(row):
    return [(what, value, target) for what, value, target in targets(row) if value < target]


def falls_short(row):
    return bool(missed(row))


def one_line(row):
    text = "%s: %s, %.0f Gop/s, %s" % (row["name"], ns_text(row["ns"]["run"]), gops(row),
                                       row["kernel"])
    if peak_share(row):
        text += ", %.2f of the peak" % peak_share(row)
    if "alone" in row["ns"]:
        text += ", %.2f × one thread" % scaling(row)
    if "pack" in row["ns"]:
        text += ", packing %s, %.1f GB/s" % (ns_text(row["ns"]["pack"]), pack_speed(row))
    if "peer_fresh" in row["ns"]:
        text += ", %.2f × ONNX Runtime, %.2f × with packing" % (packed_times(row),
                                                                fresh_times(row))
    return text + ("; OTHER BYTES" if row["same"] is False else "")


# ---- All rows ------------------------------------------------------------------------------------


def peak_lines(results):
    for name in LOOPS:
        found = [row["gops"][name] for row in results if name in row["gops"]]
        if found:
            yield "%s: at most %.0f Gop/s, median of rows %.0f, 1 thread" % (
                name, max(found), statistics.median(found))


class Report:
    def __init__(self, results, machine_lines):
        self.results, self.machine = results, machine_lines + list(peak_lines(results))
        self.best = [row for row in results if row["gemm"] == "auto"]
        self.forced = [row for row in results if row["gemm"] != "auto"]

    def print_rows(self):
        for row in self.results:
            print(one_line(row) + ", spread %.0f %%" % (100 * row["spread"]["run"]))

    def target_rows(self):
        """Yields (target's text, how many rows reach it, of how many rows, detail)."""
        for threads in sorted({row["threads"] for row in self.best}):
            rows = [row for row in self.best if row["threads"] == threads]
            means = [group_mean(group) for *_, count, group in self.group_rows()
                     if count == threads]
            long = ", from 50 µs on" if threads > 1 else ""
            for text, least, values in (
                    ("each group's mean ≥ %.2f × ONNX Runtime, weights packed" + long, PEER_MEAN,
                     means),
                    ("each row ≥ %.2f × ONNX Runtime, weights packed" + long, PEER_LEAST,
                     [packed_times(row) for row in rows if has_target(row)]),
                    ("each row ≥ %.2f × ONNX Runtime, packing included", FRESH_LEAST,
                     map(fresh_times, rows)),
                    ("packing ≥ %.2f of the memory's copy speed, weights of 64 KiB", PACK_LEAST,
                     [pack_share(row) for row in rows if pack_counts(row)])):
                values = list(filter(None, values))  # leave out rows that were not measured
                if values:
                    yield ("%s, %s" % (text % least, threads_text(threads)),
                           sum(value >= least for value in values), len(values),
                           "least %s, median %.2f" % (ratio_text(min(values), least),
                                                      statistics.median(values)))

    def group_rows(self):
        """Yields (kind, batch, threads, rows) for each group."""
        for kind in dict.fromkeys(row["kind"] for row in self.best):
            for batch, threads in sorted({(row["batch"], row["threads"]) for row in self.best}):
                rows = [row for row in self.best if (row["kind"], row["batch"], row["threads"]) ==
                        (kind, batch, threads)]
                if rows:
                    yield kind, batch, threads, rows

    def costs(self):
        """Returns the groups in the form that figures.cost_rows takes."""
        for kind, batch, threads, rows in self.group_rows():
            if (batch, threads) == (1, 1):
                yield kind, map(figures.run_cost, rows)
        for gemm in dict.fromkeys(row["gemm"] for row in self.forced):
            yield "all, by %s" % gemm, [figures.run_cost(row) for row in self.forced
                                        if row["gemm"] == gemm]
        for kind, batch, threads, rows in self.group_rows():
            if (batch, threads) == (1, 1):
                yield "packing: " + kind, [figures.pack_cost(row) for row in rows
                                           if row["pack_units"]]

    def short(self):
        """Returns the texts of the rows that miss a target, the worst first."""
        found = [(value / target, "%s: %.3f %s (target %.2f)" % (row["name"], value, what, target))
                 for row in self.results for what, value, target in missed(row)]
        return [text for _, text in sorted(found)]

    def print_summary(self):
        print("\nConvolutions: who reaches the target")
        for text, reached, count, detail in self.target_rows():
            print("  %-78s %3d of %3d; %s" % (text, reached, count, detail))
        print("× ONNX Runtime: geometric mean and least, weights packed; packing included; Gop/s")
        for kind, batch, threads, rows in self.group_rows():
            print("  %-18s batch %d, %-10s %3d rows: %s; medians %4.0f Gop/s, %s of the peak" % (
                kind, batch, threads_text(threads) + ":", len(rows),
                "; ".join(times_text(rows, times) for times in (packed_times, fresh_times)),
                statistics.median(map(gops, rows)), peak_text(rows)))
        figures.print_costs(self.costs())
        short = self.short()
        if short:
            print("Falls short (%d), the worst:" % len(short))
        for text in short[:20]:
            print("  " + text)

    # ---- RESULTS.md ------------------------------------------------------------------------------

    def write(self, folder):
        lines = ["# Speed of convolutions", "", HEAD, ""] + ["- " + line for line in self.machine]
        lines += ["", "![times ONNX Runtime, batch 1](conv.svg)", "", "## Targets", "",
                  "| target | reach it | of | |", "|---|---:|---:|---|"]
        lines += ["| %s | %d | %d | %s |" % row for row in self.target_rows()]
        lines += ["", "## Groups", "",
                  "× ONNX Runtime: geometric mean, and least.", "",
                  "| layers | batch | threads | rows | packed | with packing | Gop/s, median | "
                  "of the peak |", "|---|---:|---:|---:|---:|---:|---:|---:|"]
        for kind, batch, threads, rows in self.group_rows():
            lines.append("| %s | %d | %d | %d | %s | %s | %.0f | %s |" % (
                kind, batch, threads, len(rows), times_text(rows, packed_times),
                times_text(rows, fresh_times), statistics.median(map(gops, rows)),
                peak_text(rows)))
        lines += figures.short_lines(self.short()) + figures.cost_lines(self.costs())
        lines += self.peak_table()
        for batch, threads in sorted({(row["batch"], row["threads"]) for row in self.best}):
            lines += self.table(batch, threads)
        figures.write_section(folder, lines + self.pack_table() + self.forced_table())
        if any(map(packed_times, self.best)):
            (folder / "conv.svg").write_text(plot.conv_svg(list(self.picture())))

    def picture(self):
        """Returns the layers in the form that plot.conv_svg takes."""
        by_key = {(row["network"], row["layer"], row["threads"]): row for row in self.best
                  if row["batch"] == 1}
        most = max(row["threads"] for row in self.best)
        for (network, layer, threads), row in by_key.items():
            if threads == 1:
                all_threads = by_key.get((network, layer, most), row)
                yield (layer, NETWORKS[network], packed_times(row), packed_times(all_threads),
                       fresh_times(row))

    def readme_lines(self):
        """Returns the README's lines, which are of batch 1."""
        lines = [self.machine[0] + ":", "",
                 "| convolution | threads | layers | Gop/s | × ONNX Runtime | least | packing | "
                 "least |", "|---|---:|---:|---:|---:|---:|---:|---:|"]
        for kind, batch, threads, rows in self.group_rows():
            if batch == 1:
                lines.append("| %s | %d | %d | %.0f | %s | %s |" % (
                    kind, threads, len(rows), statistics.median(map(gops, rows)),
                    *(times_text(rows, times, "%.1f | %.1f", " | ")
                      for times in (packed_times, fresh_times))))
        return lines

    def peak_table(self):
        """Returns the table of peaks, with a column for each kernel."""
        rows = [row for row in self.results if row["threads"] == 1 and peak_share(row)]
        kernels = sorted({row["kernel"] for row in rows})
        lines = ["", "## Shares of the peak, 1 thread", "", PEAK_HEAD, "", "| layers |" + "".join(
            " %s |" % kernel.removeprefix("conv_") for kernel in kernels),
            "|---|" + "---:|" * len(kernels)]
        for kind in dict.fromkeys(row["kind"] for row in rows):
            found = [[peak_share(row) for row in rows
                      if (row["kind"], row["kernel"]) == (kind, kernel)] for kernel in kernels]
            lines.append("| %s |%s" % (kind, "".join(
                " %.2f, %.2f |" % (statistics.median(shares), min(shares)) if shares else " – |"
                for shares in found)))
        return lines

    def table(self, batch, threads):
        rows = [row for row in self.best if (row["batch"], row["threads"]) == (batch, threads)]
        last = "× one thread" if threads > 1 else "of the peak"
        lines = ["", "## Batch %d, %s" % (batch, threads_text(threads)), "",
                 "| layer | kernel | time | Gop/s | × peer | with packing | × peer | ± | KiB | %s |"
                 % last, "|---|---|" + "---:|" * 8]
        for row in rows:
            packed = PEER_LEAST if has_target(row) else 0
            peer = [bold_below("%.2f ×", times, least) if times else "–" for times, least in (
                (packed_times(row), packed), (fresh_times(row), FRESH_LEAST))]
            lines.append("| %s | %s | %s | %.0f | %s | %s | %s | %.0f %% | %d | %.2f |" % (
                row["layer"], row["kernel"].removeprefix("conv_"), ns_text(row["ns"]["run"]),
                gops(row), peer[0], ns_text(row["ns"]["fresh"]), peer[1],
                100 * row["spread"]["run"], row["workspace"] // KIB,
                scaling(row) if threads > 1 else peak_share(row) or 0))
        return lines

    def pack_table(self):
        """Returns the table of packing at batch 1: a row for each layer, a column for each count of
        threads."""
        by_layer = {}
        for row in self.best:
            if row["batch"] == 1:
                by_layer.setdefault(row["layer"], []).append(row)
        threads = sorted({row["threads"] for row in self.best})
        lines = ["", "## Packing", "", PACK_HEAD, "", "| layer | KiB | kept | units |" + "".join(
            " %s | GB/s | of memory |" % threads_text(count) for count in threads),
            "|---|---:|---:|---:|" + "---:|---:|---:|" * len(threads)]
        for layer, rows in by_layer.items():
            cells = [" %s | %.1f | %s |" % (
                ns_text(row["ns"]["pack"]), pack_speed(row),
                bold_below("%.2f", pack_share(row), PACK_LEAST if pack_counts(row) else 0))
                for row in rows]
            lines.append("| %s | %.1f | %.1f | %d |%s" % (
                layer, rows[0]["constant"] / KIB, rows[0]["resident"] / KIB, rows[0]["pack_units"],
                "".join(cells)))
        return lines

    def forced_table(self):
        gemms = list(dict.fromkeys(row["gemm"] for row in self.forced))
        if not gemms:
            return []
        by_layer = {}
        for row in self.forced:
            by_layer.setdefault(row["layer"], {})[row["gemm"]] = row
        lines = ["", "## Each backend, batch 1, 1 thread", "", FORCED_HEAD, "", "| layer |" +
                 "".join(" %s | of peak |" % gemm for gemm in gemms),
                 "|---|" + "---:|---:|" * len(gemms)]
        for layer, rows in by_layer.items():
            lines.append("| %s |%s" % (layer, "".join(" %.0f Gop/s | %s |" % (
                gops(rows[gemm]),
                "%.2f" % peak_share(rows[gemm]) if peak_share(rows[gemm]) else "–")
                for gemm in gemms)))
        return lines


def group_mean(rows):
    """Returns the geometric mean over the rows that have a target. None: no row has one."""
    values = [packed_times(row) for row in rows if packed_times(row) and has_target(row)]
    return geometric_mean(values) if values else None


def peak_text(rows):
    """Returns the median share of the peak as text. Rows of more than one thread have no such
    share."""
    shares = [peak_share(row) for row in rows if peak_share(row)]
    return "%.2f" % statistics.median(shares) if shares else "–"


def times_text(rows, function, form="%.2f ×, %.2f ×", none="–"):
    values = [function(row) for row in rows if function(row)]
    return form % (geometric_mean(values), min(values)) if values else none


HEAD = """\
Written by `make bench`; not by hand. The rows are all distinct convolution layers of ResNet-50 and
MobileNetV2, and some examples with one and with three axes (tests/bench/conv/shapes.txt). x is
UINT8, w is INT8 with a scale for each channel, and there is a bias. Each figure is the best of
several rounds. In each round libqk, the peaks and ONNX Runtime are measured one after another. A
row that misses a target is measured a second time, and the better figures count. All outputs are
compared byte for byte.

- *time* is the time of one run. The weights are packed and the plan is made before, and buffers are
  reused. The *× peer* beside it is ONNX Runtime's time divided by this time. ONNX Runtime's model
  contains the weights.
- *with packing* is the time to pack the weights, plan and run. The *× peer* beside it is ONNX
  Runtime's time divided by this time. Here the weights are an input of ONNX Runtime's model.
- The time of a call for one element (some 2 µs) is subtracted from all times of ONNX Runtime.
- *KiB* is the workspace of each thread. *±* says by how much the median round was slower than the
  best. While a row is measured, all threads but the first wait by spinning, so none has to be
  woken. What waking costs is under "The hand-over".
- Gop/s counts a product and its addition as two operations. Bold figures miss their target. With
  several threads, only rows that take 50 µs or more on one thread have a target."""

PEAK_HEAD = """\
A share of 1 is the speed at which the kernel's own instructions run in a loop that touches no
memory: tiles for amx (which come from the L1 cache), VPDPBUSD on 512 bits for vnni and on 256 bits
for avxvnni, VPMADDWD and the addition that it needs for avx2, and for ARM SMULL and SADALP (neon),
SDOT (dotprod) and SMMLA (i8mm). For sgemm it is the speed of OpenBLAS's sgemm alone, on the
matrices of one image. The two figures are the median and the least of the layers of a kind, with
all backends."""

PACK_HEAD = """\
The speed of checking a call's constants and packing them, in units that the threads share. It is a
share of the speed at which as many threads copy from memory to memory, past the caches. The weights
are packed again and again, so weights that fit into the caches come from there. KiB: the size of
the weights, and of what the instance keeps. Weights of less than 64 KiB have no target."""

FORCED_HEAD = """\
Each backend is chosen by --gemm. This part exists only if the CPU has several. Peaks are as above.
– means that another kind of kernel computes the layer."""
