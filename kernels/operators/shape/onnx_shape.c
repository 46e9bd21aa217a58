/* onnx.Shape and onnx.Size: the dimensions of data, and how many elements it has (onnx/defs/tensor/
 * defs.cc). Neither reads the data itself. */
#include <string.h>

#include "kernels/move/move.h"
#include "kernels/operators/operator.h"
#include "kernels/operators/rules.h"

enum { DATA };
enum { START, END };

struct instance {
    struct qk_instance base;
    int64_t start;
    int64_t end;
};

struct state {
    size_t count;
    int64_t numbers[QK_RANK_MAX];
};

/* ---- Prepare ------------------------------------------------------------------------------- */

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    (void)kernels;
    struct instance *made = memory.alloc(memory.context, sizeof(*made));
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for an operator");
    *made = (struct instance){.base = {.output_types = {QK_INT64}}};
    if (call->op->attribute_count > 0) {
        made->start = qk_int_or(&call->attributes[START], 0);
        made->end = qk_int_or(&call->attributes[END], QK_RANK_MAX);
    }
    *instance = &made->base;
    return QK_OK;
}

/* ---- Plan and run -------------------------------------------------------------------------- */

static void run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                void *workspace, size_t begin, size_t end)
{
    const struct state *state = plan->state;
    (void)inputs;
    (void)workspace;
    if (begin < end)
        memcpy(outputs[0], state->numbers, state->count * sizeof(state->numbers[0]));
}

/* Plans the output of one unit: state->numbers, as a tensor of this rank. */
static enum qk_status finish(struct qk_plan *plan, uint32_t rank, const struct state *state,
                             struct qk_error *error)
{
    const enum qk_status status = qk_move_set_output(plan, 0, QK_INT64, rank, &state->count, error);
    if (status != QK_OK)
        return status;
    plan->kernel = "shape";
    plan->run = run;
    plan->state = state;
    plan->unit_count = state->count > 0;
    plan->unit_cost_ns = 10;
    return QK_OK;
}

static struct state *take_state(struct qk_memory memory, struct qk_error *error)
{
    struct state *state = memory.alloc(memory.context, sizeof(*state));
    if (!state)
        qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    return state;
}

/* Returns the axis that `number` names, clamped to 0 to rank. */
static int64_t clamp(int64_t number, uint32_t rank)
{
    if (number < 0)
        number = number < -(int64_t)rank ? 0 : number + rank;
    return number > (int64_t)rank ? (int64_t)rank : number;
}

static enum qk_status plan_shape(const struct qk_instance *instance, const struct qk_tensor *inputs,
                                 struct qk_memory memory, struct qk_plan *plan,
                                 struct qk_error *error)
{
    const struct instance *made = (const struct instance *)instance;
    const struct qk_tensor *x = &inputs[DATA];
    const int64_t start = clamp(made->start, x->rank);
    const int64_t end = clamp(made->end, x->rank);
    struct state *state = take_state(memory, error);
    if (!state)
        return QK_NO_MEMORY;
    state->count = end > start ? (size_t)(end - start) : 0;
    for (size_t i = 0; i < state->count; i++)
        state->numbers[i] = (int64_t)x->dims[(size_t)start + i];
    return finish(plan, 1, state, error);
}

static enum qk_status plan_size(const struct qk_instance *instance, const struct qk_tensor *inputs,
                                struct qk_memory memory, struct qk_plan *plan,
                                struct qk_error *error)
{
    (void)instance;
    struct state *state = take_state(memory, error);
    if (!state)
        return QK_NO_MEMORY;
    state->count = 1;
    state->numbers[0] = (int64_t)inputs[DATA].count;
    return finish(plan, 0, state, error);
}

/* ---- The descriptors ----------------------------------------------------------------------- */

#define TYPES_19                                                                             \
    (QK_MOVE_TYPES_13 | QK_BIT(QK_FP8E4M3FN) | QK_BIT(QK_FP8E4M3FNUZ) | QK_BIT(QK_FP8E5M2) | \
     QK_BIT(QK_FP8E5M2FNUZ))
#define TYPES_21 (TYPES_19 | QK_BIT(QK_UINT4) | QK_BIT(QK_INT4))
#define TYPES_23 (TYPES_21 | QK_BIT(QK_FP4E2M1))
#define TYPES_24 (TYPES_23 | QK_BIT(QK_FP8E8M0))
#define TYPES_25 (TYPES_24 | QK_BIT(QK_UINT2) | QK_BIT(QK_INT2))

#define VERSION(since, types)                                   \
    {                                                           \
        .number = (since), .inputs = {[DATA] = {types, false}}, \
        .output_types = {QK_BIT(QK_INT64)},                     \
    }
#define VERSIONS_19                                                                             \
    VERSION(19, TYPES_19), VERSION(21, TYPES_21), VERSION(23, TYPES_23), VERSION(24, TYPES_24), \
        VERSION(25, TYPES_25)

static const struct qk_version shape_versions[] = {VERSION(1, QK_MOVE_TYPES),
                                                   VERSION(13, QK_MOVE_TYPES_13),
                                                   VERSION(15, QK_MOVE_TYPES_13), VERSIONS_19};

static const struct qk_version size_versions[] = {VERSION(1, QK_MOVE_TYPES),
                                                  VERSION(13, QK_MOVE_TYPES_13), VERSIONS_19};

static const struct qk_attribute_def shape_attributes[] = {
    [START] = QK_ATTRIBUTE("start", INT, 15,
                           "the first dimension, default 0, negative: from the "
                           "end; clamped to [0, rank]"),
    [END] = QK_ATTRIBUTE("end", INT, 15,
                         "the dimension behind the last one, default: all of them; "
                         "as start"),
};

const struct qk_operator qk_onnx_shape = {
    .name = "onnx.Shape",
    .platform = QK_ONNX_PLATFORM,
    .about = "the dimensions of data, from start to end",
    .inputs = {[DATA] = {"data", QK_ANY_SHAPE}},
    .input_count = 1,
    .variable_inputs = 1U << DATA,
    .outputs = {{"shape", "[number of dimensions]"}},
    .output_count = 1,
    QK_ATTRIBUTES(shape_attributes),
    QK_VERSIONS(shape_versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare,
                                             .plan = plan_shape,
                                             .shape_only_inputs = 1U << DATA},
};

const struct qk_operator qk_onnx_size = {
    .name = "onnx.Size",
    .platform = QK_ONNX_PLATFORM,
    .about = "how many elements data has",
    .inputs = {[DATA] = {"data", QK_ANY_SHAPE}},
    .input_count = 1,
    .variable_inputs = 1U << DATA,
    .outputs = {{"size", "[]"}},
    .output_count = 1,
    QK_VERSIONS(size_versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare,
                                             .plan = plan_size,
                                             .shape_only_inputs = 1U << DATA},
};
