#include "kernels/floats/pool.h"

#include <float.h>
#include <string.h>

#include "kernels/dispatch.h"
#include "kernels/element/load.h"
#include "kernels/floats/kernels.h"

/* Rough costs in cycles, of a position and of an element that it reads. */
#define POSITION_CYCLES 15.0
#define TAP_CYCLES 1.5

/* The same of positions that are computed together. */
#define RUN_POSITION_CYCLES 3.0
#define RUN_TAP_CYCLES 0.5

/* The fewest positions of a row that are worth it. */
#define RUN_MAXIMA_MIN 2
#define RUN_SUMS_MIN 7

/* The most positions of a row that are computed together, and the largest windows for which that is
 * done. They bound the workspace to a part of the L1 cache. */
#define RUN_POSITIONS 256
#define RUN_STRIDE_MAX 8
#define RUN_SPAN_MAX 512
#define RUN_COLUMNS (RUN_POSITIONS * RUN_STRIDE_MAX + RUN_SPAN_MAX)

/* The elements of ONNX Runtime's vectors. */
#define LANES 4

/* The longest kernel and the longest row with its pads that ONNX Runtime reduces by columns. */
#define COLUMNS_KERNEL_MAX 32
#define COLUMNS_WIDTH_MAX 2045

/* As many floats as a vector of AVX-512 has. */
#define BLOCK_CHANNELS 16

struct state {
    struct qk_float_pool pool;
    struct qk_pool_geometry geometry;
    float taps; /* of a whole window */
    size_t count;
    size_t unit; /* elements of a unit */
    bool in_runs;
    const struct qk_float_kernels *kernels;
};

