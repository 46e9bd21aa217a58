#include "kernels/operators/pool/rules.h"

#include <inttypes.h>
#include <string.h>

#include "kernels/element/load.h"
#include "kernels/operators/rules.h"
#include "kernels/operators/shape_text.h"

struct instance {
    struct qk_instance base;
    struct qk_pool pool;
};

/* ---- Attributes ---------------------------------------------------------------------------- */

enum qk_status qk_pool_read_flag(const struct qk_call *call, size_t attribute, bool *flag,
                                 struct qk_error *error)
{
    const int64_t number = qk_int_or(&call->attributes[attribute], 0);
    *flag = number == 1;
    if (number == 0 || number == 1)
        return QK_OK;
    return qk_fail(error, QK_INVALID, "%s: expected 0 or 1, got %" PRId64,
                   call->op->attributes[attribute].name, number);
}

/* Reads a list of exactly `count` numbers, each from `least` to QK_POOL_NUMBER_MAX. If the list is
 * absent or empty, values[] stays as it is. */
static enum qk_status read_ints(const struct qk_call *call, size_t attribute, size_t count,
                                int64_t least, int64_t *values, struct qk_error *error)
{
    const struct qk_attribute *given = &call->attributes[attribute];
    const char *name = call->op->attributes[attribute].name;
    if (!given->present || given->list_count == 0)
        return QK_OK;
    if (given->list_count != count)
        return qk_fail(error, QK_INVALID,
                       "%s: expected %zu integers for the length of kernel_shape, got %zu", name,
                       count, given->list_count);
    for (size_t i = 0; i < count; i++) {
        if (given->list[i] < least || given->list[i] > QK_POOL_NUMBER_MAX)
            return qk_fail(error, QK_INVALID,
                           "%s: expected integers from %" PRId64 " to %" PRId32 ", got %" PRId64
                           " at index %zu",
                           name, least, QK_POOL_NUMBER_MAX, given->list[i], i);
        values[i] = given->list[i];
    }
    return QK_OK;
}

static enum qk_status read_auto_pad(const struct qk_call *call, enum qk_pool_padding *padding,
                                    struct qk_error *error)
{
    static const struct {
        const char *name;
        enum qk_pool_padding padding;
    } modes[] = {
        {"NOTSET", QK_POOL_PAD_EXPLICIT},       {"", QK_POOL_PAD_EXPLICIT},
        {"VALID", QK_POOL_PAD_VALID},           {"SAME_UPPER", QK_POOL_PAD_SAME_UPPER},
        {"SAME_LOWER", QK_POOL_PAD_SAME_LOWER},
    };
    const struct qk_attribute *given = &call->attributes[QK_POOL_AUTO_PAD];
    const char *name = given->present ? given->string : "";
    for (size_t i = 0; i < QK_LENGTH_OF(modes); i++)
        if (strcmp(name, modes[i].name) == 0) {
            *padding = modes[i].padding;
            return QK_OK;
        }
    return qk_fail(error, QK_INVALID,
                   "auto_pad: expected NOTSET, VALID, SAME_UPPER or SAME_LOWER, got \"%.64s\"",
                   name);
}

/* Reads pads, which must be less than the kernel even if auto_pad makes others. */
static enum qk_status read_pads(const struct qk_call *call, struct qk_pool_desc *desc,
                                struct qk_error *error)
{
    const uint32_t rank = desc->spatial_rank;
    const uint32_t lead = QK_POOL_SPATIAL_MAX - rank;
    int64_t pads[2 * QK_POOL_SPATIAL_MAX] = {0};
    const enum qk_status status = read_ints(call, QK_POOL_PADS, (size_t)2 * rank, 0, pads, error);
    if (status != QK_OK)
        return status;
    for (uint32_t i = 0; i < 2 * rank; i++)
        if (pads[i] >= desc->kernel[lead + i % rank])
            return qk_fail(error, QK_INVALID,
                           "pads: expected less than the kernel's %" PRId64 ", got %" PRId64
                           " at index %u",
                           desc->kernel[lead + i % rank], pads[i], i);
    for (uint32_t i = 0; i < rank; i++) {
        desc->pad_begin[lead + i] = pads[i];
        desc->pad_end[lead + i] = pads[rank + i];
    }
    return QK_OK;
}

