/* One HTTP request: its state, its clock, its memory.
 *
 * The state says who may touch it: its loop's thread in READING, QUEUED, REPLYING and DONE, the
 * workers that have it in DECODING, RUNNING and ENCODING, from each of which it may go back to
 * QUEUED, and on from there. One that loads a model is the loader's from QUEUED on, until it is
 * told (on_answered). */
#ifndef SERVER_WORK_REQUEST_H
#define SERVER_WORK_REQUEST_H

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
#include "server/work/log_record.h"
#include "server/work/scheduler/loop.h"
#include "server/work/stream.h"

#define QD_REQUEST_HEADER_COUNT_MAX 12 /* the console's five, CORS' and a trace's */
#define QD_USER_BYTES 65               /* with the NUL at its end */

/* Of a distributed trace (W3C Trace Context); "": of none. */
struct qd_trace {
    char trace_id[33];
    char parent_id[17]; /* the caller's span, and this request's own: */
    char span_id[17];
    char response[56]; /* what the answer says of it */
};

enum qd_request_state {
    QD_READING,  /* from the first byte seen to the last */
    QD_QUEUED,   /* for a worker: its first, or one to go on */
    QD_DECODING, /* reading, converting numbers, planning */
    QD_RUNNING,  /* the operator packs and computes */
    QD_ENCODING,
    QD_REPLYING, /* the answer stands */
    QD_DONE,
    QD_REQUEST_STATE_COUNT
};

struct qd_request;

/* A request's body, while it comes and as long as it is kept. */
struct qd_body {
    bool is_kept; /* false: what comes is dropped */
    char *bytes;
    size_t capacity;
    size_t count_said;                 /* by the head, where capacity is less; 0: it is not */
    struct qd_body_prefault *prefault; /* of its pages (body_prefault.h); NULL: none */
    /* On the request's loop's thread: the pages are there, and qd_request_take_body takes more. */
    void (*on_room)(struct qd_request *request);
    uint64_t count;     /* of bytes that came, kept or not */
    uint64_t count_max; /* where less than --max-body-bytes is enough; 0: it is not */
};

struct qd_request {
    enum qd_request_state state;
    uint64_t since_ns; /* when it entered the state */
    uint64_t spent_ns[QD_REQUEST_STATE_COUNT];
    unsigned left; /* bit i: it was in that state, and is not any more */
    struct qd_arena arena;

    struct qd_answer answer;  /* from REPLYING on */
    unsigned retry_after_s;   /* for a refusal with Retry-After; 0: the least */
    struct qd_stream *stream; /* closed with the request, or its refusal; NULL: there is none */
    /* Of any answer, also of a refusal. Borrowed for as long as the request is there. */
    struct qd_header headers[QD_REQUEST_HEADER_COUNT_MAX];
    size_t header_count;

    /* For the access log. NULL: nobody reads one, or malloc failed. */
    struct qd_log_record *log_record;

    struct qd_body body;
    /* When the body is complete. True: it is in REPLYING. NULL: the answer stands already. */
    bool (*end)(void *context, struct qd_request *request);

    struct qd_model *model; /* a reference, until the request is destroyed; NULL: none */

    const char *name; /* of the model, or of the region of shared memory, that a call is about; in
                       * the arena. NULL: of none */

    /* An inference; message.signature is NULL for all else. */
    enum qd_coding coding;        /* of the body as it comes; message.body is inflated */
    enum qd_coding answer_coding; /* that the client wants, and --compress-answers grants */
    struct qd_oip_message message;
    struct qd_inference *inference; /* infer.c's, in the arena; NULL: none is on its way */
    void (*on_answered)(struct qd_request *request); /* an inference's: on its loop's thread */

    struct qd_loop *loop; /* that has its connection */
    struct qd_post post;  /* to that, of who answers on another thread */
    void *connection;     /* the listener's own */

    struct qd_oip_asked asked; /* an inference's, as far as it was read */

    /* Texts, that qd_request_init does not clear: they are more than all the rest. */
    struct qd_error error;    /* status QD_OK: none so far */
    char user[QD_USER_BYTES]; /* the name of the token it came with; "": none was asked for */
    struct qd_trace trace;
    char server_timing[256]; /* Server-Timing, from REPLYING on: six stages of 35 bytes at most */
};

/* Starts in READING, since first_byte_ns. */
void qd_request_init(struct qd_request *request, struct qd_memory *memory, uint64_t first_byte_ns);
/* The answer's bytes go with it, and its hold on the model. */
void qd_request_deinit(struct qd_request *request);

/* The same in memory of malloc's. NULL: it failed. */
struct qd_request *qd_request_create(struct qd_memory *memory, uint64_t first_byte_ns);
void qd_request_destroy(struct qd_request *request);

/* The only way to change the state. Asserts that the step is one of those in request.c's table, and
 * books the time since the last one. */
void qd_request_advance(struct qd_request *request, enum qd_request_state to);

/* The same, of somebody who has just read the clock. */
void qd_request_advance_at(struct qd_request *request, enum qd_request_state to, uint64_t now_ns);

/* For its answer. Both texts are borrowed. */
void qd_request_add_header(struct qd_request *request, const char *name, const char *value);

/* Keeps the body, with room for so many bytes of it, in one piece. They count as they come. */
enum qd_status qd_request_reserve_body(struct qd_request *request, size_t bytes);
/* So many bytes may be written behind those that are there and `placed` more, which are to be taken
 * before them. 0: none without a call of qd_request_take_body. */
size_t qd_request_body_room(struct qd_request *request, size_t placed);
/* Appends to a kept body, and grows it if it has to; only counts any other. They may be in their
 * place already. A failure is in request->error, drops the body, and only counts all that still
 * comes. bytes_max: --max-body-bytes. Returns how many it has taken: all, or less while pages are
 * being made for the others, and on_room comes. */
size_t qd_request_take_body(struct qd_request *request, const char *bytes, size_t count,
                            uint64_t bytes_max);
/* Nobody looks at it any more: what it held is free for others, unless it is small. Not while its
 * pages are being made. It may have gone before. */
void qd_request_drop_body(struct qd_request *request);

/* Its last byte is there. An inference's body may still be lost until it is kept (arena.h). Not
 * QD_OK: it is lost, and request->error says so. */
enum qd_status qd_request_end_body(struct qd_request *request);
/* Whether it was lost. */
bool qd_request_has_lost_body(const struct qd_request *request);
/* Work on it begins. */
enum qd_status qd_request_keep_body(struct qd_request *request);

/* To REPLYING, with the answer made from request->error. All else in the arena goes: not on a
 * worker, since the scheduler's slots lie there. */
void qd_request_refuse(struct qd_request *request);

/* To REPLYING, with server_timing filled from spent_ns. */
void qd_request_reply(struct qd_request *request);

/* Stage durations; TOTAL is the sum of all but SEND. */
void qd_request_stages(const struct qd_request *request, uint64_t stage_ns[QD_STAGE_COUNT]);

#endif
