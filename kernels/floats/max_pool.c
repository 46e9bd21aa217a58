#include "kernels/floats/max_pool.h"

#include <float.h>
#include <string.h>

#include "kernels/dispatch.h"
#include "kernels/element/load.h"

/* Rough costs in cycles, of a position and of an element that it reads. */
#define POSITION_CYCLES 15.0
#define TAP_CYCLES 1.5

struct state {
    struct qk_pool_geometry geometry;
    size_t count;
    size_t unit; /* elements of a unit */
};

/* A row of y, and what its outer axes read. */
struct row {
    struct qk_pool_taps planes, lines;
    int64_t plane, line; /* the element of each outer axis that tap 0 reads */
    size_t group;
};

static struct row find_row(const struct qk_pool_geometry *geometry, size_t number)
{
    const struct qk_pool_axis *axis = geometry->axis;
    const int64_t line = (int64_t)(number % (size_t)axis[1].out);
    const int64_t plane = (int64_t)(number / (size_t)axis[1].out % (size_t)axis[0].out);
    return (struct row){
        .planes = qk_pool_taps_of(&axis[0], plane),
        .lines = qk_pool_taps_of(&axis[1], line),
        .plane = plane * axis[0].stride - axis[0].pad,
        .line = line * axis[1].stride - axis[1].pad,
        .group = number / ((size_t)axis[1].out * (size_t)axis[0].out),
    };
}

/* Returns the maximum of `most` and of the taps of one position in one row of x. */
static float max_in_row(const struct qk_pool_axis *axis, const struct qk_pool_taps *taps,
                        int64_t start, const char *x, float most)
{
    for (int64_t tap = taps->begin; tap < taps->end; tap++) {
        const float value = qk_load_f32(x, (size_t)(start + tap * axis->dilation));
        most = value > most ? value : most;
    }
    return most;
}

static float max_of(const struct qk_pool_geometry *geometry, const struct row *row,
                    int64_t position, const char *x)
{
    const struct qk_pool_axis *axis = geometry->axis;
    const struct qk_pool_axis *column = &axis[QK_POOL_COLUMN];
    const struct qk_pool_taps taps = qk_pool_taps_of(column, position);
    const int64_t start = position * column->stride - column->pad;
    float most = -FLT_MAX;
    for (int64_t i = row->planes.begin; i < row->planes.end; i++)
        for (int64_t k = row->lines.begin; k < row->lines.end; k++) {
            const size_t plane = (size_t)(row->plane + i * axis[0].dilation);
            const size_t line = (size_t)(row->line + k * axis[1].dilation);
            const size_t at =
                ((row->group * (size_t)axis[0].in + plane) * (size_t)axis[1].in + line) *
                (size_t)column->in;
            most = max_in_row(column, &taps, start, x + at * sizeof(float), most);
        }
    return most;
}

static void run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                void *workspace, size_t begin, size_t end)
{
    const struct state *state = plan->state;
    const size_t columns = (size_t)state->geometry.axis[QK_POOL_COLUMN].out;
    const size_t last = end < plan->unit_count ? end * state->unit : state->count;
    (void)workspace;
    for (size_t i = begin * state->unit; i < last;) {
        const struct row row = find_row(&state->geometry, i / columns);
        for (size_t k = i % columns; k < columns && i < last; k++, i++) {
            const float most = max_of(&state->geometry, &row, (int64_t)k, inputs[0]);
            memcpy((char *)outputs[0] + i * sizeof(most), &most, sizeof(most));
        }
    }
}

static void set_units(struct state *state, const struct qk_elementwise_tuning *tuning,
                      struct qk_plan *plan)
{
    const struct qk_pool_axis *axis = state->geometry.axis;
    double taps = 1;
    for (size_t i = 0; i < QK_POOL_SPATIAL_MAX; i++)
        taps *= (double)(axis[i].kernel < axis[i].in ? axis[i].kernel : axis[i].in);
    const double element_ns = (POSITION_CYCLES + TAP_CYCLES * taps) * tuning->cycle_ns;
    const double elements = tuning->unit_ns / element_ns;
    state->unit = elements < 1 ? 1 : (size_t)elements;
    plan->unit_count = state->count / state->unit + (state->count % state->unit != 0);
    const size_t largest = state->unit < state->count ? state->unit : state->count;
    const double unit_ns = element_ns * (double)largest;
    plan->unit_cost_ns = unit_ns < 0x1p53 ? (uint64_t)unit_ns : UINT64_C(1) << 53;
}

enum qk_status qk_float_max_pool_plan(const struct qk_pool_desc *desc,
                                      const struct qk_instance *instance, const struct qk_tensor *x,
                                      struct qk_memory memory, struct qk_plan *plan,
                                      struct qk_error *error)
{
    struct qk_tensor *y = &plan->outputs[0];
    struct state *state = memory.alloc(memory.context, sizeof(*state));
    if (!state)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    const enum qk_status status = qk_pool_geometry_init(&state->geometry, desc, x, y, error);
    if (status != QK_OK)
        return status;
    if (!qk_type_bytes(QK_FP32, y->count, &plan->output_bytes[0]))
        return qk_fail(error, QK_INVALID,
                       "X: expected an output that fits in memory, got a larger one");
    y->data = NULL;
    state->count = y->count;
    set_units(state, &instance->kernels->choice.elementwise, plan);
    plan->kernel = "float_max";
    plan->run = run;
    plan->state = state;
    return QK_OK;
}
