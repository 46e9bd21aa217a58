/* The kernels of argmax.h in plain C, which gcc and clang vectorize: each tier compiles them for
 * its CPUs. The file that includes this one names its table QK_ARGMAX_TABLE. */
#pragma once

/* Nothing here compiles without a tier's file around it. */
#ifdef QK_ARGMAX_TABLE

#include "kernels/argmax/argmax.h"
#include "kernels/element/float.h"

typedef uint8_t byte_bits;
typedef uint32_t __attribute__((aligned(1), may_alias)) word_bits;
typedef word_bits float_bits;

static inline uint8_t byte_of(uint8_t bits, uint32_t flip)
{
    return (uint8_t)(bits ^ flip);
}

static inline int32_t word_of(uint32_t bits, uint32_t flip)
{
    return (int32_t)(bits ^ flip);
}

static inline float float_of(uint32_t bits, uint32_t flip)
{
    return qk_float_of_bits(bits ^ flip);
}

/* Elements that are compared with the largest so far, lane by lane. Two or more vectors. */
#define LANES 64

/* Returns the largest element. NaNs behind the first element do not count. */
#define LARGEST(kind, type)                                                               \
    static inline type kind##_largest(const kind##_bits *x, size_t length, uint32_t flip) \
    {                                                                                     \
        type best = kind##_of(x[0], flip);                                                \
        size_t i = 0;                                                                     \
        if (length >= 2 * LANES) {                                                        \
            type lanes[LANES];                                                            \
            for (size_t k = 0; k < LANES; k++)                                            \
                lanes[k] = best;                                                          \
            for (; i + LANES <= length; i += LANES)                                       \
                for (size_t k = 0; k < LANES; k++) {                                      \
                    const type value = kind##_of(x[i + k], flip);                         \
                    lanes[k] = value > lanes[k] ? value : lanes[k];                       \
                }                                                                         \
            for (size_t k = 0; k < LANES; k++)                                            \
                best = lanes[k] > best ? lanes[k] : best;                                 \
        }                                                                                 \
        for (; i < length; i++) {                                                         \
            const type value = kind##_of(x[i], flip);                                     \
            best = value > best ? value : best;                                           \
        }                                                                                 \
        return best;                                                                      \
    }                                                                                     \
                                                                                          \
    /* Returns whether any of LANES elements is equal to `best`. */                       \
    static inline bool kind##_has(const kind##_bits *x, type best, uint32_t flip)         \
    {                                                                                     \
        unsigned any = 0;                                                                 \
        for (size_t k = 0; k < LANES; k++)                                                \
            any |= kind##_of(x[k], flip) == best;                                         \
        return any != 0;                                                                  \
    }                                                                                     \
                                                                                          \
    static int64_t kind##_row_first(const void *elements, size_t length, uint32_t flip)   \
    {                                                                                     \
        const kind##_bits *x = elements;                                                  \
        const type best = kind##_largest(x, length, flip);                                \
        size_t i = 0;                                                                     \
        while (i + LANES <= length && !kind##_has(x + i, best, flip))                     \
            i += LANES;                                                                   \
        for (; i < length; i++)                                                           \
            if (kind##_of(x[i], flip) == best)                                            \
                return (int64_t)i;                                                        \
        return 0; /* the first is NaN */                                                  \
    }                                                                                     \
                                                                                          \
    static int64_t kind##_row_last(const void *elements, size_t length, uint32_t flip)    \
    {                                                                                     \
        const kind##_bits *x = elements;                                                  \
        const type best = kind##_largest(x, length, flip);                                \
        size_t end = length;                                                              \
        while (end >= LANES && !kind##_has(x + end - LANES, best, flip))                  \
            end -= LANES;                                                                 \
        for (; end > 0; end--)                                                            \
            if (kind##_of(x[end - 1], flip) == best)                                      \
                return (int64_t)end - 1;                                                  \
        return 0;                                                                         \
    }

LARGEST(byte, uint8_t)
LARGEST(word, int32_t)
LARGEST(float, float)

/* Indices have as many bits as elements, so that a vector of elements belongs to one of indices.
 * Byte indices count within a block of rows. `wins` is > or >=. */
#define COLUMNS(kind, type, order, wins, index, block)                                     \
    static void kind##_columns_##order(const void *elements, size_t length, size_t stride, \
                                       size_t columns, uint32_t flip, int64_t *y)          \
    {                                                                                      \
        const kind##_bits *x = elements;                                                   \
        type total[QK_ARGMAX_COLUMNS_MAX];                                                 \
        type best[QK_ARGMAX_COLUMNS_MAX];                                                  \
        index at[QK_ARGMAX_COLUMNS_MAX];                                                   \
        for (size_t first = 0; first < length; first += (block)) {                         \
            const size_t count = length - first < (block) ? length - first : (block);      \
            for (size_t c = 0; c < columns; c++) {                                         \
                best[c] = kind##_of(x[first * stride + c], flip);                          \
                at[c] = 0;                                                                 \
            }                                                                              \
            for (size_t k = 1; k < count; k++) {                                           \
                const kind##_bits *row = x + (first + k) * stride;                         \
                for (size_t c = 0; c < columns; c++) {                                     \
                    const type value = kind##_of(row[c], flip);                            \
                    const bool won = value wins best[c];                                   \
                    best[c] = won ? value : best[c];                                       \
                    at[c] = won ? (index)k : at[c];                                        \
                }                                                                          \
            }                                                                              \
            for (size_t c = 0; c < columns; c++)                                           \
                if (first == 0 || best[c] wins total[c]) {                                 \
                    total[c] = best[c];                                                    \
                    y[c] = (int64_t)(first + at[c]);                                       \
                }                                                                          \
        }                                                                                  \
    }

#define BYTE_BLOCK ((size_t)UINT8_MAX + 1)

COLUMNS(byte, uint8_t, first, >, uint8_t, BYTE_BLOCK)
COLUMNS(byte, uint8_t, last, >=, uint8_t, BYTE_BLOCK)
COLUMNS(word, int32_t, first, >, uint32_t, QK_ARGMAX_LENGTH_MAX)
COLUMNS(word, int32_t, last, >=, uint32_t, QK_ARGMAX_LENGTH_MAX)
COLUMNS(float, float, first, >, uint32_t, QK_ARGMAX_LENGTH_MAX)
COLUMNS(float, float, last, >=, uint32_t, QK_ARGMAX_LENGTH_MAX)

const struct qk_argmax_kernels QK_ARGMAX_TABLE = {
    .name = QK_ARGMAX_NAME,
    .element_cycles = QK_ARGMAX_CYCLES,
    .row = {[QK_ARGMAX_BYTE] = {byte_row_first, byte_row_last},
            [QK_ARGMAX_WORD] = {word_row_first, word_row_last},
            [QK_ARGMAX_FLOAT] = {float_row_first, float_row_last}},
    .columns = {[QK_ARGMAX_BYTE] = {byte_columns_first, byte_columns_last},
                [QK_ARGMAX_WORD] = {word_columns_first, word_columns_last},
                [QK_ARGMAX_FLOAT] = {float_columns_first, float_columns_last}},
};

#endif
