/* What the server asks of the kernel for a thread, and what happens to a thread if the kernel
 * refuses. Each test has its own thread, because the settings stay with the thread. */
#define _GNU_SOURCE
#include "server/work/scheduler/cpu_yield.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "server/base/clock.h"

/* The structure of sched_getattr(2), in its first version. */
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

static _Thread_local unsigned yield_count;

/* Replaces the C library's function in the whole program. */
int sched_yield(void)
{
    yield_count++;
    return (int)syscall(SYS_sched_yield);
}

static struct attributes own_attributes(void)
{
    struct attributes attributes = {.size = 0};
    cr_assert_eq(syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0), 0);
    return attributes;
}

static void *run(void *test)
{
    (*(void (**)(void))test)();
    return NULL;
}

static void run_in_thread(void (*test)(void))
{
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, run, &test), 0);
    pthread_join(thread, NULL);
}

/* Returns true if the kernel uses the slice, as it does since 6.12. Older kernels accept the number
 * and forget it. */
static bool kernel_knows_slices(void)
{
    struct utsname name;
    unsigned major = 0;
    unsigned minor = 0;
    cr_assert_eq(uname(&name), 0);
    cr_assert_eq(sscanf(name.release, "%u.%u", &major, &minor), 2);
    return major > 6 || (major == 6 && minor >= 12);
}

/* ---- Where the kernel takes it ------------------------------------------------------------- */

/* No slices are requested under SCHED_IDLE or for a real-time thread. All tests may run with such a
 * policy. */
static bool is_ordinary(void)
{
    const int policy = sched_getscheduler(0);
    if (policy != SCHED_OTHER && policy != SCHED_BATCH)
        fprintf(stderr, "slice: not tried under scheduling policy %d\n", policy);
    return policy == SCHED_OTHER || policy == SCHED_BATCH;
}

static void ask(void)
{
    const struct attributes before = own_attributes();
    qd_cpu_shorten_linux_slices();
    const struct attributes after = own_attributes();
    cr_assert_eq(after.policy, before.policy);
    cr_assert_eq(after.nice, before.nice);
    cr_assert_eq(after.priority, before.priority);
    if (kernel_knows_slices())
        cr_assert_eq(after.runtime_ns, 100000);
}

Test(cpu_yield, a_thread_asks_for_short_ones_and_nothing_else)
{
    if (is_ordinary())
        run_in_thread(ask);
}

static void offer(void)
{
    qd_cpu_shorten_linux_slices();
    const uint64_t begun_ns = qd_clock_ns();
    for (unsigned i = 0; i < 1000; i++)
        qd_cpu_yield();
    const uint64_t took_ns = qd_clock_ns() - begun_ns;
    cr_assert_geq(yield_count, 1);
    cr_assert_leq(yield_count, took_ns / QD_CPU_YIELD_NS + 1);
    const unsigned before = yield_count;
    nanosleep(&(struct timespec){.tv_nsec = 2 * QD_CPU_YIELD_NS}, NULL);
    qd_cpu_yield();
    cr_assert_eq(yield_count, before + 1);
}

Test(cpu_yield, a_thread_offers_its_cpu_now_and_then)
{
    if (is_ordinary())
        run_in_thread(offer);
}

/* ---- Where it does not --------------------------------------------------------------------- */

static void expect_no_offer(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 2 * QD_CPU_YIELD_NS}, NULL);
    qd_cpu_yield();
    cr_assert_eq(yield_count, 0);
}

Test(cpu_yield, who_has_not_asked_keeps_its_cpu)
{
    run_in_thread(expect_no_offer);
}

/* Makes the calling thread's sched_setattr fail with `error` from now on. Returns false if filters
 * are not allowed here. */
static bool refuse_setattr(int error)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_setattr, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof(filter) / sizeof(*filter), filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static int refusal; /* an errno */

static void be_refused(void)
{
    if (!refuse_setattr(refusal)) {
        fprintf(stderr, "not tested: no filter of system calls: %s\n", strerror(errno));
        return;
    }
    const struct attributes before = own_attributes();
    qd_cpu_shorten_linux_slices();
    const struct attributes after = own_attributes();
    cr_assert_eq(memcmp(&before, &after, sizeof(after)), 0);
    expect_no_offer();
}

/* Refusals by an older kernel, by a kernel without the call, and by a filter of the process. */
Test(cpu_yield, who_is_refused_stays_as_it_was)
{
    static const int refusals[] = {E2BIG, EINVAL, ENOSYS, EPERM};
    for (size_t i = 0; i < sizeof(refusals) / sizeof(*refusals); i++) {
        refusal = refusals[i];
        run_in_thread(be_refused);
    }
}

/* Makes this an idle thread. It stands for a real-time thread, which needs rights that a test may
 * not have. */
static void be_idle(void)
{
    const struct sched_param none = {.sched_priority = 0};
    cr_assert_eq(sched_setscheduler(0, SCHED_IDLE, &none), 0);
    const struct attributes before = own_attributes();
    qd_cpu_shorten_linux_slices();
    const struct attributes after = own_attributes();
    cr_assert_eq(memcmp(&before, &after, sizeof(after)), 0);
    expect_no_offer();
}

Test(cpu_yield, who_is_scheduled_otherwise_stays_as_it_was)
{
    run_in_thread(be_idle);
}
