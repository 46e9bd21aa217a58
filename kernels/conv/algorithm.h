/* What each of the three algorithms of a convolution gives to conv.c: how it prepares and packs
 * constants, and how it plans; and what they all pack with. Private to conv/. */
#ifndef KERNELS_CONV_ALGORITHM_H
#define KERNELS_CONV_ALGORITHM_H

#include "kernels/conv/geometry.h"
#include "kernels/conv/igemm/slabs.h"
#include "kernels/element/load.h"

/* The zero point of an output channel's weights, of which there is one for all channels, or one
 * each. */
static inline int32_t qk_w_zero_point(const struct qk_conv *conv, size_t channel)
{
    const struct qk_conv_constants *constants = &conv->constants;
    const uint8_t byte = constants->w_zero_point[constants->w_zero_point_count == 1 ? 0 : channel];
    return constants->w_type == QK_INT8 ? (int8_t)byte : byte;
}

/* What each byte of x is xored with to become the operand of a product, which takes unsigned bytes
 * or signed ones. */
static inline uint8_t qk_conv_x_flip(enum qk_type x_type, bool x_signed)
{
    return (x_type == QK_INT8) != x_signed ? 0x80 : 0;
}

/* Memory for `count` elements of `size` bytes; NULL: there is none, or the size overflows. */
void *qk_conv_alloc(struct qk_memory memory, size_t count, size_t size);

/* Whether depthwise can serve this convolution. */
bool qk_conv_is_depthwise(const struct qk_conv *conv);

/* Each takes memory for conv->sgemm, depthwise or igemm, and sets what of it is not packed, and
 * conv->packing.items: output channels or, for igemm, panels. *item_cycles: a rough guess of those
 * to pack one. False: no memory. */
bool qk_conv_prepare_sgemm(struct qk_conv *conv, struct qk_memory memory, double *item_cycles);
bool qk_conv_prepare_depthwise(struct qk_conv *conv, struct qk_memory memory, double *item_cycles);
bool qk_conv_prepare_igemm(struct qk_conv *conv, struct qk_memory memory, double *item_cycles);

/* Returns which share of the slabs of weights `mark_wide` would find to be wide
 * (kernels/gemm/igemm.h), estimated from some of them. The backend's kernel has `mark_wide`, and
 * there are weights. */
double qk_conv_wide_share(const struct qk_conv *conv, const struct qk_conv_backend *backend);

/* Each packs items [begin, end). */
void qk_conv_pack_sgemm(const struct qk_conv *conv, size_t begin, size_t end);
void qk_conv_pack_depthwise(const struct qk_conv *conv, size_t begin, size_t end);
void qk_conv_pack_igemm(const struct qk_conv *conv, size_t begin, size_t end);

/* Packs what all algorithms have for output channels [begin, end): bias and multiplier. conv->bias
 * comes with sum(w - w_zp) of each, modulo 2^32, unless x is laid out so that nothing is left to be
 * multiplied with it (x_left in conv.c). */
void qk_conv_pack_channels(const struct qk_conv *conv, size_t begin, size_t end);

/* sum(w - w_zp) of one output channel, modulo 2^32. */
int32_t qk_conv_weight_sum(const struct qk_conv *conv, size_t channel);

/* What a run brings. An empty x may be NULL, and is never read. */
static inline const uint8_t *qk_conv_x(const void *const *inputs)
{
    static const uint8_t nothing[1];
    return inputs[0] ? inputs[0] : nothing;
}

/* Each plans its algorithm: fills the plan's kernel, workspace, units, run and state; its outputs
 * are there. False: no memory. */
bool qk_conv_plan_sgemm(const struct qk_conv *conv, const struct qk_epilogue *epilogue,
                        const struct qk_openblas *openblas, const struct qk_im2col_kernels *im2col,
                        const struct qk_conv_geometry *geometry, struct qk_memory memory,
                        struct qk_plan *plan);
bool qk_conv_plan_depthwise(const struct qk_conv *conv, const struct qk_epilogue *epilogue,
                            const struct qk_conv_geometry *geometry, struct qk_memory memory,
                            struct qk_plan *plan);
bool qk_conv_plan_igemm(const struct qk_conv *conv, const struct qk_epilogue *epilogue,
                        const struct qk_conv_geometry *geometry, struct qk_memory memory,
                        struct qk_plan *plan);

#endif
