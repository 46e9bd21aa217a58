#!/usr/bin/env python3
"""Runs the tests and counts them: run_tests.py [OPTION] [PATTERN]

OPTION: --unit, --e2e or --kernels run a part of them; --short runs all kernels and some of --e2e;
--masked runs the tests that depend on the CPU (see run_cpus.py).

The environment variable B is the build directory (default: build). PATTERN picks tests: with a
slash or a star it is a Criterion pattern ("suite/name", "conv*/*"), otherwise the dotted name of a
Python test in a folder of tests/e2e ("test_infer", "test_infer.Json.test_id"). The last line is
always "N passed, N failed".
"""
import argparse
import concurrent.futures
import functools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import unittest
from pathlib import Path

import failures
from jobs import Job, Lane, adopt_orphans, cpu_seconds, ending, run_all

ROOT = Path(__file__).resolve().parent.parent.parent
E2E = ROOT / "tests" / "e2e"
BUILD = ROOT / os.environ.get("B", "build")
# Runs programs that are built for another machine.
EMULATOR = os.environ.get("EMULATOR", "").split()
# Slow runs test only one of this many cases. The number is prime, because the lengths depend on a
# case's number and every length must occur.
EVERY = "11"
# The unit tests under the address sanitizer run every third of their many cases. make test runs
# each case between guard pages, which find most of what the sanitizer finds there.
EVERY_ADDRESS = "3"


# The kinds of tests (in C, the kernel checker, and in Python) that each option selects.
KINDS = {"unit": ("unit", "kernel"), "e2e": ("e2e",), "kernels": ("kernel",),
         "short": ("kernel", "e2e"), "masked": ("unit", "kernel", "e2e")}
# The end-to-end tests of a short run: each operator's golden cases, bytes and JSON, TLS.
SHORT = ["test_command_line", "test_golden", "test_infer", "test_tls"]
# The end-to-end tests of a run under a mask. test_command_line checks the choices under masks.
MASKED = ["test_golden", "test_infer", "test_random"]

SUMMARY = re.compile(r"(\d+) passed, (\d+) failed$")
# A test in Criterion's TAP report. The report's other lines are comments, or indented.
TAP_LINE = re.compile(r"(?P<failed>not )?ok - (?P<suite>\w+)::(?P<test>\w+)"
                      r"(?:  # SKIP (?P<skipped>.*))?(?P<rest>.*)")
TAP_FRAME = re.compile(r"---|\.\.\.|failures:|assertions: \d+|\(\d+\.\d+s\)")


class Count:
    def __init__(self):
        self.passed = 0
        self.failed = 0
        self.skipped = []  # (name, reason)

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped


# ---- Processes that a test leaves behind -----------------------------------------------------

GRACE_S = 10  # a process may be about to end by itself


def children():
    """Returns the children of this process that have not ended: pid -> its command line."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (folder / "stat").read_text().rsplit(")", 1)[1].split()[:2]
            words = (folder / "cmdline").read_bytes()
        except OSError:
            continue  # the process has just ended
        if int(parent) == os.getpid() and state != "Z":
            found[int(folder.name)] = words.replace(b"\0", b" ").decode(errors="replace")
    return found


def end_left_over(name):
    """Ends processes that a test left behind, and reports them. Returns how many there were."""
    deadline = time.monotonic() + GRACE_S
    while (left := children()) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid, words in left.items():
        failures.say(name, "left a process behind: %d %s" % (pid, words))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return len(left)


# ---- The three kinds -------------------------------------------------------------------------

def tap_tests(lines):
    """Returns (the match of TAP_LINE, the lines below it) for each test of Criterion's report."""
    tests = []
    for line in lines:
        if (found := TAP_LINE.match(line)) is not None:
            tests.append((found, []))
        elif tests and line.startswith(" "):
            tests[-1][1].append(line.strip())
    return tests


def tap_reason(found, below):
    return "\n".join(line for line in [found["rest"].strip(), *below]
                     if not TAP_FRAME.fullmatch(line))