enum qk_status qk_pool_read_windows(const struct qk_call *call, size_t dilations,
                                    struct qk_pool_desc *desc, struct qk_error *error)
{
    const size_t count = call->attributes[QK_POOL_KERNEL_SHAPE].list_count;
    if (!call->attributes[QK_POOL_KERNEL_SHAPE].present || count < 1 || count > QK_POOL_SPATIAL_MAX)
        return qk_fail(
            error, QK_INVALID,
            "kernel_shape: expected 1 to %d integers, one for each axis of the window, got %zu",
            QK_POOL_SPATIAL_MAX, call->attributes[QK_POOL_KERNEL_SHAPE].present ? count : 0);
    const size_t lead = QK_POOL_SPATIAL_MAX - count;
    desc->spatial_rank = (uint32_t)count;
    for (size_t i = 0; i < QK_POOL_SPATIAL_MAX; i++)
        desc->kernel[i] = desc->stride[i] = desc->dilation[i] = 1;
    enum qk_status status =
        read_ints(call, QK_POOL_KERNEL_SHAPE, count, 1, desc->kernel + lead, error);
    if (status == QK_OK)
        status = read_ints(call, QK_POOL_STRIDES, count, 1, desc->stride + lead, error);
    if (status == QK_OK && dilations != SIZE_MAX)
        status = read_ints(call, dilations, count, 1, desc->dilation + lead, error);
    if (status == QK_OK)
        status = read_pads(call, desc, error);
    if (status == QK_OK)
        status = read_auto_pad(call, &desc->padding, error);
    if (status == QK_OK)
        status = qk_pool_read_flag(call, QK_POOL_CEIL_MODE, &desc->ceil_mode, error);
    return status;
}

/* ---- Inputs -------------------------------------------------------------------------------- */

enum qk_status qk_pool_read_parameters(const struct qk_call *call, struct qk_pool *pool,
                                       struct qk_error *error)
{
    const struct qk_tensor *inputs = call->inputs;
    struct qk_shape_text shape;
    for (size_t i = QK_POOL_X_SCALE; i < QK_POOL_INPUT_COUNT; i++)
        if (!qk_is_single(&inputs[i]))
            return qk_fail(error, QK_INVALID, "%s: expected shape [] or [1], got %s",
                           call->op->inputs[i].name, qk_shape_text(&inputs[i], &shape));
    enum qk_status status = qk_check_same_type(call, QK_POOL_X_ZERO_POINT, QK_POOL_X, error);
    if (status == QK_OK)
        status = qk_check_same_type(call, QK_POOL_Y_ZERO_POINT, QK_POOL_X, error);
    if (status != QK_OK)
        return status;
    const enum qk_type type = inputs[QK_POOL_X].type;
    pool->type = type;
    pool->x_scale = qk_load_f32(inputs[QK_POOL_X_SCALE].data, 0);
    pool->y_scale = qk_load_f32(inputs[QK_POOL_Y_SCALE].data, 0);
    pool->x_zero = (int32_t)qk_load_integer(type, inputs[QK_POOL_X_ZERO_POINT].data, 0);
    pool->y_zero = (int32_t)qk_load_integer(type, inputs[QK_POOL_Y_ZERO_POINT].data, 0);
    return QK_OK;
}

/* ---- Instances ----------------------------------------------------------------------------- */

enum qk_status qk_pool_make(const struct qk_pool *pool, struct qk_memory memory,
                            struct qk_instance **instance, struct qk_error *error)
{
    struct instance *made = memory.alloc(memory.context, sizeof(*made));
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for an operator");
    *made = (struct instance){.base = {.output_types = {pool->type}}, .pool = *pool};
    *instance = &made->base;
    return QK_OK;
}

const struct qk_pool *qk_pool_of(const struct qk_instance *instance)
{
    return &((const struct instance *)instance)->pool;
}

enum qk_status qk_pool_plan_instance(const struct qk_instance *instance,
                                     const struct qk_tensor *inputs, struct qk_memory memory,
                                     struct qk_plan *plan, struct qk_error *error)
{
    return qk_pool_plan(qk_pool_of(instance), instance, &inputs[QK_POOL_X], memory, plan, error);
}
