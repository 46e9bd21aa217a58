/* The contract of the kernels that multiply integer matrices for igemm convolutions.
 *
 * A k-quad (quad) is 4 bytes: `quad_k` neighbouring terms of a sum at one position. A slab is a row
 * of quads, one for each position. Slabs lie `slab_bytes` apart. A step is up to `step_slabs`
 * consecutive slabs, read from some position on. A sum is computed from a list of steps.
 *
 *                 position 0   1   2   3
 *      slab 0     [ k0..k3 ][    ][    ][    ] ...   4 bytes of x in a quad, unsigned or,
 *      slab 1     [ k4..k7 ][    ][    ][    ] ...   with x_signed, signed; or 2 signed words
 *      ...
 *
 *      sums[row][position] (+)= sum over steps, their slabs and k of
 *          weight[row][step][slab][k] * quad[slab][position][k], modulo 2^32
 *
 * The caller decides what a slab holds. In a convolution a slab holds four channels of a padded
 * plane of x. Each tap of the kernel is a step, which reads the same slabs from another position
 * on. So no im2col matrix of x is ever made.
 *
 * One call makes a tile of up to `mr` rows by `nr` positions. Weights are packed for the kernel in
 * panels of mr rows, step by step, as bytes or words, whichever x has. In a step
 *
 *      weight (row, slab, 0) is at slab * quad_stride + row * row_stride
 *
 * or, if slabs go by pairs, at qk_igemm_weight_at: each row has the quads of both slabs side by
 * side. Three layouts of a step, in quads (r1 s0 is that of row 1 for slab 0):
 *
 *      most kernels     r0 s0, r1 s0, ... | r0 s1, r1 s1, ... | r0 s2, ...
 *      pairs (SMMLA)    r0 s0, r0 s1, r1 s0, r1 s1, ...       | r0 s2, r0 s3, ...
 *      AMX              r0 s0, r0 s1, r0 s2, ... | r1 s0, r1 s1, ...
 *
 * One struct describes kernel, tile and packing, so that no kernel gets weights that are packed for
 * another. If a step has fewer slabs than the longest step, the weights of the missing slabs are 0.
 * If a panel has fewer than mr rows, the weights of the missing rows may be anything.
 *
 * Wide weights are weights whose products could leave a 16-bit word. AVX2 has a fast instruction
 * that multiplies u8 by s8 and adds two products in such a word. Weights of 7 bits always fit,
 * because 255 * 64 + 255 * 64 = 32640 is less than 2^15. Two weights of 100 do not. A kernel that
 * uses this instruction multiplies wide weights in another way. It has `mark_wide`, which the
 * packer calls once for each step of a packed panel. Two arrays then follow the steps of a panel.
 * The first has a struct qk_igemm_wide for each step, in which the kernel notes where the step has
 * wide weights. The second has the form that `mark_wide` gives to wide weights, step after step
 * without gaps: at most `wide_bytes` for each quad that `count_wide` counts. Weights of 0 and 1 are
 * never wide, so a panel of these needs no `mark_wide` if its first array is all 0.
 *
 * A kernel for matrices may have `arrange` instead. Its steps are then consecutive slabs, and all
 * but the last step have QK_IGEMM_STEP_SLABS. A chunk is up to QK_IGEMM_CHUNK_STEPS of these steps,
 * and the packer calls `arrange` once for each chunk of a packed panel. It puts the weights of the
 * slabs in another order, in which slabs with wide weights come first. An array of orders, of
 * QK_IGEMM_ORDER_BYTES for each chunk, follows the steps of a panel.
 *
 * There are two kinds of kernels. In a kernel by rows, a vector holds positions of one row and is
 * multiplied by one quad of weights. The caller counts positions in vectors of 16. The sums of a
 * tile lie row by row, and rows lie QK_IGEMM_NR sums apart. In a kernel by position, a vector holds
 * `lanes` rows of one position and is multiplied by one quad of x. The sums lie position by
 * position, and positions lie mr sums apart. A tile may have any number of positions up to nr.
 *
 * A kernel may have `stores_bytes`. It then also requantizes sums while they are in registers, and
 * stores bytes of y (struct qk_igemm_bytes). Of a product of 16 channels on AVX2, storing sums and
 * reading them again would take a quarter of the time.
 *
 * A tile with few positions would leave most lanes of a vector unused. If a kernel has `dot`, the
 * caller may gather the quads of these positions in the order of the weights: all quads of one
 * position, then all quads of the next. Each sum is then a dot product. If a step has fewer slabs
 * than the longest step, the gathered quads of the missing slabs may hold anything.
 *
 * Memory: quads and sums are aligned to 4 bytes, and weights to 64. slab_bytes is a multiple of 4
 * for kernels by position, and of 64 for all others. Kernels may read a slab for all positions of
 * whole vectors, even if fewer are wanted. Kernels by position that store bytes may read
 * a slab for all nr positions of a tile. `dot` may read a panel up to the next multiple of
 * QK_IGEMM_SLACK bytes; the bytes beyond the panel may hold anything. It may also read
 * QK_IGEMM_SLACK bytes beyond the gathered quads of each position; these bytes are 0. With
 * `whole_steps`, a kernel reads as many slabs in each step as the longest step has. The bytes that
 * it reads beyond the slabs of a shorter step may be anything: their weights are 0. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QK_IGEMM_VECTOR 16 /* positions that a kernel by rows takes at a time */
