/* onnx.Add, Sub, Mul, Div, Min, Max, Pow and PRelu of two tensors, which broadcast as in NumPy.
 * Each operation on FP32 is rounded to FP32. The first six also have integers
 * (integer/integer_arithmetic.h). */
/* onnx.Add, Sub, Sum, Mul, Div, Min, Max, Pow and PRelu of two FP32 tensors, which broadcast as in
 * NumPy. Each operation is rounded to FP32. */
#include "kernels/dispatch.h"
#include "kernels/operators/float/add_bias.h"
#include "kernels/operators/integer/integer_arithmetic.h"
#include "kernels/operators/operator.h"
#include "kernels/operators/rules.h"
#include "kernels/operators/shape_text.h"

enum { A, B, INPUT_COUNT };

struct instance {
    struct qk_instance base;
    struct qk_binary_walk walk;            /* of FP32 */
    enum qk_integer_operation on_integers; /* not used by Pow and PRelu */
};

static enum qk_status prepare(enum qk_float_binary function, enum qk_integer_operation on_integers,
                              const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    const enum qk_status status = qk_check_same_type(call, B, A, error);
    if (status != QK_OK)
        return status;
    struct instance *made = memory.alloc(memory.context, sizeof(*made));
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for an operator");
    *made = (struct instance){
        .base = {.output_types = {call->inputs[A].type}},
        .walk = {.name = kernels->floats->name,
                 .forms = kernels->floats->binary[function],
                 .element_cycles = kernels->floats->element_cycles,
                 .type = QK_FP32,
                 .element_bytes = sizeof(float),
                 .a_input = A,
                 .b_input = B},
        .on_integers = on_integers,
    };
    *instance = &made->base;
    return QK_OK;
}

#define PREPARE(name, function, on_integers)                                                    \
    static enum qk_status prepare_##name(const struct qk_kernels *kernels,                      \
                                         const struct qk_call *call, struct qk_memory memory,   \
                                         struct qk_instance **instance, struct qk_error *error) \
    {                                                                                           \
        return prepare(function, on_integers, kernels, call, memory, instance, error);          \
    }

PREPARE(add, QK_FLOAT_ADD, QK_INTEGER_ADD)
PREPARE(sub, QK_FLOAT_SUB, QK_INTEGER_SUB)
PREPARE(mul, QK_FLOAT_MUL, QK_INTEGER_MUL)
PREPARE(div, QK_FLOAT_DIV, QK_INTEGER_DIV)
PREPARE(min, QK_FLOAT_MIN, QK_INTEGER_MIN)
PREPARE(max, QK_FLOAT_MAX, QK_INTEGER_MAX)
PREPARE(prelu, QK_FLOAT_PRELU, 0)
PREPARE(pow, QK_FLOAT_POW, 0)

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct instance *made = (const struct instance *)instance;
    if (inputs[A].type != QK_FP32)
        return qk_integer_plan(instance, made->on_integers, inputs, memory, plan, error);
    return qk_binary_walk_plan(&made->walk, &instance->kernels->choice.elementwise, instance,
                               inputs, memory, plan, error);
}

/* Plans Min or Max. If only the first operand is one number along the rows, ONNX Runtime exchanges
 * the operands. This decides which of two zeros is the result. */
static enum qk_status plan_extremum(const struct qk_instance *instance,
                                    const struct qk_tensor *inputs, struct qk_memory memory,
                                    struct qk_plan *to, struct qk_error *error)
{
    struct qk_binary_walk walk = ((const struct instance *)instance)->walk;
    if (inputs[A].type != QK_FP32)
        return plan(instance, inputs, memory, to, error);
    walk.exchanged = qk_binary_first_is_scalar(&inputs[A], &inputs[B]) &&
                     !qk_binary_first_is_scalar(&inputs[B], &inputs[A]);
    return qk_binary_walk_plan(&walk, &instance->kernels->choice.elementwise, instance, inputs,
                               memory, to, error);
}

static enum qk_status plan_pow(const struct qk_instance *instance, const struct qk_tensor *inputs,
                               struct qk_memory memory, struct qk_plan *to, struct qk_error *error)
{
    struct qk_shape_text text;
    if (inputs[B].count != 1)
        return qk_fail(error, QK_INVALID, "Y: expected one exponent, got shape %s",
                       qk_shape_text(&inputs[B], &text));
    return plan(instance, inputs, memory, to, error);
}

