#define _GNU_SOURCE
#include "server/work/scheduler/pool.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>
#include <uv.h>

#include "server/work/scheduler/cpu_yield.h"

enum { STACK_BYTES = 8 << 20 }; /* as in libuv's pool */

struct thread {
    pid_t id;
    sem_t wake;
    bool moved;        /* the thread that woke it took a CPU from it */
    cpu_set_t allowed; /* the CPUs it might use before */
};

struct qd_pool {
    void (*body)(void *context, unsigned index);
    void *context;
    sem_t returned; /* counts the bodies that have returned */
    int nice;
    unsigned thread_count;
    struct thread threads[];
};

/* libuv's work items of the threads. They live until the loop has heard that all have ended, when
 * the pool may already be gone. */
struct items {
    unsigned left;
    struct item {
        uv_work_t uv; /* first, so that a pointer to it is one to the item */
        struct qd_pool *pool;
        unsigned index;
        struct items *all;
    } each[];
};

unsigned qd_pool_parallelism(void)
{
    unsigned count = uv_available_parallelism();
    return count < QD_POOL_THREADS_MAX ? count : QD_POOL_THREADS_MAX;
}

static void pass(void *gate)
{
    uv_mutex_lock(gate);
    uv_mutex_unlock(gate);
}

bool qd_pool_can_start(unsigned thread_count)
{
    const uv_thread_options_t options = {UV_THREAD_HAS_STACK_SIZE, STACK_BYTES};
    uv_thread_t *threads = calloc(thread_count, sizeof(*threads));
    uv_mutex_t gate;
    if (threads == NULL || uv_mutex_init(&gate) != 0) {
        free(threads);
        return false;
    }
    unsigned started = 0;
    uv_mutex_lock(&gate); /* so that all of them exist at the same time */
    while (started < thread_count &&
           uv_thread_create_ex(&threads[started], &options, pass, &gate) == 0)
        started++;
    uv_mutex_unlock(&gate);
    for (unsigned i = 0; i < started; i++)
        uv_thread_join(&threads[i]);
    uv_mutex_destroy(&gate);
    free(threads);
    return started == thread_count;
}

/* ---- What a thread does ------------------------------------------------------------------- */

/* Raises the niceness of the calling thread only: on Linux each thread has its own. Does nothing if
 * the thread's niceness cannot be read. */
static void be_nice(int more)
{
    errno = 0;
    const int own = getpriority(PRIO_PROCESS, 0);
    if (errno == 0 && more > 0)
        setpriority(PRIO_PROCESS, 0, own + more); /* beyond 19 it is 19 */
}

static void on_work(uv_work_t *uv)
{
    const struct item *item = (struct item *)uv;
    struct qd_pool *pool = item->pool;
    pool->threads[item->index].id = gettid();
    be_nice(pool->nice);
    qd_cpu_shorten_linux_slices();
    pool->body(pool->context, item->index);
    sem_post(&pool->returned);
}

static void on_done(uv_work_t *uv, int status)
{
    struct items *all = ((struct item *)uv)->all;
    (void)status; /* the item is never cancelled */
    if (--all->left == 0)
        free(all);
}

static void start(struct qd_pool *pool, struct qd_loop *loop, struct items *items)
{
    char text[16];
    snprintf(text, sizeof(text), "%u", pool->thread_count);
    setenv("UV_THREADPOOL_SIZE", text, 1); /* libuv reads it at the first item */
    items->left = pool->thread_count;
    for (unsigned i = 0; i < pool->thread_count; i++) {
        struct item *item = &items->each[i];
        item->pool = pool;
        item->index = i;
        item->all = items;
        sem_init(&pool->threads[i].wake, 0, 0);
        int result = uv_queue_work(qd_loop_uv(loop), &item->uv, on_work, on_done);
        assert(result == 0); /* it fails only without a callback */
        (void)result;
    }
}

struct qd_pool *qd_pool_create(struct qd_loop *loop, unsigned thread_count, int nice,
                               void (*body)(void *context, unsigned index), void *context)
{
    struct qd_pool *pool = calloc(1, sizeof(*pool) + thread_count * sizeof(*pool->threads));
    struct items *items = calloc(1, sizeof(*items) + thread_count * sizeof(*items->each));
    if (pool == NULL || items == NULL) {
        free(pool);
        free(items);
        return NULL;
    }
    pool->body = body;
    pool->context = context;
    pool->thread_count = thread_count;
    pool->nice = nice;
    sem_init(&pool->returned, 0, 0);
    start(pool, loop, items);
    return pool;
}

static void wait_for(sem_t *semaphore)
{
    while (sem_wait(semaphore) != 0) { /* EINTR: a signal handler ran on this thread */
    }
}

void qd_pool_destroy(struct qd_pool *pool)
{
    if (pool == NULL)
        return;
    for (unsigned i = 0; i < pool->thread_count; i++)
        wait_for(&pool->returned);
    for (unsigned i = 0; i < pool->thread_count; i++)
        sem_destroy(&pool->threads[i].wake);
    sem_destroy(&pool->returned);
    free(pool);
}

/* ---- Sleep and waking --------------------------------------------------------------------- */

void qd_pool_sleep(struct qd_pool *pool, unsigned index)
{
    struct thread *thread = &pool->threads[index];
    wait_for(&thread->wake);
    if (thread->moved)
        sched_setaffinity(0, sizeof(thread->allowed), &thread->allowed);
    thread->moved = false;
}

void qd_pool_wake(struct qd_pool *pool, unsigned index)
{
    sem_post(&pool->threads[index].wake);
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
