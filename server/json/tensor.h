/* Tensor numbers to and from JSON, straight from text to typed buffer: no node per element.
 *
 * Numbers are RFC 8259's. Integers are exact and in the type's range, or refused with index and
 * value (1.0, 1e2 and -0 are not integers here). FP32 rounds the decimal once, to nearest even
 * (never by way of a double's rounding); overflow is refused. Non-finite FP32: "NaN", "Infinity",
 * "-Infinity" (protobuf's JSON mapping) both ways, and on input also the bare tokens.
 */
#ifndef SERVER_JSON_TENSOR_H
#define SERVER_JSON_TENSOR_H

#include "kernels/qk.h"
#include "server/base/status.h"
#include "server/base/text.h"
#include "server/json/envelope.h"

/* No text of `bytes` holds more elements than this: each but the first costs two. A shape may claim
 * far more, and memory is not taken for a claim. */
#define QD_JSON_ELEMENTS_MAX(bytes) ((bytes) / 2 + 1)

/* Reads a `data` value, flat or nested exactly to the shape, into `out`, which has room for
 * tensor->count elements or QD_JSON_ELEMENTS_MAX(data.count), whichever is less. tensor gives type
 * and dims. A scalar's data may be `[v]` or bare `v`. `field` names the data in errors. Pure. */
enum qd_status qd_json_tensor_read(struct qd_json_slice data, const struct qk_tensor *tensor,
                                   const char *field, void *out, struct qd_error *error);

/* Prints tensor->count elements as one flat JSON array. FP32 as the shortest decimal that reads
 * back to the same float. */
void qd_json_tensor_print(struct qd_text *text, const struct qk_tensor *tensor);

#endif
