#!/usr/bin/env python3
"""Runs the Python tests of a folder under tests/ and counts them: run_folder.py FOLDER [NAME]

NAME picks some of them, such as "test_document" or "test_registry.Inputs.test_datatypes". The last
line is "N passed, N failed". The environment variable B is the build directory (default: build).
"""
import functools
import os
import sys
import unittest
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
FOLDER = TESTS / sys.argv[1]
sys.path += [str(FOLDER), str(TESTS / "e2e")]

import failures  # noqa: E402  (beside this file)
from jobs import Job, Lane, adopt_orphans, run_all  # noqa: E402
from run_tests import Count, Result, classes, run_class  # noqa: E402

# Folders whose classes share nothing, so each runs in a process, one on each CPU.
SIDE_BY_SIDE = {"schema"}


def run_side_by_side(suite):
    """Returns the sum of the classes' counts. Classes with an EXPECTED_S start first."""
    adopt_orphans()
    count, jobs = Count(), []
    for part in classes(suite):
        if part.countTestCases() > 0:
            kind = type(next(iter(part)))
            jobs.append(Job("%s.%s" % (kind.__module__, kind.__name__),
                            functools.partial(run_class, part), getattr(kind, "EXPECTED_S", 0)))
    for job in run_all([Lane(jobs, len(os.sched_getaffinity(0)))]):
        if job.result is not None:
            count.add(job.result)
        else:
            failures.say(job.name, "its process %s before it was done" % job.ending)
            count.failed += 1
    return count


def run_here(suite):
    result = Result()
    suite.run(result)
    result.leave()
    return result.count


def main():
    loader = unittest.TestLoader()
    name = sys.argv[2] if len(sys.argv) > 2 else ""
    suite = loader.loadTestsFromName(name) if name else loader.discover(str(FOLDER))
    count = run_side_by_side(suite) if FOLDER.name in SIDE_BY_SIDE else run_here(suite)
    if count.passed + count.failed == 0:
        failures.say(name or str(FOLDER), "there is no such test")
        count.failed += 1
    for name, reason in count.skipped:
        print("skipped: %s: %s" % (name, reason))
    print("%d passed, %d failed" % (count.passed, count.failed))
    return 1 if count.failed else 0


if __name__ == "__main__":
    sys.exit(main())
