/* onnx.Range on integers and FP32: start, start + delta, and so on, up to limit (onnx/defs/
 * generator/defs.cc). Floats are sums of the float before and delta, as in ONNX Runtime
 * (onnxruntime/core/providers/cpu/generator/range.cc). */
#include <math.h>
#include <string.h>

#include "kernels/dispatch.h"
#include "kernels/element/load.h"
#include "kernels/move/move.h"
#include "kernels/operators/integer/integer_arithmetic.h"
#include "kernels/operators/move/moving.h"
#include "kernels/operators/rules.h"
#include "kernels/operators/shape_text.h"
#include "kernels/wrap.h"

enum { START, LIMIT, DELTA, INPUT_COUNT };

/* The time of one element: a rough guess. */
#define ELEMENT_NS 1.0

/* One unit makes all floats, because each needs the one before it. It takes some 20 ms for these.
 * Beyond them, FP32 has not even all integers. */
#define FLOATS_MAX ((size_t)1 << 24)

struct state {
    uint64_t start; /* unsigned, so that nothing overflows */
    uint64_t delta;
    size_t size; /* bytes of an element */
    size_t count;
    size_t unit; /* elements of a unit */
};

struct float_state {
    float start;
    float delta;
    size_t count;
};

/* ---- Rules --------------------------------------------------------------------------------- */

static enum qk_status check_single(const struct qk_tensor *tensor, const char *name,
                                   struct qk_error *error)
{
    struct qk_shape_text shape;
    if (!qk_is_single(tensor))
        return qk_fail(error, QK_INVALID, "%s: expected shape " QK_SINGLE_SHAPE ", got %s", name,
                       qk_shape_text(tensor, &shape));
    return QK_OK;
}

static enum qk_status read_numbers(const struct qk_operator *op, const struct qk_tensor *inputs,
                                   int64_t *numbers, struct qk_error *error)
{
    enum qk_status status = QK_OK;
    for (size_t i = 0; i < INPUT_COUNT && status == QK_OK; i++) {
        status = check_single(&inputs[i], op->inputs[i].name, error);
        if (status == QK_OK)
            numbers[i] = qk_load_integer(inputs[i].type, inputs[i].data, 0);
    }
    if (status == QK_OK && numbers[DELTA] == 0)
        return qk_fail(error, QK_INVALID, "delta: expected a number other than 0, got 0");
    return status;
}

/* Reads the numbers of a range of floats, and counts what is in it, in ONNX Runtime's precision. */
static enum qk_status read_floats(const struct qk_operator *op, const struct qk_tensor *inputs,
                                  struct float_state *state, struct qk_error *error)
{
    float numbers[INPUT_COUNT];
    for (size_t i = 0; i < INPUT_COUNT; i++) {
        const enum qk_status status = check_single(&inputs[i], op->inputs[i].name, error);
        if (status != QK_OK)
            return status;
        memcpy(&numbers[i], inputs[i].data, sizeof(numbers[i]));
    }
    const float length = numbers[LIMIT] - numbers[START];
    const double count = ceil((double)length / (double)numbers[DELTA]);
    if (!(count <= (double)FLOATS_MAX)) /* also NaN */
        return qk_fail(error, QK_INVALID,
                       "limit: expected at most %zu steps of delta from start, got %g", FLOATS_MAX,
                       count);
    *state = (struct float_state){numbers[START], numbers[DELTA], count > 0 ? (size_t)count : 0};
    return QK_OK;
}

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    (void)kernels;
    int64_t numbers[INPUT_COUNT];
    struct float_state floats;
    enum qk_status status = qk_check_same_type(call, LIMIT, START, error);
    if (status == QK_OK)
        status = qk_check_same_type(call, DELTA, START, error);
    if (status == QK_OK && !qk_is_planned(call, call->op->planned_inputs))
        status = call->inputs[START].type == QK_FP32
                     ? read_floats(call->op, call->inputs, &floats, error)
                     : read_numbers(call->op, call->inputs, numbers, error);
    if (status != QK_OK)
        return status;
    struct qk_instance *made = memory.alloc(memory.context, sizeof(*made));
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for an operator");
    *made = (struct qk_instance){.output_types = {call->inputs[START].type}};
    *instance = made;
    return QK_OK;
}

/* ---- Plan and run -------------------------------------------------------------------------- */

