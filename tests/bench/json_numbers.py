"""JSON's part of `make bench`: compares the server's reader and printer of numbers with other
libraries that do the same with the same text, in the same process (numbers.h)."""
import collections
import concurrent.futures
import dataclasses
import os
import subprocess
import time

import figures
from figures import bold_below
from libqk import FILES, ROOT, Libqk

COUNT, SMOKE_COUNT = 1_000_000, 1000
ROUNDS_MAX, LIBC_ROUNDS = 25, 3  # libc is slow
PEERS = {"read": ("yyjson", "simdjson"),
         "print": ("zmij", "xjb", "dragonbox", "fmt", "to_chars", "double-conversion")}
LIBC = {"read": "strtof, strtoll", "print": "printf %.9g"}

# (kind in numbers.c, description, target as a share of the best peer's speed, of libc's speed)
KINDS = {"read": (("uint8", "UINT8: 0 to 255", 1, None),
                  ("int32", "INT32: any bits", 1, None),
                  ("int64", "FP32: integers of any 64 bits", 1, None),
                  ("six", "FP32: %.6g of normal values", 0.8, None),
                  ("shortest", "FP32: shortest floats of normal values", 0.8, None),
                  ("double", "FP32: %.17g of normal values", 0.8, None)),
         "print": (("normal", "FP32: normal values", 1, 10),
                   ("bits", "FP32: any bits", 1, 10),
                   ("dequantized", "FP32: UINT8 dequantized, one scale", 1, 10),
                   ("integers", "FP32: whole numbers to 1e6", 1, 10))}


@dataclasses.dataclass(frozen=True)
class Row:
    task: str
    kind: str
    text: str
    peer_target: float
    libc_target: float
    count: int

    x_bytes = y_bytes = 0

    def __str__(self):
        return "%s %s" % (self.task, self.text)


def best_peer(row):
    """Returns (name, ns) of the fastest peer. None: no peer was measured."""
    found = [(row["ns"][name], name) for name in PEERS[row["task"]] if name in row["ns"]]
    return min(found) if found else None


def peer_ratio(row):
    best = best_peer(row)
    return best[0] / row["ns"]["quantd"] if best else None


def libc_ratio(row):
    return row["ns"]["libc"] / row["ns"]["quantd"]


def falls_short(row):
    ratio = peer_ratio(row)
    return ((ratio is not None and ratio < row["peer_target"]) or
            (row["libc_target"] is not None and libc_ratio(row) < row["libc_target"]))


def one_line(row):
    best = best_peer(row)
    beside = "" if best is None else "; %.2f × %s" % (peer_ratio(row), best[1])
    return "%s: %.1f ns a number, %.2f GB/s%s; %.1f × %s" % (
        row["name"], row["ns"]["quantd"] / row["count"],
        row["bytes"] / row["ns"]["quantd"], beside, libc_ratio(row), LIBC[row["task"]])


class Part(figures.Part):
    falls_short, one_line = staticmethod(falls_short), staticmethod(one_line)
    x_bytes = staticmethod(bytes)

    def __init__(self, budget_seconds):
        self.budget_seconds = budget_seconds
        self.library = "-"

    def select(self, options, _threads, _gemms):
        self.library = "-" if options.without_peer or options.smoke else peer_library()
        count = SMOKE_COUNT if options.smoke else COUNT
        return [Row(task, *kind, count) for task, kinds in KINDS.items() for kind in kinds]

    def measure(self, row, libqk, _peer, seconds):
        """Measures each contestant once a round, for as many rounds as fit into `seconds`, and
        keeps the best time of each."""
        size, same = libqk.numbers(row.task, row.kind, row.count, self.library)
        ns, end = collections.defaultdict(lambda: float("inf")), time.monotonic() + seconds
        for rounds in range(1, ROUNDS_MAX + 1):
            names = ("quantd",) + PEERS[row.task] + (("libc",) if rounds <= LIBC_ROUNDS else ())
            for name, took in libqk.numbers_round(names).items():
                ns[name] = min(ns[name], took)
            if time.monotonic() > end:
                break
        return {"name": str(row), "task": row.task, "text": row.text, "count": row.count,
                "bytes": size, "ns": dict(ns), "same": same, "rounds": rounds,
                "peer_target": row.peer_target, "libc_target": row.libc_target}

    @staticmethod
    def report(results, machine_lines, _):
        return Report(results, machine_lines)


def peer_library():
    """Builds the peers' library with peers/setup_numbers.sh and returns its path; "-" if it cannot
    be built."""
    subprocess.run([ROOT / "tests" / "bench" / "peers" / "setup_numbers.sh"], check=False)
    path = FILES / "numbers.so"
    return str(path) if os.path.exists(ROOT / path) else "-"


