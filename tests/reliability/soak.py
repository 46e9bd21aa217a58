"""Runs everything at once for a long time: good clients of all kinds, and malicious, slow and
vanishing ones. No resource may grow, and each good request must be answered, once and correctly."""
import datetime
import json
import os
import statistics
import time

import clients
from clients import Running, raw_request
from loading import ModelTest, conv_file
from quantd import Server, parse_metrics

MIB = 1 << 20


def load_and_unload(stopped, port):
    """Loads a model, asks it and unloads it, again and again. Returns {status: count}; status 0: no
    answer came."""
    body = ModelTest.load_body(None, {"file:1/model.onnx": conv_file([1, 2, 1])})
    row = clients.Tensor.of("x", "UINT8", [1, 1, 5], [3, 1, 4, 1, 5])
    calls = (raw_request("POST", "/v2/repository/models/soak/load", body),
             clients.raw_infer("soak", clients.json_request([row])),
             raw_request("POST", "/v2/repository/models/soak/unload"))
    statuses = {}
    while not stopped():
        for call in calls:
            answer = clients.ask(port, call)
            status = 0 if answer is None else answer.status
            statuses[status] = statuses.get(status, 0) + 1
        time.sleep(0.01)
    return statuses


def start_clients(running, port):
    """Starts all clients. Returns the names of those whose every request must be answered, in the
    order of their starts."""
    good = {
        "small, JSON": (clients.probe, clients.small_json(), 0.001),
        "small, binary": (clients.probe, clients.small_binary(), 0.001),
        "convolution": (clients.probe, clients.large_conv(), 0.01),
        "JSON of 10 MB": (clients.probe, clients.large_json(10), 0.2),
        "binary of 32 MiB": (clients.probe, clients.large_binary(32), 0.2),
        "loads": (load_and_unload,),
    }
    for function, *arguments in good.values():
        running.start(function, port, *arguments)
    for seed in range(3):
        running.start(clients.vanish, port, (clients.large_conv(), clients.small_json(),
                                             clients.large_json(1))[seed], seed)
        running.start(clients.drip, port, (clients.small_json(), clients.small_binary(),
                                           raw_request("GET", "/metrics"))[seed], 0.05)
        running.start(clients.read_slowly, port, clients.large_binary(1 + seed), 0.05)
        running.start(clients.send_nonsense, port, seed)
    return list(good)


def sample(server, begun):
    samples = parse_metrics(server.get("/metrics").body.decode())
    values = {name: value for (name, labels), value in samples.items() if not labels}
    answers = sum(value for (name, _), value in samples.items() if name == "quantd_answers_total")
    return {"s": time.monotonic() - begun, "rss": server.rss_bytes(), "fds": server.open_fds(),
            "connections": values["quantd_connections"],
            "inflight": values["quantd_inflight_bytes"], "answers": answers}


def settle(server, begun):
    """Waits until all clients have gone, 30 s at most, and returns the state."""
    end = time.monotonic() + 30
    while True:
        last = sample(server, begun)
        if (last["connections"] <= 1 and last["inflight"] == 0) or time.monotonic() > end:
            return last
        time.sleep(0.1)


# ---- The picture -----------------------------------------------------------------------------

def curve(points, width, height, top):
    end = max(x for x, _ in points) or 1
    return " ".join("%.1f,%.1f" % (x / end * width, height - y / top * height) for x, y in points)


def draw(samples):
    """Returns a picture of resident memory and answers per second against time."""
    width, height = 640, 220
    rss = [(s["s"], s["rss"] / MIB) for s in samples]
    rates = [(b["s"], (b["answers"] - a["answers"]) / (b["s"] - a["s"]))
             for a, b in zip(samples, samples[10:])]
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" width="760" height="300" '
             'font-family="sans-serif" font-size="13">',
             '<rect width="760" height="300" fill="white"/><g transform="translate(60,30)">']
    for points, color, name, x, anchor in ((rss, "#2166ac", "resident, MiB", -6, "end"),
                                           (rates, "#1b7837", "answers/s", width + 6, "start")):
        top = max(y for _, y in points) * 1.15
        parts.append('<polyline fill="none" stroke="%s" stroke-width="1.3" points="%s"/>'
                     % (color, curve(points, width, height, top)))
        parts += ['<text x="%d" y="%.1f" text-anchor="%s" fill="%s">%.0f</text>'
                  % (x, height - part * height, anchor, color, part * top)
                  for part in (0, 0.25, 0.5, 0.75, 1)]
        parts.append('<text x="%d" y="-12" text-anchor="%s" fill="%s">%s</text>'
                     % (0 if anchor == "end" else width, "start" if anchor == "end" else "end",
                        color, name))
    parts += ['<path d="M0 0V%d H%d V0" fill="none" stroke="#888"/>' % (height, width),
              '<text x="%d" y="%d" text-anchor="middle">minutes: %.0f</text>'
              % (width / 2, height + 30, samples[-1]["s"] / 60), "</g></svg>"]
    return "\n".join(parts) + "\n"


