/* Packs panels of B: a constant one into the instance, one that comes with a run into the
 * workspace. Private to matmul/. */
#pragma once

#include "kernels/matmul/kernels.h"

/* Returns the byte that each byte of a matrix is xored with for the product. */
static inline uint8_t qk_matmul_flip(enum qk_type type, bool is_signed)
{
    return (type == QK_INT8) != is_signed ? 0x80 : 0;
}

/* Returns how much smaller a zero point becomes when its matrix is stored flipped. */
static inline int32_t qk_matmul_moved(enum qk_type type, bool is_signed)
{
    if (qk_matmul_flip(type, is_signed) == 0)
        return 0;
    return is_signed ? 128 : -128;
}

/* Packs steps [begin, end) of a panel. `b` is the matrix, which has `k` rows and `n` columns. Adds
 * the packed weights of each column to sums[mr]. What `arrange` adds follows the steps that are
 * packed here, as if there were no others. */
void qk_matmul_pack_panel(const struct qk_matmul *matmul, const uint8_t *b, size_t k, size_t n,
                          size_t panel, size_t begin, size_t end, uint8_t *to, int32_t *sums);

/* Returns what `columns` computes columns from `first` on of matrix `b_matrix` from, without C.
 * Zero points are NULL if they are 0. `sums` are those of the packed columns, from `first` on. */
struct qk_matmul_columns_from qk_matmul_columns_from(const struct qk_matmul *matmul,
                                                     const struct qk_matmul_shape *shape,
                                                     const uint8_t *a_zero_point,
                                                     const uint8_t *b_zero_point, size_t b_matrix,
                                                     size_t first, const int32_t *sums);

/* The plan's `run`. */
void qk_matmul_run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                   void *workspace, size_t begin, size_t end);

/* The most columns of panels that are finished together if A has few rows: enough that calls cost
 * little beside them, and few enough that their sums stay in the L1 cache. */
#define QK_MATMUL_GROUP ((size_t)256)

/* Returns the most rows of A that dot products compute alone. AMX takes 16 rows in the time of one,
 * so it is faster from 3 rows on, unless it has a single tile of columns to wait for. */
static inline size_t qk_matmul_dots_max(const struct qk_igemm *igemm, size_t n)
{
    if (!igemm->whole_steps)
        return QK_IGEMM_REMAINDER_MAX;
    return n <= QK_IGEMM_STEP_SLABS ? QK_IGEMM_WHOLE_REMAINDER_MAX : 2;
}

/* The plan of a product. Offsets of the workspace are in bytes. */
struct qk_matmul_plan {
    const struct qk_matmul *matmul;
    struct qk_matmul_shape shape;
    struct qk_matmul_order order;
    size_t y_bytes;    /* of one element */
    size_t band;       /* rows of A in a unit */
    size_t slab_bytes; /* for the quads of a band */
    size_t part_steps; /* steps of one part of K */
    size_t bands, panel_parts, part_panels;
    size_t unit_batches;
    const struct qk_igemm_step *steps; /* part_steps of each part of K, then those of the last */
    /* Offsets in the workspace. */
    size_t quads, sums, gathered, panel, rows, columns, tile, parameters;
    size_t gathered_bytes; /* of one row of A */
};
