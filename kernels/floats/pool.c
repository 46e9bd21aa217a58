#include "kernels/floats/pool.h"

#include <float.h>
#include <string.h>

#include "kernels/dispatch.h"
#include "kernels/element/load.h"

/* Rough costs in cycles, of a position and of an element that it reads. */
#define POSITION_CYCLES 15.0
#define TAP_CYCLES 1.5

struct state {
    struct qk_float_pool pool;
    struct qk_pool_geometry geometry;
    float taps; /* of a whole window */
    size_t count;
    size_t unit; /* elements of a unit */
};

/* A row of y, and what its outer axes read. */
struct row {
    struct qk_pool_taps planes, lines;
    int64_t plane, line; /* the element of each outer axis that tap 0 reads */
    const char *x;       /* the image */
};

/* The columns that a position reads. */
struct columns {
    struct qk_pool_taps taps;
    int64_t start; /* the column that tap 0 reads */
};

static struct row find_row(const struct qk_pool_geometry *geometry, size_t number, const char *x)
{
    const struct qk_pool_axis *axis = geometry->axis;
    const int64_t line = (int64_t)(number % (size_t)axis[1].out);
    const int64_t plane = (int64_t)(number / (size_t)axis[1].out % (size_t)axis[0].out);
    const size_t group = number / ((size_t)axis[1].out * (size_t)axis[0].out);
    const size_t image = (size_t)axis[0].in * (size_t)axis[1].in * (size_t)axis[2].in;
    return (struct row){
        .planes = qk_pool_taps_of(&axis[0], plane),
        .lines = qk_pool_taps_of(&axis[1], line),
        .plane = plane * axis[0].stride - axis[0].pad,
        .line = line * axis[1].stride - axis[1].pad,
        .x = x + group * image * sizeof(float),
    };
}

/* Returns the element that three taps read. */
static float element(const struct qk_pool_geometry *geometry, const struct row *row,
                     const struct columns *columns, int64_t i, int64_t k, int64_t tap)
{
    const struct qk_pool_axis *axis = geometry->axis;
    const size_t plane = (size_t)(row->plane + i * axis[0].dilation);
    const size_t line = (size_t)(row->line + k * axis[1].dilation);
    const size_t column = (size_t)(columns->start + tap * axis[QK_POOL_COLUMN].dilation);
    return qk_load_f32(
        row->x, (plane * (size_t)axis[1].in + line) * (size_t)axis[QK_POOL_COLUMN].in + column);
}

/* Returns the maximum of a window, or its sum, row by row. */
static float reduce_rows(const struct state *state, const struct row *row,
                         const struct columns *columns)
{
    const bool is_max = state->pool.kind == QK_FLOAT_POOL_MAX;
    float result = is_max ? -FLT_MAX : 0;
    for (int64_t i = row->planes.begin; i < row->planes.end; i++)
        for (int64_t k = row->lines.begin; k < row->lines.end; k++)
            for (int64_t tap = columns->taps.begin; tap < columns->taps.end; tap++) {
                const float x = element(&state->geometry, row, columns, i, k, tap);
                result = !is_max ? result + x : x > result ? x : result;
            }
    return result;
}

static float add_columns(const struct state *state, const struct row *row,
                         const struct columns *columns)
{
    float sum = 0;
    for (int64_t tap = columns->taps.begin; tap < columns->taps.end; tap++) {
        float column = 0;
        for (int64_t i = row->planes.begin; i < row->planes.end; i++)
            for (int64_t k = row->lines.begin; k < row->lines.end; k++)
                column += element(&state->geometry, row, columns, i, k, tap);
        sum += column;
    }
    return sum;
}

static float compute(const struct state *state, const struct row *row, int64_t position)
{
    const struct qk_pool_axis *axis = &state->geometry.axis[QK_POOL_COLUMN];
    const struct columns columns = {qk_pool_taps_of(axis, position),
                                    position * axis->stride - axis->pad};
    const float result = state->pool.order == QK_FLOAT_POOL_COLUMNS
                             ? add_columns(state, row, &columns)
                             : reduce_rows(state, row, &columns);
    if (state->pool.kind == QK_FLOAT_POOL_MAX)
        return result;
    if (state->pool.kind == QK_FLOAT_POOL_AVERAGE_OF_TAPS)
        return result / state->taps;
    const size_t inside = (size_t)(row->planes.end - row->planes.begin) *
                          (size_t)(row->lines.end - row->lines.begin) *
                          (size_t)(columns.taps.end - columns.taps.begin);
    return result / (float)inside;
}

static void run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                void *workspace, size_t begin, size_t end)
{
    const struct state *state = plan->state;
    const size_t columns = (size_t)state->geometry.axis[QK_POOL_COLUMN].out;
    const size_t last = end < plan->unit_count ? end * state->unit : state->count;
    (void)workspace;
    for (size_t i = begin * state->unit; i < last;) {
        const struct row row = find_row(&state->geometry, i / columns, inputs[0]);
        for (size_t k = i % columns; k < columns && i < last; k++, i++) {
            const float y = compute(state, &row, (int64_t)k);
            memcpy((char *)outputs[0] + i * sizeof(y), &y, sizeof(y));
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

enum qk_status qk_float_pool_plan(const struct qk_float_pool *pool,
                                  const struct qk_pool_geometry *geometry,
                                  const struct qk_instance *instance, struct qk_memory memory,
                                  struct qk_plan *plan, struct qk_error *error)
{
    const struct qk_pool_axis *axis = geometry->axis;
    struct qk_tensor *y = &plan->outputs[0];
    struct state *state = memory.alloc(memory.context, sizeof(*state));
    if (!state)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    y->type = QK_FP32;
    y->data = NULL;
    if (!qk_type_bytes(QK_FP32, y->count, &plan->output_bytes[0]))
        return qk_fail(error, QK_INVALID,
                       "X: expected an output that fits in memory, got a larger one");
    *state = (struct state){.pool = *pool, .geometry = *geometry, .count = y->count};
    /* three kernels have less than 2^93 elements */
    state->taps = (float)((double)axis[0].kernel * (double)axis[1].kernel * (double)axis[2].kernel);
    set_units(state, &instance->kernels->choice.elementwise, plan);
    plan->kernel = pool->kind == QK_FLOAT_POOL_MAX ? "float_max" : "float_average";
    plan->run = run;
    plan->state = state;
    return QK_OK;
}
