"""The script of `make demo`, and its picture computed again by a naive convolution."""
import os
import re
import shutil
import subprocess
import unittest

import oracle
from quantd import BUILD, ROOT, SLOW

KERNELS = ((0, -1, 0, -1, 5, -1, 0, -1, 0), (-2, -1, 0, -1, 1, 1, 0, 1, 2),
           (-1, -1, -1, -1, 8, -1, -1, -1, -1))
SCALES = (1.0, 1.0, 2.0)
SIZE = 256
ROW = 3 * SIZE


@unittest.skipIf(shutil.which("curl") is None, "curl is not installed")
class Demo(unittest.TestCase):
    def test_demo(self):
        script = str(ROOT / "tests" / "demo" / "demo.sh")
        result = subprocess.run([script], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                timeout=60 * SLOW, check=False,
                                env=dict(os.environ, B=os.path.relpath(BUILD, ROOT)))
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        for words in ("63.5", "sharpened", "total", "300", "ended with status 0"):
            self.assertIn(words, result.stdout)
        bars = re.findall(r"^    [a-z]+ +\d+\.\d{3} ms", result.stdout, re.MULTILINE)
        self.assertEqual(len(bars), 6)
        picture = (BUILD / "demo" / "cat.ppm").read_bytes()
        self.assertTrue(picture.startswith(b"P6\n256 1024\n255\n"))
        pixels = picture[len(b"P6\n256 1024\n255\n"):]
        self.assertEqual(len(pixels), 4 * SIZE * ROW)
        photo = pixels[:SIZE * ROW]
        # A prime step visits all rows, columns and colours, and takes seconds instead of minutes.
        for place in range(0, SIZE * ROW, 97):
            for channel, kernel in enumerate(KERNELS):
                want = self.filtered(photo, divmod(place, ROW), kernel, SCALES[channel])
                self.assertEqual(pixels[(channel + 1) * SIZE * ROW + place], want, (channel, place))

    def filtered(self, photo, at, kernel, scale):
        """Returns one colour of one filtered pixel. Neighbours of the same colour are three bytes
        apart."""
        total = 0
        for tap, weight in enumerate(kernel):
            row, column = at[0] + tap // 3 - 1, at[1] + 3 * (tap % 3 - 1)
            if 0 <= row < SIZE and 0 <= column < ROW:
                total += weight * (photo[row * ROW + column] - 128)
        return oracle.requantize(total, oracle.fl32(0.003921569), scale, oracle.fl32(0.003921569),
                                 128, "UINT8")


if __name__ == "__main__":
    unittest.main()
