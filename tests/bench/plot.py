"""The pictures of RESULTS.md. Dequantizers and quantizers: for each type and FP32, per tensor, on
one thread, the share of the limit that libqk reaches, and ONNX Runtime. Convolutions: for each
layer, how many times as fast as ONNX Runtime. Served layers: how many times as many answers as
FastAPI gives."""
from tensors import size_text

TOP, BAR, GAP = 40, 9, 8
LEFT, WIDTH, PANEL = 120, 230, 260
COLORS = {"libqk": "#2a6f97", "ONNX Runtime": "#e07a5f"}
CONV_LEFT, CONV_UNIT, CONV_MOST = 270, 60, 10  # of the bars: where, how long one time is, the end
CONV_COLORS = {"1 thread": "#2a6f97", "all threads": "#014f86", "1 thread, packing": "#90be6d"}
SERVED_COLORS = {"1 connection": "#2a6f97", "4 connections": "#014f86", "16 connections": "#90be6d"}


def linear_svg(shares, codes, sizes):
    """`shares`: (code, size) -> libqk's and ONNX Runtime's, or None."""
    height = TOP + len(codes) * (2 * BAR + GAP) + 30
    parts = head(LEFT + len(sizes) * PANEL, height)
    for k, code in enumerate(codes):
        parts.append(text(LEFT - 8, TOP + k * (2 * BAR + GAP) + BAR + 4, code, "end"))
    for column, size in enumerate(sizes):
        left = LEFT + column * PANEL
        parts.append(text(left, TOP - 14, "%s of x" % size_text(size)))
        for part in (0.5, 1):
            parts.append(line(left + WIDTH * part, TOP - 6, height - 26))
        for k, code in enumerate(codes):
            y = TOP + k * (2 * BAR + GAP)
            for value, color in zip(shares.get((code, size), ()), COLORS.values()):
                if value is not None:
                    parts.append(bar(left, y, WIDTH * min(value, 1.05), color))
                y += BAR
    parts += legend(LEFT, height - 18, COLORS, 120)
    parts.append(text(LEFT + 260, height - 9, "share of the limit; lines: half of it, all"))
    return "\n".join(parts + ["</svg>"]) + "\n"


def conv_svg(layers):
    """`layers`: (name, network, times ONNX Runtime as CONV_COLORS has them, or None)."""
    return times_svg(layers, CONV_COLORS, "times as fast as ONNX Runtime")


def served_svg(layers):
    """`layers`: (name, kind, times the better FastAPI's answers as SERVED_COLORS has them)."""
    return times_svg(layers, SERVED_COLORS, "times FastAPI's answers")


def times_svg(layers, colors, words):
    step = len(colors) * BAR + GAP
    networks = {network for _, network, *_ in layers}
    height = TOP + len(layers) * step + len(networks) * 24 + 10
    parts = head(CONV_LEFT + CONV_UNIT * CONV_MOST + 50, height)
    parts += legend(CONV_LEFT, 8, colors, 130)
    parts.append(text(CONV_LEFT + 400, 17, words))
    for times in range(CONV_MOST + 1):
        x = CONV_LEFT + CONV_UNIT * times
        parts.append(line(x, TOP, height - 8, "#c33" if times == 1 else "#ddd"))
        parts.append(text(x, TOP - 4, "%d ×" % times, "middle"))
    y, network = TOP, None
    for name, its_network, *values in layers:
        if its_network != network:
            network = its_network
            parts.append('<text x="8" y="%d" font-weight="bold">%s</text>' % (y + 16, network))
            y += 24
        parts.append(text(CONV_LEFT - 8, y + 1.5 * BAR + 4, name, "end"))
        for k, (value, color) in enumerate(zip(values, colors.values())):
            if value is not None:
                length = CONV_UNIT * min(value, CONV_MOST)
                parts.append(bar(CONV_LEFT, y + k * BAR, length, color))
                parts.append('<text x="%.1f" y="%d" font-size="9">%.1f</text>' % (
                    CONV_LEFT + length + 3, y + k * BAR + 8, value))
        y += step
    return "\n".join(parts + ["</svg>"]) + "\n"


# ---- Pieces --------------------------------------------------------------------------------------


def head(width, height):
    return ['<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d"' % (width, height),
            '    font-family="sans-serif" font-size="12">',
            '<rect width="100%" height="100%" fill="white"/>']


def text(x, y, words, anchor="start"):
    return '<text x="%d" y="%d" text-anchor="%s">%s</text>' % (x, y, anchor, words)


def line(x, top, bottom, color="#ccc"):
    return '<path d="M%d %dV%d" stroke="%s"/>' % (x, top, bottom, color)


def bar(x, y, length, color):
    return '<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>' % (x, y, length, BAR - 1,
                                                                          color)


def legend(left, y, colors, step):
    parts = []
    for k, (label, color) in enumerate(colors.items()):
        parts.append('<rect x="%d" y="%d" width="12" height="9" fill="%s"/>' % (
            left + step * k, y, color))
        parts.append(text(left + step * k + 18, y + 9, label))
    return parts
