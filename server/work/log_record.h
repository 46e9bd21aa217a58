/* Keeps what a request's line in the log needs but what no longer exists when the line is written,
 * at the request's end: the head, whose strings are only borrowed, and everything that was in the
 * arena of a request that was refused. Every text is bounded, because clients choose all of them.
 */
#ifndef SERVER_WORK_LOG_RECORD_H
#define SERVER_WORK_LOG_RECORD_H

#include "server/oip/decode.h"

#define QD_LOG_RECORD_METHOD_BYTES 24
#define QD_LOG_RECORD_PATH_BYTES 257
#define QD_LOG_RECORD_STATE_BYTES 513
#define QD_LOG_RECORD_ID_BYTES 129
#define QD_LOG_RECORD_INPUTS_BYTES 385

struct qd_log_record {
    char method[QD_LOG_RECORD_METHOD_BYTES];
    char path[QD_LOG_RECORD_PATH_BYTES];
    char tracestate[QD_LOG_RECORD_STATE_BYTES];
    char id[QD_LOG_RECORD_ID_BYTES];
    char inputs[QD_LOG_RECORD_INPUTS_BYTES]; /* x:UINT8[1,3,224,224] x_scale:FP32[] */
};

/* Makes all texts "". */
void qd_log_record_init(struct qd_log_record *record);

/* Copies as much of `from` as fits into `bytes` bytes, with a NUL. */
void qd_log_record_copy(char *to, size_t bytes, const char *from);

/* Notes the id and the inputs of an inference, as far as they were read. "..." replaces inputs for
 * which there is no room. */
void qd_log_record_note_call(struct qd_log_record *record, const struct qd_oip_asked *asked);

#endif
