#include "kernels/pool/pool.h"

#include <string.h>

#include "kernels/dispatch.h"
#include "kernels/pool/planes.h"
#include "kernels/wrap.h"

/* A segment has at most this many sums. All its sums and x's part stay in the L1 cache. */
#define SUMS_MAX ((size_t)2048)

/* The limits of ONNX Runtime's global average: n is exact in FP32, and m can be a shift and a
 * multiplication of integers (ComputeMultiplier of MLAS). */
#define GLOBAL_COUNT_MAX ((size_t)1 << 24)
#define MULTIPLIER_MIN 0x1p-32F
#define MULTIPLIER_MAX 256.0F

/* Rough guesses, which fit measured times on Sapphire Rapids: cycles for a call of a kernel, for
 * the end of a loop that is no whole vector, for all else that a segment costs, and for a position
 * that is computed by itself and each of its taps. */
#define CALL_CYCLES 40.0
#define TAIL_CYCLES 30.0
#define SEGMENT_CYCLES 150.0
#define POSITION_CYCLES 15.0
#define TAP_CYCLES 1.5

/* The same of planes: cycles for a row, and how many additions the rest of an average costs. Planes
 * take less for an element than rows do: these parts of max_cycles and average_cycles. */
#define ROW_CYCLES 4.0
#define FINISH_TAPS 12
#define MAX_PART 0.4
#define AVERAGE_PART 0.15

/* A segment of large windows has fewer positions, so that it takes no longer than this, unless it
 * has one. A worker cannot stop within a segment. */
#define SEGMENT_NS_MAX 10e6

/* All that a run needs. Items are segments of rows of y or, in global averages, channels (or parts
 * of the channels of an image, if channels are last). A unit is some neighbouring items. */
struct state {
    const struct qk_pool_kernels *kernels;
    struct qk_pool_geometry geometry;
    struct qk_pool_average average;
    struct qk_pool_planes planes; /* if kernels of planes run, whose items are bands of rows */
    size_t bands;                 /* of a plane */
    bool is_signed;
    float divisor;    /* 0: the number of elements inside x */
    size_t x_count;   /* elements of x */
    size_t image;     /* elements of x in a group */
    size_t row;       /* elements of x in a row, or those of a global average */
    size_t positions; /* of a segment, the last one may have fewer */
    size_t inner;     /* channels of a segment, the last one may have fewer */
    size_t column_segments;
    size_t inner_segments;
    size_t item_count;
    size_t unit_items;
};

/* A segment of y with what its outer axes read. */
struct item {
    struct qk_pool_segment segment;
    struct qk_pool_taps planes, rows;
    int64_t plane, line; /* the element of each outer axis that tap 0 reads */
    const uint8_t *x;    /* the group's first element, at the first channel */
    const uint8_t *x_end;
    uint8_t *y;
};

/* ---- Items --------------------------------------------------------------------------------- */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Finds the positions of the segment whose taps are all inside x. */
static void set_whole(struct qk_pool_segment *segment)
{
    const struct qk_pool_axis *axis = &segment->axis;
    const int64_t span = (axis->kernel - 1) * axis->dilation + 1;
    const int64_t last = axis->in - span + axis->pad;
    const int64_t first = axis->pad > 0 ? (axis->pad - 1) / axis->stride + 1 : 0;
    const int64_t end = last < 0 ? 0 : last / axis->stride + 1;
    const size_t begin = (size_t)first > segment->begin ? (size_t)first : segment->begin;
    segment->whole_begin = segment->whole_end = segment->end;
    if (end > 0 && begin + 1 < least((size_t)end, segment->end)) {
        segment->whole_begin = begin;
        segment->whole_end = least((size_t)end, segment->end);
    }
}

