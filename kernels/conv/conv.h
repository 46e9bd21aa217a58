/* Computes quantized convolutions for QLinearConv and ConvInteger: fits them to the shape of x,
 * computes exact integer sums, and requantizes them.
 *
 *   acc[m][p] = sum_k (x[k][p] - x_zp) * (w[m][k] - w_zp[m]) + bias[m], modulo 2^32, as int32
 *   y[m][p] = clamp(round_half_even(fl32(fl32(acc[m][p]) * multiplier[m]))) + y_zp
 *
 * m is an output channel, p a position and k a term of the sum; fl32 rounds to FP32. An epilogue of
 * the kind QK_EPILOGUE_INT32 stores acc itself, for ConvInteger. The order of
 * these steps is that of ONNX Runtime's MlasRequantizeOutput (kernels/conv/requantize.h). Taps that
 * lie outside x read x_zp and so add nothing.
 *
 * Four algorithms compute the sums. Each has a folder, and all give the same bits:
 *
 * - igemm computes integer products (kernels/gemm/igemm.h) of packed weights and slabs of x
 *   (kernels/conv/igemm/slabs.h). Bytes are multiplied as they are, u8 by s8; an int8 x and a uint8
 *   w have their top bit flipped. Zero points are applied afterwards:
 *
 *       sum (x - x_zp)(w - w_zp) = sum x w - w_zp sum x - x_zp sum (w - w_zp)
 *
 *   The last term is one number for each m and goes into the bias. The middle term needs the sums
 *   of x's columns, which are computed only if a w_zp is not 0. Everything wraps modulo 2^32.
 *
 * - winograd needs fewer products for kernels of 3 x 3 with strides of 1, and its sums are exact
 *   (kernels/conv/winograd/winograd.h). It takes its weights out of igemm's panels, and each plan
 *   takes the one of the two that it expects to be faster.
 * - depthwise computes the same products for groups of one channel, straight from x
 *   (kernels/conv/depthwise/depthwise.h).
 * - sgemm multiplies floats: weights less their zero point, |w| <= 255, and x centred to signed 8
 *   bits, |x| <= 128. K is cut into blocks that are so short that no partial sum exceeds 2^24, up
 *   to which floats hold every integer. The sums of K blocks are added in int32, modulo 2^32. The
 *   part of x's zero point that centring leaves goes into the bias. */
#pragma once

#include "kernels/conv/epilogue.h"
#include "kernels/gemm/openblas.h"
#include "kernels/qk.h"

struct qk_conv_algorithm;
struct qk_conv_backend;
struct qk_conv_tuning;
struct qk_conv_costs;
struct qk_im2col_kernels;
struct qk_move_kernels;

/* The largest number of spatial axes. No real convolution has as many. The bound keeps loops and
 * structs simple. */
#define QK_CONV_SPATIAL_MAX 6

/* The largest kernel, stride, dilation or pad of an axis, and the largest group. In every real
 * network these numbers fit in 32 bits. The product of two of them fits in 62 bits, on which the
 * arithmetic of kernels/conv/geometry.h relies. */
#define QK_CONV_NUMBER_MAX INT32_MAX

/* The longest axis of x. */
#define QK_CONV_AXIS_MAX QK_LENGTH_MAX

enum qk_conv_padding {
    QK_CONV_PAD_EXPLICIT,
    QK_CONV_PAD_VALID,
    QK_CONV_PAD_SAME_UPPER, /* if the number of pads is odd, the last one is at the end */
    QK_CONV_PAD_SAME_LOWER  /* if the number of pads is odd, the last one is at the beginning */
};

/* What is known without x: the attributes, and the shape of the weights. There are always
 * QK_CONV_SPATIAL_MAX axes, so that one loop handles any rank. If the caller has fewer, the first
 * axes have kernel 1, stride 1 and no pads. */
struct qk_conv_desc {
    uint32_t spatial_rank; /* the caller's number of spatial axes, at least 1 */
    size_t out_channels;   /* M, a multiple of group */
    size_t group_channels; /* C / group */
    /* group, kernel, stride and dilation: from 1 to QK_CONV_NUMBER_MAX. */
    size_t group;
    int64_t kernel[QK_CONV_SPATIAL_MAX];
    int64_t stride[QK_CONV_SPATIAL_MAX];
    int64_t dilation[QK_CONV_SPATIAL_MAX];
    /* From 0 to QK_CONV_NUMBER_MAX. Read only if `padding` is QK_CONV_PAD_EXPLICIT. */
    int64_t pad_begin[QK_CONV_SPATIAL_MAX];
    int64_t pad_end[QK_CONV_SPATIAL_MAX];
    enum qk_conv_padding padding;
    bool channels_last;             /* x is [N, D1..Dn, C], and y is [N, out1..outn, M] */
    enum qk_epilogue_kind epilogue; /* the plan's epilogue has this kind */
};

/* The constant inputs. The data that this struct points at has no alignment, and is borrowed until
 * the last unit of packing is done. */
