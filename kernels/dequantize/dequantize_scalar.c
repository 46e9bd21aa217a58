/* The reference of the dequantize kernels, in plain C. Every tier gives the same bits. */
#include "kernels/dequantize/dequantize.h"

#include <float.h>

#include "kernels/element/float.h"
#include "kernels/element/load.h"

_Static_assert(FLT_EVAL_METHOD == 0, "float operations round to float, each of them");

/* Reads element i of x and subtracts zeros[p]. There is one such function for each code, and the
 * loop below is compiled once for each function. */
typedef float difference_fn(const struct qk_dequantize_args *args, size_t i, size_t p);

static inline float zero(const struct qk_dequantize_args *args, size_t p)
{
    return qk_load_f32(args->span.zeros, p);
}

static inline float minus_zero(const struct qk_dequantize_args *args, float value, size_t p)
{
    return args->span.zeros ? value - zero(args, p) : value;
}

static inline float plus_magic_minus_zero(const struct qk_dequantize_args *args, float value,
                                          float magic, size_t p)
{
    return value + magic - (args->span.zeros ? zero(args, p) : magic);
}

static inline int32_t integer_zero(const struct qk_dequantize_args *args, size_t p)
{
    return args->span.zeros ? qk_load_i32(args->span.zeros, p) : 0;
}

static inline float u8(const struct qk_dequantize_args *args, size_t i, size_t p)
{
    return plus_magic_minus_zero(args, ((const uint8_t *)args->span.x)[args->span.x_first + i],
                                 QK_MAGIC_U8, p);
}

static inline float s8(const struct qk_dequantize_args *args, size_t i, size_t p)
{
    return plus_magic_minus_zero(args, ((const int8_t *)args->span.x)[args->span.x_first + i],
                                 QK_MAGIC_S8, p);
}

static inline float u16(const struct qk_dequantize_args *args, size_t i, size_t p)
{
    uint16_t value;
    memcpy(&value, (const char *)args->span.x + (args->span.x_first + i) * sizeof(value),
           sizeof(value));
    return plus_magic_minus_zero(args, value, QK_MAGIC_U16, p);
}

static inline float s16(const struct qk_dequantize_args *args, size_t i, size_t p)
{
    int16_t value;
    memcpy(&value, (const char *)args->span.x + (args->span.x_first + i) * sizeof(value),
           sizeof(value));
    return plus_magic_minus_zero(args, value, QK_MAGIC_S16, p);
}

static inline float bits2(const struct qk_dequantize_args *args, size_t i, size_t p)
{
    const size_t index = args->span.x_first + i;
    const unsigned byte = ((const uint8_t *)args->span.x)[index / 4];
    return minus_zero(args, args->table->values[byte >> index % 4 * 2], p);
}

static inline float bits4(const struct qk_dequantize_args *args, size_t i, size_t p)
{
    const size_t index = args->span.x_first + i;
    const unsigned byte = ((const uint8_t *)args->span.x)[index / 2];
    return minus_zero(args, args->table->values[byte >> index % 2 * 4], p);
}

static inline float float8(const struct qk_dequantize_args *args, size_t i, size_t p)
{
    return minus_zero(
        args, args->table->values[((const uint8_t *)args->span.x)[args->span.x_first + i]], p);
}

static inline float s32(const struct qk_dequantize_args *args, size_t i, size_t p)
{
    return minus_zero(args, (float)qk_load_i32(args->span.x, args->span.x_first + i), p);
}

/* fl32(x) is 2^31 if x is 2147483584 or more. As an int32, 2^31 overflows to -2^31. */
static inline float s32_recast(const struct qk_dequantize_args *args, size_t i, size_t p)
{
    const float value = (float)qk_load_i32(args->span.x, args->span.x_first + i);
    return minus_zero(args, value == 0x1p31F ? -0x1p31F : value, p);
}

static inline float s32_wrapped(const struct qk_dequantize_args *args, size_t i, size_t p)
{
    const uint32_t value = (uint32_t)qk_load_i32(args->span.x, args->span.x_first + i);
    return (float)(int32_t)(value - (uint32_t)integer_zero(args, p));
}

static inline float s32_exact(const struct qk_dequantize_args *args, size_t i, size_t p)
{
    const int64_t value = qk_load_i32(args->span.x, args->span.x_first + i);
    return (float)(value - integer_zero(args, p));
}

static inline float u32_exact(const struct qk_dequantize_args *args, size_t i, size_t p)
{
    const int64_t value = (uint32_t)qk_load_i32(args->span.x, args->span.x_first + i);
    return (float)(value - (uint32_t)integer_zero(args, p));
}

static inline void store(enum qk_type type, void *y, size_t i, float value)
{
    if (type == QK_FP16)
        ((uint16_t *)y)[i] = qk_fp16_round_inline(value);
    else if (type == QK_BF16)
        ((uint16_t *)y)[i] = qk_bf16_round_inline(value);
    else
        ((float *)y)[i] = value;
}

static inline void loop(const struct qk_dequantize_args *args, difference_fn *difference)
{
    const float *scales = args->span.scales;
    const float *offsets = args->span.offsets;
    size_t left = args->span.block - args->span.done;
    for (size_t i = 0, p = args->span.p, end; i < args->span.count; left = args->span.block) {
        end = left < args->span.count - i ? i + left : args->span.count;
        for (; i < end; i++) {
            float value = difference(args, i, p) * scales[p];
            if (offsets)
                value = value + offsets[p];
            store(args->y_type, args->span.y, args->span.y_first + i, value);
        }
        p = p + 1 == args->span.period ? 0 : p + 1;
    }
}

void qk_dequantize_scalar(const struct qk_dequantize_args *args)
{
    switch (args->code) {
    case QK_CODE_U8:
        loop(args, u8);
        break;
    case QK_CODE_S8:
        loop(args, s8);
        break;
    case QK_CODE_U16:
        loop(args, u16);
        break;
    case QK_CODE_S16:
        loop(args, s16);
        break;
    case QK_CODE_BITS2:
        loop(args, bits2);
        break;
    case QK_CODE_BITS4:
        loop(args, bits4);
        break;
    case QK_CODE_FLOAT8:
        loop(args, float8);
        break;
    case QK_CODE_S32:
        loop(args, s32);
        break;
    case QK_CODE_S32_RECAST:
        loop(args, s32_recast);
        break;
    case QK_CODE_S32_WRAPPED:
        loop(args, s32_wrapped);
        break;
    case QK_CODE_S32_EXACT:
        loop(args, s32_exact);
        break;
    default:
        loop(args, u32_exact);
    }
}

static void finish(void)
{
}

void qk_widen_scalar(float *to, enum qk_type type, const void *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = qk_float_decode(type, qk_element_load(type, from, i));
}

static void repeat(uint32_t *to, size_t count, const uint32_t *from, size_t stride, size_t block,
                   size_t done)
{
    for (size_t i = 0; i < count; i++) {
        to[i] = *from;
        if (++done == block) {
            from += stride;
            done = 0;
        }
    }
}

void qk_dequantize_init_scalar(struct qk_dequantize_kernels *kernels)
{
    kernels->name = "dequantize_scalar";
    for (enum qk_code code = 0; code < QK_CODE_COUNT; code++)
        kernels->run[code] = qk_dequantize_scalar;
    kernels->finish = finish;
    kernels->repeat = repeat;
    kernels->widen = qk_widen_scalar;
    kernels->element_cycles = 4;
}
