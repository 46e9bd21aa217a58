"""build/measure at the other end of a pipe; measure/measure.c is its manual."""
import os
import subprocess
from pathlib import Path

from tensors import OPSET

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / os.environ.get("B", "build")
EMULATOR = os.environ.get("EMULATOR", "").split()  # of another machine, to see that it works
FILES = Path("build") / "bench"  # below ROOT


class Libqk:
    def __init__(self, cpu):
        (ROOT / FILES).mkdir(parents=True, exist_ok=True)
        self.process = subprocess.Popen([*EMULATOR, BUILD / "measure", cpu], cwd=ROOT, text=True,
                                        bufsize=1, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.tier, self.width, self.core, *self.gemms = self.answer()
        self.copies = {}

    @staticmethod
    def give(x):
        """Of which the rows' x are the beginnings."""
        (ROOT / FILES / "x").write_bytes(x)

    def say(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("bench: %s ended with status %d" % (BUILD / "measure",
                                                                 self.process.wait()))
        return line.split()

    def prepare(self, row):
        """Plans the row, and returns what plan() does."""
        self.say("call", row.model, OPSET)
        for name, value in row.attributes.items():
            if isinstance(value, list):
                self.say("ints", name, ",".join(map(str, value)))
            else:
                self.say("int", name, value)
        for name, datatype, shape, raw in row.inputs:
            path = FILES / name
            if raw is not None:
                (ROOT / path).write_bytes(raw)
            self.say("input", name, datatype, path,
                     *([",".join(map(str, shape))] if shape else []))
        return self.plan(row.threads, row.gemm)

    def plan(self, threads, gemm):
        """What measure.c says of it: nanoseconds as guessed, bytes, counts."""
        self.say("plan", threads, gemm)
        kernel, *numbers = self.answer()
        names = ("units", "unit_ns", "pack_units", "pack_unit_ns", "slices", "read", "written",
                 "constant", "resident", "workspace")
        return {"kernel": kernel, **dict(zip(names, map(int, numbers)))}

    def peak(self, name):
        """How many operations the measure of that name makes; 0: this CPU has none."""
        self.say("peak", name)
        return int(self.answer()[0])

    def copy(self, threads):
        """Bytes in a nanosecond that so many threads copy from memory to memory: measured once."""
        if threads not in self.copies:
            self.say("copy", threads)
            count, ns = map(float, self.answer())
            self.copies[threads] = count / ns
        return self.copies[threads]

    def regions_ns(self, x, y, threads):
        """Of moving as many bytes from one file in memory to the other: region.h."""
        self.say("regions", x, y, threads)
        return float(self.answer()[0])

    def handover(self, threads, work_ns, unit_ns):
        """{alone, all, again, wake, counted}, in nanoseconds."""
        self.say("handover", threads, work_ns, unit_ns)
        return dict(zip(("alone", "all", "again", "wake", "counted"), map(float, self.answer())))

    def echo(self, request_bytes, answer_bytes, threads=1, address="0"):
        """The port of a server that only takes and gives so many, until the next one; 0 where the
        address is the path of a Unix socket."""
        self.say("echo", request_bytes, answer_bytes, threads, address)
        return int(self.answer()[0])

    def constant(self, path):
        """The port of libmicrohttpd, which always answers what is in the file, until the next."""
        self.say("constant", path)
        return int(self.answer()[0])

    def exchange(self, address, connections, ms, path, rate=0):
        """(answers in a second, p50 and p99 in nanoseconds) to what is in the file, asked at a
        port or at the path of a Unix socket; with a rate, of requests that come so often."""
        self.begin_exchange(address, connections, ms, path, rate)
        return self.end_exchange()

    def begin_exchange(self, address, connections, ms, path, rate=0):
        """It goes on beside what the caller does until end_exchange."""
        self.say("exchange", address, connections, ms, path, rate)

    def end_exchange(self):
        count, ns, p50, p99 = map(float, self.answer())
        return count / ns * 1e9, p50, p99

    def numbers(self, task, kind, count, library):
        """(bytes, whether the server does it right) of the text of these numbers, of which
        numbers.h says more."""
        self.say("numbers", task, kind, count, library)
        size, same = self.answer()
        return int(size), same == "1"

    def numbers_round(self, names):
        """Name -> nanoseconds, of those that are there."""
        self.say("numbers-round", *names)
        return {name: float(ns) for name, ns in zip(names, self.answer()) if float(ns) > 0}

    def numbers_check(self, library, first, last):
        """How many of the floats from bits to bits are printed wrong."""
        self.say("numbers-check", library, first, last)
        return int(self.answer()[0])

    def round(self, *measures):
        """Measure -> nanoseconds."""
        self.say("round", *measures)
        return dict(zip(measures, map(float, self.answer())))

    def output(self):
        """The bytes of y, of one more run."""
        self.say("save", FILES / "y")
        self.answer()
        return (ROOT / FILES / "y").read_bytes()

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
