/* Runs the workers, the threads that compute. A thread can wake another one directly.
 *
 * How long waking a thread takes, from the call to the thread's first step, was measured on virtual
 * machines with two CPUs. By way of the loop and uv_queue_work it is 60 us. Directly it is 30 to 45
 * us, whether by a semaphore, a condition variable or a futex, and the caller is busy for 12 us of
 * them. If the other CPU is not asleep, the caller is busy for 2 us. */
#pragma once

struct qd_pool;

/* Returns how many CPUs the process may use, from 1 to QD_THREAD_COUNT_MAX. libuv 1.50 (Debian 13)
 * heeds the CPU quotas of version 2 control groups, 1.44 (Debian 12) heeds none. */
unsigned qd_pool_parallelism(void);

/* Starts thread_count threads. Each calls `body` once, with its index, from 0. The threads'
 * niceness is `nice` more than that of the process, 19 at most: if more threads want CPUs than
 * there are, Linux gives them less time than the loop. Their time slices are short (cpu_yield.h).
 * Returns NULL, without a call of `body`, if the system does not grant this many threads (a limit
 * on processes, memory). */
struct qd_pool *qd_pool_create(unsigned thread_count, int nice,
                               void (*body)(void *context, unsigned index), void *context);

/* Waits until every body has returned, which the owner has to bring about. NULL is fine. */
void qd_pool_destroy(struct qd_pool *pool);

/* Sleeps until the thread is woken. Returns at once if it was woken since its last sleep. Called by
 * a body, with its own index. */
void qd_pool_sleep(struct qd_pool *pool, unsigned index);

/* Wakes a thread. Called at most once for each sleep. On any thread. */
void qd_pool_wake(struct qd_pool *pool, unsigned index);

/* Like qd_pool_wake, for a caller that goes on computing: wakes the thread on another CPU than the
 * caller's, if there is one. Left to itself, Linux takes an idle CPU of a virtual machine, which
 * the host has put to sleep, for a busy one, and often puts both threads on the same CPU. Then the
 * woken thread interrupts the caller, or waits for 3 ms. */
void qd_pool_wake_elsewhere(struct qd_pool *pool, unsigned index);
