/* SMMLA takes 8 weights of each of two rows, and 8 bytes of x of each of two positions. It
 * multiplies each row by each position, s8 by s8, and adds the products to four sums, modulo 2^32.
 * These are twice as many products as SDOT computes in the same time. The 8 bytes are the quads of
 * two neighbouring slabs. Weights are packed that way. The quads of x come from two loads that are
 * zipped, once for all rows.
 *
 * The file's name has the rows and positions that are computed at a time. The 12 rows are the UNITS
 * = 6 register units of igemm_neon.h, each of UNIT_ROWS = 2 rows. */
#include "kernels/gemm/igemm.h"

#ifdef __aarch64__

#include <arm_neon.h>

/* igemm_neon.h, which this file includes at its end, explains and uses these three numbers,
 * add_products and row_sums. */
#define UNIT_ROWS 2
#define POSITIONS 8
#define SLABS 2

/* x[2 v + i] has both quads of position 4 v + 2 i and of the position after it. If the number of
 * slabs is odd, zeros stand beside the last slab, whatever weights they meet. */
__attribute__((always_inline)) static inline void
add_products(const uint8_t *quads, size_t slab_bytes, const uint8_t *weights, const size_t units,
             const bool single, int32x4_t sums[][4])
{
    int8x16_t x[4];
#pragma GCC unroll 2
    for (size_t v = 0; v < 2; v++, quads += sizeof(x[0])) {
        const uint32x4_t first = vreinterpretq_u32_u8(vld1q_u8(quads));
        const uint32x4_t second =
            single ? vdupq_n_u32(0) : vreinterpretq_u32_u8(vld1q_u8(quads + slab_bytes));
        x[2 * v] = vreinterpretq_s8_u32(vzip1q_u32(first, second));
        x[2 * v + 1] = vreinterpretq_s8_u32(vzip2q_u32(first, second));
    }
#pragma GCC unroll 6
    for (size_t u = 0; u < units; u++) {
        /* Keeps the compiler from loading the weights of all units at once, which would leave too
         * few registers for sums. */
        __asm__ volatile("" : : : "memory");
        const int8x16_t w = vreinterpretq_s8_u8(vld1q_u8(weights + u * sizeof(w)));
#pragma GCC unroll 4
        for (size_t i = 0; i < 4; i++)
            sums[u][i] = vmmlaq_s32(sums[u][i], w, x[i]);
    }
}

static inline int32x4_t row_sums(const int32x4_t sums[4], size_t row, size_t v)
{
    const int64x2_t low = vreinterpretq_s64_s32(sums[2 * v]);
    const int64x2_t high = vreinterpretq_s64_s32(sums[2 * v + 1]);
    return vreinterpretq_s32_s64(row == 0 ? vzip1q_s64(low, high) : vzip2q_s64(low, high));
}

#include "kernels/gemm/igemm_neon.h"

const struct qk_igemm qk_igemm_s8s8_12x8__i8mm = IGEMM_NEON;

#endif
