/* The contract of Winograd's convolutions F(2x2, 3x3) and F(4x4, 3x3) in integers. They compute
 * convolutions with a kernel of 3 x 3 and strides of 1. For 16 positions they need 64 and 36
 * products, where other algorithms take 144.
 *
 * A tile is n x n positions, with n = 2 or 4. It reads (n + 2)^2 elements d of each channel of x,
 * and 3 x 3 weights g. It has (n + 2)^2 points:
 *
 *      V = B^T d B            words
 *      U = G g G^T            words
 *      M = sum of U * V       over channels, each of the points by itself
 *      y = A^T F M F A / s    the sums of the tile
 *
 * For n = 2, V is at most 4 * 128, U at most 9 * 128, F is 1, and s is 4:
 *
 *            1  0 -1  0            2  0  0
 *      B^T = 0  1  1  0        G = 1  1  1      A^T = 1  1  1  0
 *            0 -1  1  0            1 -1  1            0  1 -1 -1
 *            0  1  0 -1            0  0  2
 *
 * For n = 4, V is at most 100 * 128, U at most 49 * 128, F is a diagonal matrix, and s is 24 * 24:
 *
 *            4  0 -5  0  1  0         1  0  0           1  1  1  1  1  0
 *            0 -4 -4  1  1  0         1  1  1     A^T = 0  1 -1  2 -2  0
 *      B^T = 0  4 -4 -1  1  0     G = 1 -1  1           0  1  1  4  4  0
 *            0 -2 -1  2  1  0         1  2  4           0  1 -1  8 -8  1
 *            0  2 -1 -2  1  0         1 -2  4
 *            0  4  0 -5  0  1         0  0  1       F = 6 -4 -4  1  1 24
 *
 * Usually G has fractions, which integers lack. Here all sums are s times as large, and the last
 * step divides by s. Sums are exact, because arithmetic modulo 2^32 may wrap on the way. The odd
 * part of s, 9, has an inverse modulo 2^32. Rows of A^T F are divided by 2 or 4 where
 * all their numbers are, which leaves less to divide by. The even part of s (4 or 64) times y has
 * to fit in 32 bits. x is therefore taken less 128, so that |x| <= 128, and the bias corrects the
 * sums. |y| is then at most 128 times the sum of a row's |weights|, and so this sum is bounded by
 * QK_WINOGRAD_WEIGHTS_MAX. Weights are bytes, signed and without a zero point.
 *
 * M are matrix products of words (kernels/gemm/igemm.h, with quad_k 2). A quad has two channels, so
 * a slab of V has a quad for each tile. The product may be a kernel by rows or by position, whose
 * positions are tiles. Private to conv/. */
#pragma once

#include "kernels/gemm/igemm.h"

#define QK_WINOGRAD_POINTS_MAX 36
#define QK_WINOGRAD_TAPS 9
#define QK_WINOGRAD_LANES 8 /* tiles that a transform takes at a time */
#define QK_WINOGRAD_X_CENTRE 128
/* The largest sum of |weights| of an output channel, for tiles of n x n positions. */
#define QK_WINOGRAD_WEIGHTS_MAX(n) ((n) == 2 ? (1 << 22) - 1 : (1 << 18) - 1)
/* With more channels, the weights could be too large even for n = 2. */
#define QK_WINOGRAD_CHANNELS_MAX 3640
/* Transforms read rows of x, and write rows of y, for whole vectors of tiles. */
#define QK_WINOGRAD_PITCH(n, tile_columns) (((tile_columns) + 7) / 8 * 8 * (n))

/* The job of transform_x: makes V of two channels. Tile (i, j) of a channel reads n + 2
 * rows from n * i on, and n + 2 columns from n * j on. Its quad has index i * tile_columns + j. The
 * transform may also read columns up to QK_WINOGRAD_PITCH + 3, and write up to LANES - 1 quads
 * beyond the last one. */
