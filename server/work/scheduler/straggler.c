#include "server/work/scheduler/straggler.h"

#include "server/work/scheduler/scheduler.h"

void qd_straggler_note(struct qd_straggler_backoff *backoff, uint64_t waited_ns,
                       uint64_t unit_cost_ns, uint64_t now_ns)
{
    const uint64_t batch_ns = unit_cost_ns > QD_BATCH_NS ? unit_cost_ns : QD_BATCH_NS;
    if (waited_ns / QD_LOW_BY < batch_ns)
        return;
    backoff->waited_ns = waited_ns < QD_STRAGGLER_NS_MAX ? waited_ns : QD_STRAGGLER_NS_MAX;
    if (now_ns >= backoff->until_ns + QD_PRECAUTION_SHARE * backoff->waited_ns)
        backoff->waits = 1;
    else if (backoff->waits < QD_PRECAUTION_SHARE)
        backoff->waits *= 2;
    backoff->until_ns = now_ns + backoff->waits * backoff->waited_ns;
}

bool qd_straggler_allows(const struct qd_straggler_backoff *backoff, size_t unit_count,
                         uint64_t unit_cost_ns, uint64_t now_ns)
{
    return now_ns >= backoff->until_ns ||
           unit_count > 2 * backoff->waited_ns / (unit_cost_ns > 0 ? unit_cost_ns : 1);
}
