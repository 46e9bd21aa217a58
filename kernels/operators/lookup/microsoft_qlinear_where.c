/* com.microsoft.QLinearWhere: takes each element from one of two quantized tensors, and gives it
 * the scale and zero point of Z. The condition, X and Y broadcast as in NumPy.
 *
 * The rules are those of onnxruntime/contrib_ops/cpu/quantization/qlinear_where.cc. The codes of X
 * and Y go through tables of 256 entries. */
#include <string.h>

#include "kernels/dispatch.h"
#include "kernels/lookup/codes.h"
#include "kernels/operators/operator.h"
#include "kernels/operators/rules.h"
#include "kernels/operators/shape_text.h"

enum {
    CONDITION,
    X,
    X_SCALE,
    X_ZERO_POINT,
    Y,
    Y_SCALE,
    Y_ZERO_POINT,
    Z_SCALE,
    Z_ZERO_POINT,
    INPUT_COUNT
};

/* The inputs that broadcast. */
enum { BY_CONDITION, BY_X, BY_Y, OPERAND_COUNT };
static const size_t operands[] = {[BY_CONDITION] = CONDITION, [BY_X] = X, [BY_Y] = Y};

/* How many elements are looked up before the condition chooses. */
#define CHUNK ((size_t)512)

/* Rough guesses: the time of an element without its lookups, and of a row without its elements. */
#define ELEMENT_CYCLES 1.0
#define ROW_CYCLES 100.0

struct instance {
    struct qk_instance base;
    struct qk_lookup_table tables[OPERAND_COUNT]; /* of X and Y */
};

/* An axis of Z. A step along it is one stride in each operand, 0 if the operand repeats. */
struct axis {
    size_t size;
    size_t strides[OPERAND_COUNT];
};

/* Z is computed in rows, which lie along the last axis. Strides of this axis are 0 or 1. */
struct state {
    const struct instance *instance;
    qk_lookup_fn look_up;
    size_t count; /* elements of Z */
    size_t unit;  /* elements of a unit */
    uint32_t rank;
    struct axis axes[QK_RANK_MAX];
};

/* ---- Runs ---------------------------------------------------------------------------------- */

/* Looks up `count` elements of x, or one that repeats. */
static void look_up(const struct state *state, size_t operand, bool repeats, const uint8_t *x,
                    uint8_t *y, size_t count)
{
    const struct qk_lookup_table *table = &state->instance->tables[operand];
    if (repeats)
        memset(y, table->entries[*x], count);
    else
        qk_lookup_run(state->look_up, table, x, y, count);
}

/* Computes a part of a row. `at` are the first elements of the operands. */
static void choose(const struct state *state, const uint8_t *const *at, uint8_t *z, size_t count)
{
    const size_t *strides = state->axes[state->rank - 1].strides;
    if (strides[BY_CONDITION] == 0) {
        const size_t from = *at[BY_CONDITION] ? BY_X : BY_Y;
        look_up(state, from, strides[from] == 0, at[from], z, count);
        return;
    }
    for (size_t done = 0; done < count; done += CHUNK) {
        uint8_t x[CHUNK];
        uint8_t y[CHUNK];
        const uint8_t *condition = at[BY_CONDITION] + done;
        const size_t n = count - done < CHUNK ? count - done : CHUNK;
        look_up(state, BY_X, strides[BY_X] == 0, at[BY_X] + done * strides[BY_X], x, n);
        look_up(state, BY_Y, strides[BY_Y] == 0, at[BY_Y] + done * strides[BY_Y], y, n);
        for (size_t i = 0; i < n; i++) {
            const int mask = condition[i] ? UINT8_MAX : 0; /* the compiler makes vectors of this */
            z[done + i] = (uint8_t)(y[i] ^ ((x[i] ^ y[i]) & mask));
        }
    }
}

/* Computes the elements [first, last) of Z, row by row. */
static void compute(const struct state *state, const void *const *inputs, uint8_t *z, size_t first,
                    size_t last)
{
    const size_t row_size = state->axes[state->rank - 1].size;
    while (first < last) {
        const uint8_t *at[OPERAND_COUNT];
        const size_t rest = row_size - first % row_size;
        const size_t count = rest < last - first ? rest : last - first;
        size_t index = first;
        for (size_t k = 0; k < OPERAND_COUNT; k++)
            at[k] = inputs[operands[k]];
        for (uint32_t i = state->rank; i > 0; i--) {
            const struct axis *axis = &state->axes[i - 1];
            for (size_t k = 0; k < OPERAND_COUNT; k++)
                at[k] += index % axis->size * axis->strides[k];
            index /= axis->size;
        }
        choose(state, at, z + first, count);
        first += count;
    }
}

