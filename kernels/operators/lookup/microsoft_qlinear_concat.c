/* com.microsoft.QLinearConcat: joins quantized tensors along an axis, and gives all elements the
 * scale and zero point of Y.
 *
 * The rules are those of onnxruntime/contrib_ops/cpu/quantization/qlinear_concat.cc. An input that
 * already has Y's scale and zero point is copied. Of any other input, each element goes through a
 * table of its 256 codes. */
#include <string.h>

#include "kernels/dispatch.h"
#include "kernels/lookup/codes.h"
#include "kernels/operators/move/moving.h"
#include "kernels/operators/operator.h"
#include "kernels/operators/rules.h"
#include "kernels/operators/shape_text.h"

/* The inputs: those of Y, then for each x three. */
enum { Y_SCALE, Y_ZERO_POINT, FIRST };
enum { VALUES, SCALE, ZERO_POINT, TRIPLE };
enum { AXIS };

#define PART_MAX 10
#define INPUT_OF(part, member) (FIRST + TRIPLE * (part) + (member))

/* The time of a piece of a run besides that of its elements: a rough guess. */
#define PIECE_CYCLES 20.0

/* How the codes of one x become codes of Y. */
struct part {
    bool changes; /* false: x has Y's scale and zero point, and is copied */
    struct qk_lookup_table table;
};

struct instance {
    struct qk_instance base;
    int64_t axis;
    size_t part_count;
    struct part parts[];
};

/* A row of Y is what one index of the axes before `axis` selects. It has a run of each x. */
struct run {
    size_t input;
    size_t bytes;                        /* more than 0 */
    const struct qk_lookup_table *table; /* NULL: the run is copied */
};

struct state {
    qk_lookup_fn look_up;
    size_t count;     /* bytes of Y */
    size_t unit;      /* bytes of a unit */
    size_t row_bytes; /* the sum of the runs */
    size_t run_count;
    struct run runs[PART_MAX];
};

/* ---- Runs ---------------------------------------------------------------------------------- */

/* Writes the bytes [first, last) of Y, piece by piece. */
static void join(const struct state *state, const void *const *inputs, uint8_t *y, size_t first,
                 size_t last)
{
    size_t row = first / state->row_bytes;
    size_t at = first % state->row_bytes; /* in the row, then in the run */
    size_t r = 0;
    while (at >= state->runs[r].bytes)
        at -= state->runs[r++].bytes;
    while (first < last) {
        const struct run *run = &state->runs[r];
        const uint8_t *x = (const uint8_t *)inputs[run->input] + row * run->bytes + at;
        const size_t rest = run->bytes - at;
        const size_t piece = rest < last - first ? rest : last - first;
        if (run->table)
            qk_lookup_run(state->look_up, run->table, x, y + first, piece);
        else
            memcpy(y + first, x, piece);
        first += piece;
        at = 0;
        if (++r == state->run_count) {
            r = 0;
            row++;
        }
    }
}

static void run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                void *workspace, size_t begin, size_t end)
{
    const struct state *state = plan->state;
    (void)workspace;
    if (begin < end)
        join(state, inputs, outputs[0], begin * state->unit,
             end < plan->unit_count ? end * state->unit : state->count);
}

/* ---- Prepare ------------------------------------------------------------------------------- */

/* Counts the parts. A part has all of its three inputs, and there is no gap between parts. */
static enum qk_status count_parts(const struct qk_call *call, size_t *count, struct qk_error *error)
{
    const struct qk_port *ports = call->op->inputs;
    *count = 1; /* call.c has checked the first part */
    while (*count < PART_MAX && call->inputs[INPUT_OF(*count, VALUES)].type != QK_NONE)
        *count += 1;
    for (size_t i = INPUT_OF(1, VALUES); i < INPUT_OF(PART_MAX, VALUES); i++) {
        const bool present = call->inputs[i].type != QK_NONE;
        const size_t part = (i - FIRST) / TRIPLE;
        if (part < *count && !present)
            return qk_fail(error, QK_INVALID,
                           "%s: expected this input, because %s is present, got none",
                           ports[i].name, ports[INPUT_OF(part, VALUES)].name);
        if (part >= *count && present)
            return qk_fail(error, QK_INVALID, "%s: expected none, because %s is absent, got %s",
                           ports[i].name, ports[INPUT_OF(*count, VALUES)].name,
                           qk_type_info(call->inputs[i].type)->name);
    }
    return QK_OK;
}

static enum qk_status check_part(const struct qk_call *call, size_t part, struct qk_error *error)
{
    enum qk_status status = qk_check_same_type(call, INPUT_OF(part, VALUES), Y_ZERO_POINT, error);
    if (status == QK_OK)
        status = qk_check_same_type(call, INPUT_OF(part, ZERO_POINT), Y_ZERO_POINT, error);
    if (status == QK_OK)
        status = qk_check_single(call, INPUT_OF(part, SCALE), error);
    if (status == QK_OK)
        status = qk_check_single(call, INPUT_OF(part, ZERO_POINT), error);
    return status;
}