/* Plans the sum of a product and Gemm's C, whose shape may not be larger than the product's. */
static enum qk_status plan_bias(const struct qk_instance *instance, const struct qk_tensor *inputs,
                                struct qk_memory memory, struct qk_plan *to, struct qk_error *error)
{
    const struct qk_tensor *y = &inputs[A];
    const struct qk_tensor *bias = &inputs[B];
    struct qk_shape_text text;
    struct qk_shape_text y_text;
    bool fits = bias->rank <= y->rank;
    for (uint32_t i = 0; i < bias->rank && fits; i++) {
        const size_t length = bias->dims[bias->rank - 1 - i];
        fits = length == 1 || length == y->dims[y->rank - 1 - i];
    }
    if (!fits)
        return qk_fail(error, QK_INVALID, "C: expected a shape that broadcasts to y's %s, got %s",
                       qk_shape_text(y, &y_text), qk_shape_text(bias, &text));
    return plan(instance, inputs, memory, to, error);
}

/* ---- The descriptors ----------------------------------------------------------------------- */

/* Earlier versions of Add have an attribute axis, and those of Min do not broadcast. Later versions
 * only added types, to Min and Max the integers. */
#define SINCE(since, types)                                                        \
    {                                                                              \
        .number = (since), .inputs = {[A] = {types, false}, [B] = {types, false}}, \
        .output_types = {types},                                                   \
    }
#define TYPES (QK_BIT(QK_FP32) | QK_INTEGER_TYPES)

static const struct qk_version versions_floats[] = {SINCE(7, QK_BIT(QK_FP32))};
static const struct qk_version versions_7[] = {SINCE(7, TYPES)};
static const struct qk_version versions_8[] = {SINCE(8, QK_BIT(QK_FP32)), SINCE(12, TYPES)};

#define OPERATOR(title, function, plan_function, since, a, b, y, text)                        \
    .name = (title), .platform = QK_ONNX_PLATFORM, .about = (text),                           \
    .inputs = {[A] = {a, QK_ANY_SHAPE}, [B] = {b, "any that broadcasts with the other's"}},   \
    .input_count = INPUT_COUNT, .variable_inputs = 1U << A | 1U << B,                         \
    .outputs = {{y, "that of the inputs, broadcast"}}, .output_count = 1,                     \
    QK_VERSIONS(versions_##since), .version_last = QK_ONNX_VERSION_LAST,                      \
    .code = &(const struct qk_operator_code)                                                  \
    {                                                                                         \
        .prepare = prepare_##function, .plan = (plan_function), .is_element_by_element = true \
    }

const struct qk_operator qk_onnx_add = {
    OPERATOR("onnx.Add", add, plan, 7, "A", "B", "C", "C = A + B"),
};
const struct qk_operator qk_onnx_add_bias = {
    OPERATOR("onnx.Add", add, plan_bias, 7, "A", "C", "Y", "Y = A + C, of Gemm"),
};
const struct qk_operator qk_onnx_div = {
    OPERATOR("onnx.Div", div, plan, 7, "A", "B", "C", "C = A / B"),
};
const struct qk_operator qk_onnx_max = {
    OPERATOR("onnx.Max", max, plan_extremum, 8, "data_0", "data_1", "max", "The larger of two"),
};
const struct qk_operator qk_onnx_min = {
    OPERATOR("onnx.Min", min, plan_extremum, 8, "data_0", "data_1", "min", "The smaller of two"),
};
const struct qk_operator qk_onnx_mul = {
    OPERATOR("onnx.Mul", mul, plan, 7, "A", "B", "C", "C = A * B"),
};
const struct qk_operator qk_onnx_pow = {
    OPERATOR("onnx.Pow", pow, plan_pow, floats, "X", "Y", "Z", "Z = X^Y, for one exponent"),
};
const struct qk_operator qk_onnx_prelu = {
    OPERATOR("onnx.PRelu", prelu, plan, floats, "X", "slope", "Y",
             "Multiplies the values below 0 by slope"),
};
const struct qk_operator qk_onnx_sub = {
    OPERATOR("onnx.Sub", sub, plan, 7, "A", "B", "C", "C = A - B"),
};
const struct qk_operator qk_onnx_sum = {
    OPERATOR("onnx.Sum", add, plan, 8, "data_0", "data_1", "sum", "The sum of two"),
};
