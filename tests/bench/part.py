"""What the parts of `make bench` have in common."""
import figures


def chosen(options, rows):
    """Those of the rows that --only names."""
    for words in options.only or []:
        rows = [row for row in rows if any(word in str(row) for word in words.split("|"))]
    return rows


class Part:
    """One has select, x_bytes, measure, falls_short, one_line, report, and budget_seconds."""

    best_of = staticmethod(figures.best_of)  # of a row that was measured twice

    def open(self, selected, libqk, peer):
        """Before the first row. Those rows of `selected` that it can measure."""
        return selected

    def close(self):
        """After the last one, even where something went wrong."""
