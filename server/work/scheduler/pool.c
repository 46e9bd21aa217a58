#define _GNU_SOURCE
#include "server/work/scheduler/pool.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>
#include <uv.h>

#include "server/base/limits.h"
#include "server/work/scheduler/cpu_yield.h"

_Static_assert(QD_THREAD_COUNT_MAX <= CPU_SETSIZE, "there may be a worker for each CPU of a set");

enum { STACK_BYTES = 8 << 20 };

struct thread {
    struct qd_pool *pool;
    uv_thread_t uv;
    pid_t id;
    uv_sem_t wake;     /* at first, wakes the thread when all threads exist */
    bool moved;        /* the thread that woke it took a CPU from it */
    cpu_set_t allowed; /* the CPUs it might use before */
};

struct qd_pool {
    void (*body)(void *context, unsigned index); /* NULL: not all threads could be started */
    void *context;
    int nice;
    unsigned thread_count; /* threads that were started */
    struct thread threads[];
};

unsigned qd_pool_parallelism(void)
{
    unsigned count = uv_available_parallelism();
    return count < QD_THREAD_COUNT_MAX ? count : QD_THREAD_COUNT_MAX;
}

/* Raises the niceness of the calling thread only: on Linux each thread has its own. Does nothing if
 * the thread's niceness cannot be read. */
static void be_nice(int more)
{
    errno = 0;
    const int own = getpriority(PRIO_PROCESS, 0);
    if (errno == 0 && more > 0)
        setpriority(PRIO_PROCESS, 0, own + more); /* beyond 19 it is 19 */
}

static void run(void *context)
{
    struct thread *thread = context;
    struct qd_pool *pool = thread->pool;
    uv_sem_wait(&thread->wake);
    if (pool->body == NULL)
        return;
    thread->id = gettid();
    be_nice(pool->nice);
    qd_cpu_shorten_linux_slices();
    pool->body(pool->context, (unsigned)(thread - pool->threads));
}

static bool start(struct qd_pool *pool)
{
    const uv_thread_options_t options = {UV_THREAD_HAS_STACK_SIZE, STACK_BYTES};
    struct thread *thread = &pool->threads[pool->thread_count];
    thread->pool = pool;
    if (uv_sem_init(&thread->wake, 0) != 0)
        return false;
    if (uv_thread_create_ex(&thread->uv, &options, run, thread) != 0) {
        uv_sem_destroy(&thread->wake);
        return false;
    }
    pool->thread_count++;
    return true;
}

struct qd_pool *qd_pool_create(unsigned thread_count, int nice,
                               void (*body)(void *context, unsigned index), void *context)
{
    struct qd_pool *pool = calloc(1, sizeof(*pool) + thread_count * sizeof(*pool->threads));
    if (pool == NULL)
        return NULL;
    pool->context = context;
    pool->nice = nice;
    while (pool->thread_count < thread_count && start(pool)) {
    }
    const bool started = pool->thread_count == thread_count;
    pool->body = started ? body : NULL;
    for (unsigned i = 0; i < pool->thread_count; i++)
        uv_sem_post(&pool->threads[i].wake);
    if (started)
        return pool;
    qd_pool_destroy(pool);
    return NULL;
}

void qd_pool_destroy(struct qd_pool *pool)
{
    if (pool == NULL)
        return;
    for (unsigned i = 0; i < pool->thread_count; i++)
        uv_thread_join(&pool->threads[i].uv);
    for (unsigned i = 0; i < pool->thread_count; i++)
        uv_sem_destroy(&pool->threads[i].wake);
    free(pool);
}

/* ---- Sleep and waking --------------------------------------------------------------------- */

void qd_pool_sleep(struct qd_pool *pool, unsigned index)
{
    struct thread *thread = &pool->threads[index];
    uv_sem_wait(&thread->wake);
    if (thread->moved)
        sched_setaffinity(0, sizeof(thread->allowed), &thread->allowed);
    thread->moved = false;
}

void qd_pool_wake(struct qd_pool *pool, unsigned index)
{
    uv_sem_post(&pool->threads[index].wake);
}

/* Takes `cpu` from the CPUs of a sleeping thread, so that it wakes on another one. Returns false if
 * one of the system calls is forbidden or the thread has no other CPU. The kernel then chooses. */
static bool move_from(int cpu, struct thread *thread)
{
    cpu_set_t others;
    if (cpu < 0 || sched_getaffinity(thread->id, sizeof(others), &others) != 0)
        return false;
    thread->allowed = others;
    CPU_CLR((unsigned)cpu, &others);
    return sched_setaffinity(thread->id, sizeof(others), &others) == 0;
}

void qd_pool_wake_elsewhere(struct qd_pool *pool, unsigned index)
{
    struct thread *thread = &pool->threads[index];
    thread->moved = move_from(sched_getcpu(), thread);
    qd_pool_wake(pool, index);
}
