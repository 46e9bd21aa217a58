#define _GNU_SOURCE
#include "server/work/request.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/clock.h"
#include "server/base/limits.h"
#include "server/memory/blocks.h"
#include "server/memory/text.h"
#include "server/oip/encode.h"
#include "server/work/body_prefault.h"

enum {
    GROWING_BODY_BYTES = 64 << 10, /* the first room of a body of unknown size */
    FIRST_BODY_BYTES = 16 << 10, /* the first room of a body of known size; most bodies have less */
};

struct qd_request *qd_request_create(struct qd_memory *memory, uint64_t first_line_ns)
{
    struct qd_request *request = malloc(sizeof(*request));
    if (request == NULL)
        return NULL;
    /* The inputs at the end are most of the struct. The code that reads inputs clears them. */
    memset(request, 0, offsetof(struct qd_request, oip.asked.call.inputs));
    request->error.status = QD_OK;
    request->error.reason = QD_REASON_OTHER;
    request->user[0] = request->server_timing[0] = '\0';
    request->trace.trace_id[0] = request->trace.parent_id[0] = '\0';
    request->trace.span_id[0] = request->trace.response[0] = '\0';
    struct qd_log_record *record = &request->log_record;
    record->method[0] = record->path[0] = record->tracestate[0] = '\0';
    record->id[0] = record->inputs[0] = '\0';
    request->state = QD_READING;
    request->times.since_ns = first_line_ns;
    qd_arena_init(&request->arena, memory);
    return request;
}

/* Frees the arena, and with it the body and the stream that may lie there. */
static void empty_arena(struct qd_request *request)
{
    if (request->stream != NULL)
        request->stream->close(request->stream);
    request->stream = NULL;
    qd_body_prefault_abandon(request);
    qd_arena_deinit(&request->arena);
    request->body.bytes = NULL;
}

void qd_request_destroy(struct qd_request *request)
{
    if (request == NULL)
        return;
    empty_arena(request);
    qd_model_release(request->model);
    free(request);
}

void qd_request_advance(struct qd_request *request, enum qd_request_state to)
{
    qd_request_advance_at(request, to, qd_clock_ns());
}

void qd_request_advance_at(struct qd_request *request, enum qd_request_state to, uint64_t now_ns)
{
#define BIT(state) (1u << (state))
    static const unsigned allowed[] = {
        [QD_READING] = BIT(QD_QUEUED) | BIT(QD_REPLYING) | BIT(QD_DONE),
        [QD_QUEUED] = BIT(QD_DECODING) | BIT(QD_RUNNING) | BIT(QD_ENCODING) | BIT(QD_REPLYING),
        [QD_DECODING] = BIT(QD_RUNNING) | BIT(QD_QUEUED) | BIT(QD_REPLYING),
        [QD_RUNNING] = BIT(QD_QUEUED) | BIT(QD_ENCODING) | BIT(QD_REPLYING),
        [QD_ENCODING] = BIT(QD_QUEUED) | BIT(QD_REPLYING),
        [QD_REPLYING] = BIT(QD_DONE),
        [QD_DONE] = 0,
    };
    assert(allowed[request->state] & BIT(to));
    request->times.left |= BIT(request->state);
#undef BIT
    request->times.spent_ns[request->state] += now_ns - request->times.since_ns;
    request->times.since_ns = now_ns;
    request->state = to;
}

/* ---- The body ----------------------------------------------------------------------------- */

enum qd_status qd_request_reserve_body(struct qd_request *request, size_t bytes)
{
    struct qd_arena *arena = &request->arena;
    request->body.is_kept = true;
    if (bytes > FIRST_BODY_BYTES && bytes < QD_LARGE_BLOCK_BYTES) {
        request->body.count_said = bytes;
        bytes = FIRST_BODY_BYTES;
    }
    request->body.bytes = qd_arena_reserve(arena, bytes);
    /* Checks now whether there is room for bytes that do not count yet. Otherwise they would be
     * refused later, after the client has sent them in vain. */
    if (request->body.bytes != NULL &&
        bytes > qd_arena_commit(arena, request->body.bytes, 0, NULL) &&
        !qd_memory_has_room(arena->memory, bytes)) {
        arena->refused_bytes = bytes;
        request->body.bytes = NULL;
    }
    if (request->body.bytes == NULL)
        return qd_refuse_memory(&request->arena, "the body", &request->error);
    qd_arena_set_reservation(arena, request->body.bytes, QD_RESERVATION_COMING);
    request->body.capacity = bytes;
    return QD_OK;
}

