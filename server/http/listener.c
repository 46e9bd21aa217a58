#define _GNU_SOURCE
#include "server/http/listener.h"

#include <pthread.h>
#include <stdlib.h>

#include "server/base/clock.h"
#include "server/http/endpoint.h"

enum { PUMP_RUNS_MAX = 8 }; /* how many short jobs the loop computes before it looks at timers */

/* A loop with its connections, and the posts by which another thread asks it to do something. */
struct listener {
    struct qd_exchange exchange; /* has the loop, which is borrowed from the caller in the first
                                    listener */
    struct qd_listeners *all;
    pthread_t thread; /* not used in the first listener */
    bool has_thread;
    struct qd_post drain;
    struct qd_post cut;
    struct qd_post stop;
    struct qd_post drained; /* posted to the main loop */
    struct qd_handle *before_sleep;
    struct qd_handle *pump_timer;
    struct qd_handle *sweep_timer;
    struct qd_handle *hangups;
    struct qd_handle *lost;
    uint64_t restless_ns; /* since when libmicrohttpd wants to run again at once; 0: it rests */
    bool rested;       /* libmicrohttpd has rested since the last qd_connections_look_for_stalled */
    uint64_t sweep_ns; /* when sweep_timer fires; UINT64_MAX: it does not run */
    bool sweep_needed; /* it has fired */
    bool drains;       /* a drain was asked for, and is not over */
    size_t endpoint_count;
    struct qd_endpoint endpoints[QD_LISTEN_COUNT_MAX];
};

struct qd_listeners {
    struct qd_memory *memory; /* borrowed; calls on_bodies_lost */
    qd_callback *on_drained;
    void *on_drained_context;
    size_t undrained_count;
    pthread_mutex_t gate; /* held until all threads have been created */
    bool serves; /* all threads have been created; set with the gate held, constant afterwards */
    size_t count;
    struct listener each[QD_IO_THREAD_COUNT_MAX];
};

/* ---- Connections -------------------------------------------------------------------------- */

static void on_hangups(void *context)
{
    struct listener *listener = context;
    qd_connections_on_hangups(&listener->exchange.connections);
}

static void on_lost(void *context)
{
    struct listener *listener = context;
    qd_connections_look_for_lost(&listener->exchange.connections);
}

static void on_sweep(void *context)
{
    struct listener *listener = context;
    listener->sweep_ns = UINT64_MAX;
    listener->sweep_needed = true;
}

/* Is called only after libmicrohttpd has run. Otherwise a connection that was resumed in this
 * iteration of the loop would look like one whose client has ended without sending all of its body.
 */
static void sweep(struct listener *listener)
{
    struct qd_connections *connections = &listener->exchange.connections;
    listener->sweep_needed = false;
    qd_connections_sweep(connections);
    if (listener->exchange.pump_needed)
        qd_timer_start(listener->pump_timer, 0, 0);
    if (listener->drains && atomic_load(&connections->count) == 0) {
        listener->drains = false;
        qd_loop_post(listener->all->each[0].exchange.loop, &listener->drained);
    }
}

/* Starts the sweep timer for the next deadline. A timer that fires earlier is left alone. */
static void plan_sweep(struct listener *listener)
{
    uint64_t next_ns = qd_connections_next_ns(&listener->exchange.connections);
    if (next_ns >= listener->sweep_ns)
        return;
    uint64_t now_ns = qd_clock_ns();
    listener->sweep_ns = next_ns;
    qd_timer_start(listener->sweep_timer,
                   next_ns > now_ns ? (next_ns - now_ns) / QD_NS_PER_MS + 1 : 0, 0);
}

/* ---- libmicrohttpd on our loop ------------------------------------------------------------ */

static void on_pump_timer(void *context)
{
    struct listener *listener = context;
    listener->exchange.pump_needed = true;
}

/* Like qd_endpoint_run, for all endpoints. */
static uint64_t pump(struct listener *listener)
{
    uint64_t wait_ms = UINT64_MAX;
    listener->exchange.pump_needed = false;
    for (size_t i = 0; i < listener->endpoint_count; i++) {
        uint64_t ms = qd_endpoint_run(&listener->endpoints[i]);
        wait_ms = ms < wait_ms ? ms : wait_ms;
    }
    return wait_ms;
}

/* Notes whether libmicrohttpd rests, which means that it can do nothing before an event or a
 * timeout. If it has wanted to run again at once for QD_RESTLESS_NS, a stalled connection may be
 * the reason: qd_connections_look_for_stalled finds it. */
