/* onnx.QLinearConv: the descriptor, and the rules of ONNX (onnx/defs/nn/defs.cc) that ONNX Runtime
 * enforces. Sums wrap modulo 2^32; w_zero_point may differ for each output channel; int8 and uint8
 * mix freely. */
#include <inttypes.h>
#include <string.h>

#include "kernels/conv/conv.h"
#include "kernels/conv/requantize.h"
#include "kernels/dispatch.h"
#include "kernels/element/load.h"
#include "kernels/operators/operator.h"
#include "kernels/operators/rules.h"
#include "kernels/operators/shape_text.h"

enum { X, X_SCALE, X_ZERO_POINT, W, W_SCALE, W_ZERO_POINT, Y_SCALE, Y_ZERO_POINT, B };
enum { AUTO_PAD, DILATIONS, GROUP, KERNEL_SHAPE, PADS, STRIDES };

struct instance {
    struct qk_instance base;
    struct qk_conv conv;
    struct qk_epilogue epilogue;
};

/* ---- Attributes -------------------------------------------------------------------------- */

/* Reads a list of exactly `count` numbers, each from `least` to QK_CONV_NUMBER_MAX. Where the
 * attribute is absent, values[] stays as it is. */
static enum qk_status read_ints(const struct qk_call *call, size_t attribute, size_t count,
                                int64_t least, int64_t *values, struct qk_error *error)
{
    const struct qk_attribute *given = &call->attributes[attribute];
    const char *name = call->op->attributes[attribute].name;
    if (!given->present)
        return QK_OK;
    if (given->list_count != count)
        return qk_fail(error, QK_INVALID, "%s: expected %zu integers for w of rank %u, got %zu",
                       name, count, call->inputs[W].rank, given->list_count);
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
    const struct qk_attribute *given = &call->attributes[AUTO_PAD];
    const char *name = given->present ? given->string : "";
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        if (strcmp(name, modes[i].name) != 0)
            continue;
        *padding = modes[i].padding;
        if (*padding != QK_CONV_PAD_EXPLICIT && call->attributes[PADS].present)
            return qk_fail(error, QK_INVALID,
                           "pads: expected none where auto_pad is %s, got a list of %zu", name,
                           call->attributes[PADS].list_count);
        return QK_OK;
    }
    return qk_fail(error, QK_INVALID,
                   "auto_pad: expected NOTSET, VALID, SAME_UPPER or SAME_LOWER, got \"%.64s\"",
                   name);
}

