/* OIP answers, from values to text. Pure: everything is printed into the text's arena. */
#ifndef SERVER_OIP_ENCODE_H
#define SERVER_OIP_ENCODE_H

#include "kernels/qk.h"
#include "server/base/status.h"
#include "server/config/config.h"
#include "server/json/tensor.h"
#include "server/memory/text.h"
#include "server/oip/answer.h"
#include "server/oip/decode.h"
#include "server/telemetry/metrics.h"

/* What an answer with these outputs has at least, before any of them has data: two bytes for each
 * number in JSON, a digit and what parts it from the next. SIZE_MAX: more than that. */
size_t qd_oip_least_answer_bytes(const struct qd_oip_asked *asked, const struct qk_tensor *outputs);

/* The answer to an inference, in units: JSON, with the data of each output that was asked for in it
 * or behind it. A unit is some numbers to print; small outputs have none, and are printed at the
 * end. outputs[i] goes with the signature's output i; what lies behind the JSON is borrowed by the
 * answer's parts until they are sent, as is all that the writer has printed, which is in the
 * arena.
 *
 * It lives in the arena, and borrows all. NULL: no memory; the error says so. */
struct qd_oip_writer;
struct qd_oip_writer *qd_oip_writer_create(const struct qd_oip_asked *asked, const char *kernel,
                                           const struct qk_tensor *outputs, struct qd_arena *arena,
                                           struct qd_error *error);
/* Not before all units are over, printed or not. NULL is fine. */
void qd_oip_writer_deinit(struct qd_oip_writer *writer);

/* Numbers of a unit. An output with no more has none. */
#define QD_OIP_UNIT_NUMBERS 2048
/* And what printing it takes. */
#define QD_OIP_UNIT_NS UINT64_C(50000)
/* A workspace for printing, of each thread. */
#define QD_OIP_PRINT_BYTES ((size_t)QD_OIP_UNIT_NUMBERS * QD_JSON_ELEMENT_BYTES_MAX)

/* Before there is a writer, and before outputs have data. */
size_t qd_oip_unit_count(const struct qd_oip_asked *asked, const struct qk_tensor *outputs);
size_t qd_oip_writer_unit_count(const struct qd_oip_writer *writer);

/* Units in any order, by several threads at once, each with its own workspace. The arena is the
 * writer's meanwhile. A failure is kept for the end. */
void qd_oip_writer_print(struct qd_oip_writer *writer, char *workspace, size_t begin, size_t end);

/* After all units. The answer says of stage_ns what is known by then: RECEIVE to COMPUTE. */
enum qd_status qd_oip_writer_end(struct qd_oip_writer *writer,
                                 const uint64_t stage_ns[QD_STAGE_COUNT], struct qd_answer *answer);

/* {"error":"…"}. Also fills http_status and content_type. Never fails: without memory the body is a
 * constant. */
void qd_oip_encode_error(const struct qd_error *error, struct qd_arena *arena,
                         struct qd_answer *answer);

/* What the server says about itself and its models. `config`, and what the kernels say of
 * themselves, are its properties; NULL: none. `versions` are those that the metadata lists, and
 * `resident_bytes` what a loaded model holds; 0: none. */
void qd_oip_encode_server_metadata(struct qd_text *text, const struct qd_config *config,
                                   const char *kernels);
void qd_oip_encode_model_metadata(struct qd_text *text, const struct qd_signature *signature,
                                  const uint64_t *versions, size_t version_count,
                                  size_t resident_bytes);
void qd_oip_encode_model_config(struct qd_text *text, const struct qd_signature *signature);

#endif
