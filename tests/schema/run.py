#!/usr/bin/env python3
"""Runs the tests of the schema and counts them: run.py [NAME]

NAME is a Python test, as "test_document" or "test_registry.Inputs.test_datatypes". The last line is
"N passed, N failed". The environment's B is the build directory (default: build).
"""
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parent / "e2e"), str(HERE.parent / "support")]

from run_tests import Result  # noqa: E402  (on the path just now)


def main():
    loader = unittest.TestLoader()
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    suite = loader.loadTestsFromName(name) if name else loader.discover(str(HERE))
    result = Result()
    suite.run(result)
    result.leave()
    for error in loader.errors:
        print(error)
    count = result.count
    if count.passed + count.failed == 0 or loader.errors:
        count.failed += 1
    print("%d passed, %d failed" % (count.passed, count.failed))
    return 1 if count.failed else 0


if __name__ == "__main__":
    sys.exit(main())
