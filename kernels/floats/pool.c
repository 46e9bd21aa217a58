#include "kernels/floats/pool.h"

#include <float.h>
#include <string.h>

#include "kernels/dispatch.h"
#include "kernels/element/load.h"

/* Rough costs in cycles, of a position and of an element that it reads. */
#define POSITION_CYCLES 15.0
#define TAP_CYCLES 1.5

/* The elements of ONNX Runtime's vectors. */
#define LANES 4

/* The longest kernel and the longest row with its pads that ONNX Runtime reduces by columns. */
#define COLUMNS_KERNEL_MAX 32
#define COLUMNS_WIDTH_MAX 2045

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

/* ---- Sums ---------------------------------------------------------------------------------- */

static float add_rows(const struct state *state, const struct row *row,
                      const struct columns *columns)
{
    float sum = 0;
    for (int64_t i = row->planes.begin; i < row->planes.end; i++)
        for (int64_t k = row->lines.begin; k < row->lines.end; k++)
            for (int64_t tap = columns->taps.begin; tap < columns->taps.end; tap++)
                sum += element(&state->geometry, row, columns, i, k, tap);
    return sum;
}

/* A sum of columns that begins with -0 is the same as one that begins with its first element. */
static float add_columns(const struct state *state, const struct row *row,
                         const struct columns *columns)
{
    const float start = state->pool.order == QK_FLOAT_POOL_COLUMNS ? -0.0F : 0;
    float sum = columns->taps.begin > 0 ? 0 : -0.0F;
    for (int64_t tap = columns->taps.begin; tap < columns->taps.end; tap++) {
        float column = start;
        for (int64_t i = row->planes.begin; i < row->planes.end; i++)
            for (int64_t k = row->lines.begin; k < row->lines.end; k++)
                column += element(&state->geometry, row, columns, i, k, tap);
        sum += column;
    }
    const int64_t kernel = state->geometry.axis[QK_POOL_COLUMN].kernel;
    return columns->taps.end < kernel ? sum + 0 : sum;
}

/* ---- Maxima -------------------------------------------------------------------------------- */

/* The processor's maximum: of two zeros, or if one is NaN, b. */
static float max_of_vector(float a, float b)
{
    return a > b ? a : b;
}

/* The maximum of C++: of two zeros, or if one is NaN, a. */
static float max_of_scalar(float a, float b)
{
    return a < b ? b : a;
}

static float max_rows(const struct state *state, const struct row *row,
                      const struct columns *columns)
{
    bool has_any = state->pool.order != QK_FLOAT_POOL_FIRST;
    float result = -FLT_MAX;
    for (int64_t i = row->planes.begin; i < row->planes.end; i++)
        for (int64_t k = row->lines.begin; k < row->lines.end; k++)
            for (int64_t tap = columns->taps.begin; tap < columns->taps.end; tap++) {
                const float x = element(&state->geometry, row, columns, i, k, tap);
                result = has_any ? max_of_scalar(result, x) : x;
                has_any = true;
            }
    return result;
}

/* ONNX Runtime reads the columns in vectors, and those that fill no vector one by one. */
static float max_column(const struct state *state, const struct row *row,
                        const struct columns *columns, int64_t tap)
{
    const int64_t in = state->geometry.axis[QK_POOL_COLUMN].in;
    const bool is_vector = columns->start + tap < in - in % LANES;
    bool has_any = state->pool.order == QK_FLOAT_POOL_DEEP_COLUMNS;
    float result = -FLT_MAX;
    for (int64_t i = row->planes.begin; i < row->planes.end; i++)
        for (int64_t k = row->lines.begin; k < row->lines.end; k++) {
            const float x = element(&state->geometry, row, columns, i, k, tap);
            result = !has_any ? x : is_vector ? max_of_vector(result, x) : max_of_scalar(result, x);
            has_any = true;
        }
    return result;
}

static float max_columns(const struct state *state, const struct row *row,
                         const struct columns *columns)
{
    const struct qk_pool_taps *taps = &columns->taps;
    float result = -FLT_MAX;
    for (int64_t tap = taps->begin; tap < taps->end; tap++) {
        const float column = max_column(state, row, columns, tap);
        result = tap == 0 ? column : max_of_vector(result, column);
    }
    const int64_t kernel = state->geometry.axis[QK_POOL_COLUMN].kernel;
    return taps->end < kernel ? max_of_vector(result, -FLT_MAX) : result;
}

