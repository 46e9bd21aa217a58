"""docker/scale.md: runs the page's blocks that measure one server and compute the number of
replicas."""
import re
import shutil
import subprocess
import unittest

from pages import blocks
from quantd import BUILD, ROOT


@unittest.skipIf(BUILD != ROOT / "build", "the page's program is build/quantd")
@unittest.skipIf(shutil.which("curl") is None, "curl is not installed")
class Page(unittest.TestCase):
    def test_how_many(self):
        measure, count = [block.code for block in
                          blocks((ROOT / "docker" / "scale.md").read_text())]
        self.assertIn("\nwritten: ", self.run_block(measure))
        said = re.fullmatch(r"one: (\d+) requests/s, replicas: (\d+)\n", self.run_block(count))
        one, replicas = int(said[1]), int(said[2])
        peak = int(re.search(r"peak=(\d+)", count)[1])
        # The replicas are enough if one is away, and none is superfluous. `one` is printed as an
        # integer.
        self.assertGreaterEqual((replicas - 1) * 0.7 * (one + 1), peak)
        self.assertLess((replicas - 2) * 0.7 * one, peak)

    def run_block(self, code):
        result = subprocess.run(["sh", "-euc", code], cwd=ROOT, stdin=subprocess.DEVNULL,
                                capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout


if __name__ == "__main__":
    unittest.main()
