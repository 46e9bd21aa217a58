#include "kernels/quantize/dynamic.h"

#include <string.h>

#include "kernels/element/round.h"

/* The length of inner loops. Every compiler vectorizes loops of a constant length at -O2. */
#define CHUNK ((size_t)16)

/* The least elements of a unit, and the most units. Each unit may read all of x for its range. */
#define UNIT_ELEMENTS_MIN ((size_t)64 * 1024)
#define UNITS_MAX ((size_t)8)

/* A rough guess: the cycles that an element takes while the range is sought. */
#define RANGE_CYCLES 0.5

struct state {
    const struct qk_quantize_kernels *kernels;
    size_t count, unit; /* elements of x, and of a unit */
};

struct parameters {
    float scale;
    int32_t zero_point;
};

static inline float lesser(float a, float b)
{
    return a < b ? a : b; /* if a is NaN: b */
}

static inline float greater(float a, float b)
{
    return a > b ? a : b;
}

static struct parameters find_parameters(const uint8_t *x, size_t count)
{
    float low[CHUNK] = {0};
    float high[CHUNK] = {0};
    float values[CHUNK] = {0};
    for (size_t i = 0; i < count; i += CHUNK) {
        const size_t there = count - i < CHUNK ? count - i : CHUNK;
        memcpy(values, x + i * sizeof(float), there * sizeof(float));
        for (size_t j = 0; j < CHUNK; j++) { /* values of the chunk before may be there again */
            low[j] = lesser(values[j], low[j]);
            high[j] = greater(values[j], high[j]);
        }
    }
    for (size_t j = 1; j < CHUNK; j++) {
        low[0] = lesser(low[j], low[0]);
        high[0] = greater(high[j], high[0]);
    }
    struct parameters found = {.scale = 1};
    if (high[0] != low[0])
        found.scale = (high[0] - low[0]) / 255;
    /* -infinity / infinity and 0 / 0 make a NaN zero point, which becomes 255. */
    const float zero_point = 0 - low[0] / found.scale;
    found.zero_point = qk_round_even_small(greater(lesser(zero_point, 255), 0));
    return found;
}

/* Quantizes elements [begin, end) as QuantizeLinear does. Clamping floats to the range of codes
 * before rounding, as the definition does, gives the same codes, because the ends of the range are
 * integers. */
static void quantize(const struct state *state, struct parameters by, const uint8_t *x,
                     size_t begin, size_t end, uint8_t *y)
{
    const struct qk_quantize_args args = {
        .x_type = QK_FP32,
        .y_type = QK_UINT8,
        .division = QK_DIVISION_FP32,
        .span = {.x = x,
                 .y = y,
                 .x_first = begin,
                 .y_first = begin,
                 .count = end - begin,
                 .block = SIZE_MAX,
                 .scales = &by.scale,
                 .zeros = &by.zero_point},
    };
    qk_quantize(state->kernels, &args);
}

static void run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                void *workspace, size_t begin, size_t end)
{
    const struct state *state = plan->state;
    const uint8_t *x = inputs[0];
    uint8_t *y = outputs[0];
    (void)workspace;
    const size_t first = begin * state->unit;
    const size_t last = end < plan->unit_count ? end * state->unit : state->count;
    if (begin >= end)
        return;
    const struct parameters by = find_parameters(x, state->count);
    if (first < last)
        quantize(state, by, x, first, last, y);
    if (begin > 0)
        return;
    const uint8_t zero_point = (uint8_t)by.zero_point;
    memcpy(outputs[1], &by.scale, sizeof(by.scale));
    memcpy(outputs[2], &zero_point, sizeof(zero_point));
}

enum qk_status qk_quantize_dynamic_plan(const struct qk_quantize_kernels *kernels,
                                        const struct qk_elementwise_tuning *tuning,
                                        const struct qk_tensor *x, struct qk_memory memory,
                                        struct qk_plan *plan, struct qk_error *error)
{
    struct state *state = memory.alloc(memory.context, sizeof(*state));
    if (!state)
        return qk_fail(error, QK_NO_MEMORY, "no memory for the plan");
    const size_t even = x->count / UNITS_MAX + (x->count % UNITS_MAX != 0);
    state->kernels = kernels;
    state->count = x->count;
    state->unit = even > UNIT_ELEMENTS_MIN ? even : UNIT_ELEMENTS_MIN;
    qk_tensor_copy(&plan->outputs[0], x);
    plan->outputs[0].type = QK_UINT8;
    plan->outputs[0].data = NULL;
    plan->outputs[1] = (struct qk_tensor){.type = QK_FP32, .count = 1, .stored = 1};
    plan->outputs[2] = (struct qk_tensor){.type = QK_UINT8, .count = 1, .stored = 1};
    plan->output_bytes[0] = x->count;
    plan->output_bytes[1] = sizeof(float);
    plan->output_bytes[2] = 1;
    plan->kernel = "dynamic_quantize";
    plan->run = run;
    plan->state = state;
    plan->unit_count = x->count == 0 ? 1 : x->count / state->unit + (x->count % state->unit != 0);
    const double elements = (double)(x->count < state->unit ? x->count : state->unit);
    plan->unit_cost_ns = 1 + (uint64_t)(tuning->cycle_ns * (RANGE_CYCLES * (double)x->count +
                                                            kernels->element_cycles * elements));
    return QK_OK;
}
