/* Mode linear. A unit is some rows of y. With channels last it is plain C, which gcc and clang
 * vectorize for every CPU. */
#include "kernels/resize/linear.h"

#include <math.h>

/* Rough guesses: cycles for an element of y. */
#define PLANE_CYCLES 2.0
#define CHANNEL_CYCLES 3.0

/* With channels first, elements are gathered into buffers of so many columns. */
#define COLUMNS 256

/* Channels last: weights are multiples of 1 / ONE, and a sum is divided by ONE * ONE. */
#define ONE 1024

struct state {
    struct qk_linear linear;
    qk_float_mix_fn mix;
    size_t unit_rows;
};

void qk_linear_set_index(struct qk_linear_index *index, float at, size_t size)
{
    const float last = (float)(size - 1);
    const float clamped = at < 0 ? 0 : at < last ? at : last;
    const size_t first = (size_t)clamped < size - 1 ? (size_t)clamped : size - 1;
    const size_t second = first + 1 < size ? first + 1 : size - 1;
    *index = (struct qk_linear_index){clamped, (uint32_t)first, (uint32_t)second, 0.5F, 0.5F};
    if (first == second)
        return;
    index->from_first = fabsf(clamped - (float)first);
    index->from_second = fabsf(clamped - (float)second);
}

/* ---- Channels first ------------------------------------------------------------------------ */

/* Up to COLUMNS columns of y, and rows of x at these columns. Rows of y that lie between the same
 * rows of x share them: row i of x is held in slot i % 2. */
struct held {
    size_t count;
    uint32_t first[COLUMNS], second[COLUMNS];
    float dx1[COLUMNS], dx2[COLUMNS];
    const void *rows[2]; /* NULL: none */
    float x1[2][COLUMNS], x2[2][COLUMNS];
};

static void set_columns(struct held *held, const struct qk_linear_index *columns, size_t count)
{
    held->count = count;
    held->rows[0] = held->rows[1] = NULL;
    for (size_t i = 0; i < count; i++) {
        held->first[i] = columns[i].first;
        held->second[i] = columns[i].second;
        held->dx1[i] = columns[i].from_first;
        held->dx2[i] = columns[i].from_second;
    }
}

/* Inputs have any alignment. */
typedef float unaligned __attribute__((aligned(1), may_alias));

static void gather_floats(float *restrict to, const unaligned *row, const uint32_t *columns,
                          size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = row[columns[i]];
}

/* Two loops: only the second one is vectorized. */
#define GATHER(name, type)                                                                       \
    static void name(float *restrict to, const type *row, const uint32_t *columns, size_t count) \
    {                                                                                            \
        type codes[COLUMNS];                                                                     \
        for (size_t i = 0; i < count; i++)                                                       \
            codes[i] = row[columns[i]];                                                          \
        for (size_t i = 0; i < count; i++)                                                       \
            to[i] = (float)codes[i];                                                             \
    }

GATHER(gather_unsigned, uint8_t)
GATHER(gather_signed, int8_t)

static void gather(enum qk_type type, float *to, const void *row, const uint32_t *columns,
                   size_t count)
{
    if (type == QK_FP32)
        gather_floats(to, row, columns, count);
    else if (type == QK_INT8)
        gather_signed(to, row, columns, count);
    else
        gather_unsigned(to, row, columns, count);
}

/* Returns the slot of row `index` of a plane of x. */
static size_t hold(struct held *held, const struct qk_linear *linear, const uint8_t *plane,
                   uint32_t index)
{
    const size_t bytes = linear->type == QK_FP32 ? sizeof(float) : 1;
    const void *row = plane + index * linear->width * bytes;
    const size_t slot = index % 2;
    if (held->rows[slot] != row) {
        gather(linear->type, held->x1[slot], row, held->first, held->count);
        gather(linear->type, held->x2[slot], row, held->second, held->count);
        held->rows[slot] = row;
    }
    return slot;
}

/* Computes the held columns of one row of y. */
static void run_row(struct held *held, const struct state *state, const uint8_t *plane,
                    const struct qk_linear_index *row, void *y)
{
    const size_t slot1 = hold(held, &state->linear, plane, row->first);
    const size_t slot2 = hold(held, &state->linear, plane, row->second);
    const struct qk_float_corners corners = {held->x1[slot1], held->x2[slot1], held->x1[slot2],
                                             held->x2[slot2], held->dx1,       held->dx2,
                                             row->from_first, row->from_second};
    float means[COLUMNS];
    if (state->linear.type == QK_FP32) {
        state->mix(&corners, y, held->count);
        return;
    }
    state->mix(&corners, means, held->count);
    for (size_t i = 0; i < held->count; i++)
        ((uint8_t *)y)[i] = (uint8_t)(int32_t)means[i];
}

/* Computes rows of y, which are counted over all planes. */
static void run_rows(const struct state *state, const uint8_t *x, uint8_t *y, size_t begin,
                     size_t end)
{
    const struct qk_linear *linear = &state->linear;
    const size_t bytes = linear->type == QK_FP32 ? sizeof(float) : 1;
    const size_t plane_bytes = linear->height * linear->width * bytes;
    struct held held;
    for (size_t first = 0; first < linear->y_width; first += COLUMNS) {
        const size_t left = linear->y_width - first;
        set_columns(&held, linear->columns + first, left < COLUMNS ? left : COLUMNS);
        for (size_t i = begin; i < end; i++)
            run_row(&held, state, x + i / linear->y_height * plane_bytes,
                    &linear->rows[i % linear->y_height], y + (i * linear->y_width + first) * bytes);
    }
}

