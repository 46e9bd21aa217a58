/* Quantized convolution: geometry, exact integer sums, requantize.
 *
 * acc[m][p] = sum_k (x[k][p] - x_zp) * (w[m][k] - w_zp[m]) + bias[m], modulo 2^32, as int32.
 * y = clamp(round_half_even(fl32(fl32(acc) * multiplier[m]))) + y_zp, in the order of
 * ONNX Runtime's MlasRequantizeOutput (kernels/conv/requantize.h).
 *
 * Positions outside x hold x_zp and so add nothing. Three algorithms compute the sums, a folder
 * each, and give the same bits:
 *
 * - igemm: integer products (kernels/gemm/igemm.h) of packed weights with slabs of x
 *   (kernels/conv/igemm/slabs.h). Bytes are multiplied as they are, u8 by s8 (an int8 x and a uint8
 *   w have their top bit flipped), and zero points come in afterwards:
 *
 *       sum (x - x_zp)(w - w_zp) = sum x w - w_zp sum x - x_zp sum (w - w_zp)
 *
 *   The last term is one number for each m and goes into the bias; the middle one takes sums of x's
 *   columns, made only where a w_zp is not 0. All of it wraps modulo 2^32.
 * - depthwise: the same products, for one channel in a group, straight from x
 *   (kernels/conv/depthwise/depthwise.h).
 * - sgemm: weights less their zero point, |w| <= 255, and x centred to signed 8 bit, |x| <= 128, as
 *   floats, in K blocks so short that no partial sum passes 2^24, up to where floats hold every
 *   integer. K blocks are added in int32, modulo 2^32. What centring leaves of x's zero point goes
 *   into the bias.
 */
#ifndef KERNELS_CONV_CONV_H
#define KERNELS_CONV_CONV_H

#include "kernels/conv/epilogue.h"
#include "kernels/gemm/openblas.h"
#include "kernels/qk.h"

struct qk_conv_algorithm;
struct qk_conv_backend;
struct qk_conv_tuning;
struct qk_conv_costs;
struct qk_im2col_kernels;

/* At most so many spatial axes. Nobody convolves as many; a bound keeps loops and structs plain. */
#define QK_CONV_SPATIAL_MAX 6

/* The largest kernel, stride, dilation or pad of an axis, and the largest group. No network has a
 * number that 32 bits do not hold, and the product of two of these fits in 62 bits.
 * kernels/conv/geometry.h has the arithmetic that rests on this. */
#define QK_CONV_NUMBER_MAX INT32_MAX

/* The longest axis of x. */
#define QK_CONV_AXIS_MAX QK_LENGTH_MAX

enum qk_conv_padding {
    QK_CONV_PAD_EXPLICIT,
    QK_CONV_PAD_VALID,
    QK_CONV_PAD_SAME_UPPER, /* of an odd number of pads, the last one is behind */
    QK_CONV_PAD_SAME_LOWER  /* or before */
};

/* What is known without x: the attributes, and the shape of the weights. There are always
 * QK_CONV_SPATIAL_MAX axes; where the caller has fewer, those in front have kernel 1, stride 1 and
 * no pads, so that one loop serves all. */
struct qk_conv_desc {
    uint32_t spatial_rank; /* at least 1, as the caller sees it */
    size_t out_channels;   /* M, a multiple of group */
    size_t group_channels; /* C / group */
    /* This and the next three: from 1 to QK_CONV_NUMBER_MAX. */
    size_t group;
    int64_t kernel[QK_CONV_SPATIAL_MAX];
    int64_t stride[QK_CONV_SPATIAL_MAX];
    int64_t dilation[QK_CONV_SPATIAL_MAX];
    /* From 0 to QK_CONV_NUMBER_MAX; read for QK_CONV_PAD_EXPLICIT only. */
    int64_t pad_begin[QK_CONV_SPATIAL_MAX];
    int64_t pad_end[QK_CONV_SPATIAL_MAX];
    enum qk_conv_padding padding;
};

/* The constant inputs. What it points at has no alignment, and is borrowed until the last unit of
 * packing is done. */
