#include "kernels/network/pair.h"

#include <math.h>
#include <string.h>

#include "kernels/operators/operator.h"
#include "kernels/operators/rules.h"

static const uint64_t zero; /* a zero point of any type */

size_t qk_pair_attribute(const struct qk_operator *op, const char *name)
{
    size_t i = 0;
    while (i < op->attribute_count && strcmp(op->attributes[i].name, name) != 0)
        i++;
    return i;
}

static int64_t number_or(const struct qk_call *call, const char *name, int64_t otherwise)
{
    const size_t index = qk_pair_attribute(call->op, name);
    return index < call->op->attribute_count ? qk_int_or(&call->attributes[index], otherwise)
                                             : otherwise;
}

static bool is_known(const struct qk_call *call, size_t input)
{
    return !(call->variable >> input & 1) && call->inputs[input].data != NULL;
}

/* Returns the type of the codes that a node reads or makes, or QK_NONE. */
static enum qk_type code_type(const struct qk_edit *edit, uint32_t node)
{
    const struct qk_call *call = &edit->nodes[node].call;
    const enum qk_type zero_point = call->inputs[QK_PAIR_ZERO_POINT].type;
    enum qk_type own;
    if (call->op == &qk_onnx_quantize_linear) {
        const int64_t number = number_or(call, "output_dtype", 0);
        own = zero_point == QK_NONE && number == 0 ? QK_UINT8 : QK_NONE;
        if (number != 0 && (zero_point == QK_NONE || number != qk_type_info(zero_point)->onnx))
            return QK_NONE;
    } else if (call->variable >> QK_PAIR_X & 1) {
        const uint32_t value = qk_edit_value_of(edit, node, QK_PAIR_X);
        own = value == QK_VALUE_NONE ? QK_NONE : edit->types[value];
    } else {
        own = call->inputs[QK_PAIR_X].type;
    }
    return zero_point == QK_NONE || zero_point == own ? own : own == QK_NONE ? zero_point : QK_NONE;
}

/* Returns whether an attribute that names a type is absent or names FP32. */
static bool is_fp32(const struct qk_call *call, const char *name)
{
    const int64_t number = number_or(call, name, 0);
    return number == 0 || number == qk_type_info(QK_FP32)->onnx;
}

/* Returns whether a zero point belongs to the scale. Both operators refuse others. */
static bool fits(const struct qk_tensor *zero_point, const struct qk_pair *pair)
{
    return pair->is_per_tensor ? qk_is_single(zero_point) : qk_same_shape(zero_point, &pair->scale);
}

bool qk_pair_read(const struct qk_edit *edit, uint32_t node, const struct qk_operator *op,
                  struct qk_pair *pair)
{
    if (node == QK_NO_NODE || edit->nodes[node].call.op != op)
        return false;
    const struct qk_call *call = &edit->nodes[node].call;
    const struct qk_tensor *zero_point = &call->inputs[QK_PAIR_ZERO_POINT];
    const bool has_zero = call->variable >> QK_PAIR_ZERO_POINT & 1 || zero_point->type != QK_NONE;
    pair->scale = call->inputs[QK_PAIR_SCALE];
    pair->is_per_tensor = qk_is_single(&pair->scale);
    if (!is_known(call, QK_PAIR_SCALE) || pair->scale.type != QK_FP32 ||
        (!pair->is_per_tensor && pair->scale.rank != 1) ||
        (has_zero && (!is_known(call, QK_PAIR_ZERO_POINT) || !fits(zero_point, pair))) ||
        number_or(call, "block_size", 0) != 0 || !is_fp32(call, "precision") ||
        (op == &qk_onnx_dequantize_linear && !is_fp32(call, "output_dtype")))
        return false;
    pair->axis = number_or(call, "axis", 1);
    pair->type = code_type(edit, node);
    pair->zero_point =
        has_zero ? *zero_point
                 : (struct qk_tensor){.type = pair->type, .count = 1, .stored = 1, .data = &zero};
    return pair->type == QK_UINT8 || pair->type == QK_INT8 || pair->type == QK_UINT16 ||
           pair->type == QK_INT16 || pair->type == QK_INT32;
}

bool qk_pair_is_positive(const struct qk_pair *pair)
{
    float scale;
    memcpy(&scale, pair->scale.data, sizeof(scale));
    return pair->is_per_tensor && scale > 0 && isfinite(scale);
}

bool qk_pair_same(const struct qk_pair *a, const struct qk_pair *b)
{
    size_t bytes;
    return a->type == b->type && a->is_per_tensor && b->is_per_tensor &&
           qk_type_bytes(a->type, 1, &bytes) &&
           memcmp(a->scale.data, b->scale.data, sizeof(float)) == 0 &&
           memcmp(a->zero_point.data, b->zero_point.data, bytes) == 0;
}