static void find_item(const struct state *state, size_t number, const uint8_t *x, uint8_t *y,
                      struct item *item)
{
    const struct qk_pool_axis *axis = state->geometry.axis;
    const size_t inner = state->geometry.inner;
    const size_t part = number % state->inner_segments * state->inner;
    number /= state->inner_segments;
    const size_t begin = number % state->column_segments * state->positions;
    number /= state->column_segments; /* the row of y */
    const size_t columns = (size_t)axis[QK_POOL_COLUMN].out;
    const int64_t line = (int64_t)(number % (size_t)axis[1].out);
    const int64_t plane = (int64_t)(number / (size_t)axis[1].out % (size_t)axis[0].out);
    const size_t group = number / ((size_t)axis[1].out * (size_t)axis[0].out);
    item->segment = (struct qk_pool_segment){
        .axis = axis[QK_POOL_COLUMN],
        .begin = begin,
        .end = least(begin + state->positions, columns),
        .inner = least(state->inner, inner - part),
        .pitch = inner,
    };
    set_whole(&item->segment);
    item->planes = qk_pool_taps_of(&axis[0], plane);
    item->rows = qk_pool_taps_of(&axis[1], line);
    item->plane = plane * axis[0].stride - axis[0].pad;
    item->line = line * axis[1].stride - axis[1].pad;
    item->x = x + group * state->image + part;
    item->x_end = x + state->x_count;
    item->y = y + (number * columns + begin) * inner + part;
}

/* Returns how many rows of x the segment reads. */
static size_t count_rows(const struct item *item)
{
    return (size_t)(item->planes.end - item->planes.begin) *
           (size_t)(item->rows.end - item->rows.begin);
}

/* Returns the row of x that one pair of outer taps reads. */
static const uint8_t *row_of(const struct state *state, const struct item *item, int64_t plane,
                             int64_t line)
{
    const struct qk_pool_axis *axis = state->geometry.axis;
    const size_t at_plane = (size_t)(item->plane + plane * axis[0].dilation);
    const size_t at_line = (size_t)(item->line + line * axis[1].dilation);
    return item->x + (at_plane * (size_t)axis[1].in + at_line) * state->row;
}

/* ---- Maxima -------------------------------------------------------------------------------- */

/* The maxima of a segment with whole windows: first those of the rows, then those along the row. */
static void max_separately(const struct state *state, const struct item *item, uint8_t *workspace)
{
    const struct qk_pool_segment *segment = &item->segment;
    const struct qk_pool_axis *axis = &segment->axis;
    const struct qk_pool_kernels *kernels = state->kernels;
    const int64_t start = (int64_t)segment->begin * axis->stride - axis->pad;
    const int64_t reach = (int64_t)(segment->end - 1) * axis->stride - axis->pad +
                          (axis->kernel - 1) * axis->dilation;
    const size_t first = start < 0 ? 0 : (size_t)start;
    const size_t end = reach < axis->in ? (size_t)reach + 1 : (size_t)axis->in;
    const size_t count = (end - first) * segment->inner;
    uint8_t *buffers[2] = {workspace, workspace + QK_POOL_BUFFER_BYTES};
    const uint8_t *maxima = NULL;
    const size_t rounded = qk_pool_round(count);
    size_t bytes = 0;
    size_t number = 0;
    for (int64_t plane = item->planes.begin; plane < item->planes.end; plane++)
        for (int64_t line = item->rows.begin; line < item->rows.end; line++) {
            const uint8_t *row = row_of(state, item, plane, line) + first * segment->inner;
            bytes = (size_t)(item->x_end - row);
            if (maxima) {
                uint8_t *to = buffers[number++ % 2];
                kernels->max_rows[state->is_signed](to, maxima, row,
                                                    rounded <= bytes ? rounded : count);
                maxima = to;
                bytes = QK_POOL_BUFFER_BYTES;
            } else {
                maxima = row;
            }
        }
    kernels->max_row[state->is_signed](segment, maxima, first, bytes,
                                       workspace + 2 * QK_POOL_BUFFER_BYTES, item->y);
}

