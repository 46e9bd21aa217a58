/* Windows tell the kernels that lay out x which elements of a plane one tap reads for a rectangle
 * of positions. A window is strided. It may reach outside the plane, into padding. Private to
 * conv/. For a kernel of 3 columns, a stride of 2 and a pad of 1, and 2 positions of a row:
 *
 *    plane   . 0 1 2 3        . is padding, which is column -1
 *    tap 0   -1 1             column_first -1, column_stride 2, inside_columns [1, 2)
 *    tap 1    0 2             column_first  0, column_stride 2, inside_columns [0, 2)
 *    tap 2    1 3             column_first  1, column_stride 2, inside_columns [0, 2)
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Which columns (or rows) of a window lie inside the plane: [begin, end). If none does, `end` is
 * not above `begin`. */
struct qk_window_range {
    size_t begin, end;
};

/* Element (i, j) of a window is element (row_first + i * row_stride, column_first + j *
 * column_stride) of the plane, or padding if the plane has no such element. */
struct qk_window {
    int64_t in_rows, in_columns;
    int64_t row_first, column_first;
    int64_t row_stride, column_stride;
    size_t rows, columns;
    /* For windows that are laid out as quads: the distance from the first quad of a row to the
     * first quad of the next row, in quads. It may be less than `columns`: the last columns of a
     * row are then also the first columns of the next row, and they are padding in both. */
    size_t pitch;
    struct qk_window_range inside_rows, inside_columns; /* set by qk_window_fit */
};

/* Sets inside_rows and inside_columns from the other members. */
void qk_window_fit(struct qk_window *window);

/* Turns a window whose elements are consecutive bytes of x, across its rows, into a window of a
 * single row. Returns false for any other window, and does not change it. */
bool qk_window_flatten(struct qk_window *window);
