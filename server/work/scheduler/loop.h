/* An event loop. Only loop.c and pool.c know that it is libuv's.
 *
 * Everything here but qd_loop_post and qd_async_send belongs to the loop's thread. A handle calls
 * back on that thread, from qd_loop_run. NULL from a create: out of memory or descriptors. */
#ifndef SERVER_WORK_SCHEDULER_LOOP_H
#define SERVER_WORK_SCHEDULER_LOOP_H

#include <stdbool.h>
#include <stdint.h>

struct qd_loop;
struct qd_handle;

typedef void qd_callback(void *context);

struct qd_loop *qd_loop_create(void);
/* Every handle on it has been destroyed, and the pool. What was posted after its last iteration is
 * called. */
void qd_loop_destroy(struct qd_loop *loop);

/* Until qd_loop_stop. Its thread has short slices from then on: cpu_yield.h. */
void qd_loop_run(struct qd_loop *loop);
void qd_loop_stop(struct qd_loop *loop);

/* Something to be done on a loop's thread. It is its maker's, and lasts until it is called. */
struct qd_post {
    qd_callback *callback;
    void *context;
    struct qd_post *next; /* the loop's own, from qd_loop_post to the call */
};

/* On any thread: it is called, once, on the loop's; those of one thread in their order. */
void qd_loop_post(struct qd_loop *loop, struct qd_post *post);

/* Something has happened that it would wake for: signals, calls, what it watches; not timers. */
bool qd_loop_is_ready(struct qd_loop *loop);

/* Memory that the process can have: the machine's, or its control group's if that is less. libuv
 * 1.50 (Debian 13) knows both versions of control groups, 1.44 (Debian 12) only the first. 0:
 * unknown. */
uint64_t qd_loop_memory_bytes(void);

/* Calls while `fd` can be read. */
struct qd_handle *qd_loop_watch(struct qd_loop *loop, int fd, qd_callback *callback, void *context);

/* Calls when `signal` comes. */
struct qd_handle *qd_loop_signal(struct qd_loop *loop, int signal, qd_callback *callback,
                                 void *context);

/* Calls before the loop sleeps, and so after all that made it wake. */
struct qd_handle *qd_loop_before_sleep(struct qd_loop *loop, qd_callback *callback, void *context);

/* A timer, not running yet. */
struct qd_handle *qd_loop_timer(struct qd_loop *loop, qd_callback *callback, void *context);
/* Calls in `first_ms`, and then every `repeat_ms` (0: once). Starts anew when it runs. */
void qd_timer_start(struct qd_handle *timer, uint64_t first_ms, uint64_t repeat_ms);
void qd_timer_stop(struct qd_handle *timer);

/* Calls, on the loop's thread, after a qd_async_send; after several, perhaps only once. */
struct qd_handle *qd_loop_async(struct qd_loop *loop, qd_callback *callback, void *context);
void qd_async_send(struct qd_handle *async); /* on any thread */

void qd_handle_destroy(struct qd_handle *handle); /* no call comes any more; NULL is fine */

/* The libuv loop, for pool.c. */
void *qd_loop_uv(struct qd_loop *loop);

#endif
