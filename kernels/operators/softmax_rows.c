#include "kernels/operators/softmax_rows.h"

#include "kernels/operators/move/moving.h"
#include "kernels/operators/rules.h"

#define ONE_AXIS_SINCE 13

/* The rows' number and length fit, because x does. */
enum qk_status qk_softmax_rows_find(const struct qk_attribute *axis, int64_t version,
                                    const struct qk_tensor *x, struct qk_softmax_rows *rows,
                                    struct qk_error *error)
{
    const bool is_one_axis = version >= ONE_AXIS_SINCE;
    const int64_t number = qk_int_or(axis, is_one_axis ? -1 : 1);
    uint32_t first;
    const enum qk_status status = qk_find_axis("axis", number, x->rank, &first, error);
    if (status != QK_OK)
        return status;
    *rows = (struct qk_softmax_rows){.length = 1, .stride = 1};
    for (uint32_t i = first; i < x->rank; i++)
        if (i == first || !is_one_axis)
            rows->length *= x->dims[i];
        else
            rows->stride *= x->dims[i];
    rows->count = x->count > 0 ? x->count / rows->length : 0;
    return QK_OK;
}
