/* Weights as people store them: constant codes of less than 8 bits, and blocks that have a scale
 * each. The DequantizeLinear of such weights becomes one of 8 bits with a scale for the tensor or
 * for each channel, which is what the passes behind this one know. Every float that it computes
 * keeps its bits.
 *
 *    w INT4 [K, N], a scale for each 32 rows -> DequantizeLinear -> MatMul
 *    w INT8 [K, N], a scale for each column  -> DequantizeLinear -> MatMul
 */
#include <math.h>
#include <string.h>

#include "kernels/element/load.h"
#include "kernels/network/pair.h"
#include "kernels/network/qdq.h"
#include "kernels/operators/granularity.h"
#include "kernels/operators/operator.h"
#include "kernels/operators/rules.h"

/* A rough guess: the time that a pass over the codes takes for each. Many nodes may read the same
 * codes, which then cost as much for each node. */
#define CODE_NS UINT64_C(1)

static bool is_known(const struct qk_call *call, size_t input)
{
    return !(call->variable >> input & 1) && call->inputs[input].data != NULL;
}

static bool is_integer(enum qk_type type)
{
    return type != QK_NONE && qk_type_info(type)->kind != QK_KIND_FLOAT &&
           qk_type_info(type)->bits <= 8;
}

/* Returns whether a node is a DequantizeLinear of known codes of at most 8 bits, with a known zero
 * point of their type or none. Others are left to their checks. */
static bool has_known_codes(const struct qk_call *call)
{
    const struct qk_tensor *zero = &call->inputs[QK_PAIR_ZERO_POINT];
    const enum qk_type type = call->inputs[QK_PAIR_X].type;
    return call->op == &qk_onnx_dequantize_linear && is_known(call, QK_PAIR_X) &&
           is_integer(type) && call->version->inputs[QK_PAIR_X].types >> type & 1 &&
           !(call->variable >> QK_PAIR_ZERO_POINT & 1) &&
           (zero->type == QK_NONE || (zero->type == type && zero->data));
}

/* ---- Less than 8 bits ---------------------------------------------------------------------- */

/* Makes INT8 of all elements. Returns false if memory has run out. */
static bool widen(struct qk_edit *edit, struct qk_tensor *codes)
{
    const struct qk_type_info *info = qk_type_info(codes->type);
    const unsigned bits = info->bits;
    const unsigned sign = info->kind == QK_KIND_SIGNED ? 1U << (bits - 1) : 0;
    const uint8_t *bytes = codes->data;
    int8_t *made = qk_edit_take(edit, codes->count, 1);
    if (!made)
        return false;
    for (size_t i = 0; i < codes->count; i++) {
        const unsigned byte = bytes[i / (8 / bits)];
        const unsigned code = byte >> i % (8 / bits) * bits & ((1U << bits) - 1);
        made[i] = (int8_t)((int)(code ^ sign) - (int)sign);
    }
    codes->type = QK_INT8;
    codes->data = made;
    return true;
}

/* ---- Blocks -------------------------------------------------------------------------------- */

/* Which elements of x share a scale: x is [outer, length, inner], and the scales are
 * [outer, count, inner]. */
struct blocks {
    size_t size;
    size_t outer, length, count, inner;
    uint32_t axis;
};

/* The axis whose indices have a scale each, or one scale for all elements. */
struct channels {
    size_t count;
    size_t stride; /* in the scales, from one channel to the next */
    uint32_t axis; /* of x */
    float *scales;
    uint8_t *ratios; /* how often the scale of its channel goes into each scale */
};

