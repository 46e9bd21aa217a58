/* onnx.QuantizeLinear: y = saturate(round(x / y_scale) + y_zero_point), with one scale for the
 * whole tensor, for each slice of x along an axis, or for each block along the axis.
 *
 * The rules are those of onnx/defs/quantization/defs.cc and of onnx's reference evaluator.
 * kernels/quantize/quantize.h says in which precision the division is done, and what becomes of
 * values that y cannot hold. */
#include "kernels/dispatch.h"
#include "kernels/operators/granularity.h"
#include "kernels/operators/operator.h"
#include "kernels/operators/rules.h"
#include "kernels/operators/shape_text.h"
#include "kernels/quantize/quantizer.h"

enum { X, SCALE = QK_GRANULARITY_SCALE, ZERO_POINT = QK_GRANULARITY_ZERO_POINT };
enum { SATURATE = QK_GRANULARITY_BLOCK_SIZE + 1, OUTPUT_DTYPE, PRECISION };

/* From version 19 up to 22, x and y_scale have the same type. Before, y_scale is FP32 for every
 * type of x. From 23 on, the two may differ. */
#define SAME_TYPE_SINCE 19
#define SAME_TYPE_UNTIL 23

/* Since this version the division has the type of y_scale, unless `precision` names another type.
 */
#define SCALE_DIVIDES_SINCE 23

struct instance {
    struct qk_instance base;
    struct qk_quantizer quantizer;
    struct qk_granularity granularity;
};

/* ---- Rules --------------------------------------------------------------------------------- */

/* Finds the type of y: that of y_zero_point, else output_dtype, else UINT8. If both are given, they
 * must agree. */
static enum qk_status read_y_type(const struct qk_call *call, enum qk_type *type,
                                  struct qk_error *error)
{
    const int64_t number = qk_int_or(&call->attributes[OUTPUT_DTYPE], 0);
    const enum qk_type zero_type = call->inputs[ZERO_POINT].type;
    *type = zero_type != QK_NONE ? zero_type : QK_UINT8;
    if (number == 0 || number == qk_type_info(*type)->onnx)
        return QK_OK;
    if (zero_type != QK_NONE)
        return qk_fail(error, QK_INVALID,
                       "output_dtype: expected 0 or %d (%s), the datatype of y_zero_point, got "
                       "%lld",
                       qk_type_info(zero_type)->onnx, qk_type_info(zero_type)->name,
                       (long long)number);
    for (*type = QK_NONE + 1; *type < QK_TYPE_COUNT; (*type)++)
        if (call->version->output_types[0] & QK_BIT(*type) && number == qk_type_info(*type)->onnx)
            return QK_OK;
    char types[192];
    qk_print_types(call->version->output_types[0], types, sizeof(types));
    return qk_fail(error, QK_INVALID,
                   "output_dtype: expected %s, the datatypes of y in %s %u, got %lld", types,
                   call->op->name, call->version->number, (long long)number);
}

/* Finds the type of the division: `precision`, or since opset 23 the type of y_scale. QK_NONE if
 * the definition names no type, as for a y_scale of INT32 or FP8E8M0, which cannot hold quotients.
 */
static enum qk_status read_precision(const struct qk_call *call, enum qk_type *type,
                                     struct qk_error *error)
{
    static const enum qk_type precisions[] = {QK_FP32, QK_FP16, QK_BF16};
    const int64_t number = qk_int_or(&call->attributes[PRECISION], 0);
    const bool by_scale = number == 0 && call->version->number >= SCALE_DIVIDES_SINCE;
    *type = QK_NONE;
    for (size_t i = 0; i < sizeof(precisions) / sizeof(precisions[0]); i++)
        if (number == qk_type_info(precisions[i])->onnx ||
            (by_scale && call->inputs[SCALE].type == precisions[i]))
            *type = precisions[i];
    if (number == 0 || *type != QK_NONE)
        return QK_OK;
    return qk_fail(error, QK_INVALID,
                   "precision: expected 1 (FP32), 10 (FP16) or 16 (BF16), or 0 for that of "
                   "y_scale, got %lld",
                   (long long)number);
}

static enum qk_status check_saturate(const struct qk_call *call, struct qk_error *error)
{
    const int64_t number = qk_int_or(&call->attributes[SATURATE], 1);
    if (number == 0 || number == 1)
        return QK_OK;
    return qk_fail(error, QK_INVALID, "saturate: expected 0 or 1, got %lld", (long long)number);
}

