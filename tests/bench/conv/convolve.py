"""The convolutions' part of `make bench`: chooses the rows and measures each of them."""
import figures
import layers
from convolve_report import LOOPS, Report, falls_short, one_line
from figures import threads_text
from peer import Unsupported
from stopwatch import best, spread, take_turns
from tensors import random_bytes

CALL_ROUNDS = 3  # few: the best time comes soon


class Part(figures.Part):
    falls_short, one_line = staticmethod(falls_short), staticmethod(one_line)
    x_bytes = staticmethod(random_bytes)

    def __init__(self, budget_seconds):
        self.budget_seconds = budget_seconds

    @staticmethod
    def select(options, threads, gemms):
        batches = layers.BATCHES if options.full or options.only else layers.BATCHES[:1]
        return (layers.smoke(threads, gemms) if options.smoke else
                layers.full(threads, gemms, batches))

    @staticmethod
    def report(results, machine_lines, libqk):
        copies = ", ".join("%.1f GB/s on %s" % (speed, threads_text(count))
                           for count, speed in sorted(libqk.copies.items()))
        return Report(results, machine_lines + ["OpenBLAS: core %s" % libqk.core,
                                                "memory is copied at " + copies])

    @staticmethod
    def measure(row, libqk, peer, seconds):
        """Measures a row and returns the result as a dict that JSON can hold. "run" has its weights
        packed beforehand, "fresh" packs them in each run. "peer" has the weights in its model,
        "peer_fresh" gets them as inputs."""
        made = libqk.prepare(row)
        names = ["run"] + (["pack", "fresh"] if row.gemm == "auto" else [])
        operations = {}
        if row.threads > 1:
            names.append("alone")
        else:
            operations = {peak: libqk.peak(peak) for peak in LOOPS if libqk.peak(peak)}
        if made["kernel"] == "conv_sgemm":
            libqk.say("sgemm", *row.sgemm)
            operations["sgemm"] = row.sgemm_operations
        names += operations
        turns, runs, why = [lambda _: libqk.round(*names)], {}, ""
        if peer:
            try:
                runs = {"peer": peer.prepare(row)}
                if row.gemm == "auto":
                    runs["peer_fresh"] = peer.prepare(row, ("x", "w"))
                    turns.append(lambda count: peer_round(row, peer, runs, count))
            except Unsupported as error:
                why = str(error)
        series = take_turns(turns, *((4, 16) if row.threads == 1 else (6, 12)), seconds)
        y = libqk.output()
        same = all(peer.output(row, run) == y for run in runs.values()) if runs else None
        return {"name": str(row), "network": row.layer.network, "layer": str(row.layer),
                "kind": row.layer.kind, "batch": row.batch, "threads": row.threads,
                "gemm": row.gemm, "operations": row.operations, "copy": libqk.copy(row.threads),
                "ns": best(series),
                "gops": {name: count / min(series[name]) for name, count in operations.items()},
                "spread": spread(series), "rounds": len(series["run"]), "same": same, "why": why,
                **made}


def peer_round(row, peer, runs, count):
    found = {name: peer.time_round(run, row.threads) for name, run in runs.items()}
    if count <= CALL_ROUNDS:
        found["call"] = peer.call_ns(row.threads)
    return found