# ---- The verdicts ----------------------------------------------------------------------------

def judge(samples, idle, left, outcomes):
    """Returns (text, whether it holds) for each promise."""
    seconds = samples[-1]["s"]
    minute = min(60, seconds / 3)
    first = [s["rss"] / MIB for s in samples if s["s"] <= minute]
    last = [s["rss"] / MIB for s in samples if s["s"] >= seconds - minute]
    first, last = first or [samples[0]["rss"] / MIB], last or [samples[-1]["rss"] / MIB]
    growth = statistics.median(last) / statistics.median(first) - 1
    yield ("resident memory, MiB: median of the first minute %.0f, of the last %.0f (%+.1f %%); "
           "maximum %.0f in the first minute, %.0f in all"
           % (statistics.median(first), statistics.median(last), 100 * growth, max(first),
              max(s["rss"] / MIB for s in samples)), growth <= 0.05)
    yield ("descriptors: %d before, %d after" % (idle["fds"], left["fds"]),
           left["fds"] <= idle["fds"])
    yield ("left at the end: connections %d, bytes in flight %d" % (left["connections"] - 1,
                                                        left["inflight"]),
           left["connections"] <= 1 and left["inflight"] == 0)
    for name, outcome in outcomes.items():
        statuses = outcome[1] if isinstance(outcome, tuple) else outcome or {}
        yield "%s: %s" % (name, statuses), bool(statuses) and set(statuses) <= {200, 503} and \
            statuses.get(200, 0) > 0


def run(seconds, folder):
    server = Server("--threads", "2", "--log-level", "error", "--receive-timeout", "3",
                    "--model-control-mode", "explicit")
    for request in (clients.small_json(), clients.large_conv()):
        clients.ask(server.port, request)
    begun = time.monotonic()
    idle = sample(server, begun)
    running = Running()
    names = start_clients(running, server.port)
    samples = []
    while time.monotonic() < begun + seconds:
        time.sleep(1)
        samples.append(sample(server, begun))
    results = running.stop()
    left = settle(server, begun)
    verdicts = list(judge(samples, idle, left, dict(zip(names, results))))
    try:
        server.stop()
        verdicts.append(("ends with status 0", True))
    except AssertionError as error:
        verdicts.append(("the end: %s" % error, False))
    nonsense = [result for result in results[len(names):] if isinstance(result, dict)]
    verdicts.append(("nonsense, each client: %s" % nonsense,
                     all(-1 not in each for each in nonsense)))
    lines = ["# The soak", "",
             "For %.0f minutes, clients of all kinds use one server: small and large requests, "
             "loads of models, slow senders and readers, nonsense, and clients that vanish. The "
             "server gave %.0f answers. Measured on %s; clients and server share %d CPUs. The "
             "braces say how often each status came. Status 0: no answer came within a second."
             % (seconds / 60, samples[-1]["answers"], datetime.date.today(), os.cpu_count()),
             "", "![resident memory and answers](soak.svg)", ""]
    lines += ["- %s%s" % ("" if good else "**FAIL** ", text) for text, good in verdicts]
    print("\n".join(lines[6:]))
    if seconds >= 60:
        (folder / "soak.md").write_text("\n".join(lines) + "\n")
        (folder / "soak.svg").write_text(draw(samples))
        if "SOAK_SAMPLES" in os.environ:
            with open(os.environ["SOAK_SAMPLES"], "w") as file:
                json.dump(samples, file)
    return all(good for _, good in verdicts)
