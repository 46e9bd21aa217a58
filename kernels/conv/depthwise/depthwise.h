/* Depthwise convolutions, where a group has one channel. There a sum has only the taps of one
 * channel, so lanes of vectors are positions, as in igemm, and one product takes up to four taps
 * that follow each other in a row of the kernel. Private to conv/.
 *
 * What a unit sees of a channel is first laid out as quads of four bytes, padding included: a quad
 * has what four taps see from one position. A row of quads has a quad for each position of a row,
 * and the rows of quads of all rows follow each other, so that the positions of a unit are one row
 * of lanes, and another row of taps is only an offset (as in kernels/conv/igemm/slabs.h). All quads
 * of one channel are a channel buffer:
 *
 *     x, 3 columns     quads of a kernel of 3 columns, pad 1     products of the first row of taps
 *     a b c            .ab abc bc.                               read from quad 0 on, of the second
 *     d e f            .de def ef.                               from quad 3 on, ...
 *
 * Rows of quads without gaps are the rule. Where few lanes are lost by it, rows of quads have a
 * pitch that keeps vectors of quads from crossing cache lines.
 *
 * A row of taps that is wider than a quad has several quads (row_quads). Each of these either has
 * an array of rows of quads of its own or, where the unit is a single row or parts of rows, they
 * share rows of quads that are longer.
 *
 * With a stride, few taps could share a quad. So small planes with a stride are laid out as rows of
 * x with their padding instead, and each product permutes what it has loaded of these into quads.
 * The smallest planes, of which a vector holds a whole one, are not laid out at all: each product
 * permutes the plane.
 *
 * Which bytes of x make which quads is the same for all channels of a unit, and for all rows of
 * quads of a phase. So it is worked out once, as a permutation by which one load of x makes 16
 * quads.
 *
 * All this is for vectors of 16 lanes. On vectors of 8 (kernels/conv/depthwise/kernel_8.h) a load
 * has 16 bytes and makes 4 quads. There rows of quads have no gaps, strided planes are quads as all
 * others, and where only words can be multiplied, a product takes two taps.
 */
#ifndef KERNELS_CONV_DEPTHWISE_DEPTHWISE_H
#define KERNELS_CONV_DEPTHWISE_DEPTHWISE_H

#include "kernels/conv/backend.h"
#include "kernels/conv/stride_phases.h"

enum {
    QK_DEPTHWISE_TAPS = 4,   /* bytes of a quad */
    QK_DEPTHWISE_LANES = 16, /* quads of a vector */
    QK_DEPTHWISE_BYTES = QK_DEPTHWISE_TAPS * QK_DEPTHWISE_LANES,
    QK_DEPTHWISE_LOAD_8 = 16, /* bytes of a load for vectors of 8 lanes */
    QK_DEPTHWISE_OUTPUTS = 16 /* output channels whose weights are made at a time */
};

/* How the quads of a channel lie in its channel buffer: rows of quads, ordered by array, plane,
 * phase of rows and row. */
struct qk_depthwise_layout {
    size_t load_bytes; /* of x, which a permutation makes quads of */
    size_t halves; /* of a channel buffer: 2 where quads may be words; each half has every second
                      tap */
    /* Positions of a full unit. Several rows are whole ones, unless partial_rows: then the unit has
     * a part of each of its rows, and lanes are computed row by row. */
    size_t rows, columns;
    bool partial_rows;
    size_t taps;      /* of a quad, at most */
    size_t row_quads; /* of a row of taps */
    /* Arrays of rows of quads: one for each of row_quads, or one for all; then these are `shift`
     * quads apart. */
    size_t arrays;
    size_t shift;
    size_t planes;               /* taps of the outer axes: each sees a plane of its own */
    struct qk_stride_phases row; /* phases of the row axis */
    size_t quad_rows;            /* of a phase */
    size_t width;                /* quads of a row of quads */
    size_t pitch; /* quads from one row to the next; divides 64 unless it is `width` */
    /* A channel buffer has no quads, but rows of x with their padding, row_bytes apart. */
    bool padded_rows;
    size_t row_bytes;
    size_t step; /* bytes in a channel buffer from one vector of lanes to the next */
    size_t buffer_bytes;
    size_t batch; /* channels whose buffers are there at a time */
    /* Byte 4 i + t is where tap t of quad i looks, counted from where tap 0 of quad 0 does. */
    uint8_t order[QK_DEPTHWISE_BYTES];
};

/* How the weights of an output channel, which are packed densely, become the weights of 16 quads:
 * by a permutation of some of them. */
struct qk_depthwise_weight_order {
    uint8_t order[QK_DEPTHWISE_BYTES];
    uint64_t mask; /* bytes that are taps; the others become 0 */
    size_t from;   /* the tap that byte 0 of `order` counts from */
};

/* Loads of x that make vectors of up to 16 quads by the same permutation: `count` of them,
 * offset_step bytes apart in a channel, whose quads are to_step bytes apart in its channel buffer.
 * Those quads that `mask` leaves out, and what a vector has behind its quads, become fill. One
 * vector may overwrite what the one before it has written behind its quads. */
struct qk_depthwise_load_pattern {
    uint8_t order[QK_DEPTHWISE_BYTES];
    uint64_t mask;
    size_t offset, offset_step;
    size_t to, to_step;
    size_t count;
};

