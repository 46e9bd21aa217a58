/* Whether a helper is worth what it may cost. Who has taken units and then loses its CPU, because
 * others want that as well, is waited for until it gets it back: some 4 ms, which is a tick of the
 * kernel's timer. For a job of 100 us that is a disaster, and where the CPUs are busy it is not a
 * rare one: beside two processes that compute, requests with helpers took 5 ms, and 1.4 alone.
 *
 * So whoever was waited for makes the next ones dear. For a while, 16 times as long as the wait,
 * only what is longer than twice the wait is worth a helper; then somebody tries again. So waiting
 * for helpers that nobody needs takes a sixteenth of the time at most. */
#ifndef SERVER_WORK_SCHEDULER_LATENESS_H
#define SERVER_WORK_SCHEDULER_LATENESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A tick of any kernel. What is more than twice as long always has helpers. */
#define QD_LATE_NS_MAX UINT64_C(10000000)

/* All zero: nobody was late. */
struct qd_lateness {
    uint64_t waited_ns;
    uint64_t until_ns;
};

/* A helper has done its last units, of those that cost so much each; for so long everybody else had
 * none left. That is late where it is four times what a helper takes at once. */
void qd_lateness_note(struct qd_lateness *lateness, uint64_t waited_ns, uint64_t unit_cost_ns,
                      uint64_t now_ns);

/* Whether so many units that nobody has begun are worth the risk. */
bool qd_lateness_allows(const struct qd_lateness *lateness, size_t unit_count,
                        uint64_t unit_cost_ns, uint64_t now_ns);

#endif
