/* The event loop: calls its users back when a descriptor can be read, a timer ends, a signal comes
 * or another thread asks for it. Only loop.c knows that it is libuv's.
 *
 * All functions but qd_loop_post and qd_async_send are called on the loop's thread. Handles call
 * their callbacks on that thread, from qd_loop_run. A function that creates something returns NULL
 * if memory or descriptors have run out. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct qd_loop;
struct qd_handle;

typedef void qd_callback(void *context);

struct qd_loop *qd_loop_create(void);
/* Calls what was posted after the last iteration, and destroys the loop. Every handle on the loop
 * must have been destroyed before. NULL is fine. */
void qd_loop_destroy(struct qd_loop *loop);

/* Runs until qd_loop_stop. From then on the thread has short time slices (cpu_yield.h). */
void qd_loop_run(struct qd_loop *loop);
void qd_loop_stop(struct qd_loop *loop);

/* A call to be made on a loop's thread. The caller owns it, and keeps it until it is called. */
struct qd_post {
    qd_callback *callback;
    void *context;
    struct qd_post *next; /* private, from qd_loop_post to the call */
};

/* Has `post` called once, on the loop's thread. Posts of one thread are called in their order. On
 * any thread. */
void qd_loop_post(struct qd_loop *loop, struct qd_post *post);

/* Returns whether an event waits that would wake the loop: a signal, a post, a qd_async_send, or a
 * watched descriptor. Timers do not count. */
bool qd_loop_is_ready(struct qd_loop *loop);

/* Returns how many bytes of memory the process can have: the machine's, or its control group's if
 * they are fewer. Returns 0 if unknown. libuv 1.50 (Debian 13) knows both versions of control
 * groups, 1.44 (Debian 12) only the first. */
uint64_t qd_loop_memory_bytes(void);

/* Calls `callback` while `fd` can be read. */
struct qd_handle *qd_loop_watch(struct qd_loop *loop, int fd, qd_callback *callback, void *context);

/* Calls `callback` when the process gets `signal`. */
struct qd_handle *qd_loop_signal(struct qd_loop *loop, int signal, qd_callback *callback,
                                 void *context);

/* Calls `callback` before the loop sleeps, after all callbacks of the events that woke it. */
struct qd_handle *qd_loop_before_sleep(struct qd_loop *loop, qd_callback *callback, void *context);

/* Creates a timer that does not run yet. */
struct qd_handle *qd_loop_timer(struct qd_loop *loop, qd_callback *callback, void *context);
/* Calls the callback in `first_ms`, and then every `repeat_ms` (0: only once). A timer that runs is
 * started anew. */
void qd_timer_start(struct qd_handle *timer, uint64_t first_ms, uint64_t repeat_ms);
void qd_timer_stop(struct qd_handle *timer);

/* Calls `callback` on the loop's thread after qd_async_send. Several sends may result in only one
 * call. */
struct qd_handle *qd_loop_async(struct qd_loop *loop, qd_callback *callback, void *context);
void qd_async_send(struct qd_handle *async); /* on any thread */

void qd_handle_destroy(struct qd_handle *handle); /* no call follows; NULL is fine */
