#!/usr/bin/env python3
"""make bench: libqk's speed beside the machine's limits and ONNX Runtime, all in one run.

Each row is measured in short rounds. In each round libqk, its limit and ONNX Runtime are measured
one after another. A dequantizer's limit moves as many bytes, a convolution's limit only multiplies.
The best round of each counts, so other work on the machine makes this slower, but hardly changes
the figures. Other parts compare the cost that plans estimate with the real one, packing with copies
in memory, one worker with several and the scheduler's constants with what they stand for (the
hand-over), and JSON's numbers with other libraries.
"""
import argparse
import json
import os
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent / part)
                for part in ("conv", "kernels", "linear", "networks", "wire")]

import black_box  # noqa: E402
import convolve  # noqa: E402
import figures  # noqa: E402
import handover  # noqa: E402
import json_numbers  # noqa: E402
import kernels_part  # noqa: E402
import linear  # noqa: E402
import mask  # noqa: E402
import networks  # noqa: E402
import rows  # noqa: E402
import served  # noqa: E402
import wire  # noqa: E402
from libqk import EMULATOR, FILES, ROOT, Libqk  # noqa: E402
from peer import OnnxRuntime  # noqa: E402

# Each part with the number of seconds that it may take.
PARTS = {"dequantize": linear.Part(rows.DEQUANTIZE, 190),
         "quantize": linear.Part(rows.QUANTIZE, 150),
         "conv": convolve.Part(320),
         "kernels": kernels_part.Part(60),
         "networks": networks.Part(430),
         "handover": handover.Part(),
         "json": json_numbers.Part(45),
         "served": served.Part(240),
         "wire": wire.Part(240)}
SAY_SECONDS = 10
SMOKE_SECONDS = 0.1
SECONDS_AGAIN = 0.5  # for measuring a row again that falls short
FIRST_SHARE = 0.85  # of a part's time; the rest is for such rows
SHARE_MAX = 3  # how many times its share of the remaining time a row may take


class Clock:
    """Prints the progress now and then, and decides how long a row may take."""

    def __init__(self, total, one_line, budget):
        self.total, self.one_line = total, one_line
        self.start = self.said = time.monotonic()
        self.end = self.start + budget

    def left(self):
        return max(0, self.end - time.monotonic())

    def share(self, index):
        return self.left() / (self.total - index) * SHARE_MAX

    def tick(self, index, result):
        now = time.monotonic()
        if now - self.said > SAY_SECONDS or index + 1 == self.total:
            self.said = now
            print("bench: %d of %d rows, %.0f s; %s" % (
                index + 1, self.total, now - self.start, self.one_line(result)), flush=True)


def start_peer(x, selected):
    try:
        peer = OnnxRuntime(x)
    except ImportError as error:
        print("bench: without ONNX Runtime: %s" % error)
        return None
    peer.reserve(max(row.y_bytes for row in selected))
    return peer


def parse(arguments):
    parser = argparse.ArgumentParser(prog="make bench A=", description=__doc__)
    add = parser.add_argument
    for name in PARTS:
        add("--" + name, action="store_true", help="this part only")
    add("--full", action="store_true",
        help="every row; the default is some of the large tensors, and batch 1")
    add("--smoke", action="store_true", help="a few small rows, to see that it works")
    add("--only", action="append", metavar="TEXT",
        help="rows that have TEXT in their names, as 'INT8 FP32, tensor' or 'depthwise, batch 1'; "
        "'A|B': A or B; given twice, both")
    add("--again", action="store_true",
        help="with --only: writes the results of these rows beside those that the last run of the "
        "same commit has of others")
    add("--cpu", default="auto", metavar="CPU",
        help="libqk's tier; or an older CPU, which libqk and its peers then see instead of this "
        "one: " + ", ".join(mask.CPUS))
    add("--without-peer", action="store_true", help="without ONNX Runtime")
    add("--seconds", type=float, default=3, help="for a row, at most (default 3)")
    add("--http", action="store_true",
        help="64 MiB tensors and some layers over HTTP: the server's own times")
    add("--every-float", action="store_true",
        help="nothing else: all 2^32 floats printed as JSON, read again, and compared with "
        "std::to_chars")
    options = parser.parse_args(arguments)
    chosen = [name for name in PARTS if getattr(options, name)]
    return options, chosen or list(PARTS)


