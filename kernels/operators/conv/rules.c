#include "kernels/operators/conv/rules.h"

#include <inttypes.h>
#include <string.h>

#include "kernels/conv/requantize.h"
#include "kernels/dispatch.h"
#include "kernels/operators/rules.h"
#include "kernels/operators/shape_text.h"

struct instance {
    struct qk_instance base;
    struct qk_conv conv;
    struct qk_epilogue epilogue;
    uint32_t x_zero_point_input; /* as in struct qk_conv_constants */
};

/* ---- Attributes -------------------------------------------------------------------------- */

/* Reads a list of exactly `count` numbers, each from `least` to QK_CONV_NUMBER_MAX. Where the
 * attribute is absent, values[] stays as it is. */
static enum qk_status read_ints(const struct qk_call *call, const struct qk_tensor *w,
                                size_t attribute, size_t count, int64_t least, int64_t *values,
                                struct qk_error *error)
{
    const struct qk_attribute *given = &call->attributes[attribute];
    const char *name = call->op->attributes[attribute].name;
    if (!given->present)
        return QK_OK;
    if (given->list_count != count)
        return qk_fail(error, QK_INVALID, "%s: expected %zu integers for w of rank %u, got %zu",
                       name, count, w->rank, given->list_count);
    for (size_t i = 0; i < count; i++) {
        if (given->list[i] < least || given->list[i] > QK_CONV_NUMBER_MAX)
            return qk_fail(error, QK_INVALID,
                           "%s: expected integers from %" PRId64 " to %" PRId32 ", got %" PRId64
                           " at index %zu",
                           name, least, QK_CONV_NUMBER_MAX, given->list[i], i);
        values[i] = given->list[i];
    }
    return QK_OK;
}

static enum qk_status read_auto_pad(const struct qk_call *call, enum qk_conv_padding *padding,
                                    struct qk_error *error)
{
    static const struct {
        const char *name;
        enum qk_conv_padding padding;
    } modes[] = {
        {"NOTSET", QK_CONV_PAD_EXPLICIT},       {"", QK_CONV_PAD_EXPLICIT},
        {"VALID", QK_CONV_PAD_VALID},           {"SAME_UPPER", QK_CONV_PAD_SAME_UPPER},
        {"SAME_LOWER", QK_CONV_PAD_SAME_LOWER},
    };
    const struct qk_attribute *given = &call->attributes[QK_CONV_AUTO_PAD];
    const char *name = given->present ? given->string : "";
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        if (strcmp(name, modes[i].name) != 0)
            continue;
        *padding = modes[i].padding;
        if (*padding != QK_CONV_PAD_EXPLICIT && call->attributes[QK_CONV_PADS].present)
            return qk_fail(error, QK_INVALID,
                           "pads: expected none where auto_pad is %s, got a list of %zu", name,
                           call->attributes[QK_CONV_PADS].list_count);
        return QK_OK;
    }
    return qk_fail(error, QK_INVALID,
                   "auto_pad: expected NOTSET, VALID, SAME_UPPER or SAME_LOWER, got \"%.64s\"",
                   name);
}

static enum qk_status read_group(const struct qk_call *call, struct qk_conv_desc *desc,
                                 struct qk_error *error)
{
    const struct qk_attribute *given = &call->attributes[QK_CONV_GROUP];
    if (given->present && (given->number < 1 || given->number > QK_CONV_NUMBER_MAX))
        return qk_fail(error, QK_INVALID, "group: expected 1 to %" PRId32 ", got %" PRId64,
                       QK_CONV_NUMBER_MAX, given->number);
    desc->group = given->present ? (size_t)given->number : 1;
    if (desc->out_channels % desc->group != 0)
        return qk_fail(error, QK_INVALID,
                       "group: expected a divisor of w's %zu output channels, got %zu",
                       desc->out_channels, desc->group);
    return QK_OK;
}

static enum qk_status check_kernel_shape(const struct qk_call *call, const struct qk_tensor *w,
                                         struct qk_error *error)
{
    const struct qk_attribute *given = &call->attributes[QK_CONV_KERNEL_SHAPE];
    if (!given->present)
        return QK_OK;
    int64_t shape[QK_CONV_SPATIAL_MAX];
    enum qk_status status = read_ints(call, w, QK_CONV_KERNEL_SHAPE, w->rank - 2, 1, shape, error);
    for (uint32_t i = 0; i < w->rank - 2 && status == QK_OK; i++) {
        if ((size_t)shape[i] != w->dims[2 + i])
            status = qk_fail(error, QK_INVALID,
                             "kernel_shape: expected w's %zu at index %u, got %" PRId64,
                             w->dims[2 + i], i, shape[i]);
    }
    return status;
}

/* Reads the list attributes. pads is [begin1, ..., beginN, end1, ..., endN], the others have one
 * number for each axis. */
static enum qk_status read_axes(const struct qk_call *call, const struct qk_tensor *w,
                                struct qk_conv_desc *desc, struct qk_error *error)
{
    const uint32_t rank = desc->spatial_rank;
    const uint32_t lead = QK_CONV_SPATIAL_MAX - rank;
    int64_t pads[2 * QK_CONV_SPATIAL_MAX] = {0};
    for (uint32_t i = 0; i < QK_CONV_SPATIAL_MAX; i++) {
        size_t kernel = i < lead ? 1 : w->dims[2 + i - lead];
        if (kernel < 1 || kernel > QK_CONV_NUMBER_MAX)
            return qk_fail(error, QK_INVALID,
                           "w: expected kernel axes from 1 to %" PRId32 ", got %zu",
                           QK_CONV_NUMBER_MAX, kernel);
        desc->kernel[i] = (int64_t)kernel;
        desc->stride[i] = 1;
        desc->dilation[i] = 1;
    }
    enum qk_status status = check_kernel_shape(call, w, error);
    if (status == QK_OK)
        status = read_ints(call, w, QK_CONV_STRIDES, rank, 1, desc->stride + lead, error);
    if (status == QK_OK)
        status = read_ints(call, w, QK_CONV_DILATIONS, rank, 1, desc->dilation + lead, error);
    if (status == QK_OK)
        status = read_ints(call, w, QK_CONV_PADS, (size_t)2 * rank, 0, pads, error);
    if (status == QK_OK)
        status = read_auto_pad(call, &desc->padding, error);
    for (uint32_t i = 0; i < rank; i++) {
        desc->pad_begin[lead + i] = pads[i];
        desc->pad_end[lead + i] = pads[rank + i];
    }
    return status;
}

