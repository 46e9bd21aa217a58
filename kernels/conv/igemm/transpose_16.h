/* Transposes weights for packing (struct qk_transpose in slab_kernels.h), 16 channels at a time.
 * Only for slab_kernels_avx2.c and slab_kernels_neon.c, which define these names before they
 * include this file, besides those that slab_kernels_16.h names:
 *
 * - xor_16: a xor b;
 * - zip_low_16 and zip_high_16: the first, or last, 8 bytes of a and b by turns;
 * - sum_16: the sum of 16 signed bytes. */
#ifndef KERNELS_CONV_IGEMM_TRANSPOSE_16_H
#define KERNELS_CONV_IGEMM_TRANSPOSE_16_H

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

/* Stores the quads of a tap. Returns the sum of its weights. */
static inline int32_t store_tap(const struct channels *channels, bytes_16 tap, uint8_t flip,
                                uint8_t *to)
{
    const bytes_16 bytes = select_16(channels->there, xor_16(tap, splat_16(flip)), splat_16(0));
    uint8_t quads[CHUNK];
    store_16(quads, bytes);
    for (size_t i = 0; i < channels->quads; i++)
        memcpy(to + channels->at[i], quads + i * QK_IGEMM_QUAD_BYTES, QK_IGEMM_QUAD_BYTES);
    return sum_16(bytes);
}

/* Transposes one K block of a row and returns the sum of its weights. Reads up to 15 bytes beyond
 * the block. */
static int32_t transpose_block(const struct qk_transpose *job, const uint8_t *from, uint8_t *to)
{
    int32_t sum = 0; /* of at most 64 x 64 weights */
    for (size_t first = 0; first < 4 * job->quads; first += CHUNK) {
        const struct channels channels = channels_from(job, first);
        for (size_t tap = 0; tap < job->taps; tap += 16) {
            const size_t taps = qk_size_min(job->taps - tap, 16);
            const uint8_t *at = from + first * job->taps + tap;
            bytes_16 v[16];
            if (job->taps == 1) { /* channels are in order already */
                v[0] = channels.count > 0 ? load_16(at) : splat_16(0);
            } else {
                for (size_t i = 0; i < 16; i++)
                    v[i] = i < channels.count ? load_16(at + i * job->taps) : splat_16(0);
                transpose_bytes(v);
            }
            for (size_t t = 0; t < taps; t++)
                sum += store_tap(&channels, v[t], job->flip, to + (tap + t) * job->to_tap_stride);
        }
    }
    return sum;
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
        uint32_t sum = (uint32_t)job->sums[row];
        for (size_t i = 0; i < job->k_blocks; i++) {
            const bool near = (size_t)(end - from) < block_bytes + 15;
            if (near) {
                memcpy(copy, from, block_bytes);
                memset(copy + block_bytes, 0, 15);
            }
            sum += (uint32_t)transpose_block(job, near ? copy : from, to);
            from += block_bytes;
            to += job->taps * job->to_tap_stride;
        }
        job->sums[row] = (int32_t)sum;
    }
}

#endif

#endif
