"""What the reports of all parts share: ratios, texts, the description of the machine, and
RESULTS.md."""
import math
import os
import platform
import re
import statistics
import subprocess
import sys
from pathlib import Path

import mask

sys.path.append(str(Path(__file__).resolve().parent.parent / "support"))

import failures  # noqa: E402  (on the path just now)

PEER_UNCERTAIN = 0.02  # of a call
SHORT_MAX = 40


# ---- Ratios --------------------------------------------------------------------------------------


def peer_net_ns(row, name="peer"):
    """Returns ONNX Runtime's time less what any call costs it, because libqk's time includes no
    such cost. The result is at least PEER_UNCERTAIN of the time: the difference of two best calls
    is that uncertain."""
    return max(row["ns"][name] - row["ns"]["call"], PEER_UNCERTAIN * row["ns"][name])


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


# ---- Estimated and measured costs ----------------------------------------------------------------


def run_cost(row):
    """Returns (the plan's estimate, the measured time) of a run on one thread. pack_cost does the
    same for packing."""
    return row["units"] * row["unit_ns"], row["ns"]["run"]


def pack_cost(row):
    return row["pack_units"] * row["pack_unit_ns"], row["ns"]["pack"]


def cost_rows(groups):
    """Yields (group, number of rows, median and worst of said / measured) for each (group, [(said,
    measured)])."""
    for group, pairs in groups:
        ratios = sorted((said / measured for said, measured in pairs),
                        key=lambda ratio: abs(math.log(ratio)))
        if ratios:
            yield group, len(ratios), statistics.median(ratios), ratios[-1]


def cost_lines(groups):
    lines = ["", "## The cost model", "", COST_HEAD, "", "| group | rows | median | worst |",
             "|---|---:|---:|---:|"]
    return lines + ["| %s | %d | %.2f | %.2f |" % row for row in cost_rows(groups)]


def print_costs(groups):
    print("What plans say that they cost / what they do, 1 thread: median, worst")
    for row in cost_rows(groups):
        print("  %-60s %3d rows: %.2f, %.2f" % row)


COST_HEAD = """\
The time that the scheduler is told before the work, divided by the time that the work then takes on
one thread: the median of a group, and the row that is farthest from 1."""


# ---- Texts ---------------------------------------------------------------------------------------


def ns_text(ns):
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return "%.3g %s" % (ns / size, unit)
    return "%.0f ns" % ns


def ratio_text(value, bound, at_least=True, form="%.2f"):
    """Prints a value. One that misses its bound gets the decimals that show it: 1.197, not 1.20."""
    def misses(number):
        return number < bound if at_least else number > bound
    decimals = int(re.search(r"%\.(\d)f", form)[1])
    while misses(value) and not misses(round(value, decimals)):
        decimals += 1
    return re.sub(r"%\.\df", "%%.%df" % decimals, form) % value


def bold_below(form, value, least):
    return ("**%s**" if value < least else "%s") % ratio_text(value, least, True, form)


def bold_above(form, value, most):
    return ("**%s**" if value > most else "%s") % ratio_text(value, most, False, form)


def threads_text(threads):
    return "%d thread%s" % (threads, "s" if threads > 1 else "")


def short_lines(texts):
    """Returns the lines on rows that fall short; `texts` has the worst first."""
    lines = ["", "## Rows that fall short", ""] + ["- " + text for text in texts[:SHORT_MAX]]
    if len(texts) > SHORT_MAX:
        lines.append("- and %d more: bold in the tables" % (len(texts) - SHORT_MAX))
    return lines if texts else lines + ["None."]


TARGET_HEAD = ["| target | reach it | of | |", "|---|---:|---:|---|"]


def target_lines(targets):
    """Yields a table row for each target that has values. `targets`: (text with a place for the
    target, target, values, at_least). If at_least is true, a value reaches the target by being as
    large, otherwise by being as small."""
    for text, target, values, at_least in targets:
        reached = sum(value >= target if at_least else value <= target for value in values)
        if values:
            yield "| %s | %d | %d | %s |" % (text % target, reached, len(values),
                                             ", ".join(ratio_text(value, target, at_least)
                                                       for value in values))


def print_targets(heading, lines):
    print("\n%s: who reaches the target" % heading)
    for line in lines:
        text, reached, count, values = line.strip("| ").split(" | ")
        print("  %-80s %s of %s; %s" % (text, reached, count, values))


# ---- The machine ---------------------------------------------------------------------------------


def machine(libqk, peer):
    """Returns lines that describe everything that the figures depend on."""
    lines = ["%s, %d CPUs; %s" % (cpu_name(), len(os.sched_getaffinity(0)), caches()),
             "libqk: tier %s, built with %s; %s" % (libqk.tier, compiler(), revision()),
             "%s, Python %s" % ("ONNX Runtime " + peer.version if peer else "no ONNX Runtime",
                                platform.python_version())]
    if mask.shown():
        lines.append("all of them see the features and caches of a CPU of the kind %s; clock, "
                     "ports and memory are this machine's" % mask.shown())
    huge = libqk.huge_share()
    if huge is not None:
        lines.append("huge pages: %.0f %% of libqk's memory" % (100 * huge))
    return lines


