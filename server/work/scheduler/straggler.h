/* Whether a helper is worth what it may cost. A straggler is a helper that has taken units and then
 * loses its CPU, because other threads want it as well. The job waits until the straggler gets it
 * back: some 4 ms, which is a tick of the kernel's timer. For a job of 100 us that is a disaster,
 * and where the CPUs are busy it is not a rare one: beside two processes that compute, requests
 * with helpers took 5 ms, and 1.4 alone.
 *
 * So after a straggler the scheduler backs off. For a while, 16 times as long as the wait, only a
 * phase that is longer than twice the wait gets a helper. Then helpers are tried again. So waiting
 * for stragglers takes a sixteenth of the time at most. */
#ifndef SERVER_WORK_SCHEDULER_STRAGGLER_H
#define SERVER_WORK_SCHEDULER_STRAGGLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A tick of any kernel. What is more than twice as long always has helpers. */
#define QD_STRAGGLER_NS_MAX UINT64_C(10000000)

/* All zero: there was no straggler. */
struct qd_straggler_backoff {
    uint64_t waited_ns;
    uint64_t until_ns;
};

/* A helper has done its last units, of those that cost so much each; for so long everybody else had
 * none left. It is a straggler where that is four times what a helper takes at once. */
void qd_straggler_note(struct qd_straggler_backoff *backoff, uint64_t waited_ns,
                       uint64_t unit_cost_ns, uint64_t now_ns);

/* Whether so many units that nobody has begun are worth the risk. */
bool qd_straggler_allows(const struct qd_straggler_backoff *backoff, size_t unit_count,
                         uint64_t unit_cost_ns, uint64_t now_ns);

#endif