enum qk_status qk_conv_check_weights(const struct qk_call *call, size_t w_input,
                                     struct qk_error *error)
{
    const struct qk_tensor *w = &call->inputs[w_input];
    struct qk_shape_text shape;
    if (w->rank < 3 || w->rank > 2 + QK_CONV_SPATIAL_MAX)
        return qk_fail(error, QK_INVALID,
                       "w: expected [M, C/group, k1..kn] with 1 to %d kernel axes, got shape %s",
                       QK_CONV_SPATIAL_MAX, qk_shape_text(w, &shape));
    return QK_OK;
}

enum qk_status qk_conv_read_desc(const struct qk_call *call, size_t w_input,
                                 struct qk_conv_desc *desc, struct qk_error *error)
{
    const struct qk_tensor *w = &call->inputs[w_input];
    *desc = (struct qk_conv_desc){
        .spatial_rank = w->rank - 2,
        .out_channels = w->dims[0],
        .group_channels = w->dims[1],
    };
    const enum qk_status status = read_group(call, desc, error);
    return status == QK_OK ? read_axes(call, w, desc, error) : status;
}

enum qk_status qk_conv_check_parameter(const struct qk_call *call, size_t input, size_t w_input,
                                       struct qk_error *error)
{
    const struct qk_tensor *tensor = &call->inputs[input];
    const size_t channels = call->inputs[w_input].dims[0];
    if (tensor->type == QK_NONE || qk_is_single(tensor) ||
        (tensor->rank == 1 && tensor->dims[0] == channels))
        return QK_OK;
    struct qk_shape_text shape;
    return qk_fail(error, QK_INVALID,
                   "%s: expected shape [], [1], or [%zu] for each output channel of w, got %s",
                   call->op->inputs[input].name, channels, qk_shape_text(tensor, &shape));
}

/* ---- Instances --------------------------------------------------------------------------- */

enum qk_status qk_conv_make(const struct qk_kernels *kernels, const struct qk_conv_desc *desc,
                            const struct qk_conv_constants *constants, enum qk_type y_type,
                            int32_t y_zero_point, struct qk_memory memory,
                            struct qk_instance **instance, struct qk_error *error)
{
    struct instance *made = memory.alloc(memory.context, sizeof(*made));
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "no memory for the operator");
    const enum qk_status status =
        qk_conv_prepare(desc, constants, &kernels->choice.conv, memory, &made->conv, error);
    made->base = (struct qk_instance){.pack_unit_count = made->conv.packing.unit_count,
                                      .pack_unit_cost_ns = made->conv.packing.unit_cost_ns,
                                      .output_types = {y_type}};
    made->epilogue = (struct qk_epilogue){
        .kind = desc->epilogue,
        .y_type = y_type,
        .y_bytes = desc->epilogue == QK_EPILOGUE_BYTES ? 1 : sizeof(int32_t),
        .multiplier = made->conv.multiplier,
    };
    if (desc->epilogue == QK_EPILOGUE_BYTES)
        made->epilogue.requantize = qk_requantize_for(y_type, y_zero_point);
    made->x_zero_point_input = constants->x_zero_point_input;
    *instance = &made->base;
    return status;
}

void qk_conv_pack_instance(struct qk_instance *instance, size_t begin, size_t end)
{
    qk_conv_pack(&((struct instance *)instance)->conv, begin, end);
}

enum qk_status qk_conv_plan_instance(const struct qk_instance *instance,
                                     const struct qk_tensor *inputs, struct qk_memory memory,
                                     struct qk_plan *plan, struct qk_error *error)
{
    const struct instance *made = (const struct instance *)instance;
    const struct qk_conv *conv = &made->conv;
    const struct qk_conv_desc *desc = &conv->desc;
    const struct qk_tensor *x = &inputs[0];
    const uint32_t zero_point = made->x_zero_point_input;
    struct qk_shape_text shape;
    if (x->rank != desc->spatial_rank + 2)
        return qk_fail_of_rank(error, "x: expected rank %u as w has, got %u",
                               desc->spatial_rank + 2, x->rank);
    size_t channels;
    if (!qk_mul_size(desc->group_channels, desc->group, &channels) ||
        x->dims[desc->channels_last ? x->rank - 1 : 1] != channels)
        return qk_fail(error, QK_INVALID,
                       "x: expected C = %zu (of w) * %zu (group) channels, got shape %s",
                       desc->group_channels, desc->group, qk_shape_text(x, &shape));
    if (zero_point != 0 && !qk_is_single(&inputs[zero_point]))
        return qk_fail(error, QK_INVALID, "%s: expected shape [] or [1], got %s",
                       instance->op->inputs[zero_point].name,
                       qk_shape_text(&inputs[zero_point], &shape));
    const struct qk_kernels *kernels = instance->kernels;
    return qk_conv_plan(conv, &made->epilogue, &kernels->openblas, kernels->im2col, &kernels->move,
                        x, memory, plan, error);
}
