/* Reads the `inputs` of an inference: names, datatypes, shapes, and the data, which is in the JSON
 * or follows it as bytes. */
#ifndef SERVER_OIP_INPUTS_H
#define SERVER_OIP_INPUTS_H

#include "server/base/status.h"
#include "server/json/tensor.h"
#include "server/memory/arena.h"
#include "server/oip/decode.h"
#include "server/oip/parameters.h"

#define QD_OIP_JSON_BYTES_HEADER "Inference-Header-Content-Length"

/* The JSON data of an input that is not converted yet. */
struct qd_oip_numbers {
    struct qd_json_numbers json;
    size_t position; /* index in the request's array */
    const char *name;
    bool is_strided; /* the input has strides, which may skip elements or use one twice */
};

/* The state of decoding a request. Everything is borrowed. */
struct qd_oip_decoder {
    struct qd_arena *arena;
    struct qd_oip_asked
        *asked; /* has its signature, inputs, declared and call; the decoder fills the rest */
    struct qd_error *error;
    struct qd_regions *regions;    /* NULL: shared memory is refused */
    const char *json_bytes_header; /* NULL: the header is absent, so there are no binary tensors */
    /* In the carrier form (parameters.h), by the signature's index. NULL: no input has that form.
     */
    struct qd_oip_carrier *carriers;
    const struct qd_json_mark *marks; /* of the JSON reader */
    struct qd_oip_numbers *numbers;   /* data that has to be converted; NULL: there is none */
    size_t numbers_count;
    const char *blobs; /* the binary tensors that are left, in the order of the inputs */
    size_t blobs_bytes;
    const char *blobs_source; /* "the body", for errors */
};

/* Fills asked->inputs, and asked->declared if it is not NULL. Binary tensors become views of
 * `blobs`. The others get memory in the arena and an entry in `numbers`. */
enum qd_status qd_oip_read_inputs(struct qd_oip_decoder *decoder,
                                  const struct qd_json_value *inputs);

/* Converts a piece (qd_json_numbers_read). `error` is NULL if the caller only needs the status. */
enum qd_status qd_oip_read_numbers(const struct qd_oip_numbers *numbers, size_t piece,
                                   struct qd_error *error);

#endif
