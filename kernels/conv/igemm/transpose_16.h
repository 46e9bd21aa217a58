/* Transposes weights for packing (struct qk_transpose in slab_kernels.h), 16 channels at a time.
 * Only for slab_kernels_avx2.c and slab_kernels_neon.c, which define these names before they
 * include this file, besides those that slab_kernels_16.h names:
 *
 * - xor_16: a xor b;
 * - zip_low_16 and zip_high_16: the first, or last, 8 bytes of a and b by turns;
 * - zip_low_quads and zip_high_quads: the first, or last, 2 quads of a and b by turns;
 * - sum_16: the sum of 16 signed bytes. */
#pragma once

#ifdef CHUNK

#include <string.h>

#include "kernels/sizes.h"

/* Transposes 16 x 16 bytes: byte b of vector v goes to byte v of vector b. Each of the four rounds
 * rotates the 8 bits of (v, b) to the left by one. */
static inline void transpose_bytes(bytes_16 v[16])
{
    bytes_16 next[16];
#pragma GCC unroll 4
    for (size_t round = 0; round < 4; round++) {
#pragma GCC unroll 8
        for (size_t i = 0; i < 8; i++) {
            next[2 * i] = zip_low_16(v[i], v[i + 8]);
            next[2 * i + 1] = zip_high_16(v[i], v[i + 8]);
        }
#pragma GCC unroll 16
        for (size_t i = 0; i < 16; i++)
            v[i] = next[i];
    }
}

/* Transposes 4 x 4 quads, in the same way. */
static inline void transpose_quads(bytes_16 v[4])
{
#pragma GCC unroll 2
    for (size_t round = 0; round < 2; round++) {
        const bytes_16 next[4] = {zip_low_quads(v[0], v[2]), zip_high_quads(v[0], v[2]),
                                  zip_low_quads(v[1], v[3]), zip_high_quads(v[1], v[3])};
#pragma GCC unroll 4
        for (size_t i = 0; i < 4; i++)
            v[i] = next[i];
    }
}

/* 16 channels of a K block from channel `first` on. The block has `count` of them. */
struct channels {
    size_t count;
    bytes_16 there;
    size_t quads, at[4]; /* how many quads are written, and their offsets */
};

static struct channels channels_from(const struct qk_transpose *job, size_t first)
{
    struct channels channels = {.quads = qk_size_min(job->quads - first / 4, 4)};
    channels.count = first < job->channels ? qk_size_min(job->channels - first, 16) : 0;
    channels.there = range_16(0, channels.count);
    for (size_t i = 0; i < 4; i++)
        channels.at[i] = qk_transpose_quad_at(job, first / 4 + i);
    return channels;
}

/* Loads up to 16 taps of one row: v[t] gets tap t of each channel. Reads up to 15 bytes beyond. */
static inline void load_taps(const struct channels *channels, const uint8_t *from, size_t taps,
                             bytes_16 v[16])
{
    if (taps == 1) { /* channels are in order already */
        v[0] = channels->count > 0 ? load_16(from) : splat_16(0);
        return;
    }
    for (size_t i = 0; i < 16; i++)
        v[i] = i < channels->count ? load_16(from + i * taps) : splat_16(0);
    transpose_bytes(v);
}

/* Stores the quads of a tap of 1 or 4 rows. The equal quads of 4 rows lie side by side. */
static inline void store_quads_of(const struct channels *channels, bytes_16 tap[4], size_t rows,
                                  uint8_t *to)
{
    uint8_t quads[CHUNK];
    if (rows == 4)
        transpose_quads(tap);
    else
        store_16(quads, tap[0]);
#pragma GCC unroll 4
    for (size_t i = 0; i < channels->quads; i++)
        if (rows == 4)
            store_16(to + channels->at[i], tap[i]);
        else
            memcpy(to + channels->at[i], quads + i * QK_IGEMM_QUAD_BYTES, QK_IGEMM_QUAD_BYTES);
}

/* Transposes one K block of 1 or 4 rows and adds the sums of their weights. Reads up to 15 bytes
 * beyond the block of each row. */
__attribute__((always_inline)) static inline void transpose_block(const struct qk_transpose *job,
                                                                  size_t rows, const uint8_t *from,
                                                                  uint8_t *to, int32_t *sums)
{
    const bytes_16 flip = splat_16(job->flip);
    for (size_t first = 0; first < 4 * job->quads; first += CHUNK) {
        const struct channels channels = channels_from(job, first);
        for (size_t tap = 0; tap < job->taps; tap += 16) {
            bytes_16 v[4][16];
#pragma GCC unroll 4
            for (size_t row = 0; row < rows; row++)
                load_taps(&channels, from + row * job->from_row_stride + first * job->taps + tap,
                          job->taps, v[row]);
            for (size_t t = 0; t < qk_size_min(job->taps - tap, 16); t++) {
                bytes_16 bytes[4];
#pragma GCC unroll 4
                for (size_t row = 0; row < rows; row++) {
                    bytes[row] = select_16(channels.there, xor_16(v[row][t], flip), splat_16(0));
                    sums[row] = (int32_t)((uint32_t)sums[row] + (uint32_t)sum_16(bytes[row]));
                }
                store_quads_of(&channels, bytes, rows, to + (tap + t) * job->to_tap_stride);
            }
        }
    }
}

/* Transposes rows of which equal quads lie side by side, four at a time: a store then has four
 * quads instead of one. There may be no memory beyond the last block. Blocks that end less than 15
 * bytes before the end are therefore transposed row by row, copied and with zeros after them. */
static void transpose(const struct qk_transpose *job)
{
    const size_t block_bytes = job->channels * job->taps;
    const uint8_t *end =
        job->from + (job->rows - 1) * job->from_row_stride + job->k_blocks * block_bytes;
    uint8_t copy[QK_TRANSPOSE_CHANNELS * QK_TRANSPOSE_TAPS + 16];
    for (size_t i = 0; i < job->k_blocks; i++) {
        const uint8_t *from = job->from + i * block_bytes;
        uint8_t *to = job->to + i * job->taps * job->to_tap_stride;
        for (size_t row = 0, rows; row < job->rows; row += rows) {
            const size_t left = (size_t)(end - from);
            if (job->to_row_stride == QK_IGEMM_QUAD_BYTES && row + 4 <= job->rows &&
                left >= 3 * job->from_row_stride + block_bytes + 15) {
                rows = 4;
                transpose_block(job, 4, from, to, job->sums + row);
            } else if (left >= block_bytes + 15) {
                rows = 1;
                transpose_block(job, 1, from, to, job->sums + row);
            } else {
                rows = 1;
                memcpy(copy, from, block_bytes);
                memset(copy + block_bytes, 0, 15);
                transpose_block(job, 1, copy, to, job->sums + row);
            }
            from += rows * job->from_row_stride;
            to += rows * job->to_row_stride;
        }
    }
}

#endif
