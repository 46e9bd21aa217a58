/* The loops of the moving kernels for tiers with vectors of at least 16 bytes: plain C, which gcc
 * and clang vectorize, and shuffles that every such tier has. */
#ifndef KERNELS_MOVE_LOOPS_H
#define KERNELS_MOVE_LOOPS_H

#include <string.h>

#include "kernels/move/kernels.h"

/* Unaligned elements. */
typedef uint8_t __attribute__((may_alias)) qk_move_1;
typedef uint16_t __attribute__((aligned(1), may_alias)) qk_move_2;
typedef uint32_t __attribute__((aligned(1), may_alias)) qk_move_4;
typedef uint64_t __attribute__((aligned(1), may_alias)) qk_move_8;

typedef uint8_t qk_move_v1 __attribute__((vector_size(16)));
typedef uint16_t qk_move_v2 __attribute__((vector_size(16)));
typedef uint32_t qk_move_v4 __attribute__((vector_size(16)));
typedef uint64_t qk_move_v8 __attribute__((vector_size(16)));

/* ---- Every other element -------------------------------------------------------------------- */

/* Every other element of x, by vectors that end at the last element which is needed: the second
 * vector begins one element early. Compilers use longer vectors, which leave most of a short row to
 * a loop of single elements. */
#define QK_MOVE_EVEN_1(a, b) \
    __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31)
#define QK_MOVE_EVEN_2(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 9, 11, 13, 15)
#define QK_MOVE_EVEN_4(a, b) __builtin_shufflevector(a, b, 0, 2, 5, 7)
#define QK_MOVE_EVEN_8(a, b) __builtin_shufflevector(a, b, 0, 3)

#define QK_MOVE_EVERY_OTHER(bytes)                                                        \
    static inline void even_vector_##bytes(qk_move_##bytes *to, const qk_move_##bytes *x) \
    {                                                                                     \
        qk_move_v##bytes a, b;                                                            \
        memcpy(&a, x, 16);                                                                \
        memcpy(&b, x + 16 / (bytes)-1, 16);                                               \
        a = QK_MOVE_EVEN_##bytes(a, b);                                                   \
        memcpy(to, &a, 16);                                                               \
    }                                                                                     \
                                                                                          \
    static inline void every_other_##bytes(qk_move_##bytes *to, const qk_move_##bytes *x, \
                                           size_t count)                                  \
    {                                                                                     \
        const size_t step = 16 / (bytes);                                                 \
        if (count < step) {                                                               \
            for (size_t i = 0; i < count; i++)                                            \
                to[i] = x[2 * i];                                                         \
            return;                                                                       \
        }                                                                                 \
        for (size_t i = 0; i + step <= count; i += step)                                  \
            even_vector_##bytes(to + i, x + 2 * i);                                       \
        if (count % step > 0)                                                             \
            even_vector_##bytes(to + count - step, x + 2 * (count - step));               \
    }

QK_MOVE_EVERY_OTHER(1)
QK_MOVE_EVERY_OTHER(2)
QK_MOVE_EVERY_OTHER(4)
QK_MOVE_EVERY_OTHER(8)

/* ---- Strides and tables --------------------------------------------------------------------- */

/* Elements at a few strides have loops of their own, because compilers vectorize only strides that
 * they know: 0 fills, 1 in reverse (-1) and 2, 3 or 4 are common in Slice, SpaceToDepth and Resize.
 */
