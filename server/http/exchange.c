#define _GNU_SOURCE
#include "server/http/exchange.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "server/base/clock.h"
#include "server/base/limits.h"
#include "server/http/mhd/hooks.h"
#include "server/http/path.h"
#include "server/http/wire/socket.h"

/* Longer than any silence that qd_connections allow, which is three windows; see suspend. */
enum { SUSPENDED_SILENCE_S = 1 << 20 };

static struct qd_connection *connection_of(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info == NULL ? NULL : info->socket_context;
}

struct qd_exchange *qd_exchange_of(const struct qd_connection *connection)
{
    return (struct qd_exchange *)((char *)connection->all -
                                  offsetof(struct qd_exchange, connections));
}

void *qd_exchange_session_of(const struct qd_connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection->http, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    return info == NULL ? NULL : info->tls_session;
}

static size_t decrypted_bytes(const struct qd_connection *connection)
{
    void *session = qd_exchange_session_of(connection);
    return session == NULL ? 0 : qd_tls_decrypted_bytes(session);
}

static void end_session(const struct qd_connection *connection)
{
    void *session = qd_exchange_session_of(connection);
    if (session != NULL)
        qd_tls_end_sending(session);
}

/* ---- Making and ending requests ------------------------------------------------------------- */

/* Resumes the connection if it is held, because more of its body can be taken. */
static void on_room(struct qd_request *request)
{
    struct qd_connection *connection = request->connection;
    if (!connection->current.is_held)
        return;
    connection->current.is_held = false;
    qd_exchange_of(connection)->pump_needed = true;
    MHD_resume_connection(connection->http);
}

bool qd_exchange_ensure_request(struct qd_connection *connection)
{
    struct qd_exchange *exchange = qd_exchange_of(connection);
    const uint64_t first_line_ns = connection->current.first_line_ns;
    if (connection->request != NULL)
        return true;
    struct qd_request *request = qd_request_create(
        exchange->settings.memory, first_line_ns != 0 ? first_line_ns : qd_clock_ns());
    connection->request = request;
    connection->current.is_head =
        connection->framing.is_head && connection->framing.done_count == connection->done_count;
    if (request == NULL)
        return false;
    request->loop = exchange->loop;
    request->body.prefaulter = exchange->settings.prefaulter;
    request->body.on_room = on_room;
    request->connection = connection;
    return true;
}

/* ---- The answer --------------------------------------------------------------------------- */

static enum MHD_Result send_answer(struct qd_connection *connection)
{
    struct qd_answer *answer = &connection->request->answer;
    const struct qd_exchange *exchange = qd_exchange_of(connection);
    answer->close = answer->close || connection->current.closes_after_answer ||
                    connection->io.library_read_end || connection->all->draining;
    answer->keep_alive = answer->close ? NULL : exchange->keep_alive;
    /* A short answer is printed into io.outgoing, from where mhd/socket_hooks.c sends it. All
     * others go through libmicrohttpd. */
    const bool is_usual = connection->current.is_http_1_1 && !connection->current.is_head;
    const bool is_ours = is_usual && qd_io_hooks_has(connection) &&
                         qd_response_print(connection->request, &connection->io.outgoing);
    struct MHD_Response *response = exchange->stand_in;
    if (!is_ours)
        response = qd_response_create(connection->request, is_usual);
    if (response == NULL)
        return MHD_NO; /* malloc failed, so the connection is closed */
    if (connection->state != QD_CONNECTION_ANSWER)
        qd_connection_advance_at(connection, QD_CONNECTION_ANSWER,
                                 connection->request->times.since_ns);
    qd_connection_widen(connection, answer->bytes);
    enum MHD_Result taken = MHD_queue_response(connection->http, answer->http_status, response);
    if (!is_ours)
        MHD_destroy_response(response);
    return taken;
}

