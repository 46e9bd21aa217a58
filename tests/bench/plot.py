"""Draws the pictures of RESULTS.md. Dequantizers and quantizers: the share of the limit that libqk
reaches, and ONNX Runtime, for each type and FP32, per tensor, on one thread. Convolutions: the
speed of each layer relative to ONNX Runtime. Served layers: the number of answers relative to
FastAPI. Networks: the speed relative to ONNX Runtime and OpenVINO. The wire: latency against
load."""
import math

from tensors import size_text

TOP, BAR, GAP = 40, 9, 8
LEFT, WIDTH, PANEL = 120, 230, 260
COLORS = {"libqk": "#2a6f97", "ONNX Runtime": "#e07a5f"}
CONV_LEFT, CONV_UNIT, CONV_MOST = 270, 60, 10  # bars: begin, pixels per factor of 1, largest factor
CONV_COLORS = {"1 thread": "#2a6f97", "all threads": "#014f86", "1 thread, packing": "#90be6d"}
SERVED_COLORS = {"1 connection": "#2a6f97", "4 connections": "#014f86", "16 connections": "#90be6d"}
NETWORK_COLORS = {"ONNX Runtime": "#2a6f97", "2 threads": "#014f86", "float32": "#90be6d",
                  "OpenVINO": "#e07a5f"}

WIRE_COLORS = {"quantd": "#2a6f97", "constant": "#999", "1 worker": "#e07a5f",
               "2 workers": "#b5523a"}
WIRE_NAMES = {"quantd": "quantd", "constant": "libmicrohttpd, constant",
              "1 worker": "FastAPI, 1 worker", "2 workers": "FastAPI, 2 workers"}
WIRE_LEFT, WIRE_TOP, WIRE_WIDTH, WIRE_HEIGHT, WIRE_PANEL = 60, 56, 340, 280, 370
WIRE_RATES = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # thousands per second; logarithmic axes
WIRE_NS = ((1e4, "10 µs"), (1e5, "100 µs"), (1e6, "1 ms"), (1e7, "10 ms"), (1e8, "100 ms"))


def linear_svg(shares, codes, sizes):
    """Returns the picture. `shares`: (code, size) -> the shares of libqk and of ONNX Runtime, or
    None."""
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
    """Returns the picture. `layers`: (name, network, speeds relative to ONNX Runtime in the order
    of CONV_COLORS, or None)."""
    return times_svg(layers, CONV_COLORS, "times as fast as ONNX Runtime")


def served_svg(layers):
    """Returns the picture. `layers`: (name, kind, numbers of answers relative to the better FastAPI
    in the order of SERVED_COLORS)."""
    return times_svg(layers, SERVED_COLORS, "times FastAPI's answers")


def networks_svg(networks):
    """Returns the picture. `networks`: (name, file's form, speeds relative to the contestants in
    the order of NETWORK_COLORS, or None)."""
    return times_svg(networks, NETWORK_COLORS, "times as fast as")


def latency_svg(points):
    """Returns the picture, with a panel for p50 and one for p99. `points`: name -> [(requests per
    second, answers per second, p50, p99)]."""
    bottom = WIRE_TOP + WIRE_HEIGHT
    parts = head(WIRE_LEFT + WIRE_PANEL + WIRE_WIDTH + 20, bottom + 46)
    parts += legend(WIRE_LEFT, 8, {WIRE_NAMES[name]: WIRE_COLORS[name] for name in points}, 180)
    for ns, words in WIRE_NS:
        parts.append(text(WIRE_LEFT - 6, wire_y(ns) + 4, words, "end"))
    for left, words, what in ((WIRE_LEFT, "p50", 2), (WIRE_LEFT + WIRE_PANEL, "p99", 3)):
        parts.append(text(left, WIRE_TOP - 10, words))
        for rate in WIRE_RATES:
            parts += [line(wire_x(left, 1000 * rate), WIRE_TOP, bottom),
                      text(wire_x(left, 1000 * rate), bottom + 16, rate, "middle")]
        parts += ['<path d="M%d %.1fh%d" stroke="#ccc"/>' % (left, wire_y(ns), WIRE_WIDTH)
                  for ns, _ in WIRE_NS]
        for name, series in points.items():
            parts += curve([(wire_x(left, point[0]), wire_y(point[what])) for point in series],
                           WIRE_COLORS[name])
    parts.append(text(WIRE_LEFT, bottom + 36,
                      "thousand requests in a second, at random times; each as far as it keeps up"))
    return "\n".join(parts + ["</svg>"]) + "\n"


def curve(places, color):
    way = " L".join("%.1f %.1f" % place for place in places)
    return (['<path d="M%s" stroke="%s" fill="none" stroke-width="2"/>' % (way, color)] +
            ['<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>' % (*place, color)
             for place in places]) if places else []


def along(value, ends):
    """Returns the position of `value` between the ends, from 0 to 1, on a logarithmic scale."""
    return min(1, max(0, math.log(value / ends[0]) / math.log(ends[1] / ends[0])))


def wire_x(left, rate):
    return left + WIRE_WIDTH * along(rate / 1000, (WIRE_RATES[0], WIRE_RATES[-1]))


def wire_y(ns):
    return WIRE_TOP + WIRE_HEIGHT * (1 - along(ns, (WIRE_NS[0][0], WIRE_NS[-1][0])))


def times_svg(layers, colors, words):
    step = len(colors) * BAR + GAP
    networks = {network for _, network, *_ in layers}
    height = TOP + len(layers) * step + len(networks) * 24 + 10
    parts = head(CONV_LEFT + CONV_UNIT * CONV_MOST + 50, height)
    parts += legend(CONV_LEFT, 8, colors, 130)
    parts.append(text(CONV_LEFT + 130 * len(colors) + 10, 17, words))
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
