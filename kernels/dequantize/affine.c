#include "kernels/dequantize/affine.h"

#include <math.h>
#include <string.h>

#include "kernels/dequantize/walk.h"
#include "kernels/element/words.h"

void *qk_alloc_words(size_t count, struct qk_memory memory)
{
    size_t bytes;
    if (!qk_mul_size(count > 0 ? count : 1, sizeof(int32_t), &bytes))
        return NULL;
    return memory.alloc(memory.context, bytes);
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

static const float *copy_scales(const struct qk_tensor *scale, enum qk_type y_type,
                                struct qk_memory memory)
{
    float *scales = qk_alloc_words(scale->stored, memory);
    if (!scales)
        return NULL;
    if (scale->type == QK_FP32 && scale->stored > 0)
        memcpy(scales, scale->data, scale->stored * sizeof(*scales));
    for (size_t i = 0; scale->type != QK_FP32 && i < scale->stored; i++)
        scales[i] = qk_float_decode(scale->type, qk_element_load(scale->type, scale->data, i));
    qk_affine_canonical(y_type, scales, scale->stored);
    return scales;
}

/* Integers of 32 bits stay; all others are exact as floats. */
static const void *copy_zeros(const struct qk_tensor *zero_point, struct qk_memory memory)
{
    int32_t *words = qk_alloc_words(zero_point->stored, memory);
    if (!words)
        return NULL;
    qk_load_words(zero_point->type, zero_point->data, 0, 1, zero_point->stored, words);
    if (qk_type_info(zero_point->type)->bits == 32)
        return words;
    for (size_t i = 0; i < zero_point->stored; i++) {
        const float zero = qk_affine_zero(zero_point->type, (float)words[i]);
        memcpy(&words[i], &zero, sizeof(zero));
    }
    return words;
}

static const struct qk_code_table *make_table(enum qk_type type, struct qk_memory memory)
{
    struct qk_code_table *table = memory.alloc(memory.context, sizeof(*table));
    if (table)
        qk_code_table_init(table, type);
    return table;
}

enum qk_status qk_affine_set(struct qk_affine *affine, const struct qk_tensor *scale,
                             const struct qk_tensor *zero_point, struct qk_memory memory,
                             struct qk_error *error)
{
    const struct qk_type_info *x = qk_type_info(affine->x_type);
    const bool has_zeros = zero_point->type != QK_NONE && x->kind != QK_KIND_FLOAT;
    const bool has_table = x->bits < 8 || x->kind == QK_KIND_FLOAT;
    affine->scales = copy_scales(scale, affine->y_type, memory);
    affine->zeros = has_zeros ? copy_zeros(zero_point, memory) : NULL;
    affine->table = has_table ? make_table(affine->x_type, memory) : NULL;
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
