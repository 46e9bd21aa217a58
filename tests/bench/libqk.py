"""build/measure at the other end of a pipe; measure.c is its manual."""
import os
import subprocess
from pathlib import Path

from rows import OPSET

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / os.environ.get("B", "build")
FILES = Path("build") / "bench"  # below ROOT


class Libqk:
    def __init__(self, cpu, x):
        (ROOT / FILES).mkdir(parents=True, exist_ok=True)
        (ROOT / FILES / "x").write_bytes(x)
        self.process = subprocess.Popen([BUILD / "measure", cpu], cwd=ROOT, text=True, bufsize=1,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.tier, self.width = self.answer()

    def say(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("bench: %s ended with status %d" % (BUILD / "measure",
                                                                 self.process.wait()))
        return line.split()

    def prepare(self, row):
        """Plans the row, and returns (kernel, units, bytes read, bytes written)."""
        shape, scale_shape, attributes = row.shapes
        self.say("call", "onnx.DequantizeLinear", OPSET)
        for name, number in attributes.items():
            self.say("int", name, number)
        self.tensor("x", row.x, shape)
        self.tensor("x_scale", row.y, scale_shape, row.scales())
        zero_points = row.zero_points()
        if zero_points is not None:
            self.tensor("x_zero_point", row.x, scale_shape, zero_points)
        self.say("plan", row.threads)
        kernel, *numbers = self.answer()
        units, read, written, _ = map(int, numbers)
        return kernel, units, read, written

    def tensor(self, name, datatype, shape, raw=None):
        path = FILES / name
        if raw is not None:
            (ROOT / path).write_bytes(raw)
        self.say("input", name, datatype, path, *([",".join(map(str, shape))] if shape else []))

    def round(self, *measures):
        """Measure -> nanoseconds."""
        self.say("round", *measures)
        return dict(zip(measures, map(float, self.answer())))

    def sum(self):
        self.say("sum")
        return int(self.answer()[0])

    def huge_share(self):
        """How much of its memory is on huge pages, or None."""
        try:
            text = Path("/proc/%d/smaps_rollup" % self.process.pid).read_text()
        except OSError:
            return None
        sizes = {line.split(":")[0]: int(line.split()[1]) for line in text.splitlines()[1:]}
        return sizes["AnonHugePages"] / sizes["Rss"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
