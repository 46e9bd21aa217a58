/* Computes depthwise convolutions, in which each group has one channel of x, so a sum has only the
 * taps of one channel. The lanes of vectors are positions, as in igemm, and one product takes up to
 * four neighbouring taps of a row of the kernel. Private to conv/.
 *
 * A unit first lays out the elements that it reads of a channel, and their padding, as quads of
 * four bytes. A quad has the elements that four taps read for one position. A row of quads has a
 * quad for each position of a row, and the rows of quads of all rows follow each other. The
 * positions of a unit are thus one row of lanes, and another row of taps is only another offset (as
 * in kernels/conv/igemm/slabs.h). All quads of one channel are a channel buffer:
 *
 *      x, 3 columns     quads of a kernel of 3 columns, pad 1     products read
 *      a b c            .ab abc bc.                               row 0 of taps from quad 0 on,
 *      d e f            .de def ef.                               row 1 of taps from quad 3 on, ...
 *
 * Rows of quads usually have no gaps between them. If gaps cost few lanes, rows of quads have a
 * pitch that keeps vectors of quads from crossing cache lines.
 *
 * A row of taps that is wider than a quad has several quads (row_quads). Each of them has an array
 * of rows of quads of its own. If a unit is a single row or has parts of rows, they may share
 * longer rows of quads instead. A kernel of 7 columns, without padding, for 3 positions of a row
 * abcdefghi of x:
 *
 *      two arrays   taps 0..3: abcd bcde cdef        taps 4..6: efg fgh ghi
 *      one array    abcd bcde cdef defg efgh fghi ghi.
 *                   taps 0..3 from quad 0 on, taps 4..6 from quad 4 on: `shift` is 4
 *
 * Planes so small that a vector holds a whole one are not laid out at all: each product permutes
 * the plane.
 *
 * In all channels of a unit, and in all rows of quads of a stride phase, quads are made from the
 * bytes of x in the same way. This is worked out once, as a permutation that turns one load of x
 * into 16 quads.
 *
 * All of this is for vectors of 16 lanes. With vectors of 8 lanes
 * (kernels/conv/depthwise/kernel_8.h) a load has 16 bytes and makes 4 quads. Rows of quads then
 * have no gaps. If the CPU can only multiply words, a product takes two taps. */
#pragma once

#include "kernels/conv/epilogue.h"
#include "kernels/conv/stride_phases.h"

enum {
    QK_DEPTHWISE_TAPS = 4,   /* bytes of a quad */
    QK_DEPTHWISE_LANES = 16, /* quads of a vector */
    QK_DEPTHWISE_BYTES = QK_DEPTHWISE_TAPS * QK_DEPTHWISE_LANES,
    QK_DEPTHWISE_LOAD_8 = 16, /* bytes of a load for vectors of 8 lanes */
    QK_DEPTHWISE_OUTPUTS = 16 /* how many output channels get quads of weights at a time */
};

/* The layout of a channel buffer: rows of quads, sorted by array, plane, stride phase of rows, and
 * row. */
struct qk_depthwise_layout {
    size_t load_bytes; /* bytes of x in one load, which a permutation turns into quads */
    size_t halves; /* parts of a channel buffer: 2 for vectors of 8 lanes, otherwise 1. If taps are
                      words, each half has two taps of each quad; if not, only the first half is
                      used */
    /* The rows and columns of positions in a full unit. With partial_rows, a unit has a part of
     * each of its rows, or long rows of vectors of 8 lanes, and lanes are computed row by row.
     * Vectors of 8 lanes then leave out rows of taps that read only padding. Otherwise a unit has
     * whole rows, or a single row or a part of one. */
    size_t rows, columns;
    bool partial_rows;
    size_t taps;      /* the most taps that a quad has */
    size_t row_quads; /* how many quads a row of taps takes */
    /* How many arrays of rows of quads there are: row_quads, or a single one that all row_quads
     * share. In a shared array, each of the row_quads reads `shift` quads further on than the one
     * before. */
    size_t arrays;
    size_t shift;
    size_t planes;               /* taps of the outer axes; each reads a plane of its own */
    struct qk_stride_phases row; /* stride phases of the row axis */
    size_t quad_rows;            /* rows of quads of a stride phase */
    size_t width;                /* quads of a row of quads */
    size_t pitch;                /* quads from one row to the next; a divisor of 64, or `width` */
    size_t buffer_bytes;
    size_t batch; /* how many channels have buffers at the same time */
    /* Entry 4 i + t is the distance from the element that tap 0 of quad 0 reads to the element that
     * tap t of quad i reads. */
    uint8_t order[QK_DEPTHWISE_BYTES];
};

