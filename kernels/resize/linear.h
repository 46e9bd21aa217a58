/* The core of onnx.Resize in mode linear, for 8 bits and FP32: each element of y is a weighted mean
 * of four elements of x, two rows and two columns. The bits are those of ONNX Runtime 1.32 on x86
 * (onnxruntime/core/providers/cpu/tensor/upsample.h), which differ by layout:
 *
 *   channels first  x11 * (dx2 * dy2) + x21 * (dx1 * dy2) + x12 * (dx2 * dy1) + x22 * (dx1 * dy1)
 *                   in FP32, one rounding for each operation. 8 bits: then the fraction is dropped
 *   channels last   FP32: the same. 8 bits: the same sum of integers, with weights of 1/1024, and
 *                   divided by 2^20 without the remainder
 *
 * xab is the element in column a and row b. dx1 is the distance from column 1, which is the weight
 * of column 2. If the columns are the same, at the end of an axis, both weights are 1/2. */
#pragma once

#include "kernels/dispatch.h"

/* One of the two axes. An element of y lies between elements first and second of x. */
struct qk_linear_index {
    float at; /* the coordinate in x */
    uint32_t first;
    uint32_t second;
    float from_first, from_second; /* the distances */
};

struct qk_linear {
    size_t planes;            /* images, or with channels first, images times channels */
    size_t channels;          /* the last axis of x, with channels last; 0: channels first */
    size_t height, width;     /* of x; at least 1 and below 2^31 */
    size_t y_height, y_width; /* of y */
    enum qk_type type;        /* UINT8, INT8 or FP32 */
    const struct qk_linear_index *rows;    /* [y_height], which outlives the plan */
    const struct qk_linear_index *columns; /* [y_width] */
};

/* Sets the index for an element of y whose coordinate in an axis of `size` elements is `at`. */
void qk_linear_set_index(struct qk_linear_index *index, float at, size_t size);

/* Fills the plan's units, kernel, run and state. The output has been set, and has elements. Returns
 * QK_NO_MEMORY if `memory` has run out. */
enum qk_status qk_linear_plan(const struct qk_linear *linear, const struct qk_kernels *kernels,
                              struct qk_memory memory, struct qk_plan *plan,
                              struct qk_error *error);
