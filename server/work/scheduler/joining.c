#include "server/work/scheduler/joining.h"

#include <stdbool.h>

void qd_joining_note(struct qd_joining *joining, uint64_t took_ns)
{
    const uint64_t usual_ns = atomic_load(&joining->usual_ns);
    const uint64_t step_ns = usual_ns / 16 + 1;
    if (took_ns > usual_ns)
        atomic_store(&joining->usual_ns, usual_ns + step_ns);
    else if (took_ns < usual_ns)
        atomic_store(&joining->usual_ns, usual_ns - step_ns);
}

uint64_t qd_joining_phase_ns(struct qd_joining *joining)
{
    const bool is_trial = atomic_fetch_add(&joining->asks, 1) % QD_JOINING_TRIALS == 0;
    return is_trial ? 0 : QD_JOINING_TIMES * atomic_load(&joining->usual_ns);
}
