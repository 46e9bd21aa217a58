/* The loops of the moving kernels for tiers with vectors of at least 16 bytes: plain C, which gcc
 * and clang vectorize, and shuffles that every such tier has. */
#pragma once

#include <stdbool.h>
#include <string.h>

#include "kernels/move/kernels.h"

#define QK_MOVE_INLINE static inline __attribute__((always_inline))
#define QK_MOVE_APART __attribute__((noinline))

/* A tier with wide vectors defines QK_MOVE_PARTS, their types, loads and unpacks before it includes
 * this file. */
#ifndef QK_MOVE_PARTS
#define QK_MOVE_PARTS 1
#endif

/* Unaligned elements. */
typedef uint8_t __attribute__((may_alias)) qk_move_1;
typedef uint16_t __attribute__((aligned(1), may_alias)) qk_move_2;
typedef uint32_t __attribute__((aligned(1), may_alias)) qk_move_4;
typedef uint64_t __attribute__((aligned(1), may_alias)) qk_move_8;

typedef uint8_t qk_move_v1 __attribute__((vector_size(16)));
typedef uint16_t qk_move_v2 __attribute__((vector_size(16)));
typedef uint32_t qk_move_v4 __attribute__((vector_size(16)));
typedef uint64_t qk_move_v8 __attribute__((vector_size(16)));

/* ---- Rows ------------------------------------------------------------------------------------ */

typedef void qk_move_row_fn(char *y, const char *x, const struct qk_move_axis *columns);

/* Calls `move_row`, which is inlined, for each row of the tile. The axes are copied, because stores
 * to y could change those of the tile, as far as compilers know. */
QK_MOVE_INLINE void qk_move_each_row(char *y, const char *x, const struct qk_move_tile *tile,
                                     qk_move_row_fn *move_row)
{
    const struct qk_move_axis outer = tile->axes[QK_MOVE_OUTER];
    const struct qk_move_axis inner = tile->axes[QK_MOVE_INNER];
    const struct qk_move_axis rows = tile->axes[QK_MOVE_ROWS];
    const struct qk_move_axis columns = tile->axes[QK_MOVE_COLUMNS];
    for (size_t a = 0; a < outer.size; a++)
        for (size_t b = 0; b < inner.size; b++) {
            char *to = y + (int64_t)a * outer.y_stride + (int64_t)b * inner.y_stride;
            const char *from = qk_move_x_at(qk_move_x_at(x, &outer, a), &inner, b);
            if (rows.offsets)
                for (size_t i = 0; i < rows.size; i++, to += rows.y_stride)
                    move_row(to, from + rows.offsets[i], &columns);
            else
                for (size_t i = 0; i < rows.size; i++, to += rows.y_stride, from += rows.x_stride)
                    move_row(to, from, &columns);
        }
}

typedef void qk_move_plane_fn(char *y, const char *x, const struct qk_move_axis *rows,
                              const struct qk_move_axis *columns);

/* Calls `move_plane`, which is inlined, for all rows and columns at once. */
QK_MOVE_INLINE void qk_move_each_plane(char *y, const char *x, const struct qk_move_tile *tile,
                                       qk_move_plane_fn *move_plane)
{
    const struct qk_move_axis outer = tile->axes[QK_MOVE_OUTER];
    const struct qk_move_axis inner = tile->axes[QK_MOVE_INNER];
    const struct qk_move_axis rows = tile->axes[QK_MOVE_ROWS];
    const struct qk_move_axis columns = tile->axes[QK_MOVE_COLUMNS];
    for (size_t a = 0; a < outer.size; a++) {
        const char *from = qk_move_x_at(x, &outer, a);
        char *to = y + (int64_t)a * outer.y_stride;
        if (inner.offsets)
            for (size_t b = 0; b < inner.size; b++, to += inner.y_stride)
                move_plane(to, from + inner.offsets[b], &rows, &columns);
        else
            for (size_t b = 0; b < inner.size; b++, to += inner.y_stride, from += inner.x_stride)
                move_plane(to, from, &rows, &columns);
    }
}

/* ---- Copies ---------------------------------------------------------------------------------- */

/* Longer rows are left to memcpy. */
#define QK_MOVE_COPY_MAX 1024

typedef uint8_t qk_move_32 __attribute__((vector_size(32)));
typedef uint8_t qk_move_64 __attribute__((vector_size(64)));