static void run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                void *workspace, size_t begin, size_t end)
{
    const struct state *state = plan->state;
    (void)workspace;
    if (begin < end)
        compute(state, inputs, outputs[0], begin * state->unit,
                end < plan->unit_count ? end * state->unit : state->count);
}

/* ---- Prepare ------------------------------------------------------------------------------- */

static enum qk_status check(const struct qk_call *call, struct qk_error *error)
{
    static const size_t same[] = {Y, X_ZERO_POINT, Y_ZERO_POINT, Z_ZERO_POINT};
    static const size_t single[] = {X_SCALE,      X_ZERO_POINT, Y_SCALE,
                                    Y_ZERO_POINT, Z_SCALE,      Z_ZERO_POINT};
    enum qk_status status = QK_OK;
    for (size_t i = 0; i < QK_LENGTH_OF(same) && status == QK_OK; i++)
        status = qk_check_same_type(call, same[i], X, error);
    for (size_t i = 0; i < QK_LENGTH_OF(single) && status == QK_OK; i++)
        status = qk_check_single(call, single[i], error);
    return status;
}

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    const struct qk_tensor *inputs = call->inputs;
    const enum qk_type type = inputs[X].type;
    const enum qk_status status = check(call, error);
    (void)kernels;
    if (status != QK_OK)
        return status;
    struct instance *made = memory.alloc(memory.context, sizeof(*made));
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for an operator");
    made->base = (struct qk_instance){.output_types = {type}};
    const struct qk_codes x = qk_codes_of(type, &inputs[X_SCALE], &inputs[X_ZERO_POINT]);
    const struct qk_codes y = qk_codes_of(type, &inputs[Y_SCALE], &inputs[Y_ZERO_POINT]);
    const struct qk_codes z = qk_codes_of(type, &inputs[Z_SCALE], &inputs[Z_ZERO_POINT]);
    (void)qk_requantize(&x, &z, &made->tables[BY_X]);
    (void)qk_requantize(&y, &z, &made->tables[BY_Y]);
    *instance = &made->base;
    return QK_OK;
}

/* ---- Plan ---------------------------------------------------------------------------------- */

/* Broadcasts z with x. Returns false if their shapes do not allow it. */
static bool broadcast(struct qk_tensor *z, const struct qk_tensor *x)
{
    const uint32_t more = x->rank > z->rank ? x->rank - z->rank : 0;
    memmove(z->dims + more, z->dims, z->rank * sizeof(z->dims[0]));
    for (uint32_t i = 0; i < more; i++)
        z->dims[i] = 1;
    z->rank += more;
    for (uint32_t i = 0; i < x->rank; i++) {
        size_t *to = &z->dims[z->rank - x->rank + i];
        if (*to != x->dims[i] && *to != 1 && x->dims[i] != 1)
            return false;
        *to = *to == 1 ? x->dims[i] : *to;
    }
    return true;
}

static enum qk_status set_output(const struct qk_operator *op, const struct qk_tensor *inputs,
                                 struct qk_tensor *z, struct qk_error *error)
{
    struct qk_shape_text expected;
    struct qk_shape_text got;
    z->type = inputs[X].type;
    z->rank = 0;
    z->data = NULL;
    for (size_t k = 0; k < OPERAND_COUNT; k++) {
        const struct qk_tensor before = *z;
        if (!broadcast(z, &inputs[operands[k]]))
            return qk_fail(error, QK_INVALID,
                           "%s: expected a shape that broadcasts with %s, got %s",
                           op->inputs[operands[k]].name, qk_shape_text(&before, &expected),
                           qk_shape_text(&inputs[operands[k]], &got));
    }
    if (!qk_tensor_set_count(z))
        return qk_fail(error, QK_INVALID,
                       "X: expected an output that fits in memory, got a larger one");
    return QK_OK;
}

/* Returns whether two neighbouring axes are one axis in every operand. */
static bool are_one(const struct axis *outer, const struct axis *inner)
{
    bool one = true;
    for (size_t k = 0; k < OPERAND_COUNT; k++)
        one = one && outer->strides[k] == inner->size * inner->strides[k];
    return one;
}

/* Adds an axis inside all axes so far. Merges it with the last one if both are one axis. */
static void add_axis(struct state *state, const struct axis *axis)
{
    struct axis *last = state->rank > 0 ? &state->axes[state->rank - 1] : NULL;
    if (!last || !are_one(last, axis)) {
        state->axes[state->rank++] = *axis;
        return;
    }
    last->size *= axis->size;
    memcpy(last->strides, axis->strides, sizeof(last->strides));
}