static void run_max(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                    void *workspace, size_t begin, size_t end)
{
    const struct state *state = plan->state;
    const size_t last = least(end * state->unit_items, state->item_count);
    struct item item;
    for (size_t i = begin * state->unit_items; i < last; i++) {
        find_item(state, i, inputs[0], outputs[0], &item);
        const struct qk_pool_segment *segment = &item.segment;
        if (segment->whole_begin < segment->whole_end && count_rows(&item) > 0) {
            max_separately(state, &item, workspace);
            continue;
        }
        memset(item.y, state->is_signed ? 0x80 : 0,
               (segment->end - segment->begin) * segment->inner);
        for (int64_t plane = item.planes.begin; plane < item.planes.end; plane++)
            for (int64_t line = item.rows.begin; line < item.rows.end; line++)
                state->kernels->max_into[state->is_signed](
                    segment, row_of(state, &item, plane, line), item.y);
    }
}

/* ---- Averages ------------------------------------------------------------------------------ */

/* Divides the sums of positions [begin, end), of which all or only one have as many elements. */
static void finish(const struct state *state, const struct item *item, size_t begin, size_t end,
                   const float *sums)
{
    const struct qk_pool_segment *segment = &item->segment;
    const struct qk_pool_taps taps = qk_pool_taps_of(&segment->axis, (int64_t)begin);
    const size_t inside = count_rows(item) * (size_t)(taps.end - taps.begin);
    state->kernels->finish(
        &state->average, sums, state->divisor > 0 ? state->divisor : (float)inside,
        (end - begin) * segment->inner, item->y + (begin - segment->begin) * segment->inner);
}

static void finish_all(const struct state *state, const struct item *item, const float *sums)
{
    const struct qk_pool_segment *segment = &item->segment;
    const size_t inner = segment->inner;
    const float *whole = sums + (segment->whole_begin - segment->begin) * inner;
    const float *after = sums + qk_pool_sums_after(segment);
    for (size_t i = segment->begin; i < segment->whole_begin; i++)
        finish(state, item, i, i + 1, sums + (i - segment->begin) * inner);
    if (segment->whole_begin < segment->whole_end)
        finish(state, item, segment->whole_begin, segment->whole_end, whole);
    for (size_t i = segment->whole_end; i < segment->end; i++)
        finish(state, item, i, i + 1, after + (i - segment->whole_end) * inner);
}

static void add_row(const struct state *state, const struct item *item, const uint8_t *row,
                    float *sums)
{
    state->kernels->add_row(&item->segment, &state->average, row, (size_t)(item->x_end - row),
                            sums);
}

static void run_average(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                        void *workspace, size_t begin, size_t end)
{
    const struct state *state = plan->state;
    const size_t last = least(end * state->unit_items, state->item_count);
    float *sums = workspace;
    struct item item;
    for (size_t i = begin * state->unit_items; i < last; i++) {
        find_item(state, i, inputs[0], outputs[0], &item);
        const struct qk_pool_segment *segment = &item.segment;
        memset(
            sums, 0,
            (qk_pool_sums_after(segment) + (segment->end - segment->whole_end) * segment->inner) *
                sizeof(*sums));
        for (int64_t plane = item.planes.begin; plane < item.planes.end; plane++)
            for (int64_t line = item.rows.begin; line < item.rows.end; line++)
                add_row(state, &item, row_of(state, &item, plane, line), sums);
        finish_all(state, &item, sums);
    }
}

/* ---- Planes -------------------------------------------------------------------------------- */

/* Calls `run` for all neighbouring whole planes at once or, if planes have several bands, for each
 * band. */
