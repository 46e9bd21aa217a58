"""Which rounds of a row count: those in which the CPUs are as near to each other as in the best
one. The host of a virtual machine may run two CPUs on one L3 cache at one time, and on two a
second later. On two, a second thread helps less, and not all contestants alike, so that figures
of mixed rounds would depend on the host."""
import statistics

APART = 1.5  # a round is, in which a cache line takes so many times as long as in the best one


class Near:
    def __init__(self, libqk):
        self.libqk, self.lines, self.last = libqk, [], libqk.line_ns()

    def end_round(self):
        """Notes how far apart the CPUs were in this round: at its begin or its end."""
        before, self.last = self.last, self.libqk.line_ns()
        self.lines.append(max(before, self.last))

    def flags(self):
        least = min(self.lines)
        return [line <= APART * least for line in self.lines]

    def count(self):
        return sum(self.flags())

    @property
    def line_ns(self):
        """How long a cache line takes from one CPU to another and back, in the rounds that count.
        """
        return self.median(self.lines)

    def chosen(self, series, near=True):
        return [value for value, flag in zip(series, self.flags()) if flag == near]

    def median(self, series):
        """Returns the median of the rounds that count."""
        return statistics.median(self.chosen(series))

    def median_apart(self, series):
        """Returns the median of the other rounds. None: there are none."""
        others = self.chosen(series, near=False)
        return statistics.median(others) if others else None