static enum qk_status check(const struct qk_call *call, struct qk_error *error)
{
    enum qk_status status = check_saturate(call, error);
    const unsigned version = call->version->number;
    if (status == QK_OK && version >= SAME_TYPE_SINCE && version < SAME_TYPE_UNTIL)
        status = qk_check_same_type(call, SCALE, X, error);
    if (status == QK_OK && call->inputs[ZERO_POINT].type != QK_NONE)
        status = qk_granularity_check_zero_point(call, error);
    return status;
}

/* ---- Prepare, pack and plan ---------------------------------------------------------------- */

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    const struct qk_tensor *inputs = call->inputs;
    struct qk_granularity granularity;
    enum qk_type y_type;
    enum qk_type precision;
    enum qk_status status = qk_granularity_read(&granularity, call, error);
    if (status == QK_OK)
        status = check(call, error);
    if (status == QK_OK)
        status = read_y_type(call, &y_type, error);
    if (status == QK_OK)
        status = read_precision(call, &precision, error);
    if (status != QK_OK)
        return status;

    struct instance *made = memory.alloc(memory.context, sizeof(*made));
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for an operator");
    *made = (struct instance){.base = {.output_types = {y_type}}, .granularity = granularity};
    qk_quantizer_init(&made->quantizer, inputs[X].type, inputs[SCALE].type, y_type, precision,
                      qk_int_or(&call->attributes[SATURATE], 1));
    *instance = &made->base;
    return qk_quantizer_prepare(&made->quantizer, &kernels->dequantize, &inputs[SCALE],
                                &inputs[ZERO_POINT], call->constants_stay, memory, &made->base,
                                error);
}

static void pack(struct qk_instance *instance, size_t begin, size_t end)
{
    qk_quantizer_pack(&((struct instance *)instance)->quantizer, begin, end);
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
    return qk_quantizer_plan(&made->quantizer, instance, &inputs[X], &broadcast, memory, plan,
                             error);
}

/* ---- The descriptor ------------------------------------------------------------------------ */

#define X_10 (QK_BIT(QK_FP32) | QK_BIT(QK_INT32))
#define X_19 (X_10 | QK_BIT(QK_FP16) | QK_BIT(QK_BF16))
#define SCALE_10 QK_BIT(QK_FP32)
#define SCALE_24 (X_19 | QK_BIT(QK_FP8E8M0))

#define VERSION(since, x_types, scale_types, quantized) \
    QK_GRANULARITY_VERSION(since, x_types, scale_types, quantized, quantized)

static const struct qk_version versions[] = {
    VERSION(10, X_10, SCALE_10, QK_QUANTIZED_10), VERSION(13, X_10, SCALE_10, QK_QUANTIZED_10),
    VERSION(19, X_19, X_19, QK_QUANTIZED_19),     VERSION(21, X_19, X_19, QK_QUANTIZED_21),
    VERSION(23, X_19, X_19, QK_QUANTIZED_23),     VERSION(24, X_19, SCALE_24, QK_QUANTIZED_23),
    VERSION(25, X_19, SCALE_24, QK_QUANTIZED_25),
};

static const struct qk_attribute_def attributes[] = {
    QK_GRANULARITY_ATTRIBUTES("y_scale"),
    [SATURATE] =
        QK_ATTRIBUTE("saturate", INT, 19,
                     "what a float8 makes of what is beyond it: 0 infinity or NaN; default "
                     "1: the largest number"),
    [OUTPUT_DTYPE] = QK_ATTRIBUTE("output_dtype", TYPE, 21,
                                  "the datatype of y, as of y_zero_point if that is there; default "
                                  "0: that of y_zero_point, or UINT8"),
    [PRECISION] =
        QK_ATTRIBUTE("precision", TYPE, 23,
                     "what x / y_scale is computed in, 1 (FP32), 10 (FP16) or 16 (BF16); "
                     "default 0: the datatype of y_scale, or what holds x and a y_scale of "
                     "INT32 or FP8E8M0"),
};

const struct qk_operator qk_onnx_quantize_linear = {
    .name = "onnx.QuantizeLinear",
    .platform = QK_ONNX_PLATFORM,
    .about = "y = saturate(round(x / y_scale) + y_zero_point), for the whole tensor, for slices or "
             "for blocks",
    .inputs = {[X] = {"x", QK_ANY_SHAPE},
               [SCALE] = {"y_scale", QK_GRANULARITY_SCALE_SHAPE},
               [ZERO_POINT] = {"y_zero_point", "as y_scale"}},
    .input_count = 3,
    .variable_inputs = 1U << X,
    .outputs = {{"y", "as x"}},
    .output_count = 1,
    QK_ATTRIBUTES(attributes),
    QK_VERSIONS(versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare, .pack = pack, .plan = plan},
};
