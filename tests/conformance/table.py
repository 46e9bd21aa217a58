"""Writes tests/conformance/RESULTS.md: what ran, what passed, and where the expected results come
from.

The same seed, packages, CPU and server give the same file: it has no dates and no times, and a
fixed order.
"""
from collections import Counter

HEAD = """\
# Conformance results

Written by `make conformance`; do not edit. Every case is sent to a running quantd over HTTP in each
of these ways: %s. It passes if every answer has the right type and shape and exactly the oracle's
bits; any NaN counts as equal to any other. %s

%s
"""


class Row:
    def __init__(self):
        self.run = self.passed = 0
        self.oracles = Counter()

    def add(self, passed, oracle):
        self.run += 1
        self.passed += passed
        self.oracles[oracle] += 1

    def cells(self):
        oracles = ", ".join(name if len(self.oracles) == 1 else "%s (%d)" % (name, count)
                            for name, count in sorted(self.oracles.items()))
        return "%d | %d | %s" % (self.run, self.passed, oracles)


class Table:
    """The table's rows, in the order in which they were first added."""

    def __init__(self):
        self.suites = {}  # suite -> key -> Row; a key is the row's first cells
        self.notes = []
        self.previous = None  # the name of the previous release
        self.made_with = ""  # the CPU and the packages
        self.differences = {}  # (operator, since, what) -> [cases, cases that differ]
        self.equal = Counter()  # operator -> cases in which the previous release agrees

    def add(self, suite, key, passed, oracle):
        self.suites.setdefault(suite, {}).setdefault(key, Row()).add(passed, oracle)

    def totals(self, suite):
        """Returns model -> (cases run, cases passed)."""
        result = {}
        for key, row in self.suites.get(suite, {}).items():
            run, passed = result.get(key[0], (0, 0))
            result[key[0]] = run + row.run, passed + row.passed
        return result

    def compare(self, model, known, same):
        """Counts a case that the previous release implements. `known`: what
        oracles.known_difference returned."""
        if known:
            counts = self.differences.setdefault(known, [0, 0])
            counts[0] += 1
            counts[1] += not same
        elif same:
            self.equal[model] += 1

    def about_previous(self):
        lines = ["", "## The release before", "",
                 "What %s makes of the same random cases. Where the two releases differ, the "
                 "newest and the definition are right." % self.previous, "",
                 "| operator | since | ONNX Runtime | cases | it differs |",
                 "|---|---|---|---:|---:|"]
        for (model, since, what), counts in sorted(self.differences.items()):
            lines.append("| %s | %s | %s | %d | %d |" % (model, since, what, *counts))
        for model, count in sorted(self.equal.items()):
            lines.append("| %s | | all others | %d | 0 |" % (model, count))
        return lines

    def write(self, path, ways, seed):
        seeded = "The random cases are those of seed %s." % seed
        lines = [HEAD % (", ".join(ways), seeded, self.made_with)]
        lines += ["| suite | operator | cases | passed |", "|---|---|---:|---:|"]
        for suite in self.suites:
            for model, (run, passed) in self.totals(suite).items():
                lines.append("| %s | %s | %d | %d |" % (suite, model, run, passed))
        for suite, columns in (("onnx node tests", ("operator", "version", "type", "test, opset")),
                               ("golden cases", ("operator", "version", "type", "")),
                               ("ONNX files", ("made by", "nodes")),
                               ("networks", ("network", "quantized")),
                               ("operators", ("operator", "outcome")),
                               ("node tests as files", ("operator", "outcome")),
                               ("random graphs", ("graph", "")),
                               ("random graphs of the form QDQ", ("outcome", "")),
                               ("random cases", ("operator", "version", "type", "granularity"))):
            if suite in self.suites:
                lines += ["", "## " + suite[0].upper() + suite[1:], ""]
                used = [i for i, column in enumerate(columns) if column]
                lines.append("| %s | cases | passed | oracle |"
                             % " | ".join(columns[i] for i in used))
                lines.append("|" + "---|" * len(used) + "---:|---:|---|")
                for key, row in self.suites[suite].items():
                    lines.append("| %s | %s |" % (" | ".join(key[i] for i in used), row.cells()))
        if self.previous:
            lines += self.about_previous()
        lines += ["", "## Notes", ""] + ["- " + note for note in self.notes]
        path.write_text("\n".join(lines) + "\n")