def run_unit(pattern):
    """Runs the Criterion program, which prints its own failures and summary. Returns its counts."""
    count = Count()
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.tap"  # JSON is invalid if a message has quotes
        command = [*EMULATOR, str(BUILD / "unit-tests"), "--tap=%s" % report, "--short-filename"]
        if pattern:
            command += ["--filter", pattern]
        every = "1" if pattern or BUILD.name != "address" else EVERY_ADDRESS
        every = EVERY if EMULATOR else every
        variables = {"QK_TEST_EVERY": every}
        status = subprocess.call(command, stdin=subprocess.DEVNULL, env=variables | os.environ)
        lines = report.read_bytes().decode(errors="replace").split("\n") if report.exists() else []
    tests = tap_tests(lines)
    if not tests:
        failures.say("unit-tests", "%s before it ran any test" % ending(status))
        count.failed += 1
        return count
    for found, below in tests:
        name = "%s/%s" % (found["suite"], found["test"])
        if found["failed"]:
            failures.say(name, tap_reason(found, below))
            failed = True
            count.failed += 1
        elif found["skipped"] is None:
            count.passed += 1
        elif not pattern:  # with a pattern, most likely the pattern leaves the test out
            count.skipped.append((name, found["skipped"]))
    if status != 0 and not failed:
        failures.say("unit-tests", "%s although no test failed" % ending(status))
        count.failed += 1
    count.failed += end_left_over("unit-tests")
    return count


KERNELS_PARTS_MAX = 16  # each part has some kernels, even on CPUs with few tiers


# The cores that the emulator plays, and which tiers beside the scalar one each has.
CORES = {
    "cortex-a72": {"neon"},
    "a64fx": {"neon", "fp16"},
    "neoverse-n1": {"neon", "dotprod", "fp16"},
    "max,sve128=on": {"neon", "dotprod", "i8mm", "fp16", "sve"},
    "max,sve256=on": {"neon", "dotprod", "i8mm", "fp16", "sve"},
}
# The tiers whose code depends on the length of the core's vectors.
LENGTH_DEPENDENT = {"sve"}


# The machines that QK_CPU can name, and their tiers.
AVX2 = {"avx2"}
AVX512 = {"avx2", "avx512bw"}
VNNI = {"avx2", "avx512bw", "avx512vnni"}
VBMI = {"avx2", "avx512bw", "avx512vnni", "avx512vbmi"}
MACHINES = {
    "haswell": AVX2, "zen2": AVX2, "skylakex": AVX512, "cascadelake": VNNI, "icelake": VBMI,
    "zen4": VBMI, "sapphirerapids": VBMI | {"avxvnni", "amx"},
}


def kernel_suites():
    """Returns a Criterion pattern of the suites in tests/kernels."""
    names = set()
    for path in (ROOT / "tests" / "kernels").rglob("test_*.c"):
        names.update(re.findall(r"^Test\((\w+),", path.read_text(), re.MULTILINE))
    return "@(%s)/*" % "|".join(sorted(names))


def run_kernels_masked(mask):
    """Runs the kernel checker, and checks that it ran the tiers of the machine that QK_CPU
    names."""
    tiers = Tiers()
    count = run_kernels_on({}, tiers)
    expected = {"scalar"} | MACHINES.get(mask, set())
    if tiers.ran == expected:
        count.passed += 1
    else:
        failures.say("check-kernels", "with QK_CPU=%s ran the tiers %s, expected %s"
                     % (mask, sorted(tiers.ran), sorted(expected)))
        count.failed += 1
    return count


def run_kernels():
    """Runs the kernel checker on each core that the emulator plays, or on this machine."""
    if not EMULATOR:
        mask = os.environ.get("QK_CPU")
        return run_kernels_masked(mask) if mask else run_kernels_on({}, Tiers())
    count = Count()
    ran = set()  # on the cores so far; the emulator runs the same code alike on each core
    for core, has in CORES.items():
        print("  %s:" % core, flush=True)
        tiers = Tiers()
        count.add(run_kernels_on({"QEMU_CPU": core}, tiers, sorted(ran - LENGTH_DEPENDENT)))
        ran |= tiers.ran
        expected = {"scalar"} | has & (tiers.ran | tiers.lacking)
        if tiers.ran == expected and "neon" in expected:
            count.passed += 1
        else:
            failures.say("check-kernels", "on %s ran the tiers %s, expected %s"
                         % (core, sorted(tiers.ran), sorted(expected)))
            count.failed += 1
    return count


class Tiers:
    """The tiers whose kernels ran, and the tiers that the CPU lacks."""

    def __init__(self):
        self.ran, self.lacking = set(), set()

    def read(self, line):
        what, _, names = line.partition(": ")
        if what == "Tiers that ran":
            self.ran |= set(re.findall(r"\w+", names))
        elif what == "Tiers that did not":
            self.lacking |= set(re.findall(r"(\w+) \(", names))


def run_kernels_on(environment, tiers, without=()):
    """Runs the kernels of all tiers but `without`, in parts, one part on each CPU at a time.
    Returns the sum of their counts."""
    count = Count()
    width = len(os.sched_getaffinity(0))
    parts = min(4 * width, KERNELS_PARTS_MAX)  # small parts end at about the same time

    def run(k):
        return run_kernels_part("%d/%d" % (k, parts), environment, tiers, without)

    with concurrent.futures.ThreadPoolExecutor(width) as pool:
        for part in pool.map(run, range(parts)):
            count.add(part)
    return count


