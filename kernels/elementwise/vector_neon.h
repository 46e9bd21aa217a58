/* Vectors of eight floats for the element-wise kernels on NEON, as pairs of registers of four, and
 * the operations that dequantizers and quantizers both need on them. With pairs, the shared loops
 * take as many elements in a chunk as with AVX2, and have no more overhead. Only for
 * dequantize_neon.c and quantize_neon.c. */
#pragma once

#ifdef __aarch64__

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))

typedef float32x4x2_t vector; /* of 8 floats */
typedef uint32x4x2_t words;   /* of 8 integers */
typedef uint8x16x2_t octets;  /* of 32 bytes */

/* Makes a pair of vectors from its two halves. */
#define EACH(type, ...) ((type){{__VA_ARGS__}})

INLINE vector splat(float value)
{
    return EACH(vector, vdupq_n_f32(value), vdupq_n_f32(value));
}

INLINE words splat_word(uint32_t value)
{
    return EACH(words, vdupq_n_u32(value), vdupq_n_u32(value));
}

INLINE vector load_vector(const void *from)
{
    return EACH(vector, vld1q_f32(from), vld1q_f32((const float *)from + 4));
}

INLINE void store_vector(void *to, vector v)
{
    vst1q_f32(to, v.val[0]);
    vst1q_f32((float *)to + 4, v.val[1]);
}

INLINE words words_of_vector(vector v)
{
    return EACH(words, vreinterpretq_u32_f32(v.val[0]), vreinterpretq_u32_f32(v.val[1]));
}

INLINE vector vector_of_words(words w)
{
    return EACH(vector, vreinterpretq_f32_u32(w.val[0]), vreinterpretq_f32_u32(w.val[1]));
}

INLINE vector add(vector a, vector b)
{
    return EACH(vector, a.val[0] + b.val[0], a.val[1] + b.val[1]);
}

INLINE vector multiply(vector a, vector b)
{
    return EACH(vector, a.val[0] * b.val[0], a.val[1] * b.val[1]);
}

/* Returns, for each bit, `yes` if the condition's bit is set, and otherwise `no`. */
INLINE words choose(words condition, words yes, words no)
{
    return EACH(words, vbslq_u32(condition.val[0], yes.val[0], no.val[0]),
                vbslq_u32(condition.val[1], yes.val[1], no.val[1]));
}

/* Returns the first `count` elements of `before` and the remaining elements of `after`. */
INLINE vector mix_one(vector before, vector after, size_t count)
{
    static const uint32_t places[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    const uint32x4_t limit = vdupq_n_u32((uint32_t)count);
    const words is_before =
        EACH(words, vcltq_u32(vld1q_u32(places), limit), vcltq_u32(vld1q_u32(places + 4), limit));
    return vector_of_words(choose(is_before, words_of_vector(before), words_of_vector(after)));
}

/* Convert FP32 to FP16 and back, with instructions that every Armv8-A CPU has. A NaN keeps as much
 * of its payload as fits. */
INLINE uint16x8_t fp16_of_vector(vector v)
{
    return vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(v.val[0]), v.val[1]));
}

INLINE vector vector_of_fp16(uint16x8_t halves)
{
    const float16x8_t h = vreinterpretq_f16_u16(halves);
    return EACH(vector, vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h));
}

/* A BF16 is the upper half of a float. */
INLINE vector vector_of_bf16(uint16x8_t halves)
{
    const uint16x8_t none = vdupq_n_u16(0);
    return EACH(vector, vreinterpretq_f32_u16(vzip1q_u16(none, halves)),
                vreinterpretq_f32_u16(vzip2q_u16(none, halves)));
}

/* Does the first step of rounding to BF16, ties to even. Adds 1 if bit 16 is set, which is the
 * lowest bit that stays. The caller then adds 0x7fff and takes the upper half. The test gives -1 if
 * the bit is set, so the 1 is added by subtracting. A shift would do the same, but ARM CPUs do
 * fewer shifts than tests at once. */
INLINE uint32x4_t with_lowest_bf16(uint32x4_t bits)
{
    return vsubq_u32(bits, vtstq_u32(bits, vdupq_n_u32(0x10000)));
}

#endif