static void run_bands(const struct state *state, const uint8_t *x, uint8_t *y, size_t begin,
                      size_t end, void *scratch,
                      void (*run)(const struct state *state, const struct qk_pool_band *band,
                                  void *scratch))
{
    const struct qk_pool_planes *planes = &state->planes;
    const size_t rows = (size_t)planes->row.out;
    const size_t columns = (size_t)planes->column.out;
    for (size_t i = begin; i < end;) {
        const size_t plane = i / state->bands;
        const size_t first = i % state->bands * planes->band;
        const struct qk_pool_band band = {
            .x = x + plane * state->image,
            .x_before = plane * state->image,
            .x_bytes = state->x_count - plane * state->image,
            .count = state->bands == 1 ? end - i : 1,
            .begin = first,
            .end = least(first + planes->band, rows),
            .y = y + (plane * rows + first) * columns,
        };
        run(state, &band, scratch);
        i += band.count;
    }
}

static void max_band(const struct state *state, const struct qk_pool_band *band, void *scratch)
{
    state->kernels->max_planes[state->is_signed](&state->planes, band, scratch);
}

static void average_band(const struct state *state, const struct qk_pool_band *band, void *scratch)
{
    state->kernels->average_planes(&state->planes, &state->average, band, scratch);
}

static void run_max_planes(const struct qk_plan *plan, const void *const *inputs,
                           void *const *outputs, void *workspace, size_t begin, size_t end)
{
    const struct state *state = plan->state;
    run_bands(state, inputs[0], outputs[0], begin * state->unit_items,
              least(end * state->unit_items, state->item_count), workspace, max_band);
}

static void run_average_planes(const struct qk_plan *plan, const void *const *inputs,
                               void *const *outputs, void *workspace, size_t begin, size_t end)
{
    const struct state *state = plan->state;
    run_bands(state, inputs[0], outputs[0], begin * state->unit_items,
              least(end * state->unit_items, state->item_count), workspace, average_band);
}

/* ---- Global averages ----------------------------------------------------------------------- */

/* x is [groups, row, inner], and y is [groups, inner]. */
static void run_global(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                       void *workspace, size_t begin, size_t end)
{
    const struct state *state = plan->state;
    const struct qk_pool_kernels *kernels = state->kernels;
    const size_t last = least(end * state->unit_items, state->item_count);
    const uint8_t flip = state->average.flip;
    const uint8_t *x = inputs[0];
    uint8_t *y = outputs[0];
    uint32_t *sums = workspace;
    for (size_t i = begin * state->unit_items; i < last && state->geometry.inner > 1; i++) {
        const size_t group = i / state->inner_segments;
        const size_t part = i % state->inner_segments * state->inner;
        const size_t count = least(state->inner, state->geometry.inner - part);
        kernels->sum_rows(x + group * state->image + part, state->row, state->geometry.inner, flip,
                          count, sums);
        kernels->requantize(&state->average, sums, count, y + group * state->geometry.inner + part);
    }
    for (size_t i = begin * state->unit_items, next; i < last && state->geometry.inner == 1;
         i = next) {
        next = least(i + SUMS_MAX, last);
        kernels->sum_planes(x + i * state->row, (state->item_count - i) * state->row, next - i,
                            state->row, flip, sums);
        kernels->requantize(&state->average, sums, next - i, y + i);
    }
}

/* ---- The plan ------------------------------------------------------------------------------ */

/* Cuts y's rows into segments of at most `limit` elements of y. What they read of a row of x is
 * not larger, either, unless a segment has one position. */
static void set_segments(struct state *state, size_t limit)
{
    const struct qk_pool_axis *axis = &state->geometry.axis[QK_POOL_COLUMN];
    const size_t inner = state->geometry.inner;
    const size_t columns = (size_t)axis->out;
    state->inner = least(inner, limit);
    state->inner_segments = (inner - 1) / state->inner + 1;
    const int64_t reach = (int64_t)(limit / state->inner);
    const int64_t span = (axis->kernel - 1) * axis->dilation + 1;
    int64_t positions = 1;
    if (state->inner_segments == 1 && reach >= axis->in)
        positions = reach;
    else if (state->inner_segments == 1 && reach >= span)
        positions = (reach - span) / axis->stride + 1;
    state->positions = least((size_t)positions, columns);
    state->column_segments = (columns - 1) / state->positions + 1;
}