QK_MOVE_INLINE void copy_row_memcpy(char *y, const char *x, const struct qk_move_axis *columns)
{
    memcpy(y, x, columns->size);
}

QK_MOVE_INLINE void copy_row_few(char *y, const char *x, const struct qk_move_axis *columns)
{
    const size_t middle = columns->size / 2;
    const size_t last = columns->size - 1;
    const char values[] = {x[0], x[middle], x[last]};
    y[0] = values[0];
    y[middle] = values[1];
    y[last] = values[2];
}

/* Rows of one vector, and of one to two, which overlap. */
#define QK_MOVE_COPY_ROWS(name, type)                                                  \
    QK_MOVE_INLINE void copy_row_one_##name(char *y, const char *x,                    \
                                            const struct qk_move_axis *columns)        \
    {                                                                                  \
        type all;                                                                      \
        (void)columns;                                                                 \
        memcpy(&all, x, sizeof(all));                                                  \
        memcpy(y, &all, sizeof(all));                                                  \
    }                                                                                  \
                                                                                       \
    QK_MOVE_INLINE void copy_row_two_##name(char *y, const char *x,                    \
                                            const struct qk_move_axis *columns)        \
    {                                                                                  \
        const size_t rest = columns->size - sizeof(type);                              \
        type first, last;                                                              \
        memcpy(&first, x, sizeof(first));                                              \
        memcpy(&last, x + rest, sizeof(last));                                         \
        memcpy(y, &first, sizeof(first));                                              \
        memcpy(y + rest, &last, sizeof(last));                                         \
    }                                                                                  \
                                                                                       \
    static void copied_##name(char *y, const char *x, const struct qk_move_tile *tile) \
    {                                                                                  \
        if (tile->axes[QK_MOVE_COLUMNS].size == sizeof(type))                          \
            qk_move_each_row(y, x, tile, copy_row_one_##name);                         \
        else                                                                           \
            qk_move_each_row(y, x, tile, copy_row_two_##name);                         \
    }

QK_MOVE_COPY_ROWS(4, uint32_t)
QK_MOVE_COPY_ROWS(8, uint64_t)
QK_MOVE_COPY_ROWS(16, qk_move_v1)
QK_MOVE_COPY_ROWS(32, qk_move_32)
QK_MOVE_COPY_ROWS(64, qk_move_64)

/* Rows of more than 128 bytes: the last vector overlaps the one before. */
QK_MOVE_INLINE void copy_row_many(char *y, const char *x, const struct qk_move_axis *columns)
{
    const size_t rest = columns->size - sizeof(qk_move_64);
    qk_move_64 all;
    for (size_t i = 0; i < rest; i += sizeof(all)) {
        memcpy(&all, x + i, sizeof(all));
        memcpy(y + i, &all, sizeof(all));
    }
    memcpy(&all, x + rest, sizeof(all));
    memcpy(y + rest, &all, sizeof(all));
}

static void copied(char *y, const char *x, const struct qk_move_tile *tile)
{
    const size_t bytes = tile->axes[QK_MOVE_COLUMNS].size;
    if (bytes < 4)
        qk_move_each_row(y, x, tile, copy_row_few);
    else if (bytes < 8)
        copied_4(y, x, tile);
    else if (bytes < 16)
        copied_8(y, x, tile);
    else if (bytes < 32)
        copied_16(y, x, tile);
    else if (bytes < 64)
        copied_32(y, x, tile);
    else if (bytes <= 128)
        copied_64(y, x, tile);
    else if (bytes <= QK_MOVE_COPY_MAX)
        qk_move_each_row(y, x, tile, copy_row_many);
    else
        qk_move_each_row(y, x, tile, copy_row_memcpy);
}

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

/* Both: elements at even indices go to one run, those at odd indices to another. */
#define QK_MOVE_PAIR_EVEN_1(a, b) \
    __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define QK_MOVE_PAIR_ODD_1(a, b) \
    __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)
#define QK_MOVE_PAIR_EVEN_2(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14)
#define QK_MOVE_PAIR_ODD_2(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15)
#define QK_MOVE_PAIR_EVEN_4(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6)
#define QK_MOVE_PAIR_ODD_4(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7)
#define QK_MOVE_PAIR_EVEN_8(a, b) __builtin_shufflevector(a, b, 0, 2)
#define QK_MOVE_PAIR_ODD_8(a, b) __builtin_shufflevector(a, b, 1, 3)

#if QK_MOVE_PARTS >= 2
/* One wide vector becomes two halves. */
#define QK_MOVE_DEAL_VECTOR(bytes)                                                       \
    QK_MOVE_INLINE void deal_vector_##bytes(qk_move_##bytes *even, qk_move_##bytes *odd, \
                                            const qk_move_##bytes *x)                    \
    {                                                                                    \
        qk_move_wide_2 both;                                                             \
        memcpy(&both, x, sizeof(both));                                                  \
        both = qk_move_halves_##bytes(both);                                             \
        memcpy(even, &both, 16);                                                         \
        memcpy(odd, (const char *)&both + 16, 16);                                       \
    }
#else
#define QK_MOVE_DEAL_VECTOR(bytes)                                                       \
    QK_MOVE_INLINE void deal_vector_##bytes(qk_move_##bytes *even, qk_move_##bytes *odd, \
                                            const qk_move_##bytes *x)                    \
    {                                                                                    \
        qk_move_v##bytes a, b, made;                                                     \
        memcpy(&a, x, 16);                                                               \
        memcpy(&b, x + 16 / (bytes), 16);                                                \
        made = QK_MOVE_PAIR_EVEN_##bytes(a, b);                                          \
        memcpy(even, &made, 16);                                                         \
        made = QK_MOVE_PAIR_ODD_##bytes(a, b);                                           \
        memcpy(odd, &made, 16);                                                          \
    }
#endif

#define QK_MOVE_DEAL_2(bytes)                                                       \
    QK_MOVE_DEAL_VECTOR(bytes)                                                      \
                                                                                    \
    QK_MOVE_INLINE void deal_2_##bytes(qk_move_##bytes *even, qk_move_##bytes *odd, \
                                       const qk_move_##bytes *x, size_t count)      \
    {                                                                               \
        const size_t step = 16 / (bytes), last = count - step;                      \
        if (count < step) {                                                         \
            for (size_t i = 0; i < count; i++) {                                    \
                even[i] = x[2 * i];                                                 \
                odd[i] = x[2 * i + 1];                                              \
            }                                                                       \
            return;                                                                 \
        }                                                                           \
        for (size_t i = 0; i + step <= count; i += step)                            \
            deal_vector_##bytes(even + i, odd + i, x + 2 * i);                      \
        if (count % step > 0)                                                       \
            deal_vector_##bytes(even + last, odd + last, x + 2 * last);             \
    }

QK_MOVE_DEAL_2(1)
QK_MOVE_DEAL_2(2)
QK_MOVE_DEAL_2(4)
QK_MOVE_DEAL_2(8)

/* ---- Strides and tables --------------------------------------------------------------------- */

/* Elements at a few strides have loops of their own, because compilers vectorize only strides that
 * they know: 0 fills, 1 in reverse (-1) and 2, 3 or 4 are common in Slice, SpaceToDepth and Resize.
 */
#define QK_MOVE_STRIDED(bytes)                                                                  \
    static QK_MOVE_APART void strided_run_##bytes(void *y, const void *x, size_t count,         \
                                                  int64_t x_stride)                             \
    {                                                                                           \
        qk_move_##bytes *restrict to = y;                                                       \
        const qk_move_##bytes *restrict from = x;                                               \
        switch (x_stride) {                                                                     \
        case 0: {                                                                               \
            const qk_move_##bytes value = *from;                                                \
            for (size_t i = 0; i < count; i++)                                                  \
                to[i] = value;                                                                  \
            return;                                                                             \
        }                                                                                       \
        case -(bytes):                                                                          \
            for (size_t i = 0; i < count; i++)                                                  \
                to[i] = from[-(ptrdiff_t)i];                                                    \
            return;                                                                             \
        case 2 * (bytes):                                                                       \
            every_other_##bytes(to, from, count);                                               \
            return;                                                                             \
        case 3 * (bytes):                                                                       \
            for (size_t i = 0; i < count; i++)                                                  \
                to[i] = from[3 * i];                                                            \
            return;                                                                             \
        case 4 * (bytes):                                                                       \
            for (size_t i = 0; i < count; i++)                                                  \
                to[i] = from[4 * i];                                                            \
            return;                                                                             \
        default:                                                                                \
            for (size_t i = 0; i < count; i++)                                                  \
                to[i] = *(const qk_move_##bytes *)((const char *)x + (int64_t)i * x_stride);    \
        }                                                                                       \
    }                                                                                           \
                                                                                                \
    static void strided_row_##bytes(char *y, const char *x, const struct qk_move_axis *columns) \
    {                                                                                           \
        strided_run_##bytes(y, x, columns->size, columns->x_stride);                            \
    }                                                                                           \
                                                                                                \
    static void strided_##bytes(char *y, const char *x, const struct qk_move_tile *tile)        \
    {                                                                                           \
        qk_move_each_row(y, x, tile, strided_row_##bytes);                                      \
    }                                                                                           \
                                                                                                \
    QK_MOVE_INLINE void gathered_row_##bytes(char *y, const char *x,                            \
                                             const struct qk_move_axis *columns)                \
    {                                                                                           \
        qk_move_##bytes *restrict to = (qk_move_##bytes *)y;                                    \
        for (size_t i = 0; i < columns->size; i++)                                              \
            to[i] = *(const qk_move_##bytes *)(x + columns->offsets[i]);                        \
    }                                                                                           \
                                                                                                \
    static void gathered_##bytes(char *y, const char *x, const struct qk_move_tile *tile)       \
    {                                                                                           \
        qk_move_each_row(y, x, tile, gathered_row_##bytes);                                     \
    }                                                                                           \
                                                                                                \
    static inline void transpose_edge_##bytes(char *y, int64_t y_stride, const char *x,         \
                                              int64_t x_stride, size_t rows, size_t columns)    \
    {                                                                                           \
        for (size_t i = 0; i < rows; i++) {                                                     \
            qk_move_##bytes *to = (qk_move_##bytes *)(y + (int64_t)i * y_stride);               \
            for (size_t k = 0; k < columns; k++)                                                \
                to[k] = *(const qk_move_##bytes *)(x + (int64_t)k * x_stride +                  \
                                                   (int64_t)(i * (bytes)));                     \
        }                                                                                       \
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

/* Transposes 1, 2 or 4 tiles of n rows of n elements, which are next to each other in y: each in a
 * part of 16 bytes of a wide vector. A round interleaves rows i and i + n/2, for each i of the
 * first half. After log2(n) rounds rows are columns. */
#define QK_MOVE_TILE(bytes, n, rounds, parts, type, low, high, load)                          \
    QK_MOVE_INLINE void transpose_##parts##_##bytes(char *y, int64_t y_stride, const char *x, \
                                                    int64_t x_stride)                         \
    {                                                                                         \
        type a[n];                                                                            \
        type b[n];                                                                            \
        for (size_t k = 0; k < (n); k++)                                                      \
            a[k] = load(x + (int64_t)k * x_stride, (n)*x_stride);                             \
        for (size_t round = 0; round < (rounds); round += 2) {                                \
            for (size_t i = 0; i < (n) / 2; i++) {                                            \
                b[2 * i] = low(a[i], a[i + (n) / 2]);                                         \
                b[2 * i + 1] = high(a[i], a[i + (n) / 2]);                                    \
            }                                                                                 \
            for (size_t i = 0; i < (n) / 2 && round + 1 < (rounds); i++) {                    \
                a[2 * i] = low(b[i], b[i + (n) / 2]);                                         \
                a[2 * i + 1] = high(b[i], b[i + (n) / 2]);                                    \
            }                                                                                 \
        }                                                                                     \
        for (size_t i = 0; i < (n); i++)                                                      \
            memcpy(y + (int64_t)i * y_stride, (rounds) % 2 ? &b[i] : &a[i], sizeof(type));    \
    }

#define QK_MOVE_TILES_1(bytes, n, rounds)                                                          \
    QK_MOVE_INLINE qk_move_v##bytes load_1_##bytes(const char *x, int64_t step)                    \
    {                                                                                              \
        qk_move_v##bytes all;                                                                      \
        (void)step;                                                                                \
        memcpy(&all, x, sizeof(all));                                                              \
        return all;                                                                                \
    }                                                                                              \
    QK_MOVE_TILE(bytes, n, rounds, 1, qk_move_v##bytes, QK_MOVE_LOW_##bytes, QK_MOVE_HIGH_##bytes, \
                 load_1_##bytes)

QK_MOVE_TILES_1(1, 16, 4)
QK_MOVE_TILES_1(2, 8, 3)
QK_MOVE_TILES_1(4, 4, 2)
QK_MOVE_TILES_1(8, 2, 1)

#if QK_MOVE_PARTS >= 2
#define QK_MOVE_TILES_2(bytes, n, rounds)                                    \
    QK_MOVE_TILE(bytes, n, rounds, 2, qk_move_wide_2, QK_MOVE_LOW_2_##bytes, \
                 QK_MOVE_HIGH_2_##bytes, qk_move_load_2)
#define QK_MOVE_CASE_2(bytes)                          \
    case 2:                                            \
        transpose_2_##bytes(y, y_stride, x, x_stride); \
        return;

QK_MOVE_TILES_2(1, 16, 4)
QK_MOVE_TILES_2(2, 8, 3)
QK_MOVE_TILES_2(4, 4, 2)
QK_MOVE_TILES_2(8, 2, 1)
#else
#define QK_MOVE_CASE_2(bytes)
#endif

#if QK_MOVE_PARTS >= 4
#define QK_MOVE_TILES_4(bytes, n, rounds)                                    \
    QK_MOVE_TILE(bytes, n, rounds, 4, qk_move_wide_4, QK_MOVE_LOW_4_##bytes, \
                 QK_MOVE_HIGH_4_##bytes, qk_move_load_4)
#define QK_MOVE_CASE_4(bytes)                          \
    case 4:                                            \
        transpose_4_##bytes(y, y_stride, x, x_stride); \
        return;

QK_MOVE_TILES_4(1, 16, 4)
QK_MOVE_TILES_4(2, 8, 3)
QK_MOVE_TILES_4(4, 4, 2)
QK_MOVE_TILES_4(8, 2, 1)
#else
#define QK_MOVE_CASE_4(bytes)
#endif

/* Returns how many tiles of n columns the widest vector transposes at once. */
static inline size_t qk_move_parts(size_t columns, size_t n)
{
    if (QK_MOVE_PARTS >= 4 && columns >= 4 * n)
        return 4;
    return QK_MOVE_PARTS >= 2 && columns >= 2 * n ? 2 : 1;
}

/* Transposes rows by tiles. Tiles at the end overlap those before. The rows go by groups that fill
 * a cache line of x, whose lines are then read once. */
#define QK_MOVE_BY_TILES(bytes, n)                                                            \
    QK_MOVE_INLINE void transpose_parts_##bytes(char *y, int64_t y_stride, const char *x,     \
                                                int64_t x_stride, size_t parts)               \
    {                                                                                         \
        switch (parts) {                                                                      \
            QK_MOVE_CASE_4(bytes)                                                             \
            QK_MOVE_CASE_2(bytes)                                                             \
        default:                                                                              \
            transpose_1_##bytes(y, y_stride, x, x_stride);                                    \
        }                                                                                     \
    }                                                                                         \
                                                                                              \
    static QK_MOVE_APART void by_tiles_##bytes(char *y, int64_t y_stride, const char *x,      \
                                               int64_t x_stride, size_t rows, size_t columns) \
    {                                                                                         \
        if (rows < (n) || columns < (n)) {                                                    \
            transpose_edge_##bytes(y, y_stride, x, x_stride, rows, columns);                  \
            return;                                                                           \
        }                                                                                     \
        for (size_t group = 0; group < rows; group += 4 * (n)) {                              \
            const size_t end = rows - group < 4 * (n) ? rows : group + 4 * (n);               \
            for (size_t k = 0, parts; k < columns; k += parts * (n)) {                        \
                parts = qk_move_parts(columns - k, n);                                        \
                const size_t column = columns - k < (n) ? columns - (n) : k;                  \
                for (size_t i = group; i < end; i += (n)) {                                   \
                    const size_t row = rows - i < (n) ? rows - (n) : i;                       \
                    transpose_parts_##bytes(                                                  \
                        y + (int64_t)row * y_stride + (int64_t)(column * (bytes)), y_stride,  \
                        x + (int64_t)column * x_stride + (int64_t)(row * (bytes)), x_stride,  \
                        parts);                                                               \
                }                                                                             \
            }                                                                                 \
        }                                                                                     \
    }

QK_MOVE_BY_TILES(1, 16)
QK_MOVE_BY_TILES(2, 8)
QK_MOVE_BY_TILES(4, 4)
QK_MOVE_BY_TILES(8, 2)

/* ---- Few rows of x -------------------------------------------------------------------------- */

/* Three or four rows of x whose elements alternate in y, if y is contiguous, as in DepthToSpace
 * and from NCHW to NHWC. */
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

/* Two rows, by vectors of 16 bytes for the same reason as QK_MOVE_EVERY_OTHER. Longer rows go by
 * vectors of 32 bytes, where a tier has them. */
#if QK_MOVE_PARTS >= 2
#define QK_MOVE_ALTERNATE_WIDE(bytes)                                                        \
    QK_MOVE_INLINE void alternate_wide_##bytes(qk_move_##bytes *y, const qk_move_##bytes *a, \
                                               const qk_move_##bytes *b)                     \
    {                                                                                        \
        qk_move_wide_2 first, second, low, high;                                             \
        memcpy(&first, a, 32);                                                               \
        memcpy(&second, b, 32);                                                              \
        first = qk_move_halves_8(first);                                                     \
        second = qk_move_halves_8(second);                                                   \
        low = QK_MOVE_LOW_2_##bytes(first, second);                                          \
        high = QK_MOVE_HIGH_2_##bytes(first, second);                                        \
        memcpy(y, &low, 32);                                                                 \
        memcpy(y + 32 / (bytes), &high, 32);                                                 \
    }
#else
#define QK_MOVE_ALTERNATE_WIDE(bytes)                                                        \
    QK_MOVE_INLINE void alternate_wide_##bytes(qk_move_##bytes *y, const qk_move_##bytes *a, \
                                               const qk_move_##bytes *b)                     \
    {                                                                                        \
        const size_t half = 16 / (bytes);                                                    \
        alternate_vector_##bytes(y, a, b);                                                   \
        alternate_vector_##bytes(y + 2 * half, a + half, b + half);                          \
    }
#endif

#define QK_MOVE_ALTERNATE_2(bytes)                                                               \
    QK_MOVE_INLINE void alternate_vector_##bytes(qk_move_##bytes *y, const qk_move_##bytes *a,   \
                                                 const qk_move_##bytes *b)                       \
    {                                                                                            \
        qk_move_v##bytes first, second, low, high;                                               \
        memcpy(&first, a, 16);                                                                   \
        memcpy(&second, b, 16);                                                                  \
        low = QK_MOVE_LOW_##bytes(first, second);                                                \
        high = QK_MOVE_HIGH_##bytes(first, second);                                              \
        memcpy(y, &low, 16);                                                                     \
        memcpy(y + 16 / (bytes), &high, 16);                                                     \
    }                                                                                            \
                                                                                                 \
    QK_MOVE_ALTERNATE_WIDE(bytes)                                                                \
                                                                                                 \
    QK_MOVE_INLINE void alternate_2_##bytes(qk_move_##bytes *y, const char *x, int64_t x_stride, \
                                            size_t rows)                                         \
    {                                                                                            \
        const qk_move_##bytes *a = (const qk_move_##bytes *)x;                                   \
        const qk_move_##bytes *b = (const qk_move_##bytes *)(x + x_stride);                      \
        const size_t step = 16 / (bytes);                                                        \
        if (rows < step) {                                                                       \
            for (size_t i = 0; i < rows; i++) {                                                  \
                y[2 * i] = a[i];                                                                 \
                y[2 * i + 1] = b[i];                                                             \
            }                                                                                    \
            return;                                                                              \
        }                                                                                        \
        size_t i = 0;                                                                            \
        for (; i + 2 * step <= rows; i += 2 * step)                                              \
            alternate_wide_##bytes(y + 2 * i, a + i, b + i);                                     \
        if (i + step <= rows)                                                                    \
            alternate_vector_##bytes(y + 2 * i, a + i, b + i);                                   \
        i = rows - step;                                                                         \
        if (rows % step > 0)                                                                     \
            alternate_vector_##bytes(y + 2 * i, a + i, b + i);                                   \
    }

#define QK_MOVE_TRANSPOSED(bytes)                                                                 \
    QK_MOVE_ALTERNATE_2(bytes)                                                                    \
    QK_MOVE_ALTERNATE(bytes, 3)                                                                   \
    QK_MOVE_ALTERNATE(bytes, 4)                                                                   \
                                                                                                  \
    QK_MOVE_INLINE void transpose_two_##bytes(char *y, const char *x,                             \
                                              const struct qk_move_axis *rows,                    \
                                              const struct qk_move_axis *columns)                 \
    {                                                                                             \
        alternate_2_##bytes((qk_move_##bytes *)y, x, columns->x_stride, rows->size);              \
    }                                                                                             \
                                                                                                  \
    static QK_MOVE_APART void transpose_##bytes(char *y, const char *x,                           \
                                                const struct qk_move_axis *rows,                  \
                                                const struct qk_move_axis *columns)               \
    {                                                                                             \
        const bool is_dense = rows->y_stride == (int64_t)(columns->size * (bytes));               \
        if (is_dense && columns->size == 3)                                                       \
            alternate_3_##bytes((qk_move_##bytes *)y, x, columns->x_stride, rows->size);          \
        else if (is_dense && columns->size == 4)                                                  \
            alternate_4_##bytes((qk_move_##bytes *)y, x, columns->x_stride, rows->size);          \
        else                                                                                      \
            by_tiles_##bytes(y, rows->y_stride, x, columns->x_stride, rows->size, columns->size); \
    }                                                                                             \
                                                                                                  \
    static void transposed_##bytes(char *y, const char *x, const struct qk_move_tile *tile)       \
    {                                                                                             \
        if (tile->axes[QK_MOVE_COLUMNS].size == 2 &&                                              \
            tile->axes[QK_MOVE_ROWS].y_stride == 2 * (bytes))                                     \
            qk_move_each_plane(y, x, tile, transpose_two_##bytes);                                \
        else                                                                                      \
            qk_move_each_plane(y, x, tile, transpose_##bytes);                                    \
    }                                                                                             \
                                                                                                  \
    QK_MOVE_INLINE void deal_two_##bytes(char *y, const char *x, const struct qk_move_axis *rows, \
                                         const struct qk_move_axis *columns)                      \
    {                                                                                             \
        deal_2_##bytes((qk_move_##bytes *)y, (qk_move_##bytes *)(y + rows->y_stride),             \
                       (const qk_move_##bytes *)x, columns->size);                                \
    }                                                                                             \
                                                                                                  \
    static QK_MOVE_APART void deal_##bytes(char *y, const char *x,                                \
                                           const struct qk_move_axis *rows,                       \
                                           const struct qk_move_axis *columns)                    \
    {                                                                                             \
        for (size_t i = 0; i < rows->size; i++)                                                   \
            strided_run_##bytes(y + (int64_t)i * rows->y_stride, x + i * (bytes), columns->size,  \
                                columns->x_stride);                                               \
    }                                                                                             \
                                                                                                  \
    static void dealt_##bytes(char *y, const char *x, const struct qk_move_tile *tile)            \
    {                                                                                             \
        if (tile->axes[QK_MOVE_ROWS].size == 2)                                                   \
            qk_move_each_plane(y, x, tile, deal_two_##bytes);                                     \
        else                                                                                      \
            qk_move_each_plane(y, x, tile, deal_##bytes);                                         \
    }

QK_MOVE_TRANSPOSED(1)
QK_MOVE_TRANSPOSED(2)
QK_MOVE_TRANSPOSED(4)
QK_MOVE_TRANSPOSED(8)

/* ---- The table ------------------------------------------------------------------------------- */

#ifdef QK_MOVE_STREAM
/* Writes whole lines of y past the caches. */
static void streamed(char *y, const char *x, size_t bytes)
{
    const size_t off = (size_t) - (uintptr_t)y % sizeof(qk_move_64);
    const size_t head = off < bytes ? off : bytes;
    memcpy(y, x, head);
    size_t i = head;
    for (; i + sizeof(qk_move_64) <= bytes; i += sizeof(qk_move_64))
        QK_MOVE_STREAM(y + i, x + i);
    memcpy(y + i, x + i, bytes - i);
}
#else
static void streamed(char *y, const char *x, size_t bytes)
{
    memcpy(y, x, bytes);
}
#endif

static void finish(void)
{
#ifdef QK_MOVE_STREAM
    QK_MOVE_FENCE();
#endif
}

static inline void qk_move_fill_table(struct qk_move_kernels *kernels)
{
    *kernels = (struct qk_move_kernels){
        .copied = copied,
        .strided = {strided_1, strided_2, strided_4, strided_8},
        .gathered = {gathered_1, gathered_2, gathered_4, gathered_8},
        .transposed = {transposed_1, transposed_2, transposed_4, transposed_8},
        .dealt = {dealt_1, dealt_2, dealt_4, dealt_8},
        .streamed = streamed,
        .finish = finish,
    };
}
