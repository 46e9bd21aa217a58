/* The loops of integer products (igemm.h) on NEON, whose vectors hold 4 sums. A register unit is
 * four vectors of sums: the sums of UNIT_ROWS rows at POSITIONS positions. Only for
 * igemm_6x8_neon.c, igemm_6x16_dotprod.c and igemm_12x8_i8mm.c, which define these names before
 * they include this file:
 *
 * - UNIT_ROWS: the rows of a register unit;
 * - POSITIONS: the positions of a register unit, which are computed in one pass;
 * - SLABS: how many slabs add_products takes at a time, 1 or 2;
 * - add_products: adds the products of SLABS slabs or, with `single`, of one slab to the sums of
 *   some register units;
 * - row_sums: returns the sums of one row of a register unit for 4 positions. */
#pragma once

#ifdef UNIT_ROWS

/* NEON has 32 registers: 24 hold the sums of 6 register units, and 8 hold x, weights and products.
 */
enum { UNITS = 6, MR = UNITS * UNIT_ROWS, LANES = 4 };

/* Computes the sums of `units` register units, for POSITIONS positions from `first` on. Inlined
 * with constant `units`, so that the compiler keeps `sums` in registers. */
__attribute__((always_inline)) static inline void multiply_tile(const struct qk_igemm_args *args,
                                                                size_t first, const size_t units)
{
    const struct qk_igemm_step *step = args->steps;
    const uint8_t *step_weights = args->weights;
    const size_t slab_bytes = args->slab_bytes;
    int32x4_t sums[UNITS][4];

#pragma GCC unroll 6
    for (size_t u = 0; u < units; u++)
        sums[u][0] = sums[u][1] = sums[u][2] = sums[u][3] = vdupq_n_s32(0);
    for (size_t s = 0; s < args->step_count; s++, step++, step_weights += args->step_bytes) {
        const uint8_t *quads = args->quads + step->offset + first * QK_IGEMM_QUAD_BYTES;
        const uint8_t *weights = step_weights;
        for (size_t left = step->slabs / SLABS; left > 0; left--) {
            add_products(quads, slab_bytes, weights, units, false, sums);
            quads += SLABS * slab_bytes;
            weights += (size_t)(SLABS * MR * QK_IGEMM_QUAD_BYTES);
        }
        if (step->slabs % SLABS != 0)
            add_products(quads, slab_bytes, weights, units, true, sums);
    }
#pragma GCC unroll 6
    for (size_t u = 0; u < units; u++)
#pragma GCC unroll 2
        for (size_t r = 0; r < UNIT_ROWS; r++)
#pragma GCC unroll 4
            for (size_t v = 0; v < POSITIONS / LANES; v++) {
                int32_t *to = args->sums + (u * UNIT_ROWS + r) * QK_IGEMM_NR + first + v * LANES;
                int32x4_t sum = row_sums(sums[u], r, v);
                if (args->add)
                    sum = vaddq_s32(sum, vld1q_s32(to));
                vst1q_s32(to, sum);
            }
}

/* Rounds the number of register units up to an even number. Computing one for nothing costs less
 * than having twice as many copies of the loop. */
static void multiply(const struct qk_igemm_args *args)
{
    for (size_t first = 0; first < args->vectors * QK_IGEMM_VECTOR; first += POSITIONS)
        if (args->rows > 4 * UNIT_ROWS)
            multiply_tile(args, first, 6);
        else if (args->rows > 2 * UNIT_ROWS)
            multiply_tile(args, first, 4);
        else
            multiply_tile(args, first, 2);
}

/* The struct qk_igemm of each file that includes this one. */
#define IGEMM_NEON                                                            \
    {                                                                         \
        .quad_k = 4, .x_signed = true, .mr = MR, .nr = QK_IGEMM_NR,           \
        .row_stride = (size_t)SLABS * QK_IGEMM_QUAD_BYTES,                    \
        .quad_stride = (size_t)MR * QK_IGEMM_QUAD_BYTES, .pairs = SLABS == 2, \
        .multiply = multiply,                                                 \
    }

#endif
