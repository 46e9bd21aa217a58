/* Serves HTTP on all loops that move bytes (--io-threads): the main loop, and others on threads of
 * their own. Hides libmicrohttpd behind a small interface: only listener.c, endpoint, exchange,
 * refuse, response and mhd/ know that it does the HTTP. A connection stays with the loop that
 * accepted it.
 *
 * For each request the handler's opened, admit, begin, end and closed are called, in this order, on
 * the thread of the connection's loop. All loops share the handler. It answers between end and
 * closed.
 *
 * The handler need not deal with bodies that are too large or too slow, with heads that two readers
 * could take for different requests, or with connections beyond their quota: all of these are
 * refused before. A refused body is read and discarded if that is cheap, so that the client gets to
 * read why.
 *
 * All functions must be called on the main loop's thread, unless their comment says otherwise. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "server/base/limits.h"
#include "server/base/usage.h"
#include "server/config/address.h"
#include "server/config/config.h"
#include "server/http/wire/head.h"
#include "server/http/wire/quota.h"
#include "server/http/wire/tls.h"
#include "server/memory/arena.h"
#include "server/work/request.h"
#include "server/work/scheduler/loop.h"

struct qd_listeners;

struct qd_handler {
    /* Called first, also for a head that is refused afterwards. It is not called for a head that
     * cannot be read at all. */
    void (*opened)(void *context, const struct qd_head *head, struct qd_request *request);
    /* Called when the head is complete and follows the rules. Decides whether the client has
     * access. On failure, request->error says why, and `begin` is not called. */
    enum qd_status (*admit)(void *context, const struct qd_head *head, struct qd_request *request);
    /* Called when the head is complete and the body has yet to come. Calls qd_request_reserve_body
     * if it wants the body. On failure, request->error says why, and `end` is not called. */
    enum qd_status (*begin)(void *context, const struct qd_head *head, struct qd_request *request);
    /* Called when the body is complete. Returns true if the answer is complete, or if
     * request->error says why there is none. Returns false if that will be so later;
     * qd_listener_answer is called then. */
    bool (*end)(void *context, struct qd_request *request);
    /* Called when the request ends. `delivered`: the whole answer was sent. */
    void (*closed)(void *context, struct qd_request *request, bool delivered);
    /* Called when everything that can be read and sent has been, and this loop would sleep. Returns
     * true if it has computed something, so that there may be answers to send. */
    bool (*idle)(void *context, struct qd_loop *loop);
    /* Returns after how many seconds a client should try again if its request is refused for lack
     * of room. */
    unsigned (*retry_after_s)(void *context);
    void *context;
};

/* The handler is copied, and everything else is borrowed. */
struct qd_listener_settings {
    struct qd_memory *memory;
    struct qd_prefaulter *prefaulter;
    const struct qd_config *config;
    struct qd_quota *quota;
    struct qd_tls *tls; /* for TCP addresses; NULL without TLS */
    struct qd_handler handler;
};

struct qd_listener_gauge {
    const char *name;            /* shorter than QD_LISTENER_NAME_BYTES */
    struct qd_usage connections; /* connections that were admitted */
    uint64_t refused;            /* since the start */
};

/* Listens on all addresses of config->listen, with config->io_threads loops, of which `loop` is the
 * first. From then on the kernel takes connections, which wait until qd_listeners_start is called
 * and `loop` runs. `loop` must not run yet. The texts of settings->tls are forgotten, because
 * libmicrohttpd has read them. Returns NULL on failure, with the reason in `error`. */
struct qd_listeners *qd_listeners_create(struct qd_loop *loop,
                                         const struct qd_listener_settings *settings,
                                         struct qd_error *error);

/* Starts the threads of the other loops. Returns false if the system refuses a thread. Then none of
 * these threads serves connections. */
bool qd_listeners_start(struct qd_listeners *all);

/* Cuts all open connections off, ends the threads and frees everything. No request may be between
 * `end` and its answer, and loops that serve must have been drained. NULL is fine. */
void qd_listeners_destroy(struct qd_listeners *all);

/* Returns the real address with that index, such as "http://127.0.0.1:8000", or NULL beyond the
 * last one. */
const char *qd_listeners_name(const struct qd_listeners *all, size_t index);

/* These three functions may be called on any thread. The first returns how many connections are
 * open. */
size_t qd_listeners_connection_count(const struct qd_listeners *all);
/* Fills `counts` with the open connections of each loop. Returns how many loops there are. */
size_t qd_listeners_connections(const struct qd_listeners *all,
                                uint64_t counts[QD_IO_THREAD_COUNT_MAX]);
/* Fills a gauge for each address, over all loops. Returns how many addresses there are. */
size_t qd_listeners_gauges(const struct qd_listeners *all,
                           struct qd_listener_gauge gauges[QD_LISTEN_COUNT_MAX]);

/* Stops accepting, answers the clients that have connected, and then calls on_drained. May be
 * called once. */
void qd_listeners_drain(struct qd_listeners *all, qd_callback *on_drained, void *context);

/* Cuts off every connection. Call it while the loops drain, before the call of on_drained, at most
 * once. A connection whose request is being processed is cut as soon as its answer is ready. */
void qd_listeners_cut(struct qd_listeners *all);

/* Prints the client's address, for people. On the request's loop's thread. */
void qd_listener_print_client(const struct qd_request *request, char text[QD_ADDRESS_TEXT_BYTES]);

/* Sends the answer, or the refusal, of a request for which `end` has returned false. On the
 * request's loop's thread. */
void qd_listener_answer(struct qd_request *request);
/* Like qd_listener_answer, on any thread. */
void qd_listener_post_answer(struct qd_request *request);
