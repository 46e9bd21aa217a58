"""The convolutions' rows to text: the targets and who reaches them, RESULTS.md, one-liners."""
import statistics

import figures
import plot
from figures import bold_below, geometric_mean, ns_text, peer_net_ns, threads_text
from layers import NETWORKS

PEER_LEAST = 1.0
PEER_MEAN = 1.5
DEPTHWISE_LEAST = 3.0
PEAK_LEAST = 0.80  # 3x3 layers
PEAK_GEMMS = ("auto", "vnni")
SGEMM_LEAST = 0.80
SCALING_LEAST = 0.9  # of the threads: 1.8 with two
SCALING_NS = 1e6


# ---- One row -------------------------------------------------------------------------------------


def gops(row):
    return row["operations"] / row["ns"]["run"]


def packed_times(row):
    """How many times as fast as ONNX Runtime; None: it was not measured. Weights known before."""
    return peer_net_ns(row) / row["ns"]["run"] if "peer" in row["ns"] else None


def fresh_times(row):
    """The same, where weights come with x: packing counts."""
    return peer_net_ns(row, "peer_fresh") / row["ns"]["fresh"] if "peer" in row["ns"] else None


def base_peak(row):
    """What the ratio to the peak is of: VNNI's, or FMA's where there is none."""
    return "vnni" if "vnni" in row["gops"] else "fma"


def peak_share(row, name=None):
    """None: not measured."""
    peak = row["gops"].get(name or base_peak(row))
    return gops(row) / peak if peak else None


def sgemm_share(row):
    return peak_share(row, "sgemm") if row["gemm"] == "blas" else None


def scaling(row):
    """None: one thread, or so short that it does not matter."""
    alone = row["ns"].get("alone", 0)
    return alone / row["ns"]["run"] if alone > SCALING_NS else None


def targets(row):
    """What it should reach: (what, value, target)."""
    if packed_times(row):
        least = DEPTHWISE_LEAST if row["kind"] == "depthwise" else PEER_LEAST
        yield "× ONNX Runtime, weights packed", packed_times(row), least
        yield "× ONNX Runtime, packing included", fresh_times(row), PEER_LEAST
    if row["kind"].startswith("3×3") and row["gemm"] in PEAK_GEMMS and peak_share(row):
        yield "of the %s peak" % base_peak(row), peak_share(row), PEAK_LEAST
    if sgemm_share(row):
        yield "of OpenBLAS's sgemm", sgemm_share(row), SGEMM_LEAST
    if scaling(row):
        yield "× one thread", scaling(row), SCALING_LEAST * row["threads"]


def missed(row):
    return [(what, value, target) for what, value, target in targets(row) if value < target]


def falls_short(row):
    return bool(missed(row))


def one_line(row):
    text = "%s: %s, %.0f Gop/s, %s" % (row["name"], ns_text(row["ns"]["run"]), gops(row),
                                       row["kernel"])
    if packed_times(row):
        text += ", %.2f × ONNX Runtime, %.2f × with packing" % (packed_times(row),
                                                                fresh_times(row))
    return text + ("; OTHER BYTES" if row["same"] is False else "")


# ---- All rows ------------------------------------------------------------------------------------


def notes(libqk, results):
    lines = ["OpenBLAS: core %s" % libqk.core]
    for name in ("fma", "madd", "vnni", "amx"):
        found = [row["gops"][name] for row in results if name in row["gops"]]
        if found:
            lines.append("%s: at most %.0f Gop/s, median of rows %.0f, 1 thread" % (
                name, max(found), statistics.median(found)))
    return lines


