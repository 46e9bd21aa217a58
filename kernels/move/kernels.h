/* The kernels of the moving core. Strides are in bytes. Pointers have no alignment. All tiers give
 * the same bytes, because they compute nothing. The index of an array is log2 of the size of an
 * element: 1, 2, 4 or 8 bytes. */
#ifndef KERNELS_MOVE_KERNELS_H
#define KERNELS_MOVE_KERNELS_H

#include <stddef.h>
#include <stdint.h>

enum { QK_MOVE_SIZES = 4 };

struct qk_move_kernels {
    /* y[i] = x[i * x_stride]: contiguous elements of y; x_stride may be 0 or negative. */
    void (*strided[QK_MOVE_SIZES])(void *y, const void *x, size_t count, int64_t x_stride);
    /* y[i] = x[offsets[i]], offsets in bytes. */
    void (*gathered[QK_MOVE_SIZES])(void *y, const void *x, size_t count, const int64_t *offsets);
    /* Element k of row i of y is element i of row k of x. y has `rows` rows of `columns` elements,
     * x has `columns` rows of `rows` elements. Elements of a row are contiguous, rows are one
     * stride apart. */
    void (*transposed[QK_MOVE_SIZES])(void *y, int64_t y_stride, const void *x, int64_t x_stride,
                                      size_t rows, size_t columns);
};

void qk_move_init_scalar(struct qk_move_kernels *kernels);
void qk_move_init_avx2(struct qk_move_kernels *kernels);
void qk_move_init_avx512(struct qk_move_kernels *kernels);
void qk_move_init_neon(struct qk_move_kernels *kernels);

#endif
