/* The kernels of binary.h for NEON. */
#include "kernels/binary/binary.h"

#ifdef __aarch64__

#include <arm_neon.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define TIER neon
#define CYCLES 1.5
#define LANES 4

typedef float32x4_t vector;
typedef int16x8_t words;

INLINE vector splat(float value)
{
    return vdupq_n_f32(value);
}

INLINE vector widen(const uint8_t *codes, bool is_signed)
{
    uint32_t four;
    memcpy(&four, codes, sizeof(four));
    const uint8x8_t bytes = vreinterpret_u8_u32(vdup_n_u32(four));
    if (is_signed)
        return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(bytes)))));
    return vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(bytes))));
}

INLINE vector fused(vector a, vector b, vector c)
{
    return vfmaq_f32(c, a, b);
}

INLINE vector multiply(vector a, vector b)
{
    return vmulq_f32(a, b);
}

INLINE vector add(vector a, vector b)
{
    return vaddq_f32(a, b);
}

/* Rounds to an integer. NaN and what does not fit into 32 bits become the least integer, as on
 * x86. The conversion itself would make 0 and the greatest integer of them. */
INLINE int32x4_t rounded(vector v)
{
    const uint32x4_t fits = vcltq_f32(v, vdupq_n_f32(0x1p31F));
    return vbslq_s32(fits, vcvtnq_s32_f32(v), vdupq_n_s32(INT32_MIN));
}

INLINE void store(uint8_t *y, vector a, vector b, vector c, vector d, bool is_signed, bool stream)
{
    (void)stream;
    const int16x8_t low = vcombine_s16(vqmovn_s32(rounded(a)), vqmovn_s32(rounded(b)));
    const int16x8_t high = vcombine_s16(vqmovn_s32(rounded(c)), vqmovn_s32(rounded(d)));
    if (is_signed)
        vst1q_s8((int8_t *)y, vcombine_s8(vqmovn_s16(low), vqmovn_s16(high)));
    else
        vst1q_u8(y, vcombine_u8(vqmovun_s16(low), vqmovun_s16(high)));
}

/* ---- Products, in the order of the codes ---------------------------------------------------- */

INLINE words splat_words(int zero, bool is_signed)
{
    (void)is_signed;
    return vdupq_n_s16((int16_t)zero);
}

/* Sets halves[i] to codes 8 i to 8 i + 7 less the zero point. */
INLINE void differences(const uint8_t *codes, words zero, bool is_signed, words halves[2])
{
    const uint8x16_t bytes = vld1q_u8(codes);
    if (is_signed) {
        halves[0] = vmovl_s8(vget_low_s8(vreinterpretq_s8_u8(bytes)));
        halves[1] = vmovl_s8(vget_high_s8(vreinterpretq_s8_u8(bytes)));
    } else {
        halves[0] = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(bytes)));
        halves[1] = vreinterpretq_s16_u16(vmovl_u8(vget_high_u8(bytes)));
    }
    halves[0] = vsubq_s16(halves[0], zero);
    halves[1] = vsubq_s16(halves[1], zero);
}

INLINE void multiply_words(words a, words b, vector *low, vector *high)
{
    *low = vcvtq_f32_s32(vmull_s16(vget_low_s16(a), vget_low_s16(b)));
    *high = vcvtq_f32_s32(vmull_s16(vget_high_s16(a), vget_high_s16(b)));
}

INLINE void products(const uint8_t *first, words first_zero, const uint8_t *second,
                     words second_zero, bool is_signed, vector made[4])
{
    words a[2];
    words b[2];
    differences(first, first_zero, is_signed, a);
    differences(second, second_zero, is_signed, b);
    multiply_words(a[0], b[0], &made[0], &made[1]);
    multiply_words(a[1], b[1], &made[2], &made[3]);
}

INLINE void products_by(const uint8_t *codes, words zero, words difference, bool is_signed,
                        vector made[4])
{
    words a[2];
    differences(codes, zero, is_signed, a);
    multiply_words(a[0], difference, &made[0], &made[1]);
    multiply_words(a[1], difference, &made[2], &made[3]);
}

INLINE void store_products(uint8_t *y, const vector made[4], bool is_signed, bool stream)
{
    store(y, made[0], made[1], made[2], made[3], is_signed, stream);
}

#define FINISH NULL

#define copy_in memcpy
#define copy_out memcpy

#include "kernels/binary/loops.h"

#endif
