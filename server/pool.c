#define _GNU_SOURCE
#include "server/pool.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

static_assert(sizeof(uv_work_t) <= QD_WORK_UV_BYTES, "room for libuv's request");
static_assert(alignof(uv_work_t) <= 16, "and aligned for it");

unsigned qd_pool_parallelism(void)
{
    unsigned count = uv_available_parallelism();
    return count < QD_POOL_THREADS_MAX ? count : QD_POOL_THREADS_MAX;
}

enum { STACK_BYTES = 8 << 20 }; /* as libuv's pool has them */

void qd_pool_set_threads(unsigned thread_count)
{
    char text[16];
    snprintf(text, sizeof(text), "%u", thread_count);
    setenv("UV_THREADPOOL_SIZE", text, 1);
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
    uv_mutex_lock(&gate); /* all of them at the same time */
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

static struct qd_work *work_of(uv_work_t *uv)
{
    return (struct qd_work *)((char *)uv - offsetof(struct qd_work, uv));
}

static void on_work(uv_work_t *uv)
{
    struct qd_work *work = work_of(uv);
    work->work(work);
}

static void on_done(uv_work_t *uv, int status)
{
    struct qd_work *work = work_of(uv);
    (void)status; /* who cancels it knows */
    work->done(work);
}

void qd_pool_submit(struct qd_loop *loop, struct qd_work *work)
{
    int result = uv_queue_work(qd_loop_uv(loop), (uv_work_t *)(void *)work->uv, on_work, on_done);
    assert(result == 0); /* it only refuses a missing callback */
    (void)result;
}

static void do_nothing(struct qd_work *work)
{
    (void)work;
}

static void free_work(struct qd_work *work)
{
    free(work);
}

bool qd_pool_start(struct qd_loop *loop)
{
    struct qd_work *work = calloc(1, sizeof(*work));
    if (work != NULL) {
        work->work = do_nothing;
        work->done = free_work;
        qd_pool_submit(loop, work);
    }
    return work != NULL;
}

bool qd_pool_cancel(struct qd_work *work)
{
    return uv_cancel((uv_req_t *)(void *)work->uv) == 0;
}
