#include "server/work/scheduler/lateness.h"

#include "server/work/scheduler/scheduler.h"

enum { LATE_TIMES = 4, PAUSE_TIMES = 16 };

void qd_lateness_note(struct qd_lateness *lateness, uint64_t waited_ns, uint64_t unit_cost_ns,
                      uint64_t now_ns)
{
    const uint64_t portion_ns = unit_cost_ns > QD_BATCH_NS ? unit_cost_ns : QD_BATCH_NS;
    if (waited_ns / LATE_TIMES < portion_ns)
        return;
    lateness->waited_ns = waited_ns < QD_LATE_NS_MAX ? waited_ns : QD_LATE_NS_MAX;
    lateness->until_ns = now_ns + PAUSE_TIMES * lateness->waited_ns;
}

bool qd_lateness_allows(const struct qd_lateness *lateness, size_t unit_count,
                        uint64_t unit_cost_ns, uint64_t now_ns)
{
    return now_ns >= lateness->until_ns ||
           unit_count > 2 * lateness->waited_ns / (unit_cost_ns > 0 ? unit_cost_ns : 1);
}
