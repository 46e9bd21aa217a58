#define _GNU_SOURCE
#include "server/work/scheduler/cpu_yield.h"

#include <sched.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "server/base/clock.h"

enum { LINUX_SLICE_NS = 100000 };

/* The first version of sched_setattr(2)'s struct. glibc declares it since 2.41, and the kernel's
 * header conflicts with older versions of glibc. */
struct attributes {
    uint32_t size;
    uint32_t policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns;
    uint64_t deadline_ns;
    uint64_t period_ns;
};

static _Thread_local bool is_short;
static _Thread_local uint64_t offered_ns;

void qd_cpu_shorten_linux_slices(void)
{
    struct attributes attributes = {.size = sizeof(attributes)};
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0 ||
        (attributes.policy != SCHED_OTHER && attributes.policy != SCHED_BATCH))
        return;
    attributes.runtime_ns = LINUX_SLICE_NS;
    is_short = syscall(SYS_sched_setattr, 0, &attributes, 0) == 0;
}

void qd_cpu_yield(void)
{
    if (!is_short)
        return;
    const uint64_t now_ns = qd_clock_ns();
    if (now_ns - offered_ns < QD_CPU_YIELD_NS)
        return;
    sched_yield();
    offered_ns = now_ns;
}
