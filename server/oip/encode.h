/* Encodes OIP answers. Pure: everything is printed into the text's arena. */
#pragma once

#include "kernels/qk.h"
#include "server/base/status.h"
#include "server/config/config.h"
#include "server/json/tensor.h"
#include "server/memory/text.h"
#include "server/oip/answer.h"
#include "server/oip/decode.h"
#include "server/telemetry/metrics.h"

/* Returns a lower bound for the size of an answer with these outputs, before they have data: two
 * bytes for each number in JSON, a digit and a separator. Returns SIZE_MAX if the bound overflows.
 */
size_t qd_oip_least_answer_bytes(const struct qd_oip_asked *asked, const struct qk_tensor *outputs);

/* Makes the answer to an inference, in units: JSON, with the data of each requested output in it or
 * behind it. A unit prints some of the numbers, or the classes of some rows (classes.h). Small
 * outputs of numbers have no units and are printed at the end. outputs[i] is the signature's output
 * i. Until the answer is sent, its parts borrow the data behind the JSON, and the printed text,
 * which is in the arena.
 *
 * node_ns says how long each node of the plan took; NULL: the answer does not. The writer lives in
 * the arena and borrows all arguments. Returns NULL, with the error set, if
 * there is no memory. */
struct qd_oip_writer;
struct qd_oip_writer *qd_oip_writer_create(const struct qd_oip_asked *asked,
                                           const struct qk_graph_plan *plan,
                                           const uint64_t *node_ns, const struct qk_tensor *outputs,
                                           struct qd_arena *arena, struct qd_error *error);
/* Call it after all units have ended, printed or not. NULL is fine. */
void qd_oip_writer_deinit(struct qd_oip_writer *writer);

/* How many numbers a unit prints. An output with no more than these has no unit. */
#define QD_OIP_UNIT_NUMBERS 2048
/* About how long printing a unit of numbers takes. */
#define QD_OIP_UNIT_NS UINT64_C(50000)
/* The size of the workspace that each thread needs for printing. */
#define QD_OIP_PRINT_BYTES ((size_t)QD_OIP_UNIT_NUMBERS * QD_JSON_ELEMENT_BYTES_MAX)

/* Returns how many units a writer will have. Needs no writer, and no data of the outputs. */
size_t qd_oip_unit_count(const struct qd_oip_asked *asked, const struct qk_tensor *outputs);
/* Returns about how long the longest unit takes. A unit of classes has at least one whole row, so
 * it may take some milliseconds. */
uint64_t qd_oip_unit_ns(const struct qd_oip_asked *asked, const struct qk_tensor *outputs);

/* Prints units [begin, end), in any order, on several threads at once, each with its own workspace.
 * Meanwhile only the writer may use the arena. qd_oip_writer_end reports a failure. */
void qd_oip_writer_print(struct qd_oip_writer *writer, char *workspace, size_t begin, size_t end);

/* Completes the answer after all units. The answer reports the stages that are over by then:
 * RECEIVE to COMPUTE. */
enum qd_status qd_oip_writer_end(struct qd_oip_writer *writer,
                                 const uint64_t stage_ns[QD_STAGE_COUNT], struct qd_answer *answer);

/* Makes an answer {"error":"…"}, with its http_status and content_type. Never fails: without memory
 * the body is a constant. */
void qd_oip_encode_error(const struct qd_error *error, struct qd_arena *arena,
                         struct qd_answer *answer);

/* Print the metadata of the server and of a model, and a model's configuration. `config` and
 * `kernels` (the text of qk_kernels_describe) become properties of the server; each may be NULL and
 * is then left out. `versions` are the versions that a model's metadata lists. `resident_bytes` is
 * the memory of a loaded model; 0 is left out. */
void qd_oip_encode_server_metadata(struct qd_text *text, const struct qd_config *config,
                                   const char *kernels);
void qd_oip_encode_model_metadata(struct qd_text *text, const struct qd_signature *signature,
                                  const uint64_t *versions, size_t version_count,
                                  size_t resident_bytes);
void qd_oip_encode_model_config(struct qd_text *text, const struct qd_signature *signature);
