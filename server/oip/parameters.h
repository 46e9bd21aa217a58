/* Reads the `parameters` of an inference: a built-in model's attributes, and a few keys of OIP
 * (timeout, binary_data_output, ...). A built-in model refuses any other key, because it may be a
 * misspelled attribute. A loaded model ignores other keys whose values are numbers, strings, true
 * or false, as in Triton's "parameters" extension. */
#ifndef SERVER_OIP_PARAMETERS_H
#define SERVER_OIP_PARAMETERS_H

#include "server/json/tree.h"
#include "server/oip/inputs.h"

/* Fills the attributes, binary_outputs, timeout_us, priority and profiles of decoder->asked. If any
 * input has the carrier form, allocates decoder->carriers in the arena; an input with the carrier
 * form has both type and shape, and the model takes the type. Lists are allocated in the arena,
 * strings are borrowed. Pure. */
enum qd_status qd_oip_read_parameters(struct qd_oip_decoder *decoder,
                                      const struct qd_json_value *parameters);

#endif