/* Returns whether the node has blocks with known scales, as DequantizeLinear takes them. */
static bool find_blocks(const struct qk_call *call, struct blocks *blocks)
{
    const struct qk_attribute *size = &call->attributes[QK_GRANULARITY_BLOCK_SIZE];
    struct qk_granularity granularity;
    struct qk_broadcast broadcast;
    struct qk_error cause;
    if (qk_int_or(size, 0) <= 0 ||
        call->version->number < call->op->attributes[QK_GRANULARITY_BLOCK_SIZE].since ||
        !is_known(call, QK_PAIR_SCALE) || call->inputs[QK_PAIR_SCALE].type != QK_FP32)
        return false;
    const struct qk_tensor *x = &call->inputs[QK_PAIR_X];
    if (x->count == 0 || qk_granularity_read(&granularity, call, &cause) != QK_OK ||
        (call->inputs[QK_PAIR_ZERO_POINT].type != QK_NONE &&
         qk_granularity_check_zero_point(call, &cause) != QK_OK) ||
        qk_granularity_fit(&granularity, call->op, x, &broadcast, &cause) != QK_OK)
        return false;
    const int64_t axis = qk_int_or(&call->attributes[QK_GRANULARITY_AXIS], 1);
    *blocks = (struct blocks){.size = (size_t)size->number,
                              .outer = 1,
                              .inner = 1,
                              .axis = (uint32_t)(axis < 0 ? axis + x->rank : axis)};
    blocks->length = x->dims[blocks->axis];
    blocks->count = call->inputs[QK_PAIR_SCALE].dims[blocks->axis];
    for (uint32_t i = 0; i < blocks->axis; i++)
        blocks->outer *= x->dims[i];
    for (uint32_t i = blocks->axis + 1; i < x->rank; i++)
        blocks->inner *= x->dims[i];
    return true;
}

/* Finds the least scale of each channel, and how often it goes into those of its blocks. Returns
 * false if a scale is no whole multiple of 8 bits. Products in FP64 are exact: 24 bits of a float
 * by 8. */
static bool find_scales(const struct qk_tensor *scale, struct channels *channels)
{
    for (size_t i = 0; i < channels->count; i++)
        channels->scales[i] = INFINITY;
    for (size_t i = 0; i < scale->count; i++) {
        const float own = qk_load_f32(scale->data, i);
        float *least = &channels->scales[i / channels->stride % channels->count];
        if (!(own > 0) || isinf(own))
            return false;
        *least = own < *least ? own : *least;
    }
    for (size_t i = 0; i < scale->count; i++) {
        const double own = (double)qk_load_f32(scale->data, i);
        const double least = (double)channels->scales[i / channels->stride % channels->count];
        const double ratio = rint(own / least);
        if (!(ratio <= UINT8_MAX) || ratio * least != own)
            return false;
        channels->ratios[i] = (uint8_t)ratio;
    }
    return true;
}

/* The new codes: those without zero points, as multiples of the scale of their channel. */
struct codes {
    int32_t least, most;
    int32_t zero_point;
    uint8_t *bytes; /* NULL: only `least` and `most` are wanted */
};

/* Finds the least and the greatest of the new codes, and writes them if there is room. */
static void make_codes(const struct qk_call *call, const struct blocks *blocks,
                       const uint8_t *ratios, struct codes *codes)
{
    const struct qk_tensor *zero = &call->inputs[QK_PAIR_ZERO_POINT];
    const bool is_signed = call->inputs[QK_PAIR_X].type == QK_INT8;
    const uint8_t *x = call->inputs[QK_PAIR_X].data;
    const uint8_t *zeros = zero->type == QK_NONE ? NULL : zero->data;
    size_t index = 0;
    for (size_t row = 0; row < blocks->outer * blocks->length; row++) {
        const size_t block = row % blocks->length / blocks->size;
        const size_t first = (row / blocks->length * blocks->count + block) * blocks->inner;
        for (size_t i = first; i < first + blocks->inner; i++, index++) {
            const int32_t code = is_signed ? (int8_t)x[index] : x[index];
            const int32_t less = !zeros ? 0 : is_signed ? (int8_t)zeros[i] : zeros[i];
            const int32_t made = (code - less) * ratios[i];
            codes->least = made < codes->least ? made : codes->least;
            codes->most = made > codes->most ? made : codes->most;
            if (codes->bytes)
                codes->bytes[index] = (uint8_t)(made + codes->zero_point);
        }
    }
}

