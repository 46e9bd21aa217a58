#include "server/http/listeners.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* A loop with its listener, and what is asked of it by posts. */
struct io_thread {
    struct qd_listeners *all;
    struct qd_loop *loop; /* of the first, borrowed */
    struct qd_listener *listener;
    pthread_t thread; /* of all but the first */
    bool has_thread;
    struct qd_post drain;
    struct qd_post cut;
    struct qd_post stop;
    struct qd_post drained; /* to the first */
};

struct qd_listeners {
    qd_callback *on_drained;
    void *on_drained_context;
    size_t undrained_count;
    pthread_mutex_t gate; /* held until all threads are there */
    bool serves;          /* they are: set with the gate held, and then for good */
    size_t count;
    struct io_thread threads[QD_IO_THREAD_COUNT_MAX];
};

/* ---- Posts -------------------------------------------------------------------------------- */

/* On the main loop. */
static void on_drained(void *context)
{
    const struct io_thread *thread = context;
    struct qd_listeners *listeners = thread->all;
    if (--listeners->undrained_count == 0)
        listeners->on_drained(listeners->on_drained_context);
}

static void on_listener_drained(void *context)
{
    struct io_thread *thread = context;
    qd_loop_post(thread->all->threads[0].loop, &thread->drained);
}

static void drain(void *context)
{
    struct io_thread *thread = context;
    qd_listener_drain(thread->listener, on_listener_drained, thread);
}

static void cut(void *context)
{
    const struct io_thread *thread = context;
    qd_listener_cut(thread->listener);
}

static void stop(void *context)
{
    const struct io_thread *thread = context;
    qd_loop_stop(thread->loop);
}

void qd_listeners_drain(struct qd_listeners *listeners, qd_callback *callback, void *context)
{
    listeners->on_drained = callback;
    listeners->on_drained_context = context;
    listeners->undrained_count = listeners->count;
    for (size_t i = 0; i < listeners->count; i++)
        qd_loop_post(listeners->threads[i].loop, &listeners->threads[i].drain);
}

void qd_listeners_cut(struct qd_listeners *listeners)
{
    for (size_t i = 0; i < listeners->count; i++)
        qd_loop_post(listeners->threads[i].loop, &listeners->threads[i].cut);
}

/* ---- Life --------------------------------------------------------------------------------- */

/* False: `error` says why; what there is of it goes with all others. */
static bool open_thread(struct qd_listeners *listeners, struct qd_loop *loop,
                        const struct qd_listener_settings *settings, struct qd_error *error)
{
    struct io_thread *thread = &listeners->threads[listeners->count];
    const struct qd_listener *first = listeners->threads[0].listener;
    *thread = (struct io_thread){
        .all = listeners,
        .loop = loop,
        .drain = {.callback = drain, .context = thread},
        .cut = {.callback = cut, .context = thread},
        .stop = {.callback = stop, .context = thread},
        .drained = {.callback = on_drained, .context = thread},
    };
    listeners->count++;
    if (loop == NULL)
        return qd_complain(error, "--io-threads: out of memory or file descriptors");
    thread->listener = qd_listener_create(loop, settings, first, error);
    return thread->listener != NULL;
}

struct qd_listeners *qd_listeners_create(struct qd_loop *loop,
                                         const struct qd_listener_settings *settings,
                                         struct qd_error *error)
{
    struct qd_listeners *listeners = calloc(1, sizeof(*listeners));
    qd_complain(error, "out of memory");
    if (listeners == NULL)
        return NULL;
    pthread_mutex_init(&listeners->gate, NULL);
    bool open = open_thread(listeners, loop, settings, error);
    while (open && listeners->count < settings->config->io_threads)
        open = open_thread(listeners, qd_loop_create(), settings, error);
    if (settings->tls != NULL)
        qd_tls_forget_texts(settings->tls);
    if (!open) {
        qd_listeners_destroy(listeners);
        return NULL;
    }
    return listeners;
}

/* Serves nobody until it is clear that all will: a request may look at every thread's listener. The
 * listener ends where it ran: some of what it has is its thread's. */
static void *run(void *context)
{
    struct io_thread *thread = context;
    pthread_mutex_lock(&thread->all->gate);
    const bool serves = thread->all->serves;
    pthread_mutex_unlock(&thread->all->gate);
    if (serves)
        qd_loop_run(thread->loop);
    qd_listener_destroy(thread->listener);
    return NULL;
}

bool qd_listeners_start(struct qd_listeners *listeners)
{
    pthread_mutex_lock(&listeners->gate);
    listeners->serves = true;
    for (size_t i = 1; i < listeners->count && listeners->serves; i++) {
        struct io_thread *thread = &listeners->threads[i];
        thread->has_thread = pthread_create(&thread->thread, NULL, run, thread) == 0;
        listeners->serves = thread->has_thread;
    }
    pthread_mutex_unlock(&listeners->gate);
    return listeners->serves;
}

void qd_listeners_destroy(struct qd_listeners *listeners)
{
    if (listeners == NULL)
        return;
    for (size_t i = 1; i < listeners->count && listeners->serves; i++)
        qd_loop_post(listeners->threads[i].loop, &listeners->threads[i].stop);
    for (size_t i = 0; i < listeners->count; i++) {
        struct io_thread *thread = &listeners->threads[i];
        if (thread->has_thread)
            pthread_join(thread->thread, NULL);
        else
            qd_listener_destroy(thread->listener);
        if (i > 0)
            qd_loop_destroy(thread->loop);
    }
    pthread_mutex_destroy(&listeners->gate);
    free(listeners);
}

/* ---- Looking ------------------------------------------------------------------------------ */

const char *qd_listeners_name(const struct qd_listeners *listeners, size_t index)
{
    return qd_listener_name(listeners->threads[0].listener, index);
}

size_t qd_listeners_connections(const struct qd_listeners *listeners,
                                uint64_t counts[QD_IO_THREAD_COUNT_MAX])
{
    for (size_t i = 0; i < listeners->count; i++)
        counts[i] = qd_listener_connection_count(listeners->threads[i].listener);
    return listeners->count;
}

size_t qd_listeners_connection_count(const struct qd_listeners *listeners)
{
    size_t count = 0;
    for (size_t i = 0; i < listeners->count; i++)
        count += qd_listener_connection_count(listeners->threads[i].listener);
    return count;
}

size_t qd_listeners_gauges(const struct qd_listeners *listeners,
                           struct qd_listener_gauge gauges[QD_LISTEN_COUNT_MAX])
{
    return qd_listener_gauges(listeners->threads[0].listener, gauges);
}