/* Grows the body's room. A small block counts as a whole, so a head that promises a small body
 * first gets FIRST_BODY_BYTES, and all of it when they are full. A body of unknown size gets some
 * room first, too. Then it gets as much as there may be, of which only the bytes that come count.
 * So a body is copied once at most. */
static bool grow_body(struct qd_request *request, size_t bytes, uint64_t bytes_max)
{
    struct qd_arena *arena = &request->arena;
    const size_t left = qd_memory_max(arena->memory) - qd_arena_own_bytes(arena);
    size_t capacity = bytes_max < left ? (size_t)bytes_max : left;
    if (bytes <= request->body.count_said)
        capacity = request->body.count_said;
    else if (bytes <= GROWING_BODY_BYTES && GROWING_BODY_BYTES < capacity)
        capacity = GROWING_BODY_BYTES;
    char *body = qd_arena_reserve(arena, capacity < bytes ? bytes : capacity);
    const size_t count = (size_t)request->body.count;
    if (body == NULL || qd_arena_commit(arena, body, count, NULL) < count)
        return false;
    if (count > 0)
        memcpy(body, request->body.bytes, count);
    qd_arena_set_reservation(arena, body, QD_RESERVATION_COMING);
    request->body.bytes = body;
    request->body.capacity = capacity;
    return true;
}

size_t qd_request_body_room(struct qd_request *request, size_t placed)
{
    const size_t old = (size_t)request->body.count + placed;
    if (request->body.bytes == NULL || request->error.status != QD_OK ||
        old >= request->body.capacity)
        return 0;
    const size_t left = request->body.capacity - old;
    const size_t wanted = left < QD_PLACED_BYTES_MAX ? left : QD_PLACED_BYTES_MAX;
    const size_t end = qd_body_prefault(request, old + wanted);
    return end > old ? end - old : 0;
}

/* Returns how many bytes it has taken. */
static size_t take(struct qd_request *request, const char *bytes, size_t count, uint64_t bytes_max)
{
    const bool small = request->body.count_max != 0;
    bytes_max = small ? request->body.count_max : bytes_max;
    const size_t old = (size_t)request->body.count;
    if (count > bytes_max - old) {
        qd_fail(&request->error, QD_TOO_LARGE, "the body: expected at most %llu bytes%s, got more",
                (unsigned long long)bytes_max, small ? " for this call" : " (--max-body-bytes)");
        empty_arena(request);
        return count;
    }
    if (!request->body.is_kept)
        return count;
    const bool fits = old + count <= request->body.capacity || request->body.prefault != NULL ||
                      grow_body(request, old + count, bytes_max);
    const size_t end = fits ? qd_body_prefault(request, old + count) : 0;
    if (end < old || (end < old + count && request->body.prefault == NULL)) {
        qd_refuse_memory(&request->arena, "the body", &request->error);
        empty_arena(request);
        return count;
    }
    if (bytes != request->body.bytes + old)
        memcpy(request->body.bytes + old, bytes, end - old);
    return end - old;
}

size_t qd_request_take_body(struct qd_request *request, const char *bytes, size_t count,
                            uint64_t bytes_max)
{
    const size_t taken =
        request->error.status == QD_OK ? take(request, bytes, count, bytes_max) : count;
    request->body.count += taken;
    return taken;
}

static enum qd_status set_reservation(struct qd_request *request, enum qd_reservation reservation)
{
    if (qd_arena_set_reservation(&request->arena, request->body.bytes, reservation))
        return QD_OK;
    request->arena.refused_bytes = 0;
    return qd_refuse_memory(&request->arena, "the body", &request->error);
}

enum qd_status qd_request_end_body(struct qd_request *request)
{
    return set_reservation(request, request->oip.message.signature != NULL ? QD_RESERVATION_WAITING
                                                                           : QD_RESERVATION_FIRM);
}

