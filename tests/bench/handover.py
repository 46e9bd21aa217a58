"""The hand-over's part of `make bench`: from which size on is it worth waking other workers? The
server's own scheduler and pool run jobs that only take time, on one worker and on all workers."""
import dataclasses

import figures
from figures import ns_text

WORKS_NS = (10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000)
UNITS = 20  # in a job
SERIES = 4


@dataclasses.dataclass(frozen=True)
class Row:
    work_ns: int
    threads: int

    x_bytes = y_bytes = 0

    def __str__(self):
        return "hand-over, work of %s, %s" % (ns_text(self.work_ns),
                                              figures.threads_text(self.threads))


def gain(row):
    return row["ns"]["alone"] / row["ns"]["all"]


def one_line(row):
    return "%s: one worker %s, all %s, %.2f ×, the next phase %s; a second one joins after: %s" % (
        row["name"], ns_text(row["ns"]["alone"]), ns_text(row["ns"]["all"]), gain(row),
        ns_text(row["ns"]["again"]), wake_text(row))


def wake_text(row):
    return ns_text(row["ns"]["wake"]) if row["ns"]["wake"] else "none does"


class Part(figures.Part):
    budget_seconds = 10
    one_line = staticmethod(one_line)
    x_bytes = staticmethod(bytes)

    @staticmethod
    def select(options, threads, _):
        works = WORKS_NS[:1] if options.smoke else WORKS_NS
        return [Row(work, threads) for work in works if threads > 1]

    @staticmethod
    def falls_short(_):
        return False  # no target: the scheduler decides how many workers share a job

    @staticmethod
    def measure(row, libqk, _, seconds):
        """Measures some series and returns the best series as a whole."""
        count = 1 if seconds < 1 else SERIES
        series = [libqk.handover(row.threads, row.work_ns, row.work_ns // UNITS)
                  for _ in range(count)]
        return {"name": str(row), "threads": row.threads, "work_ns": row.work_ns,
                "ns": min(series, key=lambda ns: ns["all"]), "same": None}

    @staticmethod
    def report(results, machine_lines, _):
        return Report(results, machine_lines)


class Report:
    def __init__(self, results, machine_lines):
        self.results = results
        self.machine = machine_lines + [
            "the scheduler counts on %s for a hand-over" % ns_text(results[0]["ns"]["counted"])]

    def print_rows(self):
        for row in self.results:
            print(one_line(row))

    def print_summary(self):
        print("\nThe hand-over; %s" % self.machine[-1])
        for row in self.results:
            print("  " + one_line(row))

    @staticmethod
    def readme_lines():
        return []  # it has none there

    def write(self, folder):
        lines = ["# The hand-over", "", HEAD, ""] + ["- " + line for line in self.machine]
        lines += ["", "| work | one worker | all %d | × | the next phase | a second one joins "
                  "after |" % self.results[0]["threads"], "|---:|---:|---:|---:|---:|---:|"]
        lines += ["| %s | %s | %s | %.2f | %s | %s |" % (
            ns_text(row["work_ns"]), ns_text(row["ns"]["alone"]), ns_text(row["ns"]["all"]),
            gain(row), ns_text(row["ns"]["again"]), wake_text(row)) for row in self.results]
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
