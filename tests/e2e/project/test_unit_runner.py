"""The runner of the unit tests, tests/support/run_forked.c, with tests of its own."""
import subprocess
import tempfile
import unittest
from pathlib import Path

from quantd import COMPILER, ROOT, unless_emulated

# The second test fails on a thread while its other thread waits for ever. So did tests whose
# libuv threads waited: Criterion's runner then lost the results of all tests.
TESTS = r"""
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

static int begun;

static void begin(void)
{
    begun = 1;
}

TestSuite(a, .init = begin);

Test(a, passes)
{
    cr_assert_eq(begun, 1);
}

static void *fail(void *none)
{
    cr_assert_eq(1, 2, "no %s", "luck");
    return none;
}

Test(a, fails_on_a_thread)
{
    pthread_t thread;
    pthread_create(&thread, NULL, fail, NULL);
    for (;;)
        pause();
}

Test(a, goes_on)
{
    cr_expect(0, "first");
    cr_expect(0, "second");
}

Test(b, skips_itself)
{
    cr_skip_test("it lacks a %s", "spoon");
}

Test(b, aborts, .signal = SIGABRT)
{
    abort();
}

Test(b, dies)
{
    raise(SIGKILL);
}
"""


@unless_emulated("the compiler's programs run on another machine")
class Runner(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        (cls.folder / "tests.c").write_text(TESTS)
        subprocess.run([*COMPILER, "-o", cls.folder / "tests", cls.folder / "tests.c",
                        ROOT / "tests/support/run_forked.c", "-lcriterion", "-lpthread"],
                       check=True)

    def run_tests(self, *options):
        """Returns the exit status, what the tests wrote, and the report's lines."""
        report = self.folder / "report"
        result = subprocess.run([self.folder / "tests", "--tap=%s" % report, *options],
                                stderr=subprocess.PIPE, text=True, check=False)
        return result.returncode, result.stderr, report.read_text().splitlines()

    def test_each_test_has_its_result(self):
        status, said, report = self.run_tests()
        self.assertEqual(status, 1)
        self.assertTrue(said.endswith("2 passed, 3 failed\n"), said)
        self.assertEqual(sorted(line for line in report if line[0] != " "), [
            "not ok - a::fails_on_a_thread exit status 1", "not ok - a::goes_on exit status 1",
            "not ok - b::dies signal 9", "ok - a::passes", "ok - b::aborts",
            "ok - b::skips_itself  # SKIP it lacks a spoon"])
        for text in ("no luck", "first", "second"):
            self.assertTrue(any(text in line for line in report if line[0] == " "), report)

    def test_a_pattern(self):
        status, _, report = self.run_tests("--filter", "@(b|c)/@(aborts|skips*)")
        self.assertEqual((status, len(report)), (0, 2), report)

    def test_a_pattern_of_no_test(self):
        status, said, _ = self.run_tests("--filter", "a::passes")
        self.assertEqual(status, 1)
        self.assertIn('expected a pattern of SUITE/TEST, got "a::passes"', said)

    def test_fail_fast(self):
        status, _, report = self.run_tests("--fail-fast")
        self.assertEqual(status, 1)
        self.assertTrue(any(line.startswith("not ok") for line in report), report)


if __name__ == "__main__":
    unittest.main()
