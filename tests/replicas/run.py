#!/usr/bin/env python3
"""Tests replicas behind the shipped HAProxy: run.py [NAME | --throughput]

Runs the tests of this folder, or the test of that name, such as test_loss.UnderLoad. The last line
is "N passed, N failed". --throughput measures instead, and writes docker/scale.md. The environment
variable B is the build directory (default: build).
"""
import os
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path += [str(TESTS / "e2e"), str(TESTS / "support")]

import fleet  # noqa: E402,F401  (exits if there is no haproxy)
import throughput  # noqa: E402


def main():
    if sys.argv[1:] == ["--throughput"]:
        throughput.main()
        return
    runner = str(TESTS / "support" / "run_folder.py")
    os.execv(sys.executable, [sys.executable, runner, "replicas", *sys.argv[1:]])


if __name__ == "__main__":
    main()