struct qk_winograd_x {
    const uint8_t *x[2]; /* the padded rows of each channel */
    size_t row_bytes;
    size_t tile_rows, tile_columns;
    uint8_t flip;       /* xored with each byte, which makes x unsigned; 128 is then subtracted */
    uint8_t *quads;     /* of the first point */
    size_t point_bytes; /* from the quads of one point to those of the next */
};

/* The job of transform_sums: makes sums from M of `rows` rows. M has the layout of a tile of sums
 * (kernels/gemm/igemm.h) for each point, with a position for each tile. Position (i, j) of y has
 * index i * pitch + j.
 *
 * By rows, M is [points][mr][QK_IGEMM_NR], and `pitch` is QK_WINOGRAD_PITCH. The sums are tiles by
 * rows, too: tile index / QK_IGEMM_NR, and position index % QK_IGEMM_NR of that tile. The transform
 * may read LANES - 1 elements beyond M, and writes whole pitches.
 *
 * By position, M is [points][nr][mr], and `pitch` is n * tile_columns. The sums are
 * [positions][mr]. The transform takes and writes whole vectors of rows. */
struct qk_winograd_sums {
    const int32_t *products;
    const struct qk_igemm *igemm; /* says mr, nr and whether M is by position */
    size_t rows;
    size_t tile_rows, tile_columns;
    int32_t *sums;
};

/* What the weights of an output channel add up to: the weights, and their absolute values. */
struct qk_winograd_row {
    int32_t sum;
    uint32_t size;
};

struct qk_winograd {
    const struct qk_igemm *igemm; /* with quad_k 2 */
    const char *kernel;           /* the name of a plan's kernel */
    size_t n;                     /* a tile is n x n positions */
    size_t points;                /* (n + 2)^2 */
    /* The cycles of the transforms: for each 8 tiles of a row of a channel, for each kernel of 3 x
     * 3 weights, and for each 8 tiles of a row of an output channel, including the epilogue of
     * their sums. By position, these 8 tiles may lie in several rows. Measured on a Zen 3 (AVX2)
     * and a Zen 5 (AVX-512). */
    double x_cycles, kernel_cycles, sums_cycles;
    double terms_per_cycle; /* how many terms that CPU's product did in a cycle. On a CPU
                               whose product does half as many, transforms take twice the
                               cycles. 0: the cycles hold for every CPU */
    double product_speed;   /* a factor: how fast products are, compared with those in the L1
                               cache, because V comes from the L2 cache */
    double least_ns; /* igemm's least estimate at which this algorithm may be faster. Estimates of
                        less are too inexact. */
    void (*transform_x)(const struct qk_winograd_x *job);
    /* Makes U from `count` weights of each tap, a multiple of 32, at count * tap. U of a point is
     * at to_stride * point. */
    void (*transform_weights)(const int8_t *weights, size_t count, int16_t *to, size_t to_stride);
    void (*transform_sums)(const struct qk_winograd_sums *job);
    /* Adds up `count` weights, each of which is xored with `flip` first. */
    struct qk_winograd_row (*add_row)(const uint8_t *weights, size_t count, uint8_t flip);
};

/* The transforms in plain C, which define what all kernels compute. n is 2 or 4. */
void qk_winograd_x_scalar(size_t n, const struct qk_winograd_x *job);
void qk_winograd_weights_scalar(size_t n, const int8_t *weights, size_t count, int16_t *to,
                                size_t to_stride);
void qk_winograd_sums_scalar(size_t n, const struct qk_winograd_sums *job);
struct qk_winograd_row qk_winograd_row_scalar(const uint8_t *weights, size_t count, uint8_t flip);
struct qk_winograd_row qk_winograd_row__avx2(const uint8_t *weights, size_t count, uint8_t flip);

/* A backend may have an algorithm for each n: 2 and 4. An n of 0 ends the list. */
#define QK_WINOGRAD_SIZES 2
extern const struct qk_winograd qk_winograd__avx2[QK_WINOGRAD_SIZES];
extern const struct qk_winograd qk_winograd__avxvnni[QK_WINOGRAD_SIZES];
extern const struct qk_winograd qk_winograd__avx512vnni[QK_WINOGRAD_SIZES];