def run_kernels_part(part, environment, tiers, without):
    """Runs one part of the kernels, and prints its output without the lines of kernels that
    pass."""
    count = Count()
    every = EVERY if BUILD.name == "address" or EMULATOR else "1"
    every = os.environ.get("QK_TEST_EVERY", every)
    options = [word for tier in without for word in ("--except", " " + tier)]
    process = subprocess.Popen([*EMULATOR, str(BUILD / "check-kernels"), "--part", part, "--every",
                                every, *options],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace",
                               env=dict(os.environ, **environment))
    summary = None
    passed = "none"
    first_case = ""  # the first case that failed of the current kernel
    kernels = []
    for line in process.stdout:
        if line.startswith("FAIL ") and ", case " in line:
            first_case = first_case or line
        elif line.startswith("FAIL "):
            kernels.append(first_case or line)
            first_case = ""
        if line.startswith("ok "):
            passed = " ".join(line.split()[1:3])
        elif (found := SUMMARY.match(line)) is not None:
            summary = found
        else:
            print("  %s: %s" % (part, line), end="", flush=True)
        tiers.read(line)
    status = process.wait()
    if summary is not None:
        count.passed, count.failed = int(summary[1]), int(summary[2])
    if summary is None or (status != 0 and count.failed == 0):
        failures.say("check-kernels", "part %s %s, %s; the last kernel that passed: %s"
                     % (part, ending(status), "before it was done" if summary is None
                        else "although no kernel failed", passed))
        count.failed += 1
    for case in kernels:
        failures.say("check-kernels", case)
    return count


class Result(unittest.TestResult):
    """Prints failures as they come, and one line for each class."""

    def __init__(self):
        super().__init__()
        self.count = Count()
        self.current = None
        self.started = 0.0
        self.in_class = Count()
        self.broken = False  # true if a sub-test of the running test failed

    def startTest(self, test):
        super().startTest(test)
        self.enter("%s.%s" % (type(test).__module__, type(test).__name__))
        self.broken = False

    def enter(self, name):
        if name != self.current:
            self.leave()
            self.current = name
            self.started = time.monotonic()

    def leave(self):
        if self.current is not None:
            passed, failed = self.in_class.passed, self.in_class.failed
            seconds = time.monotonic() - self.started
            mark = "FAIL" if failed else "ok"
            print("  %-4s %-44s %4d of %-4d %6.1f s"
                  % (mark, self.current, passed, passed + failed, seconds), flush=True)
        self.count.add(self.in_class)
        self.in_class = Count()
        self.current = None

    def note_failure(self, test, trace):
        self.in_class.failed += 1
        failures.say(test, failures.reason_of(trace[1]),
                     "".join(traceback.format_exception(*trace)))

    def addSuccess(self, test):
        if not self.broken:
            self.in_class.passed += 1

    def addSubTest(self, test, subtest, outcome):
        if outcome is not None:
            self.broken = True
            self.note_failure(subtest, outcome)

    def addFailure(self, test, err):
        self.note_failure(test, err)

    def addError(self, test, err):
        self.note_failure(test, err)  # also for setUpClass and tearDownClass

    def addExpectedFailure(self, test, err):
        self.note_failure(test, err)

    def addUnexpectedSuccess(self, test):
        self.in_class.failed += 1
        failures.say(test, "unexpected success")

    def addSkip(self, test, reason):
        self.in_class.skipped.append((test.id(), reason))


def classes(suite):
    """Yields suites of one class each, so that a class is torn down before the next is set up."""
    parts = list(suite)
    if not any(isinstance(part, unittest.TestSuite) for part in parts):
        yield suite
        return
    for part in parts:
        yield from classes(part if isinstance(part, unittest.TestSuite)
                           else unittest.TestSuite([part]))


def run_class(suite):
    """Runs the tests of one class. Returns how many passed and failed."""
    result = Result()
    suite.run(result)
    result.in_class.failed += end_left_over(result.current or suite)
    result.leave()
    return result.count


def e2e_jobs(patterns):
    """Returns a job for each class of tests under tests/e2e."""
    paths = sorted([*E2E.glob("test_*.py"), *E2E.glob("*/test_*.py")])
    sys.path[:0] = map(str, [E2E, *sorted({path.parent for path in paths} - {E2E})])
    modules = [path.stem for path in paths]
    loader = unittest.TestLoader()
    if patterns != [""]:
        if not all(pattern.split(".")[0] in modules for pattern in patterns):
            return []
        modules = patterns
    suite = unittest.TestSuite(map(loader.loadTestsFromName, modules))
    for error in loader.errors:
        print(error)
    jobs = []
    for part in classes(suite):
        if part.countTestCases() > 0:
            kind = type(next(iter(part)))
            jobs.append(Job("%s.%s" % (kind.__module__, kind.__name__),
                            functools.partial(run_class, part)))
    return jobs