/* Replaces codes, scales and zero points. Returns false if memory has run out. */
static bool replace(struct qk_edit *edit, struct qk_call *call, const struct blocks *blocks,
                    const struct channels *channels, struct codes *codes)
{
    struct qk_tensor *x = &call->inputs[QK_PAIR_X];
    const bool is_signed = codes->zero_point == 0 && codes->most <= INT8_MAX;
    struct qk_tensor scale = {.type = QK_FP32,
                              .rank = channels->count > 1,
                              .dims = {channels->count},
                              .count = channels->count,
                              .stored = channels->count,
                              .data = channels->scales};
    uint8_t *zeros = qk_edit_take(edit, channels->count, 1);
    codes->bytes = zeros ? qk_edit_take(edit, x->count, 1) : NULL;
    if (!codes->bytes)
        return false;
    memset(zeros, codes->zero_point, channels->count);
    make_codes(call, blocks, channels->ratios, codes);
    x->type = is_signed ? QK_INT8 : QK_UINT8;
    x->data = codes->bytes;
    call->inputs[QK_PAIR_SCALE] = scale;
    call->inputs[QK_PAIR_ZERO_POINT] = scale;
    call->inputs[QK_PAIR_ZERO_POINT].type = x->type;
    call->inputs[QK_PAIR_ZERO_POINT].data = zeros;
    call->attributes[QK_GRANULARITY_BLOCK_SIZE].present = false;
    call->attributes[QK_GRANULARITY_AXIS] =
        (struct qk_attribute){.present = true, .number = channels->axis};
    return true;
}

/* Tries one scale for all elements, or one for each index of an axis. *done is false if integers of
 * 8 bits do not have the same products. Returns QK_OK or QK_NO_MEMORY. */
static enum qk_status try_channels(struct qk_edit *edit, struct qk_call *call,
                                   const struct blocks *blocks, struct channels *channels,
                                   bool *done)
{
    const struct qk_tensor *scale = &call->inputs[QK_PAIR_SCALE];
    struct codes codes = {0};
    channels->scales = qk_edit_take(edit, channels->count, sizeof(*channels->scales));
    if (!channels->scales)
        return QK_NO_MEMORY;
    if (!find_scales(scale, channels) ||
        !qk_computing_count(&edit->computing, CODE_NS * call->inputs[QK_PAIR_X].count))
        return QK_OK;
    make_codes(call, blocks, channels->ratios, &codes);
    if (codes.least < INT8_MIN || codes.most > INT8_MAX)
        codes.zero_point = -codes.least;
    if (codes.most + codes.zero_point > UINT8_MAX)
        return QK_OK;
    *done = true;
    return replace(edit, call, blocks, channels, &codes) ? QK_OK : QK_NO_MEMORY;
}

/* Makes one scale for the tensor of the blocks' scales, or else one for each index of an axis that
 * has no blocks, if whole multiples allow that. */
static enum qk_status merge_blocks(struct qk_edit *edit, struct qk_call *call)
{
    struct blocks blocks;
    bool done = false;
    if (!find_blocks(call, &blocks))
        return QK_OK;
    const struct qk_tensor *scale = &call->inputs[QK_PAIR_SCALE];
    uint8_t *ratios = qk_edit_take(edit, scale->count, 1);
    if (!ratios)
        return QK_NO_MEMORY;
    struct channels channels = {.count = 1, .stride = 1, .ratios = ratios};
    enum qk_status status = try_channels(edit, call, &blocks, &channels, &done);
    size_t stride = scale->count;
    for (uint32_t i = 0; i < scale->rank && status == QK_OK && !done; i++) {
        stride /= scale->dims[i];
        if (i == blocks.axis)
            continue;
        channels = (struct channels){
            .count = scale->dims[i], .stride = stride, .axis = i, .ratios = ratios};
        status = try_channels(edit, call, &blocks, &channels, &done);
    }
    return status;
}

/* ---- All nodes ----------------------------------------------------------------------------- */

enum qk_status qk_qdq_widen(struct qk_edit *edit)
{
    for (uint32_t i = 0; i < edit->node_count; i++) {
        struct qk_call *call = &edit->nodes[i].call;
        struct qk_tensor *zero = &call->inputs[QK_PAIR_ZERO_POINT];
        if (!has_known_codes(call))
            continue;
        if (qk_type_info(call->inputs[QK_PAIR_X].type)->bits < 8 &&
            (!widen(edit, &call->inputs[QK_PAIR_X]) ||
             (zero->type != QK_NONE && !widen(edit, zero))))
            return QK_NO_MEMORY;
        if (merge_blocks(edit, call) != QK_OK)
            return QK_NO_MEMORY;
    }
    return QK_OK;
}
