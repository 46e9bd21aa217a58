/* Converts the numbers of tensors between JSON text and typed buffers, without a tree node for each
 * element.
 *
 * The syntax of numbers is that of RFC 8259. Integers must be written as integers (1.0, 1e2 and -0
 * are refused) and be in the type's range. The error gives the index and the value. For FP32, the
 * decimal is rounded once, to nearest even. It is not rounded to a double first, because rounding
 * twice can give another float. A number that overflows is refused. "NaN", "Infinity" and
 * "-Infinity" (protobuf's JSON mapping) are printed and read with quotes, and also read without.
 * BOOL is printed as true and false. element.h has the rules of all float types, INT64 and BOOL. */
#pragma once

#include "kernels/qk.h"
#include "server/base/status.h"
#include "server/json/number.h"
#include "server/json/tree.h"
#include "server/memory/text.h"

/* Reads short, flat data of ordinary numbers in one call, such as a scale or a zero point. `out`
 * has room for the tensor's elements. Returns false for any other data; the caller then uses
 * qd_json_numbers_init, which also reports errors. Pure. */
bool qd_json_row_read(const struct qd_json_value *data, const struct qk_tensor *tensor, void *out);

/* The state of converting a tensor's data. Everything is borrowed. */
struct qd_json_numbers {
    const char *begin;
    const char *end;
    bool is_nested;
    const struct qd_json_mark *marks;
    size_t mark_count;
    const struct qk_tensor *tensor;
    void *out;
};

/* Prepares to convert `data`, a QD_JSON_DATA that is flat or nested exactly as the shape. A scalar
 * may be `[v]` or `v`. `marks` are the reader's. `tensor` gives type, dims and count. The caller
 * then sets `out` to memory for the tensor's elements. Memory for one element more than the data
 * has commas is always enough: a shape may claim far more elements than the data has. */
void qd_json_numbers_init(struct qd_json_numbers *numbers, const struct qd_json_value *data,
                          const struct qd_json_mark *marks, const struct qk_tensor *tensor);

/* Converts one of the mark_count + 1 pieces. Pieces may be converted on different threads and in
 * any order. If several pieces fail, the error of the first of them in the data is the one to
 * report. `field` names the data in the error; NULL if the caller only needs the status. Pure. */
enum qd_status qd_json_numbers_read(const struct qd_json_numbers *numbers, size_t piece,
                                    const char *field, struct qd_error *error);

/* How many bytes one printed element and its comma may take. */
#define QD_JSON_ELEMENT_BYTES_MAX (QD_PRINT_BYTES_MAX + 1)

/* Prints elements [begin, end) of a flat JSON array, without brackets. A comma follows each element
 * except the tensor's last. FP32 is printed as the shortest decimal that reads back as the same
 * float. Returns the end. */
char *qd_json_elements_print(char *out, const struct qk_tensor *tensor, size_t begin, size_t end);

/* Prints all elements, with brackets. */
void qd_json_tensor_print(struct qd_text *text, const struct qk_tensor *tensor);