/* The parts of a unit's workspace. */
struct qk_depthwise_workspace {
    struct qk_depthwise_load_pattern *patterns;
    uint8_t *weights; /* [QK_DEPTHWISE_OUTPUTS] quads of output channels, in whole vectors */
    uint8_t *ones;    /* quads of an output channel whose weights are all 1; or orders of weights */
    uint8_t *buffers; /* [batch], and room for a vector behind the last */
};

/* Some output channels and positions: what one unit computes. */
struct qk_depthwise_job {
    const struct qk_depthwise_layout *layout;
    const struct qk_conv_geometry *geometry;
    struct qk_depthwise_workspace work;
    size_t outer; /* position of the axes before the last two */
    size_t row, rows, column, columns;
    /* What padding holds; an xor with `flip` makes it and x what products take: unsigned bytes or,
     * where x_signed is set, signed ones. */
    uint8_t fill, flip;
    bool x_signed;

    const uint8_t *x, *x_end; /* the unit's first channel; where all of x ends */
    size_t channels;          /* of x */
    size_t multiplicity;      /* output channels for each of them */
    size_t depth;             /* taps of an output channel */
    size_t quads;
    const uint32_t *offsets; /* [quads]: where in a channel buffer to read */
    const struct qk_depthwise_weight_order *weight_orders; /* one for each 16 quads */
    const uint8_t *weights;      /* [output channels][depth], signed; QK_DEPTHWISE_BYTES more may be
                                    read */
    const int32_t *w_zero_point; /* this and the next two: [output channels] */
    bool any_zero_point;
    const int32_t *bias;
    const float *multiplier;
    const struct qk_epilogue *epilogue;
    uint8_t *y;      /* the first position of the first output channel */
    size_t y_stride; /* to the next output channel's */
};

/* How many taps of a row of the kernel a quad can have, such that a load makes as many bytes of
 * quads as it has; 0: not even one. */
size_t qk_depthwise_count_taps(int64_t kernel, int64_t stride, int64_t dilation, size_t load_bytes);

/* Chooses what a unit has, and how its quads lie. */
void qk_depthwise_lay_out(struct qk_depthwise_layout *layout,
                          const struct qk_conv_geometry *geometry, size_t depth, size_t load_bytes);

/* How many rows of quads a channel buffer has. */
static inline size_t qk_depthwise_quad_rows(const struct qk_depthwise_layout *layout)
{
    return layout->arrays * layout->planes * layout->row.phases * layout->quad_rows;
}

/* Where in a channel buffer the quads of a tap begin: of the given plane and row of the kernel, and
 * `column`, a number of row_quads. */
size_t qk_depthwise_quad(const struct qk_depthwise_layout *layout,
                         const struct qk_conv_geometry *geometry, size_t plane, size_t row,
                         size_t column);

/* Whether depthwise can serve this convolution on its backend. */
bool qk_conv_is_depthwise(const struct qk_conv *conv);

/* The depthwise kernel of a backend. */
struct qk_depthwise {
    const char *kernel; /* as the answer has it */
    size_t load_bytes;  /* QK_DEPTHWISE_BYTES or QK_DEPTHWISE_LOAD_8 */
    bool x_signed;
    double cycles; /* rough: how many where qk_depthwise_u8s8_1x64__avx512vbmi takes one */
    void (*run[QK_EPILOGUE_KIND_COUNT])(const struct qk_depthwise_job *job);
    /* Adds up each output channel's `depth` signed weights; QK_DEPTHWISE_BYTES more can be read
     * behind the last. */
    void (*sum)(const uint8_t *weights, size_t channels, size_t depth, int32_t *sums);
};

extern const struct qk_depthwise qk_depthwise_u8s8_1x1__scalar; /* the definition */
extern const struct qk_depthwise qk_depthwise_s16s16_1x32__avx2;
extern const struct qk_depthwise qk_depthwise_u8s8_1x32__avxvnni;
extern const struct qk_depthwise qk_depthwise_u8s8_1x32__avx512vnni;
extern const struct qk_depthwise qk_depthwise_u8s8_1x64__avx512vbmi;
extern const struct qk_depthwise qk_depthwise_s8s8_1x32__neon;
extern const struct qk_depthwise qk_depthwise_s8s8_1x32__dotprod;

/* The next functions are parts of qk_depthwise_u8s8_1x64__avx512vbmi, each in a file of its own.
 * These two are for planes so small that a vector holds a whole one. */
bool qk_depthwise_is_small(const struct qk_depthwise_job *job);
void qk_depthwise_run_small(const struct qk_depthwise_job *job);

/* Does as many of the first channels as it can, and returns their number. For kernels whose rows of
 * taps have two quads, over long rows. */
size_t qk_depthwise_run_rows(const struct qk_depthwise_job *job);

/* For all other channels: works out which loads make the quads, returns how many load patterns
 * there are, and sets all channel buffers to fill. */
size_t qk_depthwise_find_patterns(const struct qk_depthwise_job *job);

/* Makes the quads of channels [begin, end), in the channel buffers from the first on. */
void qk_depthwise_make_quads(const struct qk_depthwise_job *job, size_t patterns, size_t begin,
                             size_t end);

#endif
