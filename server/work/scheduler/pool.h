/* Threads that compute: libuv's pool, each of them taken by one item for as long as the pool lives,
 * so that who does what next is not libuv's to decide, and a thread can wake another by itself.
 *
 * Waking one was measured on virtual machines with two CPUs, from the call to its first step: 60 us
 * by way of the loop and uv_queue_work, 30 to 45 us directly, whether by a semaphore, a condition
 * or a futex; of these 12 are the caller's. Where the other CPU need not be started it is 2 us. */
#ifndef SERVER_WORK_SCHEDULER_POOL_H
#define SERVER_WORK_SCHEDULER_POOL_H

#include <stdbool.h>

#include "server/work/scheduler/loop.h"

#define QD_POOL_THREADS_MAX 1024 /* libuv's */

struct qd_pool;

/* How many threads can run at a time, from 1 to QD_POOL_THREADS_MAX: CPUs that the process may use.
 * libuv 1.50 (Debian 13) heeds the CPU quotas of version 2 control groups, 1.44 (Debian 12) heeds
 * none. */
unsigned qd_pool_parallelism(void);

/* False: the system does not let us have so many (a limit on processes, memory). */
bool qd_pool_can_start(unsigned thread_count);

/* Calls `body` once on each of so many threads, with indexes from 0. Their niceness is so much more
 * than the process' own, 19 at most: where more threads want CPUs than there are, Linux gives them
 * less time than the loop. Their slices are short (cpu_yield.h). There is one pool in a process,
 * and no other thread while it is made, as it sets the environment. libuv aborts where it does not
 * get the threads: ask qd_pool_can_start first. NULL: malloc failed. */
struct qd_pool *qd_pool_create(struct qd_loop *loop, unsigned thread_count, int nice,
                               void (*body)(void *context, unsigned index), void *context);

/* Waits for every body to return, which its owner has to bring about. On the loop's thread, before
 * the loop goes. NULL is fine. */
void qd_pool_destroy(struct qd_pool *pool);

/* From a body, for its own index: until somebody wakes it, or has since it last slept. */
void qd_pool_sleep(struct qd_pool *pool, unsigned index);

/* On any thread; once for each sleep. */
void qd_pool_wake(struct qd_pool *pool, unsigned index);

/* The same, from a thread that goes on computing: on another CPU than the caller's, if there is
 * one. Left to itself, Linux takes an idle CPU of a virtual machine, which its host has sent to
 * sleep, for a busy one, and often puts both threads on the same: then the second stops the first,
 * or waits for 3 ms. */
void qd_pool_wake_elsewhere(struct qd_pool *pool, unsigned index);

#endif