def measure_all(part, selected, options, libqk, peer):
    """Measures one row after the other, then measures the rows that fall short once more."""
    seconds = SMOKE_SECONDS if options.smoke else options.seconds
    budget = float("inf") if options.full or options.only else part.budget_seconds
    clock, results = Clock(len(selected), part.one_line, budget * FIRST_SHARE), []
    for index, row in enumerate(selected):
        results.append(part.measure(row, libqk, peer, min(seconds, clock.share(index))))
        clock.tick(index, results[-1])
    clock = Clock(len(selected), part.one_line, budget * (1 - FIRST_SHARE))
    for index, row in enumerate(selected):
        if not options.smoke and clock.left() and part.falls_short(results[index]):
            again = part.measure(row, libqk, peer, min(seconds, SECONDS_AGAIN))
            results[index] = part.best_of(results[index], again)
    return results


def last_results(path, machine_lines):
    """Returns the results of the last run, which must be of the same commit and machine.
    Uncommitted changes are not compared."""
    if not path.exists():
        return []
    last_machine, results = json.loads(path.read_text())
    then, now = (str(lines[:3]).replace("-dirty", "") for lines in (last_machine, machine_lines))
    if then != now:
        raise SystemExit("bench: %s is of another commit or machine" % path)
    return results


def in_place(results, last):
    """Returns `last` with `results` merged in: a result replaces the one of the same name, and new
    results go to the end."""
    rows = {row["name"]: row for row in last}
    rows.update((row["name"], row) for row in results)
    return list(rows.values())


def run_part(name, options):
    """Runs a part and returns its results. A wrong result is a failure, a slow one is not."""
    part = PARTS[name]
    libqk = Libqk(options.cpu)
    threads = len(os.sched_getaffinity(0))
    selected = figures.chosen(options, part.select(options, threads, libqk.gemms))
    if not selected:
        libqk.close()
        return []
    x = part.x_bytes(max(row.x_bytes for row in selected))
    libqk.give(x)
    peer = None if options.without_peer else start_peer(x, selected)
    del x
    path = ROOT / FILES / (name + ".json")
    last = last_results(path, figures.machine(libqk, peer)) if options.again else []
    try:
        selected = part.open(selected, libqk, peer)
        results = measure_all(part, selected, options, libqk, peer)
    finally:
        part.close()
    results = in_place(results, last)
    report = part.report(results, figures.machine(libqk, peer), libqk)
    libqk.close()
    if options.only and not options.again:
        report.print_rows()
    elif options.smoke or mask.shown():
        report.write(ROOT / FILES)  # tests/bench has only whole runs on real machines
    else:
        path.write_text(json.dumps([report.machine, results], indent=1))
        report.write(ROOT / "tests" / "bench")
        figures.write_short(name, report.readme_lines())
    if not options.smoke:
        report.print_summary()
    return results


def main():
    options, names = parse(sys.argv[1:])
    if options.cpu in mask.CPUS:
        if mask.shown() != options.cpu:
            mask.show(options.cpu)
        options.cpu = "auto"
    if options.http:
        threads = sorted({1, len(os.sched_getaffinity(0))})
        return black_box.main(threads, names, not options.without_peer)
    if options.every_float:
        return json_numbers.check_every_float(len(os.sched_getaffinity(0)))
    if options.again and not options.only:
        raise SystemExit("bench: --again is for --only")
    if EMULATOR and "served" in names:
        print("bench: without served: QEMU 7.2 has no openat2, by which its models' links are read")
        names.remove("served")
    results = [result for name in names for result in run_part(name, options)]
    if not results:
        raise SystemExit("bench: no such row")
    if options.smoke:
        return figures.print_counts(results)
    return 1 if figures.wrong(results) else 0


if __name__ == "__main__":
    sys.exit(main())
