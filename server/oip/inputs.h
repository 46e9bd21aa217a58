/* The `inputs` of an inference: names, datatypes, shapes, and data from JSON or from behind it. */
#ifndef SERVER_OIP_INPUTS_H
#define SERVER_OIP_INPUTS_H

#include "server/base/arena.h"
#include "server/base/status.h"
#include "server/json/envelope.h"
#include "server/oip/decode.h"
#include "server/oip/parameters.h"

#define QD_OIP_JSON_BYTES_HEADER "Inference-Header-Content-Length"

struct cJSON;

/* A request on its way from bytes to tensors. All borrowed. */
struct qd_oip_decoder {
    struct qd_arena *arena;
    struct qd_infer *infer; /* signature, inputs, declared, and the call but what is read */
    struct qd_error *error;
    const char *json_bytes_header;   /* NULL: absent, so there are no binary tensors */
    struct qd_oip_carrier *carriers; /* by the signature's index; NULL: none came */
    struct qd_json_envelope envelope;
    const char *blobs; /* the binary tensors not taken yet, in the order of the inputs */
    size_t blobs_bytes;
    const char *blobs_source; /* "the body", for errors */
};

/* Fills infer->inputs, and infer->declared where there is one: binary ones are views on blobs, the
 * others are in the arena. */
enum qd_status qd_oip_read_inputs(struct qd_oip_decoder *decoder, const struct cJSON *inputs);

#endif