#define QK_IGEMM_NR 64     /* positions of the largest tile */
#define QK_IGEMM_MR_MAX 32 /* rows of the largest panel, and so of the largest tile */
#define QK_IGEMM_QUAD_BYTES 4
#define QK_IGEMM_STEP_SLABS 16         /* the most slabs of a step: the rows of an AMX tile */
#define QK_IGEMM_REMAINDER_MAX 3       /* the most positions of one call of `dot` */
#define QK_IGEMM_WHOLE_REMAINDER_MAX 4 /* the same with whole_steps */
#define QK_IGEMM_SLACK 192
#define QK_IGEMM_CHUNK_STEPS 8
#define QK_IGEMM_CHUNK_SLABS (QK_IGEMM_CHUNK_STEPS * QK_IGEMM_STEP_SLABS)
/* The index in the chunk of each slab, in the order of the weights; then the number of slabs with
 * wide weights, and bytes up to whole cache lines. */
#define QK_IGEMM_ORDER_BYTES (QK_IGEMM_CHUNK_SLABS + 64)

struct qk_igemm_step {
    uint32_t offset; /* bytes from qk_igemm_args.quads to the first quad of position 0 */
    uint32_t slabs;  /* at least 1 */
};

/* What `mark_wide` notes of a step. */
struct qk_igemm_wide {
    uint32_t marks;  /* the kernel's own; 0: the step has no wide weights */
    uint32_t offset; /* bytes from the panel's second array to the part of this step */
};

/* Where a kernel stores the bytes of a panel, and how it makes them: it adds the bias, multiplies,
 * rounds to nearest even, adds the zero point, and saturates, as kernels/conv/requantize.h says. No
 * clamp is needed before the conversion to an integer, because multipliers are between -1 and 1. */
struct qk_igemm_bytes {
    const int32_t *bias; /* bias and multiplier: [rows] */
    const float *multiplier;
    int32_t zero_point;
    bool is_signed;  /* bytes of y are signed */
    uint8_t *y;      /* of the first row and position */
    size_t y_stride; /* from one row to the next; positions are neighbours */
};

struct qk_igemm_args {
    const uint8_t *quads;
    size_t slab_bytes;
    const struct qk_igemm_step *steps;
    size_t step_count;
    const uint8_t *weights; /* the panel's weights, from the first step on */
    size_t step_bytes;      /* from one step's weights to those of the next */
    /* With `mark_wide`: the panel's first array, from the first step on, and its second array. */
    const struct qk_igemm_wide *wide;
    const uint8_t *wide_weights;
    const uint8_t *order; /* with `arrange`: the panel's orders, from the first chunk on */
    size_t rows;          /* 1 to mr */
    size_t vectors; /* by rows: how many vectors of positions, from 1 to nr / QK_IGEMM_VECTOR */
    /* By position: 1 to nr. By rows: the sums of further positions need not be computed, even if
     * they belong to the last vector. dot: 1 to the largest remainder. */
    size_t positions;
    /* `dot` reads the next two instead of slab_bytes, the steps' offsets, and vectors. */
    size_t step_slabs; /* slabs of the longest step; each step has this number of gathered quads */
    size_t position_bytes; /* from the quads of one position to those of the next */
    /* `dot` also reads how far the sums of two rows, and of two positions, lie apart: QK_IGEMM_NR
     * and 1, as in any tile by rows, or 1 and at least mr. */
    size_t sums_row, sums_position;
    bool add; /* true: adds to the values in `sums`; false: overwrites them */
    /* [mr][QK_IGEMM_NR], or by position [nr][mr]. Values outside the rows and positions of the call
     * may change. */
    int32_t *sums;
    /* With `stores_bytes`: the kernel stores these bytes instead of sums, and nothing beyond them.
     * `positions` is any number, `vectors` and `sums` are not used, and `add` is false. NULL: the
     * kernel stores sums. */
    const struct qk_igemm_bytes *bytes;
};