static void mind_rest(struct listener *listener, bool rests)
{
    listener->rested = listener->rested || rests;
    if (rests) {
        listener->restless_ns = 0;
        return;
    }
    const uint64_t now_ns = qd_clock_ns();
    if (listener->restless_ns == 0)
        listener->restless_ns = now_ns;
    if (now_ns - listener->restless_ns < QD_RESTLESS_NS)
        return;
    qd_connections_look_for_stalled(&listener->exchange.connections, listener->rested);
    listener->rested = false;
    listener->restless_ns = now_ns;
}

/* Runs libmicrohttpd once for everything that became ready in this iteration of the loop, and again
 * for the answers that were computed meanwhile: sending them may be all that is left to do. */
static void run_library(struct listener *listener)
{
    const struct qd_handler *handler = &listener->exchange.settings.handler;
    uint64_t wait_ms;
    unsigned runs = 0;
    do {
        wait_ms = pump(listener);
    } while (handler->idle(handler->context, listener->exchange.loop) && ++runs < PUMP_RUNS_MAX);
    if (listener->exchange.pump_needed)
        wait_ms = 0;
    mind_rest(listener, wait_ms > 0);
    if (wait_ms != UINT64_MAX)
        qd_timer_start(listener->pump_timer, wait_ms, 0);
    else
        qd_timer_stop(listener->pump_timer);
}

static void on_before_sleep(void *context)
{
    struct listener *listener = context;
    if (listener->exchange.pump_needed)
        run_library(listener);
    else
        mind_rest(listener, true);
    if (listener->sweep_needed)
        sweep(listener);
    plan_sweep(listener);
}

/* ---- Posts -------------------------------------------------------------------------------- */

/* Called on the main loop when a loop has drained. */
static void on_drained(void *context)
{
    const struct listener *listener = context;
    struct qd_listeners *all = listener->all;
    if (--all->undrained_count == 0)
        all->on_drained(all->on_drained_context);
}

static void drain(void *context)
{
    struct listener *listener = context;
    listener->exchange.connections.draining = true;
    listener->drains = true;
    for (size_t i = 0; i < listener->endpoint_count; i++)
        qd_endpoint_drain(&listener->endpoints[i]);
    listener->exchange.pump_needed = true;
}

static void cut(void *context)
{
    struct listener *listener = context;
    listener->exchange.connections.cutting = true;
}

static void stop(void *context)
{
    const struct listener *listener = context;
    qd_loop_stop(listener->exchange.loop);
}

void qd_listeners_drain(struct qd_listeners *all, qd_callback *callback, void *context)
{
    all->on_drained = callback;
    all->on_drained_context = context;
    all->undrained_count = all->count;
    for (size_t i = 0; i < all->count; i++)
        qd_loop_post(all->each[i].exchange.loop, &all->each[i].drain);
}

void qd_listeners_cut(struct qd_listeners *all)
{
    for (size_t i = 0; i < all->count; i++)
        qd_loop_post(all->each[i].exchange.loop, &all->each[i].cut);
}

/* Makes each loop refuse its requests whose bodies have lost their memory (arena.h). Called on any
 * thread. */
static void on_bodies_lost(void *context)
{
    const struct qd_listeners *all = context;
    for (size_t i = 0; i < all->count; i++)
        qd_async_send(all->each[i].lost);
}

/* ---- Life --------------------------------------------------------------------------------- */

static bool open_endpoints(struct listener *listener, struct qd_error *error)
{
    const struct listener *first = &listener->all->each[0];
    const size_t count = listener->exchange.settings.config->listen_count;
    for (size_t i = 0; i < count; i++, listener->endpoint_count++)
        if (!qd_endpoint_open(&listener->endpoints[i], &listener->exchange, i,
                              listener == first ? NULL : &first->endpoints[i], error))
            return false;
    return true;
}

/* Adds a listener on all addresses of config->listen. Returns false on failure, with the reason in
 * `error`. qd_listeners_destroy then also frees what was made for this listener. */
static bool open_listener(struct qd_listeners *all, struct qd_loop *loop,
                          const struct qd_listener_settings *settings, struct qd_error *error)
{
    struct listener *listener = &all->each[all->count];
    if (loop == NULL)
        return qd_fail_startup(error, "--io-threads: out of memory or file descriptors");
    all->count++;
    *listener = (struct listener){
        .all = all,
        .drain = {.callback = drain, .context = listener},
        .cut = {.callback = cut, .context = listener},
        .stop = {.callback = stop, .context = listener},
        .drained = {.callback = on_drained, .context = listener},
        .sweep_ns = UINT64_MAX,
    };
    qd_fail_startup(error, "out of memory");
    const bool open = qd_exchange_init(&listener->exchange, loop, settings);
    listener->before_sleep = qd_loop_before_sleep(loop, on_before_sleep, listener);
    listener->pump_timer = qd_loop_timer(loop, on_pump_timer, listener);
    listener->sweep_timer = qd_loop_timer(loop, on_sweep, listener);
    listener->lost = qd_loop_async(loop, on_lost, listener);
    if (open) {
        listener->hangups =
            qd_loop_watch(loop, listener->exchange.connections.hangups, on_hangups, listener);
    }
    return open && listener->before_sleep != NULL && listener->pump_timer != NULL &&
           listener->sweep_timer != NULL && listener->lost != NULL && listener->hangups != NULL &&
           open_endpoints(listener, error);
}

