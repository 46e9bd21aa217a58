/* The `inputs` of an inference: names, datatypes, shapes, and data from JSON or from behind it. */
#ifndef SERVER_OIP_INPUTS_H
#define SERVER_OIP_INPUTS_H

#include "server/base/status.h"
#include "server/json/tensor.h"
#include "server/memory/arena.h"
#include "server/oip/decode.h"
#include "server/oip/parameters.h"

#define QD_OIP_JSON_BYTES_HEADER "Inference-Header-Content-Length"

/* The JSON data of an input, not converted yet. */
struct qd_oip_numbers {
    struct qd_json_numbers json;
    size_t position; /* in the request's array */
    const char *name;
    bool is_strided;
};

/* A request on its way from bytes to tensors. All borrowed. */
struct qd_oip_decoder {
    struct qd_arena *arena;
    struct qd_oip_asked *asked; /* signature, inputs, declared, and the call but what is read */
    struct qd_error *error;
    struct qd_regions *regions;       /* NULL: shared memory is refused */
    const char *json_bytes_header;    /* NULL: absent, so there are no binary tensors */
    struct qd_oip_carrier *carriers;  /* by the signature's index; NULL: none came */
    const struct qd_json_mark *marks; /* the JSON reader's */
    struct qd_oip_numbers *numbers;   /* data that is still to be converted; NULL: there is none */
    size_t numbers_count;
    const char *blobs; /* the binary tensors not taken yet, in the order of the inputs */
    size_t blobs_bytes;
    const char *blobs_source; /* "the body", for errors */
};

/* Fills asked->inputs, and asked->declared where there is one: binary ones are views on blobs, the
 * others get room in the arena, and are in `numbers`. */
enum qd_status qd_oip_read_inputs(struct qd_oip_decoder *decoder,
                                  const struct qd_json_value *inputs);

/* Converts a piece (qd_json_numbers_read). error NULL: only the status is wanted. */
enum qd_status qd_oip_read_numbers(const struct qd_oip_numbers *numbers, size_t piece,
                                   struct qd_error *error);

#endif
