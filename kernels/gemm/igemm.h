/* Integer matrix products: the contract of a backend.
 *
 * A k-quad (quad) is 4 bytes: what one position has for `quad_k` neighbouring terms of a sum. A
 * slab is a row of quads, one for each position; slabs lie `slab_bytes` apart. A step is up to
 * `step_slabs` slabs one behind the other, read from some position on; a sum is a list of steps.
 *
 *                position 0   1   2   3
 *     slab 0     [ k0..k3 ][    ][    ][    ] ...   4 bytes of x in a quad, unsigned or,
 *     slab 1     [ k4..k7 ][    ][    ][    ] ...   with x_signed, signed; or 2 signed words
 *     ...
 *
 *     sums[row][position] (+)= sum over steps, their slabs and k of
 *         weight[row][step][slab][k] * quad[slab][position][k], modulo 2^32
 *
 * What a slab holds is the caller's affair. In a convolution it is four channels of a padded plane
 * of x, and each tap of the kernel is a step: the same slabs, read from another position on. So no
 * matrix of x is ever made.
 *
 * One product makes a tile of up to `mr` rows by `nr` positions. Weights are packed for it in
 * panels of mr rows, as bytes or words of the size of x's; step by step, and there
 *
 *     weight (row, slab, 0) is at slab * quad_stride + row * row_stride
 *
 * or, where slabs go by pairs, at qk_igemm_weight_at: a row has the quads of both side by side. So
 * kernel, tile and packing travel in one struct, and no kernel meets another's weights. Weights of
 * slabs that a step lacks are 0. Weights of rows that a panel lacks may be anything.
 *
 * Some kernels multiply slabs of wide weights in another way: weights whose products could leave a
 * 16-bit word. Such a kernel has `mark_wide`, which the packer calls once for each step of a packed
 * panel. Behind the steps of a panel then lie a word for each step, whose bit i says that slab i
 * has wide weights, and behind these as many bytes as all steps have: room for what `mark_wide`
 * makes of wide weights. A word of 0 is always right for weights of 0 and 1.
 *
 * Kernels are of two kinds. By rows, a vector holds 16 positions of one row, and meets one weight;
 * the sums of a tile lie row by row, QK_IGEMM_NR apart. By position, a vector holds 16 rows of one
 * position, and meets one quad; the sums lie position by position, mr apart, and a tile may have
 * any number of positions.
 *
 * A few positions would leave most lanes of a vector unused. Where a backend has `dot`, their quads
 * may instead be gathered in the order of the weights, all quads of one position and then those of
 * the next, and each sum is a dot product. There, quads of slabs that a step lacks hold anything.
 *
 * Memory: quads and sums are aligned to 4 bytes, weights and slab_bytes to 64. A slab can be read
 * for all positions of whole vectors, wanted or not. For `dot`, a panel can be read up to the next
 * multiple of QK_IGEMM_SLACK bytes, whatever is there, and so many bytes behind the gathered quads
 * of each position, which are 0. Where `whole_steps` is set, a kernel reads as many slabs in each
 * step as the longest step has; those that a shorter step lacks are garbage that meets weights of
 * 0.
 */
#ifndef KERNELS_GEMM_IGEMM_H
#define KERNELS_GEMM_IGEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QK_IGEMM_VECTOR 16 /* positions that a kernel by rows takes at a time */
#define QK_IGEMM_NR 64     /* positions of the largest tile */
#define QK_IGEMM_MR_MAX 32 /* rows of the largest panel, and so of the largest tile */
#define QK_IGEMM_QUAD_BYTES 4
#define QK_IGEMM_STEP_SLABS 16   /* at most: the rows of an AMX tile */
#define QK_IGEMM_REMAINDER_MAX 3 /* positions at a time in `dot`; 1 with whole_steps */
#define QK_IGEMM_SLACK 192

struct qk_igemm_step {
    uint32_t offset; /* bytes from qk_igemm_args.quads to the first quad of position 0 */
    uint32_t slabs;  /* at least 1 */
};

struct qk_igemm_args {
    const uint8_t *quads;
    size_t slab_bytes;
    const struct qk_igemm_step *steps;
    size_t step_count;
    const uint8_t *weights; /* of the panel, at the first step */
    size_t step_bytes;      /* of the weights */
    const uint32_t *wide;   /* with `mark_wide`: of the panel, at the first step; so is the next */
    const uint8_t *wide_weights;
    size_t rows;      /* 1 to mr */
    size_t vectors;   /* by rows: 1 to nr / QK_IGEMM_VECTOR */
    size_t positions; /* by position: 1 to nr; dot: 1 to QK_IGEMM_REMAINDER_MAX */
    /* What dot reads instead of slab_bytes, the steps' offsets, and vectors: */
    size_t step_slabs;     /* of the longest step: each step has so many gathered quads */
    size_t position_bytes; /* from one position's quads to the next one's */
    bool add;              /* add to what sums hold; false: overwrite it */
    /* [mr][QK_IGEMM_NR], or by position [nr][mr]. What lies beyond the tile may change. */
    int32_t *sums;
};