#define QK_MOVE_STRIDED(bytes)                                                                 \
    static void strided_##bytes(void *y, const void *x, size_t count, int64_t x_stride)        \
    {                                                                                          \
        qk_move_##bytes *restrict to = y;                                                      \
        const qk_move_##bytes *restrict from = x;                                              \
        switch (x_stride) {                                                                    \
        case 0: {                                                                              \
            const qk_move_##bytes value = *from;                                               \
            for (size_t i = 0; i < count; i++)                                                 \
                to[i] = value;                                                                 \
            return;                                                                            \
        }                                                                                      \
        case -(bytes):                                                                         \
            for (size_t i = 0; i < count; i++)                                                 \
                to[i] = from[-(ptrdiff_t)i];                                                   \
            return;                                                                            \
        case 2 * (bytes):                                                                      \
            every_other_##bytes(to, from, count);                                              \
            return;                                                                            \
        case 3 * (bytes):                                                                      \
            for (size_t i = 0; i < count; i++)                                                 \
                to[i] = from[3 * i];                                                           \
            return;                                                                            \
        case 4 * (bytes):                                                                      \
            for (size_t i = 0; i < count; i++)                                                 \
                to[i] = from[4 * i];                                                           \
            return;                                                                            \
        default:                                                                               \
            for (size_t i = 0; i < count; i++)                                                 \
                to[i] = *(const qk_move_##bytes *)((const char *)x + (int64_t)i * x_stride);   \
        }                                                                                      \
    }                                                                                          \
                                                                                               \
    static void gathered_##bytes(void *y, const void *x, size_t count, const int64_t *offsets) \
    {                                                                                          \
        qk_move_##bytes *restrict to = y;                                                      \
        for (size_t i = 0; i < count; i++)                                                     \
            to[i] = *(const qk_move_##bytes *)((const char *)x + offsets[i]);                  \
    }                                                                                          \
                                                                                               \
    static inline void transpose_edge_##bytes(char *y, int64_t y_stride, const char *x,        \
                                              int64_t x_stride, size_t rows, size_t columns)   \
    {                                                                                          \
        for (size_t i = 0; i < rows; i++) {                                                    \
            qk_move_##bytes *to = (qk_move_##bytes *)(y + (int64_t)i * y_stride);              \
            for (size_t k = 0; k < columns; k++)                                               \
                to[k] = *(const qk_move_##bytes *)(x + (int64_t)k * x_stride +                 \
                                                   (int64_t)(i * (bytes)));                    \
        }                                                                                      \
    }

QK_MOVE_STRIDED(1)
QK_MOVE_STRIDED(2)
QK_MOVE_STRIDED(4)
QK_MOVE_STRIDED(8)

/* ---- Transposes of square tiles that fill vectors of 16 bytes ------------------------------- */

#define QK_MOVE_LOW_1(a, b) \
    __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define QK_MOVE_HIGH_1(a, b) \
    __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define QK_MOVE_LOW_2(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define QK_MOVE_HIGH_2(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define QK_MOVE_LOW_4(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define QK_MOVE_HIGH_4(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define QK_MOVE_LOW_8(a, b) __builtin_shufflevector(a, b, 0, 2)
#define QK_MOVE_HIGH_8(a, b) __builtin_shufflevector(a, b, 1, 3)

/* Interleaves rows i and i + n/2 of n, for each i of the first half. log2(n) rounds of this
 * transpose a tile of n rows of n elements. */
#define QK_MOVE_ROUND(bytes, n, from, to)                                       \
    for (size_t i = 0; i < (n) / 2; i++) {                                      \
        (to)[2 * i] = QK_MOVE_LOW_##bytes((from)[i], (from)[i + (n) / 2]);      \
        (to)[2 * i + 1] = QK_MOVE_HIGH_##bytes((from)[i], (from)[i + (n) / 2]); \
    }

#define QK_MOVE_TILE(bytes, n, rounds)                                                           \
    static inline void transpose_tile_##bytes(char *y, int64_t y_stride, const char *x,          \
                                              int64_t x_stride)                                  \
    {                                                                                            \
        qk_move_v##bytes a[n];                                                                   \
        qk_move_v##bytes b[n];                                                                   \
        for (size_t k = 0; k < (n); k++)                                                         \
            memcpy(&a[k], x + (int64_t)k * x_stride, 16);                                        \
        for (size_t round = 0; round < (rounds); round += 2) {                                   \
            QK_MOVE_ROUND(bytes, n, a, b)                                                        \
            if (round + 1 < (rounds))                                                            \
                QK_MOVE_ROUND(bytes, n, b, a)                                                    \
        }                                                                                        \
        for (size_t i = 0; i < (n); i++)                                                         \
            memcpy(y + (int64_t)i * y_stride, (rounds) % 2 ? &b[i] : &a[i], 16);                 \
    }                                                                                            \
                                                                                                 \
    static void by_tiles_##bytes(void *y, int64_t y_stride, const void *x, int64_t x_stride,     \
                                 size_t rows, size_t columns)                                    \
    {                                                                                            \
        const size_t whole_rows = rows - rows % (n);                                             \
        const size_t whole_columns = columns - columns % (n);                                    \
        char *to = y;                                                                            \
        const char *from = x;                                                                    \
        for (size_t i = 0; i < whole_rows; i += (n), to += (n)*y_stride, from += 16) {           \
            for (size_t k = 0; k < whole_columns; k += (n))                                      \
                transpose_tile_##bytes(to + k * (bytes), y_stride, from + (int64_t)k * x_stride, \
                                       x_stride);                                                \
            transpose_edge_##bytes(to + whole_columns * (bytes), y_stride,                       \
                                   from + (int64_t)whole_columns * x_stride, x_stride, n,        \
                                   columns - whole_columns);                                     \
        }                                                                                        \
        transpose_edge_##bytes(to, y_stride, from, x_stride, rows - whole_rows, columns);        \
    }

QK_MOVE_TILE(1, 16, 4)
QK_MOVE_TILE(2, 8, 3)
QK_MOVE_TILE(4, 4, 2)
QK_MOVE_TILE(8, 2, 1)

/* ---- Few rows of x -------------------------------------------------------------------------- */

/* Three or four rows of x whose elements alternate in y, if y is contiguous, as in DepthToSpace, in
 * Resize by 2 (of two rows), and from NCHW to NHWC. */
#define QK_MOVE_ALTERNATE(bytes, n)                                                        \
    static inline void alternate_##n##_##bytes(qk_move_##bytes *restrict y, const char *x, \
                                               int64_t x_stride, size_t rows)              \
    {                                                                                      \
        const qk_move_##bytes *restrict from[n];                                           \
        for (int k = 0; k < (n); k++)                                                      \
            from[k] = (const qk_move_##bytes *)(x + k * x_stride);                         \
        for (size_t i = 0; i < rows; i++)                                                  \
            for (int k = 0; k < (n); k++)                                                  \
                y[(n)*i + (size_t)k] = from[k][i];                                         \
    }

/* Two rows, by vectors of 16 bytes for the same reason as QK_MOVE_EVERY_OTHER. */
#define QK_MOVE_ALTERNATE_2(bytes)                                                              \
    static inline void alternate_vector_##bytes(qk_move_##bytes *y, const qk_move_##bytes *a,   \
                                                const qk_move_##bytes *b)                       \
    {                                                                                           \
        qk_move_v##bytes first, second, low, high;                                              \
        memcpy(&first, a, 16);                                                                  \
        memcpy(&second, b, 16);                                                                 \
        low = QK_MOVE_LOW_##bytes(first, second);                                               \
        high = QK_MOVE_HIGH_##bytes(first, second);                                             \
        memcpy(y, &low, 16);                                                                    \
        memcpy(y + 16 / (bytes), &high, 16);                                                    \
    }                                                                                           \
                                                                                                \
    static inline void alternate_2_##bytes(qk_move_##bytes *y, const char *x, int64_t x_stride, \
                                           size_t rows)                                         \
    {                                                                                           \
        const qk_move_##bytes *a = (const qk_move_##bytes *)x;                                  \
        const qk_move_##bytes *b = (const qk_move_##bytes *)(x + x_stride);                     \
        const size_t step = 16 / (bytes), last = rows - step;                                   \
        if (rows < step) {                                                                      \
            for (size_t i = 0; i < rows; i++) {                                                 \
                y[2 * i] = a[i];                                                                \
                y[2 * i + 1] = b[i];                                                            \
            }                                                                                   \
            return;                                                                             \
        }                                                                                       \
        for (size_t i = 0; i + step <= rows; i += step)                                         \
            alternate_vector_##bytes(y + 2 * i, a + i, b + i);                                  \
        if (rows % step > 0)                                                                    \
            alternate_vector_##bytes(y + 2 * last, a + last, b + last);                         \
    }

