#!/usr/bin/env python3
"""make bench: libqk's speed beside the machine's limits and ONNX Runtime, all in one run.

Each row is measured in short rounds, in turn: libqk, moves of as many bytes (once by normal stores,
once by streaming ones; the limit is the better), ONNX Runtime. What counts is the best of each, so
other work on the machine makes this slower, but hardly changes the figures.
"""
import argparse
import json
import os
import statistics
import sys
import time

import black_box
import report
import rows
from libqk import FILES, ROOT, Libqk
from peer import OnnxRuntime, Unsupported
from stopwatch import time_round

SAME = 1.03  # two rounds that are no further apart have seen the same
PEER_LARGE_ROUNDS = 3  # it is slow, and its best comes soon
SAY_SECONDS = 10


class Clock:
    """Says now and then how far it has come."""

    def __init__(self, total):
        self.total = total
        self.start = self.said = time.monotonic()

    def tick(self, index, result):
        now = time.monotonic()
        if now - self.said > SAY_SECONDS or index + 1 == self.total:
            self.said = now
            print("bench: %d of %d rows, %.0f s; %s" % (index + 1, self.total, now - self.start,
                                                       report.one_line(result)), flush=True)


def settled(series):
    """Its best has been seen at least twice."""
    return sum(ns <= min(series) * SAME for ns in series) > 1


def measure(row, libqk, peer, seconds):
    """The row's result, as a dict that JSON can hold."""
    kernel, units, read, written = libqk.prepare(row)
    large = row.size > rows.MIB
    series = {"run": [], "store": [], "stream": []}
    run_peer, why = None, ""
    if peer:
        try:
            run_peer = peer.prepare(row)
            series.update(peer=[], call=[])
        except Unsupported as error:
            why = str(error)
    end = time.monotonic() + seconds
    # On all threads the best comes only when the system leaves them all alone for a while.
    least, most = (3, 12) if large else (8, 24) if row.threads == 1 else (12, 48)
    for count in range(1, most + 1):
        for name, ns in libqk.round("run", "store", "stream").items():
            series[name].append(ns)
        if run_peer and (not large or count <= PEER_LARGE_ROUNDS):
            series["peer"].append(time_round(run_peer))
            series["call"].append(0.0 if large else peer.call_ns(row.threads))
        if count >= least and all(map(settled, series.values())) or time.monotonic() > end:
            break
    same = None
    if run_peer and not large:
        run_peer()
        same = libqk.sum() == peer.sum(row)
    return {"x": row.x, "y": row.y, "grain": row.grain, "size": row.size, "threads": row.threads,
            "kernel": kernel, "units": units, "read": read, "written": written,
            "ns": {name: min(values) for name, values in series.items()},
            "spread": {name: statistics.median(values) / min(values) - 1 if min(values) else 0
                       for name, values in series.items()},
            "rounds": count, "same": same, "why": why}


def start_peer(x, selected):
    try:
        peer = OnnxRuntime(x)
    except ImportError as error:
        print("bench: without ONNX Runtime: %s" % error)
        return None
    peer.reserve(max(row.y_bytes for row in selected))
    return peer


def memory_bytes():
    """What is to be had; where the system does not say, enough."""
    try:
        with open("/proc/meminfo") as file:
            sizes = {line.split(":")[0]: int(line.split()[1]) << 10 for line in file}
        return sizes["MemAvailable"]
    except (OSError, KeyError):
        return 1 << 40


def select(options):
    threads = len(os.sched_getaffinity(0))
    if options.smoke:
        return rows.smoke(threads)
    selected = [row for row in rows.full(threads)
                if options.full or options.only or rows.is_quick(row)]
    for words in options.only or []:
        selected = [row for row in selected if words in str(row)]
    # Twice an output, libqk's and the peer's; x three times; and some room.
    room = memory_bytes() * 0.9 - 3 * max((row.size for row in selected), default=0)
    left_out = [row for row in selected if 2 * row.y_bytes > room]
    for row in left_out:
        print("bench: left out, too little memory: %s" % row)
    return [row for row in selected if row not in left_out]


def parse(arguments):
    parser = argparse.ArgumentParser(prog="make bench A=", description=__doc__)
    add = parser.add_argument
    add("--full", action="store_true", help="every row; the default is some of the large ones")
    add("--smoke", action="store_true", help="a few small rows, to see that it works")
    add("--only", action="append", metavar="TEXT",
        help="rows that have TEXT in their names, as 'INT8 FP32, tensor'; given twice, both")
    add("--cpu", default="auto", metavar="TIER", help="libqk's tier")
    add("--without-peer", action="store_true", help="without ONNX Runtime")
    add("--seconds", type=float, default=3, help="for a row, at most (default 3)")
    add("--http", action="store_true", help="64 MiB tensors over HTTP: the server's own times")
    return parser.parse_args(arguments)


def main():
    options = parse(sys.argv[1:])
    if options.http:
        threads = sorted({1, len(os.sched_getaffinity(0))})
        return black_box.main(threads, not options.without_peer)
    selected = select(options)
    if not selected:
        raise SystemExit("bench: no such row")
    x = rows.x_bytes(max(row.size for row in selected))
    libqk = Libqk(options.cpu, x)
    peer = None if options.without_peer else start_peer(x, selected)
    del x
    clock, results = Clock(len(selected)), []
    for index, row in enumerate(selected):
        results.append(measure(row, libqk, peer, options.seconds))
        clock.tick(index, results[-1])
    machine = report.machine(libqk, peer)
    libqk.close()
    text = report.Report(results, machine)
    if options.smoke:
        return text.print_counts()
    if options.only:
        text.print_rows()
    else:
        (ROOT / FILES / "dequantize.json").write_text(json.dumps([machine, results], indent=1))
        text.write(ROOT / "tests" / "bench")
    return text.print_summary()


if __name__ == "__main__":
    sys.exit(main())