/* The window is the whole image, whose elements lie next to each other. */
static float max_lanes(const struct state *state, const char *x)
{
    const struct qk_pool_axis *axis = state->geometry.axis;
    const size_t count = (size_t)axis[0].in * (size_t)axis[1].in * (size_t)axis[2].in;
    const size_t whole = count - count % LANES;
    float lanes[LANES] = {-FLT_MAX, -FLT_MAX, -FLT_MAX, -FLT_MAX};
    for (size_t i = 0; i < whole; i++)
        lanes[i % LANES] = max_of_vector(lanes[i % LANES], qk_load_f32(x, i));
    float result =
        max_of_vector(max_of_vector(lanes[0], lanes[2]), max_of_vector(lanes[1], lanes[3]));
    for (size_t i = whole; i < count; i++)
        result = max_of_scalar(result, qk_load_f32(x, i));
    return result;
}

static float find_max(const struct state *state, const struct row *row,
                      const struct columns *columns)
{
    switch (state->pool.order) {
    case QK_FLOAT_POOL_COLUMNS:
    case QK_FLOAT_POOL_DEEP_COLUMNS:
        return max_columns(state, row, columns);
    case QK_FLOAT_POOL_LANES:
        return max_lanes(state, row->x);
    case QK_FLOAT_POOL_ROWS:
    case QK_FLOAT_POOL_FIRST:
        break;
    }
    return max_rows(state, row, columns);
}

/* ---- Positions ----------------------------------------------------------------------------- */

/* Returns the number of taps that are not behind x and its pads. */
static double taps_before_end(const struct qk_pool_axis *axis, int64_t start)
{
    const int64_t count = 1 + (axis->in + axis->pad_end - start - 1) / axis->dilation;
    return (double)(count < axis->kernel ? count : axis->kernel);
}

static float compute(const struct state *state, const struct row *row, int64_t position)
{
    const struct qk_pool_axis *axis = &state->geometry.axis[QK_POOL_COLUMN];
    const struct columns columns = {qk_pool_taps_of(axis, position),
                                    position * axis->stride - axis->pad};
    if (state->pool.kind == QK_FLOAT_POOL_MAX)
        return find_max(state, row, &columns);
    const float result = state->pool.order == QK_FLOAT_POOL_ROWS
                             ? add_rows(state, row, &columns)
                             : add_columns(state, row, &columns);
    const size_t inside = (size_t)(row->planes.end - row->planes.begin) *
                          (size_t)(row->lines.end - row->lines.begin) *
                          (size_t)(columns.taps.end - columns.taps.begin);
    if (inside == 0)
        return result;
    if (state->pool.kind == QK_FLOAT_POOL_AVERAGE)
        return result / (float)inside;
    if (state->pool.kind == QK_FLOAT_POOL_AVERAGE_OF_TAPS)
        return result / state->taps;
    const struct qk_pool_axis *axes = state->geometry.axis;
    return result /
           (float)(taps_before_end(&axes[0], row->plane) * taps_before_end(&axes[1], row->line) *
                   taps_before_end(&axes[QK_POOL_COLUMN], columns.start));
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

/* Returns whether there is one window, the whole image. */
static bool is_global(const struct qk_pool_geometry *geometry)
{
    bool is = true;
    for (size_t i = 0; i < QK_POOL_SPATIAL_MAX; i++) {
        const struct qk_pool_axis *axis = &geometry->axis[i];
        is = is && axis->kernel == axis->in && axis->stride == 1 && axis->pad == 0 &&
             axis->pad_end == 0;
    }
    return is;
}

enum qk_float_pool_order qk_float_pool_order_of(const struct qk_pool_desc *desc,
                                                const struct qk_pool_geometry *geometry)
{
    const struct qk_pool_axis *column = &geometry->axis[QK_POOL_COLUMN];
    bool are_small = true;
    if (is_global(geometry))
        return QK_FLOAT_POOL_LANES;
    for (size_t i = 0; i < QK_POOL_SPATIAL_MAX; i++)
        are_small = are_small && geometry->axis[i].kernel <= COLUMNS_KERNEL_MAX;
    if (desc->spatial_rank < 2 || column->stride > 2 || !are_small ||
        column->in > COLUMNS_WIDTH_MAX - column->pad - column->pad_end)
        return QK_FLOAT_POOL_ROWS;
    return desc->spatial_rank == 2 ? QK_FLOAT_POOL_COLUMNS : QK_FLOAT_POOL_DEEP_COLUMNS;
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
