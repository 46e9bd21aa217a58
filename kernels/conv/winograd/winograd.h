/* The contract of Winograd's convolution F(2x2, 3x3) in integers. It computes convolutions with a
 * kernel of 3 x 3 and strides of 1 by 16 products for 4 positions, where other algorithms take 36.
 *
 * A tile is 2 x 2 positions. It reads 4 x 4 elements d of each channel of x, and 3 x 3 weights g:
 *
 *      V = B^T d B          16 words, |v| <= 4 * 255
 *      U = (2G) g (2G)^T    16 words, |u| <= 9 * 128
 *      M = sum of U * V     over channels, each of the 16 points by itself
 *      4 y = A^T M A        the 4 sums of the tile
 *
 *            1  0 -1  0            2  0  0
 *      B^T = 0  1  1  0       2G = 1  1  1      A^T = 1  1  1  0
 *            0 -1  1  0            1 -1  1            0  1 -1 -1
 *            0  1  0 -1            0  0  2
 *
 * Usually G has halves, which integers lack. 2G makes all sums four times as large, and the last
 * step divides by 4. Sums are exact, because arithmetic modulo 2^32 may wrap on the way: only 4 y
 * has to fit. |y| is at most 9 * C * 255 * 128, so C, the number of channels of a group, is at most
 * QK_WINOGRAD_CHANNELS_MAX. Weights are bytes, signed and without a zero point.
 *
 * M are 16 matrix products of words (kernels/gemm/igemm.h, with quad_k 2). A quad has two channels,
 * so a slab of V has a quad for each tile. Private to conv/. */
#ifndef KERNELS_CONV_WINOGRAD_WINOGRAD_H
#define KERNELS_CONV_WINOGRAD_WINOGRAD_H

#include "kernels/gemm/igemm.h"

#define QK_WINOGRAD_POINTS 16
#define QK_WINOGRAD_TAPS 9
#define QK_WINOGRAD_LANES 8 /* tiles that a transform takes at a time */
#define QK_WINOGRAD_CHANNELS_MAX 1827
/* Transforms read rows of x, and write rows of y, for whole vectors of tiles. */
#define QK_WINOGRAD_PITCH(tile_columns) (((tile_columns) + 7) / 8 * 16)

/* The job of transform_x: makes V of two channels. Tile (i, j) of a channel reads rows 2 * i to
 * 2 * i + 3 and columns 2 * j to 2 * j + 3. Its quad has index i * tile_columns + j. The transform
 * may also read columns up to QK_WINOGRAD_PITCH + 1, and write up to LANES - 1 quads beyond the
 * last one. */
struct qk_winograd_x {
    const uint8_t *x[2]; /* the padded rows of each channel */
    size_t row_bytes;
    size_t tile_rows, tile_columns;
    uint8_t flip;         /* xored with each byte, which makes x unsigned */
    int32_t x_zero_point; /* subtracted after `flip` */
    uint8_t *quads;       /* of the first point */
    size_t point_bytes;   /* from the quads of one point to those of the next */
};

/* The job of transform_sums: makes sums from M of `rows` rows. M has the layout of a tile of sums
 * by rows (kernels/gemm/igemm.h) for each point: [16][mr][QK_IGEMM_NR], with a position for each
 * tile of 2 x 2. The sums are tiles by rows, too. Position (i, j) of y has index i * pitch + j,
 * where `pitch` is QK_WINOGRAD_PITCH: tile index / QK_IGEMM_NR, and position index % QK_IGEMM_NR of
 * that tile. The transform may read LANES - 1 elements beyond M, and writes whole pitches. */
struct qk_winograd_sums {
    const int32_t *products;
    size_t mr, rows;
    size_t tile_rows, tile_columns;
    int32_t *sums;
};

struct qk_winograd {
    const struct qk_igemm *igemm; /* by rows, with quad_k 2 */
    void (*transform_x)(const struct qk_winograd_x *job);
    /* Makes U from `count` weights of each tap, a multiple of 32, at count * tap. U of a point is
     * at count * point. */
    void (*transform_weights)(const int8_t *weights, size_t count, int16_t *to);
    void (*transform_sums)(const struct qk_winograd_sums *job);
};

/* The transforms in plain C, which define what all kernels compute. */
void qk_winograd_x_scalar(const struct qk_winograd_x *job);
void qk_winograd_weights_scalar(const int8_t *weights, size_t count, int16_t *to);
void qk_winograd_sums_scalar(const struct qk_winograd_sums *job);

extern const struct qk_winograd qk_winograd__avx2;

#endif
