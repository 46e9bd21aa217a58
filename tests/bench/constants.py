"""The scheduler's constants: reads each one from its source, measures what it stands for, and says
which values the measurement supports. A constant without a rule is an error, so that no new one
goes unmeasured."""
import re
import statistics
from pathlib import Path

import layers
from figures import ns_text
from tensors import random_bytes

SOURCES = Path(__file__).resolve().parent.parent.parent / "server" / "work" / "scheduler"
NAMES = {"NOBODY", "NO_EVENT", "QD_LEVEL_DEFAULT", "QD_LEVEL_LAST"}  # of indexes, not of quantities
WORK_NS = 200_000  # of the phase whose helper has to be woken
JOIN_WORKS_NS = (2_000, 4_000, 8_000, 16_000, 32_000)
SERIES = 3
GAIN = 1.25  # is worth a second worker; waking one gains as much with work of twice QD_HANDOVER_NS
ABOUT = 2  # a value agrees with a time if neither is more than twice the other
THREADS_PER_CPU = 2  # on a busy machine


def read():
    """Returns name -> (value, the constant that it equals or None). Values ending in _NS are
    nanoseconds."""
    texts = [path.read_text() for path in sorted(SOURCES.glob("*.[ch]"))]
    found = {}
    for text in texts:
        for name, number in re.findall(r"^#define (QD_\w+) (?:UINT64_C\()?(\d+)\)?$", text, re.M):
            found[name] = (int(number), None)
        for body in re.findall(r"^enum \w*\s*\{(.*?)\}", text, re.M | re.S):
            for name, number in re.findall(r"\b([A-Z]\w+) = (-?\d[\d <]*)", body):
                found[name] = (number_of(number), None)
    for text in texts:
        for name, factor, other in re.findall(
                r"^#define (QD_\w+_NS) \(?(?:(\d+) \* )?(QD_\w+_NS)\)?$", text, re.M):
            found[name] = (int(factor or 1) * found[other][0],
                           factor + " × " + other if factor else other)
    return {name: pair for name, pair in found.items() if name not in NAMES}


def number_of(text):
    left, _, shift = text.partition("<<")
    return int(left) << int(shift or 0)


# ---- Measurements --------------------------------------------------------------------------------


def measure(libqk, threads, smoke):
    """Returns name -> nanoseconds, or a factor, of everything that the rules need. 0: it could not
    be measured."""
    count = 1 if smoke else SERIES
    wakes = [libqk.handover(threads, WORK_NS, WORK_NS) for _ in range(count)]
    best = min(wakes, key=lambda ns: ns["all"])
    found = libqk.constants()
    return {"wake": best["wake"], "join": worth_joining(libqk, threads, count) / 2,
            **{name: statistics.median(ns[name] for ns in wakes) for name in ("give", "trip")},
            **found, "low": estimates_low_by(libqk, smoke)}


def worth_joining(libqk, threads, count):
    """Returns the work of a second phase that workers who are awake do GAIN times as fast as one
    worker alone; 0: there is none. Interpolates between the works that are measured."""
    last = 0, 0
    for work in JOIN_WORKS_NS:
        ns = min((libqk.handover(threads, WORK_NS, work) for _ in range(count)),
                 key=lambda ns: ns["again"])
        gain = ns["again_alone"] / ns["again"]
        if gain >= GAIN:
            return last[0] + (work - last[0]) * (GAIN - last[1]) / (gain - last[1])
        last = work, gain
    return 0


def estimates_low_by(libqk, smoke):
    """Returns by which factor the estimate of a layer is too low at worst."""
    rows = [row for row in (layers.smoke if smoke else layers.full)(1, [])
            if row.batch == 1 and row.gemm == "auto"]
    libqk.give(random_bytes(max(row.x_bytes for row in rows)))
    worst = 1.0
    for row in rows:
        plan = libqk.prepare(row)
        ns = min(libqk.round("run")["run"] for _ in range(3))
        worst = max(worst, ns / (plan["units"] * plan["unit_ns"]))
    return worst


# ---- What a measurement supports -----------------------------------------------------------------


def about(value):
    return (value / ABOUT, value * ABOUT)


