/* What a line about a request says, of what is gone when the line is written: its head, and all
 * that is in its arena where it was refused. Bounded, as clients choose all of it. */
#ifndef SERVER_WORK_LOG_RECORD_H
#define SERVER_WORK_LOG_RECORD_H

#include "server/oip/decode.h"

#define QD_LOG_RECORD_METHOD_BYTES 24
#define QD_LOG_RECORD_PATH_BYTES 257
#define QD_LOG_RECORD_STATE_BYTES 513
#define QD_LOG_RECORD_ID_BYTES 129
#define QD_LOG_RECORD_INPUTS_BYTES 385

/* Small enough for malloc's fast lists: it is made often. */
struct qd_log_record {
    char method[QD_LOG_RECORD_METHOD_BYTES];
    char path[QD_LOG_RECORD_PATH_BYTES];
    char *tracestate; /* of that size; NULL: none */
    char id[QD_LOG_RECORD_ID_BYTES];
    char inputs[QD_LOG_RECORD_INPUTS_BYTES]; /* x:UINT8[1,3,224,224] x_scale:FP32[] */
};

/* NULL: malloc failed. All is "". */
struct qd_log_record *qd_log_record_create(void);
void qd_log_record_destroy(struct qd_log_record *record); /* NULL is fine */

/* Copies what fits. */
void qd_log_record_copy(char *to, size_t bytes, const char *from);

/* Of an inference, as far as it was read. Inputs for which there is no room are left out, and "..."
 * stands for them. */
void qd_log_record_note_call(struct qd_log_record *record, const struct qd_oip_asked *asked);

#endif
