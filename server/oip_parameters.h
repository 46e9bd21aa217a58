/* The request-level `parameters` of an inference: the operator's attributes and a few of OIP's own
 * keys (timeout, binary_data_output, ...). */
#ifndef SERVER_OIP_PARAMETERS_H
#define SERVER_OIP_PARAMETERS_H

#include "server/arena.h"
#include "server/json_tree.h"
#include "server/oip_decode.h"
#include "server/status.h"

/* Fills infer's attributes, binary_output and timeout_us; infer->call has operator and version.
 * Lists and strings are copied into the arena. Pure. */
enum qd_status qd_oip_read_parameters(const struct cJSON *parameters, struct qd_arena *arena,
                                      struct qd_infer *infer, struct qd_error *error);

#endif
