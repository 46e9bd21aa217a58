/* Decides for the scheduler whether waking a helper, a worker that joins a phase which another
 * thread began, is worth what it may cost. A straggler is a helper that has taken units and then
 * loses its CPU, because other threads want it as well. The job waits until the straggler gets a
 * CPU back: some 4 ms, which is a tick of the kernel's timer. That is very long for a job of 100
 * us, and not rare if the CPUs are busy: beside two other processes that compute, requests took
 * 5 ms if their jobs got helpers, and 1.4 ms if they got none.
 *
 * So after a straggler the scheduler backs off: for as long as the wait was, only a phase that is
 * longer than twice the wait gets a helper. Then helpers are tried again. If the next straggler
 * comes before helpers were in time for QD_PRECAUTION_SHARE of its waits, the scheduler backs off
 * for twice as many waits as before, up to QD_PRECAUTION_SHARE. So in the long run waiting for
 * stragglers takes a sixteenth of the time at most, and a single one, as when a host takes a
 * virtual CPU away for some ms, does not cost much more than the wait. When each one cost
 * QD_PRECAUTION_SHARE waits, 2 to 16 of 100 requests to ResNet-50 on an idle virtual machine with
 * two CPUs had no helper, and took twice as long. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The longest tick of a kernel. Phases that are longer than twice this time always have helpers. */
#define QD_STRAGGLER_NS_MAX UINT64_C(10000000)

/* After the last straggler: how long it was waited for, and until when helpers are avoided, which
 * is `waits` times as long. All fields are 0 if there was none. */
struct qd_straggler_backoff {
    uint64_t waited_ns; /* at most QD_STRAGGLER_NS_MAX */
    uint64_t until_ns;
    uint64_t waits; /* at most QD_PRECAUTION_SHARE */
};

/* Notes that a helper has done its last units, while the other workers have had no units left for
 * waited_ns. The helper was a straggler if that is at least QD_LOW_BY times as long as a batch. */
void qd_straggler_note(struct qd_straggler_backoff *backoff, uint64_t waited_ns,
                       uint64_t unit_cost_ns, uint64_t now_ns);

/* Returns whether a helper may be woken for unit_count units that are not begun. */
bool qd_straggler_allows(const struct qd_straggler_backoff *backoff, size_t unit_count,
                         uint64_t unit_cost_ns, uint64_t now_ns);
