/* A rectangle of one plane of x, as some positions and a tap see it. Private to conv/. */
#ifndef KERNELS_CONV_WINDOW_H
#define KERNELS_CONV_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where the columns or rows of a window that look inside begin and end. Where none does, the end is
 * not above the begin. */
struct qk_window_range {
    size_t begin, end;
};

/* A strided, padded window of one plane of x: its element (i, j) is the plane's element
 * (row_first + i * row_stride, column_first + j * column_stride), or padding outside of it. */
struct qk_window {
    int64_t in_rows, in_columns;
    int64_t row_first, column_first;
    int64_t row_stride, column_stride;
    size_t rows, columns;
    size_t pitch; /* from row to row of its cells; less than `columns`: those more are padding, both
                     behind a row and before the next */
    struct qk_window_range inside_rows, inside_columns; /* set by qk_window_fit */
};

void qk_window_fit(struct qk_window *window);

/* Makes a window that is one run of bytes in x a single row; false: it is not. */
bool qk_window_flatten(struct qk_window *window);

#endif
