/* An OIP inference request, from bytes to a qk_call. Pure: body, arena, output, error.
 *
 * Names no operator: the registry says which inputs, datatypes and attributes there are. */
#ifndef SERVER_OIP_DECODE_H
#define SERVER_OIP_DECODE_H

#include "kernels/qk.h"
#include "server/arena.h"
#include "server/status.h"

struct qd_oip_message {
    const struct qk_operator *op;
    const struct qk_version *version;
    const char *body; /* borrowed as long as the call; binary tensors become views on it */
    size_t body_bytes;
    const char *json_bytes_header; /* Inference-Header-Content-Length as it came; NULL: absent */
};

struct qd_infer {
    const char *id;          /* to echo; NULL: absent or "" */
    uint32_t outputs;        /* bit i: the answer has output i */
    uint32_t binary_outputs; /* and as bytes, not as JSON */
    uint64_t timeout_us; /* the parameter `timeout`: how long it may wait in the queue; 0: none */
    struct qk_call call;
};

/* Finds the registry's operator and version for the URL's parts; `version` NULL: the newest.
 * QD_NOT_FOUND with the known ones in the text. */
enum qd_status qd_oip_find_model(const char *model, const char *version,
                                 const struct qk_operator **op, const struct qk_version **row,
                                 struct qd_error *error);

/* Refuses the datatype that `field` gives for an input: the version takes others, which it names.
 */
enum qd_status qd_oip_refuse_type(const struct qk_call *call, size_t input, const char *field,
                                  const char *got, struct qd_error *error);

enum qd_status qd_oip_decode(const struct qd_oip_message *message, struct qd_arena *arena,
                             struct qd_infer *infer, struct qd_error *error);

#endif