struct qk_conv_constants {
    enum qk_type x_type; /* QK_UINT8 or QK_INT8, like w_type */
    int32_t x_zero_point;
    /* The number of the input that has x's zero point, if it comes with each run. There is then no
     * bias. 0: x_zero_point is the zero point. */
    uint32_t x_zero_point_input;
    float x_scale;
    float y_scale;
    enum qk_type w_type;
    const uint8_t *w;       /* [M, C/group, k1..kn] */
    size_t w_count;         /* elements of w */
    const uint8_t *w_scale; /* NULL: there are no multipliers */
    size_t w_scale_count;   /* 1 or M, like w_zero_point_count */
    const uint8_t *w_zero_point;
    size_t w_zero_point_count;
    const uint8_t *bias; /* INT32, M elements; NULL: absent */
};

/* The packed weights of sgemm, as floats. */
struct qk_conv_sgemm {
    int32_t x_centre; /* subtracted from x, so that |x| <= 128 */
    int32_t x_fill;   /* the value of padding: x's zero point less x_centre */
    size_t k_block;   /* terms of one K block; the last K block may have fewer */
    float *weights;   /* w - w_zp: for each group, for each of its K blocks, [M/group][terms] */
};

/* The packed weights of igemm, in panels (kernels/gemm/igemm.h). */
struct qk_conv_igemm {
    size_t panel_count; /* of each group */
    size_t step_bytes;
    size_t panel_bytes; /* of one panel */
    uint8_t *weights;   /* [group][panel] */
    uint8_t *ones;      /* a panel with a first row of ones, to sum x's columns; NULL: not needed */
    int32_t *w_zero_point; /* [M], the zero points of the packed weights; NULL: all are 0 */
};

/* The packed weights of depthwise (kernels/conv/depthwise/depthwise.h). */
struct qk_conv_depthwise {
    uint8_t *weights;      /* [M][depth], signed; kernels may read QK_DEPTHWISE_BYTES more */
    int32_t *w_zero_point; /* [M], the zero points of these weights */
    bool any_zero_point;   /* true if at least one zero point is not 0 */
};

/* What winograd (kernels/conv/winograd/winograd.h) needs beside igemm's packed weights. */
struct qk_conv_winograd {
    size_t largest_tiles; /* 2 or 4; set before packing */
    int32_t *sums;        /* [M], of the weights of each output channel */
};

/* How packing is cut into units. An item is what packing takes as a whole: an output channel or,
 * for igemm, a panel of output channels, with its weights, zero points, sums, biases and
 * multipliers. A unit has unit_items items; the last unit may have fewer. */
struct qk_conv_packing {
    size_t items, unit_items;
    size_t unit_count;
    uint64_t unit_cost_ns;
};

/* A convolution. Once all units are packed, it can be planned and run for any x, is immutable, and
 * may be shared by threads. */
struct qk_conv {
    struct qk_conv_desc desc;
    struct qk_conv_constants constants; /* not read after packing is done */
    struct qk_conv_packing packing;
    enum qk_type x_type;
    int32_t x_zero_point;
    uint32_t x_zero_point_input; /* as in the constants */
    size_t depth;                /* K: terms of one sum, group_channels * kernel volume */
    const struct qk_conv_tuning *tuning;
    const struct qk_conv_backend *backend;     /* NULL: sgemm */
    const struct qk_conv_costs *costs;         /* of the backend; set only for igemm */
    const struct qk_conv_algorithm *algorithm; /* says which of the next members are set */
    struct qk_conv_sgemm sgemm;
    struct qk_conv_igemm igemm;
    struct qk_conv_depthwise depthwise;
    struct qk_conv_winograd winograd;
    int32_t *bias; /* [M], less what the sums are too large by: the offset of stored x times the sum
                      of weights (channels.h); with x_zero_point_input, only this sum of weights */
    float *multiplier; /* [M], fl32(fl32(x_scale * w_scale) / y_scale); 0 if there are none */
};

/* Chooses the algorithm and takes memory for the packed constants. The operator must have checked
 * that `desc` and `constants` hold what their comments promise. `tuning` says which backends
 * multiply, and how; it must outlive the convolution. Returns QK_NO_MEMORY, or QK_INVALID if sizes
 * overflow. */
enum qk_status qk_conv_prepare(const struct qk_conv_desc *desc,
                               const struct qk_conv_constants *constants,
                               const struct qk_conv_tuning *tuning, struct qk_memory memory,
                               struct qk_conv *conv, struct qk_error *error);

/* Packs units [begin, end). Each unit must be packed exactly once, on any thread. */
void qk_conv_pack(const struct qk_conv *conv, size_t begin, size_t end);

/* The largest workspace of one worker, for all shapes, in bytes. */
#define QK_CONV_WORKSPACE_MAX ((size_t)3 << 20)

/* Plans the convolution for x, whose rank and type the operator must have checked. This function
 * reads nothing that is packed. The plan borrows the convolution, the epilogue and the kernels for
 * as long as it is used. A unit is a part of the positions and output channels of one group, in one
 * image or in a few small images. It takes about the tuning's unit_ns or, with sgemm, has about
 * sgemm_unit_terms terms. Returns QK_INVALID if x and the attributes do not fit together or y is
 * too large, and QK_NO_MEMORY. */
enum qk_status qk_conv_plan(const struct qk_conv *conv, const struct qk_epilogue *epilogue,
                            const struct qk_openblas *openblas,
                            const struct qk_im2col_kernels *im2col,
                            const struct qk_move_kernels *move, const struct qk_tensor *x,
                            struct qk_memory memory, struct qk_plan *plan, struct qk_error *error);
