/* onnx.Add, Sub, Mul, Div, Min and Max on FP32, of two tensors of one shape, or of a tensor and a
 * number. Each operation is rounded to FP32. */
#include <string.h>

#include "kernels/dispatch.h"
#include "kernels/element/load.h"
#include "kernels/operators/operator.h"
#include "kernels/operators/rules.h"
#include "kernels/operators/shape_text.h"

enum { A, B, INPUT_COUNT };

/* The time of one element, which has a call of its own: a rough guess. */
#define ELEMENT_NS 5.0

typedef float (*combine_fn)(float a, float b);

struct instance {
    struct qk_instance base;
    combine_fn combine;
};

struct state {
    size_t count;
    size_t unit;               /* elements of a unit */
    size_t steps[INPUT_COUNT]; /* 0: the operand is one number */
};

/* ---- The functions ------------------------------------------------------------------------- */

static float sum(float a, float b)
{
    return a + b;
}

static float difference(float a, float b)
{
    return a - b;
}

static float product(float a, float b)
{
    return a * b;
}

static float quotient(float a, float b)
{
    return a / b;
}

/* A NaN makes both a NaN. */
static float minimum(float a, float b)
{
    return a < b || a != a ? a : b;
}

static float maximum(float a, float b)
{
    return a > b || a != a ? a : b;
}

/* ---- Plan and run -------------------------------------------------------------------------- */

static void run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                void *workspace, size_t begin, size_t end)
{
    const combine_fn combine = ((const struct instance *)plan->instance)->combine;
    const struct state *state = plan->state;
    const size_t last = end < plan->unit_count ? end * state->unit : state->count;
    (void)workspace;
    for (size_t i = begin * state->unit; i < last; i++) {
        const float y = combine(qk_load_f32(inputs[A], i * state->steps[A]),
                                qk_load_f32(inputs[B], i * state->steps[B]));
        memcpy((char *)outputs[0] + i * sizeof(y), &y, sizeof(y));
    }
}

/* Gives y the shape of `tensor`, behind ones up to `rank`. */
static void set_shape(const struct qk_tensor *tensor, uint32_t rank, struct qk_tensor *y)
{
    const uint32_t ones = rank > tensor->rank ? rank - tensor->rank : 0;
    *y = (struct qk_tensor){.type = QK_FP32, .rank = ones + tensor->rank};
    for (uint32_t i = 0; i < y->rank; i++)
        y->dims[i] = i < ones ? 1 : tensor->dims[i - ones];
    y->count = y->stored = tensor->count;
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct qk_elementwise_tuning *tuning = &instance->kernels->choice.elementwise;
    const struct qk_tensor *a = &inputs[A];
    const struct qk_tensor *b = &inputs[B];
    struct qk_shape_text expected;
    struct qk_shape_text got;
    if (a->count != 1 && b->count != 1 && !qk_same_shape(a, b))
        return qk_fail(error, QK_INVALID, "B: expected A's shape %s, or one number, got shape %s",
                       qk_shape_text(a, &expected), qk_shape_text(b, &got));
    struct state *state = memory.alloc(memory.context, sizeof(*state));
    if (!state)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    if (b->count == 1)
        set_shape(a, b->rank, &plan->outputs[0]);
    else
        set_shape(b, a->rank, &plan->outputs[0]);
    state->count = plan->outputs[0].count;
    state->unit = qk_elementwise_set_units(state->count, ELEMENT_NS, tuning, plan);
    state->steps[A] = a->count != 1;
    state->steps[B] = b->count != 1;
    plan->output_bytes[0] = state->count * sizeof(float); /* as many bytes as an input has */
    plan->kernel = "float";
    plan->run = run;
    plan->state = state;
    return QK_OK;
}

/* ---- Prepare ------------------------------------------------------------------------------- */

#define PREPARE(function)                                                                      \
    static enum qk_status prepare_##function(                                                  \
        const struct qk_kernels *kernels, const struct qk_call *call, struct qk_memory memory, \
        struct qk_instance **instance, struct qk_error *error)                                 \
    {                                                                                          \
        (void)kernels;                                                                         \
        (void)call;                                                                            \
        return prepare(function, memory, instance, error);                                     \
    }

static enum qk_status prepare(combine_fn combine, struct qk_memory memory,
                              struct qk_instance **instance, struct qk_error *error)
{
    struct instance *made = memory.alloc(memory.context, sizeof(*made));
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for an operator");
    *made = (struct instance){.base = {.output_types = {QK_FP32}}, .combine = combine};
    *instance = &made->base;
    return QK_OK;
}

PREPARE(sum)
PREPARE(difference)
PREPARE(product)
PREPARE(quotient)
PREPARE(minimum)
PREPARE(maximum)

/* ---- The descriptors ----------------------------------------------------------------------- */

/* Earlier versions of Add have an attribute axis, and those of Min do not broadcast. Later versions
 * only added types. */
#define SINCE(since)                                                                \
    {                                                                               \
        .number = (since),                                                          \
        .inputs = {[A] = {QK_BIT(QK_FP32), false}, [B] = {QK_BIT(QK_FP32), false}}, \
        .output_types = {QK_BIT(QK_FP32)},                                          \
    }

static const struct qk_version versions_7[] = {SINCE(7)};
static const struct qk_version versions_8[] = {SINCE(8)};

#define OPERATOR(title, function, since, a, b, y, text)                                  \
    .name = (title), .platform = QK_ONNX_PLATFORM, .about = (text),                      \
    .inputs = {[A] = {a, QK_ANY_SHAPE}, [B] = {b, "as the other, or one number"}},       \
    .input_count = INPUT_COUNT, .variable_inputs = 1U << A | 1U << B,                    \
    .outputs = {{y, "as the inputs"}}, .output_count = 1, QK_VERSIONS(versions_##since), \
    .version_last = QK_ONNX_VERSION_LAST, .code = &(const struct qk_operator_code)       \
    {                                                                                    \
        .prepare = prepare_##function, .plan = plan, .floats_as_tables = true            \
    }

const struct qk_operator qk_onnx_add = {
    OPERATOR("onnx.Add", sum, 7, "A", "B", "C", "C = A + B"),
};
const struct qk_operator qk_onnx_div = {
    OPERATOR("onnx.Div", quotient, 7, "A", "B", "C", "C = A / B"),
};
const struct qk_operator qk_onnx_max = {
    OPERATOR("onnx.Max", maximum, 8, "data_0", "data_1", "max", "The larger of two"),
};
const struct qk_operator qk_onnx_min = {
    OPERATOR("onnx.Min", minimum, 8, "data_0", "data_1", "min", "The smaller of two"),
};
const struct qk_operator qk_onnx_mul = {
    OPERATOR("onnx.Mul", product, 7, "A", "B", "C", "C = A * B"),
};
const struct qk_operator qk_onnx_sub = {
    OPERATOR("onnx.Sub", difference, 7, "A", "B", "C", "C = A - B"),
};