/* ---- Channels last ------------------------------------------------------------------------- */

/* Returns the distance from an element of x in 1 / ONE, as ONNX Runtime computes it. */
static int32_t distance(const struct qk_linear_index *index, uint32_t from)
{
    if (index->first == index->second)
        return ONE / 2;
    const int64_t difference = (int64_t)(index->at * ONE) - (int64_t)from * ONE;
    return (int32_t)(difference < 0 ? -difference : difference);
}

#define MIX(name, type)                                                                     \
    static void name(const type *x11, const type *x21, const type *x12, const type *x22,    \
                     const int32_t *w, size_t count, type *restrict y)                      \
    {                                                                                       \
        for (size_t i = 0; i < count; i++)                                                  \
            y[i] = (type)((w[0] * x11[i] + w[1] * x21[i] + w[2] * x12[i] + w[3] * x22[i]) / \
                          (ONE * ONE));                                                     \
    }

MIX(mix_unsigned, uint8_t)
MIX(mix_signed, int8_t)

/* The weighted mean of floats. */
static void mix_floats(const unaligned *x11, const unaligned *x21, const unaligned *x12,
                       const unaligned *x22, const float *w, size_t count, float *restrict y)
{
    for (size_t i = 0; i < count; i++)
        y[i] = w[0] * x11[i] + w[1] * x21[i] + w[2] * x12[i] + w[3] * x22[i];
}

/* Where the pixels begin from which one pixel of y is made. */
struct corners {
    size_t x11, x21, x12, x22;
};

static void mix_codes(const struct qk_linear *linear, const struct qk_linear_index *row,
                      const struct qk_linear_index *column, const struct corners *at, const void *x,
                      void *y)
{
    const int32_t dy1 = distance(row, row->first);
    const int32_t dy2 = distance(row, row->second);
    const int32_t dx1 = distance(column, column->first);
    const int32_t dx2 = distance(column, column->second);
    const int32_t weights[] = {dx2 * dy2, dx1 * dy2, dx2 * dy1, dx1 * dy1};
    const uint8_t *codes = x;
    const int8_t *numbers = x;
    if (linear->type == QK_INT8)
        mix_signed(numbers + at->x11, numbers + at->x21, numbers + at->x12, numbers + at->x22,
                   weights, linear->channels, y);
    else
        mix_unsigned(codes + at->x11, codes + at->x21, codes + at->x12, codes + at->x22, weights,
                     linear->channels, y);
}

static void run_pixels(const struct qk_linear *linear, const struct qk_linear_index *row,
                       const void *x, void *y)
{
    const size_t channels = linear->channels;
    const size_t row1 = row->first * linear->width * channels;
    const size_t row2 = row->second * linear->width * channels;
    for (size_t i = 0; i < linear->y_width; i++) {
        const struct qk_linear_index *column = &linear->columns[i];
        const float dx1 = column->from_first;
        const float dx2 = column->from_second;
        const float weights[] = {dx2 * row->from_second, dx1 * row->from_second,
                                 dx2 * row->from_first, dx1 * row->from_first};
        const struct corners at = {
            row1 + column->first * channels, row1 + column->second * channels,
            row2 + column->first * channels, row2 + column->second * channels};
        const unaligned *floats = x;
        if (linear->type == QK_FP32)
            mix_floats(floats + at.x11, floats + at.x21, floats + at.x12, floats + at.x22, weights,
                       channels, (float *)y + i * channels);
        else
            mix_codes(linear, row, column, &at, x, (uint8_t *)y + i * channels);
    }
}

/* ---- Plans --------------------------------------------------------------------------------- */

static void run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                void *workspace, size_t begin, size_t end)
{
    const struct state *state = plan->state;
    const struct qk_linear *linear = &state->linear;
    const size_t pixel_bytes = linear->channels * (linear->type == QK_FP32 ? sizeof(float) : 1);
    const size_t rows = linear->planes * linear->y_height;
    const size_t last = end < plan->unit_count ? end * state->unit_rows : rows;
    (void)workspace;
    if (linear->channels == 0) {
        run_rows(state, inputs[0], outputs[0], begin * state->unit_rows, last);
        return;
    }
    for (size_t i = begin * state->unit_rows; i < last; i++)
        run_pixels(linear, &linear->rows[i % linear->y_height],
                   (const uint8_t *)inputs[0] +
                       i / linear->y_height * linear->height * linear->width * pixel_bytes,
                   (uint8_t *)outputs[0] + i * linear->y_width * pixel_bytes);
}

enum qk_status qk_linear_plan(const struct qk_linear *linear, const struct qk_kernels *kernels,
                              struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct qk_elementwise_tuning *tuning = &kernels->choice.elementwise;
    const size_t depth = linear->channels > 0 ? linear->channels : 1;
    const double cycles = linear->channels > 0 ? CHANNEL_CYCLES : PLANE_CYCLES;
    const double row_ns = (double)(linear->y_width * depth) * cycles * tuning->cycle_ns;
    struct state *state = memory.alloc(memory.context, sizeof(*state));
    if (!state)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    *state = (struct state){
        .linear = *linear,
        .mix = kernels->floats->mix,
        .unit_rows = qk_set_units(linear->planes * linear->y_height, row_ns, tuning, plan),
    };
    plan->kernel = "resize_linear";
    plan->run = run;
    plan->state = state;
    return QK_OK;
}