struct qk_igemm {
    size_t quad_k; /* 4: bytes, of which weights are signed; 2: signed words */
    bool x_signed; /* with quad_k 4: the bytes of x are signed, too; false: unsigned */
    size_t mr, nr;
    bool by_position;
    size_t lanes; /* by position: how many rows a vector holds. With `stores_bytes`: how many
                     positions a vector holds */
    size_t part;  /* by position: a larger tile is computed in parts of at most this number of
                     positions, each of which reads the weights again */
    size_t row_stride;
    size_t quad_stride;
    bool pairs; /* slabs go by pairs: row_stride is the size of two quads, and quad_stride is half
                   the distance between two pairs */
    bool whole_steps;
    /* Finds the wide weights of a step, and may change these weights. The step has `slabs` slabs,
     * and its panel `rows` rows. `wide_weights` is the step's part of the panel's second array.
     * Sets *marks, and returns how many bytes this part has. NULL: no weights are wide for this
     * kernel. */
    size_t (*mark_wide)(uint8_t *weights, size_t slabs, size_t rows, uint8_t *wide_weights,
                        uint32_t *marks);
    /* With `mark_wide`: returns how many quads of a row of weights are wide. The row has
     * [channels][taps] weights, each of which is xored with `flip` first. A quad is four channels
     * of a tap; the last channels may be fewer. */
    size_t (*count_wide)(const uint8_t *row, size_t channels, size_t taps, uint8_t flip);
    size_t wide_rows;  /* with `mark_wide`: how many rows of a slab are multiplied in the other way
                          if any of them has wide weights */
    size_t wide_bytes; /* with `mark_wide`: what these rows of a slab take in the second array */
    /* Writes the weights of a step as they were before `mark_wide`: [slab][pair of terms][row][2],
     * as signed bytes, into which words must fit. A slab of bytes has two pairs of terms, one of
     * words has one. Rows that the panel lacks may be anything. NULL: the kernel has no use for it.
     */
    void (*unpack)(const uint8_t *weights, size_t slabs, struct qk_igemm_wide wide,
                   const uint8_t *wide_weights, int8_t *to);
    /* Arranges the weights of a chunk of `slabs` slabs, and writes their order. NULL: the kernel
     * has no orders. A kernel has at most one of mark_wide and arrange. */
    void (*arrange)(uint8_t *weights, size_t slabs, size_t rows, uint8_t *order);
    void (*multiply)(const struct qk_igemm_args *args);
    void (*dot)(const struct qk_igemm_args *args); /* NULL: the kernel has none */
    /* A thread calls `set_up` before its products and `tear_down` after them. `step_slabs` is the
     * number of slabs of the longest of all steps. NULL: nothing to do. */
    void (*set_up)(size_t step_slabs);
    void (*tear_down)(void);
    bool stores_bytes; /* `multiply` takes `bytes`, too */
};

/* Returns the offset in a step's weights, in bytes, of the weights by which a row multiplies a
 * slab. */
static inline size_t qk_igemm_weight_at(const struct qk_igemm *igemm, size_t row, size_t slab)
{
    const size_t second = igemm->pairs ? slab % 2 : 0;
    return row * igemm->row_stride + (slab - second) * igemm->quad_stride +
           second * QK_IGEMM_QUAD_BYTES;
}

/* Returns the size of one step's weights in a panel, in bytes. `step_slabs` is the number of slabs
 * of the longest step, and `rows` the number of output channels of a group. A kernel with
 * whole_steps (AMX) reads weights as tiles of 16 rows. If the group has at most 16 rows, a panel
 * has only one of the two. */
