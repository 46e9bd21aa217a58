#include "kernels/operators/rules.h"

#include "kernels/element/load.h"
#include "kernels/operators/shape_text.h"

int64_t qk_int_or(const struct qk_attribute *attribute, int64_t otherwise)
{
    return attribute->present ? attribute->number : otherwise;
}

bool qk_is_single(const struct qk_tensor *tensor)
{
    return tensor->rank == 0 || (tensor->rank == 1 && tensor->dims[0] == 1);
}

enum qk_status qk_check_single(const struct qk_call *call, size_t input, struct qk_error *error)
{
    const struct qk_tensor *tensor = &call->inputs[input];
    struct qk_shape_text shape;
    if (tensor->type == QK_NONE || qk_is_single(tensor))
        return QK_OK;
    return qk_fail(error, QK_INVALID, "%s: expected shape [] or [1], got %s",
                   call->op->inputs[input].name, qk_shape_text(tensor, &shape));
}

int32_t qk_zero_point_or_0(const struct qk_tensor *tensor)
{
    return tensor->type == QK_NONE ? 0 : (int32_t)qk_load_integer(tensor->type, tensor->data, 0);
}

bool qk_same_shape(const struct qk_tensor *a, const struct qk_tensor *b)
{
    if (a->rank != b->rank)
        return false;
    for (uint32_t i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i])
            return false;
    return true;
}

enum qk_status qk_check_same_type(const struct qk_call *call, size_t input, size_t like,
                                  struct qk_error *error)
{
    const enum qk_type type = call->inputs[input].type;
    const enum qk_type expected = call->inputs[like].type;
    if (type == QK_NONE || type == expected)
        return QK_OK;
    return qk_fail(error, QK_INVALID, "%s: expected the datatype of %s, %s, got %s",
                   call->op->inputs[input].name, call->op->inputs[like].name,
                   qk_type_info(expected)->name, qk_type_info(type)->name);
}
