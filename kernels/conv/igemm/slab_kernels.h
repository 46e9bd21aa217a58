/* What a convolution by integer products needs besides the products: kernels that lay x out as
 * slabs (fill), that make y of a tile's sums (epilogues), and that pack weights (transpose). There
 * is a set for each kind of quad and each vector unit. Private to conv/. */
#ifndef KERNELS_CONV_IGEMM_SLAB_KERNELS_H
#define KERNELS_CONV_IGEMM_SLAB_KERNELS_H

#include <string.h>

#include "kernels/conv/conv.h"
#include "kernels/conv/window.h"
#include "kernels/gemm/igemm.h"

/* fill: makes the quads of some slabs, which differ in nothing but their planes. Quad (i, j) lies
 * at i * pitch + j and holds element (i, j) of each of its sources: a source is a window of a
 * plane, and there are as many as a quad has terms. Elements outside the plane are padding. Nothing
 * outside the planes is read. Quads between the end of a row and the next one's beginning, where
 * the pitch leaves some, may become anything. */
struct qk_slab_fill {
    size_t slabs;                       /* at least 1 */
    size_t slab_bytes;                  /* from one slab's quads to the next one's */
    const uint8_t *planes[4];           /* of each source; all NULL: everything is padding */
    size_t plane_step;                  /* bytes from a source's plane to that of the next slab */
    const struct qk_window *windows[4]; /* alike, but for column_first and inside_columns */
    /* What every byte is xored with: makes x unsigned or, where the products want that, signed. For
     * words, which are x less its zero point, it makes x unsigned first. */
    uint8_t flip;
    int32_t x_zero_point; /* what padding holds, before that; subtracted where quads are words */
    uint8_t *quads;
};

/* Whether the four sources of a quad are neighbouring bytes of one plane, so that a quad is a
 * 4-byte word of x. */
static inline bool qk_slab_sees_words(const struct qk_slab_fill *job)
{
    bool words = true;
    for (int k = 1; k < 4; k++)
        words = words && job->planes[k] == job->planes[0] &&
                job->windows[k]->column_first == job->windows[0]->column_first + k;
    return words;
}

/* Fills `count` quads that are words of x, `stride` bytes apart. Words one by one take no more time
 * than a gather, which microcode has made slow on many a CPU. */
static inline void qk_slab_copy_words(const uint8_t *from, int64_t stride, size_t count,
                                      uint8_t flip, uint8_t *to)
{
    const uint32_t flips = flip * UINT32_C(0x01010101);
    for (size_t i = 0; i < count; i++, from += stride, to += QK_IGEMM_QUAD_BYTES) {
        uint32_t quad;
        memcpy(&quad, from, sizeof(quad));
        quad ^= flips;
        memcpy(to, &quad, sizeof(quad));
    }
}

/* Positions of a tile that are neighbours in y, in order, though there may be padding between them:
 * those of one image. */
struct qk_tile_segment {
    uint64_t keep; /* bit p is set where padded position p of the tile is one of them; not 0 */
    size_t offset; /* of the first of them, from qk_epilogue_tile.y */
};

/* epilogues: a function for each kind, which makes y of a tile of sums. A sum is sum + bias -
 * w_zero_point * column_sum, modulo 2^32; it becomes what the epilogue says, and goes to y where
 * the segments want it. Sums and column sums behind the last position are readable, whatever they
 * are: QK_IGEMM_NR in all or, with row_count, up to a multiple of 4. */
struct qk_epilogue_tile {
    const struct qk_epilogue *epilogue;
    const int32_t *sums; /* [rows][QK_IGEMM_NR], or with row_count [positions][row_count] */
    size_t row_count;    /* 0: sums lie row by row */
    size_t positions;    /* that are wanted, or lie before one: 1 to 64, or with row_count to 16 */
    size_t rows;
    const int32_t *bias; /* this and the next two: [rows] */
    const float *multiplier;
    const int32_t *w_zero_point; /* NULL: 0 for all, as always where quads are words */
    const int32_t *column_sums;  /* [positions], read where there is a w_zero_point */
    const struct qk_tile_segment *segments;
    size_t segment_count;
    uint8_t *y;      /* of row 0 */
    size_t y_stride; /* from row to row, in elements of y, as a segment's offset is */
};

/* transpose: turns weights from [k_blocks][channels][taps], as they come, into [k_blocks][taps][64
 * bytes], as steps want them, with zeros behind the channels; for each of some rows, which are
 * output channels. A K block has up to 64 channels here. */
struct qk_transpose {
    const uint8_t *from;
    size_t rows, from_row_stride;
    size_t k_blocks;
    size_t channels; /* 1 to 64 */
    size_t taps;     /* 1 to QK_TRANSPOSE_TAPS */
    uint8_t flip;    /* every byte is xored with it: 0x80 makes unsigned weights signed ones */
    uint8_t *to;
    size_t to_row_stride, to_tap_stride;
    /* From one quad of a row to the next one's, and how many of each tap are written. Either the
     * quads of a row lie together, all 16; or those of neighbouring rows do. */
    size_t to_quad_stride, quads;
    bool pairs;    /* of quads lie side by side, as qk_igemm has them; only for backends that do */
    int32_t *sums; /* [rows]: the sum of each row's weights is added */
};

/* Where the quads of a row lie, from its first one on. */
static inline size_t qk_transpose_quad_at(const struct qk_transpose *job, size_t quad)
{
    const size_t second = job->pairs ? quad % 2 : 0;
    return (quad - second) * job->to_quad_stride + second * QK_IGEMM_QUAD_BYTES;
}

#define QK_TRANSPOSE_TAPS 64
#define QK_TRANSPOSE_CHANNELS 64

struct qk_slab_kernels {
    void (*fill)(const struct qk_slab_fill *job);
    void (*epilogues[QK_EPILOGUE_KIND_COUNT])(const struct qk_epilogue_tile *tile);
    void (*transpose)(const struct qk_transpose *job); /* NULL: the packer does it */
};

/* The definitions, in plain C. Quads have 4 terms or 2. */
void qk_slab_fill_scalar(size_t quad_k, const struct qk_slab_fill *job);
void qk_requantize_tile_scalar(const struct qk_epilogue_tile *tile);
void qk_transpose_scalar(const struct qk_transpose *job);

/* By what a quad holds: 2 signed 16-bit words, x less its zero point; or 4 bytes. */
extern const struct qk_slab_kernels qk_slab_kernels_u8x4__scalar;
extern const struct qk_slab_kernels qk_slab_kernels_s16x2__avx2;
extern const struct qk_slab_kernels qk_slab_kernels_u8x4__avx2;
extern const struct qk_slab_kernels qk_slab_kernels_u8x4__avx512bw;
extern const struct qk_slab_kernels qk_slab_kernels_u8x4__avx512vbmi;
extern const struct qk_slab_kernels qk_slab_kernels_u8x4__neon;

#endif