static enum qk_status check(const struct qk_call *call, size_t *part_count, struct qk_error *error)
{
    enum qk_status status = count_parts(call, part_count, error);
    if (status == QK_OK)
        status = qk_check_single(call, Y_SCALE, error);
    if (status == QK_OK)
        status = qk_check_single(call, Y_ZERO_POINT, error);
    for (size_t i = 0; i < *part_count && status == QK_OK; i++)
        status = check_part(call, i, error);
    if (status == QK_OK && !call->attributes[AXIS].present)
        return qk_fail(error, QK_INVALID,
                       "axis: expected this attribute, which %s requires, got none",
                       call->op->name);
    return status;
}

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    const struct qk_tensor *inputs = call->inputs;
    const enum qk_type type = inputs[Y_ZERO_POINT].type;
    size_t count = 0;
    const enum qk_status status = check(call, &count, error);
    (void)kernels;
    if (status != QK_OK)
        return status;
    struct instance *made =
        memory.alloc(memory.context, sizeof(*made) + count * sizeof(made->parts[0]));
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for an operator");
    made->base = (struct qk_instance){.output_types = {type}};
    made->axis = call->attributes[AXIS].number;
    made->part_count = count;
    const struct qk_codes y = qk_codes_of(type, &inputs[Y_SCALE], &inputs[Y_ZERO_POINT]);
    for (size_t i = 0; i < count; i++) {
        const struct qk_codes x =
            qk_codes_of(type, &inputs[INPUT_OF(i, SCALE)], &inputs[INPUT_OF(i, ZERO_POINT)]);
        made->parts[i].changes = qk_requantize(&x, &y, &made->parts[i].table);
    }
    *instance = &made->base;
    return QK_OK;
}

/* ---- Plan ---------------------------------------------------------------------------------- */

/* Returns whether two shapes are the same but for an axis. */
static bool agree(const struct qk_tensor *a, const struct qk_tensor *b, uint32_t axis)
{
    if (a->rank != b->rank)
        return false;
    for (uint32_t i = 0; i < a->rank; i++)
        if (i != axis && a->dims[i] != b->dims[i])
            return false;
    return true;
}

static enum qk_status set_output(const struct instance *instance, const struct qk_tensor *inputs,
                                 uint32_t axis, struct qk_tensor *y, struct qk_error *error)
{
    const struct qk_tensor *first = &inputs[INPUT_OF(0, VALUES)];
    struct qk_shape_text expected;
    struct qk_shape_text got;
    bool fits = true;
    qk_tensor_copy(y, first);
    y->data = NULL;
    for (size_t i = 1; i < instance->part_count; i++) {
        const struct qk_tensor *x = &inputs[INPUT_OF(i, VALUES)];
        if (!agree(first, x, axis))
            return qk_fail(error, QK_INVALID,
                           "x_%zu: expected x_0's shape %s, except for axis %u, got %s", i,
                           qk_shape_text(first, &expected), axis, qk_shape_text(x, &got));
        fits = fits && !__builtin_add_overflow(y->dims[axis], x->dims[axis], &y->dims[axis]);
    }
    if (!fits || !qk_tensor_set_count(y))
        return qk_fail(error, QK_INVALID,
                       "x_0: expected an output that fits in memory, got a larger one");
    return QK_OK;
}

static void set_runs(const struct instance *instance, const struct qk_tensor *inputs, uint32_t axis,
                     struct state *state)
{
    for (size_t i = 0; i < instance->part_count; i++) {
        const struct part *part = &instance->parts[i];
        const struct qk_tensor *x = &inputs[INPUT_OF(i, VALUES)];
        size_t bytes = 1;
        for (uint32_t k = axis; k < x->rank; k++)
            bytes *= x->dims[k];
        if (bytes == 0)
            continue;
        state->row_bytes += bytes;
        state->runs[state->run_count++] =
            (struct run){INPUT_OF(i, VALUES), bytes, part->changes ? &part->table : NULL};
    }
}

