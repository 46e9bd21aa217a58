/* Runs a task that takes long, such as reading files, on a thread of its own, so that a loop's
 * thread need not wait for it. The thread ends when the task is done. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

struct qd_background_task {
    void (*run)(void *context);
    void *context;
    pthread_mutex_t lock; /* protects `running` and `again` */
    pthread_t thread;
    bool started; /* the thread must be joined */
    bool running;
    bool again; /* the task was asked for again while it ran */
};

void qd_background_init(struct qd_background_task *task, void (*run)(void *context), void *context);

/* Calls `run` on another thread, soon. If `run` is being called already, it is called once more
 * afterwards, because the present call may have read old data. Returns false if no thread can be
 * started. Always call it on the same thread. */
bool qd_background_ask(struct qd_background_task *task);

/* Waits until the task has ended, for at most two seconds. Returns false if it still runs:
 * everything that `run` uses must then stay until the process ends. */
bool qd_background_end(struct qd_background_task *task);
