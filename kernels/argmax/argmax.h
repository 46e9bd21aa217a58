/* The core of onnx.ArgMax and ArgMin: the index of the largest element along one axis. The least
 * element is the largest one of x with other bits, so all kernels look for the largest (`flip`).
 *
 * Of equal elements, the first or the last counts. 0 and -0 are equal. Elements are compared one
 * after the other with the largest so far, so a NaN never counts, and nothing counts after a NaN at
 * index 0: its index is the result. That is what ONNX Runtime does, apart from 1-D tensors, where
 * its result depends on the size of its vectors if there are NaNs. */
#pragma once

#include "kernels/elementwise/traversal.h"
#include "kernels/qk.h"

/* ---- Kernels ------------------------------------------------------------------------------- */

/* How elements are compared: as UINT8, INT32 or FP32, after their bits have been flipped. */
enum qk_argmax_kind { QK_ARGMAX_BYTE, QK_ARGMAX_WORD, QK_ARGMAX_FLOAT, QK_ARGMAX_KIND_COUNT };

/* The most columns of a call. The largest elements so far, and their indices, stay in an L1 cache.
 */
#define QK_ARGMAX_COLUMNS_MAX ((size_t)1024)

/* The most elements of an axis: an index has 32 bits in most kernels. */
#define QK_ARGMAX_LENGTH_MAX ((size_t)INT32_MAX)

/* `flip` is applied to all elements by XOR. x has no alignment. */
struct qk_argmax_kernels {
    const char *name;
    double element_cycles; /* a rough guess: cycles for one element that is in a cache */
    /* Returns the index of the largest of `length` elements: the first, or in entry [1] the last.
     */
    int64_t (*row[QK_ARGMAX_KIND_COUNT][2])(const void *x, size_t length, uint32_t flip);
    /* y[c] = the index of the largest of the elements x[k * stride + c], for k below `length` and c
     * below `columns`. */
    void (*columns[QK_ARGMAX_KIND_COUNT][2])(const void *x, size_t length, size_t stride,
                                             size_t columns, uint32_t flip, int64_t *y);
};

extern const struct qk_argmax_kernels qk_argmax_kernels__scalar;
extern const struct qk_argmax_kernels qk_argmax_kernels__avx2;
extern const struct qk_argmax_kernels qk_argmax_kernels__avx512bw;
extern const struct qk_argmax_kernels qk_argmax_kernels__neon;

/* ---- Plans --------------------------------------------------------------------------------- */

#define QK_ARGMAX_TYPES (QK_BIT(QK_UINT8) | QK_BIT(QK_INT8) | QK_BIT(QK_INT32) | QK_BIT(QK_FP32))

struct qk_argmax {
    bool is_min;
    bool last;  /* of equal elements, the last counts */
    bool keeps; /* y has the axis, with size 1 */
};

/* Fills the plan's first output, and its units, kernel, run and state. `axis` is one of x, which is
 * the operator's first input. Returns QK_INVALID if the axis is empty and y is not, if the axis is
 * too long, or if y is too large. Returns QK_NO_MEMORY if `memory` has run out. */
enum qk_status qk_argmax_plan(const struct qk_argmax *argmax,
                              const struct qk_argmax_kernels *kernels,
                              const struct qk_elementwise_tuning *tuning, const struct qk_tensor *x,
                              uint32_t axis, struct qk_memory memory, struct qk_plan *plan,
                              struct qk_error *error);
