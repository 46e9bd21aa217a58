/* The kernels of cast.h in plain C, which gcc and clang vectorize: each tier compiles them for its
 * CPUs. The file that includes this one names its table QK_CAST_TABLE. */
#pragma once

/* Nothing here compiles without a tier's file around it. */
#ifdef QK_CAST_TABLE

#include "kernels/cast/cast.h"
#include "kernels/element/float.h"

/* Unaligned elements. */
#define UNALIGNED __attribute__((aligned(1), may_alias))
typedef uint8_t UNALIGNED uint8;
typedef int8_t UNALIGNED int8;
typedef uint16_t UNALIGNED uint16;
typedef int16_t UNALIGNED int16;
typedef uint32_t UNALIGNED uint32;
typedef int32_t UNALIGNED int32;
typedef uint64_t UNALIGNED uint64;
typedef int64_t UNALIGNED int64;
typedef float UNALIGNED float32;

/* x86 converts what does not fit to the least integer, and ARM does not. In C, such a conversion is
 * undefined, so the number is replaced before it. */
static inline int32_t to_int32(float x)
{
    const float least = -0x1p31F;
    return (int32_t)(x >= least && x < -least ? x : least);
}

static inline int64_t to_int64(float x)
{
    const float least = -0x1p63F;
    return (int64_t)(x >= least && x < -least ? x : least);
}

/* Widens the bits of an FP16, without a branch. The exponent grows by 112 in a multiplication,
 * because that is also right for subnormals. */
static inline float from_fp16(uint16_t bits)
{
    const uint32_t magnitude = (uint32_t)(bits & 0x7fff) << 13;
    const uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
    const uint32_t finite = qk_bits_of_float(qk_float_of_bits(magnitude) * 0x1p112F);
    const uint32_t other = magnitude | 0x7f800000; /* infinity and NaN */
    return qk_float_of_bits(sign | (magnitude < 0x0f800000 ? finite : other));
}

static inline float same_float(float x)
{
    return x;
}

/* How each kind of number becomes the types of y. */
#define INTEGER_TO_8_BITS(x) ((uint8)(x))
#define INTEGER_TO_16_BITS(x) ((uint16)(x))
#define INTEGER_TO_32_BITS(x) ((uint32)(x))
#define INTEGER_TO_64_BITS(x) ((uint64)(x))
#define INTEGER_TO_BOOL(x) ((uint8)((x) != 0))
#define INTEGER_TO_FP16(x) qk_fp16_round_inline((float)(x))
#define INTEGER_TO_FP32(x) ((float)(x))
#define FLOAT_TO_8_BITS(x) ((uint8)to_int32(x))
#define FLOAT_TO_16_BITS(x) ((uint16)to_int32(x))
#define FLOAT_TO_32_BITS(x) ((uint32)to_int32(x))
#define FLOAT_TO_64_BITS(x) ((uint64)to_int64(x))
#define FLOAT_TO_BOOL(x) ((uint8)((x) != 0))
#define FLOAT_TO_FP16(x) qk_fp16_round_inline(x)
#define FLOAT_TO_FP32(x) (x)

/* `read` makes an element a number of kind INTEGER or FLOAT. */
#define LOOP(from, x_type, read, kind, to, y_type)                   \
    static void from##_to_##to(const void *x, void *y, size_t count) \
    {                                                                \
        const x_type *restrict in = x;                               \
        y_type *restrict out = y;                                    \
        for (size_t i = 0; i < count; i++)                           \
            out[i] = kind##_TO_##to(read(in[i]));                    \
    }

#define LOOPS(from, x_type, read, kind)             \
    LOOP(from, x_type, read, kind, 8_BITS, uint8)   \
    LOOP(from, x_type, read, kind, 16_BITS, uint16) \
    LOOP(from, x_type, read, kind, 32_BITS, uint32) \
    LOOP(from, x_type, read, kind, 64_BITS, uint64) \
    LOOP(from, x_type, read, kind, BOOL, uint8)     \
    LOOP(from, x_type, read, kind, FP16, uint16)    \
    LOOP(from, x_type, read, kind, FP32, float32)

LOOPS(UINT8, uint8, (uint8_t), INTEGER)
LOOPS(INT8, int8, (int8_t), INTEGER)
LOOPS(UINT16, uint16, (uint16_t), INTEGER)
LOOPS(INT16, int16, (int16_t), INTEGER)
LOOPS(INT32, int32, (int32_t), INTEGER)
LOOPS(INT64, int64, (int64_t), INTEGER)
LOOPS(FP16, uint16, from_fp16, FLOAT)
LOOPS(FP32, float32, same_float, FLOAT)

#define ROW(from)                                                                     \
    [QK_CAST_FROM_##from] = {from##_to_8_BITS,  from##_to_16_BITS, from##_to_32_BITS, \
                             from##_to_64_BITS, from##_to_BOOL,    from##_to_FP16,    \
                             from##_to_FP32}

const struct qk_cast_kernels QK_CAST_TABLE = {
    .name = QK_CAST_NAME,
    .element_cycles = QK_CAST_CYCLES,
    .run = {ROW(UINT8), ROW(INT8), ROW(UINT16), ROW(INT16), ROW(INT32), ROW(INT64), ROW(FP16),
            ROW(FP32)},
};

#endif
