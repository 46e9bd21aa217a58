/* The core of all operators that only move elements: Transpose, Concat, Slice, Gather, Pad, and so
 * on. It knows sizes of elements (1, 2, 4 or 8 bytes), but not their values.
 *
 * An operator lowers to boxes. A box is a grid of elements of one output, and says for each axis of
 * the grid where its elements come from: the element at index (k0, k1, ...) of the grid is
 *
 *   y[y_first + sum of ki * y_stride(i)] = x[x_first + sum of xi(ki)]
 *   xi(k) = k * x_stride(i), or offsets(i)[k] if the axis has a table
 *
 * A box may also fill its elements with a constant, or what is around them. Boxes of one plan write
 * different elements, so they may run in any order, and on several threads. An operator makes boxes
 * that together write every element of its outputs once.
 *
 *   Transpose        one box whose y_strides are sorted and whose x_strides are not
 *   Concat, Split    a box for each input, or for each output
 *   Slice            one box; x_stride may be negative
 *   Gather, Resize   one box with tables
 *   Pad              a framed box with the elements of x; boxes that fill what is far around it
 *
 * qk_move_add makes boxes as simple as they can be: axes of one element go, neighbouring axes merge
 * if both sides go on by the same step, and a short contiguous run becomes a larger element. Then
 * the last axes decide which pattern a box has, that is, which kernel moves it. */
#pragma once

#include "kernels/elementwise/traversal.h"
#include "kernels/move/kernels.h"
#include "kernels/qk.h"

/* The most axes of a box. Resize may split each axis of a tensor in two. */
#define QK_MOVE_RANK_MAX ((size_t)2 * QK_RANK_MAX)

/* The types of elements that this core moves: those with whole bytes, but not the float8s, which no
 * operator of this core has been asked for. */
#define QK_MOVE_TYPES                                                                              \
    (QK_BIT(QK_UINT8) | QK_BIT(QK_INT8) | QK_BIT(QK_UINT16) | QK_BIT(QK_INT16) |                   \
     QK_BIT(QK_UINT32) | QK_BIT(QK_INT32) | QK_BIT(QK_INT64) | QK_BIT(QK_FP16) | QK_BIT(QK_FP32) | \
     QK_BIT(QK_BOOL))
/* ONNX has BFLOAT16 since opset 13. */
#define QK_MOVE_TYPES_13 (QK_MOVE_TYPES | QK_BIT(QK_BF16))

/* The elements of y before and after those of an axis, counted as y_stride counts. */
struct qk_move_margin {
    int64_t before;
    int64_t after;
};

/* The margins of a box may have at most so many bytes together. */
#define QK_MOVE_MARGINS_MAX 4096

struct qk_move_box {
    size_t input;  /* the index of the operator's input */
    size_t output; /* the index of the operator's output */
    bool fill;     /* true: the elements are the constant of qk_move_begin; no input is read */
    bool framed;   /* true: the constant fills what is around the elements, too: the margins */
    int64_t x_first;
    int64_t y_first;
    uint32_t rank;
    /* Strides and offsets are in elements. Tables are copied by qk_move_add. y_strides descend; all
     * of them are positive. */
    struct qk_move_axis axes[QK_MOVE_RANK_MAX];
    /* Only of a framed box. From the first axis with margins on, elements and margins are dense in
     * y. No axis has a table. */
    struct qk_move_margin margins[QK_MOVE_RANK_MAX];
};

struct qk_move;

/* Refuses an input that is larger than an address space, so that later code may multiply its dims
 * and sizes as signed numbers. `name` is the input's. */
enum qk_status qk_move_check_input(const struct qk_tensor *x, const char *name,
                                   struct qk_error *error);

/* Sets output `output` of the plan: its type, shape and size in bytes. Refuses an output that is
 * larger than an address space, so that later code may multiply its dims and sizes. */
enum qk_status qk_move_set_output(struct qk_plan *plan, size_t output, enum qk_type type,
                                  uint32_t rank, const size_t *dims, struct qk_error *error);

/* Makes a list with room for `box_max` boxes of elements of `type`. `fill` is the constant of boxes
 * that fill, NULL for 0. Fails with QK_NO_MEMORY. */
enum qk_status qk_move_begin(struct qk_move **move, enum qk_type type, const void *fill,
                             size_t box_max, struct qk_memory memory, struct qk_error *error);

/* Adds a box, which is copied. A box without elements is left out. Fails with QK_NO_MEMORY. */
enum qk_status qk_move_add(struct qk_move *move, const struct qk_move_box *box,
                           struct qk_memory memory, struct qk_error *error);

/* Cuts the boxes into units, and fills the plan's kernel, run, state and units. All outputs must
 * have been set. */
void qk_move_end(struct qk_move *move, const struct qk_instance *instance, struct qk_plan *plan);

/* Makes a plan whose only output has the bytes of input 0 in the same order, and the shape `dims`.
 * Sets plan->is_alias. */
enum qk_status qk_move_plan_alias(const struct qk_instance *instance, const struct qk_tensor *x,
                                  uint32_t rank, const size_t *dims, struct qk_memory memory,
                                  struct qk_plan *plan, struct qk_error *error);

/* Fills the last `rank` axes of a box with a row-major tensor of these dims, on both sides. */
void qk_move_axes_of(const size_t *dims, uint32_t rank, struct qk_move_box *box);
