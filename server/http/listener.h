/* Serves HTTP on the connections of one loop, and hides libmicrohttpd behind a small interface. For
 * each request the listener calls the handler's opened, admit, begin, end and closed, in this
 * order. The handler answers between end and closed. Only listener.c, endpoint, exchange, refuse,
 * response and mhd/ know that libmicrohttpd does the HTTP. Each loop that has connections has
 * a listener (io_threads.h). A listener's functions must be called on its loop's thread, unless
 * their comment says otherwise. The handler is shared by all loops, and called on the threads of
 * all of them.
 *
 * The handler need not deal with bodies that are too large or too slow, with heads that two readers
 * could take for different requests, or with connections beyond their quota: the listener refuses
 * all of these. It reads and discards a refused body if that is cheap, so that the client gets to
 * read why. */
#ifndef SERVER_HTTP_LISTENER_H
#define SERVER_HTTP_LISTENER_H

#include <stdbool.h>
#include <stddef.h>

#include "server/config/address.h"
#include "server/config/config.h"
#include "server/http/wire/head.h"
#include "server/http/wire/quota.h"
#include "server/http/wire/tls.h"
#include "server/memory/arena.h"
#include "server/telemetry/gauges.h"
#include "server/work/request.h"
#include "server/work/scheduler/loop.h"

struct qd_listener;

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
    /* Called when the body is complete. Returns true if the request is in REPLYING. Returns false
     * if it will be in REPLYING later; qd_listener_answer is called then. */
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

/* The settings that the listeners of all loops share. The handler is copied, and everything else is
 * borrowed. */
struct qd_listener_settings {
    struct qd_memory *memory;
    struct qd_prefaulter *prefaulter;
    const struct qd_config *config;
    struct qd_quota *quota;
    struct qd_tls *tls; /* for TCP addresses; NULL without TLS */
    struct qd_handler handler;
};

/* Creates a listener on all addresses of config->listen. `first` is another loop's listener on the
 * same addresses, or NULL if this is the first one. The loop must not run yet. Returns NULL on
 * failure, with the reason in `error`. */
struct qd_listener *qd_listener_create(struct qd_loop *loop,
                                       const struct qd_listener_settings *settings,
                                       const struct qd_listener *first, struct qd_error *error);

/* Cuts all open connections off. No request may be between `end` and its answer. NULL is fine. */
void qd_listener_destroy(struct qd_listener *listener);

/* Returns the real address with that index, such as "http://127.0.0.1:8000", or NULL beyond the
 * last one. */
const char *qd_listener_name(const struct qd_listener *listener, size_t index);

/* Returns how many connections are open. May be called on any thread. */
size_t qd_listener_connection_count(const struct qd_listener *listener);
/* Fills a gauge for each address, over all loops. Returns how many addresses there are. May be
 * called on any thread. */
size_t qd_listener_gauges(const struct qd_listener *listener,
                          struct qd_listener_gauge gauges[QD_LISTEN_COUNT_MAX]);

/* Makes the loop refuse its requests whose bodies have lost their memory (arena.h). May be called
 * on any thread. */
void qd_listener_tell_lost(struct qd_listener *listener);

/* Prints the client's address, for people. */
void qd_listener_print_client(const struct qd_request *request, char text[QD_ADDRESS_TEXT_BYTES]);

/* Sends the answer of a request that is in REPLYING after `end` has returned false. */
void qd_listener_answer(struct qd_request *request);
/* Like qd_listener_answer, on any thread. */
void qd_listener_post_answer(struct qd_request *request);

/* Stops accepting, answers the clients that have connected, and then calls on_drained, once. */
void qd_listener_drain(struct qd_listener *listener, qd_callback *on_drained, void *context);

/* Cuts off every connection. Call it while the listener drains. A connection whose request is being
 * processed is cut as soon as its answer is ready. */
void qd_listener_cut(struct qd_listener *listener);

#endif
