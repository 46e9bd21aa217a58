/* Threads that compute: libuv's pool. Its queue is first in, first out, and has no bound: the
 * scheduler keeps it short. All calls are on the loop's thread. */
#ifndef SERVER_POOL_H
#define SERVER_POOL_H

#include <stdalign.h>
#include <stdbool.h>

#include "server/loop.h"

#define QD_WORK_UV_BYTES 128 /* a uv_work_t; pool.c checks it */

#define QD_POOL_THREADS_MAX 1024 /* libuv's */

/* Lies in its owner's memory until `done` has been called. */
struct qd_work {
    void (*work)(struct qd_work *work); /* on a worker */
    void (*done)(struct qd_work *work); /* then, on the loop's thread */
    alignas(16) unsigned char uv[QD_WORK_UV_BYTES];
};

/* How many threads can run at a time, from 1 to QD_POOL_THREADS_MAX: CPUs that the process may use.
 * libuv 1.50 (Debian 13) heeds the CPU quotas of version 2 control groups, 1.44 (Debian 12) heeds
 * none. */
unsigned qd_pool_parallelism(void);

/* False: the system does not let us have so many (a limit on processes, memory). */
bool qd_pool_can_start(unsigned thread_count);

/* How many threads the pool will have, from 1 to QD_POOL_THREADS_MAX: before qd_pool_start. */
void qd_pool_set_threads(unsigned thread_count);

/* Starts the threads, which the first item would do. libuv aborts where it does not get them: ask
 * qd_pool_can_start first. False: malloc failed. */
bool qd_pool_start(struct qd_loop *loop);

void qd_pool_submit(struct qd_loop *loop, struct qd_work *work);

/* True: no thread had taken it, and none will; its `done` comes as ever. */
bool qd_pool_cancel(struct qd_work *work);

#endif
