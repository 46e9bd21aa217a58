/* Which work still gets a helper after a helper was late. */
#include <criterion/criterion.h>

#include "server/base/clock.h"
#include "server/work/scheduler/scheduler.h"
#include "server/work/scheduler/straggler.h"

#define NOW_NS (UINT64_C(1000) * QD_NS_PER_S)

Test(straggler, who_is_in_time_costs_nothing)
{
    struct qd_straggler_backoff backoff = {0};
    cr_assert(qd_straggler_allows(&backoff, 2, QD_BATCH_NS, NOW_NS));
    qd_straggler_note(&backoff, 4 * QD_BATCH_NS - 1, 1, NOW_NS);
    qd_straggler_note(&backoff, QD_QUANTUM_NS, QD_QUANTUM_NS, NOW_NS);
    cr_assert(qd_straggler_allows(&backoff, 2, QD_BATCH_NS, NOW_NS));
}

/* Returns for how many waits short jobs do without help, from `now_ns` on. Longer ones have it. */
static uint64_t waits_without_help(const struct qd_straggler_backoff *backoff, uint64_t waited_ns,
                                   uint64_t now_ns)
{
    const size_t units = 2 * waited_ns / QD_BATCH_NS;
    uint64_t waits = 0;
    while (!qd_straggler_allows(backoff, units / 2, QD_BATCH_NS, now_ns + waits * waited_ns)) {
        cr_assert(qd_straggler_allows(backoff, units + 1, QD_BATCH_NS, now_ns + waits * waited_ns));
        cr_assert_not(
            qd_straggler_allows(backoff, 2, QD_BATCH_NS, now_ns + (waits + 1) * waited_ns - 1));
        waits++;
    }
    return waits;
}

Test(straggler, who_was_late_makes_short_jobs_do_without_help)
{
    const uint64_t waited_ns = 4 * QD_NS_PER_MS;
    struct qd_straggler_backoff backoff = {0};
    qd_straggler_note(&backoff, waited_ns, QD_BATCH_NS, NOW_NS);
    cr_assert_eq(waits_without_help(&backoff, waited_ns, NOW_NS), 1);
}

Test(straggler, who_is_late_again_and_again_is_tried_less)
{
    const uint64_t waited_ns = 4 * QD_NS_PER_MS;
    struct qd_straggler_backoff backoff = {0};
    uint64_t now_ns = NOW_NS;
    for (uint64_t waits = 1; waits <= 64; waits *= 2) {
        qd_straggler_note(&backoff, waited_ns, QD_BATCH_NS, now_ns);
        const uint64_t found = waits_without_help(&backoff, waited_ns, now_ns);
        cr_assert_eq(found, waits < QD_PRECAUTION_SHARE ? waits : QD_PRECAUTION_SHARE);
        now_ns += (found + QD_PRECAUTION_SHARE) * waited_ns - 1; /* just too soon */
    }
    qd_straggler_note(&backoff, waited_ns, QD_BATCH_NS, now_ns + 1);
    cr_assert_eq(waits_without_help(&backoff, waited_ns, now_ns + 1), 1);
    qd_straggler_note(&backoff, waited_ns, QD_BATCH_NS, now_ns + 2);
    cr_assert_eq(waits_without_help(&backoff, waited_ns, now_ns + 2), 2, "one that was awake");
}

/* This holds however long the process was stopped. */
Test(straggler, what_is_long_always_has_help)
{
    struct qd_straggler_backoff backoff = {0};
    qd_straggler_note(&backoff, UINT64_MAX, 0, NOW_NS);
    cr_assert_not(qd_straggler_allows(&backoff, 2, QD_QUANTUM_NS, NOW_NS));
    cr_assert(qd_straggler_allows(&backoff, 1 + 2 * QD_STRAGGLER_NS_MAX / QD_QUANTUM_NS,
                                  QD_QUANTUM_NS, NOW_NS));
    cr_assert(qd_straggler_allows(&backoff, 1, UINT64_MAX, NOW_NS));
    cr_assert(qd_straggler_allows(&backoff, 2, 1, NOW_NS + 16 * QD_STRAGGLER_NS_MAX));
}
