/* Reads the parts of an inference for decode.c: its `inputs`, with names, datatypes, shapes, and
 * the data, which is in the JSON or follows it as bytes; its `parameters`; and a body without JSON.
 */
#pragma once

#include "server/base/status.h"
#include "server/json/tensor.h"
#include "server/memory/arena.h"
#include "server/oip/decode.h"

#define QD_OIP_JSON_BYTES_HEADER "Inference-Header-Content-Length"

/* The carrier form, for clients that can only send OIP's datatypes. The input comes as UINT8
 * elements, which are the bytes of another tensor. The parameters "<input>.datatype" and
 * "<input>.shape" describe that tensor. */
struct qd_oip_carrier {
    bool shaped;
    struct qk_tensor tensor; /* type, rank, dims and count; type QK_NONE: no carrier form */
};

/* Bytes of a BOOL tensor that are not checked yet. */
struct qd_oip_bools {
    const char *bytes; /* the tensor's data; NULL: the tensor is not BOOL, or came as JSON */
    size_t count;
    const char *shared; /* where in shared memory to copy them from; NULL: they need no copy */
    char *copy;         /* `bytes`, if they are such a copy */
};

/* Data of an input that units read: either JSON or BOOL. */
struct qd_oip_numbers {
    struct qd_json_numbers json;
    struct qd_oip_bools bools;
    size_t position; /* index in the request's array; QD_OIP_RAW: the body has no JSON */
    const char *name;
    bool is_strided; /* the input has strides, which may skip elements or use one twice */
};
#define QD_OIP_RAW SIZE_MAX

/* The state of decoding a request. Everything is borrowed. */
struct qd_oip_decoder {
    struct qd_arena *arena;
    struct qd_oip_asked
        *asked; /* has its signature, inputs, declared and call; the decoder fills the rest */
    struct qd_error *error;
    struct qd_regions *regions;    /* NULL: shared memory is refused */
    const char *json_bytes_header; /* NULL: the header is absent, so there are no binary tensors */
    unsigned seen_keys; /* which of OIP's own parameters were there, one bit each (parameters.c) */
    /* In the carrier form, by the signature's index. NULL: no input has that form. */
    struct qd_oip_carrier *carriers;
    const struct qd_json_mark *marks; /* of the JSON reader */
    struct qd_oip_numbers *numbers;   /* data that units read; NULL: there is none */
    size_t numbers_count;
    const char *blobs; /* the binary tensors that are left, in the order of the inputs */
    size_t blobs_bytes;
    const char *blobs_source; /* "the body", for errors */
};

/* Fills asked->inputs, and asked->declared if it is not NULL. Binary tensors become views of
 * `blobs`. The others get memory in the arena and an entry in `numbers`. Binary tensors of BOOL get
 * an entry too, because their bytes must be checked. */
enum qd_status qd_oip_read_inputs(struct qd_oip_decoder *decoder,
                                  const struct qd_json_value *inputs);

/* Reads the `parameters` of an inference: a built-in model's attributes, and a few keys of OIP
 * (timeout, binary_data_output, ...). A built-in model refuses any other key, because it may be a
 * misspelled attribute. A loaded model ignores other keys whose values are numbers, strings, true
 * or false, as in Triton's "parameters" extension.
 *
 * Fills the attributes, binary_outputs, timeout_us, priority and profiles of decoder->asked. If any
 * input has the carrier form, allocates decoder->carriers in the arena; an input with the carrier
 * form has both type and shape, and the model takes the type. Lists are allocated in the arena,
 * strings are borrowed. Pure. */
enum qd_status qd_oip_read_parameters(struct qd_oip_decoder *decoder,
                                      const struct qd_json_value *parameters);

/* Reads the raw binary request of Triton's binary tensor data extension. The body is the data of
 * the model's only input, without JSON. The header Inference-Header-Content-Length is 0.
 *
 * Makes the body the data of asked->inputs[0], and asks for all outputs as bytes. Datatype and
 * shape are the signature's. A free size follows from the number of bytes, which must not be 0.
 * *asked has its signature, and memory for the input. Pure. */
enum qd_status qd_oip_read_raw(const struct qd_oip_message *message, struct qd_oip_asked *asked,
                               struct qd_error *error);

/* Takes the whole body as the data of input 0, whose type is BOOL. Adds it to `numbers`, so that
 * units check that the bytes are 0 or 1. */
enum qd_status qd_oip_read_raw_bools(struct qd_oip_decoder *decoder);

/* Returns how many pieces the data has, at least 1. */
size_t qd_oip_numbers_piece_count(const struct qd_oip_numbers *numbers);

/* Converts a piece of JSON (qd_json_numbers_read), or copies and checks a piece of BOOL. `error` is
 * NULL if the caller only needs the status. A caller that gives it repeats a call that failed, to
 * get the text. */
enum qd_status qd_oip_read_numbers(const struct qd_oip_numbers *numbers, size_t piece,
                                   struct qd_error *error);
