/* A window: what one tap of the kernel sees of one plane of x from a rectangle of positions. It is
 * strided and may reach outside the plane, where padding is. Private to conv/. */
#ifndef KERNELS_CONV_WINDOW_H
#define KERNELS_CONV_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Which columns (or rows) of a window look inside the plane: [begin, end). Where none does, the end
 * is not above the begin. */
struct qk_window_range {
    size_t begin, end;
};

/* Element (i, j) of a window is element (row_first + i * row_stride, column_first + j *
 * column_stride) of the plane, or padding where the plane has no such element. */
struct qk_window {
    int64_t in_rows, in_columns;
    int64_t row_first, column_first;
    int64_t row_stride, column_stride;
    size_t rows, columns;
    /* Distance of the quads of two rows. It may be less than `columns`: then the last columns of a
     * row are padding which is at the same time that before the next row. */
    size_t pitch;
    struct qk_window_range inside_rows, inside_columns; /* set by qk_window_fit */
};

/* Works out inside_rows and inside_columns from the other members. */
void qk_window_fit(struct qk_window *window);

/* Where all of a window is one run of bytes in x, makes it a single row. False: it is not one, and
 * stays as it is. */
bool qk_window_flatten(struct qk_window *window);

#endif