class Report:
    def __init__(self, results, machine_lines):
        self.results, self.machine = results, machine_lines
        self.best = [row for row in results if row["gemm"] == "auto"]
        self.forced = [row for row in results if row["gemm"] != "auto"]

    def print_rows(self):
        for row in self.results:
            print(one_line(row) + ", spread %.0f %%" % (100 * row["spread"]["run"]))

    def target_rows(self):
        """(target's text, reached or None, of how many, detail)"""
        for what, times in (("weights packed, its constant", packed_times),
                            ("packing included, its an input", fresh_times)):
            values = [times(row) for row in self.best if times(row)]
            if values:
                yield ("never slower than ONNX Runtime: " + what,
                       sum(value >= PEER_LEAST for value in values), len(values),
                       "least %.2f" % min(values))
        values = [packed_times(row) for row in self.best if packed_times(row)]
        if values:
            mean = geometric_mean(values)
            yield ("≥ %.1f × in the geometric mean" % PEER_MEAN, int(mean >= PEER_MEAN), 1,
                   "%.2f" % mean)
        for text, function, least, rows in (
                ("depthwise ≥ %.0f × ONNX Runtime" % DEPTHWISE_LEAST, packed_times,
                 lambda _: DEPTHWISE_LEAST,
                 [row for row in self.best if row["kind"] == "depthwise"]),
                *(("3×3 layers ≥ %.2f of the peak, --gemm=%s" % (PEAK_LEAST, gemm), peak_share,
                   lambda _: PEAK_LEAST,
                   [row for row in self.results
                    if row["kind"].startswith("3×3") and row["gemm"] == gemm])
                  for gemm in PEAK_GEMMS),
                ("blas ≥ %.2f of sgemm" % SGEMM_LEAST, sgemm_share, lambda _: SGEMM_LEAST,
                 self.results),
                ("all threads ≥ %.1f × their number, over 1 ms" % SCALING_LEAST, scaling,
                 lambda row: SCALING_LEAST * row["threads"], self.best)):
            found = [(function(row), least(row)) for row in rows if function(row)]
            if found:
                values = sorted(value for value, _ in found)
                yield (text, sum(value >= bound for value, bound in found), len(found),
                       "least %.2f, median %.2f" % (values[0], statistics.median(values)))

    def group_rows(self):
        """(kind, batch, threads, rows)"""
        for kind in dict.fromkeys(row["kind"] for row in self.best):
            for batch, threads in sorted({(row["batch"], row["threads"]) for row in self.best}):
                rows = [row for row in self.best if (row["kind"], row["batch"], row["threads"]) ==
                        (kind, batch, threads)]
                if rows:
                    yield kind, batch, threads, rows

    def short(self):
        """What falls short, the worst first."""
        found = [(value / target, "%s: %.3f %s (target %.2f)" % (row["name"], value, what, target))
                 for row in self.results for what, value, target in missed(row)]
        return [text for _, text in sorted(found)]

    def print_summary(self):
        print("\nConvolutions: who reaches the target")
        for text, reached, count, detail in self.target_rows():
            print("  %-63s %3d of %3d; %s" % (text, reached, count, detail))
        print("× ONNX Runtime: geometric mean and least, weights packed; packing included; Gop/s")
        for kind, batch, threads, rows in self.group_rows():
            print("  %-18s batch %d, %-10s %3d rows: %s; median %4.0f Gop/s" % (
                kind, batch, threads_text(threads) + ":", len(rows),
                "; ".join(times_text(rows, times) for times in (packed_times, fresh_times)),
                statistics.median(map(gops, rows))))
        short = self.short()
        if short:
            print("Falls short (%d), the worst:" % len(short))
        for text in short[:20]:
            print("  " + text)

    # ---- RESULTS.md ------------------------------------------------------------------------------

    def write(self, folder):
        lines = ["# Speed of convolutions", "", HEAD, ""] + ["- " + line for line in self.machine]
        lines += ["", "![times ONNX Runtime, batch 1, one thread](conv.svg)", "", "## Targets", "",
                  "| target | reach it | of | |", "|---|---:|---:|---|"]
        lines += ["| %s | %d | %d | %s |" % row for row in self.target_rows()]
        lines += ["", "## Groups", "",
                  "× ONNX Runtime: geometric mean, and least.", "",
                  "| layers | batch | threads | rows | packed | packing | Gop/s, median |",
                  "|---|---:|---:|---:|---:|---:|---:|"]
        for kind, batch, threads, rows in self.group_rows():
            lines.append("| %s | %d | %d | %d | %s | %s | %.0f |" % (
                kind, batch, threads, len(rows), times_text(rows, packed_times),
                times_text(rows, fresh_times), statistics.median(map(gops, rows))))
        lines += figures.short_lines(self.short())
        for batch, threads in sorted({(row["batch"], row["threads"]) for row in self.best}):
            lines += self.table(batch, threads)
        figures.write_section(folder, lines + self.forced_table())
        figures.write_short("convolutions", self.readme_lines())
        if any(map(packed_times, self.best)):
            (folder / "conv.svg").write_text(plot.conv_svg(
                [(row["layer"], NETWORKS[row["network"]], packed_times(row), fresh_times(row))
                 for row in self.best if (row["batch"], row["threads"]) == (1, 1)]))

    def readme_lines(self):
        """Batch 1, one thread."""
        lines = [self.machine[0] + ":", "",
                 "| convolution | layers | Gop/s | × ONNX Runtime | least | packing | least |",
                 "|---|---:|---:|---:|---:|---:|---:|"]
        for kind, batch, threads, rows in self.group_rows():
            if (batch, threads) == (1, 1):
                lines.append("| %s | %d | %.0f | %s | %s |" % (
                    kind, len(rows), statistics.median(map(gops, rows)),
                    *(times_text(rows, times, "%.1f | %.1f", " | ")
                      for times in (packed_times, fresh_times))))
        return lines

    def table(self, batch, threads):
        rows = [row for row in self.best if (row["batch"], row["threads"]) == (batch, threads)]
        last = ("of %s | of amx" % base_peak(rows[0])) if threads == 1 else "× one thread"
        head = "| layer | kernel | time | Gop/s | packed | with packing | packing | ± | KiB | %s |"
        lines = ["", "## Batch %d, %s" % (batch, threads_text(threads)), "", head % last,
                 "|---|---|" + "---:|" * (7 + last.count("|") + 1)]
        for row in rows:
            peer = [bold_below("%.2f ×", times, least) if times else "–" for times, least in (
                (packed_times(row), DEPTHWISE_LEAST if row["kind"] == "depthwise" else PEER_LEAST),
                (fresh_times(row), PEER_LEAST))]
            lines.append("| %s | %s | %s | %.0f | %s | %s | %s | %.0f %% | %d | %s |" % (
                row["layer"], row["kernel"].removeprefix("conv_"), ns_text(row["ns"]["run"]),
                gops(row), peer[0], ns_text(row["ns"]["fresh"]), peer[1],
                100 * row["spread"]["run"], row["workspace"] // 1024, last_cells(row, threads)))
        return lines

    def forced_table(self):
        gemms = list(dict.fromkeys(row["gemm"] for row in self.forced))
        if not gemms:
            return []
        by_key = {(row["layer"], row["gemm"]): row for row in self.forced}
        lines = ["", "## ResNet-50 by each backend, batch 1, 1 thread", "", "| layer |" + "".join(
            " %s | of %s |" % (gemm, FORCED_PEAK[gemm]) for gemm in gemms),
            "|---|" + "---:|---:|" * len(gemms)]
        for layer in dict.fromkeys(row["layer"] for row in self.forced):
            cells = [by_key[layer, gemm] for gemm in gemms]
            lines.append("| %s |%s" % (layer, "".join(" %.0f Gop/s | %s |" % (
                gops(row), forced_share(row)) for row in cells)))
        return lines


def forced_share(row):
    least = {"blas": SGEMM_LEAST, "vnni": PEAK_LEAST if row["kind"].startswith("3×3") else 0}
    return bold_below("%.2f", peak_share(row, FORCED_PEAK[row["gemm"]]) or 0,
                      least.get(row["gemm"], 0))


def last_cells(row, threads):
    if threads > 1:
        return "%.2f" % (row["ns"]["alone"] / row["ns"]["run"]) if not scaling(row) else bold_below(
            "%.2f", scaling(row), SCALING_LEAST * threads)
    least = PEAK_LEAST if row["kind"].startswith("3×3") else 0
    amx = peak_share(row, "amx")
    return "%s | %s" % (bold_below("%.2f", peak_share(row) or 0, least),
                        "%.2f" % amx if amx else "–")


def times_text(rows, function, form="%.2f ×, %.2f ×", none="–"):
    values = [function(row) for row in rows if function(row)]
    return form % (geometric_mean(values), min(values)) if values else none


FORCED_PEAK = {"blas": "sgemm", "avx2": "madd", "avxvnni": "vnni", "vnni_novbmi": "vnni",
               "vnni": "vnni"}

HEAD = """\
Written by `make bench`; not by hand. All distinct convolution layers of ResNet-50 and MobileNetV2,
and examples of one and three axes: tests/bench/shapes. x is UINT8, w INT8 with a scale for each
channel, with a bias. Each figure is the best of several rounds in which libqk, the peaks and ONNX
Runtime took turns, and for rows that miss a target the best of two times several; outputs were
compared byte for byte.

- *time* has the weights packed beforehand and the plan made, buffers reused; *packed* is how many
  times as fast that is as ONNX Runtime whose model holds the weights.
- *with packing* creates, plans and runs; *packing* is how many times as fast that is as ONNX
  Runtime where the weights are an input.
- From ONNX Runtime's times that of a call for one element is taken off (some 2 µs).
- *of vnni*, *of amx* are shares of what the CPU's instructions do in a loop without any memory
  (amx: loading its tiles from the L1 cache); *of madd* of AVX2's, *of sgemm* of what OpenBLAS does
  on the same matrices alone, those of one image. For the targets the peak is vnni's, also where AMX
  ran; fma is what floats could do, where a CPU has no vnni.
- *KiB* is the workspace of each thread; *±* is by how much the median round was slower than the
  best.
- Gop/s counts a product and its addition as two. Bold is what misses its target."""