/* Returns the cycles of one item of maxima or averages: the rows that it reads times the elements
 * or, for averages, the taps in each. Windows that reach into padding are computed one by one: in
 * each row or, by maxima of a segment that also has whole windows, once. */
static double item_cycles(const struct state *state, enum qk_pool_kind kind)
{
    const struct qk_pool_kernels *kernels = state->kernels;
    const struct qk_pool_axis *axis = state->geometry.axis;
    const struct qk_pool_axis *column = &axis[QK_POOL_COLUMN];
    double rows = 1;
    for (int i = 0; i < QK_POOL_COLUMN; i++)
        rows *= (double)(axis[i].kernel < axis[i].in ? axis[i].kernel : axis[i].in);
    const double taps = (double)(column->kernel < column->in ? column->kernel : column->in);
    const double positions = (double)state->positions;
    const int64_t pads = column->pad + column->pad_end; /* less than 0 if elements are skipped */
    const double padded = pads > 0 ? (double)pads / (double)column->stride : 0;
    const double edges =
        (padded < positions ? padded : positions) * (POSITION_CYCLES + taps * TAP_CYCLES);
    const double outputs = positions * (double)state->inner;
    if (kind == QK_POOL_AVERAGE)
        return SEGMENT_CYCLES + rows * (CALL_CYCLES + edges + taps * TAIL_CYCLES +
                                        outputs * taps * kernels->average_cycles);
    const double elements = outputs * (double)column->stride + taps * (double)state->inner;
    const bool has_whole = state->column_segments == 1 && padded + 1 < positions;
    return SEGMENT_CYCLES + edges * (has_whole ? 1 : rows) +
           rows * (CALL_CYCLES + elements * kernels->max_cycles);
}

/* Shortens segments that would take too long. */
static void bound_segments(struct state *state, enum qk_pool_kind kind,
                           const struct qk_elementwise_tuning *tuning)
{
    const double ns = item_cycles(state, kind) * tuning->cycle_ns;
    const size_t columns = (size_t)state->geometry.axis[QK_POOL_COLUMN].out;
    if (ns <= SEGMENT_NS_MAX)
        return;
    const double positions = (double)state->positions * (SEGMENT_NS_MAX / ns);
    state->positions = positions < 1 ? 1 : (size_t)positions;
    state->column_segments = (columns - 1) / state->positions + 1;
}

static void set_units(struct state *state, double cycles,
                      const struct qk_elementwise_tuning *tuning, struct qk_plan *plan)
{
    state->unit_items = qk_set_units(state->item_count, cycles * tuning->cycle_ns, tuning, plan);
}

QK_WRAPS static uint32_t multiply_wrapping(size_t count, int32_t zero)
{
    return (uint32_t)count * (uint32_t)zero;
}

static void set_average(struct state *state, const struct qk_pool *pool)
{
    const struct qk_type_info *info = qk_type_info(pool->type);
    state->average = (struct qk_pool_average){
        .flip = state->is_signed ? 0x80 : 0,
        .x_zero = pool->x_zero + (state->is_signed ? 0x80 : 0),
        .x_scale = pool->x_scale,
        .y_scale = pool->y_scale,
        .y_zero = (float)pool->y_zero,
        .y_min = (float)info->min,
        .y_max = (float)info->max,
    };
}

