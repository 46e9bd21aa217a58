#define _GNU_SOURCE
#include "server/http/listener.h"

#include <assert.h>
#include <microhttpd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/clock.h"
#include "server/base/limits.h"
#include "server/base/log.h"
#include "server/http/connection.h"
#include "server/http/endpoint.h"
#include "server/http/intercept.h"
#include "server/http/last_word.h"
#include "server/http/linger.h"
#include "server/http/socket.h"

enum {
    REPLY_SILENCE_S = 30,        /* for a peer that does not read its answer */
    PUMP_RUNS_MAX = 8,           /* MHD_run moves one buffer a connection: more runs batch better */
    JOINED_BYTES_MAX = 64 << 10, /* copying more costs more than it saves */
    SWEEP_MS = 250,              /* how late a deadline may be noticed */
    DRAIN_SWEEP_MS = 20,
};

struct qd_listener {
    struct qd_memory *memory;
    const struct qd_config *config;
    struct qd_tls *tls; /* NULL: none */
    struct qd_handler handler;
    struct qd_handle *before_sleep;
    struct qd_handle *pump_timer;
    struct qd_handle *sweep_timer;
    struct qd_connections connections;
    struct qd_lingers *lingers;
    unsigned silence_s; /* libmicrohttpd's own timeout: our deadlines come before it */
    bool pump_needed;
    qd_callback *on_drained;
    void *on_drained_context;
    size_t endpoint_count;
    struct qd_endpoint endpoints[QD_LISTEN_COUNT_MAX];
};

/* ---- Connections -------------------------------------------------------------------------- */

static struct qd_connection *connection_of(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info == NULL ? NULL : info->socket_context;
}

