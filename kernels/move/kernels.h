/* The kernels of the moving core. Pointers have no alignment. All tiers give the same bytes,
 * because they compute nothing. The index of an array is log2 of the size of an element: 1, 2, 4 or
 * 8 bytes. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { QK_MOVE_SIZES = 4 };

/* One axis of a box (move.h) or of a tile. In a tile, strides and offsets count bytes. */
struct qk_move_axis {
    size_t size;
    int64_t x_stride; /* may be 0 or negative */
    int64_t y_stride;
    const int64_t *offsets; /* [size]: where in x the elements are; NULL: x_stride says it */
};

/* The axes of a tile, from the outermost on. Kernels loop over all four of them, so that short rows
 * cost no call each. */
enum { QK_MOVE_OUTER, QK_MOVE_INNER, QK_MOVE_ROWS, QK_MOVE_COLUMNS, QK_MOVE_AXES };

/* A grid of elements. With xi(k) = offsets[k] of axis i, or k * x_stride,
 *   y[sum of ki * y_stride(i)] = x[sum of xi(ki)] */
struct qk_move_tile {
    struct qk_move_axis axes[QK_MOVE_AXES];
};

/* Returns the address in x of an element of a tile's axis. The axis's first element is at x. */
static inline const char *qk_move_x_at(const char *x, const struct qk_move_axis *axis, size_t index)
{
    return x + (axis->offsets ? axis->offsets[index] : (int64_t)index * axis->x_stride);
}

typedef void qk_move_fn(char *y, const char *x, const struct qk_move_tile *tile);

struct qk_move_kernels {
    /* Each row is a run of bytes in x and in y: an element of this kernel is a byte. */
    qk_move_fn *copied;
    /* The elements of each row are contiguous in y. The columns have no table. */
    qk_move_fn *strided[QK_MOVE_SIZES];
    /* The elements of each row are contiguous in y. The columns have a table. */
    qk_move_fn *gathered[QK_MOVE_SIZES];
    /* The elements of each row are contiguous in y, the elements of each column in x. Rows and
     * columns have no tables. */
    qk_move_fn *transposed[QK_MOVE_SIZES];
    /* The same, and x has no gaps: an element of the next column follows the last row's. Deals out
     * a run of x to rows, like cards. */
    qk_move_fn *dealt[QK_MOVE_SIZES];
    /* Copies a run, past the caches if the tier can. `finish` must follow before another thread
     * reads y. */
    void (*streamed)(char *y, const char *x, size_t bytes);
    void (*finish)(void);
};

/* Transposes one matrix: element k of row i of y is element i of row k of x. */
static inline void qk_move_transpose(const struct qk_move_kernels *kernels, unsigned size, void *y,
                                     int64_t y_stride, const void *x, int64_t x_stride, size_t rows,
                                     size_t columns)
{
    const int64_t bytes = (int64_t)1 << size;
    const struct qk_move_tile tile = {{{1, 0, 0, NULL},
                                       {1, 0, 0, NULL},
                                       {rows, bytes, y_stride, NULL},
                                       {columns, x_stride, bytes, NULL}}};
    kernels->transposed[size](y, x, &tile);
}

void qk_move_init_scalar(struct qk_move_kernels *kernels);
void qk_move_init_avx2(struct qk_move_kernels *kernels);
void qk_move_init_avx512(struct qk_move_kernels *kernels);
void qk_move_init_neon(struct qk_move_kernels *kernels);