# ---- All together ----------------------------------------------------------------------------

# Tests of a running server mostly wait for a socket, a deadline or a process. Unit tests and the
# kernel checker compute. They run beside the server tests, with a lower priority, and take the CPU
# time that is left.
COMPUTING_NICE = 5
# How many classes run at a time: each may have a server of some hundred megabytes.
E2E_WIDTH_MAX = 16
SLOWEST_SHOWN = 6
# A class that has never run here may be long, so it starts among the first.
UNKNOWN_S = 5.0


def read_seconds():
    """Returns how long each class took the last time: name -> seconds."""
    try:
        return dict(json.loads((BUILD / "test-seconds.json").read_text()))
    except (OSError, ValueError):
        return {}


def write_seconds(seconds):
    path = BUILD / "test-seconds.json"
    new = path.with_suffix(".%d" % os.getpid())
    new.write_text(json.dumps(seconds, indent=0, sort_keys=True))
    new.replace(path)


def run_jobs(computing, e2e):
    """Runs both kinds of jobs side by side. Returns the sum of their counts."""
    total = Count()
    known = read_seconds()
    for job in e2e:
        job.expected_s = known.get(job.name, UNKNOWN_S)
    jobs = computing + e2e
    if len(jobs) == 1:
        jobs[0].run_here()
        ended = jobs
    else:
        width = min(2 * len(os.sched_getaffinity(0)), E2E_WIDTH_MAX)
        ended = run_all([Lane(e2e, width), Lane(computing, 1, COMPUTING_NICE)])
    for job in ended:
        if job.result is not None:
            total.add(job.result)
        else:
            failures.say(job.name, "its process %s before it was done" % job.ending)
            total.failed += 1
    if len(jobs) > 1:  # children of a job that was killed itself
        total.failed += end_left_over("run_tests")
    if e2e:
        write_seconds(known | {job.name: round(job.seconds, 1) for job in e2e})
    if len(e2e) > SLOWEST_SHOWN:
        slowest = sorted(e2e, key=lambda job: -job.seconds)[:SLOWEST_SHOWN]
        print("slowest: " + ", ".join("%s %.1f s" % (job.name, job.seconds) for job in slowest))
    return total


def timed(name, run):
    """Runs one kind of tests, and prints how many passed and how long they took. Returns the
    counts."""
    started = time.monotonic()
    print("%s tests:" % name, flush=True)
    count = run()
    print("%s tests: %d passed, %d failed, %d skipped in %.1f s"
          % (name, count.passed, count.failed, len(count.skipped),
             time.monotonic() - started), flush=True)
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, kinds in KINDS.items():
        parser.add_argument("--" + name, dest="kinds", action="store_const", const=kinds,
                            help="only " + ", ".join(kinds))
    parser.add_argument("pattern", nargs="?", default="")
    options = parser.parse_args()
    adopt_orphans()
    kinds = options.kinds or ("unit", "kernel", "e2e")
    masked = options.kinds == KINDS["masked"]
    patterns = MASKED if masked else SHORT if options.kinds == KINDS["short"] else [options.pattern]
    unit_pattern = options.pattern
    if masked and os.environ.get("QK_TEST_EVERY", "1") != "1":
        unit_pattern = kernel_suites()
    if options.pattern:
        is_criterion = "/" in options.pattern or "*" in options.pattern
        kinds = {"unit" if is_criterion else "e2e"}.intersection(kinds)
    elif BUILD.name == "thread":  # the kernels start no threads, and run long under ThreadSanitizer
        kinds = set(kinds) - {"kernel"}

    started = time.monotonic()
    runs = {"unit": lambda: run_unit(unit_pattern), "kernel": run_kernels}
    computing = [Job("%s tests" % kind, functools.partial(timed, kind, run))
                 for kind, run in runs.items() if kind in kinds]
    total = run_jobs(computing, e2e_jobs(patterns) if "e2e" in kinds else [])
    for name, reason in total.skipped:
        print("skipped: %s: %s" % (name, reason))
    if total.passed + total.failed == 0:
        print("no test is called '%s': a Criterion pattern has a slash or a star, as in 'conv/*', "
              "and a Python test is module.Class.test" % options.pattern)
        total.failed += 1
    print("took %.1f s, and %.1f s of CPU time" % (time.monotonic() - started, cpu_seconds()))
    print("%d passed, %d failed" % (total.passed, total.failed))
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