/* Returns how long an element of Y takes, on average. */
static double element_ns(const struct state *state, const struct qk_lookup_kernel *kernel,
                         const struct qk_elementwise_tuning *tuning)
{
    const double byte_ns = 2 * tuning->byte_ns; /* one byte is read and one is written */
    const double lookup_ns = kernel->element_cycles * tuning->cycle_ns;
    double row_ns = 0;
    for (size_t i = 0; i < state->run_count; i++) {
        const bool looks_up = state->runs[i].table && lookup_ns > byte_ns;
        row_ns += (double)state->runs[i].bytes * (looks_up ? lookup_ns : byte_ns) +
                  PIECE_CYCLES * tuning->cycle_ns;
    }
    return state->row_bytes > 0 ? row_ns / (double)state->row_bytes : byte_ns;
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct instance *made = (const struct instance *)instance;
    const struct qk_lookup_kernel *kernel = instance->kernels->lookup;
    const struct qk_elementwise_tuning *tuning = &instance->kernels->choice.elementwise;
    const uint32_t rank = inputs[INPUT_OF(0, VALUES)].rank;
    uint32_t axis;
    enum qk_status status = qk_find_axis("axis", made->axis, rank, &axis, error);
    if (status == QK_OK)
        status = set_output(made, inputs, axis, &plan->outputs[0], error);
    if (status != QK_OK)
        return status;
    struct state *state = memory.alloc(memory.context, sizeof(*state));
    if (!state)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    plan->joins = qk_is_outermost(plan->outputs[0].dims, axis);
    for (size_t i = 0; i < made->part_count; i++)
        plan->joins = plan->joins && !made->parts[i].changes;
    *state = (struct state){.look_up = kernel->run, .count = plan->outputs[0].count};
    if (state->count > 0)
        set_runs(made, inputs, axis, state);
    state->unit =
        qk_elementwise_set_units(state->count, element_ns(state, kernel, tuning), tuning, plan);
    plan->output_bytes[0] = state->count;
    plan->kernel = kernel->name;
    plan->run = run;
    plan->state = state;
    return QK_OK;
}

/* ---- The descriptor ------------------------------------------------------------------------ */

#define CODES (QK_BIT(QK_UINT8) | QK_BIT(QK_INT8))

#define PART_TYPES(part, optional)                                         \
    [INPUT_OF(part, VALUES)] = {CODES, optional},                          \
                    [INPUT_OF(part, SCALE)] = {QK_BIT(QK_FP32), optional}, \
                    [INPUT_OF(part, ZERO_POINT)] = {CODES, optional}

#define PART_PORTS(part, shape)                                                       \
    [INPUT_OF(part, VALUES)] = {"x_" #part, shape},                                   \
                    [INPUT_OF(part, SCALE)] = {"x_" #part "_scale", QK_SINGLE_SHAPE}, \
                    [INPUT_OF(part, ZERO_POINT)] = {"x_" #part "_zero_point", QK_SINGLE_SHAPE}

#define LIKE_FIRST "as x_0's, except for the axis"

#define VARIABLE(part) (1U << INPUT_OF(part, VALUES))

static const struct qk_attribute_def attributes[] = {
    [AXIS] = QK_ATTRIBUTE("axis", INT, 1, "required, from -rank(x_0) to rank(x_0)-1"),
};

static const struct qk_version versions[] = {
    {.number = 1,
     .inputs = {[Y_SCALE] = {QK_BIT(QK_FP32), false},
                [Y_ZERO_POINT] = {CODES, false},
                PART_TYPES(0, false),
                PART_TYPES(1, true),
                PART_TYPES(2, true),
                PART_TYPES(3, true),
                PART_TYPES(4, true),
                PART_TYPES(5, true),
                PART_TYPES(6, true),
                PART_TYPES(7, true),
                PART_TYPES(8, true),
                PART_TYPES(9, true)},
     .output_types = {CODES}},
};

const struct qk_operator qk_microsoft_qlinear_concat = {
    .name = "com.microsoft.QLinearConcat",
    .platform = QK_ONNX_PLATFORM,
    .about = "Joins up to 10 quantized tensors along an axis, and gives all of them Y's scale and "
             "zero point",
    .inputs = {[Y_SCALE] = {"Y_scale", QK_SINGLE_SHAPE},
               [Y_ZERO_POINT] = {"Y_zero_point", QK_SINGLE_SHAPE},
               PART_PORTS(0, QK_ANY_SHAPE),
               PART_PORTS(1, LIKE_FIRST),
               PART_PORTS(2, LIKE_FIRST),
               PART_PORTS(3, LIKE_FIRST),
               PART_PORTS(4, LIKE_FIRST),
               PART_PORTS(5, LIKE_FIRST),
               PART_PORTS(6, LIKE_FIRST),
               PART_PORTS(7, LIKE_FIRST),
               PART_PORTS(8, LIKE_FIRST),
               PART_PORTS(9, LIKE_FIRST)},
    .input_count = INPUT_OF(PART_MAX, VALUES),
    .joins_list = true,
    .list_begin = FIRST,
    .variable_inputs = VARIABLE(0) | VARIABLE(1) | VARIABLE(2) | VARIABLE(3) | VARIABLE(4) |
                       VARIABLE(5) | VARIABLE(6) | VARIABLE(7) | VARIABLE(8) | VARIABLE(9),
    .outputs = {{"Y", "as x_0's; the axis is as long as those of all x together"}},
    .output_count = 1,
    QK_ATTRIBUTES(attributes),
    QK_VERSIONS(versions),
    .version_last = 1,
    .code = &(const struct qk_operator_code){.prepare = prepare, .plan = plan},
};
