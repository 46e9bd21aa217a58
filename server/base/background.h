/* Background tasks: work that takes long, such as reading files, and is asked for now and then by a
 * thread that does not wait for it, such as a loop's. A thread that lives as long as the work takes
 * does it. */
#ifndef SERVER_BASE_BACKGROUND_H
#define SERVER_BASE_BACKGROUND_H

#include <pthread.h>
#include <stdbool.h>

struct qd_background_task {
    void (*run)(void *context);
    void *context;
    pthread_mutex_t lock; /* over all below */
    pthread_t thread;
    bool started; /* the thread has to be joined */
    bool running;
    bool again; /* asked for while it ran */
};

void qd_background_init(struct qd_background_task *task, void (*run)(void *context), void *context);

/* Calls `run` on another thread, soon. Where it runs already it runs once more, for it may have
 * seen what was there before. Returns false if no thread can be had. On one thread. */
bool qd_background_ask(struct qd_background_task *task);

/* Waits for its end, for two seconds at most. Returns false if it still runs: what it uses has to
 * stay until the process ends. */
bool qd_background_end(struct qd_background_task *task);

#endif
