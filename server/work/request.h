/* An HTTP request from its first byte to the end of its answer: its state, its times, its memory.
 *
 * The state says which thread may use the request. In READING, QUEUED, REPLYING and DONE it is the
 * thread of the request's loop. In DECODING, RUNNING and ENCODING it is the workers that have the
 * request. From each of these states the request may go back to QUEUED, and continue later. A
 * request that loads a model belongs to the loader from QUEUED on, until the loader calls
 * on_answered. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/status.h"
#include "server/memory/arena.h"
#include "server/models/model.h"
#include "server/oip/answer.h"
#include "server/oip/decode.h"
#include "server/telemetry/metrics.h"
#include "server/work/compression.h"
#include "server/work/scheduler/loop.h"
#include "server/work/stream.h"

#define QD_REQUEST_HEADER_COUNT_MAX 12 /* the console's five, and those for CORS and a trace */
#define QD_USER_BYTES 65               /* with its NUL */

/* A distributed trace (W3C Trace Context). All texts are "" if there is none. */
struct qd_trace {
    char trace_id[33];
    char parent_id[17]; /* the caller's span */
    char span_id[17];
    char response[56]; /* the answer's traceresponse */
};

#define QD_LOG_RECORD_METHOD_BYTES 24
#define QD_LOG_RECORD_PATH_BYTES 257
#define QD_LOG_RECORD_STATE_BYTES 513
#define QD_LOG_RECORD_ID_BYTES 129
#define QD_LOG_RECORD_INPUTS_BYTES 385

/* Keeps what a request's line in the log needs but what no longer exists when the line is written,
 * at the request's end: the head, whose strings are only borrowed, and everything that was in the
 * arena of a request that was refused. Every text is bounded, because clients choose all of them.
 */
struct qd_log_record {
    char method[QD_LOG_RECORD_METHOD_BYTES];
    char path[QD_LOG_RECORD_PATH_BYTES];
    char tracestate[QD_LOG_RECORD_STATE_BYTES];
    char id[QD_LOG_RECORD_ID_BYTES];
    char inputs[QD_LOG_RECORD_INPUTS_BYTES]; /* x:UINT8[1,3,224,224] x_scale:FP32[] */
};

enum qd_request_state {
    QD_READING,  /* from the first byte to the last */
    QD_QUEUED,   /* waiting for a worker, to begin or to go on */
    QD_DECODING, /* reading, converting numbers, planning */
    QD_RUNNING,  /* packing and computing */
    QD_ENCODING,
    QD_REPLYING, /* the answer is complete */
    QD_DONE,
    QD_REQUEST_STATE_COUNT
};

struct qd_request;

/* A request's body, while it comes and as long as it is kept. */
struct qd_body {
    bool is_kept; /* if false, the bytes are discarded */
    char *bytes;
    size_t capacity;
    size_t count_said; /* the Content-Length of a body that first gets less room; otherwise 0 */
    struct qd_prefaulter *prefaulter;  /* body_prefault.h; NULL: the loop touches all pages */
    struct qd_body_prefault *prefault; /* in progress; NULL if there is none */
    /* Called on the request's loop's thread when the pages are there. From then on
     * qd_request_take_body takes more bytes. */
    void (*on_room)(struct qd_request *request);
    uint64_t count;     /* how many bytes have come, kept or not */
    uint64_t count_max; /* a smaller maximum than --max-body-bytes; 0 if there is none */
};

/* How long the request was in each state. */
struct qd_request_times {
    uint64_t since_ns; /* when the request entered its state */
    uint64_t spent_ns[QD_REQUEST_STATE_COUNT];
    unsigned left; /* bit i: the request has left state i */
};

/* An inference, from the bytes of its body to what they ask for. message.signature is NULL for all
 * other requests. */
struct qd_request_oip {
    enum qd_coding coding;        /* of the body on the wire; message.body is inflated */
    enum qd_coding answer_coding; /* what the client accepts and --compress-answers allows */
    struct qd_oip_message message;
    struct qd_inference *inference; /* private to infer.c, in the arena; NULL if there is none */
    struct qd_oip_asked asked;      /* as far as it was read */
};

struct qd_request {
    enum qd_request_state state;
    struct qd_request_times times;
    struct qd_arena arena;

    /* Where the request comes from. */
    struct qd_loop *loop; /* the loop of the connection */
    void *connection;     /* belongs to the listener */
    struct qd_body body;

    /* What the request is about. */
    struct qd_model *model; /* a reference, until the request is destroyed; NULL if none */
    /* The name of the model or of the shared memory region that a call is about, in the arena. NULL
     * if there is none. */
    const char *name;

