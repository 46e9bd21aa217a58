"""The pictures of RESULTS.md. Dequantizers: for each type to FP32, per tensor, on one thread, the
share of the limit that libqk reaches, and ONNX Runtime. Convolutions: for each layer, how many
times as fast as ONNX Runtime."""
from rows import BITS, SIZES, size_text

LEFT, TOP, BAR, GAP, WIDTH, PANEL = 120, 40, 9, 8, 230, 260
COLORS = {"libqk": "#2a6f97", "ONNX Runtime": "#e07a5f"}


def svg(results, share, limit_ns, peer_net_ns):
    rows = {(row["x"], row["size"]): row for row in results
            if (row["y"], row["grain"], row["threads"]) == ("FP32", "tensor", 1)}
    height = TOP + len(BITS) * (2 * BAR + GAP) + 30
    width = LEFT + len(SIZES) * PANEL
    parts = head(width, height)
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
    parts += legend(LEFT, height - 18, COLORS)
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


def head(width, height):
    return ['<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d"' % (width, height),
            '    font-family="sans-serif" font-size="12">',
            '<rect width="100%" height="100%" fill="white"/>']


def legend(left, y, colors, step=120):
    parts = []
    for k, (label, color) in enumerate(colors.items()):
        parts.append('<rect x="%d" y="%d" width="12" height="9" fill="%s"/>' % (
            left + step * k, y, color))
        parts.append(text(left + step * k + 18, y + 9, label))
    return parts


# ---- Convolutions --------------------------------------------------------------------------------

CONV_LEFT, CONV_UNIT, CONV_MOST = 270, 60, 10  # of the bars: where, how long one time is, the end
CONV_COLORS = {"weights packed before": "#2a6f97", "packing included": "#90be6d"}


def conv_svg(layers):
    """`layers`: (name, network, times ONNX Runtime with weights packed, the same with packing)."""
    networks = list(dict.fromkeys(network for _, network, *_ in layers))
    height = TOP + len(layers) * (2 * BAR + GAP) + len(networks) * 24 + 10
    width = CONV_LEFT + CONV_UNIT * CONV_MOST + 50
    parts = head(width, height) + legend(CONV_LEFT, 8, CONV_COLORS, 170)
    parts.append(text(CONV_LEFT + 340, 17, "times as fast as ONNX Runtime"))
    for times in range(CONV_MOST + 1):
        x = CONV_LEFT + CONV_UNIT * times
        parts.append('<path d="M%d %dV%d" stroke="%s"/>' % (x, TOP, height - 8,
                                                            "#c33" if times == 1 else "#ddd"))
        parts.append(text(x, TOP - 4, "%d ×" % times, "middle"))
    y, network = TOP, None
    for name, its_network, *values in layers:
        if its_network != network:
            network = its_network
            parts.append('<text x="8" y="%d" font-weight="bold">%s</text>' % (y + 16, network))
            y += 24
        parts.append(text(CONV_LEFT - 8, y + BAR + 4, name, "end"))
        for k, (value, color) in enumerate(zip(values, CONV_COLORS.values())):
            length = CONV_UNIT * min(value, CONV_MOST)
            parts.append('<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>' % (
                CONV_LEFT, y + k * BAR, length, BAR - 1, color))
            parts.append('<text x="%.1f" y="%d" font-size="9">%.1f</text>' % (
                CONV_LEFT + length + 3, y + k * BAR + 8, value))
        y += 2 * BAR + GAP
    return "\n".join(parts + ["</svg>"]) + "\n"
