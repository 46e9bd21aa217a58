/* Mode linear in plain C, which gcc and clang vectorize for every CPU. A unit is some rows of y. */
#include "kernels/resize/linear.h"

#include <math.h>

/* Rough guesses: cycles for an element of y. */
#define PLANE_CYCLES 6.0
#define CHANNEL_CYCLES 3.0

/* With channels first, elements are gathered into buffers of so many columns. */
#define COLUMNS 256

/* Channels last: weights are multiples of 1 / ONE, and a sum is divided by ONE * ONE. */
#define ONE 1024

struct state {
    struct qk_linear linear;
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

/* Elements of two rows of x, and the weights of their columns. */
struct gathered {
    float x11[COLUMNS], x21[COLUMNS], x12[COLUMNS], x22[COLUMNS];
    float dx1[COLUMNS], dx2[COLUMNS];
};

/* Inputs have any alignment. */
typedef float unaligned __attribute__((aligned(1), may_alias));

#define GATHER(name, type)                                                                     \
    static void name(struct gathered *to, const struct qk_linear_index *columns, size_t count, \
                     const type *row1, const type *row2)                                       \
    {                                                                                          \
        for (size_t i = 0; i < count; i++) {                                                   \
            to->x11[i] = (float)row1[columns[i].first];                                        \
            to->x21[i] = (float)row1[columns[i].second];                                       \
            to->x12[i] = (float)row2[columns[i].first];                                        \
            to->x22[i] = (float)row2[columns[i].second];                                       \
            to->dx1[i] = columns[i].from_first;                                                \
            to->dx2[i] = columns[i].from_second;                                               \
        }                                                                                      \
    }

GATHER(gather_unsigned, uint8_t)
GATHER(gather_signed, int8_t)
GATHER(gather_floats, unaligned)

static inline float mean(const struct gathered *g, size_t i, float dy1, float dy2)
{
    float sum = g->dx2[i] * dy2 * g->x11[i];
    sum = sum + g->dx1[i] * dy2 * g->x21[i];
    sum = sum + g->dx2[i] * dy1 * g->x12[i];
    return sum + g->dx1[i] * dy1 * g->x22[i];
}

static void run_row(const struct qk_linear *linear, const struct qk_linear_index *row,
                    const void *x, void *y)
{
    const size_t row1 = row->first * linear->width;
    const size_t row2 = row->second * linear->width;
    const float dy1 = row->from_first;
    const float dy2 = row->from_second;
    for (size_t first = 0; first < linear->y_width; first += COLUMNS) {
        const struct qk_linear_index *columns = linear->columns + first;
        const size_t left = linear->y_width - first;
        const size_t count = left < COLUMNS ? left : COLUMNS;
        struct gathered g;
        if (linear->type == QK_FP32)
            gather_floats(&g, columns, count, (const unaligned *)x + row1,
                          (const unaligned *)x + row2);
        else if (linear->type == QK_INT8)
            gather_signed(&g, columns, count, (const int8_t *)x + row1, (const int8_t *)x + row2);
        else
            gather_unsigned(&g, columns, count, (const uint8_t *)x + row1,
                            (const uint8_t *)x + row2);
        if (linear->type == QK_FP32)
            for (size_t i = 0; i < count; i++)
                ((float *)y)[first + i] = mean(&g, i, dy1, dy2);
        else
            for (size_t i = 0; i < count; i++)
                ((uint8_t *)y)[first + i] = (uint8_t)(int32_t)mean(&g, i, dy1, dy2);
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
    const size_t depth = linear->channels > 0 ? linear->channels : 1;
    const size_t bytes = linear->type == QK_FP32 ? sizeof(float) : 1;
    const size_t rows = linear->planes * linear->y_height;
    const size_t last = end < plan->unit_count ? end * state->unit_rows : rows;
    (void)workspace;
    for (size_t i = begin * state->unit_rows; i < last; i++) {
        const uint8_t *x = (const uint8_t *)inputs[0] +
                           i / linear->y_height * linear->height * linear->width * depth * bytes;
        uint8_t *y = (uint8_t *)outputs[0] + i * linear->y_width * depth * bytes;
        const struct qk_linear_index *row = &linear->rows[i % linear->y_height];
        if (linear->channels > 0)
            run_pixels(linear, row, x, y);
        else
            run_row(linear, row, x, y);
    }
}

enum qk_status qk_linear_plan(const struct qk_linear *linear,
                              const struct qk_elementwise_tuning *tuning, struct qk_memory memory,
                              struct qk_plan *plan, struct qk_error *error)
{
    const size_t depth = linear->channels > 0 ? linear->channels : 1;
    const double cycles = linear->channels > 0 ? CHANNEL_CYCLES : PLANE_CYCLES;
    const double row_ns = (double)(linear->y_width * depth) * cycles * tuning->cycle_ns;
    struct state *state = memory.alloc(memory.context, sizeof(*state));
    if (!state)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    *state = (struct state){
        .linear = *linear,
        .unit_rows = qk_set_units(linear->planes * linear->y_height, row_ns, tuning, plan),
    };
    plan->kernel = "resize_linear";
    plan->run = run;
    plan->state = state;
    return QK_OK;
}