static inline size_t qk_igemm_step_bytes(const struct qk_igemm *igemm, size_t step_slabs,
                                         size_t rows)
{
    if (!igemm->whole_steps)
        return (step_slabs + (igemm->pairs ? step_slabs % 2 : 0)) * igemm->quad_stride;
    return (rows <= QK_IGEMM_STEP_SLABS ? QK_IGEMM_STEP_SLABS : igemm->mr) * igemm->row_stride;
}

/* Returns the size of a panel's first array of wide weights, in bytes, rounded up to whole cache
 * lines. Returns 0 if the kernel has no mark_wide. */
static inline size_t qk_igemm_wide_bytes(const struct qk_igemm *igemm, size_t steps)
{
    return igemm->mark_wide ? (steps * sizeof(struct qk_igemm_wide) + 63) / 64 * 64 : 0;
}

/* Returns the size of the orders of a panel, in bytes. Returns 0 if the kernel has no arrange. */
static inline size_t qk_igemm_order_bytes(const struct qk_igemm *igemm, size_t steps)
{
    const size_t chunks = (steps + QK_IGEMM_CHUNK_STEPS - 1) / QK_IGEMM_CHUNK_STEPS;
    return igemm->arrange ? chunks * QK_IGEMM_ORDER_BYTES : 0;
}

/* Returns by how much two weights of a word are wide: how much the second one must come closer to 0
 * so that the products of both by 255 fit into a signed word. 0 if they fit. */
static inline int qk_igemm_excess(int a, int b)
{
    const int up = (a > 0 ? a : 0) + (b > 0 ? b : 0);
    const int down = (a < 0 ? a : 0) + (b < 0 ? b : 0);
    return up > 128 ? up - 128 : down < -128 ? down + 128 : 0;
}

/* Returns how many sums a tile has room for: whole vectors of positions, even if a kernel writes
 * fewer. */
static inline size_t qk_igemm_tile_sums(const struct qk_igemm *igemm)
{
    return igemm->mr * ((igemm->nr + QK_IGEMM_VECTOR - 1) / QK_IGEMM_VECTOR * QK_IGEMM_VECTOR);
}

/* Multiply in any layout, in plain C. These two functions define what `multiply` and `dot` compute.
 */
void qk_igemm_multiply_scalar(const struct qk_igemm *layout, const struct qk_igemm_args *args);
void qk_igemm_dot_scalar(const struct qk_igemm *layout, const struct qk_igemm_args *args);

extern const struct qk_igemm
    qk_igemm_u8s8_8x16__scalar; /* calls the two functions above, with a layout of its own */
extern const struct qk_igemm qk_igemm_s16s16_6x16__avx2;
extern const struct qk_igemm qk_igemm_u8s8_6x16__avx2;
extern const struct qk_igemm qk_igemm_u8s8_16x14__avx2;
extern const struct qk_igemm qk_igemm_u8s8_16x12__avx2; /* has `arrange`: for matrices only */
extern const struct qk_igemm qk_igemm_u8s8_6x16__avxvnni;
extern const struct qk_igemm qk_igemm_s16s16_6x16__avxvnni;
extern const struct qk_igemm qk_igemm_u8s8_6x64__avx512vnni;
extern const struct qk_igemm qk_igemm_u8s8_32x14__avx512vnni;
extern const struct qk_igemm qk_igemm_s16s16_32x14__avx512vnni;
extern const struct qk_igemm qk_igemm_u8s8_32x32__amx;
extern const struct qk_igemm qk_igemm_s8s8_6x8__neon;
extern const struct qk_igemm qk_igemm_s8s8_6x16__dotprod;
extern const struct qk_igemm qk_igemm_s8s8_12x8__i8mm;

/* For `dot`: adds up the sums of one position, of which lane i belongs to row i % mr. */
static inline void qk_igemm_add_lanes(const struct qk_igemm_args *args, size_t position,
                                      const uint32_t *lanes, size_t count, size_t mr)
{
    for (size_t row = 0; row < args->rows; row++) {
        int32_t *to = args->sums + row * args->sums_row + position * args->sums_position;
        uint32_t sum = args->add ? (uint32_t)*to : 0;
        for (size_t lane = row; lane < count; lane += mr)
            sum += lanes[lane];
        *to = (int32_t)sum;
    }
}
