/* onnx.GlobalAveragePool of FP32. The quantizer leaves it in files where its input has no quantized
 * form, for example behind a Div. */
#include "kernels/operators/float/row_means.h"
#include "kernels/operators/shape_text.h"

enum { X };

/* The axes before the spatial ones: N and C. */
#define LEADING 2
#define SPATIAL_MAX 3 /* as in ONNX Runtime */

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    struct qk_instance *made = memory.alloc(memory.context, sizeof(*made));
    (void)kernels;
    (void)call;
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for an operator");
    *made = (struct qk_instance){.output_types = {QK_FP32}};
    *instance = made;
    return QK_OK;
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct qk_tensor *x = &inputs[X];
    struct qk_tensor *y = &plan->outputs[0];
    struct qk_shape_text text;
    size_t length = 1;
    if (x->rank <= LEADING || x->rank > LEADING + SPATIAL_MAX)
        return qk_fail(error, QK_INVALID, "X: expected 3 to %d dimensions, got shape %s",
                       LEADING + SPATIAL_MAX, qk_shape_text(x, &text));
    *y = (struct qk_tensor){.type = QK_FP32, .rank = x->rank};
    for (uint32_t i = 0; i < x->rank; i++) {
        y->dims[i] = i < LEADING ? x->dims[i] : 1;
        length *= i < LEADING ? 1 : x->dims[i];
    }
    if (length == 0)
        return qk_fail(error, QK_INVALID, "X: expected spatial dimensions above 0, got shape %s",
                       qk_shape_text(x, &text));
    return qk_row_means_plan(QK_SUM_POOL, instance, x, length, memory, plan, error);
}

#define VERSION(since)                                                             \
    {                                                                              \
        .number = (since), .inputs = {{QK_BIT(QK_FP32), false}}, .output_types = { \
            QK_BIT(QK_FP32)                                                        \
        }                                                                          \
    }

static const struct qk_version versions[] = {VERSION(1), VERSION(22)};

const struct qk_operator qk_onnx_global_average_pool = {
    .name = "onnx.GlobalAveragePool",
    .platform = QK_ONNX_PLATFORM,
    .about = "The mean of each channel",
    .inputs = {{"X", "[N, C, D1..Dn], n from 1 to 3"}},
    .input_count = 1,
    .variable_inputs = 1U << X,
    .outputs = {{"Y", "[N, C, 1..1]"}},
    .output_count = 1,
    QK_VERSIONS(versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare, .plan = plan},
};
