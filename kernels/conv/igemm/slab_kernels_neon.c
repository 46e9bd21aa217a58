/* Slab kernels with vectors of 16 bytes, for quads of bytes. */
#include "kernels/conv/igemm/slab_kernels.h"

#ifdef __aarch64__

#include <string.h>

#include "kernels/conv/requantize_neon.h"
#include "kernels/gemm/igemm.h"
#include "kernels/sizes.h"

/* ---- Fill -------------------------------------------------------------------------------- */

#define CHUNK 16

typedef uint8x16_t bytes_16;

static inline bytes_16 load_16(const uint8_t *from)
{
    return vld1q_u8(from);
}

static inline void store_16(uint8_t *to, bytes_16 bytes)
{
    vst1q_u8(to, bytes);
}

static inline bytes_16 load_halves(const uint8_t *low, const uint8_t *high)
{
    return vcombine_u8(vld1_u8(low), vld1_u8(high));
}

static inline bytes_16 splat_16(uint8_t byte)
{
    return vdupq_n_u8(byte);
}

static inline bytes_16 range_16(size_t begin, size_t end)
{
    static const uint8_t numbers[CHUNK] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const uint8x16_t index = vld1q_u8(numbers);
    return vandq_u8(vcgeq_u8(index, vdupq_n_u8((uint8_t)begin)),
                    vcltq_u8(index, vdupq_n_u8((uint8_t)end)));
}

static inline bytes_16 select_16(bytes_16 mask, bytes_16 yes, bytes_16 no)
{
    return vbslq_u8(mask, yes, no);
}

static inline bytes_16 evens_16(bytes_16 low, bytes_16 high)
{
    return vuzp1q_u8(low, high);
}

static inline bytes_16 xor_16(bytes_16 a, bytes_16 b)
{
    return veorq_u8(a, b);
}

static inline bytes_16 zip_low_16(bytes_16 a, bytes_16 b)
{
    return vzip1q_u8(a, b);
}

static inline bytes_16 zip_high_16(bytes_16 a, bytes_16 b)
{
    return vzip2q_u8(a, b);
}

static inline bytes_16 zip_low_quads(bytes_16 a, bytes_16 b)
{
    return vreinterpretq_u8_u32(vzip1q_u32(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)));
}

static inline bytes_16 zip_high_quads(bytes_16 a, bytes_16 b)
{
    return vreinterpretq_u8_u32(vzip2q_u32(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)));
}

static inline int32_t sum_16(bytes_16 bytes)
{
    return vaddlvq_s8(vreinterpretq_s8_u8(bytes));
}

struct form {
    size_t terms;
    uint8x16_t flip;
};

static inline struct form form_for(const struct qk_slab_fill *job, size_t terms)
{
    return (struct form){terms, vdupq_n_u8(job->flip)};
}

/* 16 elements of each source of the quads. */
struct sources {
    uint8x16_t bytes[4];
};

static inline void store_halves(const struct form *form, const struct sources *from, uint8_t *to,
                                uint8_t *high_to)
{
    uint8_t *const halves[2] = {to, high_to};
    uint16x8_t pairs[2][2];
#pragma GCC unroll 2
    for (size_t i = 0; i < 2; i++) {
        const uint8x16_t a = veorq_u8(from->bytes[2 * i], form->flip);
        const uint8x16_t b = veorq_u8(from->bytes[2 * i + 1], form->flip);
        pairs[i][0] = vreinterpretq_u16_u8(vzip1q_u8(a, b));
        pairs[i][1] = vreinterpretq_u16_u8(vzip2q_u8(a, b));
    }
#pragma GCC unroll 2
    for (size_t i = 0; i < 2; i++) {
        vst1q_u8(halves[i], vreinterpretq_u8_u16(vzip1q_u16(pairs[0][i], pairs[1][i])));
        vst1q_u8(halves[i] + 16, vreinterpretq_u8_u16(vzip2q_u16(pairs[0][i], pairs[1][i])));
    }
}

/* Stores the first `count` of 16 quads. */
static inline void store_quads(const struct form *form, const struct sources *from, size_t count,
                               uint8_t *to)
{
    uint8_t few[CHUNK * QK_IGEMM_QUAD_BYTES];
    uint8_t *const all = count >= CHUNK ? to : few;
    store_halves(form, from, all, all + sizeof(few) / 2);
    if (all == few)
        memcpy(to, few, count * QK_IGEMM_QUAD_BYTES);
}

/* ---- Requantize -------------------------------------------------------------------------- */

static inline void requantize_row(const struct qk_epilogue_tile *tile,
                                  const struct qk_requantize *to, size_t row,
                                  uint8_t bytes[QK_IGEMM_NR])
{
    const int32x4_t bias = vdupq_n_s32(tile->bias[row]);
    const int32_t zero_point = tile->w_zero_point ? tile->w_zero_point[row] : 0;
    const float multiplier = tile->multiplier[row];
    const int32_t *from = tile->sums + row * QK_IGEMM_NR;
    for (size_t i = 0; i < tile->positions; i += 16) {
        int32x4_t sums[4];
#pragma GCC unroll 4
        for (size_t v = 0; v < 4; v++) {
            sums[v] = vaddq_s32(vld1q_s32(from + i + 4 * v), bias);
            if (zero_point != 0)
                sums[v] =
                    vmlsq_n_s32(sums[v], vld1q_s32(tile->column_sums + i + 4 * v), zero_point);
        }
        vst1q_u8(bytes + i, qk_requantize_16(to, sums, multiplier));
    }
}

/* ---- Kernels ----------------------------------------------------------------------------- */

#include "kernels/conv/igemm/slab_kernels_16.h"
#include "kernels/conv/igemm/transpose_16.h"

static void requantize(const struct qk_epilogue_tile *tile)
{
    const struct qk_requantize to = tile->epilogue->requantize; /* cannot alias y */
    uint8_t bytes[QK_IGEMM_NR];
    for (size_t row = 0; row < tile->rows; row++) {
        requantize_row(tile, &to, row, bytes);
        for (size_t i = 0; i < tile->segment_count; i++)
            store_kept(bytes, tile->segments[i].keep,
                       tile->y + row * tile->y_stride + tile->segments[i].offset);
    }
}

static void fill_bytes(const struct qk_slab_fill *job)
{
    fill(job, 4);
}

const struct qk_slab_kernels qk_slab_kernels_u8x4__neon = {
    .fill = fill_bytes,
    .epilogues = {[QK_EPILOGUE_BYTES] = requantize, [QK_EPILOGUE_INT32] = qk_any_epilogue__neon},
    .any_epilogue = qk_any_epilogue__neon,
    .transpose = transpose,
};

#endif
