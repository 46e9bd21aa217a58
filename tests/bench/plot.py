"""The picture of RESULTS.md: for each type to FP32, per tensor, on one thread, the share of the
limit that libqk reaches, and ONNX Runtime."""
from rows import BITS, SIZES, size_text

LEFT, TOP, BAR, GAP, WIDTH, PANEL = 120, 40, 9, 8, 230, 260
COLORS = {"libqk": "#2a6f97", "ONNX Runtime": "#e07a5f"}


def svg(results, share, limit_ns, peer_net_ns):
    rows = {(row["x"], row["size"]): row for row in results
            if (row["y"], row["grain"], row["threads"]) == ("FP32", "tensor", 1)}
    height = TOP + len(BITS) * (2 * BAR + GAP) + 30
    width = LEFT + len(SIZES) * PANEL
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d"' % (width, height),
             '    font-family="sans-serif" font-size="12">',
             '<rect width="100%" height="100%" fill="white"/>']
    for k, x in enumerate(BITS):
        parts.append(text(LEFT - 8, middle(k), x, "end"))
    for column, size in enumerate(SIZES):
        left = LEFT + column * PANEL
        parts.append(text(left, TOP - 14, "%s of x" % size_text(size)))
        for part in (0.5, 1):
            parts.append('<path d="M%d %dV%d" stroke="#ccc"/>' % (left + WIDTH * part, TOP - 6,
                                                                  height - 26))
        for k, x in enumerate(BITS):
            row = rows.get((x, size))
            if row:
                parts.append(bar(left, top(k), share(row), "libqk"))
            if row and "peer" in row["ns"]:
                parts.append(bar(left, top(k) + BAR, limit_ns(row) / peer_net_ns(row),
                                 "ONNX Runtime"))
    for k, (label, color) in enumerate(COLORS.items()):
        parts.append('<rect x="%d" y="%d" width="12" height="9" fill="%s"/>' % (
            LEFT + 120 * k, height - 18, color))
        parts.append(text(LEFT + 120 * k + 18, height - 9, label))
    parts.append(text(LEFT + 260, height - 9,
                      "share of the limit; lines: half of it, all"))
    return "\n".join(parts + ["</svg>"]) + "\n"


def top(index):
    return TOP + index * (2 * BAR + GAP)


def middle(index):
    return top(index) + BAR + 4


def text(x, y, words, anchor="start"):
    return '<text x="%d" y="%d" text-anchor="%s">%s</text>' % (x, y, anchor, words)


def bar(left, y, part, label):
    return '<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>' % (
        left, y, WIDTH * min(part, 1.05), BAR - 1, COLORS[label])
