/* The pool of workers, and what becomes of it if the system does not grant all threads. The
 * functions of libuv that give and take back are counted, and can refuse. */
#define _GNU_SOURCE
#include "server/work/scheduler/pool.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdatomic.h>
#include <string.h>
#include <uv.h>

enum { THREADS = 5 };

/* How many more calls are granted, and how many grants were not given back. */
struct grants {
    int left;
    int held;
};

static struct grants threads = {.left = INT_MAX};
static struct grants semaphores = {.left = INT_MAX};

static atomic_uint body_calls[THREADS];

/* Finds libuv's own function, which one of this file replaces in the whole program. */
static void find_real(const char *name, void *function)
{
    void *symbol = dlsym(RTLD_NEXT, name);
    cr_assert_not_null(symbol);
    memcpy(function, &symbol, sizeof(symbol));
}

/* Returns 0 if the call is granted. */
static int ask(struct grants *grants)
{
    if (grants->left == 0)
        return UV_EAGAIN;
    grants->left--;
    grants->held++;
    return 0;
}

int uv_thread_create_ex(uv_thread_t *thread, const uv_thread_options_t *options, uv_thread_cb entry,
                        void *argument)
{
    __typeof__(uv_thread_create_ex) *real;
    find_real("uv_thread_create_ex", &real);
    return ask(&threads) != 0 ? UV_EAGAIN : real(thread, options, entry, argument);
}

int uv_thread_join(uv_thread_t *thread)
{
    __typeof__(uv_thread_join) *real;
    find_real("uv_thread_join", &real);
    threads.held--;
    return real(thread);
}

int uv_sem_init(uv_sem_t *semaphore, unsigned value)
{
    __typeof__(uv_sem_init) *real;
    find_real("uv_sem_init", &real);
    return ask(&semaphores) != 0 ? UV_EAGAIN : real(semaphore, value);
}

void uv_sem_destroy(uv_sem_t *semaphore)
{
    __typeof__(uv_sem_destroy) *real;
    find_real("uv_sem_destroy", &real);
    semaphores.held--;
    real(semaphore);
}

static void count_call(void *context, unsigned index)
{
    cr_assert_eq(context, body_calls);
    body_calls[index]++;
}

static struct qd_pool *create(void)
{
    return qd_pool_create(THREADS, 0, count_call, body_calls);
}

static void expect_calls(unsigned count)
{
    for (unsigned i = 0; i < THREADS; i++)
        cr_assert_eq(body_calls[i], count, "thread %u: expected %u calls, got %u", i, count,
                     body_calls[i]);
    cr_assert_eq(threads.held, 0, "%d threads were not joined", threads.held);
    cr_assert_eq(semaphores.held, 0, "%d semaphores were not destroyed", semaphores.held);
}

Test(pool, each_thread_calls_the_body_once)
{
    qd_pool_destroy(create());
    expect_calls(1);
}

/* Grants fewer threads or semaphores than there would have to be, down to none. */
static void expect_failure(struct grants *scarce)
{
    for (scarce->left = 0; scarce->left < THREADS; scarce->left++) {
        const int granted = scarce->left;
        cr_assert_null(create(), "with %d of %d", granted, THREADS);
        expect_calls(0);
        scarce->left = granted;
    }
    qd_pool_destroy(create());
    expect_calls(1);
}

Test(pool, too_few_threads_call_no_body)
{
    expect_failure(&threads);
}

Test(pool, too_few_semaphores_call_no_body)
{
    expect_failure(&semaphores);
}
