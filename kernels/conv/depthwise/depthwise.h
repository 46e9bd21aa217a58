/* Convolutions with one channel in a group: lanes are positions, and a product takes four
 * neighbouring taps of one row of the kernel. Private to conv/.
 *
 * What a unit sees of a channel is first laid out as cells of four bytes, padding included, so that
 * a tap of the kernel is an offset (as in kernels/conv/igemm/slabs.h). A line has a cell for each
 * position of a row, and the positions of all rows are one run of lanes. Where not many more lanes
 * pay for it, lines have a pitch that keeps vectors of cells from crossing cache lines; otherwise
 * there are no gaps:
 *
 *     x, 3 columns     cells of a kernel of 3 columns, pad 1     products of the first row of taps
 *     a b c            .ab abc bc.                               from cell 0 on, of the second from
 *     d e f            .de def ef.                               cell 3 on, ...
 *
 * A row of taps wider than a cell has several: either each has lines of its own, or, where the unit
 * is a single row or parts of rows, they share lines that are longer.
 *
 * With a stride, few taps share a cell. Small planes are then not laid out as cells, but as rows of
 * x with their padding, and each product permutes a load of these. The smallest, of which a
 * vector holds one, are not laid out at all: each product permutes it.
 *
 * Which bytes of x make which cells is the same for all channels of a unit, and for all lines of a
 * cluster. It is worked out once: a permutation of a load of x gives 16 cells.
 *
 * All this is for vectors of 16 lanes. Those of 8 (kernels/conv/depthwise/kernel_ymm.h) have loads
 * of 16 bytes, each for 4 cells. Their lines have no gaps, their strided planes are cells as all
 * others, and a product of AVX2 takes two taps, as words.
 */
#ifndef KERNELS_CONV_DEPTHWISE_DEPTHWISE_H
#define KERNELS_CONV_DEPTHWISE_DEPTHWISE_H

#include "kernels/conv/geometry.h"
#include "kernels/conv/igemm/slabs.h"

enum {
    QK_DEPTHWISE_TAPS = 4,   /* bytes of a cell */
    QK_DEPTHWISE_LANES = 16, /* cells of a vector */
    QK_DEPTHWISE_BYTES = QK_DEPTHWISE_TAPS * QK_DEPTHWISE_LANES,
    QK_DEPTHWISE_LOAD_YMM = 16, /* bytes of a load for vectors of 8 lanes */
    QK_DEPTHWISE_OUTPUTS = 16   /* output channels whose weights are made at a time */
};

/* How a unit's cells lie: lines by array, plane, cluster and row. */
struct qk_depthwise_layout {
    size_t load_bytes;    /* bytes of x that a permutation takes */
    size_t halves;        /* of a slot: 2 where it may have cells as words; all begin alike */
    size_t rows, columns; /* positions of a full unit; with several rows, whole ones unless: */
    bool row_parts;       /* each row's lanes are a run of their own */
    size_t taps;          /* in a cell */
    size_t row_cells;     /* of a row of taps */
    size_t arrays;        /* row_cells, or one that all share, each this many cells on: */
    size_t shift;
    size_t planes;           /* taps of the axes before the last two */
    struct qk_slab_axis row; /* clusters of the row axis */
    size_t lines;            /* of a cluster */
    size_t width;            /* cells of a line */
    size_t pitch;            /* to the next line's; where that is more, a divisor of 64 */
    bool padded_rows;        /* a slot has no cells, but padded rows of x, so many bytes apart: */
    size_t row_bytes;        /* 16 cells are 64 bytes of them, in `order` */
    size_t step;             /* bytes in a slot from a vector of lanes to the next */
    size_t slot_bytes;       /* of a channel's cells */
    size_t batch;            /* channels whose cells are there at a time */
    uint8_t order[QK_DEPTHWISE_BYTES]; /* byte 4 i + t is what tap t of cell i sees, from the first
                                          cell's tap 0 on */
};

/* Where the cells of 16 of an output channel's taps come from: its dense weights. */
struct qk_depthwise_weight_order {
    uint8_t order[QK_DEPTHWISE_BYTES];
    uint64_t mask; /* bytes that are taps; the others are 0 */
    size_t from;   /* the first tap */
};

/* Vectors of up to 16 cells, with fill behind them, that are so many bytes apart in a channel and
 * in its slot. Each has those in `mask` of 64 bytes of the channel in the same order, and fill. A
 * vector may begin before the one before it ends. */
