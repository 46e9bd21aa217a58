"""The parts of `make bench` for operators that change a tensor's type: chooses the rows and
measures each of them."""
import figures
import rows
from linear_report import Report, falls_short, name, one_line
from peer import Unsupported
from stopwatch import best, spread, take_turns
from tensors import MIB

PEER_LARGE_ROUNDS = 3  # few: ONNX Runtime is slow with large tensors, and its best time comes soon
CALL_ROUNDS = 8


def memory_bytes():
    """Returns how many bytes of memory are available; a number that is always enough if the system
    does not say."""
    try:
        with open("/proc/meminfo") as file:
            sizes = {line.split(":")[0]: int(line.split()[1]) << 10 for line in file}
        return sizes["MemAvailable"]
    except (OSError, KeyError):
        return 1 << 40


class Part(figures.Part):
    falls_short, one_line = staticmethod(falls_short), staticmethod(one_line)

    def __init__(self, model, budget_seconds):
        self.model, self.budget_seconds = model, budget_seconds

    def select(self, options, threads, _):
        if options.smoke:
            return rows.smoke(self.model, threads)
        selected = figures.chosen(options, [
            row for row in rows.full(self.model, threads)
            if options.full or options.only or rows.is_quick(row)])
        # Memory for two outputs (libqk's and the peer's), three copies of x, and a reserve.
        room = memory_bytes() * 0.9 - 3 * max((row.size for row in selected), default=0)
        left_out = [row for row in selected if 2 * row.y_bytes > room]
        for row in left_out:
            print("bench: left out, too little memory: %s" % row)
        return [row for row in selected if row not in left_out]

    def x_bytes(self, size):
        return rows.x_bytes(self.model, size)

    def report(self, results, machine_lines, libqk):
        return Report(self.model, results,
                      machine_lines + ["limit: %s loads and stores" % libqk.width])

    @staticmethod
    def measure(row, libqk, peer, seconds):
        """Measures a row and returns the result as a dict that JSON can hold."""
        made = libqk.prepare(row)
        large = row.size > MIB
        names = ["run", "store", "stream"] + (["pack"] if made["pack_units"] else [])
        turns = [lambda _: libqk.round(*names)]
        run, why = None, ""
        if peer:
            try:
                run = peer.prepare(row)
                turns.append(lambda count: peer_round(row, peer, run, count, large))
            except Unsupported as error:
                why = str(error)
        least, most = (3, 12) if large else (8, 24)
        series = take_turns(turns, least, most, seconds)
        same = libqk.output() == peer.output(row, run) if run and not large else None
        result = {"model": row.model, "x": row.x, "y": row.y, "code": row.code, "real": row.real,
                  "grain": row.grain, "size": row.size, "threads": row.threads,
                  "ns": best(series), "spread": spread(series), "rounds": len(series["run"]),
                  "same": same, "why": why, **made}
        return {"name": name(result), **result}


def peer_round(row, peer, run, count, large):
    if large and count > PEER_LARGE_ROUNDS:
        return {}
    found = {"peer": peer.time_round(run, row.threads)}
    if count <= CALL_ROUNDS:
        found["call"] = 0.0 if large else peer.call_ns(row.threads)
    return found
