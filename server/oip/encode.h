/* OIP answers, from values to text. Pure: everything is printed into the text's arena. */
#ifndef SERVER_OIP_ENCODE_H
#define SERVER_OIP_ENCODE_H

#include "kernels/qk.h"
#include "server/base/answer.h"
#include "server/base/status.h"
#include "server/base/text.h"
#include "server/oip/decode.h"

/* The stages that the answer's body reports; `encode` and `total` are only in Server-Timing. */
struct qd_oip_stages {
    uint64_t receive_ns, queue_ns, decode_ns, compute_ns;
};

/* The answer to an inference: JSON, with the data of each output that was asked for in it or behind
 * it. outputs[i] goes with the signature's output i; what lies behind the JSON is borrowed by the
 * answer's parts until they are sent. */
enum qd_status qd_oip_encode_infer(const struct qd_infer *infer, const char *kernel,
                                   const struct qk_tensor *outputs,
                                   const struct qd_oip_stages *stages, struct qd_arena *arena,
                                   struct qd_answer *answer, struct qd_error *error);

/* {"error":"…"}. Also fills http_status and content_type. Never fails: without memory the body is a
 * constant. */
void qd_oip_encode_error(const struct qd_error *error, struct qd_arena *arena,
                         struct qd_answer *answer);

/* What the server says about itself and its models. `versions` are those that the metadata lists.
 */
void qd_oip_encode_server_metadata(struct qd_text *text);
void qd_oip_encode_model_metadata(struct qd_text *text, const struct qd_signature *signature,
                                  const uint64_t *versions, size_t version_count);
void qd_oip_encode_model_config(struct qd_text *text, const struct qd_signature *signature);

#endif