/* A permutation of weights. It turns some of the dense weights of an output channel, which lie as
 * the caller gave them, into the weights of 16 quads. */
struct qk_depthwise_weight_order {
    uint8_t order[QK_DEPTHWISE_BYTES];
    uint64_t mask; /* the bytes that are taps; all other bytes become 0 */
    size_t from;   /* the tap from which the entries of `order` count */
};

/* A load pattern: loads of x that the same permutation turns into vectors of quads. There are
 * `count` loads. They are offset_step bytes apart in a channel, and their quads are to_step bytes
 * apart in its channel buffer. A vector may overwrite what the vector before it has written behind
 * its quads.
 *
 * Vectors of 16 lanes: bytes that `mask` leaves out become fill, including the bytes behind a
 * vector's last quad. Vectors of 8 lanes have two loads of 16 bytes each and no mask. The first
 * half of `order` permutes them, and the second half has the bytes with which the result is xored.
 */
struct qk_depthwise_load_pattern {
    uint8_t order[QK_DEPTHWISE_BYTES];
    uint64_t mask;
    size_t offset, offset_step;
    size_t apart; /* bytes from a vector's first load to its second */
    size_t to, to_step;
    size_t count;
};

/* The rows of quads of a stride phase that read rows inside x. All other rows of quads are padding.
 */
struct qk_depthwise_quad_rows {
    size_t quad_row, row; /* the first row of quads: its index in a channel buffer, and the index of
                             the element of a channel at which the row of x that it reads begins */
    size_t row_step;      /* elements from one row to the next; 0 if there is a single row */
    size_t count;
};

/* The parts of a unit's workspace. */
struct qk_depthwise_workspace {
    struct qk_depthwise_load_pattern *patterns;
    uint8_t *weights; /* quads of weights of QK_DEPTHWISE_OUTPUTS output channels, each in whole
                         vectors */
    union {
        uint8_t *ones;   /* for 16 lanes: quads of an output channel whose weights are all 1 */
        uint8_t *orders; /* for 8 lanes: which dense weights become the weights of each quad */
    };
    uint8_t *buffers; /* [batch] channel buffers, and room for a vector behind the last */
};

/* What one unit computes: some output channels at some positions. */
struct qk_depthwise_job {
    const struct qk_depthwise_layout *layout;
    const struct qk_conv_geometry *geometry;
    struct qk_depthwise_workspace work;
    size_t outer; /* the unit's position on the outer axes */
    size_t row, rows, column, columns;
    /* `fill` is the value of padding. Products take x and fill after an xor with `flip`: as
     * unsigned bytes or, if x_signed is set, as signed bytes. */
    uint8_t fill, flip;
    bool x_signed;

    const uint8_t *x, *x_end; /* the unit's first channel; the end of all of x */
    size_t channels;          /* channels of x */
    size_t multiplicity;      /* output channels for each channel of x */
    size_t depth;             /* taps of an output channel */
    size_t quads;             /* quads of taps of an output channel */
    /* [quads]: for each quad of taps, the offset in a channel buffer, in bytes, of the quads of x
     * that it is multiplied by at the first position. */
    const uint32_t *offsets;
    const struct qk_depthwise_weight_order *weight_orders; /* one for every 16 quads */
    const uint8_t *weights; /* [output channels][depth], signed; QK_DEPTHWISE_BYTES bytes behind
                               them may be read */
    const int32_t *w_zero_point; /* [output channels], like bias and multiplier */
    bool any_zero_point;
    const int32_t *bias;
    const float *multiplier;
    const struct qk_epilogue *epilogue;
    uint8_t *y;      /* the first position of the first output channel */
    size_t y_stride; /* bytes from one output channel to the next */
};

/* Returns the most neighbouring taps of a row of the kernel that a quad can have. One load of
 * load_bytes bytes has to contain the elements of load_bytes / QK_DEPTHWISE_TAPS neighbouring
 * quads. Returns 0 if not even one tap fits, because the stride is too large. */
size_t qk_depthwise_count_taps(int64_t kernel, int64_t stride, int64_t dilation, size_t load_bytes);

/* Chooses the rows and columns of a unit, and the layout of its channel buffers. `layout` must be
 * all zeros before. */
