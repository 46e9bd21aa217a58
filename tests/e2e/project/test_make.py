"""What make prints for a user who has just cloned the repository."""
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from quantd import ROOT

# For a make that is not a part of the one that runs these tests.
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "EMULATOR", "QK_CPU",
                               "QK_TEST_EVERY")}

# Replaces the Criterion program: one test, which passes.
UNIT_TESTS = """for word; do case $word in --tap=*) report=${word#--tap=};; esac; done
echo 'ok - a::b  (0.00s)' >"$report"
"""

# Criterion's own output for failures, which escapes nothing.
FAILURES = UNIT_TESTS + """cat >>"$report" <<'END'
not ok - a::c  (0.00s)
  ---
  assertions: 1
  failures:
  - test_a.c:7: |+
      Assertion failed: got "name": "x", "status": "PASSED"
      ok - a::fake  (0.00s)
  ...
not ok - d::e unexpected signal after test_d.c:5
not ok - d::f timed out (1.06s)
ok - d::g  # SKIP no "g" here
END
exit 1
"""


def run(*command, **environment):
    return subprocess.run(command, cwd=ROOT, env=ENVIRONMENT | environment, text=True,
                          capture_output=True, timeout=60, check=False)


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


LEAVES_ONE = """import subprocess, unittest
class Test(unittest.TestCase):
    @classmethod
    def tearDownClass(cls):
        print("taken down")
    def test(self):
        subprocess.run(["sh", "-c", "sleep 1000 &"], check=True)
class Next(unittest.TestCase):
    def test(self):
        pass
"""


DIES = """import os, signal, unittest
class Test(unittest.TestCase):
    def test(self):
        print("about to die")
        os.kill(os.getpid(), signal.SIGKILL)
class Next(unittest.TestCase):
    def test(self):
        pass
"""

TALK = """import os, sys, time, unittest
class Test%d(unittest.TestCase):
    def test(self):
        for line in range(20):
            print("%d says", line)
            sys.stdout.flush()
            os.write(2, b"%d says more\\n")
            time.sleep(0.001)
"""


class EndToEnd(unittest.TestCase):
    """The output for test classes, each of which has a process of its own."""

    def run_tests(self, **modules):
        program = ("import pathlib, sys; sys.path.insert(0, 'tests/support'); import run_tests; "
                   "run_tests.E2E, run_tests.GRACE_S = pathlib.Path(sys.argv.pop()), 0.1; "
                   "sys.exit(run_tests.main())")
        with tempfile.TemporaryDirectory() as folder:
            for name, text in modules.items():
                (Path(folder) / (name + ".py")).write_text(text)
            return run("env", "B=" + folder, sys.executable, "-c", program, "--e2e", folder)

    def test_a_process_that_is_left_behind_is_a_failure(self):
        result = self.run_tests(test_left=LEAVES_ONE)
        self.assertRegex(result.stdout, r"\n---- FAILED test_left.Test: left a process behind: "
                                        r"\d+ sleep 1000")
        self.assertEqual(result.stdout.count("taken down"), 1)
        self.assertTrue(result.stdout.endswith("\n2 passed, 1 failed\n"), result.stdout)

    def test_a_class_that_ends_the_process_is_a_failure(self):
        result = self.run_tests(test_dies=DIES)
        self.assertIn("\n---- FAILED test_dies.Test: its process was ended by SIGKILL before it "
                      "was done\n", result.stdout)
        self.assertEqual(result.returncode, 1)
        self.assertTrue(result.stdout.endswith("\n1 passed, 1 failed\n"), result.stdout)

    def test_what_a_class_prints_stays_together(self):
        result = self.run_tests(**{"test_%d" % i: TALK % (i, i, i) for i in range(8)})
        said = [line.split()[0] for line in result.stdout.splitlines() if " says" in line]
        self.assertEqual(len(said), 8 * 40)
        self.assertEqual(sum(a != b for a, b in zip(said, said[1:])), 7)
        self.assertTrue(result.stdout.endswith("\n8 passed, 0 failed\n"), result.stdout)


