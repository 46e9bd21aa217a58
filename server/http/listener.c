#define _GNU_SOURCE
#include "server/http/listener.h"

#include <assert.h>
#include <microhttpd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/clock.h"
#include "server/http/endpoint.h"
#include "server/http/exchange.h"

enum { PUMP_RUNS_MAX = 8 }; /* how many short jobs the loop computes before it looks at timers */

#define DRAIN_LINGER_NS (500 * QD_NS_PER_MS)

struct qd_listener {
    struct qd_exchange exchange;
    const struct qd_config *config;
    struct qd_handle *before_sleep;
    struct qd_handle *pump_timer;
    struct qd_handle *sweep_timer;
    struct qd_handle *hangups;
    struct qd_handle *lost;
    uint64_t restless_ns; /* since when libmicrohttpd wants to run again at once; 0: it rests */
    bool rested;       /* libmicrohttpd has rested since the last qd_connections_look_for_stalled */
    uint64_t sweep_ns; /* when sweep_timer fires; UINT64_MAX: it does not run */
    qd_callback *on_drained; /* NULL: no drain was asked for, or already called */
    void *on_drained_context;
    size_t endpoint_count;
    struct qd_endpoint endpoints[QD_LISTEN_COUNT_MAX];
};

/* ---- Connections -------------------------------------------------------------------------- */

static struct qd_listener *listener_of(void *exchange)
{
    return (struct qd_listener *)((char *)exchange - offsetof(struct qd_listener, exchange));
}

static struct qd_endpoint *endpoint_of(struct qd_listener *listener, struct MHD_Connection *mhd)
{
    const struct MHD_Daemon *daemon =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_DAEMON)->daemon;
    struct qd_endpoint *endpoint = listener->endpoints;
    while (endpoint->mhd != daemon)
        endpoint++;
    return endpoint;
}

static void on_connection(void *context, struct MHD_Connection *mhd, void **slot,
                          enum MHD_ConnectionNotificationCode code)
{
    struct qd_listener *listener = listener_of(context);
    struct qd_endpoint *endpoint = endpoint_of(listener, mhd);
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        endpoint->connection_count++;
        *slot = qd_exchange_open(&listener->exchange, mhd, (size_t)(endpoint - listener->endpoints),
                                 endpoint->is_https);
    } else {
        endpoint->connection_count--;
        qd_exchange_close(&listener->exchange, *slot);
    }
}

static void on_hangups(void *context)
{
    struct qd_listener *listener = context;
    qd_connections_on_hangups(&listener->exchange.connections);
}

static void on_lost(void *context)
{
    struct qd_listener *listener = context;
    qd_connections_look_for_lost(&listener->exchange.connections);
}

void qd_listener_tell_lost(struct qd_listener *listener)
{
    qd_async_send(listener->lost);
}

/* Returns by how many nanoseconds the deadlines of lingering sockets are advanced. While the server
 * drains, we take an answer that was sent DRAIN_LINGER_NS ago for read. When connections are cut,
 * we do not wait at all. */
static uint64_t linger_hurry_ns(const struct qd_exchange *exchange)
{
    const uint64_t time_ns = exchange->config->receive_timeout_ns;
    const uint64_t least_ns = exchange->connections.cutting ? 0 : DRAIN_LINGER_NS;
    return exchange->connections.draining && time_ns > least_ns ? time_ns - least_ns : 0;
}

static void on_sweep(void *context)
{
    struct qd_listener *listener = context;
    struct qd_exchange *exchange = &listener->exchange;
    listener->sweep_ns = UINT64_MAX;
    qd_connections_sweep(&exchange->connections);
    qd_lingering_sweep(exchange->lingering, qd_clock_ns() + linger_hurry_ns(exchange));
    qd_callback *on_drained = listener->on_drained;
    if (on_drained != NULL && atomic_load(&exchange->connections.count) == 0 &&
        qd_lingering_count(exchange->lingering) == 0) {
        listener->on_drained = NULL;
        on_drained(listener->on_drained_context);
    }
}

/* Starts the sweep timer for the next deadline. A timer that fires earlier is left alone. */
static void plan_sweep(struct qd_listener *listener)
{
    uint64_t next_ns = qd_connections_next_ns(&listener->exchange.connections);
    uint64_t linger_ns = qd_lingering_next_ns(listener->exchange.lingering);
    next_ns = linger_ns < next_ns ? linger_ns : next_ns;
    if (next_ns >= listener->sweep_ns)
        return;
    uint64_t now_ns = qd_clock_ns();
    listener->sweep_ns = next_ns;
    qd_timer_start(listener->sweep_timer,
                   next_ns > now_ns ? (next_ns - now_ns) / QD_NS_PER_MS + 1 : 0, 0);
}

/* ---- libmicrohttpd on our loop ------------------------------------------------------------ */

static void on_ready(void *context)
{
    struct qd_exchange *exchange = context;
    exchange->pump_needed = true;
}

static void on_pump_timer(void *context)
{
    struct qd_listener *listener = context;
    listener->exchange.pump_needed = true;
}

