#include "server/http/io_threads.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* A loop with its listener, and the posts by which another thread asks it to do something. */
struct io_thread {
    struct qd_io_threads *all;
    struct qd_loop *loop; /* borrowed in the first entry */
    struct qd_listener *listener;
    pthread_t thread; /* not used in the first entry */
    bool has_thread;
    struct qd_post drain;
    struct qd_post cut;
    struct qd_post stop;
    struct qd_post drained; /* posted to the main loop */
};

struct qd_io_threads {
    struct qd_memory *memory; /* borrowed; calls on_lost when bodies have lost their memory */
    qd_callback *on_drained;
    void *on_drained_context;
    size_t undrained_count;
    pthread_mutex_t gate; /* held until all threads have been created */
    bool serves; /* all threads have been created; set with the gate held, constant afterwards */
    size_t count;
    struct io_thread threads[QD_IO_THREAD_COUNT_MAX];
};

/* ---- Posts -------------------------------------------------------------------------------- */

/* Called on the main loop when a thread's listener has drained. */
static void on_drained(void *context)
{
    const struct io_thread *thread = context;
    struct qd_io_threads *all = thread->all;
    if (--all->undrained_count == 0)
        all->on_drained(all->on_drained_context);
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

void qd_io_threads_drain(struct qd_io_threads *all, qd_callback *callback, void *context)
{
    all->on_drained = callback;
    all->on_drained_context = context;
    all->undrained_count = all->count;
    for (size_t i = 0; i < all->count; i++)
        qd_loop_post(all->threads[i].loop, &all->threads[i].drain);
}

void qd_io_threads_cut(struct qd_io_threads *all)
{
    for (size_t i = 0; i < all->count; i++)
        qd_loop_post(all->threads[i].loop, &all->threads[i].cut);
}

/* Called on any thread when bodies have lost their memory. */
static void on_lost(void *context)
{
    const struct qd_io_threads *all = context;
    for (size_t i = 0; i < all->count; i++)
        qd_listener_tell_lost(all->threads[i].listener);
}

/* ---- Life --------------------------------------------------------------------------------- */

/* Adds an entry with its listener. Returns false on failure, with the reason in `error`.
 * qd_io_threads_destroy then also frees what was made for this entry. */
static bool open_thread(struct qd_io_threads *all, struct qd_loop *loop,
                        const struct qd_listener_settings *settings, struct qd_error *error)
{
    struct io_thread *thread = &all->threads[all->count];
    const struct qd_listener *first = all->threads[0].listener;
    *thread = (struct io_thread){
        .all = all,
        .loop = loop,
        .drain = {.callback = drain, .context = thread},
        .cut = {.callback = cut, .context = thread},
        .stop = {.callback = stop, .context = thread},
        .drained = {.callback = on_drained, .context = thread},
    };
    all->count++;
    if (loop == NULL)
        return qd_fail_startup(error, "--io-threads: out of memory or file descriptors");
    thread->listener = qd_listener_create(loop, settings, first, error);
    return thread->listener != NULL;
}

struct qd_io_threads *qd_io_threads_create(struct qd_loop *loop,
                                           const struct qd_listener_settings *settings,
                                           struct qd_error *error)
{
    struct qd_io_threads *all = calloc(1, sizeof(*all));
    qd_fail_startup(error, "out of memory");
    if (all == NULL)
        return NULL;
    pthread_mutex_init(&all->gate, NULL);
    all->memory = settings->memory;
    bool open = open_thread(all, loop, settings, error);
    while (open && all->count < settings->config->io_threads)
        open = open_thread(all, qd_loop_create(), settings, error);
    if (settings->tls != NULL)
        qd_tls_forget_texts(settings->tls);
    if (!open) {
        qd_io_threads_destroy(all);
        return NULL;
    }
    qd_memory_set_on_lost(all->memory, on_lost, all);
    return all;
}

/* Serves no client before all threads have been created, because a request may look at every
 * thread's listener. Destroys the listener on this thread, because part of its state is
 * thread-local. */
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

bool qd_io_threads_start(struct qd_io_threads *all)
{
    pthread_mutex_lock(&all->gate);
    all->serves = true;
    for (size_t i = 1; i < all->count && all->serves; i++) {
        struct io_thread *thread = &all->threads[i];
        thread->has_thread = pthread_create(&thread->thread, NULL, run, thread) == 0;
        all->serves = thread->has_thread;
    }
    pthread_mutex_unlock(&all->gate);
    return all->serves;
}

void qd_io_threads_destroy(struct qd_io_threads *all)
{
    if (all == NULL)
        return;
    qd_memory_set_on_lost(all->memory, NULL, NULL);
    for (size_t i = 1; i < all->count && all->serves; i++)
        qd_loop_post(all->threads[i].loop, &all->threads[i].stop);
    for (size_t i = 0; i < all->count; i++) {
        struct io_thread *thread = &all->threads[i];
        if (thread->has_thread)
            pthread_join(thread->thread, NULL);
        else
            qd_listener_destroy(thread->listener);
        if (i > 0)
            qd_loop_destroy(thread->loop);
    }
    pthread_mutex_destroy(&all->gate);
    free(all);
}

/* ---- Queries ------------------------------------------------------------------------------ */

const char *qd_io_threads_name(const struct qd_io_threads *all, size_t index)
{
    return qd_listener_name(all->threads[0].listener, index);
}

size_t qd_io_threads_connections(const struct qd_io_threads *all,
                                 uint64_t counts[QD_IO_THREAD_COUNT_MAX])
{
    for (size_t i = 0; i < all->count; i++)
        counts[i] = qd_listener_connection_count(all->threads[i].listener);
    return all->count;
}

size_t qd_io_threads_connection_count(const struct qd_io_threads *all)
{
    size_t count = 0;
    for (size_t i = 0; i < all->count; i++)
        count += qd_listener_connection_count(all->threads[i].listener);
    return count;
}

size_t qd_io_threads_gauges(const struct qd_io_threads *all,
                            struct qd_listener_gauge gauges[QD_LISTEN_COUNT_MAX])
{
    return qd_listener_gauges(all->threads[0].listener, gauges);
}
