"""What make says to somebody who has just cloned."""
import os
import re
import subprocess
import sys
import unittest

from quantd import ROOT

# A make of its own: not a part of the one that runs these tests.
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}


def run(*command):
    return subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, text=True, capture_output=True,
                          timeout=60, check=False)


class Make(unittest.TestCase):
    def test_nothing_is_said_of_a_compiler_to_come(self):
        result = run("make", "-n", "CC=/no/such/cc", "help")
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_help_lists_every_target(self):
        makefile = (ROOT / "Makefile").read_text()
        phony = " ".join(re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE))
        shown = run("make", "help").stdout
        for target in set(phony.split()) - {"all", "always", "headers"}:
            self.assertIn(target, shown)

    def test_no_such_test(self):
        for name in ("nonsense", "nonsense.Class.test"):
            result = run(sys.executable, "tests/support/run_tests.py", name)
            self.assertEqual((result.returncode, result.stderr), (1, ""))
            self.assertIn("no test is called '%s'" % name, result.stdout)
            self.assertTrue(result.stdout.endswith("\n0 passed, 1 failed\n"), result.stdout)


if __name__ == "__main__":
    unittest.main()