    /* What happens next. */
    /* Called when the body is complete. Returns true if the answer is complete, or if `error` says
     * why there is none. NULL if the answer is already complete. */
    bool (*end)(void *context, struct qd_request *request);
    /* Called when the answer is complete, or `error` says why there is none; for an inference, on
     * the request's loop's thread. */
    void (*on_answered)(struct qd_request *request);
    struct qd_post post; /* used by another thread to hand the answer to `loop` */

    /* The answer. */
    struct qd_answer answer;  /* from REPLYING on */
    struct qd_stream *stream; /* closed with the request, or when it is refused; NULL if none */
    /* For any answer, including a refusal. Borrowed as long as the request lives. */
    struct qd_header headers[QD_REQUEST_HEADER_COUNT_MAX];
    size_t header_count;

    struct qd_request_oip oip;

    /* Texts. qd_request_create does not clear them as a whole, because they are larger than all the
     * rest. */
    struct qd_error error;    /* status QD_OK if there is none */
    char user[QD_USER_BYTES]; /* the name of the request's token; "" if none was needed */
    struct qd_trace trace;
    struct qd_log_record log_record; /* all texts are "" if no log is read */
    char server_timing[256];         /* from REPLYING on: six stages of at most 35 bytes */
};

/* Creates a request, which is in READING since first_line_ns. Returns NULL if malloc failed. */
struct qd_request *qd_request_create(struct qd_memory *memory, uint64_t first_line_ns);
/* Frees the request and its arena, including the answer's bytes, and releases the model. NULL is
 * fine. */
void qd_request_destroy(struct qd_request *request);

/* Changes the state. No other function does. Asserts that the step is in request.c's table, and
 * adds the time since the last step to times.spent_ns. */
void qd_request_advance(struct qd_request *request, enum qd_request_state to);

/* Like qd_request_advance, for a caller that already has the time. */
void qd_request_advance_at(struct qd_request *request, enum qd_request_state to, uint64_t now_ns);

/* Adds a header to the answer. Both texts are borrowed. */
void qd_request_add_header(struct qd_request *request, const char *name, const char *value);

/* Keeps the body, with room for `bytes` bytes in one piece. Bytes count as used memory when they
 * come. */
enum qd_status qd_request_reserve_body(struct qd_request *request, size_t bytes);
/* Returns how many bytes may be written at body.bytes + body.count + placed. The `placed` bytes
 * before them were written earlier but not taken yet. Returns 0 if bytes can only be passed to
 * qd_request_take_body. */
size_t qd_request_body_room(struct qd_request *request, size_t placed);
/* Appends bytes to a kept body, which grows if needed. The bytes may already be in their place
 * (hooks.h). If the body is not kept, only counts the bytes. If this fails, the error is in
 * request->error, the body is dropped, and all further bytes are only counted. bytes_max:
 * --max-body-bytes. Returns how many bytes were taken. It takes fewer than `count` while pages for
 * the rest are prefaulted; body.on_room is called when it can take more. */
size_t qd_request_take_body(struct qd_request *request, const char *bytes, size_t count,
                            uint64_t bytes_max);
/* Drops the body, because it is not read any more. Its memory is free for other requests, unless
 * the body is small. Not while its pages are prefaulted. The body may have been dropped before. */
void qd_request_drop_body(struct qd_request *request);

/* Called when the body is complete. An inference's body may still be lost until
 * qd_request_keep_body (arena.h). Fails if the body is already lost; the error is in
 * request->error. */
enum qd_status qd_request_end_body(struct qd_request *request);
/* Returns whether the body was lost. */
bool qd_request_has_lost_body(const struct qd_request *request);
/* Called when work on the body begins: the body cannot be lost any more. Fails as
 * qd_request_end_body does. */
enum qd_status qd_request_keep_body(struct qd_request *request);

/* Makes the answer from request->error, and advances to REPLYING. Frees everything else in the
 * arena. Must not be called on a worker, because the scheduler's slots are in the arena. */
void qd_request_refuse(struct qd_request *request);

/* Advances to REPLYING, and fills server_timing from times.spent_ns. */
void qd_request_reply(struct qd_request *request);

/* Answers with an empty body, and advances to REPLYING. */
void qd_request_reply_empty(struct qd_request *request);

/* Sets stage_ns to the durations of the stages. TOTAL is the sum of all stages but SEND. */
void qd_request_stages(const struct qd_request *request, uint64_t stage_ns[QD_STAGE_COUNT]);

/* Copies as much of `from` as fits into `bytes` bytes, with a NUL. */
void qd_log_record_copy(char *to, size_t bytes, const char *from);

/* Notes the id and the inputs of an inference, as far as they were read. "..." replaces inputs for
 * which there is no room. */
void qd_log_record_note_call(struct qd_log_record *record, const struct qd_oip_asked *asked);