class UnitTests(unittest.TestCase):
    """The output for unit tests, and for a kernel checker that does not run to its end."""

    def run_tests(self, script, unit_tests=UNIT_TESTS, **environment):
        """Runs unit tests that pass, and a kernel checker whose first part is this script."""
        script = "case $2 in 0/*) ;; *) echo 0 passed, 0 failed; exit;; esac\n" + script
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("check-kernels", script), ("unit-tests", unit_tests)):
                path = Path(folder) / name
                path.write_text("#!/bin/sh\n" + text)
                path.chmod(0o755)
            return run("env", "B=" + folder, sys.executable, "tests/support/run_tests.py",
                       "--unit", **environment)

    def test_killed(self):
        result = self.run_tests("echo check-kernels --seed 7\n"
                                "echo 'ok   gemm/dot   amx   9 cases'\nkill -SEGV $$\n")
        self.assertRegex(result.stdout, r"  0/\d+: check-kernels --seed 7\n\n"
                         r"---- FAILED check-kernels: part 0/\d+ was ended by SIGSEGV, before it "
                         r"was done; the last kernel that passed: gemm/dot amx\n")
        self.assertTrue(result.stdout.endswith("\n1 passed, 1 failed\n"), result.stdout)

    def test_a_report_of_a_sanitizer(self):
        result = self.run_tests("echo 'ERROR: AddressSanitizer' >&2\nexit 1\n")
        self.assertRegex(result.stdout, r"  0/\d+: ERROR: AddressSanitizer\n\n"
                         r"---- FAILED check-kernels: part 0/\d+ exited with 1, before it was "
                         r"done; the last kernel that passed: none\n")

    def test_a_kernel_that_fails(self):
        result = self.run_tests("echo 'FAIL dot of amx, case 3: 1 is not 2'\n"
                                "echo 'FAIL dot of amx, case 4: 2 is not 3'\n"
                                "echo 'FAIL dot  amx  9 cases, 2 or more failed'\n"
                                "echo 0 passed, 1 failed\nexit 1\n")
        self.assertIn("\n---- FAILED check-kernels: FAIL dot of amx, case 3: 1 is not 2\n",
                      result.stdout)
        self.assertEqual(result.stdout.count("---- FAILED"), 1)

    def test_tiers_of_a_mask(self):
        ran = "echo 'Tiers that ran: scalar; %s'\necho 3 passed, 0 failed\n"
        result = self.run_tests(ran % "avx2; avx512bw", QK_CPU="skylakex")
        self.assertTrue(result.stdout.endswith("\n5 passed, 0 failed\n"), result.stdout)
        for tiers, listed in (("avx2", "'avx2', 'scalar'"),
                              ("avx2; avx512bw; avx512vnni",
                               "'avx2', 'avx512bw', 'avx512vnni', 'scalar'")):
            result = self.run_tests(ran % tiers, QK_CPU="skylakex")
            self.assertIn("\n---- FAILED check-kernels: with QK_CPU=skylakex ran the tiers [%s], "
                          "expected ['avx2', 'avx512bw', 'scalar']\n" % listed, result.stdout)
            self.assertTrue(result.stdout.endswith("\n4 passed, 1 failed\n"), result.stdout)

    def test_something_after_the_end(self):
        result = self.run_tests("echo 3 passed, 0 failed\necho more\nexit 23\n")
        self.assertRegex(result.stdout, r"FAILED check-kernels: part 0/\d+ exited with 23, "
                         r"although no kernel failed")
        self.assertTrue(result.stdout.endswith("\n4 passed, 1 failed\n"), result.stdout)

    def test_failures_whose_messages_have_quotes(self):
        result = self.run_tests("echo 3 passed, 0 failed\n", FAILURES)
        self.assertEqual((result.returncode, result.stderr), (1, ""))
        for line in ("a/c: - test_a.c:7: |+ | Assertion failed: got "
                     "\"name\": \"x\", \"status\": \"PASSED\" | ok - a::fake (0.00s)",
                     "d/e: unexpected signal after test_d.c:5", "d/f: timed out (1.06s)"):
            self.assertIn("\n---- FAILED %s\n" % line, result.stdout)
        self.assertIn("\nskipped: d/g: no \"g\" here\n", result.stdout)
        self.assertTrue(result.stdout.endswith("\n4 passed, 3 failed\n"), result.stdout)

    def test_unit_tests_that_do_not_begin(self):
        result = self.run_tests("echo 3 passed, 0 failed\n", "kill -SEGV $$\n")
        self.assertIn("FAILED unit-tests: was ended by SIGSEGV before it ran any test\n",
                      result.stdout)
        self.assertTrue(result.stdout.endswith("\n3 passed, 1 failed\n"), result.stdout)

    def test_nothing(self):
        self.assertRegex(self.run_tests("exit 0\n").stdout,
                         r"FAILED check-kernels: part 0/\d+ exited with 0, before it was done")