static enum qk_status read_group(const struct qk_call *call, struct qk_conv_desc *desc,
                                 struct qk_error *error)
{
    const struct qk_attribute *given = &call->attributes[GROUP];
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

static enum qk_status check_kernel_shape(const struct qk_call *call, struct qk_error *error)
{
    const struct qk_attribute *given = &call->attributes[KERNEL_SHAPE];
    const struct qk_tensor *w = &call->inputs[W];
    if (!given->present)
        return QK_OK;
    int64_t shape[QK_CONV_SPATIAL_MAX];
    enum qk_status status = read_ints(call, KERNEL_SHAPE, w->rank - 2, 1, shape, error);
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
static enum qk_status read_axes(const struct qk_call *call, struct qk_conv_desc *desc,
                                struct qk_error *error)
{
    const uint32_t rank = desc->spatial_rank;
    const uint32_t lead = QK_CONV_SPATIAL_MAX - rank;
    int64_t pads[2 * QK_CONV_SPATIAL_MAX] = {0};
    for (uint32_t i = 0; i < QK_CONV_SPATIAL_MAX; i++) {
        size_t kernel = i < lead ? 1 : call->inputs[W].dims[2 + i - lead];
        if (kernel < 1 || kernel > QK_CONV_NUMBER_MAX)
            return qk_fail(error, QK_INVALID,
                           "w: expected kernel axes from 1 to %" PRId32 ", got %zu",
                           QK_CONV_NUMBER_MAX, kernel);
        desc->kernel[i] = (int64_t)kernel;
        desc->stride[i] = 1;
        desc->dilation[i] = 1;
    }
    enum qk_status status = check_kernel_shape(call, error);
    if (status == QK_OK)
        status = read_ints(call, STRIDES, rank, 1, desc->stride + lead, error);
    if (status == QK_OK)
        status = read_ints(call, DILATIONS, rank, 1, desc->dilation + lead, error);
    if (status == QK_OK)
        status = read_ints(call, PADS, (size_t)2 * rank, 0, pads, error);
    if (status == QK_OK)
        status = read_auto_pad(call, &desc->padding, error);
    for (uint32_t i = 0; i < rank; i++) {
        desc->pad_begin[lead + i] = pads[i];
        desc->pad_end[lead + i] = pads[rank + i];
    }
    return status;
}

/* ---- Inputs ------------------------------------------------------------------------------ */

/* Checks the shape of a scale or zero point: one element or, where `per_channel`, one for each
 * output channel. */
static enum qk_status check_parameter(const struct qk_call *call, size_t input, bool per_channel,
                                      struct qk_error *error)
{
    const struct qk_tensor *tensor = &call->inputs[input];
    const size_t channels = call->inputs[W].dims[0];
    if (qk_is_single(tensor))
        return QK_OK;
    if (per_channel && tensor->rank == 1 && tensor->dims[0] == channels)
        return QK_OK;
    struct qk_shape_text shape;
    const char *name = call->op->inputs[input].name;
    if (!per_channel)
        return qk_fail(error, QK_INVALID, "%s: expected shape [] or [1], got %s", name,
                       qk_shape_text(tensor, &shape));
    return qk_fail(error, QK_INVALID,
                   "%s: expected shape [], [1], or [%zu] for each output channel of w, got %s",
                   name, channels, qk_shape_text(tensor, &shape));
}

static enum qk_status check_constants(const struct qk_call *call, struct qk_error *error)
{
    const struct qk_tensor *w = &call->inputs[W];
    const struct qk_tensor *bias = &call->inputs[B];
    struct qk_shape_text shape;
    if (w->rank < 3 || w->rank > 2 + QK_CONV_SPATIAL_MAX)
        return qk_fail(error, QK_INVALID,
                       "w: expected [M, C/group, k1..kn] with 1 to %d kernel axes, got shape %s",
                       QK_CONV_SPATIAL_MAX, qk_shape_text(w, &shape));
    static const size_t scalars[] = {X_SCALE, X_ZERO_POINT, Y_SCALE, Y_ZERO_POINT};
    enum qk_status status = QK_OK;
    for (size_t i = 0; i < sizeof(scalars) / sizeof(scalars[0]) && status == QK_OK; i++)
        status = check_parameter(call, scalars[i], false, error);
    if (status == QK_OK)
        status = check_parameter(call, W_SCALE, true, error);
    if (status == QK_OK)
        status = check_parameter(call, W_ZERO_POINT, true, error);
    if (status == QK_OK)
        status = qk_check_same_type(call, W_ZERO_POINT, W, error);
    if (status == QK_OK)
        status = qk_check_same_type(call, X_ZERO_POINT, X, error);
    if (status == QK_OK && bias->type != QK_NONE &&
        (bias->rank != 1 || bias->dims[0] != w->dims[0]))
        status = qk_fail(error, QK_INVALID,
                         "B: expected shape [%zu], one for each output channel of w, got %s",
                         w->dims[0], qk_shape_text(bias, &shape));
    return status;
}

static int32_t load_zero_point(const struct qk_tensor *tensor)
{
    return (int32_t)qk_load_integer(tensor->type, tensor->data, 0);
}

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    const struct qk_tensor *inputs = call->inputs;
    enum qk_status status = check_constants(call, error);
    if (status != QK_OK)
        return status;
    struct qk_conv_desc desc = {
        .spatial_rank = inputs[W].rank - 2,
        .out_channels = inputs[W].dims[0],
        .group_channels = inputs[W].dims[1],
    };
    status = read_group(call, &desc, error);
    if (status == QK_OK)
        status = read_axes(call, &desc, error);
    if (status != QK_OK)
        return status;
    struct qk_conv_constants constants = {
        .x_type = inputs[X].type,
        .x_zero_point = load_zero_point(&inputs[X_ZERO_POINT]),
        .x_scale = qk_load_f32(inputs[X_SCALE].data, 0),
        .y_scale = qk_load_f32(inputs[Y_SCALE].data, 0),
        .w_type = inputs[W].type,
        .w = inputs[W].data,
        .w_count = inputs[W].count,
        .w_scale = inputs[W_SCALE].data,
        .w_scale_count = inputs[W_SCALE].count,
        .w_zero_point = inputs[W_ZERO_POINT].data,
        .w_zero_point_count = inputs[W_ZERO_POINT].count,
        .bias = inputs[B].type == QK_NONE ? NULL : inputs[B].data,
    };
    struct instance *made = memory.alloc(memory.context, sizeof(*made));
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "no memory for the operator");
    status = qk_conv_prepare(&desc, &constants, &kernels->choice.conv, memory, &made->conv, error);
    made->base = (struct qk_instance){.pack_unit_count = made->conv.packing.unit_count,
                                      .pack_unit_cost_ns = made->conv.packing.unit_cost_ns,
                                      .output_types = {inputs[Y_ZERO_POINT].type}};
    made->epilogue = (struct qk_epilogue){
        .kind = QK_EPILOGUE_BYTES,
        .y_type = inputs[Y_ZERO_POINT].type,
        .y_bytes = 1,
        .multiplier = made->conv.multiplier,
        .requantize =
            qk_requantize_for(inputs[Y_ZERO_POINT].type, load_zero_point(&inputs[Y_ZERO_POINT])),
    };
    *instance = &made->base;
    return status;
}