struct qk_conv_constants {
    enum qk_type x_type; /* QK_UINT8 or QK_INT8, as w_type */
    int32_t x_zero_point;
    float x_scale;
    float y_scale;
    enum qk_type w_type;
    const uint8_t *w; /* [M, C/group, k1..kn] */
    size_t w_count;   /* elements of w */
    const uint8_t *w_scale;
    size_t w_scale_count; /* 1 or M, as of w_zero_point */
    const uint8_t *w_zero_point;
    size_t w_zero_point_count;
    const uint8_t *bias; /* INT32, M elements; NULL: absent */
};

/* What sgemm keeps: weights as floats. */
struct qk_conv_sgemm {
    int32_t x_centre; /* taken from x, so that |x| <= 128 */
    int32_t x_fill;   /* x's zero point, centred: what padding holds */
    size_t k_block;   /* terms in one sgemm; the last K block may be shorter */
    float *weights;   /* w - w_zp. Each group: its K blocks; each: [M/group][terms] */
};

/* What igemm keeps: weights in panels (kernels/gemm/igemm.h). */
struct qk_conv_igemm {
    size_t panel_count; /* of each group */
    size_t step_bytes;
    size_t panel_bytes;    /* of one panel */
    uint8_t *weights;      /* [group][panel] */
    uint8_t *ones;         /* a panel whose first row is 1 for each term; NULL: not needed */
    int32_t *w_zero_point; /* [M], as the packed weights have it; NULL: all are 0 */
};

/* What depthwise keeps (kernels/conv/depthwise/depthwise.h). */
struct qk_conv_depthwise {
    uint8_t *weights;      /* [M][depth], signed, and QK_DEPTHWISE_BYTES more */
    int32_t *w_zero_point; /* [M], as these weights have it */
    bool any_zero_point;   /* one of them is not 0 */
};

/* How packing is cut into units. An item is a panel or an output channel with all that belongs to
 * it: weights, zero points, sums, bias and multipliers; a unit is some items. */
struct qk_conv_packing {
    size_t items, unit_items;
    size_t unit_count;
    uint64_t unit_cost_ns;
};

/* A convolution, ready for any x once its units are packed. Immutable then; shared by threads. */
struct qk_conv {
    struct qk_conv_desc desc;
    struct qk_conv_constants constants; /* for packing alone */
    struct qk_conv_packing packing;
    enum qk_type x_type;
    int32_t x_zero_point;
    size_t depth; /* K: terms of one sum, group_channels * kernel volume */
    const struct qk_conv_tuning *tuning;
    const struct qk_conv_backend *backend;     /* NULL: sgemm */
    const struct qk_conv_costs *costs;         /* the backend's, for igemm */
    const struct qk_conv_algorithm *algorithm; /* whose of the next three is filled */
    struct qk_conv_sgemm sgemm;
    struct qk_conv_igemm igemm;
    struct qk_conv_depthwise depthwise;
    int32_t *bias;     /* [M], with what x's zero point makes of the weights */
    float *multiplier; /* [M], fl32(fl32(x_scale * w_scale) / y_scale) */
};

/* Takes the memory for the packed constants, and chooses how they are packed. `desc` and
 * `constants` hold what their comments promise: the operator has checked it. `tuning`: what shall
 * multiply, and how; it outlives the convolution. QK_NO_MEMORY, or QK_INVALID where sizes overflow.
 */
enum qk_status qk_conv_prepare(const struct qk_conv_desc *desc,
                               const struct qk_conv_constants *constants,
                               const struct qk_conv_tuning *tuning, struct qk_memory memory,
                               struct qk_conv *conv, struct qk_error *error);

/* Packs units [begin, end): each once, on any threads. */
void qk_conv_pack(const struct qk_conv *conv, size_t begin, size_t end);

/* The workspace of one worker never exceeds this, whatever the shapes. */
#define QK_CONV_WORKSPACE_MAX ((size_t)3 << 20)

/* Fits the convolution to x, whose rank and type the operator has checked; it reads nothing that is
 * packed, and borrows the convolution, the epilogue and the kernels for as long as the plan is
 * used. A unit is a part of the positions and output channels of one group, in one image or some
 * small ones, of about the tuning's unit_ns or, with sgemm, sgemm_unit_terms. QK_INVALID: x and the
 * attributes do not fit together. */
enum qk_status qk_conv_plan(const struct qk_conv *conv, const struct qk_epilogue *epilogue,
                            const struct qk_openblas *openblas,
                            const struct qk_im2col_kernels *im2col, const struct qk_tensor *x,
                            struct qk_memory memory, struct qk_plan *plan, struct qk_error *error);

#endif