void qk_depthwise_lay_out(struct qk_depthwise_layout *layout,
                          const struct qk_conv_geometry *geometry, size_t depth, size_t load_bytes);

/* The rows of taps [begin, end). */
struct qk_tap_range {
    size_t begin, end;
};

/* Returns the rows of taps that read rows inside x for a row of positions. All others read only
 * padding. */
struct qk_tap_range qk_depthwise_taps_inside(const struct qk_conv_axis *axis, size_t row);

/* Returns how many rows of quads a channel buffer has. */
static inline size_t qk_depthwise_quad_rows(const struct qk_depthwise_layout *layout)
{
    return layout->arrays * layout->planes * layout->row.phases * layout->quad_rows;
}

/* Returns the offset in a channel buffer, in bytes, at which the quads of some taps begin. These
 * taps have the given plane and row of the kernel, and are quad number `column` of the row_quads of
 * that row. */
size_t qk_depthwise_quad(const struct qk_depthwise_layout *layout, size_t plane, size_t row,
                         size_t column);

/* Adds the load patterns that make one vector in each row of quads: the vector whose first quad is
 * number `quad` of its row. Returns how many load patterns it has added: 0 if the vectors are only
 * fill and the channel buffers have that already, and at most 1 for a single row. */
typedef size_t qk_depthwise_add_vector(const struct qk_depthwise_job *job, size_t array,
                                       size_t quad, const struct qk_depthwise_quad_rows *quad_rows,
                                       struct qk_depthwise_load_pattern *patterns);

/* Finds the loads that make the quads of a channel, for vectors of `lanes` quads. Stores them as
 * load patterns in the unit's workspace, and returns how many there are. */
size_t qk_depthwise_find_patterns(const struct qk_depthwise_job *job, size_t lanes,
                                  qk_depthwise_add_vector *add_vector);

/* Returns whether depthwise/ can serve this convolution on its backend. */
bool qk_conv_is_depthwise(const struct qk_conv *conv);

/* The depthwise kernel of a backend. */
struct qk_depthwise {
    const char *kernel; /* its name in answers */
    size_t load_bytes;  /* QK_DEPTHWISE_BYTES or QK_DEPTHWISE_LOAD_8 */
    bool x_signed;
    double cycles; /* a rough guess: how many times the cycles of qk_depthwise_u8s8_1x64__avx512vbmi
                      it takes */
    /* NULL: the kernel does not write this kind of y. */
    void (*run[QK_EPILOGUE_KIND_COUNT])(const struct qk_depthwise_job *job);
    /* Adds up the `depth` signed weights of each output channel. May read QK_DEPTHWISE_BYTES bytes
     * behind the last weight. */
    void (*sum)(const uint8_t *weights, size_t channels, size_t depth, int32_t *sums);
};

extern const struct qk_depthwise qk_depthwise_u8s8_1x1__scalar; /* the reference */
extern const struct qk_depthwise qk_depthwise_s16s16_1x32__avx2;
extern const struct qk_depthwise qk_depthwise_u8s8_1x32__avxvnni;
extern const struct qk_depthwise qk_depthwise_u8s8_1x64__avx512vnni;
extern const struct qk_depthwise qk_depthwise_u8s8_1x64__avx512vbmi;
extern const struct qk_depthwise qk_depthwise_s8s8_1x32__neon;
extern const struct qk_depthwise qk_depthwise_s8s8_1x32__dotprod;

/* The functions below are parts of qk_depthwise_u8s8_1x64__avx512vbmi, which has three more files.
 * The first two functions are for planes so small that a vector holds a whole one:
 * qk_depthwise_is_small returns whether a unit is of this kind, and qk_depthwise_run_small computes
 * it. */
bool qk_depthwise_is_small(const struct qk_depthwise_job *job);
void qk_depthwise_run_small(const struct qk_depthwise_job *job);

/* Computes a unit of a square kernel of 3, 5 or 7 over rows of more than 8 positions. Returns false
 * for all other units, of which it computes nothing. */
bool qk_depthwise_run_rows(const struct qk_depthwise_job *job);

/* Prepares the channel buffers for all other units. Sets the buffers to fill, finds the loads that
 * make their quads, and returns how many load patterns there are. */
size_t qk_depthwise_prepare_buffers(const struct qk_depthwise_job *job);

/* Makes the quads of channels [begin, end) in the channel buffers, from the first buffer on. */
void qk_depthwise_make_quads(const struct qk_depthwise_job *job, size_t patterns, size_t begin,
                             size_t end);
