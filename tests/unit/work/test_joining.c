/* Whether workers share the phases of a network, by how long joining takes. */
#include <criterion/criterion.h>
#include <stdbool.h>

#include "server/work/scheduler/joining.h"

enum { ONE_CACHE_NS = 150, TWO_CACHES_NS = 660 };

static void note_many(struct qd_joining *joining, uint64_t took_ns)
{
    for (int i = 0; i < 200; i++)
        qd_joining_note(joining, took_ns);
}

/* Returns the most that QD_JOINING_TRIALS networks in a row have to take. */
static uint64_t most_of(struct qd_joining *joining)
{
    uint64_t most_ns = 0;
    for (int i = 0; i < QD_JOINING_TRIALS; i++) {
        const uint64_t ns = qd_joining_phase_ns(joining);
        most_ns = ns > most_ns ? ns : most_ns;
    }
    return most_ns;
}

Test(joining, before_the_first_time_all_networks_are_shared)
{
    struct qd_joining joining = {0};
    cr_assert_eq(most_of(&joining), 0);
}

/* Returns whether phases have to be QD_JOINING_TIMES times as long as `usual_ns`, give or take a
 * tenth. */
static bool is_about(struct qd_joining *joining, uint64_t usual_ns)
{
    const uint64_t tenth_ns = usual_ns / 10, most_ns = most_of(joining);
    return most_ns >= QD_JOINING_TIMES * (usual_ns - tenth_ns) &&
           most_ns <= QD_JOINING_TIMES * (usual_ns + tenth_ns);
}

Test(joining, phases_are_so_many_times_as_long_as_joining)
{
    struct qd_joining joining = {0};
    note_many(&joining, ONE_CACHE_NS);
    cr_assert(is_about(&joining, ONE_CACHE_NS));
    note_many(&joining, TWO_CACHES_NS);
    cr_assert(is_about(&joining, TWO_CACHES_NS));
}

Test(joining, thirty_workers_tell_that_caches_are_near_or_far)
{
    struct qd_joining joining = {0};
    note_many(&joining, ONE_CACHE_NS);
    for (int i = 0; i < 30; i++)
        qd_joining_note(&joining, TWO_CACHES_NS);
    cr_assert(is_about(&joining, TWO_CACHES_NS));
    for (int i = 0; i < 30; i++)
        qd_joining_note(&joining, ONE_CACHE_NS);
    cr_assert(is_about(&joining, ONE_CACHE_NS));
}

Test(joining, what_one_worker_takes_changes_little)
{
    struct qd_joining joining = {0};
    note_many(&joining, ONE_CACHE_NS);
    qd_joining_note(&joining, UINT64_MAX);
    cr_assert(is_about(&joining, ONE_CACHE_NS));
    qd_joining_note(&joining, 0);
    cr_assert(is_about(&joining, ONE_CACHE_NS));
}

Test(joining, one_of_so_many_networks_is_shared_in_any_case)
{
    struct qd_joining joining = {0};
    int trials = 0;
    note_many(&joining, TWO_CACHES_NS);
    for (int i = 0; i < 10 * QD_JOINING_TRIALS; i++)
        trials += qd_joining_phase_ns(&joining) == 0;
    cr_assert_eq(trials, 10);
}
