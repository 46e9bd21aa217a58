/* Reads the `parameters` of an inference: a built-in model's attributes, and a few keys of OIP
 * (timeout, binary_data_output, ...). A built-in model refuses any other key, because it may be a
 * misspelled attribute. A loaded model ignores other keys whose values are numbers, strings, true
 * or false, as in Triton's "parameters" extension. */
#ifndef SERVER_OIP_PARAMETERS_H
#define SERVER_OIP_PARAMETERS_H

#include "server/base/status.h"
#include "server/json/tree.h"
#include "server/memory/arena.h"
#include "server/oip/decode.h"

/* The carrier form, for clients that can only send OIP's datatypes. The input comes as UINT8
 * elements, which are the bytes of another tensor. The parameters "<input>.datatype" and
 * "<input>.shape" describe that tensor. */
struct qd_oip_carrier {
    bool shaped;
    struct qk_tensor tensor; /* type, rank, dims and count; type QK_NONE: no carrier form */
};

/* Fills the attributes, binary_outputs, timeout_us, priority and profiles of *asked, which has its
 * signature. If any input has the carrier form, allocates *carriers in the arena, one for each
 * input of the signature; an input with the carrier form has both type and shape, and the model
 * takes the type. Lists are allocated in the arena, strings are borrowed. Pure. */
enum qd_status qd_oip_read_parameters(const struct qd_json_value *parameters,
                                      struct qd_arena *arena, struct qd_oip_asked *asked,
                                      struct qd_oip_carrier **carriers, struct qd_error *error);

#endif
