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
#include "server/json/number.h"
#include "server/json/tree.h"
#include "server/memory/text.h"

/* Reads data that is flat and as short as a scale's or a zero point's, with nothing unusual in it,
 * at once. out: room for the tensor's elements. False: it is other data, for what follows, which
 * says what is wrong with it, if anything is. Pure. */
bool qd_json_row_read(const struct qd_json_value *data, const struct qk_tensor *tensor, void *out);

/* A tensor's data on its way to numbers. All is borrowed. */
struct qd_json_numbers {
    const char *begin;
    const char *end;
    bool is_nested;
    const struct qd_json_mark *marks;
    size_t mark_count;
    const struct qk_tensor *tensor;
    void *out;
};

/* data: a QD_JSON_DATA, flat or nested exactly to the shape; a scalar's may be `[v]` or bare `v`.
 * marks: the reader's. tensor gives type, dims and count. `out` is for the caller to set: room for
 * the tensor's elements, or for one more than the data has commas, whichever is less. A shape may
 * claim far more, and memory is not taken for a claim. */
void qd_json_numbers_init(struct qd_json_numbers *numbers, const struct qd_json_value *data,
                          const struct qd_json_mark *marks, const struct qk_tensor *tensor);

/* Converts one of mark_count + 1 pieces; each may be converted on another thread, in any order. The
 * first piece that is refused is refused as the whole would be. `field` names the data in the
 * error; NULL: only the status is wanted. Pure. */
enum qd_status qd_json_numbers_read(const struct qd_json_numbers *numbers, size_t piece,
                                    const char *field, struct qd_error *error);

/* Enough for one printed element and the comma behind it. */
#define QD_JSON_ELEMENT_BYTES_MAX (QD_PRINT_BYTES_MAX + 1)

/* Prints elements [begin, end) of a flat JSON array, without its brackets: a comma is behind each
 * but the last of all. FP32 as the shortest decimal that reads back to the same float. Returns the
 * end of what was printed. */
char *qd_json_elements_print(char *out, const struct qk_tensor *tensor, size_t begin, size_t end);

/* The same of all its elements, with the brackets. */
void qd_json_tensor_print(struct qd_text *text, const struct qk_tensor *tensor);

#endif
