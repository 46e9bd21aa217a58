/* onnx.DequantizeLinear: y = (x - x_zero_point) * x_scale, with one scale for the whole tensor, for
 * each slice of x along an axis, or for each block along the axis.
 *
 * The rules are those of onnx/defs/quantization/defs.cc that ONNX Runtime enforces. Products are
 * rounded to FP32 and then to the type of y, as in ONNX Runtime and onnx's reference. */
#include "kernels/dequantize/affine.h"
#include "kernels/dispatch.h"
#include "kernels/operators/granularity.h"
#include "kernels/operators/operator.h"
#include "kernels/operators/rules.h"

enum { X, SCALE = QK_GRANULARITY_SCALE, ZERO_POINT = QK_GRANULARITY_ZERO_POINT };
enum { OUTPUT_DTYPE = QK_GRANULARITY_BLOCK_SIZE + 1 };

struct instance {
    struct qk_instance base;
    struct qk_affine affine;
    struct qk_granularity granularity;
};

/* ---- Rules about what is constant -------------------------------------------------------- */

/* Checks the zero point. For float8 and float4 types it must be +0. */
static enum qk_status check_zero_point(const struct qk_call *call, struct qk_error *error)
{
    const struct qk_tensor *zero_point = &call->inputs[ZERO_POINT];
    if (zero_point->type == QK_NONE)
        return QK_OK;
    enum qk_status status = qk_check_same_type(call, ZERO_POINT, X, error);
    if (status == QK_OK)
        status = qk_granularity_check_zero_point(call, error);
    if (status != QK_OK || qk_type_info(zero_point->type)->kind != QK_KIND_FLOAT)
        return status;
    for (size_t i = 0; i < zero_point->count; i++) {
        const uint32_t code = qk_element_load(zero_point->type, zero_point->data, i);
        if (code != 0)
            return qk_fail(error, QK_INVALID,
                           "x_zero_point: expected code 0 for datatype %s, got 0x%02x at index %zu",
                           qk_type_info(zero_point->type)->name, code, i);
    }
    return QK_OK;
}

static enum qk_status read_output_type(const struct qk_call *call, enum qk_type *type,
                                       struct qk_error *error)
{
    static const enum qk_type outputs[] = {QK_FP32, QK_FP16, QK_BF16};
    const int64_t number = qk_int_or(&call->attributes[OUTPUT_DTYPE], 0);
    *type = call->inputs[SCALE].type;
    if (number == 0 && *type != QK_FP8E8M0)
        return QK_OK;
    for (size_t i = 0; i < sizeof(outputs) / sizeof(outputs[0]); i++) {
        *type = outputs[i];
        if (number == qk_type_info(*type)->onnx)
            return QK_OK;
    }
    return qk_fail(error, QK_INVALID,
                   "output_dtype: expected 1 (FP32), 10 (FP16) or 16 (BF16)%s, got %lld",
                   call->inputs[SCALE].type == QK_FP8E8M0 ? ", which x_scale of FP8E8M0 requires"
                                                          : ", or 0 for that of x_scale",
                   (long long)number);
}

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    const struct qk_tensor *inputs = call->inputs;
    enum qk_type y_type;
    struct instance *made = memory.alloc(memory.context, sizeof(*made));
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for an operator");
    enum qk_status status = qk_granularity_read(&made->granularity, call, error);
    if (status == QK_OK)
        status = check_zero_point(call, error);
    if (status == QK_OK)
        status = read_output_type(call, &y_type, error);
    if (status != QK_OK)
        return status;

    const bool is_float = qk_type_info(inputs[X].type)->kind == QK_KIND_FLOAT;
    made->base = (struct qk_instance){.output_types = {y_type}};
    made->affine = (struct qk_affine){.form = is_float ? QK_AFFINE_FLOAT : QK_AFFINE_WRAPPED,
                                      .x_type = inputs[X].type,
                                      .y_type = y_type};
    *instance = &made->base;
    return qk_affine_prepare(&made->affine, &kernels->dequantize, &inputs[SCALE],
                             &inputs[ZERO_POINT], call->constants_stay, memory, &made->base, error);
}

static void pack(struct qk_instance *instance, size_t begin, size_t end)
{
    qk_affine_pack(&((struct instance *)instance)->affine, begin, end);
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct instance *made = (const struct instance *)instance;
    struct qk_broadcast broadcast;
    const enum qk_status status =
        qk_granularity_fit(&made->granularity, instance->op, &inputs[X], &broadcast, error);
    if (status != QK_OK)
        return status;
    return qk_affine_plan(&made->affine, instance, &inputs[X], &broadcast, memory, plan, error);
}

/* ---- The descriptor ---------------------------------------------------------------------- */

#define SCALE_10 QK_BIT(QK_FP32)
#define SCALE_19 (SCALE_10 | QK_BIT(QK_FP16) | QK_BIT(QK_BF16))
#define SCALE_24 (SCALE_19 | QK_BIT(QK_FP8E8M0))

#define VERSION(since, quantized, scale_types, y_types)                        \
    QK_GRANULARITY_VERSION(since, (quantized) | QK_BIT(QK_INT32), scale_types, \
                           (quantized) | QK_BIT(QK_INT32), y_types)

static const struct qk_version versions[] = {
    VERSION(10, QK_QUANTIZED_10, SCALE_10, SCALE_10),
    VERSION(13, QK_QUANTIZED_10, SCALE_10, SCALE_10),
    VERSION(19, QK_QUANTIZED_19, SCALE_19, SCALE_19),
    VERSION(21, QK_QUANTIZED_21, SCALE_19, SCALE_19),
    VERSION(23, QK_QUANTIZED_23, SCALE_19, SCALE_19),
    VERSION(24, QK_QUANTIZED_23, SCALE_24, SCALE_19),
    VERSION(25, QK_QUANTIZED_25, SCALE_24, SCALE_19),
};

static const struct qk_attribute_def attributes[] = {
    QK_GRANULARITY_ATTRIBUTES("x_scale"),
    [OUTPUT_DTYPE] = QK_ATTRIBUTE("output_dtype", TYPE, 23,
                                  "the datatype of y, 1 (FP32), 10 (FP16) or 16 (BF16); default 0: "
                                  "that of x_scale; required where that is FP8E8M0"),
};

const struct qk_operator qk_onnx_dequantize_linear = {
    .name = "onnx.DequantizeLinear",
    .platform = QK_ONNX_PLATFORM,
    .about = "y = (x - x_zero_point) * x_scale, for the whole tensor, for slices or for blocks",
    .inputs = {[X] = {"x", QK_ANY_SHAPE},
               [SCALE] = {"x_scale", QK_GRANULARITY_SCALE_SHAPE},
               [ZERO_POINT] = {"x_zero_point", "as x_scale"}},
    .input_count = 3,
    .variable_inputs = 1U << X,
    .outputs = {{"y", "as x"}},
    .output_count = 1,
    QK_ATTRIBUTES(attributes),
    QK_VERSIONS(versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare, .pack = pack, .plan = plan},
};
