/* What the softmax of floats and that of quantized elements share: the rows of a tensor. Private to
 * kernels/. */
#pragma once

#include "kernels/operators/operator.h"

/* The elements of a row are `stride` apart. `stride` neighbouring elements begin as many rows. */
struct qk_softmax_rows {
    size_t length;
    size_t stride;
    size_t count;
    size_t unit; /* rows of a unit; qk_set_units sets it */
};

/* Finds the rows of x. `axis` is an attribute, which may be absent. Before version 13 of Softmax, a
 * row has all axes from `axis` on. Since then, it has one axis. */
enum qk_status qk_softmax_rows_find(const struct qk_attribute *axis, int64_t version,
                                    const struct qk_tensor *x, struct qk_softmax_rows *rows,
                                    struct qk_error *error);

/* Returns the index of a row's first element. */
static inline size_t qk_softmax_row_start(const struct qk_softmax_rows *rows, size_t row)
{
    return row / rows->stride * rows->stride * rows->length + row % rows->stride;
}
