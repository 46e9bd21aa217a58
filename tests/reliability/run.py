#!/usr/bin/env python3
"""Tries what hurts a server, and says whether it keeps its bounds: run.py [--short] [--only NAME]
[--soak MINUTES]

Without --short and --only, writes tests/RELIABILITY.md. --soak does something else: it mixes
everything for that long, and writes tests/reliability/soak.md and soak.svg. The last line is
"N passed, N failed".
"""
import argparse
import datetime
import os
import sys
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]

import failures  # noqa: E402
import rows  # noqa: E402
import soak  # noqa: E402

REPORT = HERE.parent / "RELIABILITY.md"
SHORT = ("beside_json", "beside_convolutions", "growing_answer", "promised_bodies",
         "compute_timeout", "drain_timeout", "endless_chunks", "stalled_upload", "index_of_blanks",
         "gone_before_its_turn", "idle_connections", "the_librarys_own_answers", "slow_heads",
         "slow_bodies", "a_thousand_connections", "drains")


def cpu():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return "%s, %d CPUs" % (line.split(":")[1].strip(), os.cpu_count())
    return "%d CPUs" % os.cpu_count()


def try_row(function, short):
    """Tries a row once. A short run, which may have other work beside it, tries a row up to three
    times if its bound is a time."""
    begun = time.monotonic()
    try:
        for _ in range(3 if short and function in rows.TIMED else 1):
            seen, good = function(short)
            if good or good is None:
                break
    except Exception:  # a row that raises has failed; the other rows go on
        traceback.print_exc()
        seen, good = "it broke: " + traceback.format_exc().strip().splitlines()[-1], False
    what, bound = " ".join(function.__doc__.split()).split("; ", 1)
    mark = {True: "ok", False: "FAIL", None: "skip"}[good if good is None else bool(good)]
    print("  %-4s %-26s %5.1f s  %s" % (mark, function.__name__, time.monotonic() - begun, seen),
          flush=True)
    if mark == "FAIL":
        failures.say(function.__name__, seen)
    return mark, what, bound, seen


def write(results):
    lines = ["# Reliability: attacks and overloads, their bounds, what was seen", "",
             "Written by `make test-reliability`; do not edit. `tests/reliability/rows.py` has the "
             "code of each row. Measured on %s with %s, which client and server share."
             % (datetime.date.today().isoformat(), cpu()), "",
             "| tried | bound | seen | |", "|---|---|---|---|"]
    lines += ["| %s | %s | %s | %s |" % (what, bound, seen.replace("|", "/"), mark)
              for mark, what, bound, seen in results]
    lines += ["", "\"Beside the clients alone\" is measured with the same clients on the same "
              "CPUs, but with two servers that compute nothing: one answers the small requests "
              "with a constant, the other only moves the bytes of the large ones. This latency is "
              "due to the clients, so no server can avoid it.",
              "", "Other tests of reliability, by their commands:", "",
              "- `make test T=test_faults`: each allocation of each kind of request fails; accept "
              "finds no free descriptor; a thread cannot start; the log's disk is full; "
              "connections are reset in each state.",
              "- `make test SAN=address`, `make test SAN=thread`: the sanitizers.",
              "- `make fuzz SECONDS=3600`: the fuzzers.",
              "- `tests/reliability/run.py --soak 30`: [the soak](reliability/soak.md)."]
    REPORT.write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", help="the rows with this in their names")
    parser.add_argument("--soak", type=float, metavar="MINUTES")
    options = parser.parse_args()
    if options.soak:
        good = soak.run(options.soak * 60, HERE)
        print("%d passed, %d failed" % (good, not good))
        return 0 if good else 1
    chosen = [row for row in rows.ROWS
              if (options.only or "") in row.__name__
              and (not options.short or row.__name__ in SHORT)]
    results = [try_row(row, options.short) for row in chosen]
    marks = [result[0] for result in results]
    if not options.short and not options.only:
        write(results)
    failed = marks.count("FAIL") + (not chosen)
    print("%d passed, %d failed" % (marks.count("ok"), failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
