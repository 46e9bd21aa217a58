/* The operations of kernel_8.h in pairs of NEON registers, for depthwise kernels with vectors of 8
 * lanes. Only for kernel_neon.c and kernel_dotprod.c. Before they include this file, they define
 * bytes_32, lane_taps, lane_sums, splat_sum and add_products (kernel_8.h), SUMS, and sums_of, which
 * returns 4 of 8 sums.
 *
 * A weight less its zero point may need more than a byte. If there are zero points, a quad is
 * therefore multiplied by three words: its weights, and two words that add up to the negative zero
 * point of each weight. Two are needed because -(-128) = 128 does not fit in a signed byte: it
 * becomes 127 + 1. */
#pragma once

#ifdef SUMS

#include "kernels/conv/requantize_neon.h"

#define HALF(buffer_bytes) 0 /* all words are multiplied by the same quads */

enum { WORDS = 3, SUM_LANES = 8 };

static const uint8_t PLACE[QK_DEPTHWISE_TAPS] = {0, 1, 2, 3};

typedef uint8x16_t bytes_16;

static inline bytes_16 load_16(const uint8_t *from)
{
    return vld1q_u8(from);
}

/* Keeps the address in one register, to which loads add constants. Otherwise the compiler would
 * compute each address by itself. */
static inline const uint8_t *base_of(const uint8_t *quads)
{
    __asm__("" : "+r"(quads));
    return quads;
}

static inline bytes_32 load_32(const uint8_t *from)
{
    return (bytes_32){{vld1q_u8(from), vld1q_u8(from + 16)}};
}

static inline bytes_32 load_quads(const uint8_t *from)
{
    return load_32(from);
}

static inline bytes_32 twice_16(bytes_16 bytes)
{
    return (bytes_32){{bytes, bytes}};
}

static inline bytes_32 join_16(bytes_16 low, bytes_16 high)
{
    return (bytes_32){{low, high}};
}

static inline bytes_32 splat_32(uint8_t byte)
{
    return twice_16(vdupq_n_u8(byte));
}

static inline bytes_32 permute_32(bytes_32 bytes, bytes_32 order, bytes_32 flip)
{
    return (bytes_32){{veorq_u8(vqtbl1q_u8(bytes.val[0], order.val[0]), flip.val[0]),
                       veorq_u8(vqtbl1q_u8(bytes.val[1], order.val[1]), flip.val[1])}};
}

static inline lane_taps splat_taps(int32_t taps)
{
    return vreinterpretq_s8_s32(vdupq_n_s32(taps));
}

static inline void store_quads(uint8_t *to, size_t half, bytes_32 bytes)
{
    (void)half;
    vst1q_u8(to, bytes.val[0]);
    vst1q_u8(to + 16, bytes.val[1]);
}

static inline void store_weights(uint8_t *to, bytes_16 dense, bytes_16 order, size_t words,
                                 int32_t zero_point)
{
    const bytes_16 weights = vqtbl1q_u8(dense, order);
    const bytes_16 there = vcltq_u8(order, vdupq_n_u8(16));
    const int second = zero_point == INT8_MIN ? 1 : 0; /* 128 does not fit in a signed byte */
    if (words == 1) {
        vst1q_u8(to, weights);
        return;
    }
    const uint32x4x3_t all = {{
        vreinterpretq_u32_u8(weights),
        vreinterpretq_u32_u8(vandq_u8(there, vdupq_n_u8((uint8_t)(-zero_point - second)))),
        vreinterpretq_u32_u8(vandq_u8(there, vdupq_n_u8((uint8_t)second))),
    }};
    vst3q_u32((void *)to, all);
}

static inline void requantize_4(const struct qk_requantize *to, const lane_sums sums[4],
                                float multiplier, uint8_t bytes[32])
{
#pragma GCC unroll 2
    for (size_t i = 0; i < 4; i += 2) {
        const int32x4_t lanes[4] = {sums_of(sums[i], 0), sums_of(sums[i], 1),
                                    sums_of(sums[i + 1], 0), sums_of(sums[i + 1], 1)};
        vst1q_u8(bytes + 8 * i, qk_requantize_16(to, lanes, multiplier));
    }
}

#include "kernels/conv/depthwise/kernel_8.h"

static void run_bytes(const struct qk_depthwise_job *job)
{
    if (job->any_zero_point)
        run_unit(job, WORDS);
    else
        run_unit(job, 1);
}

static void sum_weights(const uint8_t *weights, size_t channels, size_t depth, int32_t *sums)
{
    static const uint8_t numbers[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const uint8x16_t index = vld1q_u8(numbers);
    for (size_t m = 0; m < channels; m++, weights += depth) {
        int32x4_t sum = vdupq_n_s32(0);
        for (size_t i = 0; i < depth; i += sizeof(sum)) {
            const size_t left = qk_size_min(depth - i, sizeof(sum));
            const uint8x16_t there = vcltq_u8(index, vdupq_n_u8((uint8_t)left));
            const uint8x16_t bytes = vandq_u8(vld1q_u8(weights + i), there);
            sum = vpadalq_s16(sum, vpaddlq_s8(vreinterpretq_s8_u8(bytes)));
        }
        sums[m] = vaddvq_s32(sum);
    }
}

#endif
