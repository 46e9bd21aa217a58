#define _GNU_SOURCE
#include "server/http/exchange.h"

#include <sys/socket.h>

#include "server/http/wire/direct_response.h"
#include "server/work/infer.h"

void qd_refuse_make(struct qd_connection *connection)
{
    struct qd_request *request = connection->request;
    const struct qd_handler *handler = &qd_exchange_of(connection)->settings.handler;
    const unsigned retry_after_s =
        request->error.status == QD_UNAVAILABLE ? handler->retry_after_s(handler->context) : 0;
    qd_request_refuse(request);
    request->answer.retry_after_s = retry_after_s;
}

enum MHD_Result qd_refuse_past_library(struct qd_connection *connection)
{
    struct qd_request *request = connection->request;
    request->answer.close = true;
    qd_refuse_make(connection);
    qd_connection_make_room(connection);
    const bool delivered =
        qd_direct_response(connection, qd_exchange_session_of(connection),
                           MHD_get_reason_phrase_for(request->answer.http_status));
    connection->final_answer = delivered ? QD_LAST_DELIVERED : QD_LAST_LOST;
    qd_connection_advance(connection, QD_CONNECTION_CLOSING);
    return MHD_NO; /* libmicrohttpd closes the connection */
}

bool qd_refuse_is_over_quota(const struct qd_connection *connection)
{
    return connection->share.result == QD_QUOTA_REFUSED;
}

/* Has a connection closed whose error was written straight to the socket, so that libmicrohttpd
 * does not know that it must close. libmicrohttpd closes when the client closes, when the client
 * sends another byte, or after one second. If we shut down both sides here, the kernel would reset
 * a client that still sends, and destroy the answer. */
static void close_soon(struct qd_connection *connection)
{
    MHD_set_connection_option(connection->http, MHD_CONNECTION_OPTION_TIMEOUT, 1u);
}

/* Refuses a request whose body still comes. Called outside libmicrohttpd's callbacks. */
static void end_in_body(struct qd_connection *connection)
{
    qd_refuse_past_library(connection);
    close_soon(connection);
    qd_exchange_of(connection)->pump_needed = true;
}

/* Ends a connection whose client sends or reads too slowly. A client that sends is told. A client
 * that does not read would not read that, either, so its connection is reset, which also frees what
 * the kernel still holds for it. */
static void on_slow(struct qd_connection *connection)
{
#define SLOW(...) qd_fail_for(error, QD_REASON_SLOW_SENDER, QD_TOO_SLOW, __VA_ARGS__)
    const struct qd_config *config = connection->all->config;
    const double window_s = (double)connection->all->window_ns / (double)QD_NS_PER_S;
    const bool in_head = connection->state == QD_CONNECTION_HEAD;
    if (connection->state == QD_CONNECTION_ANSWER || !qd_exchange_ensure_request(connection)) {
        const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
        setsockopt(connection->socket.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        if (connection->state == QD_CONNECTION_ANSWER)
            connection->request->error.reason = QD_REASON_SLOW_READER;
        qd_connection_cut(connection);
        return;
    }
    struct qd_error *error = &connection->request->error;
    const unsigned long long count = connection->request->body.count;
    if (error->status != QD_OK) {
        /* The request was refused already. Its body is read only so that the client gets the
         * refusal. */
    } else if (qd_refuse_is_over_quota(connection)) {
        qd_quota_explain(qd_exchange_of(connection)->settings.quota, &connection->share, error);
    } else if (in_head) {
        SLOW("the head: expected within %.3g s (--receive-timeout)",
             (double)config->receive_timeout_ns / (double)QD_NS_PER_S);
    } else if (connection->pace.is_stalled) {
        /* The client is not slow. Only the line of a chunk's size is known to cause this. */
        SLOW("the body: the server cannot read on after %llu bytes; expected the size of a chunk",
             count);
    } else if (config->min_rate_bytes == 0) {
        SLOW("the body: expected another byte within %.3g s (the longer one of --receive-timeout "
             "and --idle-timeout), got %llu in all",
             window_s, count);
    } else {
        SLOW("the body: expected %llu bytes more in each %.3g s (--min-rate), got %llu in all",
             (unsigned long long)connection->all->window_bytes, window_s, count);
    }
#undef SLOW
    end_in_body(connection);
}

/* Refuses a request whose body has lost its memory, because the rest of the body is of no use. The
 * client is told now and not with its next byte, which may take long to come. */
static void on_lost(struct qd_connection *connection)
{
    qd_request_end_body(connection->request); /* fills the error */
    end_in_body(connection);
}

/* Refuses bytes that cannot be read, and closes, because no request can be found in what follows
 * them. */
static void on_fault(struct qd_connection *connection)
{
    const bool is_fine = connection->request == NULL || connection->request->error.status == QD_OK;
    if (!qd_exchange_ensure_request(connection)) {
        qd_connection_cut(connection);
        return;
    }
    if (is_fine)
        qd_framing_explain(&connection->framing, &connection->request->error);
    qd_refuse_past_library(connection);
}

void qd_refuse_what_follows(struct qd_connection *connection)
{
    on_fault(connection);
    close_soon(connection);
}

/* Abandons the inference, because its client has disconnected. */
static void on_gone(struct qd_connection *connection)
{
    qd_infer_abandon(connection->request);
}

static void on_doubt(struct qd_connection *connection)
{
    /* HTTP/1.0 has no interim answers. Without hooks, bytes that do not fit would be lost. */
    if (connection->current.is_http_1_1 && connection->io.is_hooked)
        qd_direct_response_interim(connection, qd_exchange_session_of(connection));
}

void qd_refuse_watch(struct qd_connections *connections)
{
    connections->on_slow = on_slow;
    connections->on_lost = on_lost;
    connections->on_fault = on_fault;
    connections->on_gone = on_gone;
    connections->on_doubt = on_doubt;
}
