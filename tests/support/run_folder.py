#!/usr/bin/env python3
"""Runs the Python tests of a folder under tests/ and counts them: run_folder.py FOLDER [NAME]

NAME picks some of them, such as "test_document" or "test_registry.Inputs.test_datatypes". The last
line is "N passed, N failed". The environment variable B is the build directory (default: build).
"""
import sys
import unittest
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
FOLDER = TESTS / sys.argv[1]
sys.path += [str(FOLDER), str(TESTS / "e2e")]

import failures  # noqa: E402  (beside this file)
from run_tests import Result  # noqa: E402


def main():
    loader = unittest.TestLoader()
    name = sys.argv[2] if len(sys.argv) > 2 else ""
    suite = loader.loadTestsFromName(name) if name else loader.discover(str(FOLDER))
    result = Result()
    suite.run(result)
    result.leave()
    count = result.count
    if count.passed + count.failed == 0:
        failures.say(name or str(FOLDER), "there is no such test")
        count.failed += 1
    for name, reason in count.skipped:
        print("skipped: %s: %s" % (name, reason))
    print("%d passed, %d failed" % (count.passed, count.failed))
    return 1 if count.failed else 0


if __name__ == "__main__":
    sys.exit(main())