/* Plans the average of `row` elements for each of `groups` times `inner` channels. */
static enum qk_status plan_global(struct state *state, const struct qk_elementwise_tuning *tuning,
                                  struct qk_plan *plan, struct qk_error *error)
{
    struct qk_pool_average *average = &state->average;
    const size_t count = state->row;
    if (count == 0 || count >= GLOBAL_COUNT_MAX)
        return qk_fail(error, QK_INVALID,
                       "X: expected from 1 to %zu elements in each average, got %zu",
                       GLOBAL_COUNT_MAX - 1, count);
    average->multiplier = average->x_scale / (average->y_scale * (float)count);
    if (average->multiplier < MULTIPLIER_MIN || average->multiplier >= MULTIPLIER_MAX)
        return qk_fail(error, QK_INVALID,
                       "x_scale: expected x_scale / (y_scale * %zu elements) from 2^-32 to less "
                       "than 256, got %g",
                       count, (double)average->multiplier);
    average->sum_of_zeros = multiply_wrapping(count, average->x_zero);
    const size_t inner = state->geometry.inner;
    state->image = count * inner;
    state->inner = inner < SUMS_MAX ? inner : SUMS_MAX;
    state->inner_segments = inner == 0 ? 0 : (inner - 1) / state->inner + 1;
    state->item_count = state->geometry.groups * state->inner_segments;
    plan->workspace_bytes = SUMS_MAX * sizeof(uint32_t);
    plan->run = run_global;
    set_units(state,
              CALL_CYCLES + (double)count * (double)state->inner * state->kernels->sum_cycles,
              tuning, plan);
    return QK_OK;
}

/* Fills the geometry and y for an average over all spatial axes, of which there may be any number.
 */
static enum qk_status fit_global(struct state *state, const struct qk_pool *pool,
                                 const struct qk_tensor *x, struct qk_tensor *y,
                                 struct qk_error *error)
{
    if (x->rank < 3)
        return qk_fail_of_rank(error, "X: expected rank 3 or more, got %u", x->rank);
    const bool last = pool->desc.channels_last;
    const uint32_t first = last ? 1 : 2;
    const size_t channels = x->dims[last ? x->rank - 1 : 1];
    size_t count = 1;
    qk_tensor_copy(y, x);
    for (uint32_t i = first; i < first + x->rank - 2; i++) {
        count *= x->dims[i]; /* does not overflow unless a dim is 0: qk_tensor_set_count */
        y->dims[i] = 1;
    }
    if (!qk_tensor_set_count(y))
        return qk_fail(error, QK_INVALID,
                       "Y: expected a size that fits in 64 bits, got a larger one");
    state->row = count;
    state->geometry.groups = last ? x->dims[0] : x->dims[0] * channels;
    state->geometry.inner = last ? channels : 1;
    return QK_OK;
}

static bool is_global(const struct qk_pool *pool, const struct qk_pool_geometry *geometry)
{
    if (pool->kind == QK_POOL_GLOBAL_AVERAGE)
        return true;
    bool whole = pool->kind == QK_POOL_AVERAGE;
    for (int i = 0; i < QK_POOL_SPATIAL_MAX; i++) {
        const struct qk_pool_axis *axis = &geometry->axis[i];
        whole = whole && axis->kernel == axis->in && axis->pad == 0 && axis->pad_end == 0;
    }
    return whole;
}

/* Plans kernels of planes. Returns false if those of rows are to be planned. */
static bool plan_planes(struct state *state, const struct qk_pool *pool, const struct qk_tensor *x,
                        const struct qk_elementwise_tuning *tuning, struct qk_plan *plan)
{
    const bool average = pool->kind == QK_POOL_AVERAGE;
    struct qk_pool_planes *planes = &state->planes;
    const struct qk_pool_axis *row = &planes->row;
    const struct qk_pool_axis *column = &planes->column;
    if (!state->kernels->has_planes || plan->outputs[0].count == 0 ||
        (average && !qk_pool_is_tame(pool->x_scale, pool->y_scale)) ||
        !qk_pool_planes_init(planes, &state->geometry, average))
        return false;
    if (pool->count_include_pad)
        planes->divisor = (float)row->kernel * (float)column->kernel;
    state->average.y_reciprocal = 1 / pool->y_scale;
    state->x_count = x->count;
    state->image = (size_t)row->in * (size_t)column->in;
    state->bands = ((size_t)row->out - 1) / planes->band + 1;
    state->item_count = state->geometry.groups * (size_t)state->geometry.axis[0].in * state->bands;
    plan->workspace_bytes = planes->scratch;
    plan->run = average ? run_average_planes : run_max_planes;
    const double rows = (double)planes->band;
    const double positions = rows * (double)column->out;
    const double read = (double)row->kernel * (double)column->in;
    const double cycles =
        average ? positions * (double)(row->kernel * column->kernel + FINISH_TAPS) *
                      state->kernels->average_cycles * AVERAGE_PART
                : (rows * read + positions * (double)(column->kernel * column->stride)) *
                      state->kernels->max_cycles * MAX_PART;
    set_units(state, CALL_CYCLES + rows * ROW_CYCLES + cycles, tuning, plan);
    return true;
}

