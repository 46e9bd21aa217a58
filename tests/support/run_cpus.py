#!/usr/bin/env python3
"""Runs the tests that depend on the CPU as other machines would: run_cpus.py [--short] [MACHINE...]

The environment variable QK_CPU makes quantd and its tests see a CPU with fewer features than this
one has (kernels/cpu.h). For each machine that QK_CPU can name, or for the given machines, this
program runs all tests in C, the kernel checker, and some tests over sockets. It skips a machine
that this CPU cannot play, and names it. The last line is "N passed, N failed".

--short   only machines with different features, the suites of the kernels, and a part of the cases
"""
import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import failures
from run_tests import BUILD, EMULATOR, EVERY

RUN_TESTS = Path(__file__).resolve().parent / "run_tests.py"
# The other machines have the features of one of these. Sapphire Rapids is left out because few
# machines have its features.
SHORT = ("haswell", "skylakex", "cascadelake", "icelake")
SUMMARY = re.compile(r"(\d+) passed, (\d+) failed$")


def machines():
    """Returns the machines that QK_CPU can name: name -> the features that this CPU lacks, or
    ""."""
    said = subprocess.run([*EMULATOR, BUILD / "check-kernels", "--machines"], check=True,
                          text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE).stdout
    parts = [line.partition(":") for line in said.splitlines()]
    return {name: lacks.strip() for name, _, lacks in parts}


def run_as(machine, short):
    """Runs the tests under a mask. Returns how many passed and failed."""
    environment = dict(os.environ, QK_CPU=machine, **({"QK_TEST_EVERY": EVERY} if short else {}))
    process = subprocess.Popen([sys.executable, RUN_TESTS, "--masked"], text=True, errors="replace",
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, env=environment)
    found = None
    for line in process.stdout:
        found = SUMMARY.match(line) or found
        if line.startswith(failures.MARK + " "):
            line = "%s QK_CPU=%s: %s" % (failures.MARK, machine, line[len(failures.MARK) + 1:])
        if not line.startswith("skipped: "):  # a list of what this machine would lack
            print(line, end="", flush=True)
    status = process.wait()
    passed, failed = (int(found[1]), int(found[2])) if found else (0, 0)
    if status != 0 and failed == 0:
        failures.say("QK_CPU=" + machine, "the tests exited with %d" % status)
        failed = 1
    return passed, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("machines", nargs="*", metavar="MACHINE")
    options = parser.parse_args()
    every = machines()
    chosen = options.machines or (SHORT if options.short else tuple(every))
    passed = failed = skipped = 0
    for machine in chosen:
        if machine in every and not every[machine]:
            started = time.monotonic()
            print("==== QK_CPU=%s" % machine, flush=True)
            counts = run_as(machine, options.short)
            print("QK_CPU=%s took %.1f s" % (machine, time.monotonic() - started), flush=True)
            passed, failed = passed + counts[0], failed + counts[1]
        elif machine in every or (not every and not options.machines):
            print("skipped: QK_CPU=%s: %s" % (machine, every.get(machine, "not an x86-64")))
            skipped += 1
        else:
            failures.say("QK_CPU=" + machine, "expected one of " + ", ".join(every))
            failed += 1
    print("%d passed, %d failed" % (passed, failed) + (", %d skipped" % skipped if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