/* Makes the answer of a request that has an error in place of one. */
static void complete_answer(struct qd_connection *connection)
{
    struct qd_request *request = connection->request;
    if (request->error.status != QD_OK)
        qd_refuse_make(connection);
    else if (request->state != QD_REPLYING)
        qd_request_advance(request, QD_REPLYING);
}

void qd_listener_answer(struct qd_request *request)
{
    struct qd_connection *connection = request->connection;
    if (connection->state != QD_CONNECTION_PROCESSING)
        return; /* it was computed inline: on_body_complete sends it */
    complete_answer(connection);
    qd_connection_advance(connection, QD_CONNECTION_ANSWER);
    qd_exchange_of(connection)->pump_needed = true; /* a resume does not wake the loop */
    MHD_resume_connection(connection->http);
}

static void on_answer_posted(void *request)
{
    qd_listener_answer(request);
}

void qd_listener_post_answer(struct qd_request *request)
{
    request->post = (struct qd_post){.callback = on_answer_posted, .context = request};
    qd_loop_post(request->loop, &request->post);
}

void qd_listener_print_client(const struct qd_request *request, char text[QD_ADDRESS_TEXT_BYTES])
{
    const struct qd_connection *connection = request->connection;
    qd_address_print(
        MHD_get_connection_info(connection->http, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr,
        text);
}

/* ---- The request -------------------------------------------------------------------------- */

static enum MHD_Result collect_header(void *context, enum MHD_ValueKind kind, const char *name,
                                      size_t name_bytes, const char *value, size_t value_bytes)
{
    (void)kind, (void)value_bytes;
    qd_head_add(context, name, name_bytes, value);
    return MHD_YES;
}

/* Called when a request's first line is complete, which is the first that we see of a request. Cuts
 * off the query, which none of our code reads: libmicrohttpd makes a record of each argument, and
 * 0.9.75 neither answers nor closes if the records need more memory than it has. `uri` lies in
 * libmicrohttpd's own buffer, so it may be written. */
void *qd_exchange_on_request_line(void *context, const char *uri, struct MHD_Connection *mhd)
{
    (void)context;
    char *query = strchr(uri, '?');
    if (query != NULL && query[1] != '\0')
        query[1] = '\0';
    struct qd_connection *connection = connection_of(mhd);
    if (connection != NULL && connection->state != QD_CONNECTION_CLOSING)
        qd_connection_advance(connection, QD_CONNECTION_HEAD);
    return NULL;
}

static void check_size(const struct qd_connection *connection, const struct qd_head *head)
{
    uint64_t bytes_max = connection->all->config->max_body_bytes;
    if (head->content_bytes > bytes_max) {
        qd_fail(&connection->request->error, QD_TOO_LARGE,
                "the body: expected at most %llu bytes (--max-body-bytes), got %llu",
                (unsigned long long)bytes_max, (unsigned long long)head->content_bytes);
    }
}

/* Refuses a request beyond the quota, unless it asks for health. Comes after `admit`, so that a
 * client without access learns that first. */
static enum qd_status check_quota(const struct qd_connection *connection,
                                  const struct qd_head *head)
{
    if (!qd_refuse_is_over_quota(connection) || qd_path_is_health(head->path))
        return QD_OK;
    return qd_quota_explain(qd_exchange_of(connection)->settings.quota, &connection->share,
                            &connection->request->error);
}

/* Refuses a head that takes too much of libmicrohttpd's memory. Only for plain connections, whose
 * heads framing.c has not counted. Cookies count three times there, and here the whole head does.
 */
static enum qd_status check_plain_head(struct qd_connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection->http, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    const int cookies = MHD_get_connection_values_n(connection->http, MHD_COOKIE_KIND, NULL, NULL);
    const int fields = MHD_get_connection_values_n(connection->http, MHD_HEADER_KIND, NULL, NULL);
    const size_t bytes = (info == NULL ? 0 : info->header_size) * (cookies > 0 ? 3 : 1) +
                         (size_t)(fields + cookies) * QD_HEAD_FIELD_BYTES;
    if (bytes <= QD_HEAD_BYTES_MAX)
        return QD_OK;
    return qd_fail(&connection->request->error, QD_HEAD_TOO_LARGE,
                   "the head: expected at most %u bytes, %u more for each field and cookie and "
                   "three times as many with cookies, got %zu",
                   QD_HEAD_BYTES_MAX, QD_HEAD_FIELD_BYTES, bytes);
}

static enum MHD_Result on_head(struct qd_connection *connection, const char *target,
                               const char *method, const char *version)
{
    const struct qd_handler *handler = &qd_exchange_of(connection)->settings.handler;
    if (!qd_exchange_ensure_request(connection))
        return MHD_NO;
    struct qd_request *request = connection->request;
    /* If the request's last byte came together with its first line, there is no body to wait for.
     */
    const bool is_all_here = connection->framing.done_count > connection->done_count;
    qd_connection_advance_at(connection, QD_CONNECTION_BODY,
                             is_all_here ? connection->since_ns : qd_clock_ns());
    connection->current.is_head = strcmp(method, "HEAD") == 0;
    struct qd_head head;
    qd_head_init(&head, method, target, version);
    connection->current.is_http_1_1 = head.is_http_1_1;
    MHD_get_connection_values_n(connection->http, MHD_HEADER_KIND, collect_header, &head);
    connection->current.closes_after_answer = qd_head_closes_connection(&head) ||
                                              qd_refuse_is_over_quota(connection) ||
                                              !connection->io.is_hooked;
    handler->opened(handler->context, &head, request);
    if (!connection->io.is_hooked && check_plain_head(connection) != QD_OK)
        return qd_refuse_past_library(connection);
    if (qd_head_check(&head, &request->error) != QD_OK)
        return qd_refuse_past_library(connection);
    if (handler->admit(handler->context, &head, request) == QD_OK &&
        check_quota(connection, &head) == QD_OK)
        check_size(connection, &head);
    if (request->error.status == QD_OK)
        handler->begin(handler->context, &head, request);
    const bool has_body = head.content_bytes > 0 || head.is_chunked;
    /* A refused body is not read to its end if the client waits for "100 Continue" before it sends
     * the body, if the body is too large, or if the connection is beyond the quota. The client may
     * pause before it sends the body, and gets the refusal now. */
    const bool stops_reading = head.expects_continue || request->error.status == QD_TOO_LARGE ||
                               head.content_bytes > QD_DISCARD_BYTES_MAX ||
                               (has_body && qd_refuse_is_over_quota(connection));
    if (request->error.status != QD_OK && stops_reading)
        return qd_refuse_past_library(connection); /* before the whole body is sent in vain */
    return MHD_YES;
}

/* Suspends the connection, and gives it a timeout, which the daemon has not, until the request
 * ends. When libmicrohttpd resumes a connection with a timeout of its own, it first takes our
 * answer, or offers the bytes that it has of the body, and only then reads. Otherwise it would read
 * first, find the end of a client that has shut down its sending side, and close. */
static void suspend(struct qd_connection *connection)
{
    MHD_set_connection_option(connection->http, MHD_CONNECTION_OPTION_TIMEOUT, SUSPENDED_SILENCE_S);
    connection->current.has_own_timeout = true;
    MHD_suspend_connection(connection->http);
}

/* Suspends the connection until on_room is called, while pages of its body are prefaulted. */
static enum MHD_Result hold(struct qd_connection *connection)
{
    connection->current.is_held = true;
    suspend(connection);
    return MHD_YES;
}

/* Takes bytes of the body, and leaves in *count how many were not taken. From a refusal on, the
 * body is dropped. If the request was refused because of its head, the body is read to its end, so
 * that the connection can stay open. */
static enum MHD_Result on_body(struct qd_connection *connection, const char *bytes, size_t *count)
{
    struct qd_request *request = connection->request;
    const bool was_fine = request->error.status == QD_OK;
    *count -= qd_io_hooks_take_body(connection, bytes, *count);
    connection->current.chunks += *count == 0;
    const bool too_many =
        connection->current.chunks > QD_CHUNKS_FREE + request->body.count / QD_CHUNK_BYTES_LEAST;
    if (too_many && was_fine) {
        qd_fail(
            &request->error, QD_TOO_LARGE,
            "the body: expected chunks of %u bytes or more on average, got %llu with %llu bytes",
            QD_CHUNK_BYTES_LEAST, (unsigned long long)connection->current.chunks,
            (unsigned long long)request->body.count);
    }
    if (request->error.status != QD_OK &&
        (was_fine || too_many || request->body.count > QD_DISCARD_BYTES_MAX))
        return qd_refuse_past_library(connection);
    return *count > 0 ? hold(connection) : MHD_YES;
}

static enum MHD_Result on_body_complete(struct qd_connection *connection)
{
    const struct qd_handler *handler = &qd_exchange_of(connection)->settings.handler;
    struct qd_request *request = connection->request;
    if (request->body.prefault != NULL)
        return hold(connection); /* stays in READING until pages are prefaulted (body_prefault.h) */
    if (request->error.status == QD_OK && qd_request_end_body(request) == QD_OK &&
        !handler->end(handler->context, request)) {
        qd_connection_advance(connection, QD_CONNECTION_PROCESSING);
        suspend(connection);
        return MHD_YES;
    }
    complete_answer(connection);
    return send_answer(connection);
}

/* libmicrohttpd calls this when the head is complete, for each piece of the body, at the body's
 * end, and after a resume. It accepts an answer in the last two cases. */
enum MHD_Result qd_exchange_on_access(void *context, struct MHD_Connection *mhd, const char *target,
                                      const char *method, const char *version, const char *bytes,
                                      size_t *count, void **request_slot)
{
    (void)context, (void)request_slot;
    struct qd_connection *connection = connection_of(mhd);
    if (connection == NULL || connection->state == QD_CONNECTION_CLOSING)
        return MHD_NO; /* malloc failed in qd_exchange_open, or the connection is over */
    if (connection->request == NULL)
        return on_head(connection, target, method, version);
    if (*count > 0)
        return on_body(connection, bytes, count);
    if (connection->request->state == QD_REPLYING)
        return send_answer(connection);
    return on_body_complete(connection);
}

/* Ends the request. Returns the time at which it ended. */
static uint64_t end_request(struct qd_connection *connection, bool delivered)
{
    const struct qd_handler *handler = &qd_exchange_of(connection)->settings.handler;
    const uint64_t now_ns = qd_clock_ns();
    qd_request_advance_at(connection->request, QD_DONE, now_ns);
    handler->closed(handler->context, connection->request, delivered);
    qd_request_destroy(connection->request);
    connection->request = NULL;
    connection->io.outgoing.count = 0;
    return now_ns;
}

void qd_exchange_on_completed(void *context, struct MHD_Connection *mhd, void **request_slot,
                              enum MHD_RequestTerminationCode code)
{
    (void)context, (void)request_slot;
    struct qd_connection *connection = connection_of(mhd);
    if (connection == NULL)
        return;
    const bool sent =
        connection->state == QD_CONNECTION_ANSWER && code == MHD_REQUEST_TERMINATED_COMPLETED_OK;
    const bool closes = connection->request != NULL && connection->request->answer.close;
    const uint64_t now_ns =
        connection->request != NULL
            ? end_request(connection, sent || connection->final_answer == QD_LAST_DELIVERED)
            : qd_clock_ns();
    if (connection->current.has_own_timeout)
        MHD_set_connection_option(mhd, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    connection->current.has_own_timeout = false;
    connection->done_count++;
    if (connection->state != QD_CONNECTION_CLOSING)
        qd_connection_advance_at(connection, sent ? QD_CONNECTION_IDLE : QD_CONNECTION_CLOSING,
                                 now_ns);
    /* If bytes that cannot be read come next, they are answered now, because all requests before
     * them have been answered. */
    const struct qd_framing *framing = &connection->framing;
    if (connection->state == QD_CONNECTION_IDLE && !closes && framing->fault != QD_FAULT_NONE &&
        framing->done_count == connection->done_count)
        qd_refuse_what_follows(connection);
}

/* ---- The connection ----------------------------------------------------------------------- */

/* Counts the connection for the quota. A connection beyond the quota is refused or closed. */
static void take_share(struct qd_connection *connection, size_t listener)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection->http, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    connection->share =
        qd_quota_take(qd_exchange_of(connection)->settings.quota, listener, info->client_addr);
    if (connection->share.result == QD_QUOTA_REFUSED)
        qd_connection_hurry(connection);
    else if (connection->share.result == QD_QUOTA_CLOSED)
        qd_connection_cut(connection);
}

struct qd_connection *qd_exchange_open(struct qd_exchange *exchange, struct MHD_Connection *mhd,
                                       size_t listener, bool is_https)
{
    int fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    const bool is_unix = qd_socket_bound_send(fd);
    struct qd_connection *connection = qd_connection_open(&exchange->connections, fd, is_unix, mhd);
    if (connection == NULL)
        return NULL;
    connection->io.is_hooked = qd_hooks_work(is_https ? QD_HOOKS_TLS : QD_HOOKS_SOCKET);
    if (is_https) {
        connection->tls.identity =
            qd_tls_begin(exchange->settings.tls, qd_exchange_session_of(connection), connection);
    } else if (connection->io.is_hooked && !qd_io_hooks_add(connection)) {
        qd_connection_close(connection);
        return NULL;
    }
    take_share(connection, listener);
    return connection;
}

void qd_exchange_close(struct qd_exchange *exchange, struct qd_connection *connection)
{
    /* Below its limit libmicrohttpd accepts again, but only in its next run. */
    exchange->pump_needed = true;
    if (connection == NULL)
        return;
    qd_io_hooks_remove(connection);
    qd_tls_end(connection->tls.identity);
    qd_quota_give_back(exchange->settings.quota, &connection->share);
    /* The request was refused before its first line was there, so on_completed was not called. */
    if (connection->request != NULL)
        end_request(connection, connection->final_answer == QD_LAST_DELIVERED);
    qd_connection_close(connection);
}

/* Prints the value of Keep-Alive once for all answers. A time under a second is not sent, because 0
 * would mean that the connection closes at once. */
static void set_keep_alive(struct qd_exchange *exchange)
{
    char *text = exchange->keep_alive_text;
    const uint64_t seconds = exchange->settings.config->idle_timeout_ns / QD_NS_PER_S;
    snprintf(text, sizeof(exchange->keep_alive_text), "timeout=%llu", (unsigned long long)seconds);
    exchange->keep_alive = seconds > 0 ? text : NULL;
}

bool qd_exchange_init(struct qd_exchange *exchange, struct qd_loop *loop,
                      const struct qd_listener_settings *settings)
{
    *exchange = (struct qd_exchange){.loop = loop, .settings = *settings};
    exchange->stand_in = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    const bool open =
        qd_connections_init(&exchange->connections, settings->config) && exchange->stand_in != NULL;
    set_keep_alive(exchange);
    qd_refuse_watch(&exchange->connections);
    if (settings->tls != NULL) {
        exchange->connections.decrypted_bytes = decrypted_bytes;
        exchange->connections.end_session = end_session;
    }
    qd_hooks_start(settings->tls);
    return open;
}

void qd_exchange_deinit(struct qd_exchange *exchange)
{
    qd_connections_deinit(&exchange->connections);
    qd_io_hooks_deinit();
    MHD_destroy_response(exchange->stand_in); /* NULL is fine */
}
