"""The convolutions' part of `make bench`: which rows, and how one is measured."""
import statistics

import layers
from convolve_report import Report, falls_short, notes, one_line
from peer import Unsupported
from stopwatch import take_turns

BUDGET_SECONDS = 300
PEAKS = ("fma", "madd", "vnni", "amx")
CALL_ROUNDS = 3  # its best comes soon

__all__ = ["BUDGET_SECONDS", "Report", "falls_short", "one_line", "select", "measure", "notes"]


def select(options, threads, gemms):
    selected = layers.smoke(threads, gemms) if options.smoke else layers.full(threads, gemms)
    for words in options.only or []:
        selected = [row for row in selected if words in str(row)]
    return selected


def measure(row, libqk, peer, seconds):
    """The row's result, as a dict that JSON can hold. "run" has its weights packed beforehand,
    "fresh" packs them; "peer" has them in its model, "peer_fresh" among its inputs."""
    made = libqk.prepare(row)
    names = ["run", "fresh"]
    operations = {}
    if row.threads > 1:
        names.append("alone")
    else:
        operations = {peak: libqk.peak(peak) for peak in PEAKS if libqk.peak(peak)}
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
            "kind": row.layer.kind, "batch": row.batch, "threads": row.threads, "gemm": row.gemm,
            "operations": row.operations,
            "ns": {name: min(values) for name, values in series.items()},
            "gops": {name: count / min(series[name]) for name, count in operations.items()},
            "spread": {name: statistics.median(values) / min(values) - 1
                       for name, values in series.items()},
            "rounds": len(series["run"]), "same": same, "why": why, **made}


def peer_round(row, peer, runs, count):
    found = {name: peer.time_round(run, row.threads) for name, run in runs.items()}
    if count <= CALL_ROUNDS:
        found["call"] = peer.call_ns(row.threads)
    return found
