"""The hand-over's part of `make bench`: from which size on is it worth waking other workers? The
server's own scheduler and pool run jobs that only take time, on one worker and on all workers.
Then come the scheduler's constants (constants.py)."""
import dataclasses

import constants
import figures
from figures import ns_text

WORKS_NS = (10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000)
UNITS = 20  # in a phase (handover.c)
SERIES = 4


@dataclasses.dataclass(frozen=True)
class Row:
    work_ns: int
    threads: int

    x_bytes = y_bytes = 0

    def __str__(self):
        return "hand-over, work of %s, %s" % (ns_text(self.work_ns),
                                              figures.threads_text(self.threads))


@dataclasses.dataclass(frozen=True)
class Constants:
    threads: int
    smoke: bool

    x_bytes = y_bytes = 0

    def __str__(self):
        return "hand-over, the scheduler's constants"


def gain(row):
    return row["ns"]["alone"] / row["ns"]["all"]


def one_line(row):
    if "constants" in row:
        return "%s: %d agree with what was measured" % (row["name"], sum(
            agrees == "yes" for *_, agrees in constants.table(row["constants"])))
    return "%s: one worker %s, all %s, %.2f ×, the next phase %s; a second one joins after: %s" % (
        row["name"], ns_text(row["ns"]["alone"]), ns_text(row["ns"]["all"]), gain(row),
        ns_text(row["ns"]["again"]), wake_text(row))


def wake_text(row):
    return ns_text(row["ns"]["wake"]) if row["ns"]["wake"] else "none does"


class Part(figures.Part):
    budget_seconds = 20
    one_line = staticmethod(one_line)
    x_bytes = staticmethod(bytes)

    @staticmethod
    def select(options, threads, _):
        works = WORKS_NS[:1] if options.smoke else WORKS_NS
        rows = [Row(work, threads) for work in works] + [Constants(threads, options.smoke)]
        return rows if threads > 1 else []

    @staticmethod
    def falls_short(_):
        return False  # no target: the scheduler decides how many workers share a job

    @staticmethod
    def measure(row, libqk, _, seconds):
        """Measures some series and returns the best series as a whole."""
        if isinstance(row, Constants):
            return {"name": str(row), "same": None,
                    "constants": constants.measure(libqk, row.threads, row.smoke)}
        count = 1 if seconds < 1 else SERIES
        series = [libqk.handover(row.threads, row.work_ns, row.work_ns) for _ in range(count)]
        return {"name": str(row), "threads": row.threads, "work_ns": row.work_ns,
                "ns": min(series, key=lambda ns: ns["all"]), "same": None}

    @staticmethod
    def report(results, machine_lines, _):
        return Report(results, machine_lines)


class Report:
    def __init__(self, results, machine_lines):
        self.results = [row for row in results if "ns" in row]
        self.constants = [line for row in results if "constants" in row
                          for line in constants.table(row["constants"])]
        self.machine = machine_lines

    def print_rows(self):
        for row in self.results:
            print(one_line(row))
        for name, value, what, found, supported, agrees in self.constants:
            print("%s: %s; measured %s (%s); supported: %s; agrees: %s" % (
                name, value, found, what, supported, agrees))

    def print_summary(self):
        print("\nThe hand-over, and the scheduler's constants")
        self.print_rows()

    @staticmethod
    def readme_lines():
        return []  # it has none there

    def write(self, folder):
        lines = ["# The hand-over", "", HEAD, ""] + ["- " + line for line in self.machine]
        lines += ["", "| work | one worker | all workers | × | the next phase | a second one joins "
                  "after |", "|---:|---:|---:|---:|---:|---:|"]
        lines += ["| %s | %s | %s | %.2f | %s | %s |" % (
            ns_text(row["work_ns"]), ns_text(row["ns"]["alone"]), ns_text(row["ns"]["all"]),
            gain(row), ns_text(row["ns"]["again"]), wake_text(row)) for row in self.results]
        lines += ["", "## The scheduler's constants", "", CONSTANTS_HEAD, "",
                  "| constant | its value | what was measured | measured | supported | agrees |",
                  "|---|---:|---|---:|---:|---|"]
        lines += ["| %s |" % " | ".join(line) for line in self.constants]
        figures.write_section(folder, lines)


HEAD = """\
Written by `make bench`; not by hand. This part measures what it costs to let other workers help.
The server's own scheduler and pool run jobs of %d units that only take time. Each job starts while
all workers sleep. The columns have:

- the time from a job's start to its end, with one worker, and with as many workers as the scheduler
  lets help;
- the time of a second phase, as long as the first one, that follows it at once;
- the time after which a second worker begins.

Figures are medians of about a hundred jobs, of the best of %d series. The scheduler wakes a worker
only for work that is long compared with the cost that it assumes for waking one
(QD_HANDOVER_NS).""" % (UNITS, SERIES)
CONSTANTS_HEAD = """\
Each constant of [server/work/scheduler](../../server/work/scheduler/scheduler.h), with its value as
the source has it, and the values that a measurement on this machine supports. A constant that
stands for one time agrees if neither is more than %s times the other: a constant serves all
machines.""" % constants.ABOUT
