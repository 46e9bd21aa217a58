/* Kernels that dequantize bytes to FP16 by the half-precision arithmetic of Armv8.2-A: eight
 * results at a time, without conversions.
 *
 * A difference of bytes has 9 bits, and a scale that fits into FP16 has 11 bits. In single
 * precision their product is exact, so the only rounding is that to FP16. In half precision, the
 * multiplication itself does this rounding. There is no such arithmetic for BF16. */
#include "kernels/dequantize/dequantize.h"

#ifdef __aarch64__

#include <arm_neon.h>
#include <string.h>

/* How a byte is put into the lowest bits of 2^10 in half precision, as into those of 2^23 in single
 * precision. */
struct code {
    size_t x_bytes, y_bytes;
    float magic, magic_halves; /* the number that this adds to x, in single and half precision */
    bool is_signed;
};

#define U8 ((struct code){1, 2, QK_MAGIC_U8, 1024, false})
#define S8 ((struct code){1, 2, QK_MAGIC_S8, 1024 + 128, true})

#define RUN_MIN ((size_t)64)
#include "kernels/dequantize/runs.h"

#define CHUNK ((size_t)16)

struct halves {
    float16x8_t low, high;
};

INLINE struct halves read(const uint8_t *x, bool is_signed)
{
    const uint8x16_t u = vld1q_u8(x);
    if (!is_signed) {
        const uint16x8_t exponent = vdupq_n_u16(0x6400);
        return (struct halves){
            vreinterpretq_f16_u16(vaddw_u8(exponent, vget_low_u8(u))),
            vreinterpretq_f16_u16(vaddw_high_u8(exponent, u)),
        };
    }
    const int8x16_t s = vreinterpretq_s8_u8(u);
    const int16x8_t exponent = vdupq_n_s16(0x6480);
    return (struct halves){
        vreinterpretq_f16_s16(vaddw_s8(exponent, vget_low_s8(s))),
        vreinterpretq_f16_s16(vaddw_high_s8(exponent, s)),
    };
}

INLINE void take_chunk(const uint8_t *x, char *y, float16x8_t zero, float16x8_t scale,
                       bool is_signed)
{
    const struct halves v = read(x, is_signed);
    vst1q_f16((float16_t *)(void *)y, (v.low - zero) * scale);
    vst1q_f16((float16_t *)(void *)y + 8, (v.high - zero) * scale);
}

INLINE void take(const uint8_t *x, char *y, size_t count, float zero, float scale,
                 const struct code code)
{
    const float16x8_t zeros = vdupq_n_f16((float16_t)(zero - code.magic + code.magic_halves));
    const float16x8_t scales = vdupq_n_f16((float16_t)scale);
    size_t i = 0;
    for (; i + CHUNK <= count; i += CHUNK)
        take_chunk(x + i, y + 2 * i, zeros, scales, code.is_signed);
    if (i < count) {
        uint8_t from[CHUNK] = {0};
        char to[2 * CHUNK];
        memcpy(from, x + i, count - i);
        take_chunk(from, to, zeros, scales, code.is_signed);
        memcpy(y + 2 * i, to, 2 * (count - i));
    }
}

/* Returns whether FP16 holds all scales of the span exactly. Returns false for a NaN, which is
 * equal to nothing. */
static bool has_halves(const struct qk_span *span)
{
    const float *scales = span->scales;
    const size_t blocks = (span->done + span->count - 1) / span->block + 1;
    const size_t count = span->period && span->period < blocks ? span->period : blocks;
    for (size_t i = 0, p = span->p; i < count; i++) {
        if ((float)(float16_t)scales[p] != scales[p])
            return false;
        p = p + 1 == span->period ? 0 : p + 1;
    }
    return true;
}

void qk_dequantize_bytes__fp16(const struct qk_dequantize_args *args)
{
    if (args->y_type != QK_FP16 || !has_runs(args) || !has_halves(&args->span))
        qk_dequantize_small__neon(args);
    else if (args->code == QK_CODE_U8)
        take_runs(args, U8, take);
    else
        take_runs(args, S8, take);
}

void qk_dequantize_init_fp16(struct qk_dequantize_kernels *kernels)
{
    qk_dequantize_init_neon(kernels);
    kernels->run[QK_CODE_U8] = kernels->run[QK_CODE_S8] = qk_dequantize_bytes__fp16;
}

#endif