enum qd_status qd_request_keep_body(struct qd_request *request)
{
    return set_reservation(request, QD_RESERVATION_FIRM);
}

bool qd_request_has_lost_body(const struct qd_request *request)
{
    return request->body.bytes != NULL && qd_arena_has_lost(&request->arena, request->body.bytes);
}

void qd_request_drop_body(struct qd_request *request)
{
    assert(request->body.prefault == NULL);
    if (request->body.bytes != NULL)
        qd_arena_release(&request->arena, request->body.bytes, request->body.capacity);
    request->body.bytes = NULL;
}

/* ---- The answer --------------------------------------------------------------------------- */

static const enum qd_request_state stage_states[] = {
    [QD_STAGE_RECEIVE] = QD_READING, [QD_STAGE_QUEUE] = QD_QUEUED,
    [QD_STAGE_DECODE] = QD_DECODING, [QD_STAGE_COMPUTE] = QD_RUNNING,
    [QD_STAGE_ENCODE] = QD_ENCODING,
};

void qd_request_stages(const struct qd_request *request, uint64_t stage_ns[QD_STAGE_COUNT])
{
    stage_ns[QD_STAGE_TOTAL] = 0;
    for (unsigned stage = 0; stage < QD_STAGE_TOTAL; stage++) {
        stage_ns[stage] = request->times.spent_ns[stage_states[stage]];
        stage_ns[QD_STAGE_TOTAL] += stage_ns[stage];
    }
    stage_ns[QD_STAGE_SEND] = request->times.spent_ns[QD_REPLYING];
}

/* Prints "compute;dur=1.234". Returns the end. Writes up to 16 bytes beyond it, because a name is
 * copied as words. */
static char *print_stage(enum qd_stage stage, uint64_t us, char *at)
{
    static const struct {
        char text[16];
        size_t bytes;
    } begins[] = {
#define X(stage, name) {name ";dur=", sizeof(name ";dur=") - 1},
        QD_STAGE_LIST(X)
#undef X
    };
    const unsigned fraction = (unsigned)(us % 1000);
    memcpy(at, begins[stage].text, sizeof(begins[stage].text));
    at = qd_print_decimal(us / 1000, at + begins[stage].bytes);
    *at++ = '.';
    *at++ = (char)('0' + fraction / 100);
    *at++ = (char)('0' + fraction / 10 % 10);
    *at++ = (char)('0' + fraction % 10);
    return at;
}

/* Prints Server-Timing: the stages that the request has left, in milliseconds. */
static void print_timing(const struct qd_request *request, char *at)
{
    uint64_t stage_ns[QD_STAGE_COUNT];
    qd_request_stages(request, stage_ns);
    for (enum qd_stage stage = 0; stage < QD_STAGE_TOTAL; stage++) {
        if ((request->times.left >> stage_states[stage] & 1) == 0)
            continue;
        at = print_stage(stage, (stage_ns[stage] + 500) / QD_NS_PER_US, at);
        *at++ = ',';
        *at++ = ' ';
    }
    *print_stage(QD_STAGE_TOTAL, (stage_ns[QD_STAGE_TOTAL] + 500) / QD_NS_PER_US, at) = '\0';
}

void qd_request_reply(struct qd_request *request)
{
    qd_request_advance(request, QD_REPLYING);
    print_timing(request, request->server_timing);
}

void qd_request_reply_empty(struct qd_request *request)
{
    request->answer = (struct qd_answer){.http_status = qd_status_http(QD_OK)};
    qd_request_reply(request);
}

void qd_request_add_header(struct qd_request *request, const char *name, const char *value)
{
    assert(request->header_count < QD_REQUEST_HEADER_COUNT_MAX);
    request->headers[request->header_count++] = (struct qd_header){name, value};
}

void qd_request_refuse(struct qd_request *request)
{
    const char *allow = request->answer.allow;
    bool close = request->answer.close;
    if (request->log_record.method[0] != '\0') /* a log is read */
        qd_log_record_note_call(&request->log_record, &request->oip.asked);
    empty_arena(request);
    request->answer = (struct qd_answer){.http_status = 0};
    qd_oip_encode_error(&request->error, &request->arena, &request->answer);
    request->answer.allow = allow;
    request->answer.close = close;
    qd_request_reply(request);
}
