/* The kernels of a vector tier, which are entries of struct qk_dequantize_kernels: one for each
 * code, made of the loops of loops.h, and those that repeat and widen parameters. A tier's file
 * includes this after it has defined all that loops.h needs. Only for dequantize_avx2.c,
 * dequantize_avx512bw.c, dequantize_avx512vbmi.c and dequantize_neon.c. */
#pragma once

/* Nothing here compiles without a tier's file around it. */
#ifdef CHUNK

#include "kernels/dequantize/loops.h"

static void u8(const struct qk_dequantize_args *args)
{
    choose_y_type(args, (struct kernel){8, QK_MAGIC_U8, read_u8, subtract, false, false});
}

static void s8(const struct qk_dequantize_args *args)
{
    choose_y_type(args, (struct kernel){8, QK_MAGIC_S8, read_s8, subtract, false, false});
}

static void u16(const struct qk_dequantize_args *args)
{
    choose_y_type(args, (struct kernel){16, QK_MAGIC_U16, read_u16, subtract, false, false});
}

static void s16(const struct qk_dequantize_args *args)
{
    choose_y_type(args, (struct kernel){16, QK_MAGIC_S16, read_s16, subtract, false, false});
}

static void bits2(const struct qk_dequantize_args *args)
{
    choose_y_type(args, (struct kernel){2, 0, read_bits2, subtract, true, false});
}

static void bits4(const struct qk_dequantize_args *args)
{
    choose_y_type(args, (struct kernel){4, 0, read_bits4, subtract, true, false});
}

/* Dequantizes float8s whose results can be looked up: each block gets a table that has the result
 * of each code. Only for long blocks without offsets. */
INLINE void loops_of_results(const struct qk_dequantize_args *args, enum qk_type y_type)
{
    struct qk_dequantize_args copy = *args;
    copy.span.offsets = NULL;
    const struct kernel kernel = {8, 0, read_float8, subtract_none, true, false};
    const struct codes codes = load_codes(args->table, kernel.bits);
    if (copy.span.stream) {
        loop_blocks(&copy, &codes, kernel, y_type);
        return;
    }
    copy.span.stream = false;
    if (has_whole_chunks(&copy))
        loop_whole_blocks(&copy, &codes, kernel, y_type);
    else
        loop_blocks(&copy, &codes, kernel, y_type);
}

static void float8(const struct qk_dequantize_args *args)
{
    if (finishes_float8(args)) {
        if (args->y_type == QK_FP16)
            loops_of_results(args, QK_FP16);
        else
            loops_of_results(args, QK_BF16);
        return;
    }
    choose_y_type(args, (struct kernel){8, 0, read_float8, subtract_none, false, false});
}

/* A tier that defines SMALL_CODES_ONLY takes the other kernels from the tier below. */
#ifndef SMALL_CODES_ONLY

static void s32(const struct qk_dequantize_args *args)
{
    choose_y_type(args, (struct kernel){32, 0, read_s32, subtract, false, true});
}

static void s32_recast(const struct qk_dequantize_args *args)
{
    choose_y_type(args, (struct kernel){32, 0, read_s32_recast, subtract, false, true});
}

static void s32_wrapped(const struct qk_dequantize_args *args)
{
    choose_y_type(args, (struct kernel){32, 0, read_32, subtract_wrapping, false, false});
}

static void s32_exact(const struct qk_dequantize_args *args)
{
    choose_y_type(args, (struct kernel){32, 0, read_32, subtract_s32, false, true});
}

static void u32_exact(const struct qk_dequantize_args *args)
{
    choose_y_type(args, (struct kernel){32, 0, read_32, subtract_u32, false, true});
}

/* A qk_repeat_fn that stores whole vectors. If a vector reaches beyond its block, the vectors of
 * the next block overwrite that part. */
static void repeat(uint32_t *to, size_t count, const uint32_t *from, size_t stride, size_t block,
                   size_t done)
{
    const size_t lanes = CHUNK / 4;
    for (size_t i = 0, run = block - done; i < count; i += run, run = block, from += stride) {
        float value;
        memcpy(&value, from, sizeof(value));
        const size_t end = run < count - i ? i + run : count;
        for (size_t k = i; k < end; k += lanes)
            store_vector(to + k, splat(value));
    }
}

static void finish(void)
{
    end_streaming();
}

/* Widens eight scales at a time, and the last few with the scalar kernel. */
INLINE void widen_all(float *to, enum qk_type type, const uint8_t *from, size_t count)
{
    const size_t bytes = type == QK_FP8E8M0 ? 1 : 2;
    size_t i = 0;
    for (; i + 8 <= count; i += 8)
        store_widened(to + i, type, from + i * bytes);
    qk_widen_scalar(to + i, type, from + i * bytes, count - i);
}

static void widen(float *to, enum qk_type type, const void *from, size_t count)
{
    if (type == QK_FP16)
        widen_all(to, QK_FP16, from, count);
    else if (type == QK_BF16)
        widen_all(to, QK_BF16, from, count);
    else
        widen_all(to, QK_FP8E8M0, from, count);
}

INLINE void init(struct qk_dequantize_kernels *kernels, const char *name, double element_cycles)
{
    *kernels = (struct qk_dequantize_kernels){
        .name = name,
        .run = {[QK_CODE_U8] = u8,
                [QK_CODE_S8] = s8,
                [QK_CODE_U16] = u16,
                [QK_CODE_S16] = s16,
                [QK_CODE_BITS2] = bits2,
                [QK_CODE_BITS4] = bits4,
                [QK_CODE_FLOAT8] = float8,
                [QK_CODE_S32] = s32,
                [QK_CODE_S32_RECAST] = s32_recast,
                [QK_CODE_S32_WRAPPED] = s32_wrapped,
                [QK_CODE_S32_EXACT] = s32_exact,
                [QK_CODE_U32_EXACT] = u32_exact},
        .finish = finish,
        .repeat = repeat,
        .widen = widen,
        .element_cycles = element_cycles,
    };
}

#endif

#endif
