/* Plans a cast: cuts x into units. */
#include "kernels/cast/cast.h"

struct state {
    qk_cast_fn run;
    size_t x_bytes, y_bytes; /* of an element */
    size_t count;
    size_t unit; /* elements of a unit */
};

static void run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                void *workspace, size_t begin, size_t end)
{
    const struct state *state = plan->state;
    const size_t first = begin * state->unit;
    const size_t last = end < plan->unit_count ? end * state->unit : state->count;
    (void)workspace;
    if (first < last)
        state->run((const char *)inputs[0] + first * state->x_bytes,
                   (char *)outputs[0] + first * state->y_bytes, last - first);
}

static enum qk_cast_from from(enum qk_type type)
{
    static const enum qk_cast_from list[QK_TYPE_COUNT] = {
        [QK_UINT8] = QK_CAST_FROM_UINT8, [QK_BOOL] = QK_CAST_FROM_UINT8,
        [QK_INT8] = QK_CAST_FROM_INT8,   [QK_UINT16] = QK_CAST_FROM_UINT16,
        [QK_INT16] = QK_CAST_FROM_INT16, [QK_INT32] = QK_CAST_FROM_INT32,
        [QK_INT64] = QK_CAST_FROM_INT64, [QK_FP16] = QK_CAST_FROM_FP16,
        [QK_FP32] = QK_CAST_FROM_FP32,
    };
    return list[type];
}

static enum qk_cast_to to(enum qk_type type)
{
    static const enum qk_cast_to list[QK_TYPE_COUNT] = {
        [QK_UINT8] = QK_CAST_TO_8_BITS,   [QK_INT8] = QK_CAST_TO_8_BITS,
        [QK_UINT16] = QK_CAST_TO_16_BITS, [QK_INT16] = QK_CAST_TO_16_BITS,
        [QK_INT32] = QK_CAST_TO_32_BITS,  [QK_INT64] = QK_CAST_TO_64_BITS,
        [QK_BOOL] = QK_CAST_TO_BOOL,      [QK_FP16] = QK_CAST_TO_FP16,
        [QK_FP32] = QK_CAST_TO_FP32,
    };
    return list[type];
}

/* Returns whether y has the bits of x: the types are the same, or integers of one size. */
static bool keeps_bits(enum qk_type x, enum qk_type y)
{
    const struct qk_type_info *a = qk_type_info(x);
    const struct qk_type_info *b = qk_type_info(y);
    return x == y || (a->bits == b->bits && a->kind != QK_KIND_FLOAT && b->kind != QK_KIND_FLOAT &&
                      y != QK_BOOL);
}

enum qk_status qk_cast_plan(const struct qk_cast_kernels *kernels,
                            const struct qk_elementwise_tuning *tuning, const struct qk_tensor *x,
                            enum qk_type y_type, struct qk_memory memory, struct qk_plan *plan,
                            struct qk_error *error)
{
    const size_t x_bytes = qk_type_info(x->type)->bits / 8;
    const size_t y_bytes = qk_type_info(y_type)->bits / 8;
    double element_ns = kernels->element_cycles * tuning->cycle_ns;
    if (element_ns < (double)(x_bytes + y_bytes) * tuning->byte_ns)
        element_ns = (double)(x_bytes + y_bytes) * tuning->byte_ns;
    struct state *state = memory.alloc(memory.context, sizeof(*state));
    if (!state)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    qk_tensor_copy(&plan->outputs[0], x);
    plan->outputs[0].type = y_type;
    plan->outputs[0].data = NULL;
    if (!qk_type_bytes(y_type, x->count, &plan->output_bytes[0]))
        return qk_fail(error, QK_INVALID, "output: expected a size in bytes of 64 bits, got more");
    *state = (struct state){
        .run = kernels->run[from(x->type)][to(y_type)],
        .x_bytes = x_bytes,
        .y_bytes = y_bytes,
        .count = x->count,
        .unit = qk_elementwise_set_units(x->count, element_ns, tuning, plan),
    };
    plan->is_alias = keeps_bits(x->type, y_type);
    plan->kernel = kernels->name;
    plan->run = run;
    plan->state = state;
    return QK_OK;
}
