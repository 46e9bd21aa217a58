"""Runs build/measure and talks to it over a pipe. measure/measure.c documents the commands."""
import os
import subprocess
from pathlib import Path

from tensors import OPSET

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / os.environ.get("B", "build")
EMULATOR = os.environ.get("EMULATOR", "").split()  # for the program of another machine
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
        """Sends the bytes x. Each row's x is the beginning of these bytes."""
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
        """Prepares and plans the row. Returns what plan() returns."""
        self.say("call", row.model, OPSET if row.model.startswith("onnx.") else 1)
        for name, value in row.attributes.items():
            if isinstance(value, list):
                self.say("ints", name, ",".join(map(str, value)))
            else:
                self.say("int", name, value)
        for name, datatype, shape, raw in row.inputs:
            if not name:
                continue  # an optional input that is absent
            path = FILES / ("x" if raw is None else name)
            if raw is not None:
                (ROOT / path).write_bytes(raw)
            self.say("input", name, datatype, path,
                     *([",".join(map(str, shape))] if shape else []))
        for name in getattr(row, "fixed", ()):
            self.say("fix", name)
        return self.plan(row.threads, row.gemm)

    def plan(self, threads, gemm):
        """Plans the row and returns what measure.c says of the plan: estimates in nanoseconds,
        bytes, counts."""
        self.say("plan", threads, gemm)
        kernel, *numbers = self.answer()
        names = ("units", "unit_ns", "pack_units", "pack_unit_ns", "slices", "read", "written",
                 "constant", "resident", "workspace")
        return {"kernel": kernel, **dict(zip(names, map(int, numbers)))}

    def peak(self, name):
        """Returns how many operations one run of the peak measurement of that name makes; 0: this
        CPU lacks the instructions."""
        self.say("peak", name)
        return int(self.answer()[0])

    def copy(self, threads):
        """Returns how many bytes `threads` threads copy from memory to memory in a nanosecond.
        Measures this once for each count of threads."""
        if threads not in self.copies:
            self.say("copy", threads)
            count, ns = map(float, self.answer())
            self.copies[threads] = count / ns
        return self.copies[threads]

    def regions_ns(self, x, y, threads):
        """Returns the nanoseconds that moving as many bytes from one file in memory to another
        takes: region.h."""
        self.say("regions", x, y, threads)
        return float(self.answer()[0])

    def handover(self, threads, work_ns, again_ns):
        """Returns {alone, all, again_alone, again, wake, give, trip}, in nanoseconds."""
        self.say("handover", threads, work_ns, again_ns)
        return dict(zip(("alone", "all", "again_alone", "again", "wake", "give", "trip"),
                        map(float, self.answer())))

    def line_ns(self):
        """Returns the nanoseconds that a cache line takes from one CPU to another and back:
        line_trip.h."""
        self.say("line")
        return float(self.answer()[0])

    def constants(self):
        """Returns {check, refill, yield, gap, slice}, in nanoseconds."""
        self.say("constants")
        return dict(zip(("check", "refill", "yield", "gap", "slice"), map(float, self.answer())))

    def echo(self, request_bytes, answer_bytes, threads=1, address="0"):
        """Starts a server that reads requests and writes answers of these sizes and computes
        nothing. The server runs until the next one starts. Returns its port; 0 if the address is
        the path of a Unix socket."""
        self.say("echo", request_bytes, answer_bytes, threads, address)
        return int(self.answer()[0])

    def constant(self, path):
        """Starts a libmicrohttpd server that always answers with the bytes of the file. The server
        runs until the next one starts. Returns its port."""
        self.say("constant", path)
        return int(self.answer()[0])

    def exchange(self, address, connections, ms, path, rate=0):
        """Sends the request in the file, again and again, to a port or to the path of a Unix
        socket. Returns (answers per second, p50 and p99 in nanoseconds). A `rate` sets how many
        requests are sent per second."""
        self.begin_exchange(address, connections, ms, path, rate)
        return self.end_exchange()

    def begin_exchange(self, address, connections, ms, path, rate=0):
        """Starts an exchange, which runs beside the caller until end_exchange."""
        self.say("exchange", address, connections, ms, path, rate)

    def end_exchange(self):
        count, ns, p50, p99 = map(float, self.answer())
        return count / ns * 1e9, p50, p99

    def numbers(self, task, kind, count, library):
        """Makes the text of these numbers, which numbers.h describes. Returns (its length in bytes,
        whether the server converts it correctly)."""
        self.say("numbers", task, kind, count, library)
        size, same = self.answer()
        return int(size), same == "1"

    def numbers_round(self, names):
        """Measures one round. Returns name -> nanoseconds for the contestants that exist."""
        self.say("numbers-round", *names)
        return {name: float(ns) for name, ns in zip(names, self.answer()) if float(ns) > 0}

    def numbers_check(self, library, first, last):
        """Returns how many of the floats with bits from `first` to `last` are printed wrong."""
        self.say("numbers-check", library, first, last)
        return int(self.answer()[0])

    def round(self, *measures):
        """Runs one round and returns measure -> nanoseconds."""
        self.say("round", *measures)
        return dict(zip(measures, map(float, self.answer())))

    def output(self):
        """Runs the row once more and returns the bytes of y."""
        self.say("save", FILES / "y")
        self.answer()
        return (ROOT / FILES / "y").read_bytes()

    def huge_share(self):
        """Returns the share of the process' memory that is on huge pages. None: unknown."""
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
