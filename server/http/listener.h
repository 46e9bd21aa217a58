/* HTTP, behind a thin face. Of each request the handler is told opened, admit, begin, end and
 * closed, in this order; between end and closed it answers. That the HTTP is libmicrohttpd's, only
 * listener.c, endpoint, exchange, response and error_hook know. There is one listener for each loop
 * that has connections (io_threads.h), and all of it is on that loop's thread, but for what is said
 * to be on any. So the handler is called on the threads of all loops.
 *
 * What the handler never sees: bodies that are too large or too slow, heads that two readers could
 * take for different requests, connections beyond their quota. A refused body is read and thrown
 * away where that is cheap, so that the client gets to read why.
 */
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
    /* Before all others, also of a head that is refused then. Only where one cannot be read at all,
     * it is not called. */
    void (*opened)(void *context, const struct qd_head *head, struct qd_request *request);
    /* The head is there, and held to its rules. Whether its sender may come in at all: a failure is
     * in request->error, and `begin` is not called then. */
    enum qd_status (*admit)(void *context, const struct qd_head *head, struct qd_request *request);
    /* The head is there, and its body still to come. Calls qd_request_reserve_body if it wants
     * the body. A failure is in request->error; `end` is not called then. */
    enum qd_status (*begin)(void *context, const struct qd_head *head, struct qd_request *request);
    /* The body is complete. True: the request is in REPLYING. False: it will be, and
     * qd_listener_answer is called then. */
    bool (*end)(void *context, struct qd_request *request);
    /* The request goes. `delivered`: all of its answer was sent. */
    void (*closed)(void *context, const struct qd_request *request, bool delivered);
    /* All is read and sent that can be, and this loop would sleep now. True: it has computed
     * something meanwhile, so perhaps there are answers to send. */
    bool (*idle)(void *context, struct qd_loop *loop);
    /* When a request that is refused for want of room should come again. */
    unsigned (*retry_after_s)(void *context);
    void *context;
};

/* What all loops' listeners share. All but the handler is borrowed. */
struct qd_listener_settings {
    struct qd_memory *memory;
    const struct qd_config *config;
    struct qd_quota *quota;
    struct qd_tls *tls; /* for all that is TCP; NULL: none */
    struct qd_handler handler;
};

/* Listens on all of config->listen, beside `first`, that of another loop; NULL: it is the first.
 * NULL: `error` says why. The loop does not run yet. */
struct qd_listener *qd_listener_create(struct qd_loop *loop,
                                       const struct qd_listener_settings *settings,
                                       const struct qd_listener *first, struct qd_error *error);

/* Cuts what is open. No request is between `end` and its answer. */
void qd_listener_destroy(struct qd_listener *listener);

/* The real address: "http://127.0.0.1:8000"; NULL beyond the last. */
const char *qd_listener_name(const struct qd_listener *listener, size_t index);

/* On any thread. */
size_t qd_listener_connection_count(const struct qd_listener *listener);
/* The same by address, of all loops. Returns how many addresses there are. */
size_t qd_listener_gauges(const struct qd_listener *listener,
                          struct qd_listener_gauge gauges[QD_LISTEN_COUNT_MAX]);

/* Bodies have lost their memory (arena.h): those of this loop are told. On any thread. */
void qd_listener_tell_lost(struct qd_listener *listener);

/* The client's address, for people. */
void qd_listener_print_client(const struct qd_request *request, char text[QD_ADDRESS_TEXT_BYTES]);

/* Sends the answer of a request that is in REPLYING since `end` returned false. */
void qd_listener_answer(struct qd_request *request);
/* The same, on any thread. */
void qd_listener_post_answer(struct qd_request *request);

/* Accepts nobody any more, answers who is there, then calls back, once. */
void qd_listener_drain(struct qd_listener *listener, qd_callback *on_drained, void *context);

/* While it drains: cuts every connection off, those with an answer to come as soon as it came. */
void qd_listener_cut(struct qd_listener *listener);

#endif
