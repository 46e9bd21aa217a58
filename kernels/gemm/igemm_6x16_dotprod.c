/* SDOT on vectors of 4 positions multiplies s8 by s8 and adds four products to a sum, modulo 2^32.
 * All lanes meet the same quad of weights, which the instruction takes from a register of four
 * quads. */
#include "kernels/gemm/igemm.h"

#ifdef __aarch64__

#include <arm_neon.h>

#define UNIT_ROWS 1
#define POSITIONS 16
#define SLABS 1

/* Multiplies by quad `lane` of w. The intrinsic accepts only a literal constant. */
static inline int32x4_t dot_lane(int32x4_t sum, int8x16_t x, int8x16_t w, size_t lane)
{
    switch (lane) {
    case 0:
        return vdotq_laneq_s32(sum, x, w, 0);
    case 1:
        return vdotq_laneq_s32(sum, x, w, 1);
    case 2:
        return vdotq_laneq_s32(sum, x, w, 2);
    default:
        return vdotq_laneq_s32(sum, x, w, 3);
    }
}

__attribute__((always_inline)) static inline void
add_products(const uint8_t *quads, size_t slab_bytes, const uint8_t *weights, const size_t units,
             const bool single, int32x4_t sums[][4])
{
    int8x16_t x[4], w[2];
    (void)slab_bytes, (void)single;
#pragma GCC unroll 4
    for (size_t v = 0; v < 4; v++)
        x[v] = vreinterpretq_s8_u8(vld1q_u8(quads + v * sizeof(x[v])));
    w[0] = vreinterpretq_s8_u8(vld1q_u8(weights));
    const uint8x8_t last = vld1_u8(weights + sizeof(w[0]));
    w[1] = vreinterpretq_s8_u8(vcombine_u8(last, last));
#pragma GCC unroll 6
    for (size_t u = 0; u < units; u++)
#pragma GCC unroll 4
        for (size_t v = 0; v < 4; v++)
            sums[u][v] = dot_lane(sums[u][v], x[v], w[u / 4], u % 4);
}

static inline int32x4_t row_sums(const int32x4_t sums[4], size_t row, size_t v)
{
    (void)row;
    return sums[v];
}

#include "kernels/gemm/igemm_neon.h"

const struct qk_igemm qk_igemm_s8s8_6x16__dotprod = IGEMM_NEON;

#endif
