"""What .ci/run prints at its end if steps fail in different ways."""
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from quantd import ROOT

STEPS = sum(line.startswith(("step ", "begin "))
            for line in (ROOT / ".ci" / "run").read_text().splitlines())

# Replaces make: prints each step's output and returns its exit status, by target and flags.
MAKE = """#!/bin/sh
case "$*" in
%s
*) echo 1 passed, 0 failed;;
esac
"""


class Ci(unittest.TestCase):
    def run_with(self, **steps):
        """Runs .ci/run with a script in place of each of these steps. Returns the lines of its
        output."""
        cases = {"test": "test)", "lint": "lint)", "sanitize": "'test SAN=address')",
                 "threads": "'test SAN=thread')", "fuzz": "fuzz*)", "schema": "test-schema)"}
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / ".ci").mkdir()
            (Path(folder) / "bin").mkdir()
            shutil.copy(ROOT / ".ci" / "run", Path(folder) / ".ci" / "run")
            make = Path(folder) / "bin" / "make"
            make.write_text(MAKE % "\n".join("%s %s;;" % (cases[name], script)
                                             for name, script in steps.items()))
            make.chmod(0o755)
            path = "%s:%s" % (Path(folder) / "bin", os.environ["PATH"])
            result = subprocess.run([Path(folder) / ".ci" / "run"], capture_output=True, text=True,
                                    env=dict(os.environ, PATH=path), timeout=60, check=False)
        self.assertEqual(result.stderr, "")
        self.assertEqual(result.returncode, 1 if steps else 0)
        return result.stdout.splitlines()

    def test_all_is_well(self):
        lines = self.run_with()
        self.assertEqual(lines[-1], "%d passed, 0 failed" % STEPS)
        self.assertNotIn("==== What has failed:", lines)

    def test_each_failure_is_named_at_the_end(self):
        lines = self.run_with(
            test="printf '%s\\n' '---- FAILED a/b: 1 is not 2' more '7 passed, 1 failed'; exit 2",
            lint="echo cannot find it; exit 127",
            threads="exit 137",
            fuzz="echo '3 passed, 0 failed'; exit 1")
        begin = lines.index("==== What has failed:")
        self.assertEqual(lines[begin + 1:], [
            "test: a/b: 1 is not 2",
            "lint: cannot find it", "lint: exit status 127",
            "threads: exit status 137",
            "fuzz: 3 passed, 0 failed", "fuzz: exit status 1",
            "", "%d passed, 4 failed" % (STEPS - 4 + 7 + 3)])
        self.assertRegex("\n".join(lines), r"(?m)^ test: 7 passed, 1 failed, \d+ s$")

    def test_there_is_room_for_each_step(self):
        many = "for i in $(seq 500); do echo \"---- FAILED $i: $(seq -s ' ' 300)\"; done; " \
               "echo 0 passed, 500 failed; exit 1"
        lines = self.run_with(test=many, schema=many)
        end = lines[lines.index("==== What has failed:"):]
        self.assertLess(len(end), 60)
        self.assertLess(len("\n".join(end)), 10000)
        for step in ("test", "schema"):
            self.assertTrue([line for line in end if line.startswith(step + ": 1: 1 2 3 ")], end)
            self.assertIn("%s: and 475 more, see build/ci-%s.log" % (step, step), end)
        self.assertEqual(end[-1], "%d passed, 1000 failed" % (STEPS - 2))


if __name__ == "__main__":
    unittest.main()