struct qk_depthwise_run {
    uint8_t order[QK_DEPTHWISE_BYTES];
    uint64_t mask;
    size_t offset, offset_step;
    size_t to, to_step;
    size_t count;
};

/* A unit's workspace. */
struct qk_depthwise_workspace {
    struct qk_depthwise_run *runs;
    uint8_t *weights; /* [QK_DEPTHWISE_OUTPUTS] cells of output channels, in whole vectors */
    uint8_t *ones;    /* of one, with 1 for taps that are there; or their orders */
    uint8_t *slots;   /* [batch]; there is a vector more behind the last */
};

/* Some output channels and positions: what one unit computes. */
struct qk_depthwise_job {
    const struct qk_depthwise_layout *layout;
    const struct qk_conv_geometry *geometry;
    struct qk_depthwise_workspace work;
    size_t outer; /* position of the axes before the last two */
    size_t row, rows, column, columns;
    uint8_t fill, flip; /* what lies outside x; it and x are made unsigned by an xor with `flip` */

    const uint8_t *x, *x_end; /* the first channel; the end of all that may be read */
    size_t channels;          /* of x */
    size_t multiplicity;      /* output channels for each of them */
    size_t depth;             /* taps of an output channel */
    size_t cells;
    const uint32_t *offsets;                               /* [cells], bytes in a slot */
    const struct qk_depthwise_weight_order *weight_orders; /* of 16 cells */
    const uint8_t *weights;      /* [output channels][depth], signed; QK_DEPTHWISE_BYTES more may be
                                    read */
    const int32_t *w_zero_point; /* this and the next two: [output channels] */
    bool any_zero_point;
    const int32_t *bias;
    const float *multiplier;
    const struct qk_requantize *requantize;
    bool y_signed;
    uint8_t *y;      /* the first position of the first output channel */
    size_t y_stride; /* to the next output channel's */
};

/* Taps of a row of the kernel in a cell, such that a load of x makes as many bytes of cells; 0:
 * not even one. */
size_t qk_depthwise_count_taps(int64_t kernel, int64_t stride, int64_t dilation, size_t load_bytes);

void qk_depthwise_lay_out(struct qk_depthwise_layout *layout,
                          const struct qk_conv_geometry *geometry, size_t depth, size_t load_bytes);

/* Lines of a slot. */
static inline size_t qk_depthwise_lines(const struct qk_depthwise_layout *layout)
{
    return layout->arrays * layout->planes * layout->row.clusters * layout->lines;
}

/* Bytes in a slot before the cells of a tap. */
size_t qk_depthwise_cell(const struct qk_depthwise_layout *layout,
                         const struct qk_conv_geometry *geometry, size_t plane, size_t row,
                         size_t column);

struct qk_depthwise {
    const char *kernel; /* as the answer has it */
    size_t load_bytes;  /* QK_DEPTHWISE_BYTES or QK_DEPTHWISE_LOAD_YMM */
    double cycles;      /* rough: how many where qk_depthwise_u8s8_1x64__avx512vbmi takes one */
    void (*run)(const struct qk_depthwise_job *job);
    /* Sums of each output channel's `depth` signed weights, of which QK_DEPTHWISE_BYTES more may be
     * read. */
    void (*sum)(const uint8_t *weights, size_t channels, size_t depth, int32_t *sums);
};

extern const struct qk_depthwise qk_depthwise_s16s16_1x32__avx2;
extern const struct qk_depthwise qk_depthwise_u8s8_1x32__avxvnni;
extern const struct qk_depthwise qk_depthwise_u8s8_1x32__avx512vnni;
extern const struct qk_depthwise qk_depthwise_u8s8_1x64__avx512vbmi;

/* Of qk_depthwise_u8s8_1x64__avx512vbmi: planes of which a vector holds one. */
bool qk_depthwise_is_small(const struct qk_depthwise_job *job);
void qk_depthwise_run_small(const struct qk_depthwise_job *job);

/* As many of the first channels as it can; gives their number. For kernels of two cells in a row of
 * taps, over long rows. */
size_t qk_depthwise_run_rows(const struct qk_depthwise_job *job);

/* The first half of its run for others. Works out the runs, gives their number, and fills the
 * slots. */
size_t qk_depthwise_find_runs(const struct qk_depthwise_job *job);

/* Channels [begin, end) to the slots from the first on. */
void qk_depthwise_make_cells(const struct qk_depthwise_job *job, size_t runs, size_t begin,
                             size_t end);

#endif