struct qk_igemm {
    size_t quad_k; /* 4: x and weights are bytes, weights signed ones; 2: both signed words */
    bool x_signed; /* with quad_k 4: x is signed bytes, too; false: unsigned ones */
    size_t mr, nr;
    bool by_position;
    size_t lanes; /* by position: rows of a vector */
    size_t part;  /* by position: a tile is made of parts of up to so many positions */
    size_t row_stride;
    size_t quad_stride;
    bool pairs; /* of slabs: row_stride is that of two quads, quad_stride half of a pair's */
    bool whole_steps;
    /* Makes what it needs of the weights of a step of `slabs` slabs, in a panel that has `rows`
     * rows, and may change them; `wide_weights` is the step's part of the room. Returns which of
     * the slabs have wide weights. NULL: nothing to do. */
    uint32_t (*mark_wide)(uint8_t *weights, size_t slabs, size_t rows, uint8_t *wide_weights);
    void (*multiply)(const struct qk_igemm_args *args);
    void (*dot)(const struct qk_igemm_args *args); /* NULL: there is none */
    /* Called on a thread before and after its products; the longest step of all of them has
     * step_slabs slabs. NULL: nothing to do. */
    void (*begin)(size_t step_slabs);
    void (*end)(void);
};

/* Where in a step's weights those of a row begin that meet a slab. */
static inline size_t qk_igemm_weight_at(const struct qk_igemm *igemm, size_t row, size_t slab)
{
    const size_t second = igemm->pairs ? slab % 2 : 0;
    return row * igemm->row_stride + (slab - second) * igemm->quad_stride +
           second * QK_IGEMM_QUAD_BYTES;
}

/* Bytes of one step's weights in a panel whose longest step has step_slabs slabs, where a group has
 * `rows` rows in all. A kernel that reads whole tiles reads one of 16 rows, or two. */
static inline size_t qk_igemm_step_bytes(const struct qk_igemm *igemm, size_t step_slabs,
                                         size_t rows)
{
    if (!igemm->whole_steps)
        return (step_slabs + (igemm->pairs ? step_slabs % 2 : 0)) * igemm->quad_stride;
    return (rows <= QK_IGEMM_STEP_SLABS ? QK_IGEMM_STEP_SLABS : igemm->mr) * igemm->row_stride;
}

/* Bytes of the words behind a panel's steps, in whole cache lines; 0: there are none. */
static inline size_t qk_igemm_wide_bytes(const struct qk_igemm *igemm, size_t steps)
{
    return igemm->mark_wide ? (steps * sizeof(uint32_t) + 63) / 64 * 64 : 0;
}

/* Sums that a tile has room for: whole vectors of positions, also where a kernel writes fewer. */
static inline size_t qk_igemm_tile_sums(const struct qk_igemm *igemm)
{
    return igemm->mr * ((igemm->nr + QK_IGEMM_VECTOR - 1) / QK_IGEMM_VECTOR * QK_IGEMM_VECTOR);
}

/* What `multiply` and `dot` of any layout give, by plain C: the definition. */
void qk_igemm_multiply_scalar(const struct qk_igemm *layout, const struct qk_igemm_args *args);
void qk_igemm_dot_scalar(const struct qk_igemm *layout, const struct qk_igemm_args *args);

extern const struct qk_igemm qk_igemm_u8s8_8x16__scalar; /* these, with a layout of their own */
extern const struct qk_igemm qk_igemm_s16s16_6x16__avx2;
extern const struct qk_igemm qk_igemm_u8s8_16x14__avx2;
extern const struct qk_igemm qk_igemm_u8s8_6x16__avxvnni;
extern const struct qk_igemm qk_igemm_u8s8_6x64__avx512vnni;
extern const struct qk_igemm qk_igemm_u8s8_32x14__avx512vnni;
extern const struct qk_igemm qk_igemm_u8s8_32x32__amx;
extern const struct qk_igemm qk_igemm_s8s8_6x8__neon;
extern const struct qk_igemm qk_igemm_s8s8_6x16__dotprod;
extern const struct qk_igemm qk_igemm_s8s8_12x8__i8mm;

#endif