/* Like qd_endpoint_run, for all endpoints. */
static uint64_t pump(struct qd_listener *listener)
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
static void mind_rest(struct qd_listener *listener, bool rests)
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
static void on_before_sleep(void *context)
{
    struct qd_listener *listener = context;
    const struct qd_handler *handler = &listener->exchange.handler;
    if (!listener->exchange.pump_needed) {
        mind_rest(listener, true);
        plan_sweep(listener);
        return;
    }
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
    plan_sweep(listener);
}

/* ---- Life --------------------------------------------------------------------------------- */

static bool open_endpoints(struct qd_listener *listener, struct qd_loop *loop,
                           const struct qd_listener *first, struct qd_error *error)
{
    const struct qd_config *config = listener->config;
    const struct qd_endpoint_settings settings = {
        .config = config,
        .tls = listener->exchange.tls,
        .loop = loop,
        .silence_s = listener->exchange.silence_s,
        .on_access = qd_exchange_on_access,
        .on_connection = on_connection,
        .on_completed = qd_exchange_on_completed,
        .on_request_line = qd_exchange_on_request_line,
        .on_ready = on_ready,
        .context = &listener->exchange,
    };
    for (size_t i = 0; i < config->listen_count; i++) {
        if (!qd_endpoint_open(&listener->endpoints[i], config->listen[i],
                              first == NULL ? NULL : &first->endpoints[i], &settings, error))
            return false;
        listener->endpoint_count++;
    }
    return true;
}

struct qd_listener *qd_listener_create(struct qd_loop *loop,
                                       const struct qd_listener_settings *settings,
                                       const struct qd_listener *first, struct qd_error *error)
{
    struct qd_listener *listener = calloc(1, sizeof(*listener));
    qd_fail_startup(error, "out of memory");
    if (listener == NULL)
        return NULL;
    listener->config = settings->config;
    listener->sweep_ns = UINT64_MAX;
    bool open = qd_exchange_init(&listener->exchange, loop, settings);
    listener->before_sleep = qd_loop_before_sleep(loop, on_before_sleep, listener);
    listener->pump_timer = qd_loop_timer(loop, on_pump_timer, listener);
    listener->sweep_timer = qd_loop_timer(loop, on_sweep, listener);
    listener->lost = qd_loop_async(loop, on_lost, listener);
    if (open) {
        listener->hangups =
            qd_loop_watch(loop, listener->exchange.connections.hangups, on_hangups, listener);
    }
    open = open && listener->before_sleep != NULL && listener->pump_timer != NULL &&
           listener->sweep_timer != NULL && listener->lost != NULL && listener->hangups != NULL;
    open = open && open_endpoints(listener, loop, first, error);
    if (!open) {
        qd_listener_destroy(listener);
        return NULL;
    }
    return listener;
}

void qd_listener_destroy(struct qd_listener *listener)
{
    if (listener == NULL)
        return;
    for (size_t i = 0; i < listener->endpoint_count; i++)
        qd_endpoint_close(&listener->endpoints[i]);
    qd_handle_destroy(listener->hangups);
    qd_exchange_deinit(&listener->exchange);
    qd_handle_destroy(listener->before_sleep);
    qd_handle_destroy(listener->pump_timer);
    qd_handle_destroy(listener->sweep_timer);
    qd_handle_destroy(listener->lost);
    free(listener);
}

const char *qd_listener_name(const struct qd_listener *listener, size_t index)
{
    return index < listener->endpoint_count ? listener->endpoints[index].socket.name : NULL;
}

size_t qd_listener_connection_count(const struct qd_listener *listener)
{
    return atomic_load(&listener->exchange.connections.count);
}

size_t qd_listener_gauges(const struct qd_listener *listener,
                          struct qd_listener_gauge gauges[QD_LISTEN_COUNT_MAX])
{
    for (size_t i = 0; i < listener->endpoint_count; i++) {
        const struct qd_quota_counts counts = qd_quota_count(listener->exchange.quota, i);
        gauges[i] = (struct qd_listener_gauge){
            listener->endpoints[i].socket.name,
            {counts.admitted, listener->config->max_connections},
            counts.refused,
        };
    }
    return listener->endpoint_count;
}

void qd_listener_print_client(const struct qd_request *request, char text[QD_ADDRESS_TEXT_BYTES])
{
    const struct qd_connection *connection = request->connection;
    qd_address_print(
        MHD_get_connection_info(connection->http, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr,
        text);
}

void qd_listener_drain(struct qd_listener *listener, qd_callback *on_drained, void *context)
{
    listener->exchange.connections.draining = true;
    listener->on_drained = on_drained;
    listener->on_drained_context = context;
    for (size_t i = 0; i < listener->endpoint_count; i++)
        qd_endpoint_drain(&listener->endpoints[i]);
    listener->exchange.pump_needed = true;
}

void qd_listener_answer(struct qd_request *request)
{
    qd_exchange_answer(request);
}

static void on_answer_posted(void *request)
{
    qd_exchange_answer(request);
}

void qd_listener_post_answer(struct qd_request *request)
{
    request->post = (struct qd_post){.callback = on_answer_posted, .context = request};
    qd_loop_post(request->loop, &request->post);
}

void qd_listener_cut(struct qd_listener *listener)
{
    listener->exchange.connections.cutting = true;
}
