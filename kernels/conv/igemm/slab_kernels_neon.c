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

/* Stores the first `count` of 16 quads. */
static inline void store_quads(const struct form *form, const struct sources *from, size_t count,
                               uint8_t *to)
{
    uint8_t few[CHUNK * QK_IGEMM_QUAD_BYTES];
    uint8_t *const all = count >= CHUNK ? to : few;
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
        vst1q_u8(all + 32 * i, vreinterpretq_u8_u16(vzip1q_u16(pairs[0][i], pairs[1][i])));
        vst1q_u8(all + 32 * i + 16, vreinterpretq_u8_u16(vzip2q_u16(pairs[0][i], pairs[1][i])));
    }
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

/* ---- Transpose --------------------------------------------------------------------------- */

/* Transposes 16 x 16 bytes: byte b of vector v goes to byte v of vector b. Each of the four rounds
 * rotates the 8 bits of (v, b) to the left by one. */
static inline void transpose_16(uint8x16_t v[16])
{
    uint8x16_t next[16];
#pragma GCC unroll 4
    for (size_t round = 0; round < 4; round++) {
#pragma GCC unroll 8
        for (size_t i = 0; i < 8; i++) {
            next[2 * i] = vzip1q_u8(v[i], v[i + 8]);
            next[2 * i + 1] = vzip2q_u8(v[i], v[i + 8]);
        }
#pragma GCC unroll 16
        for (size_t i = 0; i < 16; i++)
            v[i] = next[i];
    }
}

/* 16 channels of a K block from channel `first` on. The block has `count` of them. */
struct channels {
    size_t first, count;
    uint8x16_t there;
    size_t quads, at[4]; /* how many quads are written, and their offsets */
};

static struct channels channels_from(const struct qk_transpose *job, size_t first)
{
    struct channels channels = {.first = first, .quads = qk_size_min(job->quads - first / 4, 4)};
    channels.count = first < job->channels ? qk_size_min(job->channels - first, 16) : 0;
    channels.there = range_16(0, channels.count);
    for (size_t i = 0; i < 4; i++)
        channels.at[i] = qk_transpose_quad_at(job, first / 4 + i);
    return channels;
}

/* Stores the quads of a tap. Returns `sum` with the tap's weights added to its lanes. */
static inline int32x4_t store_tap(const struct channels *channels, uint8x16_t tap, uint8_t flip,
                                  uint8_t *to, int32x4_t sum)
{
    const uint8x16_t bytes = vandq_u8(veorq_u8(tap, vdupq_n_u8(flip)), channels->there);
    uint32_t quads[4];
    vst1q_u32(quads, vreinterpretq_u32_u8(bytes));
    for (size_t i = 0; i < channels->quads; i++)
        memcpy(to + channels->at[i], &quads[i], sizeof(quads[i]));
    return vpadalq_s16(sum, vpaddlq_s8(vreinterpretq_s8_u8(bytes)));
}

/* Transposes one K block of a row and returns the sum of its weights. Reads up to 15 bytes beyond
 * the block. */
static uint32_t transpose_block(const struct qk_transpose *job, const uint8_t *from, uint8_t *to)
{
    int32x4_t sum = vdupq_n_s32(0);
    for (size_t first = 0; first < 4 * job->quads; first += 16) {
        const struct channels channels = channels_from(job, first);
        for (size_t tap = 0; tap < job->taps; tap += 16) {
            const size_t taps = qk_size_min(job->taps - tap, 16);
            const uint8_t *at = from + first * job->taps + tap;
            uint8x16_t v[16];
            if (job->taps == 1) { /* channels are in order already */
                v[0] = channels.count > 0 ? vld1q_u8(at) : vdupq_n_u8(0);
            } else {
                for (size_t i = 0; i < 16; i++)
                    v[i] = i < channels.count ? vld1q_u8(at + i * job->taps) : vdupq_n_u8(0);
                transpose_16(v);
            }
            for (size_t t = 0; t < taps; t++)
                sum =
                    store_tap(&channels, v[t], job->flip, to + (tap + t) * job->to_tap_stride, sum);
        }
    }
    return (uint32_t)vaddvq_s32(sum);
}

/* There may be no memory beyond the last block. Blocks that end less than 15 bytes before the end
 * are therefore copied first, with zeros after them. */
static void transpose(const struct qk_transpose *job)
{
    const size_t block_bytes = job->channels * job->taps;
    const uint8_t *end =
        job->from + (job->rows - 1) * job->from_row_stride + job->k_blocks * block_bytes;
    uint8_t copy[QK_TRANSPOSE_CHANNELS * QK_TRANSPOSE_TAPS + 16];
    for (size_t row = 0; row < job->rows; row++) {
        const uint8_t *from = job->from + row * job->from_row_stride;
        uint8_t *to = job->to + row * job->to_row_stride;
        for (size_t i = 0; i < job->k_blocks; i++) {
            const bool near = (size_t)(end - from) < block_bytes + 15;
            if (near) {
                memcpy(copy, from, block_bytes);
                memset(copy + block_bytes, 0, 15);
            }
            job->sums[row] =
                (int32_t)((uint32_t)job->sums[row] + transpose_block(job, near ? copy : from, to));
            from += block_bytes;
            to += job->taps * job->to_tap_stride;
        }
    }
}

/* ---- Kernels ----------------------------------------------------------------------------- */

#include "kernels/conv/igemm/slab_kernels_16.h"

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