static enum qk_status plan_windows(struct state *state, const struct qk_pool *pool,
                                   const struct qk_tensor *x,
                                   const struct qk_elementwise_tuning *tuning, struct qk_plan *plan,
                                   struct qk_error *error)
{
    const struct qk_pool_geometry *geometry = &state->geometry;
    const struct qk_pool_axis *axis = geometry->axis;
    const bool average = pool->kind == QK_POOL_AVERAGE;
    const struct qk_tensor *y = &plan->outputs[0];
    plan->run = average ? run_average : run_max;
    plan->workspace_bytes =
        average ? (SUMS_MAX + 2 * QK_POOL_ROUND) * sizeof(float) : (size_t)4 * QK_POOL_BUFFER_BYTES;
    if (average && pool->desc.channels_last && y->count == 0 && geometry->groups > 0)
        return qk_fail(error, QK_INVALID,
                       "X: expected axes that hold a window, got some without a position");
    if (y->count == 0)
        return QK_OK;
    if (pool->count_include_pad) /* three kernels have less than 2^93 elements */
        state->divisor =
            (float)((double)axis[0].kernel * (double)axis[1].kernel * (double)axis[2].kernel);
    state->x_count = x->count;
    state->row = (size_t)axis[QK_POOL_COLUMN].in * geometry->inner;
    state->image = state->row * (size_t)axis[1].in * (size_t)axis[0].in;
    set_segments(state, average ? SUMS_MAX : QK_POOL_BUFFER_BYTES);
    bound_segments(state, pool->kind, tuning);
    state->item_count = geometry->groups * (size_t)axis[0].out * (size_t)axis[1].out *
                        state->column_segments * state->inner_segments;
    set_units(state, item_cycles(state, pool->kind), tuning, plan);
    return QK_OK;
}

enum qk_status qk_pool_plan(const struct qk_pool *pool, const struct qk_instance *instance,
                            const struct qk_tensor *x, struct qk_memory memory,
                            struct qk_plan *plan, struct qk_error *error)
{
    const struct qk_kernels *kernels = instance->kernels;
    struct qk_tensor *y = &plan->outputs[0];
    struct state *state = memory.alloc(memory.context, sizeof(*state));
    if (!state)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    *state = (struct state){.kernels = &kernels->pool, .is_signed = pool->type == QK_INT8};
    const bool global = pool->kind == QK_POOL_GLOBAL_AVERAGE;
    enum qk_status status = global
                                ? fit_global(state, pool, x, y, error)
                                : qk_pool_geometry_init(&state->geometry, &pool->desc, x, y, error);
    if (status != QK_OK)
        return status;
    y->type = pool->type;
    y->data = NULL;
    plan->output_bytes[0] = y->count;
    plan->kernel = kernels->pool.name;
    plan->state = state;
    set_average(state, pool);
    if (!is_global(pool, &state->geometry))
        return plan_planes(state, pool, x, &kernels->choice.elementwise, plan)
                   ? QK_OK
                   : plan_windows(state, pool, x, &kernels->choice.elementwise, plan, error);
    if (!global)
        state->row = (size_t)state->geometry.axis[0].in * (size_t)state->geometry.axis[1].in *
                     (size_t)state->geometry.axis[2].in;
    return plan_global(state, &kernels->choice.elementwise, plan, error);
}
