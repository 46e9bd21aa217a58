#define _GNU_SOURCE
#include "server/http/api/access_log.h"

#include <string.h>

#include "server/base/clock.h"
#include "server/telemetry/log.h"

/* How many bytes of each value are printed. Together with the rest they fit into a line. */
enum {
    SHORT_BYTES = 48,
    NAME_BYTES = 256,
    PATH_BYTES = 512, /* more than a path has: some bytes become six */
    INPUTS_BYTES = 768,
    ERROR_BYTES = 640,
};

bool qd_access_log_is_read(const struct qd_access_log *log)
{
    return log->file != NULL || qd_log_enabled(QD_LOG_DEBUG);
}

/* Keeps the request's tracestate. Several headers are joined to one, with commas between them.
 * Keeps nothing if one of them is invalid, or together they are too long. */
static void keep_states(const struct qd_head *head, struct qd_log_record *record)
{
    char joined[QD_LOG_RECORD_STATE_BYTES] = "";
    size_t count = 0;
    for (size_t i = 0; i < head->tracestate_count; i++) {
        const size_t bytes = strlen(head->tracestates[i]);
        if (!qd_trace_is_state(head->tracestates[i]) || count + bytes + 1 >= sizeof(joined))
            return;
        if (count > 0)
            joined[count++] = ',';
        memcpy(joined + count, head->tracestates[i], bytes + 1);
        count += bytes;
    }
    memcpy(record->tracestate, joined, count + 1);
}

void qd_access_log_open(const struct qd_access_log *log, const struct qd_head *head,
                        struct qd_request *request)
{
    struct qd_trace *trace = &request->trace;
    const bool traced = head->traceparent_count == 1 && qd_trace_read(head->traceparent, trace);
    if (traced)
        qd_request_add_header(request, "traceresponse", trace->response);
    if (!qd_access_log_is_read(log))
        return;
    struct qd_log_record *record = &request->log_record;
    qd_log_record_copy(record->method, sizeof(record->method), head->method);
    qd_log_record_copy(record->path, sizeof(record->path), head->path);
    if (traced)
        keep_states(head, record);
}

/* ---- The line ----------------------------------------------------------------------------- */

/* Adds a field, unless its value is empty. */
static void put(struct qd_line *line, const char *key, const char *value, size_t bytes_max)
{
    if (*value != '\0')
        qd_line_string(line, key, value, bytes_max);
}

static void put_call(struct qd_line *line, const struct qd_request *request)
{
    const struct qd_signature *signature = request->oip.message.signature;
    if (signature != NULL) {
        qd_line_string(line, "model", signature->name, NAME_BYTES);
        qd_line_number(line, "version", signature->version);
    }
    put(line, "id", request->log_record.id, NAME_BYTES);
    put(line, "inputs", request->log_record.inputs, INPUTS_BYTES);
}

static void put_stages(struct qd_line *line, const struct qd_request *request,
                       const uint64_t stage_ns[QD_STAGE_COUNT])
{
    static const char *const keys[QD_STAGE_COUNT] = {
#define X(stage, name) name "_us",
        QD_STAGE_LIST(X)
#undef X
    };
    const bool is_inference = request->oip.message.signature != NULL;
    for (unsigned stage = 0; stage < QD_STAGE_COUNT; stage++) {
        const bool of_all =
            stage == QD_STAGE_RECEIVE || stage == QD_STAGE_TOTAL || stage == QD_STAGE_SEND;
        if (is_inference || of_all || stage_ns[stage] > 0)
            qd_line_number(line, keys[stage], stage_ns[stage] / QD_NS_PER_US);
    }
}

static void put_trace(struct qd_line *line, const struct qd_request *request)
{
    const struct qd_trace *trace = &request->trace;
    put(line, "trace_id", trace->trace_id, SHORT_BYTES);
    put(line, "span_id", trace->span_id, SHORT_BYTES);
    put(line, "parent_id", trace->parent_id, SHORT_BYTES);
    put(line, "tracestate", request->log_record.tracestate, QD_LOG_RECORD_STATE_BYTES);
}

static void put_all(struct qd_line *line, const struct qd_request *request, const char *client,
                    bool delivered, const uint64_t stage_ns[QD_STAGE_COUNT])
{
    const struct qd_log_record *record = &request->log_record;
    const bool has_body = strcmp(record->method, "HEAD") != 0;
    qd_line_string(line, "client", client, NAME_BYTES);
    put(line, "user", request->user, NAME_BYTES);
    put(line, "method", record->method, SHORT_BYTES);
    put(line, "path", record->path, PATH_BYTES);
    qd_line_number(line, "status", request->answer.http_status);
    put_call(line, request);
    qd_line_number(line, "bytes_in", request->body.count);
    if (delivered)
        qd_line_number(line, "bytes_out", has_body ? request->answer.bytes : 0);
    put_stages(line, request, stage_ns);
    put_trace(line, request);
    put(line, "error", request->error.status == QD_OK ? "" : request->error.text, ERROR_BYTES);
}

void qd_access_log_close(const struct qd_access_log *log, struct qd_request *request,
                         const char *client, bool delivered,
                         const uint64_t stage_ns[QD_STAGE_COUNT])
{
    const char *message = delivered ? "answered" : "gone before the answer";
    struct qd_line line;
    if (request->error.status == QD_OK) /* otherwise qd_request_refuse has done it */
        qd_log_record_note_call(&request->log_record, &request->oip.asked);
    if (log->file != NULL)
        qd_line_begin(&line, log->format, "info", message);
    else
        qd_log_begin(&line, QD_LOG_DEBUG, message);
    put_all(&line, request, client, delivered, stage_ns);
    qd_line_end(&line);
    if (log->file != NULL)
        qd_log_file_put(log->file, &line);
    else
        qd_log_write(&line);
}
