"""Measures rounds of time, as measure.c does, and evaluates their series."""
import statistics
import time

BATCH_NS = 100_000
ROUND_NS = 1_000_000
WARM_NS_MAX = 2_000_000
SAME = 1.03  # rounds that differ by at most this factor count as equal


def time_batch(run, count):
    start = time.perf_counter_ns()
    for _ in range(count):
        run()
    return (time.perf_counter_ns() - start) / count


def time_round(run):
    """Returns the nanoseconds of the best run, or of the best batch if runs are short."""
    best = time_batch(run, 1)
    if best < WARM_NS_MAX:
        best = time_batch(run, 1)
    if best >= WARM_NS_MAX:
        return best
    count = 1
    while best * count < BATCH_NS:
        count *= 2
        best = time_batch(run, count)
    spent = 0
    while spent < ROUND_NS:
        ns = time_batch(run, count)
        spent += ns * count
        best = min(best, ns)
    return best


def settled(series):
    """True if the best time of the series has been seen at least twice."""
    return sum(ns <= min(series) * SAME for ns in series) > 1


def take_turns(measures, least, most, seconds):
    """Measures in rounds, each of `measures` in turn, and returns name -> series. Each measure
    returns name -> nanoseconds. Goes on for at least `least` rounds and until all series have
    settled, but for at most `most` rounds or `seconds` seconds."""
    series = {}
    end = time.monotonic() + seconds
    for count in range(1, most + 1):
        for measure in measures:
            for name, ns in measure(count).items():
                series.setdefault(name, []).append(ns)
        if count >= least and all(map(settled, series.values())) or time.monotonic() > end:
            break
    return series


def best(series):
    return {name: min(values) for name, values in series.items()}


def spread(series):
    """Returns by what share the median round was slower than the best."""
    return {name: statistics.median(values) / min(values) - 1 if min(values) else 0
            for name, values in series.items()}