static struct qd_listener *listener_of(const struct qd_connection *connection)
{
    return (struct qd_listener *)((char *)connection->all -
                                  offsetof(struct qd_listener, connections));
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

/* Its TLS session; NULL: it has none. */
static void *session_of(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    return info == NULL ? NULL : info->tls_session;
}

static void end_request(struct qd_connection *connection, bool delivered)
{
    struct qd_listener *listener = listener_of(connection);
    qd_request_advance(connection->request, QD_DONE);
    listener->handler.closed(listener->handler.context, connection->request, delivered);
    qd_request_destroy(connection->request);
    connection->request = NULL;
}

/* The library forgets it now, and then closes the socket. */
static void close_connection(struct qd_listener *listener, struct qd_connection *connection)
{
    if (connection == NULL)
        return;
    if (connection->lingers) {
        qd_lingers_add(listener->lingers, connection->fd,
                       qd_clock_ns() + listener->config->receive_timeout_ns);
    }
    qd_tls_end(connection->identity);
    if (connection->request != NULL) /* refused before its first line: on_completed never came */
        end_request(connection, true);
    qd_connection_close(connection);
}

/* A NULL in the slot, for want of memory, makes on_access close it. */
static void on_connection(void *context, struct MHD_Connection *mhd, void **slot,
                          enum MHD_ConnectionNotificationCode code)
{
    struct qd_listener *listener = context;
    if (code != MHD_CONNECTION_NOTIFY_STARTED) {
        endpoint_of(listener, mhd)->connection_count--;
        close_connection(listener, *slot);
        listener->pump_needed = true; /* it accepts again below its limit: at its next run only */
        return;
    }
    int fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    qd_socket_bound_send(fd);
    endpoint_of(listener, mhd)->connection_count++;
    struct qd_connection *connection = qd_connection_open(&listener->connections, fd, mhd);
    *slot = connection;
    if (connection != NULL && endpoint_of(listener, mhd)->is_https)
        connection->identity = qd_tls_begin(listener->tls, session_of(mhd));
    if (listener->connections.count == 1 && !listener->connections.draining)
        qd_timer_start(listener->sweep_timer, SWEEP_MS, SWEEP_MS);
}

static void on_sweep(void *context)
{
    struct qd_listener *listener = context;
    qd_connections_sweep(&listener->connections);
    qd_lingers_sweep(listener->lingers, qd_clock_ns());
    if (listener->connections.count > 0 || qd_lingers_count(listener->lingers) > 0)
        return;
    qd_timer_stop(listener->sweep_timer);
    if (listener->connections.draining)
        listener->on_drained(listener->on_drained_context);
}

/* ---- The answer --------------------------------------------------------------------------- */

static_assert(sizeof(struct qd_part) == sizeof(struct MHD_IoVec) &&
                  offsetof(struct qd_part, bytes) == offsetof(struct MHD_IoVec, iov_base) &&
                  offsetof(struct qd_part, count) == offsetof(struct MHD_IoVec, iov_len),
              "an answer's parts are libmicrohttpd's as they lie");

static bool add_header(struct MHD_Response *response, const char *name, const char *value)
{
    return MHD_add_response_header(response, name, value) == MHD_YES;
}

/* False: malloc failed. An answer that lacks one of them would be misread. */
static bool add_headers(struct MHD_Response *response, const struct qd_request *request, bool close)
{
    const struct qd_answer *answer = &request->answer;
    char number[24];
    bool added =
        answer->content_type == NULL || add_header(response, "Content-Type", answer->content_type);
    if (answer->json_bytes > 0) {
        snprintf(number, sizeof(number), "%zu", answer->json_bytes);
        added = add_header(response, "Inference-Header-Content-Length", number) && added;
    }
    if (answer->allow != NULL)
        added = add_header(response, "Allow", answer->allow) && added;
    if (answer->retry_after_s > 0) {
        snprintf(number, sizeof(number), "%u", answer->retry_after_s);
        added = add_header(response, "Retry-After", number) && added;
    }
    if (answer->http_status == MHD_HTTP_UNSUPPORTED_MEDIA_TYPE)
        added = add_header(response, "Accept-Encoding", "identity") && added;
    if (answer->server_timing[0] != '\0')
        added = add_header(response, "Server-Timing", answer->server_timing) && added;
    if (close)
        added = add_header(response, "Connection", "close") && added;
    for (size_t i = 0; i < request->header_count; i++)
        added = add_header(response, request->headers[i].name, request->headers[i].value) && added;
    return added;
}

/* The parts of a brief answer in one piece; NULL: it is none, or there is no memory. */
static const char *join_parts(struct qd_request *request)
{
    const struct qd_answer *answer = &request->answer;
    if (answer->bytes > JOINED_BYTES_MAX || answer->part_count == 0)
        return NULL;
    if (answer->part_count == 1)
        return answer->parts[0].bytes;
    char *joined = qd_arena_alloc(&request->arena, answer->bytes);
    size_t count = 0;
    for (size_t i = 0; joined != NULL && i < answer->part_count; i++) {
        memcpy(joined + count, answer->parts[i].bytes, answer->parts[i].count);
        count += answer->parts[i].count;
    }
    return joined;
}

/* What it sends stays in the request's arena until on_completed. libmicrohttpd sends one piece with
 * the head before it, in one call, but parts in a second one, after which the client has been woken
 * for nothing. */
static struct MHD_Response *create_response(struct qd_request *request)
{
    const struct qd_answer *answer = &request->answer;
    const char *joined = join_parts(request);
    if (joined != NULL)
        return MHD_create_response_from_buffer(answer->bytes, (void *)(uintptr_t)joined,
                                               MHD_RESPMEM_PERSISTENT);
    return MHD_create_response_from_iovec((const struct MHD_IoVec *)(const void *)answer->parts,
                                          (unsigned)answer->part_count, NULL, NULL);
}

static enum MHD_Result send_answer(struct qd_connection *connection)
{
    const struct qd_answer *answer = &connection->request->answer;
    struct MHD_Response *response = create_response(connection->request);
    if (response == NULL)
        return MHD_NO; /* malloc failed: all that is left is to close */
    qd_connection_on_answer(connection, answer->bytes);
    enum MHD_Result result = MHD_NO;
    if (add_headers(response, connection->request, answer->close || connection->all->draining))
        result = qd_intercept_queue(connection->http, answer->http_status, response);
    MHD_destroy_response(response);
    return result;
}

void qd_listener_answer(struct qd_request *request)
{
    struct qd_connection *connection = request->connection;
    assert(connection->suspended && request->state == QD_REPLYING);
    connection->suspended = false;
    listener_of(connection)->pump_needed = true; /* a resume by itself wakes nothing */
    MHD_resume_connection(connection->http);
}

/* ---- The request -------------------------------------------------------------------------- */

static enum MHD_Result collect_header(void *context, enum MHD_ValueKind kind, const char *name,
                                      size_t name_bytes, const char *value, size_t value_bytes)
{
    (void)kind;
    qd_head_add(context, name, name_bytes, value, value_bytes);
    return MHD_YES;
}

/* The earliest that we see of a request: its first line is there. */
static void *on_request_line(void *context, const char *uri, struct MHD_Connection *mhd)
{
    (void)context;
    (void)uri;
    struct qd_connection *connection = connection_of(mhd);
    if (connection != NULL)
        qd_connection_on_request_line(connection);
    return NULL;
}

static enum MHD_Result refuse(struct qd_connection *connection)
{
    connection->lingers = true;
    connection->request->answer.close = true;
    qd_request_refuse(connection->request);
    return send_answer(connection);
}

/* The library has found something that it cannot read. What it says of HEAD, and so whether the
 * answer has a body, is lost where it goes past it. */
static enum MHD_Result on_library_error(struct MHD_Connection *mhd, unsigned http_status)
{
    struct qd_connection *connection = connection_of(mhd);
    if (connection == NULL)
        return MHD_NO;
    const bool in_head = connection->first_byte_ns != 0;
    const bool in_body = connection->request != NULL;
    if (!in_body) {
        connection->request = qd_request_create(
            listener_of(connection)->memory, in_head ? connection->first_byte_ns : qd_clock_ns());
    }
    struct qd_request *request = connection->request;
    if (request == NULL)
        return MHD_NO;
    connection->refused = true;
    qd_intercept_explain(http_status, in_head, in_body, &request->error);
    if (!qd_intercept_would_repeat(mhd, in_body))
        return refuse(connection);
    connection->lingers = true;
    qd_request_refuse(request);
    qd_last_word(connection->fd, session_of(mhd), &request->answer,
                 MHD_get_reason_phrase_for(request->answer.http_status), false);
    return MHD_NO;
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

static enum MHD_Result on_head(struct qd_connection *connection, const char *target,
                               const char *method, const char *version)
{
    struct qd_listener *listener = listener_of(connection);
    struct qd_request *request = qd_request_create(listener->memory, connection->first_byte_ns);
    if (request == NULL)
        return MHD_NO;
    request->connection = connection;
    connection->request = request;
    qd_connection_on_head(connection);
    struct qd_head head;
    qd_head_init(&head, method, target, version);
    MHD_get_connection_values_n(connection->http, MHD_HEADER_KIND, collect_header, &head);
    if (qd_head_check(&head, &request->error) != QD_OK)
        return refuse(connection);
    if (listener->handler.admit(listener->handler.context, &head, request) == QD_OK)
        check_size(connection, &head);
    if (request->error.status == QD_OK)
        listener->handler.begin(listener->handler.context, &head, request);
    bool rests = head.expects_continue || head.content_bytes > QD_DRAIN_BYTES_MAX;
    if (request->error.status != QD_OK && rests)
        return refuse(connection); /* before the client sends it all in vain */
    return MHD_YES;
}

/* A timeout of its own does more than end a peer that does not read: libmicrohttpd looks at such a
 * connection first when it is resumed, and takes our answer before it reads. It would read the end
 * of a client that has shut its sending side, and close without the answer. */
static void suspend(struct qd_connection *connection)
{
    MHD_set_connection_option(connection->http, MHD_CONNECTION_OPTION_TIMEOUT,
                              (unsigned)REPLY_SILENCE_S);
    connection->suspended = true;
    MHD_suspend_connection(connection->http);
}

static enum MHD_Result on_body_complete(struct qd_connection *connection)
{
    struct qd_listener *listener = listener_of(connection);
    struct qd_request *request = connection->request;
    qd_connection_on_body_end(connection);
    if (request->error.status != QD_OK) {
        qd_request_refuse(request);
    } else if (!listener->handler.end(listener->handler.context, request)) {
        suspend(connection);
        return MHD_YES;
    }
    return send_answer(connection);
}

/* libmicrohttpd calls this when the head is complete, for each piece of the body, at the body's
 * end, and after a resume. It can take an answer in the first of these (and then it closes) and in
 * the last two. */
static enum MHD_Result on_access(void *context, struct MHD_Connection *mhd, const char *target,
                                 const char *method, const char *version, const char *bytes,
                                 size_t *count, void **request_slot)
{
    (void)context;
    (void)request_slot;
    struct qd_connection *connection = connection_of(mhd);
    if (connection == NULL)
        return MHD_NO; /* malloc failed in on_connection */
    if (connection->request == NULL)
        return on_head(connection, target, method, version);
    if (*count > 0) {
        qd_request_take_body(connection->request, bytes, *count,
                             connection->all->config->max_body_bytes);
        *count = 0;
        return MHD_YES;
    }
    if (connection->request->state == QD_REPLYING)
        return send_answer(connection);
    return on_body_complete(connection);
}

static void on_completed(void *context, struct MHD_Connection *mhd, void **request_slot,
                         enum MHD_RequestTerminationCode code)
{
    (void)request_slot;
    struct qd_listener *listener = context;
    struct qd_connection *connection = connection_of(mhd);
    if (connection == NULL)
        return;
    if (connection->request != NULL) {
        bool sent = code == MHD_REQUEST_TERMINATED_COMPLETED_OK ||
                    (connection->refused && code == MHD_REQUEST_TERMINATED_WITH_ERROR);
        end_request(connection, sent && connection->request->state == QD_REPLYING);
    }
    MHD_set_connection_option(mhd, MHD_CONNECTION_OPTION_TIMEOUT, listener->silence_s);
    qd_connection_on_request_end(connection);
}

/* ---- libmicrohttpd on our loop ------------------------------------------------------------ */

static void on_pump_needed(void *context)
{
    struct qd_listener *listener = context;
    listener->pump_needed = true;
}

/* As qd_endpoint_run, for all of them. */
static uint64_t pump(struct qd_listener *listener)
{
    uint64_t wait_ms = UINT64_MAX;
    listener->pump_needed = false;
    for (size_t i = 0; i < listener->endpoint_count; i++) {
        uint64_t ms = qd_endpoint_run(&listener->endpoints[i]);
        wait_ms = ms < wait_ms ? ms : wait_ms;
    }
    return wait_ms;
}

/* One pump a turn of the loop serves all that became ready in it, and one more what was answered
 * since: that may be all that there is to do. */
static void on_before_sleep(void *context)
{
    struct qd_listener *listener = context;
    if (!listener->pump_needed)
        return;
    uint64_t wait_ms;
    unsigned runs = 0;
    do {
        wait_ms = pump(listener);
    } while (listener->handler.idle(listener->handler.context) && ++runs < PUMP_RUNS_MAX);
    if (listener->pump_needed)
        wait_ms = 0;
    if (wait_ms != UINT64_MAX)
        qd_timer_start(listener->pump_timer, wait_ms, 0);
    else
        qd_timer_stop(listener->pump_timer);
}

/* ---- Life --------------------------------------------------------------------------------- */

static bool open_endpoints(struct qd_listener *listener, struct qd_loop *loop, char *complaint)
{
    const struct qd_config *config = listener->config;
    const struct qd_endpoint_settings settings = {
        .config = config,
        .tls = listener->tls,
        .loop = loop,
        .silence_s = listener->silence_s,
        .on_access = on_access,
        .on_connection = on_connection,
        .on_completed = on_completed,
        .on_request_line = on_request_line,
        .on_ready = on_pump_needed,
        .context = listener,
    };
    for (size_t i = 0; i < config->listen_count; i++) {
        if (!qd_endpoint_open(&listener->endpoints[i], config->listen[i], &settings, complaint))
            return false;
        listener->endpoint_count++;
    }
    return true;
}

static unsigned silence_s(const struct qd_config *config)
{
    uint64_t ns = config->receive_timeout_ns > config->idle_timeout_ns ? config->receive_timeout_ns
                                                                       : config->idle_timeout_ns;
    unsigned seconds = (unsigned)(ns / QD_NS_PER_S) + 2;
    return seconds == REPLY_SILENCE_S ? seconds + 1 : seconds; /* see suspend */
}

struct qd_listener *qd_listener_create(struct qd_loop *loop, struct qd_memory *memory,
                                       const struct qd_config *config, struct qd_tls *tls,
                                       const struct qd_handler *handler,
                                       char complaint[QD_LISTENER_COMPLAINT_BYTES])
{
    struct qd_listener *listener = calloc(1, sizeof(*listener));
    snprintf(complaint, QD_LISTENER_COMPLAINT_BYTES, "out of memory");
    if (listener == NULL)
        return NULL;
    listener->memory = memory;
    listener->config = config;
    listener->tls = tls;
    listener->connections.config = config;
    listener->handler = *handler;
    listener->lingers = qd_lingers_create(loop);
    if (!qd_intercept_start(on_library_error)) {
        qd_log(QD_LOG_WARN, "libmicrohttpd is built so that its errors stay HTML", "version=%s",
               MHD_get_version());
    }
    listener->silence_s = silence_s(config);
    listener->before_sleep = qd_loop_before_sleep(loop, on_before_sleep, listener);
    listener->pump_timer = qd_loop_timer(loop, on_pump_needed, listener);
    listener->sweep_timer = qd_loop_timer(loop, on_sweep, listener);
    bool open = listener->lingers != NULL && listener->before_sleep != NULL &&
                listener->pump_timer != NULL && listener->sweep_timer != NULL;
    open = open && open_endpoints(listener, loop, complaint);
    if (tls != NULL)
        qd_tls_forget_texts(tls);
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
    assert(listener->connections.count == 0);
    qd_lingers_destroy(listener->lingers);
    qd_handle_destroy(listener->before_sleep);
    qd_handle_destroy(listener->pump_timer);
    qd_handle_destroy(listener->sweep_timer);
    free(listener);
}

const char *qd_listener_name(const struct qd_listener *listener, size_t index)
{
    return index < listener->endpoint_count ? listener->endpoints[index].socket.name : NULL;
}

size_t qd_listener_connection_count(const struct qd_listener *listener)
{
    return listener->connections.count;
}

size_t qd_listener_gauges(const struct qd_listener *listener,
                          struct qd_listener_gauge gauges[QD_LISTEN_COUNT_MAX])
{
    for (size_t i = 0; i < listener->endpoint_count; i++) {
        const struct qd_endpoint *endpoint = &listener->endpoints[i];
        gauges[i] = (struct qd_listener_gauge){
            endpoint->socket.name,
            {endpoint->connection_count, listener->config->max_connections},
        };
    }
    return listener->endpoint_count;
}

void qd_listener_drain(struct qd_listener *listener, qd_callback *on_drained, void *context)
{
    listener->connections.draining = true;
    listener->on_drained = on_drained;
    listener->on_drained_context = context;
    for (size_t i = 0; i < listener->endpoint_count; i++)
        qd_endpoint_drain(&listener->endpoints[i]);
    listener->pump_needed = true;
    qd_timer_start(listener->sweep_timer, 0, DRAIN_SWEEP_MS);
}

void qd_listener_cut(struct qd_listener *listener)
{
    listener->connections.cutting = true;
}