#define QK_MOVE_TRANSPOSED(bytes)                                                              \
    QK_MOVE_ALTERNATE_2(bytes)                                                                 \
    QK_MOVE_ALTERNATE(bytes, 3)                                                                \
    QK_MOVE_ALTERNATE(bytes, 4)                                                                \
                                                                                               \
    static void transposed_##bytes(void *y, int64_t y_stride, const void *x, int64_t x_stride, \
                                   size_t rows, size_t columns)                                \
    {                                                                                          \
        if (y_stride != (int64_t)(columns * (bytes)) || columns < 2 || columns > 4)            \
            by_tiles_##bytes(y, y_stride, x, x_stride, rows, columns);                         \
        else if (columns == 2)                                                                 \
            alternate_2_##bytes(y, x, x_stride, rows);                                         \
        else if (columns == 3)                                                                 \
            alternate_3_##bytes(y, x, x_stride, rows);                                         \
        else                                                                                   \
            alternate_4_##bytes(y, x, x_stride, rows);                                         \
    }

QK_MOVE_TRANSPOSED(1)
QK_MOVE_TRANSPOSED(2)
QK_MOVE_TRANSPOSED(4)
QK_MOVE_TRANSPOSED(8)

static inline void qk_move_fill_table(struct qk_move_kernels *kernels)
{
    *kernels = (struct qk_move_kernels){
        .strided = {strided_1, strided_2, strided_4, strided_8},
        .gathered = {gathered_1, gathered_2, gathered_4, gathered_8},
        .transposed = {transposed_1, transposed_2, transposed_4, transposed_8},
    };
}

#endif