def cpu_name():
    text = Path("/proc/cpuinfo").read_text()
    fields = dict(re.findall(r"^(.*?)\s*: (.*)$", text, re.MULTILINE))
    return "%s (family %s, model %s)" % (fields.get("model name", platform.machine()),
                                         fields.get("cpu family", "?"), fields.get("model", "?"))


def size_text(size):
    """Returns a size of the kernel's, such as 32768K, as 32 MB."""
    kilobytes = int(size.rstrip("K"))
    return "%d KB" % kilobytes if kilobytes % 1024 else "%d MB" % (kilobytes // 1024)


def caches():
    found = []
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind = (index / "type").read_text().strip()
        if kind != "Instruction":
            found.append("L%s %s" % ((index / "level").read_text().strip(),
                                     size_text((index / "size").read_text().strip())))
    return ", ".join(found) or "unknown caches"


def compiler():
    return output(os.environ.get("CC", "cc"), "--version").partition("\n")[0]


def revision():
    return "commit " + (output("git", "describe", "--always", "--dirty", "--exclude=*").strip()
                        or "unknown")


def output(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False,
                              cwd=Path(__file__).parent).stdout
    except OSError:
        return ""


def best_of(first, second):
    """Combines two measurements of one row: takes the best time and the best rate of each
    contestant."""
    best = dict(second, rounds=first["rounds"] + second["rounds"],
                same=False if first["same"] is False else second["same"])
    best["ns"] = {name: min(ns, first["ns"].get(name, ns)) for name, ns in second["ns"].items()}
    if "gops" in second:
        best["gops"] = {name: max(gops, first["gops"].get(name, gops))
                        for name, gops in second["gops"].items()}
    return best


# ---- All rows ------------------------------------------------------------------------------------


def print_counts(results):
    """Prints the counts in the form of all tests and returns the exit status."""
    failed = len(wrong(results))
    print("%d passed, %d failed" % (len(results) - failed, failed))
    return 1 if failed else 0


def wrong(results):
    """Returns the rows whose bytes differ from ONNX Runtime's, and prints their names."""
    rows = [row for row in results if row["same"] is False]
    for row in rows:
        failures.say(row["name"], "other bytes than ONNX Runtime's")
    return rows


SHORT = ("tests/bench/README.md", "README.md")


def write_short(name, lines):
    """Puts the lines between the marks of that name. The README gets only the rows of the kinds
    that it has already."""
    for page in SHORT:
        path = Path(__file__).resolve().parents[2] / page
        marks = "<!-- %s: by make bench -->" % name, "<!-- end of %s -->" % name
        before, _, rest = path.read_text().partition(marks[0])
        shown, found, after = rest.partition(marks[1])
        if found:
            kept = lines if page == SHORT[0] else rows_of_the_kinds(lines, shown.split("\n"))
            path.write_text("".join((before, "\n".join((marks[0], *kept, marks[1])), after)))


def rows_of_the_kinds(lines, shown):
    """Returns the lines without table rows of other kinds. The first cell of a row is its kind.
    Lines outside tables stay."""
    kinds = {line.split("|")[1] for line in shown if line.startswith("|")}
    return [line for line in lines if not line.startswith("|") or line.split("|")[1] in kinds]


CONTENTS = "# What was measured"


def write_section(folder, lines):
    """Puts the lines into RESULTS.md, in place of the section with the same heading."""
    path = folder / "RESULTS.md"
    text = path.read_text() if path.exists() else ""
    sections = {section.partition("\n")[0]: section.rstrip() + "\n"
                for section in re.split(r"^(?=# )", text, flags=re.MULTILINE) if section}
    sections[lines[0]] = "\n".join(lines) + "\n"
    sections.pop(CONTENTS, None)
    names = [heading.removeprefix("# ") for heading in sections]
    contents = [CONTENTS, "",
                "Each part names the machine that it was measured on. The machines differ.", ""]
    contents += ["- [%s](#%s)" % (name, re.sub(r"[^a-z0-9 -]", "", name.lower()).replace(" ", "-"))
                 for name in names]
    path.write_text("\n".join(["\n".join(contents) + "\n", *sections.values()]))


# ---- What all parts share -----------------------------------------------------------------------

def chosen(options, rows):
    """Returns the rows that --only names."""
    for words in options.only or []:
        rows = [row for row in rows if any(word in str(row) for word in words.split("|"))]
    return rows


class Part:
    """A part of the benchmark. A subclass has select, x_bytes, measure, falls_short, one_line,
    report and budget_seconds."""

    best_of = staticmethod(best_of)  # combines two measurements of one row

    def open(self, selected, libqk, peer):
        """Prepares the part before its first row. Returns the rows of `selected` that it can
        measure."""
        return selected

    def close(self):
        """Cleans up after the last row, also if something went wrong."""
