/* SMULL multiplies s8 by s8 to words, and SADALP adds pairs of words to a sum, modulo 2^32. Every
 * Armv8-A CPU has both. A word has room for only one product: two products of -128 and -128 would
 * leave it. Each sum therefore has two lanes, which are added up at the end. */
#include "kernels/gemm/igemm.h"

#ifdef __aarch64__

#include <arm_neon.h>

#define UNIT_ROWS 1
#define POSITIONS 8
#define SLABS 1

__attribute__((always_inline)) static inline void
add_products(const uint8_t *quads, size_t slab_bytes, const uint8_t *weights, const size_t units,
             const bool single, int32x4_t sums[][4])
{
    int8x16_t x[2];
    (void)slab_bytes, (void)single;
#pragma GCC unroll 2
    for (size_t v = 0; v < 2; v++)
        x[v] = vreinterpretq_s8_u8(vld1q_u8(quads + v * sizeof(x[v])));
#pragma GCC unroll 6
    for (size_t u = 0; u < units; u++) {
        /* Keeps the compiler from loading the weights of all rows at once, which would leave too
         * few registers for sums. */
        __asm__ volatile("" : : : "memory");
        const void *quad = weights + u * QK_IGEMM_QUAD_BYTES;
        const int8x16_t w = vreinterpretq_s8_u32(vld1q_dup_u32(quad));
#pragma GCC unroll 2
        for (size_t v = 0; v < 2; v++) {
            sums[u][2 * v] =
                vpadalq_s16(sums[u][2 * v], vmull_s8(vget_low_s8(x[v]), vget_low_s8(w)));
            sums[u][2 * v + 1] = vpadalq_s16(sums[u][2 * v + 1], vmull_high_s8(x[v], w));
        }
    }
}

static inline int32x4_t row_sums(const int32x4_t sums[4], size_t row, size_t v)
{
    (void)row;
    return vpaddq_s32(sums[2 * v], sums[2 * v + 1]);
}

#include "kernels/gemm/igemm_neon.h"

const struct qk_igemm qk_igemm_s8s8_6x8__neon = IGEMM_NEON;

#endif
