/* The kernels that an igemm convolution needs besides the products: `fill` lays out x as slabs,
 * `epilogues` compute y from the sums of a tile, and `transpose` packs weights. There is a set for
 * each kind of quad and each vector unit. Private to conv/. */
#pragma once

#include <string.h>

#include "kernels/conv/conv.h"
#include "kernels/conv/window.h"
#include "kernels/gemm/igemm.h"

/* The job of `fill`, which makes the quads of some slabs. The slabs differ only in their planes.
 * Quad (i, j) lies at i * pitch + j. It has a term from each source: term k is element (i, j) of
 * windows[k], which is a window of planes[k]. Elements outside the plane are padding. `fill` reads
 * nothing outside x, in which all planes lie. It may write anything to quads between the end of a
 * row and the beginning of the next one, if the pitch leaves any. */
struct qk_slab_fill {
    const uint8_t *x;
    size_t x_bytes;
    size_t slabs;                       /* at least 1 */
    size_t slab_bytes;                  /* bytes between the first quads of two slabs */
    const uint8_t *planes[4];           /* one for each source; all NULL: everything is padding */
    size_t plane_step;                  /* bytes between a source's planes for two slabs */
    const struct qk_window *windows[4]; /* they differ only in column_first and inside_columns */
    /* Every byte is xored with `flip`, which makes x unsigned or, for products of signed bytes,
     * signed. If quads are words, `flip` makes x unsigned, and the words are x less its zero point.
     */
    uint8_t flip;
    int32_t x_zero_point; /* the value of padding before `flip`; subtracted if quads are words */
    uint8_t *quads;
};

/* Returns true if the four terms of every quad are neighbouring bytes of one plane. A quad is then
 * a 4-byte word of x, and can be copied. */
static inline bool qk_slab_sees_words(const struct qk_slab_fill *job)
{
    bool words = true;
    for (int k = 1; k < 4; k++)
        words = words && job->planes[k] == job->planes[0] &&
                job->windows[k]->column_first == job->windows[0]->column_first + k;
    return words;
}

/* Fills `count` quads that are words of x, `stride` bytes apart. Copying word by word takes no more
 * time than a gather, which microcode has made slow on many CPUs. */
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

/* The positions of a tile that belong to one image. They are contiguous in y, although there may be
 * padding between them in the tile. */
struct qk_tile_segment {
    uint64_t keep; /* bit p is set if padded position p of the tile belongs to the segment; not 0 */
    size_t offset; /* of the first of these positions, from qk_epilogue_tile.y, in positions */
};

/* The job of `epilogues`, which computes y from a tile of sums, with a function for each kind of
 * epilogue. It takes sum + bias - w_zero_point * column_sum, modulo 2^32, converts it as the
 * epilogue says, and stores it at the place in y that the segments give. Sums and column sums can
 * be read for QK_IGEMM_NR positions or, with row_count, for `positions` rounded up to a multiple of
 * 4. Values beyond the last position do not matter. */
struct qk_epilogue_tile {
    const struct qk_epilogue *epilogue;
    const int32_t *sums; /* [rows][QK_IGEMM_NR], or with row_count [positions][row_count] */
    size_t row_count;    /* 0: sums lie row by row */
    size_t positions;    /* padded positions: 1 to 64 or, with row_count, 1 to 16 (see
                            `takes_64_positions`) */
    size_t rows;
    const int32_t *bias; /* bias, multiplier and w_zero_point: [rows] */
    const float *multiplier;
    const int32_t *w_zero_point; /* NULL: all are 0, or quads are words and weights are stored less
                                    their zero points */
    const int32_t *column_sums;  /* [positions], read only if w_zero_point is not NULL */
    const struct qk_tile_segment *segments;
    size_t segment_count;
    uint8_t *y;             /* of row 0 */
    size_t y_stride;        /* from one row to the next, in elements of y */
    size_t position_stride; /* from one position to the next, in elements of y. `epilogues` take
                               only 1; `any_epilogue` takes others if y_stride is 1 */
};

/* The job of `transpose`, which packs the weights of some rows (output channels). It turns each row
 * from the caller's [k_blocks][channels][taps] into the [k_blocks][taps][64 bytes] of steps, with
 * zeros after the channels. A K block has up to 64 channels here. */
struct qk_transpose {
    const uint8_t *from;
    size_t rows, from_row_stride;
    size_t k_blocks;
    size_t channels; /* 1 to 64 */
    size_t taps;     /* 1 to QK_TRANSPOSE_TAPS */
    uint8_t flip;    /* every byte is xored with this: 0x80 makes unsigned weights signed */
    uint8_t *to;
    size_t to_row_stride, to_tap_stride;
    /* Bytes from one quad of a row to the next, and how many quads are written for each tap. Either
     * all 16 quads of a row lie together (AMX), or equal quads of neighbouring rows do. */
    size_t to_quad_stride, quads;
    bool pairs;    /* quads of a pair lie side by side; only if the backend's qk_igemm has pairs */
    int32_t *sums; /* [rows]; the sum of each row's weights is added */
};

/* Returns the offset of a quad from the first quad of its row, in bytes. */
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
    bool takes_64_positions; /* `epilogues` take up to 64 positions with row_count, too */
    /* Like all `epilogues`, but not as fast as some of them. Also takes tiles of convolutions whose
     * channels are last. */
    void (*any_epilogue)(const struct qk_epilogue_tile *tile);
    void (*transpose)(const struct qk_transpose *job); /* NULL: weights are packed quad by quad */
};

/* The functions in plain C, which define what all kernels compute. quad_k is 4 or 2. */
void qk_slab_fill_scalar(size_t quad_k, const struct qk_slab_fill *job);
void qk_requantize_tile_scalar(const struct qk_epilogue_tile *tile);
void qk_transpose_scalar(const struct qk_transpose *job);

/* The functions that are `any_epilogue` of the backends, plain C for each tier. */
void qk_any_epilogue__scalar(const struct qk_epilogue_tile *tile);
void qk_any_epilogue__avx2(const struct qk_epilogue_tile *tile);
void qk_any_epilogue__avx512bw(const struct qk_epilogue_tile *tile);
void qk_any_epilogue__neon(const struct qk_epilogue_tile *tile);

/* Named by what a quad holds: 2 signed 16-bit words, which are x less its zero point, or 4 bytes.
 */
extern const struct qk_slab_kernels qk_slab_kernels_u8x4__scalar;
extern const struct qk_slab_kernels qk_slab_kernels_s16x2__avx2;
extern const struct qk_slab_kernels qk_slab_kernels_u8x4__avx2;
extern const struct qk_slab_kernels qk_slab_kernels_u8x4__avx512bw;
extern const struct qk_slab_kernels qk_slab_kernels_u8x4__avx512vbmi;
extern const struct qk_slab_kernels qk_slab_kernels_u8x4__neon;
