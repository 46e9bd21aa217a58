/* com.microsoft.QLinearAdd and com.microsoft.QLinearMul: sums and products of two quantized
 * tensors, which broadcast as in NumPy.
 *
 * The rules are those of onnxruntime/core/graph/contrib_ops/quantization_defs.cc, except that
 * ONNX Runtime cannot load a model without A_zero_point, B_zero_point or C_zero_point. Here each
 * may be absent, and then is 0. */
#include "kernels/binary/binary.h"
#include "kernels/dispatch.h"
#include "kernels/element/load.h"
#include "kernels/operators/operator.h"
#include "kernels/operators/rules.h"

enum { A, A_SCALE, A_ZERO_POINT, B, B_SCALE, B_ZERO_POINT, C_SCALE, C_ZERO_POINT, INPUT_COUNT };

struct instance {
    struct qk_instance base;
    struct qk_binary binary;
};

static struct qk_binary_operand operand_of(const struct qk_call *call, size_t scale,
                                           size_t zero_point)
{
    return (struct qk_binary_operand){
        .scale = qk_load_f32(call->inputs[scale].data, 0),
        .zero = qk_zero_point_or_0(&call->inputs[zero_point]),
    };
}

static enum qk_status check(const struct qk_call *call, struct qk_error *error)
{
    static const size_t same[] = {B, A_ZERO_POINT, B_ZERO_POINT, C_ZERO_POINT};
    static const size_t single[] = {A_SCALE,      A_ZERO_POINT, B_SCALE,
                                    B_ZERO_POINT, C_SCALE,      C_ZERO_POINT};
    enum qk_status status = QK_OK;
    for (size_t i = 0; i < QK_LENGTH_OF(same) && status == QK_OK; i++)
        status = qk_check_same_type(call, same[i], A, error);
    for (size_t i = 0; i < QK_LENGTH_OF(single) && status == QK_OK; i++)
        status = qk_check_single(call, single[i], error);
    return status;
}

static enum qk_status prepare(bool multiplies, const struct qk_call *call, struct qk_memory memory,
                              struct qk_instance **instance, struct qk_error *error)
{
    const enum qk_type type = call->inputs[A].type;
    const enum qk_status status = check(call, error);
    if (status != QK_OK)
        return status;
    struct instance *made = memory.alloc(memory.context, sizeof(*made));
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for an operator");
    *made = (struct instance){
        .base = {.output_types = {type}},
        .binary = {.multiplies = multiplies,
                   .is_signed = type == QK_INT8,
                   .a = operand_of(call, A_SCALE, A_ZERO_POINT),
                   .b = operand_of(call, B_SCALE, B_ZERO_POINT),
                   .y = operand_of(call, C_SCALE, C_ZERO_POINT),
                   .a_input = A,
                   .b_input = B},
    };
    *instance = &made->base;
    return QK_OK;
}

static enum qk_status prepare_add(const struct qk_kernels *kernels, const struct qk_call *call,
                                  struct qk_memory memory, struct qk_instance **instance,
                                  struct qk_error *error)
{
    (void)kernels;
    return prepare(false, call, memory, instance, error);
}

static enum qk_status prepare_multiply(const struct qk_kernels *kernels, const struct qk_call *call,
                                       struct qk_memory memory, struct qk_instance **instance,
                                       struct qk_error *error)
{
    (void)kernels;
    return prepare(true, call, memory, instance, error);
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct instance *made = (const struct instance *)instance;
    return qk_binary_plan(&made->binary, instance->kernels->binary, instance->kernels->lookup,
                          &instance->kernels->choice.elementwise, instance, inputs, memory, plan,
                          error);
}

/* ---- The descriptors ----------------------------------------------------------------------- */

#define CODES (QK_BIT(QK_UINT8) | QK_BIT(QK_INT8))

static const struct qk_version versions[] = {
    {.number = 1,
     .inputs = {[A] = {CODES, false},
                [A_SCALE] = {QK_BIT(QK_FP32), false},
                [A_ZERO_POINT] = {CODES, true},
                [B] = {CODES, false},
                [B_SCALE] = {QK_BIT(QK_FP32), false},
                [B_ZERO_POINT] = {CODES, true},
                [C_SCALE] = {QK_BIT(QK_FP32), false},
                [C_ZERO_POINT] = {CODES, true}},
     .output_types = {CODES}},
};

#define DESCRIPTOR(operator_name, text, prepare_operator)                                    \
    {                                                                                        \
        .name = (operator_name), .platform = QK_ONNX_PLATFORM, .about = (text),              \
        .inputs = {[A] = {"A", QK_ANY_SHAPE},                                                \
                   [A_SCALE] = {"A_scale", QK_SINGLE_SHAPE},                                 \
                   [A_ZERO_POINT] = {"A_zero_point", QK_SINGLE_SHAPE},                       \
                   [B] = {"B", "any that broadcasts with A's"},                              \
                   [B_SCALE] = {"B_scale", QK_SINGLE_SHAPE},                                 \
                   [B_ZERO_POINT] = {"B_zero_point", QK_SINGLE_SHAPE},                       \
                   [C_SCALE] = {"C_scale", QK_SINGLE_SHAPE},                                 \
                   [C_ZERO_POINT] = {"C_zero_point", QK_SINGLE_SHAPE}},                      \
        .input_count = INPUT_COUNT, .variable_inputs = 1U << A | 1U << B,                    \
        .outputs = {{"C", "that of A and B, broadcast"}}, .output_count = 1,                 \
        QK_VERSIONS(versions), .version_last = 1,                                            \
        .code = &(const struct qk_operator_code){.prepare = prepare_operator, .plan = plan}, \
    }

const struct qk_operator qk_microsoft_qlinear_add = DESCRIPTOR(
    "com.microsoft.QLinearAdd",
    "C = saturate(round((A + B) / C_scale) + C_zero_point), where A and B stand for their "
    "real values. A, B, C and their zero points have one datatype",
    prepare_add);

const struct qk_operator qk_microsoft_qlinear_mul =
    DESCRIPTOR("com.microsoft.QLinearMul",
               "C = saturate(round(A * B / C_scale) + C_zero_point), where A and B stand for their "
               "real values. A, B, C and their zero points have one datatype",
               prepare_multiply);