static void pack(struct qk_instance *instance, size_t begin, size_t end)
{
    qk_conv_pack(&((struct instance *)instance)->conv, begin, end);
}

/* ---- Plan -------------------------------------------------------------------------------- */

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct instance *made = (const struct instance *)instance;
    const struct qk_conv *conv = &made->conv;
    const struct qk_conv_desc *desc = &conv->desc;
    const struct qk_tensor *x = &inputs[X];
    struct qk_shape_text shape;
    if (x->rank != desc->spatial_rank + 2)
        return qk_fail(error, QK_INVALID, "x: expected rank %u as w has, got shape %s",
                       desc->spatial_rank + 2, qk_shape_text(x, &shape));
    size_t channels;
    if (!qk_mul_size(desc->group_channels, desc->group, &channels) || x->dims[1] != channels)
        return qk_fail(error, QK_INVALID,
                       "x: expected C = %zu (of w) * %zu (group) channels, got shape %s",
                       desc->group_channels, desc->group, qk_shape_text(x, &shape));
    const struct qk_kernels *kernels = instance->kernels;
    return qk_conv_plan(conv, &made->epilogue, &kernels->openblas, kernels->im2col, x, memory, plan,
                        error);
}

/* ---- The descriptor ---------------------------------------------------------------------- */

#define INT8S (QK_BIT(QK_UINT8) | QK_BIT(QK_INT8))

static const struct qk_attribute_def attributes[] = {
    [AUTO_PAD] =
        QK_ATTRIBUTE("auto_pad", STRING, 10, "default NOTSET; VALID, SAME_UPPER, SAME_LOWER"),
    [DILATIONS] = QK_ATTRIBUTE("dilations", INTS, 10, "default 1 for each axis, 1 to 2147483647"),
    [GROUP] = QK_ATTRIBUTE("group", INT, 10, "default 1, divides C and M"),
    [KERNEL_SHAPE] = QK_ATTRIBUTE("kernel_shape", INTS, 10, "default that of w, and must equal it"),
    [PADS] = QK_ATTRIBUTE(
        "pads", INTS, 10,
        "default 0; begin of each axis, then end of each axis; 0 to 2147483647; not with "
        "auto_pad"),
    [STRIDES] = QK_ATTRIBUTE("strides", INTS, 10, "default 1 for each axis, 1 to 2147483647"),
};

static const struct qk_version versions[] = {
    {.number = 10,
     .inputs =
         {
             [X] = {.types = INT8S},
             [X_SCALE] = {.types = QK_BIT(QK_FP32)},
             [X_ZERO_POINT] = {.types = INT8S},
             [W] = {.types = INT8S},
             [W_SCALE] = {.types = QK_BIT(QK_FP32)},
             [W_ZERO_POINT] = {.types = INT8S},
             [Y_SCALE] = {.types = QK_BIT(QK_FP32)},
             [Y_ZERO_POINT] = {.types = INT8S},
             [B] = {.types = QK_BIT(QK_INT32), .optional = true},
         },
     .output_types = {INT8S}},
};

const struct qk_operator qk_onnx_qlinear_conv = {
    .name = "onnx.QLinearConv",
    .platform = QK_ONNX_PLATFORM,
    .about = "Quantized convolution; y has the type of y_zero_point",
    .inputs =
        {
            [X] = {"x", "[N, C, D1..Dn], n from 1 to " QK_TEXT_OF(QK_CONV_SPATIAL_MAX)},
            [X_SCALE] = {"x_scale", "[] or [1]"},
            [X_ZERO_POINT] = {"x_zero_point", "[] or [1]"},
            [W] = {"w", "[M, C/group, k1..kn]"},
            [W_SCALE] = {"w_scale", "[], [1] or [M]"},
            [W_ZERO_POINT] = {"w_zero_point", "[], [1] or [M]"},
            [Y_SCALE] = {"y_scale", "[] or [1]"},
            [Y_ZERO_POINT] = {"y_zero_point", "[] or [1]"},
            [B] = {"B", "[M]"},
        },
    .input_count = 9,
    .variable_inputs = 1U << X,
    .outputs = {{"y", "[N, M, D1..Dn]"}},
    .output_count = 1,
    QK_ATTRIBUTES(attributes),
    QK_VERSIONS(versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare, .pack = pack, .plan = plan},
};
