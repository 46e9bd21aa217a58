/* The raw binary request of Triton's binary tensor data extension. The body is the data of the
 * model's only input, without JSON. The header Inference-Header-Content-Length is 0. */
#ifndef SERVER_OIP_RAW_H
#define SERVER_OIP_RAW_H

#include "server/base/status.h"
#include "server/oip/decode.h"

/* Makes the body the data of asked->inputs[0], and asks for all outputs as bytes. Datatype and
 * shape are the signature's. A free size follows from the number of bytes, which must not be 0.
 *
 * *asked has its signature, and memory for the input. Pure. */
enum qd_status qd_oip_read_raw(const struct qd_oip_message *message, struct qd_oip_asked *asked,
                               struct qd_error *error);

#endif
