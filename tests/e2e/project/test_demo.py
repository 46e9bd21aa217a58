"""The script of `make demo`, its picture computed again by a naive convolution, and its network
asked in other ways."""
import os
import re
import shutil
import struct
import subprocess
import unittest

import oracle
from examples import LENGTH
from quantd import BUILD, ROOT, SLOW, ServerTest, Tensor, binary_request, json_request

KERNELS = ((0, -1, 0, -1, 5, -1, 0, -1, 0), (-2, -1, 0, -1, 1, 1, 0, 1, 2),
           (-1, -1, -1, -1, 8, -1, -1, -1, -1))
SCALES = (1.0, 1.0, 2.0)
SIZE = 256
ROW = 3 * SIZE
DIGITS = ROOT / "tests" / "demo" / "digits"
HELD_OUT = 360


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
        self.check_digits(result.stdout)
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

    def check_digits(self, text):
        """Checks what the script says of digits, and the image that it draws first."""
        self.assertIn("held-out: %d of %d right; all %d answers are ONNX Runtime's bytes.\n"
                      % (right_answers(), HELD_OUT, HELD_OUT), text)
        number = 22
        image = struct.unpack_from("<64f", (DIGITS / "images.f32").read_bytes(), 256 * (number - 1))
        for row in range(8):
            drawn = "".join(2 * " .:-=+*#%@"[int(pixel * 9 / 16)]
                            for pixel in image[8 * row:8 * row + 8])
            self.assertRegex(text, "(?m)^    " + re.escape(drawn.rstrip()))
        self.assertIn("\n    written: %d" % labels()[number - 1], text)
        self.assertNotIn("\033", text)

        drawn = subprocess.run(["awk", "-v", "shown=%d 1" % number, "-v", "colours=yes", "-f",
                                str(DIGITS / "draw.awk"), str(DIGITS / "labels.txt"),
                                "images.txt", "scores.txt"], cwd=BUILD / "demo",
                               capture_output=True, check=True).stdout.decode()
        lines = [line for line in drawn.splitlines() if "▀" in line]
        self.assertEqual([line.count("▀") for line in lines], 8 * [2 * 16])
        greys = [int(grey) for grey in re.findall(r"[34]8;5;(\d+)", drawn)]
        self.assertEqual((len(greys), min(greys)), (8 * 2 * 32, 232))
        self.assertTrue(250 <= max(greys) <= 255)

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


def labels():
    return [int(line) for line in (DIGITS / "labels.txt").read_text().split()]


def right_answers():
    """Returns for how many images ONNX Runtime's highest score is that of the digit shown."""
    scores = struct.iter_unpack("<10f", (DIGITS / "scores.f32").read_bytes())
    return sum(row.index(max(row)) == label for row, label in zip(scores, labels(), strict=True))


class Digits(ServerTest):
    """The network of digits gives ONNX Runtime's bytes for each batch, in each form."""

    FLAGS = ("--model-repository", str(DIGITS / "models"))

    def images(self, first, count):
        raw = (DIGITS / "images.f32").read_bytes()[256 * first:256 * (first + count)]
        return Tensor("image", "FP32", [count, 1, 8, 8], raw)

    def check(self, first, count, body, headers):
        answer = self.server.infer("digits", body, headers=headers)
        self.assertEqual(answer.status, 200, answer.body[:1000])
        scores = (DIGITS / "scores.f32").read_bytes()[40 * first:40 * (first + count)]
        self.assertEqual(answer.outputs(), {"scores": ("FP32", [count, 10], scores)})

    def test_batches(self):
        for first, count in ((0, 1), (1, 2), (3, 3), (6, 17), (23, 64), (87, 273), (0, HELD_OUT)):
            with self.subTest(first=first, count=count):
                images = self.images(first, count)
                self.check(first, count, images.raw, {LENGTH: "0"})
                self.check(first, count, *binary_request([images]))
                self.check(first, count, json_request([images]), {})

    def test_accuracy(self):
        self.assertEqual(len(labels()), HELD_OUT)
        self.assertGreaterEqual(right_answers(), HELD_OUT * 97 // 100)


if __name__ == "__main__":
    unittest.main()
