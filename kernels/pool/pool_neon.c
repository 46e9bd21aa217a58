/* Pooling with NEON. */
#include "kernels/pool/kernels.h"

#ifdef __ARM_NEON

#include <arm_neon.h>

#define INLINE static inline __attribute__((always_inline))
#define QK_POOL_BYTES 16
#define QK_POOL_FLOATS 4

typedef uint8x16_t byte_vector;
typedef uint32x4_t sum_vector;
typedef float32x4_t float_vector;

INLINE byte_vector load_bytes(const uint8_t *x)
{
    return vld1q_u8(x);
}

INLINE void store_bytes(uint8_t *y, byte_vector a)
{
    vst1q_u8(y, a);
}

INLINE byte_vector splat_bytes(uint8_t byte)
{
    return vdupq_n_u8(byte);
}

INLINE byte_vector max_bytes(byte_vector a, byte_vector b, bool is_signed)
{
    if (is_signed)
        return vreinterpretq_u8_s8(vmaxq_s8(vreinterpretq_s8_u8(a), vreinterpretq_s8_u8(b)));
    return vmaxq_u8(a, b);
}

INLINE byte_vector min_bytes(byte_vector a, byte_vector b, bool is_signed)
{
    if (is_signed)
        return vreinterpretq_u8_s8(vminq_s8(vreinterpretq_s8_u8(a), vreinterpretq_s8_u8(b)));
    return vminq_u8(a, b);
}

INLINE byte_vector and_bytes(byte_vector a, byte_vector b)
{
    return vandq_u8(a, b);
}

INLINE byte_vector xor_bytes(byte_vector a, byte_vector b)
{
    return veorq_u8(a, b);
}

INLINE void store_even(uint8_t *y, byte_vector a)
{
    vst1_u8(y, vmovn_u16(vreinterpretq_u16_u8(a)));
}

INLINE void store_pairs(uint8_t *y, byte_vector a, bool is_signed)
{
    const uint8x8_t low = vget_low_u8(a);
    const uint8x8_t high = vget_high_u8(a);
    vst1_u8(y, is_signed
                   ? vreinterpret_u8_s8(vpmax_s8(vreinterpret_s8_u8(low), vreinterpret_s8_u8(high)))
                   : vpmax_u8(low, high));
}

INLINE sum_vector zero_sums(void)
{
    return vdupq_n_u32(0);
}

INLINE sum_vector add_bytes(sum_vector total, byte_vector a)
{
    return vpadalq_u16(total, vpaddlq_u8(a));
}

INLINE void store_sums(uint32_t *to, sum_vector a, sum_vector b, sum_vector c, sum_vector d)
{
    vst1q_u32(to, vpaddq_u32(vpaddq_u32(a, b), vpaddq_u32(c, d)));
}

INLINE float_vector load_floats(const float *x)
{
    return vld1q_f32(x);
}

INLINE void store_floats(float *y, float_vector a)
{
    vst1q_f32(y, a);
}

INLINE float_vector splat_floats(float value)
{
    return vdupq_n_f32(value);
}

INLINE float_vector widen(const uint8_t *x, uint8_t flip, int32_t zero)
{
    uint32_t read;
    __builtin_memcpy(&read, x, sizeof(read));
    const uint8x8_t four = veor_u8(vreinterpret_u8_u32(vdup_n_u32(read)), vdup_n_u8(flip));
    const int32x4_t wide = vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(four))));
    return vcvtq_f32_s32(vsubq_s32(wide, vdupq_n_s32(zero)));
}

INLINE void widen_pairs(const uint8_t *x, uint8_t flip, int32_t zero, float_vector *even,
                        float_vector *odd)
{
    const uint8x8_t read = veor_u8(vld1_u8(x), vdup_n_u8(flip));
    const uint32x4_t pairs = vmovl_u16(vreinterpret_u16_u8(read));
    const int32x4_t low = vreinterpretq_s32_u32(vandq_u32(pairs, vdupq_n_u32(0xFF)));
    const int32x4_t high = vreinterpretq_s32_u32(vshrq_n_u32(pairs, 8));
    const int32x4_t zeros = vdupq_n_s32(zero);
    *even = vcvtq_f32_s32(vsubq_s32(low, zeros));
    *odd = vcvtq_f32_s32(vsubq_s32(high, zeros));
}

INLINE float_vector fused(float_vector a, float_vector b, float_vector c)
{
    return vfmaq_f32(c, a, b);
}

INLINE float_vector negative_fused(float_vector a, float_vector b, float_vector c)
{
    return vfmsq_f32(c, a, b);
}

INLINE float_vector max_floats(float_vector a, float_vector b)
{
    return vmaxnmq_f32(a, b);
}

INLINE float_vector min_floats(float_vector a, float_vector b)
{
    return vminnmq_f32(a, b);
}

INLINE void store_low(uint8_t *y, float_vector a)
{
    const uint16x4_t words = vmovn_u32(vreinterpretq_u32_f32(a));
    const uint8x8_t low = vmovn_u16(vcombine_u16(words, words));
    const uint32_t four = vget_lane_u32(vreinterpret_u32_u8(low), 0);
    __builtin_memcpy(y, &four, sizeof(four));
}

#define QK_POOL_INIT qk_pool_init_neon
#define QK_POOL_NAME "pool_neon"
#define QK_POOL_MAX_CYCLES 0.1
#define QK_POOL_AVERAGE_CYCLES 1.2
#define QK_POOL_SUM_CYCLES 0.3
#include "kernels/pool/loops.h"

#endif
