/* Plans a lookup: cuts y into units. */
#include "kernels/lookup/lookup.h"

struct state {
    const struct qk_lookup_table *table;
    const struct qk_lookup_kernel *kernel;
    size_t count;
    size_t unit; /* elements of a unit: a multiple of 64, so each begins at a line of y */
    bool stream;
};

static void run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                void *workspace, size_t begin, size_t end)
{
    const struct state *state = plan->state;
    const size_t first = begin * state->unit;
    const size_t last = end < plan->unit_count ? end * state->unit : state->count;
    (void)workspace;
    if (first >= last)
        return;
    state->kernel->run(state->table, (const uint8_t *)inputs[0] + first,
                       (uint8_t *)outputs[0] + first, last - first, state->stream);
    if (state->stream && state->kernel->finish)
        state->kernel->finish();
}

enum qk_status qk_lookup_plan(const struct qk_lookup_table *table,
                              const struct qk_lookup_kernel *kernel,
                              const struct qk_elementwise_tuning *tuning, const struct qk_tensor *x,
                              enum qk_type y_type, struct qk_memory memory, struct qk_plan *plan,
                              struct qk_error *error)
{
    double element_ns = kernel->element_cycles * tuning->cycle_ns;
    if (element_ns < 2 * tuning->byte_ns)
        element_ns = 2 * tuning->byte_ns; /* one byte is read and one is written */
    struct state *state = memory.alloc(memory.context, sizeof(*state));
    if (!state)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    qk_tensor_copy(&plan->outputs[0], x);
    plan->outputs[0].type = y_type;
    plan->outputs[0].data = NULL;
    plan->output_bytes[0] = x->count;
    *state = (struct state){
        .table = table,
        .kernel = kernel,
        .count = x->count,
        .unit = qk_elementwise_set_units(x->count, element_ns, tuning, plan),
        .stream = x->count >= tuning->stream_bytes,
    };
    plan->kernel = kernel->name;
    plan->run = run;
    plan->state = state;
    return QK_OK;
}

/* ---- A table for each channel -------------------------------------------------------------- */

/* The time of a row besides that of its elements, mostly to read its table: a rough guess. */
#define ROW_CYCLES 20.0

/* A row is what one index of the axes up to the channels selects. */
struct channels_state {
    const struct qk_lookup_table *tables;
    const struct qk_lookup_kernel *kernel;
    size_t channel_count;
    size_t row; /* elements of a row */
    size_t count;
    size_t unit;
    bool repeats; /* x has one row for all channels */
    bool stream;  /* each row begins at a line of y */
};

/* Computes the elements [first, last) of y, row by row. */
static void run_rows(const struct channels_state *state, const uint8_t *x, uint8_t *y, size_t first,
                     size_t last)
{
    size_t row = first / state->row;
    size_t at = first % state->row;
    for (size_t done = first; done < last; row++, at = 0) {
        const struct qk_lookup_table *table = &state->tables[row % state->channel_count];
        const size_t x_row = state->repeats ? row / state->channel_count : row;
        const uint8_t *from = x + x_row * state->row + at;
        const size_t left = state->row - at;
        const size_t count = left < last - done ? left : last - done;
        if (state->stream)
            qk_lookup_stream(state->kernel->run, table, from, y + done, count);
        else
            qk_lookup_run(state->kernel->run, table, from, y + done, count);
        done += count;
    }
}

static void run_channels(const struct qk_plan *plan, const void *const *inputs,
                         void *const *outputs, void *workspace, size_t begin, size_t end)
{
    const struct channels_state *state = plan->state;
    const size_t first = begin * state->unit;
    const size_t last = end < plan->unit_count ? end * state->unit : state->count;
    (void)workspace;
    if (first >= last)
        return;
    run_rows(state, inputs[0], outputs[0], first, last);
    if (state->stream && state->kernel->finish)
        state->kernel->finish();
}

/* Fills in the shape of y. Sets *repeats to whether x has one row for all channels. */
static enum qk_status set_shape(const struct qk_lookup_channels *channels,
                                const struct qk_tensor *x, struct qk_tensor *y, bool *repeats,
                                struct qk_error *error)
{
    const uint32_t least = channels->inner_rank + 1;
    const uint32_t ones = x->rank < least ? least - x->rank : 0;
    y->rank = x->rank + ones;
    for (uint32_t i = 0; i < y->rank; i++)
        y->dims[i] = i < ones ? 1 : x->dims[i - ones];
    size_t *length = &y->dims[y->rank - least];
    if (*length != 1 && *length != channels->count)
        return qk_fail(error, QK_INVALID,
                       "X: expected 1 or %zu elements in axis %u, for each of which there are "
                       "constants, got %zu",
                       channels->count, y->rank - least, *length);
    *repeats = *length != channels->count;
    *length = channels->count;
    if (!qk_tensor_set_count(y) || y->count > (size_t)QK_LENGTH_MAX)
        return qk_fail(error, QK_INVALID,
                       "Y: expected an output that fits in memory, got a larger one");
    return QK_OK;
}

enum qk_status qk_lookup_plan_channels(const struct qk_lookup_channels *channels,
                                       const struct qk_lookup_kernel *kernel,
                                       const struct qk_elementwise_tuning *tuning,
                                       const struct qk_tensor *x, enum qk_type y_type,
                                       struct qk_memory memory, struct qk_plan *plan,
                                       struct qk_error *error)
{
    struct qk_tensor *y = &plan->outputs[0];
    bool repeats = false;
    const enum qk_status status = set_shape(channels, x, y, &repeats, error);
    if (status != QK_OK)
        return status;
    struct channels_state *state = memory.alloc(memory.context, sizeof(*state));
    if (!state)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    size_t row = 1;
    for (uint32_t i = 0; i < channels->inner_rank; i++)
        row *= y->dims[y->rank - 1 - i];
    double element_ns = kernel->element_cycles * tuning->cycle_ns;
    if (element_ns < 2 * tuning->byte_ns)
        element_ns = 2 * tuning->byte_ns; /* one byte is read and one is written */
    if (row > 0)
        element_ns += ROW_CYCLES * tuning->cycle_ns / (double)row;
    y->type = y_type;
    y->data = NULL;
    plan->output_bytes[0] = y->count;
    *state = (struct channels_state){
        .tables = channels->tables,
        .kernel = kernel,
        .channel_count = channels->count,
        .row = row,
        .count = y->count,
        .unit = qk_elementwise_set_units(y->count, element_ns, tuning, plan),
        .repeats = repeats,
        .stream = y->count >= tuning->stream_bytes && row % QK_LOOKUP_LINE == 0,
    };
    plan->kernel = kernel->name;
    plan->run = run_channels;
    plan->state = state;
    return QK_OK;
}
