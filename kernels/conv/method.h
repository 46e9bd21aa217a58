/* What each of the three ways of a convolution gives to conv.c: how it packs constants, and how it
 * plans; and what they all pack with. Private to conv/. */
#ifndef KERNELS_CONV_METHOD_H
#define KERNELS_CONV_METHOD_H

#include "kernels/conv/geometry.h"
#include "kernels/conv/igemm/slabs.h"
#include "kernels/element/load.h"

/* Where a channel's element is in w_scale or w_zero_point, which have one for all channels, or one
 * each. */
static inline size_t qk_channel_index(const struct qk_tensor *tensor, size_t channel)
{
    return tensor->count == 1 ? 0 : channel;
}

static inline int32_t qk_w_zero_point(const struct qk_conv_constants *constants, size_t channel)
{
    const struct qk_tensor *tensor = constants->w_zero_point;
    const uint8_t byte = ((const uint8_t *)tensor->data)[qk_channel_index(tensor, channel)];
    return tensor->type == QK_INT8 ? (int8_t)byte : byte;
}

/* Memory for `count` elements of `size` bytes; NULL: there is none, or the size overflows. */
void *qk_conv_alloc(struct qk_memory memory, size_t count, size_t size);

/* Each packs weights in its way: fills conv->sgemm, conv->igemm or conv->depthwise; conv's other
 * members are there. `sums` gets sum(w - w_zp) of each output channel, modulo 2^32, unless x is
 * packed so that nothing is left to be multiplied with it (x_left in conv.c). False: no memory. */
bool qk_conv_pack_sgemm(struct qk_conv *conv, const struct qk_conv_constants *constants,
                        struct qk_memory memory, int32_t *sums);
bool qk_conv_pack_igemm(struct qk_conv *conv, const struct qk_conv_constants *constants,
                        struct qk_memory memory, int32_t *sums);
bool qk_conv_pack_depthwise(struct qk_conv *conv, const struct qk_conv_constants *constants,
                            struct qk_memory memory, int32_t *sums);

/* sum(w - w_zp) of one output channel, modulo 2^32. */
int32_t qk_conv_weight_sum(const struct qk_conv *conv, const struct qk_conv_constants *constants,
                           size_t channel);

/* Whether depthwise can serve this convolution. */
bool qk_conv_is_depthwise(const struct qk_conv *conv);

/* What a run brings. An empty x may be NULL, and is never read. */
static inline const uint8_t *qk_conv_x(const void *const *inputs)
{
    static const uint8_t nothing[1];
    return inputs[0] ? inputs[0] : nothing;
}

/* Each plans in its way: fills the plan's kernel, workspace, units, run and state; its outputs are
 * there. False: no memory. */
bool qk_conv_plan_sgemm(const struct qk_conv *conv, const struct qk_gemm *gemm,
                        const struct qk_im2col_kernels *im2col,
                        const struct qk_conv_geometry *geometry, struct qk_memory memory,
                        struct qk_plan *plan);
bool qk_conv_plan_depthwise(const struct qk_conv *conv, const struct qk_conv_geometry *geometry,
                            struct qk_memory memory, struct qk_plan *plan);
bool qk_conv_plan_igemm(const struct qk_conv *conv, const struct qk_conv_geometry *geometry,
                        struct qk_memory memory, struct qk_plan *plan);

#endif