/* Returns the stride of an operand along axis `i` of z. */
static size_t stride_of(const struct qk_tensor *x, const struct qk_tensor *z, uint32_t i)
{
    size_t stride = 1;
    if (i < z->rank - x->rank || x->dims[i - (z->rank - x->rank)] == 1)
        return 0;
    for (uint32_t k = i - (z->rank - x->rank) + 1; k < x->rank; k++)
        stride *= x->dims[k];
    return stride;
}

static void set_axes(const struct qk_tensor *inputs, const struct qk_tensor *z, struct state *state)
{
    for (uint32_t i = 0; i < z->rank; i++) {
        struct axis axis = {.size = z->dims[i]};
        for (size_t k = 0; k < OPERAND_COUNT; k++)
            axis.strides[k] = stride_of(&inputs[operands[k]], z, i);
        if (axis.size != 1)
            add_axis(state, &axis);
    }
    if (state->rank == 0)
        add_axis(state, &(struct axis){.size = 1});
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct qk_lookup_kernel *kernel = instance->kernels->lookup;
    const struct qk_elementwise_tuning *tuning = &instance->kernels->choice.elementwise;
    const enum qk_status status = set_output(instance->op, inputs, &plan->outputs[0], error);
    if (status != QK_OK)
        return status;
    struct state *state = memory.alloc(memory.context, sizeof(*state));
    if (!state)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    state->instance = (const struct instance *)instance;
    state->look_up = kernel->run;
    state->count = plan->outputs[0].count;
    state->rank = 0;
    set_axes(inputs, &plan->outputs[0], state);
    const size_t row_size = state->axes[state->rank - 1].size;
    const double cycles = 2 * kernel->element_cycles + ELEMENT_CYCLES +
                          (row_size > 0 ? ROW_CYCLES / (double)row_size : 0);
    state->unit = qk_elementwise_set_units(state->count, cycles * tuning->cycle_ns, tuning, plan);
    plan->output_bytes[0] = state->count;
    plan->kernel = kernel->name;
    plan->run = run;
    plan->state = state;
    return QK_OK;
}

/* ---- The descriptor ------------------------------------------------------------------------ */

#define CODES (QK_BIT(QK_UINT8) | QK_BIT(QK_INT8))

static const struct qk_version versions[] = {
    {.number = 1,
     .inputs = {[CONDITION] = {QK_BIT(QK_BOOL), false},
                [X] = {CODES, false},
                [X_SCALE] = {QK_BIT(QK_FP32), false},
                [X_ZERO_POINT] = {CODES, false},
                [Y] = {CODES, false},
                [Y_SCALE] = {QK_BIT(QK_FP32), false},
                [Y_ZERO_POINT] = {CODES, false},
                [Z_SCALE] = {QK_BIT(QK_FP32), false},
                [Z_ZERO_POINT] = {CODES, false}},
     .output_types = {CODES}},
};

const struct qk_operator qk_microsoft_qlinear_where = {
    .name = "com.microsoft.QLinearWhere",
    .platform = QK_ONNX_PLATFORM,
    .about = "Takes X where the condition is true, else Y, and gives both Z's scale and zero point",
    .inputs = {[CONDITION] = {"condition", QK_ANY_SHAPE},
               [X] = {"X", "any that broadcasts with the condition's"},
               [X_SCALE] = {"x_scale", QK_SINGLE_SHAPE},
               [X_ZERO_POINT] = {"x_zero_point", QK_SINGLE_SHAPE},
               [Y] = {"Y", "any that broadcasts with the condition's and X's"},
               [Y_SCALE] = {"y_scale", QK_SINGLE_SHAPE},
               [Y_ZERO_POINT] = {"y_zero_point", QK_SINGLE_SHAPE},
               [Z_SCALE] = {"z_scale", QK_SINGLE_SHAPE},
               [Z_ZERO_POINT] = {"z_zero_point", QK_SINGLE_SHAPE}},
    .input_count = INPUT_COUNT,
    .variable_inputs = 1U << CONDITION | 1U << X | 1U << Y,
    .outputs = {{"Z", "that of the condition, X and Y, broadcast"}},
    .output_count = 1,
    QK_VERSIONS(versions),
    .version_last = 1,
    .code = &(const struct qk_operator_code){.prepare = prepare, .plan = plan},
};
