#include "server/http/exchange.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "server/http/wire/answer_head.h"

enum {
    JOINED_BYTES_MAX = 64 << 10, /* copying more costs more than it saves */
    SHORT_BYTES_MAX = 8 << 10,   /* likewise for an answer that may already be one piece */
    VECTOR_PARTS_MAX = 64,       /* see make_body; at most half as many outputs are binary */
    READER_BYTES = 256 << 10,
};

static_assert(sizeof(struct qd_part) == sizeof(struct MHD_IoVec) &&
                  offsetof(struct qd_part, bytes) == offsetof(struct MHD_IoVec, iov_base) &&
                  offsetof(struct qd_part, count) == offsetof(struct MHD_IoVec, iov_len),
              "an answer's parts are libmicrohttpd's as they lie");

static bool add_header(void *response, const char *name, const char *value)
{
    return MHD_add_response_header(response, name, value) == MHD_YES;
}

/* Returns the parts of a short answer in one piece. Returns NULL if the answer is empty or not
 * short, or there is no memory. */
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

/* Reads the parts of a request's answer that libmicrohttpd has not fetched yet. */
static ssize_t read_parts(void *context, uint64_t position, char *bytes, size_t count)
{
    struct qd_answer *answer = &((struct qd_request *)context)->answer;
    size_t read = 0;
    (void)position; /* libmicrohttpd fetches everything in order */
    while (read < count && answer->part_count > 0) {
        const struct qd_part part = *answer->parts;
        const size_t here = part.count - answer->taken_bytes;
        const size_t some = here < count - read ? here : count - read;
        memcpy(bytes + read, (const char *)part.bytes + answer->taken_bytes, some);
        read += some;
        answer->taken_bytes += some;
        if (some == here) {
            answer->parts++;
            answer->part_count--;
            answer->taken_bytes = 0;
        }
    }
    return read > 0 ? (ssize_t)read : MHD_CONTENT_READER_END_OF_STREAM;
}

/* Reads what a request's stream prints next. */
static ssize_t read_stream(void *context, uint64_t position, char *bytes, size_t count)
{
    struct qd_request *request = context;
    const size_t read = qd_stream_read(request->stream, bytes, count);
    (void)position;
    request->answer.bytes += read;
    return read > 0 ? (ssize_t)read : MHD_CONTENT_READER_END_OF_STREAM;
}

/* Makes the response of a stream. A text that fits into the stream's room is sent like any other
 * answer. The length of a longer one is not known in advance. It is sent in chunks or, if may_chunk
 * is false, until the connection's end. */
static struct MHD_Response *make_streamed(struct qd_request *request, bool may_chunk)
{
    struct qd_stream *stream = request->stream;
    if (!qd_stream_fill(stream) || !stream->ended) {
        struct MHD_Response *response = MHD_create_response_from_callback(
            MHD_SIZE_UNKNOWN, QD_STREAM_BYTES, read_stream, request, NULL);
        if (response == NULL || may_chunk)
            return response;
        MHD_set_response_options(response, MHD_RF_HTTP_1_0_COMPATIBLE_STRICT, MHD_RO_END);
        request->answer.close = true;
        request->answer.keep_alive = NULL;
        return response;
    }
    request->answer.bytes = stream->end;
    return MHD_create_response_from_buffer(stream->end, stream->room, MHD_RESPMEM_PERSISTENT);
}

/* Makes the response. Its bytes stay in the request's arena until on_completed. libmicrohttpd sends
 * a body of one piece in the same call as the head. It sends parts in a second call, so the first
 * call wakes the client for nothing.
 *
 * libmicrohttpd copies the vector of the parts into the connection's memory, behind the request's
 * head. If there is no room, 0.9.75 unlocks a mutex that it had not locked, and aborts the process
 * some time later. The parts of an answer that has too many of them, which is a large one in JSON,
 * are therefore copied into libmicrohttpd's buffer instead. */
static struct MHD_Response *make_body(struct qd_request *request, bool may_chunk)
{
    const struct qd_answer *answer = &request->answer;
    if (request->stream != NULL)
        return make_streamed(request, may_chunk);
    const char *joined = join_parts(request);
    if (joined != NULL)
        return MHD_create_response_from_buffer(answer->bytes, (void *)(uintptr_t)joined,
                                               MHD_RESPMEM_PERSISTENT);
    if (answer->part_count > VECTOR_PARTS_MAX)
        return MHD_create_response_from_callback(answer->bytes, READER_BYTES, read_parts, request,
                                                 NULL);
    return MHD_create_response_from_iovec((const struct MHD_IoVec *)(const void *)answer->parts,
                                          (unsigned)answer->part_count, NULL, NULL);
}

struct MHD_Response *qd_response_create(struct qd_request *request, bool may_chunk)
{
    struct MHD_Response *response = make_body(request, may_chunk);
    if (response != NULL && request->answer.keep_alive != NULL)
        MHD_set_response_options(response, MHD_RF_SEND_KEEP_ALIVE_HEADER, MHD_RO_END);
    if (response == NULL || qd_answer_put_headers(request, add_header, response))
        return response;
    MHD_destroy_response(response);
    return NULL;
}

bool qd_response_print(struct qd_request *request, struct qd_part *whole)
{
    const struct qd_answer *answer = &request->answer;
    if (answer->close || request->stream != NULL || answer->part_count == 0 ||
        answer->bytes > SHORT_BYTES_MAX)
        return false;
    char *text = qd_arena_alloc(&request->arena, QD_ANSWER_HEAD_BYTES + answer->bytes);
    const char *reason = MHD_get_reason_phrase_for(answer->http_status);
    char *end = text == NULL ? NULL : qd_answer_print_head(request, reason, text);
    if (end == NULL)
        return false;
    for (size_t i = 0; i < answer->part_count; i++) {
        memcpy(end, answer->parts[i].bytes, answer->parts[i].count);
        end += answer->parts[i].count;
    }
    *whole = (struct qd_part){text, (size_t)(end - text)};
    return true;
}