# Replaces run_tests.py: prints the output of each machine's run, and exits with its status.
RUNS = """import os, sys
machine = os.environ["QK_CPU"]
print("every %s of %s" % (os.environ.get("QK_TEST_EVERY"), machine))
if machine == "zen2":
    print("---- FAILED a/b: 1 is not 2")
if machine != "sapphirerapids":
    print("7 passed, %d failed" % (machine == "zen2"))
sys.exit(machine in ("zen2", "sapphirerapids"))
"""


class Cpus(unittest.TestCase):
    """Runs under CPU masks."""

    def run_cpus(self, *options, machines="haswell\\nzen2\\nskylakex: this CPU lacks avx512\\n"
                 "sapphirerapids"):
        program = ("import sys; sys.path.insert(0, 'tests/support'); import run_cpus; "
                   "run_cpus.RUN_TESTS = sys.argv.pop(1); sys.exit(run_cpus.main())")
        with tempfile.TemporaryDirectory() as folder:
            checker, runs = Path(folder) / "check-kernels", Path(folder) / "runs.py"
            checker.write_text("#!/bin/sh\ntest \"$*\" = --machines && printf '%s'\n" % machines)
            checker.chmod(0o755)
            runs.write_text(RUNS)
            return run(sys.executable, "-c", program, str(runs), *options, B=folder)

    def test_each_machine_is_run_or_skipped_by_name(self):
        result = self.run_cpus()
        self.assertEqual((result.returncode, result.stderr), (1, ""))
        for line in ("==== QK_CPU=haswell", "every None of haswell",
                     "---- FAILED QK_CPU=zen2: a/b: 1 is not 2",
                     "skipped: QK_CPU=skylakex: this CPU lacks avx512",
                     "---- FAILED QK_CPU=sapphirerapids: the tests exited with 1"):
            self.assertIn("\n%s\n" % line, "\n" + result.stdout)
        self.assertTrue(result.stdout.endswith("\n14 passed, 2 failed, 1 skipped\n"), result.stdout)

    def test_some_machines(self):
        result = self.run_cpus("--short",
                               machines="haswell\\nzen2\\nskylakex\\ncascadelake\\nicelake")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertRegex(result.stdout, r"\nevery \d+ of cascadelake\n")
        self.assertTrue(result.stdout.endswith("\n28 passed, 0 failed\n"), result.stdout)
        self.assertEqual(self.run_cpus("haswell").returncode, 0)
        result = self.run_cpus("pentium")
        self.assertIn("\n---- FAILED QK_CPU=pentium: expected one of haswell, zen2, skylakex, "
                      "sapphirerapids\n", result.stdout)
        self.assertTrue(result.stdout.endswith("\n0 passed, 1 failed\n"), result.stdout)

    def test_no_machine_on_an_arm(self):
        result = self.run_cpus("--short", machines="")
        self.assertEqual(result.returncode, 0)
        self.assertTrue(result.stdout.endswith("\n0 passed, 0 failed, 4 skipped\n"), result.stdout)


if __name__ == "__main__":
    unittest.main()
