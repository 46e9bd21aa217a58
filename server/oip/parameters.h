/* The request-level `parameters` of an inference: a built-in model's attributes and a few of OIP's
 * own keys (timeout, binary_data_output, ...). A built-in model refuses any other key, which may be
 * an attribute that is written wrong. A loaded model ignores it, if it is a number, a string, true
 * or false, as Triton's "parameters" extension has it. */
#ifndef SERVER_OIP_PARAMETERS_H
#define SERVER_OIP_PARAMETERS_H

#include "server/base/status.h"
#include "server/json/tree.h"
#include "server/memory/arena.h"
#include "server/oip/decode.h"

/* The carrier form, for clients that cannot name a datatype beyond OIP's: what the UINT8 elements
 * of an input are the bytes of, by the parameters "<input>.datatype" and "<input>.shape". */
struct qd_oip_carrier {
    bool shaped;
    struct qk_tensor tensor; /* type, rank, dims and count; type QK_NONE: no carrier form */
};

/* Fills the attributes, binary_outputs, timeout_us and priority of *asked, which has its signature.
 * *carriers are made in the arena if there are any: one goes with each input of the signature; one
 * that came has both type and shape, and the input takes the type. Lists are made in the arena,
 * strings are borrowed. Pure. */
enum qd_status qd_oip_read_parameters(const struct qd_json_value *parameters,
                                      struct qd_arena *arena, struct qd_oip_asked *asked,
                                      struct qd_oip_carrier **carriers, struct qd_error *error);

#endif