def check_every_float(threads):
    """Prints all 2^32 floats, reads them again, and compares the text with std::to_chars. Takes
    half an hour of one CPU. Returns the exit status."""
    library, ranges = peer_library(), 256
    size = 2 ** 32 // ranges

    def check(index):
        libqk = Libqk("auto")
        try:
            return libqk.numbers_check(library, index * size, (index + 1) * size - 1)
        finally:
            libqk.close()

    wrong = 0
    with concurrent.futures.ThreadPoolExecutor(threads) as executor:
        for index, count in enumerate(executor.map(check, range(ranges))):
            wrong += count
            if index % 16 == 15:
                print("bench: %d of %d ranges of floats, %d wrong" % (index + 1, ranges, wrong),
                      flush=True)
    print("All 2^32 floats printed and read again%s: %d wrong" % (
        "" if library == "-" else ", and beside std::to_chars", wrong))
    return 1 if wrong else 0


class Report:
    def __init__(self, results, machine_lines):
        self.results = results
        self.machine = machine_lines

    def print_rows(self):
        for row in self.results:
            print(one_line(row))

    def target_lines(self):
        """Yields a line for each target. Readers of integers and of floats have targets of their
        own."""
        by_target = {(task, target): [peer_ratio(row) for row in self.results if peer_ratio(row) and
                                      (row["task"], row["peer_target"]) == (task, target)]
                     for task, target in (("read", 1), ("read", 0.8), ("print", 1))}
        return list(figures.target_lines((
            ("integers read: ≥ %.2f × the better of yyjson and simdjson", 1,
             by_target["read", 1], True),
            ("floats read: ≥ %.2f × the better of them", 0.8, by_target["read", 0.8], True),
            ("floats printed: ≥ %.2f × the best of zmij, xjb and others", 1,
             by_target["print", 1], True),
            ("floats printed: ≥ %d × printf's %%.9g", 10,
             [libc_ratio(row) for row in self.results if row["libc_target"]], True))))

    def print_summary(self):
        figures.print_targets("JSON's numbers", self.target_lines())
        self.print_rows()

    def readme_lines(self):
        return [self.machine[0] + ":", "", *figures.TARGET_HEAD, *self.target_lines()]

    def write(self, folder):
        lines = ["# Speed of JSON's numbers", "", HEAD, ""] + ["- " + line for line in self.machine]
        lines += ["", "## Targets", "", *figures.TARGET_HEAD, *self.target_lines()]
        for task, heading in (("read", "Reading"), ("print", "Printing")):
            rows = [row for row in self.results if row["task"] == task]
            lines += table(task, heading, rows) if rows else []
        figures.write_section(folder, lines)


def table(task, heading, rows):
    peers = [name for name in PEERS[task] if any(name in row["ns"] for row in rows)]
    lines = ["", "## " + heading, "",
             "| numbers | ns | GB/s | × the best | × %s | %s |" % (LIBC[task], " | ".join(
                 ["quantd"] + peers + ["libc"])),
             "|---|" + "---:|" * (6 + len(peers))]
    for row in rows:
        peer = "–" if peer_ratio(row) is None else bold_below("%.2f", peer_ratio(row),
                                                              row["peer_target"])
        libc = bold_below("%.1f", libc_ratio(row), row["libc_target"] or 0)
        each = ["%.1f" % (row["ns"][name] / row["count"]) if name in row["ns"] else "–"
                for name in ["quantd"] + peers + ["libc"]]
        lines.append("| %s | %.1f | %.2f | %s | %s | %s |" % (
            row["text"], row["ns"]["quantd"] / row["count"], row["bytes"] / row["ns"]["quantd"],
            peer, libc, " | ".join(each)))
    return lines


HEAD = """\
Written by `make bench`; not by hand. One thread of one process converts the same %d numbers with
each library in turn. Each figure is the best of several rounds, in nanoseconds for each number. The
wire's part has whole requests with such numbers, over HTTP.

- Reading: a whole inference request is read, and inputs[0].data becomes an array of the named type.
  The other libraries read a float as a double first. yyjson gets its memory before the measurement.
  simdjson is used by its on-demand interface. Both are compiled for this CPU, but quantd is
  compiled as it is shipped.
- Printing: each number is printed as the shortest decimal that reads back as the same float, with
  commas between the numbers. zmij and xjb come from their repositories and are compiled for this
  CPU. fmt (which uses Dragonbox), Dragonbox itself and double-conversion are Debian's.
  std::to_chars is libstdc++'s Ryu. Notations differ a little: some libraries write 1e+09 or 1.0.
- *× the best* is quantd's speed divided by that of the fastest other library. The targets are 1 for
  reading integers and for printing, 0.8 for reading floats, and 10 for printing compared with
  printf. Bold figures miss their target.""" % COUNT