QK_WRAPS static void run(const struct qk_plan *plan, const void *const *inputs,
                         void *const *outputs, void *workspace, size_t begin, size_t end)
{
    const struct state *state = plan->state;
    const size_t last = end < plan->unit_count ? end * state->unit : state->count;
    (void)inputs;
    (void)workspace;
    for (size_t i = begin * state->unit; i < last; i++) {
        const uint64_t number = state->start + i * state->delta;
        memcpy((char *)outputs[0] + i * state->size, &number, state->size);
    }
}

static void run_floats(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                       void *workspace, size_t begin, size_t end)
{
    const struct float_state *state = plan->state;
    float number = state->start;
    (void)inputs;
    (void)workspace;
    for (size_t i = 0; begin < end && i < state->count; i++) {
        memcpy((char *)outputs[0] + i * sizeof(number), &number, sizeof(number));
        number += state->delta;
    }
}

static enum qk_status plan_floats(const struct qk_instance *instance,
                                  const struct qk_tensor *inputs, struct qk_memory memory,
                                  struct qk_plan *plan, struct qk_error *error)
{
    struct float_state *state = memory.alloc(memory.context, sizeof(*state));
    if (!state)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    enum qk_status status = read_floats(instance->op, inputs, state, error);
    if (status == QK_OK)
        status = qk_move_set_output(plan, 0, QK_FP32, 1, &state->count, error);
    if (status != QK_OK)
        return status;
    plan->unit_count = state->count > 0;
    plan->unit_cost_ns = (uint64_t)(ELEMENT_NS * (double)state->count) + 1;
    plan->kernel = "range";
    plan->run = run_floats;
    plan->state = state;
    return QK_OK;
}

/* Returns how many numbers there are: (limit - start) / delta, rounded up. */
QK_WRAPS static size_t count_numbers(const int64_t *numbers)
{
    const bool up = numbers[DELTA] > 0;
    const uint64_t start = (uint64_t)numbers[START];
    const uint64_t limit = (uint64_t)numbers[LIMIT];
    const uint64_t step = up ? (uint64_t)numbers[DELTA] : 0 - (uint64_t)numbers[DELTA];
    const uint64_t length = up ? limit - start : start - limit;
    if (up ? numbers[LIMIT] <= numbers[START] : numbers[LIMIT] >= numbers[START])
        return 0;
    return (length - 1) / step + 1;
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const enum qk_type type = inputs[START].type;
    int64_t numbers[INPUT_COUNT];
    if (type == QK_FP32)
        return plan_floats(instance, inputs, memory, plan, error);
    enum qk_status status = read_numbers(instance->op, inputs, numbers, error);
    if (status != QK_OK)
        return status;
    const size_t count = count_numbers(numbers);
    status = qk_move_set_output(plan, 0, type, 1, &count, error);
    if (status != QK_OK)
        return status;
    struct state *state = memory.alloc(memory.context, sizeof(*state));
    if (!state)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    *state = (struct state){.start = (uint64_t)numbers[START],
                            .delta = (uint64_t)numbers[DELTA],
                            .size = type == QK_INT64 ? sizeof(int64_t) : sizeof(int32_t),
                            .count = count};
    state->unit =
        qk_elementwise_set_units(count, ELEMENT_NS, &instance->kernels->choice.elementwise, plan);
    plan->kernel = "range";
    plan->run = run;
    plan->state = state;
    return QK_OK;
}

/* ---- The descriptor ------------------------------------------------------------------------ */

#define NUMBER                                    \
    {                                             \
        QK_INTEGER_TYPES | QK_BIT(QK_FP32), false \
    }

static const struct qk_version versions[] = {
    {.number = 11,
     .inputs = {[START] = NUMBER, [LIMIT] = NUMBER, [DELTA] = NUMBER},
     .output_types = {QK_INTEGER_TYPES | QK_BIT(QK_FP32)}},
};

const struct qk_operator qk_onnx_range = {
    .name = "onnx.Range",
    .platform = QK_ONNX_PLATFORM,
    .about = "start, start + delta, and so on, up to limit, which is left out",
    .inputs = {[START] = {"start", QK_SINGLE_SHAPE},
               [LIMIT] = {"limit", QK_SINGLE_SHAPE},
               [DELTA] = {"delta", QK_SINGLE_SHAPE}},
    .input_count = INPUT_COUNT,
    .planned_inputs = 1U << START | 1U << LIMIT | 1U << DELTA,
    .outputs = {{"output", "[how many numbers there are]"}},
    .output_count = 1,
    QK_VERSIONS(versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare, .plan = plan},
};
