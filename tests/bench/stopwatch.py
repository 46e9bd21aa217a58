"""Rounds of time, as measure.c has them."""
import time

BATCH_NS = 100_000
ROUND_NS = 1_000_000
WARM_NS_MAX = 2_000_000


def time_batch(run, count):
    start = time.perf_counter_ns()
    for _ in range(count):
        run()
    return (time.perf_counter_ns() - start) / count


def time_round(run):
    """Nanoseconds of the best run, or of the best batch of short ones."""
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
