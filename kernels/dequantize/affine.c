#include "kernels/dequantize/affine.h"

#include <math.h>
#include <string.h>

#include "kernels/dequantize/walk.h"

void *qk_alloc_words(size_t count, struct qk_memory memory)
{
    size_t bytes;
    if (!qk_mul_size(count > 0 ? count : 1, sizeof(int32_t), &bytes))
        return NULL;
    return memory.alloc(memory.context, bytes);
}

enum qk_code qk_affine_code(enum qk_type x_type, enum qk_affine_form form)
{
    switch (x_type) {
    case QK_UINT8:
        return QK_CODE_U8;
    case QK_INT8:
        return QK_CODE_S8;
    case QK_UINT16:
        return QK_CODE_U16;
    case QK_INT16:
        return QK_CODE_S16;
    case QK_UINT32:
        return QK_CODE_U32_EXACT;
    case QK_INT32:
        return form == QK_AFFINE_WRAPPED ? QK_CODE_S32_WRAPPED
               : form == QK_AFFINE_EXACT ? QK_CODE_S32_EXACT
               : form == QK_AFFINE_FLOAT ? QK_CODE_S32
                                         : QK_CODE_S32_RECAST;
    default:
        return qk_type_info(x_type)->bits == 2   ? QK_CODE_BITS2
               : qk_type_info(x_type)->bits == 4 ? QK_CODE_BITS4
                                                 : QK_CODE_FLOAT8;
    }
}

void qk_affine_canonical(enum qk_type type, float *values, size_t count)
{
    if (type == QK_FP32)
        return;
    for (size_t i = 0; i < count; i++)
        if (isnan(values[i]))
            values[i] = copysignf(NAN, values[i]);
}

float qk_affine_zero(enum qk_type x_type, float zero)
{
    switch (x_type) {
    case QK_UINT8:
        return zero + QK_RAISE_U8;
    case QK_INT8:
        return zero + QK_RAISE_S8;
    case QK_UINT16:
        return zero + QK_RAISE_U16;
    case QK_INT16:
        return zero + QK_RAISE_S16;
    default:
        return zero;
    }
}

/* Whether kernels may read them as they lie. */
static bool are_ready(const struct qk_tensor *scale, enum qk_type y_type)
{
    const float *scales = scale->data;
    if (scale->type != QK_FP32 || (uintptr_t)scales % sizeof(*scales) != 0)
        return false;
    bool has_nan = false;
    for (size_t i = 0; y_type != QK_FP32 && i < scale->stored; i++)
        has_nan |= isnan(scales[i]) != 0;
    return !has_nan;
}

static const float *read_scales(const struct qk_dequantize_kernels *kernels,
                                const struct qk_tensor *scale, enum qk_type y_type,
                                struct qk_memory memory)
{
    if (scale->stored > 0 && are_ready(scale, y_type))
        return scale->data;
    float *scales = qk_alloc_words(scale->stored, memory);
    if (!scales)
        return NULL;
    if (scale->type != QK_FP32)
        kernels->widen(scales, scale->type, scale->data, scale->stored);
    else if (scale->stored > 0)
        memcpy(scales, scale->data, scale->stored * sizeof(*scales));
    qk_affine_canonical(y_type, scales, scale->stored);
    return scales;
}

/* Integers of 32 bits as they are. All others are exact as floats, and a kernel makes them so. */
static const void *read_zeros(const struct qk_dequantize_kernels *kernels,
                              const struct qk_tensor *zero_point, const struct qk_code_table *table,
                              struct qk_memory memory)
{
    static const float one = 1;
    const float raise = qk_affine_zero(zero_point->type, 0);
    const enum qk_code code = qk_affine_code(zero_point->type, QK_AFFINE_WRAPPED);
    void *zeros = qk_alloc_words(zero_point->stored, memory);
    if (!zeros)
        return NULL;
    const bool as_they_are = code == QK_CODE_S32_WRAPPED || code == QK_CODE_U32_EXACT;
    if (as_they_are && zero_point->stored > 0)
        memcpy(zeros, zero_point->data, zero_point->stored * sizeof(int32_t));
    if (as_they_are)
        return zeros;
    qk_dequantize(kernels, &(struct qk_dequantize_args){.code = code,
                                                        .y_type = QK_FP32,
                                                        .x = zero_point->data,
                                                        .count = zero_point->stored,
                                                        .y = zeros,
                                                        .block = SIZE_MAX,
                                                        .scales = &one,
                                                        .offsets = &raise,
                                                        .table = table});
    return zeros;
}

static const struct qk_code_table *make_table(enum qk_type type, struct qk_memory memory)
{
    struct qk_code_table *table = memory.alloc(memory.context, sizeof(*table));
    if (table)
        qk_code_table_init(table, type);
    return table;
}

enum qk_status qk_affine_set(struct qk_affine *affine, const struct qk_dequantize_kernels *kernels,
                             const struct qk_tensor *scale, const struct qk_tensor *zero_point,
                             struct qk_memory memory, struct qk_error *error)
{
    const struct qk_type_info *x = qk_type_info(affine->x_type);
    const bool has_zeros = zero_point->type != QK_NONE && x->kind != QK_KIND_FLOAT;
    const bool has_table = x->bits < 8 || x->kind == QK_KIND_FLOAT;
    affine->table = has_table ? make_table(affine->x_type, memory) : NULL;
    if (!has_table || affine->table) {
        affine->scales = read_scales(kernels, scale, affine->y_type, memory);
        affine->zeros = has_zeros ? read_zeros(kernels, zero_point, affine->table, memory) : NULL;
    }
    if (!affine->scales || (has_zeros && !affine->zeros) || (has_table && !affine->table))
        return qk_fail(error, QK_NO_MEMORY, "out of memory for %zu scales and zero points",
                       scale->stored);
    return QK_OK;
}

enum qk_status qk_affine_plan(const struct qk_affine *affine,
                              const struct qk_dequantize_kernels *kernels,
                              const struct qk_call *call, const struct qk_grid *grid,
                              struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct qk_tensor *x = &call->inputs[0];
    if (x->type != affine->x_type)
        return qk_fail(error, QK_INVALID, "%s: expected datatype %s as for create, got %s",
                       call->op->input_names[0], qk_type_info(affine->x_type)->name,
                       qk_type_info(x->type)->name);
    plan->output = *x;
    plan->output.type = affine->y_type;
    plan->output.stored = x->count;
    plan->output.data = NULL;
    if (!qk_type_bytes(affine->y_type, x->count, &plan->output_bytes))
        return qk_fail(error, QK_INVALID, "%s: too large, its output has more bytes than memory",
                       call->op->input_names[0]);
    return qk_walk_plan(affine, kernels, x, grid, memory, plan, error);
}