/* The workspace of a unit whose positions are computed together. */
struct buffers {
    float columns[RUN_COLUMNS]; /* with the padding of the row */
    float results[RUN_POSITIONS], divisors[RUN_POSITIONS];
    uint32_t taps[RUN_POSITIONS]; /* columns inside x of each position */
    /* What the taps and the divisors were computed for. */
    size_t first, count, rows;
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

/* Returns what the sum of a window is divided by: 1 if the window has no element of x. */
static float find_divisor(const struct state *state, const struct row *row,
                          const struct columns *columns)
{
    const struct qk_pool_axis *axes = state->geometry.axis;
    const size_t inside = (size_t)(row->planes.end - row->planes.begin) *
                          (size_t)(row->lines.end - row->lines.begin) *
                          (size_t)(columns->taps.end - columns->taps.begin);
    if (inside == 0)
        return 1;
    if (state->pool.kind == QK_FLOAT_POOL_AVERAGE)
        return (float)inside;
    if (state->pool.kind == QK_FLOAT_POOL_AVERAGE_OF_TAPS)
        return state->taps;
    return (float)(taps_before_end(&axes[0], row->plane) * taps_before_end(&axes[1], row->line) *
                   taps_before_end(&axes[QK_POOL_COLUMN], columns->start));
}

static struct columns find_columns(const struct state *state, int64_t position)
{
    const struct qk_pool_axis *axis = &state->geometry.axis[QK_POOL_COLUMN];
    return (struct columns){qk_pool_taps_of(axis, position), position * axis->stride - axis->pad};
}

static float compute(const struct state *state, const struct row *row, int64_t position)
{
    const struct columns columns = find_columns(state, position);
    if (state->pool.kind == QK_FLOAT_POOL_MAX)
        return find_max(state, row, &columns);
    const float result = state->pool.order == QK_FLOAT_POOL_ROWS
                             ? add_rows(state, row, &columns)
                             : add_columns(state, row, &columns);
    return result / find_divisor(state, row, &columns);
}

/* ---- Runs of positions --------------------------------------------------------------------- */

/* Neighbouring positions of a row are computed together, in the order of each single one. Padding
 * is written beside the row, because it changes no result: sums that begin with 0 are never -0, so
 * that adding 0 keeps them, maxima that begin with the least finite float keep that, and columns in
 * the padding have these values anyway. */

/* The columns of x that a run reads: `count` columns from `begin` on are inside x, and the first
 * of these is the buffer's column `lead`. */
struct inside {
    size_t begin, count, lead;
};

static void set(float *to, float value, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = value;
}

static const char *find_line(const struct state *state, const struct row *row, int64_t i, int64_t k,
                             size_t column)
{
    const struct qk_pool_axis *axis = state->geometry.axis;
    const size_t plane = (size_t)(row->plane + i * axis[0].dilation);
    const size_t line = (size_t)(row->line + k * axis[1].dilation);
    const size_t at =
        (plane * (size_t)axis[1].in + line) * (size_t)axis[QK_POOL_COLUMN].in + column;
    return row->x + at * sizeof(float);
}

/* Reduces the columns of a run that are inside x. */
static void reduce_columns(const struct state *state, const struct row *row,
                           const struct inside *inside, float *columns)
{
    const qk_float_fold_fn *fold = state->kernels->fold;
    const bool is_max = state->pool.kind == QK_FLOAT_POOL_MAX;
    const size_t in = (size_t)state->geometry.axis[QK_POOL_COLUMN].in;
    const size_t pitch = (size_t)state->geometry.axis[1].dilation * in; /* from line to line */
    const size_t whole = in - in % LANES;
    const size_t vectors = whole <= inside->begin                  ? 0
                           : whole - inside->begin < inside->count ? whole - inside->begin
                                                                   : inside->count;
    float *to = columns + inside->lead;
    bool is_first = state->pool.order == QK_FLOAT_POOL_COLUMNS;
    const bool is_empty =
        row->planes.begin == row->planes.end || row->lines.begin == row->lines.end;
    if (!is_first || is_empty)
        set(to, is_max ? -FLT_MAX : is_first ? -0.0F : 0, inside->count);
    for (int64_t i = row->planes.begin; i < row->planes.end && !is_empty; i++) {
        const char *line = find_line(state, row, i, row->lines.begin, inside->begin);
        size_t lines = (size_t)(row->lines.end - row->lines.begin);
        if (is_first) {
            fold[QK_FLOAT_FOLD_COPY](to, line, 1, 0, 1, inside->count);
            is_first = false;
            if (--lines == 0)
                continue;
            line += pitch * sizeof(float);
        }
        if (!is_max) {
            fold[QK_FLOAT_FOLD_ADD](to, line, lines, pitch, 1, inside->count);
            continue;
        }
        fold[QK_FLOAT_FOLD_MAX_VECTOR](to, line, lines, pitch, 1, vectors);
        if (vectors < inside->count)
            fold[QK_FLOAT_FOLD_MAX_SCALAR](to + vectors, line + vectors * sizeof(float), lines,
                                           pitch, 1, inside->count - vectors);
    }
}

/* Reduces the windows of a run: row by row, or column by column. */
static void reduce_run(const struct state *state, const struct row *row,
                       const struct inside *inside, size_t width, size_t count,
                       struct buffers *buffers)
{
    const struct qk_pool_axis *axis = &state->geometry.axis[QK_POOL_COLUMN];
    const qk_float_fold_fn *fold = state->kernels->fold;
    const bool is_max = state->pool.kind == QK_FLOAT_POOL_MAX;
    const size_t stride = (size_t)axis->stride;
    const size_t kernel = (size_t)axis->kernel;
    float *columns = buffers->columns;
    set(columns, is_max ? -FLT_MAX : 0, inside->lead);
    set(columns + inside->lead + inside->count, is_max ? -FLT_MAX : 0,
        width - inside->lead - inside->count);
    if (state->pool.order != QK_FLOAT_POOL_ROWS) {
        reduce_columns(state, row, inside, columns);
        fold[QK_FLOAT_FOLD_COPY](buffers->results, columns, 1, 0, stride, count);
        fold[is_max ? QK_FLOAT_FOLD_MAX_VECTOR : QK_FLOAT_FOLD_ADD](buffers->results, columns + 1,
                                                                    kernel - 1, 1, stride, count);
        return;
    }
    set(buffers->results, is_max ? -FLT_MAX : 0, count);
    for (int64_t i = row->planes.begin; i < row->planes.end; i++)
        for (int64_t k = row->lines.begin; k < row->lines.end; k++) {
            const char *line = find_line(state, row, i, k, inside->begin);
            if (inside->count < width) {
                memcpy(columns + inside->lead, line, inside->count * sizeof(*columns));
                line = (const char *)columns;
            }
            fold[is_max ? QK_FLOAT_FOLD_MAX_SCALAR : QK_FLOAT_FOLD_ADD](
                buffers->results, line, kernel, (size_t)axis->dilation, stride, count);
        }
}

/* Sets the divisors of a run, unless the buffers have them from the run before. */
static void find_divisors(const struct state *state, const struct row *row, size_t position,
                          size_t count, struct buffers *buffers)
{
    const size_t rows =
        (size_t)(row->planes.end - row->planes.begin) * (size_t)(row->lines.end - row->lines.begin);
    const bool is_old = buffers->count == count && buffers->first == position;
    if (state->pool.kind != QK_FLOAT_POOL_AVERAGE) {
        for (size_t i = 0; i < count; i++) {
            const struct columns columns = find_columns(state, (int64_t)(position + i));
            buffers->divisors[i] = find_divisor(state, row, &columns);
        }
        return;
    }
    for (size_t i = 0; i < count && !is_old; i++) {
        const struct columns columns = find_columns(state, (int64_t)(position + i));
        buffers->taps[i] = (uint32_t)(columns.taps.end - columns.taps.begin);
    }
    for (size_t i = 0; i < count && (!is_old || buffers->rows != rows); i++) {
        const size_t inside = rows * buffers->taps[i];
        buffers->divisors[i] = inside == 0 ? 1 : (float)inside;
    }
    buffers->first = position;
    buffers->count = count;
    buffers->rows = rows;
}

/* Computes `count` positions of a row. */
static void compute_run(const struct state *state, const struct row *row, size_t position,
                        size_t count, struct buffers *buffers, char *y)
{
    const struct qk_pool_axis *axis = &state->geometry.axis[QK_POOL_COLUMN];
    const int64_t first = (int64_t)position * axis->stride - axis->pad;
    const int64_t width =
        ((int64_t)count - 1) * axis->stride + (axis->kernel - 1) * axis->dilation + 1;
    const int64_t begin = first > 0 ? first : 0;
    const int64_t end = first + width < axis->in ? first + width : axis->in;
    struct inside inside = {0};
    if (begin < end)
        inside = (struct inside){(size_t)begin, (size_t)(end - begin), (size_t)(begin - first)};
    reduce_run(state, row, &inside, (size_t)width, count, buffers);
    if (state->pool.kind == QK_FLOAT_POOL_MAX) {
        memcpy(y, buffers->results, count * sizeof(float));
        return;
    }
    find_divisors(state, row, position, count, buffers);
    state->kernels->binary[QK_FLOAT_DIV][QK_BINARY_NONE_REPEATS](
        NULL, (const uint8_t *)buffers->results, (const uint8_t *)buffers->divisors, (uint8_t *)y,
        count);
}

static void run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                void *workspace, size_t begin, size_t end)
{
    const struct state *state = plan->state;
    const size_t columns = (size_t)state->geometry.axis[QK_POOL_COLUMN].out;
    const size_t last = end < plan->unit_count ? end * state->unit : state->count;
    struct buffers *buffers = workspace;
    if (state->in_runs)
        buffers->count = 0;
    for (size_t i = begin * state->unit; i < last;) {
        const struct row row = find_row(&state->geometry, i / columns, inputs[0]);
        if (state->in_runs) {
            const size_t k = i % columns;
            const size_t left = columns - k < last - i ? columns - k : last - i;
            const size_t count = left < RUN_POSITIONS ? left : RUN_POSITIONS;
            compute_run(state, &row, k, count, buffers, (char *)outputs[0] + i * sizeof(float));
            i += count;
            continue;
        }
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
    const double cycles = state->in_runs ? RUN_POSITION_CYCLES + RUN_TAP_CYCLES * taps
                                         : POSITION_CYCLES + TAP_CYCLES * taps;
    state->unit = qk_set_units(state->count, cycles * tuning->cycle_ns, tuning, plan);
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

bool qk_float_pool_is_blocked(const struct qk_tensor *x)
{
    return x->rank == 4 && x->dims[1] % BLOCK_CHANNELS == 0;
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

/* Returns whether positions are computed together: in orders that padding does not disturb, and if
 * a row has enough of them. */
static bool goes_in_runs(const struct qk_float_pool *pool, const struct qk_pool_geometry *geometry)
{
    const struct qk_pool_axis *axis = &geometry->axis[QK_POOL_COLUMN];
    return pool->order != QK_FLOAT_POOL_LANES && pool->order != QK_FLOAT_POOL_FIRST &&
           axis->stride <= RUN_STRIDE_MAX &&
           axis->out >= (pool->kind == QK_FLOAT_POOL_MAX ? RUN_MAXIMA_MIN : RUN_SUMS_MIN) &&
           (axis->kernel == 1 || axis->dilation <= (RUN_SPAN_MAX - 1) / (axis->kernel - 1));
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
    state->kernels = instance->kernels->floats;
    state->in_runs = goes_in_runs(pool, geometry);
    plan->workspace_bytes = state->in_runs ? sizeof(struct buffers) : 0;
    set_units(state, &instance->kernels->choice.elementwise, plan);
    plan->kernel = pool->kind == QK_FLOAT_POOL_MAX ? "float_max" : "float_average";
    plan->run = run;
    plan->state = state;
    return QK_OK;
}