# For each constant that is not equal to another one: what is measured, the measured value, and the
# least and the greatest value that it supports. `m` has the measurements, `c` the constants.
RULES = {
    "QD_HANDOVER_NS": ("from a phase's start until a worker that slept begins",
                       lambda m, c: m["wake"], lambda m, c: about(m["wake"])),
    "QD_WATCH_NS": ("the same, twice: watching costs no more than being woken",
                    lambda m, c: 2 * m["wake"], lambda m, c: about(2 * m["wake"])),
    "QD_JOIN_NS": ("half of the work that two awake workers do %s times as fast as one" % GAIN,
                   lambda m, c: m["join"], lambda m, c: about(m["join"])),
    "QD_INLINE_NS": ("a job's way to a worker that sleeps, and back to the loop",
                     lambda m, c: m["trip"], lambda m, c: (m["trip"] / ABOUT, m["wake"] * ABOUT)),
    "QD_GIVING_NS": ("the loop's part of it, qd_scheduler_submit",
                     lambda m, c: m["give"], lambda m, c: about(m["give"])),
    "QD_BATCH_NS": ("the check between two batches: a sixteenth at most; no longer than waking",
                    lambda m, c: m["check"],
                    lambda m, c: (c["QD_PRECAUTION_SHARE"] * m["check"], m["wake"] * ABOUT)),
    "QD_QUANTUM_NS": ("refilling the L2 cache: a sixteenth at most; no longer than Linux's slices",
                      lambda m, c: m["refill"],
                      lambda m, c: (c["QD_PRECAUTION_SHARE"] * m["refill"], m["gap"])),
    "QD_CPU_YIELD_NS": ("sched_yield and refilling the L2 cache: a sixteenth at most; "
                        "no longer than a time slice",
                        lambda m, c: m["yield"] + m["refill"],
                        lambda m, c: (c["QD_PRECAUTION_SHARE"] * (m["yield"] + m["refill"]),
                                      c["QD_QUANTUM_NS"])),
    "LINUX_SLICE_NS": ("the shortest slice that this kernel grants",
                       lambda m, c: m["slice"], lambda m, c: (m["slice"], m["slice"])),
    "QD_STRAGGLER_NS_MAX": ("how long a thread waits for a CPU on which another one computes; "
                            "kernels with longer ticks exist",
                            lambda m, c: m["gap"], lambda m, c: (m["gap"], float("inf"))),
    "QD_LOW_BY": ("by which factor a layer's estimate is too low at worst; "
                  "twice that if two threads share a CPU",
                  lambda m, c: m["low"],
                  lambda m, c: (THREADS_PER_CPU * m["low"], about(THREADS_PER_CPU * m["low"])[1])),
}
CHOSEN = {
    "QD_PRECAUTION_SHARE": "a share, not a time: the rules above use it",
    "QD_JOINING_TIMES": "networks on one and on two L3 caches: joining.h has their times",
    "QD_JOINING_TRIALS": "a share of networks that may be slower, to learn when CPUs are near",
    "QD_RETRY_AFTER_MAX_S": "a promise to clients",
    "INTERVAL_JOBS": "smooths Retry-After, which is in whole seconds",
    "CACHE_LINE_BYTES": "of x86-64 and most ARM64 CPUs; with another size only speed differs",
    "STACK_BYTES": "address space, of which a thread gets what it touches",
}


def differences():
    """Returns the sorted names that only the scheduler's sources have, or only this file. `make
    lint` demands that there are none."""
    return sorted(set(read()) ^ (set(RULES) | set(CHOSEN)))


def table(measured):
    """Yields (name, value, what was measured, measured value, supported values, agreement) for each
    constant, as texts."""
    constants = read()
    values = {name: value for name, (value, _) in constants.items()}
    for name, (what, measure_of, supported_by) in RULES.items():
        value, other = constants[name]
        found = measure_of(measured, values)
        low, high = supported_by(measured, values)
        text = text_of(name, value) + (" = " + other if other else "")
        if not found or not high:  # no worker came in time, or the kernel does not say
            yield name, text, what, "–", "–", "–"
        else:
            yield (name, text, what, text_of(name, found), range_text(name, low, high),
                   "yes" if low <= value <= high else "**no**")
    for name, why in CHOSEN.items():
        yield name, text_of(name, values[name]), "nothing: " + why, "–", "–", "chosen"


def text_of(name, value):
    if "_NS" in name:
        return ns_text(value)
    return "%d MiB" % (value >> 20) if name.endswith("BYTES") else "%.3g" % value


def range_text(name, low, high):
    if low == high:
        return text_of(name, low)
    if high == float("inf"):
        return "%s or more" % text_of(name, low)
    return "%s to %s" % (text_of(name, low), text_of(name, high))