/* Cuts all open connections of a loop off. */
static void close_listener(struct listener *listener)
{
    for (size_t i = 0; i < listener->endpoint_count; i++)
        qd_endpoint_close(&listener->endpoints[i]);
    qd_handle_destroy(listener->hangups);
    qd_exchange_deinit(&listener->exchange);
    qd_handle_destroy(listener->before_sleep);
    qd_handle_destroy(listener->pump_timer);
    qd_handle_destroy(listener->sweep_timer);
    qd_handle_destroy(listener->lost);
}

struct qd_listeners *qd_listeners_create(struct qd_loop *loop,
                                         const struct qd_listener_settings *settings,
                                         struct qd_error *error)
{
    struct qd_listeners *all = calloc(1, sizeof(*all));
    qd_fail_startup(error, "out of memory");
    if (all == NULL)
        return NULL;
    pthread_mutex_init(&all->gate, NULL);
    all->memory = settings->memory;
    bool open = open_listener(all, loop, settings, error);
    while (open && all->count < settings->config->io_threads)
        open = open_listener(all, qd_loop_create(), settings, error);
    if (settings->tls != NULL)
        qd_tls_forget_texts(settings->tls);
    if (!open) {
        qd_listeners_destroy(all);
        return NULL;
    }
    qd_memory_set_on_lost(all->memory, on_bodies_lost, all);
    return all;
}

/* Serves no client before all threads have been created, because a request may look at every
 * loop's connections. Closes the listener on this thread, because part of its state is
 * thread-local. */
static void *run(void *context)
{
    struct listener *listener = context;
    pthread_mutex_lock(&listener->all->gate);
    const bool serves = listener->all->serves;
    pthread_mutex_unlock(&listener->all->gate);
    if (serves)
        qd_loop_run(listener->exchange.loop);
    close_listener(listener);
    return NULL;
}

bool qd_listeners_start(struct qd_listeners *all)
{
    pthread_mutex_lock(&all->gate);
    all->serves = true;
    for (size_t i = 1; i < all->count && all->serves; i++) {
        struct listener *listener = &all->each[i];
        listener->has_thread = pthread_create(&listener->thread, NULL, run, listener) == 0;
        all->serves = listener->has_thread;
    }
    pthread_mutex_unlock(&all->gate);
    return all->serves;
}

void qd_listeners_destroy(struct qd_listeners *all)
{
    if (all == NULL)
        return;
    qd_memory_set_on_lost(all->memory, NULL, NULL);
    for (size_t i = 1; i < all->count && all->serves; i++)
        qd_loop_post(all->each[i].exchange.loop, &all->each[i].stop);
    for (size_t i = 0; i < all->count; i++) {
        struct listener *listener = &all->each[i];
        if (listener->has_thread)
            pthread_join(listener->thread, NULL);
        else
            close_listener(listener);
        if (i > 0)
            qd_loop_destroy(listener->exchange.loop);
    }
    pthread_mutex_destroy(&all->gate);
    free(all);
}

/* ---- Queries ------------------------------------------------------------------------------ */

const char *qd_listeners_name(const struct qd_listeners *all, size_t index)
{
    const struct listener *first = &all->each[0];
    return index < first->endpoint_count ? first->endpoints[index].socket.name : NULL;
}

size_t qd_listeners_connections(const struct qd_listeners *all,
                                uint64_t counts[QD_IO_THREAD_COUNT_MAX])
{
    for (size_t i = 0; i < all->count; i++)
        counts[i] = atomic_load(&all->each[i].exchange.connections.count);
    return all->count;
}

size_t qd_listeners_connection_count(const struct qd_listeners *all)
{
    size_t count = 0;
    for (size_t i = 0; i < all->count; i++)
        count += atomic_load(&all->each[i].exchange.connections.count);
    return count;
}

size_t qd_listeners_gauges(const struct qd_listeners *all,
                           struct qd_listener_gauge gauges[QD_LISTEN_COUNT_MAX])
{
    const struct listener *first = &all->each[0];
    for (size_t i = 0; i < first->endpoint_count; i++) {
        const struct qd_quota_counts counts = qd_quota_count(first->exchange.settings.quota, i);
        gauges[i] = (struct qd_listener_gauge){
            first->endpoints[i].socket.name,
            {counts.admitted, first->exchange.settings.config->max_connections},
            counts.refused,
        };
    }
    return first->endpoint_count;
}
