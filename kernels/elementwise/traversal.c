/* Picks by the broadcast strides the traversal with the fewest and longest kernel calls, splits it
 * into units, and runs it. */
#include "kernels/elementwise/traversal.h"

#include <string.h>

#include "kernels/sizes.h"

#define UNIT_ELEMENTS_MIN ((size_t)4096)
#define UNIT_ELEMENTS_MAX ((size_t)1 << 18)
/* Work of this length is cut in two. With less, a second thread saves nothing, even if it is awake
 * (QD_JOIN_NS of the server's scheduler). */
#define WORTH_CUTTING_NS 4000.0
/* Rough costs in cycles: a kernel call; expanding the parameters of one element; and finding a
 * segment of elements that share parameters, for each axis. */
#define CALL_CYCLES 400.0
#define EXPAND_CYCLES 0.6
#define SEGMENT_CYCLES 24.0

/* A row or a block with at least this many elements is worth a kernel call. The call may begin and
 * end with single elements, if a byte of x or a cache line of y has elements of other calls, too.
 */
#define ROW_MIN 512

/* How many elements a call has if the plan has expanded their parameters. They are more than are
 * expanded for a single call, because a call costs as much as some 50 elements. Two kinds of
 * parameters stay in an L1 cache of 32 KiB, unless the period is one of the longest. */
#define PERIOD_CALL ((size_t)2048)

/* Blocks with fewer elements cost less if their parameters are expanded. */
#define SHORT_BLOCK 64

struct state;
typedef void traverse_fn(const struct state *state, struct qk_span span, size_t begin, size_t end);

struct state {
    struct qk_elementwise elementwise;
    traverse_fn *traverse;
    struct qk_span span; /* what all calls have in common */
    size_t count;
    size_t unit; /* elements of a unit */
    bool joined; /* a call takes all blocks of a row */
    bool packed; /* element i of y is made of element i of x */
    size_t period;
    /* The parameters of a period, repeated so far that a call may begin anywhere in the period. */
    struct qk_expanded repeated;
    struct qk_broadcast broadcast;
};

/* ---- Traversals: elements [begin, end); span.x and span.y point at the whole tensors --------- */

/* Calls the kernel for `count` elements of x from `first` on, and moves the span behind them in y.
 */
static void call(const struct state *state, struct qk_span *span, size_t first, size_t count)
{
    span->x_first = first;
    span->count = count;
    state->elementwise.run(state->elementwise.context, span);
    span->y_first += count;
}

static void set_parameters(struct qk_span *span, const struct qk_parameters *parameters,
                           size_t scale, size_t zero)
{
    span->scales = parameters->scales + scale;
    if (parameters->zeros)
        span->zeros = parameters->zeros + zero;
    if (parameters->offsets)
        span->offsets = parameters->offsets + scale;
}

/* Makes one call for all elements: the parameters of blocks are consecutive, and begin again after
 * a period if there is one. */
static void traverse_blocks(const struct state *state, struct qk_span span, size_t begin,
                            size_t end)
{
    const size_t p = span.period ? 0 : begin / span.block;
    set_parameters(&span, &state->elementwise.parameters, p, p);
    span.done = begin % span.block;
    span.p = span.period ? begin / span.block % span.period : 0;
    call(state, &span, begin, end - begin);
}

/* Makes a call for each row, if rows are long, or for each block, if the parameters of a row are
 * not consecutive. */
static void traverse_rows(const struct state *state, struct qk_span span, size_t begin, size_t end)
{
    struct qk_broadcast_cursor cursor;
    struct qk_row_segment segment;
    qk_broadcast_seek(&cursor, &state->broadcast, begin);
    for (size_t i = begin; i < end; i += segment.count) {
        qk_broadcast_next(&cursor, end - i, &segment);
        span.done = segment.block_done;
        for (size_t k = 0, p = 0; k < segment.count; k += span.count, p++, span.done = 0) {
            const size_t left = segment.count - k;
            const size_t block = span.block - span.done;
            set_parameters(&span, &state->elementwise.parameters,
                           segment.scale + p * segment.scale_stride,
                           segment.zero_point + p * segment.zero_point_stride);
            call(state, &span, segment.x + k, state->joined || left < block ? left : block);
        }
    }
}

static void set_expanded(const struct qk_expanded *expanded, size_t at, struct qk_span *span)
{
    span->scales = expanded->scales + at;
    span->zeros = expanded->zeros ? expanded->zeros + at : NULL;
    span->offsets = expanded->offsets ? expanded->offsets + at : NULL;
}

/* Makes calls with parameters that the plan has expanded once for all calls. */
static void traverse_period(const struct state *state, struct qk_span span, size_t begin,
                            size_t end)
{
    const size_t step = PERIOD_CALL % state->period;
    size_t phase = begin % state->period;
    for (size_t i = begin; i < end; i += span.count) {
        set_expanded(&state->repeated, phase, &span);
        call(state, &span, i, end - i < PERIOD_CALL ? end - i : PERIOD_CALL);
        phase += step;
        phase -= phase < state->period ? 0 : state->period;
    }
}

/* Makes calls with parameters that are expanded just before each call, for as many segments as
 * there is room for. */
static void traverse_expanded(const struct state *state, struct qk_span span, size_t begin,
                              size_t end)
{
    const struct qk_elementwise *elementwise = &state->elementwise;
    const void *x = span.x;
    enum { ROOM = QK_EXPAND_COUNT + QK_REPEAT_SLACK };
    uint32_t parameters[3][ROOM];
    char gathered_x[QK_EXPAND_COUNT * sizeof(uint32_t)];
    const struct qk_expanded expanded = {parameters[0],
                                         elementwise->parameters.zeros ? parameters[1] : NULL,
                                         elementwise->parameters.offsets ? parameters[2] : NULL};
    struct qk_broadcast_cursor cursor;
    struct qk_row_segment segment;
    qk_broadcast_seek(&cursor, &state->broadcast, begin);
    set_expanded(&expanded, 0, &span);
    span.x = state->packed ? x : gathered_x;
    for (size_t i = begin; i < end; i += span.count) {
        const size_t count = end - i < QK_EXPAND_COUNT ? end - i : QK_EXPAND_COUNT;
        for (size_t done = 0; done < count; done += segment.count) {
            qk_broadcast_next(&cursor, count - done, &segment);
            qk_expand_parameters(elementwise->repeat, &elementwise->parameters, &segment, &expanded,
                                 done);
            if (!state->packed)
                qk_gather_elements(x, elementwise->x_bits / 8, &segment,
                                   gathered_x + done * elementwise->x_bits / 8);
        }
        call(state, &span, state->packed ? i : 0, count);
    }
}

static void run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                void *workspace, size_t begin, size_t end)
{
    const struct state *state = plan->state;
    const size_t first = begin * state->unit;
    const size_t last = end < plan->unit_count ? end * state->unit : state->count;
    (void)workspace;
    if (first >= last)
        return;
    struct qk_span span = state->span;
    span.x = inputs[0];
    span.y = outputs[0];
    span.y_first = first;
    state->traverse(state, span, first, last);
    if (span.stream)
        state->elementwise.finish();
}

/* ---- The choice ---------------------------------------------------------------------------- */

static bool is_packed(const struct qk_broadcast *broadcast)
{
    size_t stride = 1;
    for (uint32_t left = broadcast->rank; left > 0; left--) {
        if (broadcast->axes[left - 1].x_stride != stride)
            return false;
        stride *= broadcast->axes[left - 1].size;
    }
    return true;
}

/* Returns after how many elements the parameters begin again. Returns 0 if they never do, or only
 * after too many elements. Also returns 0 if the elements of x are not consecutive, or if the
 * parameters are not packed yet and so cannot be expanded. */
static size_t period_of(const struct state *state)
{
    const struct qk_broadcast *broadcast = &state->broadcast;
    size_t period = 1;
    if (!state->packed || !state->elementwise.whole || broadcast->axes[0].scale_stride != 0 ||
        broadcast->axes[0].zero_point_stride != 0)
        return 0;
    for (uint32_t i = 1; i < broadcast->rank && period <= QK_ELEMENTWISE_PERIOD_MAX; i++)
        period *= broadcast->axes[i].size;
    return period <= QK_ELEMENTWISE_PERIOD_MAX && period < state->count ? period : 0;
}

/* Repeats the first `count` words until there are `room` words. `words` may be NULL. */
static void repeat_words(uint32_t *words, size_t count, size_t room)
{
    while (words && count < room) {
        const size_t more = count < room - count ? count : room - count;
        memcpy(words + count, words, more * sizeof(*words));
        count += more;
    }
}

/* Expands the parameters of one period, and repeats them for as many elements as a call may have.
 * Returns false if memory has run out. */
static bool repeat(struct state *state, struct qk_memory memory)
{
    const size_t reach = state->period + PERIOD_CALL;
    const size_t count = reach < state->count ? reach : state->count;
    const size_t room = count + QK_REPEAT_SLACK;
    uint32_t *words = qk_alloc_words(3 * room, memory);
    struct qk_broadcast_cursor cursor;
    struct qk_row_segment segment;
    if (!words)
        return false;
    const struct qk_parameters *parameters = &state->elementwise.parameters;
    state->repeated = (struct qk_expanded){words, parameters->zeros ? words + room : NULL,
                                           parameters->offsets ? words + 2 * room : NULL};
    qk_broadcast_seek(&cursor, &state->broadcast, 0);
    for (size_t i = 0; i < state->period; i += segment.count) {
        qk_broadcast_next(&cursor, state->period - i, &segment);
        qk_expand_parameters(state->elementwise.repeat, parameters, &segment, &state->repeated, i);
    }
    repeat_words(state->repeated.scales, state->period, count);
    repeat_words(state->repeated.zeros, state->period, count);
    repeat_words(state->repeated.offsets, state->period, count);
    return true;
}

/* Returns whether one call may take all blocks of a row. */
static bool joins(const struct state *state, const struct qk_broadcast_axis *inner)
{
    const bool steps = inner->scale_stride == 1 &&
                       (inner->zero_point_stride == 1 || !state->elementwise.parameters.zeros);
    return steps && (inner->block == 1 || inner->block >= QK_BLOCK_MIN);
}

/* Returns after how many blocks of a packed x the parameters begin again. Returns 0 if they never
 * do, or if the parameters that repeat are not one row of whole blocks. */
static size_t blocks_of(const struct qk_broadcast *broadcast)
{
    const struct qk_broadcast_axis *outer = &broadcast->axes[0];
    const struct qk_broadcast_axis *inner = &broadcast->axes[broadcast->rank - 1];
    const bool repeats = broadcast->rank == 2 && outer->scale_stride == 0 &&
                         outer->zero_point_stride == 0 && inner->size % inner->block == 0;
    return repeats ? inner->size / inner->block : 0;
}

static void choose(struct state *state)
{
    const struct qk_broadcast *broadcast = &state->broadcast;
    const struct qk_broadcast_axis *inner = &broadcast->axes[broadcast->rank - 1];
    const bool whole = inner->scale_stride == 0 && inner->zero_point_stride == 0;
    state->packed = is_packed(broadcast);
    state->joined = !whole && joins(state, inner);
    state->span.block = whole ? SIZE_MAX : inner->block;
    const size_t period = inner->block >= QK_BLOCK_MIN ? blocks_of(broadcast) : 0;
    const bool expanded =
        !whole && inner->block < SHORT_BLOCK && period_of(state) > 0; /* costs less */
    if (state->packed && (whole || state->joined) && (broadcast->rank == 1 || period > 0) &&
        !expanded) {
        state->span.period = period;
        state->traverse = traverse_blocks;
        return;
    }
    const bool rows =
        inner->x_stride == 1 && (whole || state->joined ? inner->size : inner->block) >= ROW_MIN;
    state->traverse = traverse_rows;
    if (rows && (whole || inner->block > 1))
        return;
    state->period = period_of(state);
    if (state->period || !rows)
        state->traverse = state->period ? traverse_period : traverse_expanded;
    state->span.block = 1;
}

/* Returns how many of `count` items, which take item_ns each, a unit has: at most `most`. */
static size_t items_in_time(size_t count, double item_ns, size_t most,
                            const struct qk_elementwise_tuning *tuning)
{
    const double fit = tuning->unit_ns / item_ns;
    if (fit < (double)most)
        most = fit > 1 ? (size_t)fit : 1;
    if (item_ns * (double)count >= WORTH_CUTTING_NS)
        most = qk_size_min(most, qk_divide_up(count, 2));
    return qk_unit_items(count, 1, most);
}

static uint64_t whole_ns(double ns)
{
    return ns < 0x1p53 ? (uint64_t)ns : UINT64_C(1) << 53;
}

size_t qk_elementwise_set_units(size_t count, double element_ns,
                                const struct qk_elementwise_tuning *tuning, struct qk_plan *plan)
{
    const size_t item = UNIT_ELEMENTS_MIN;
    const size_t unit = item * items_in_time(qk_divide_up(count, item), element_ns * (double)item,
                                             UNIT_ELEMENTS_MAX / item, tuning);
    const size_t elements = qk_size_min(count, unit);
    plan->unit_count = qk_divide_up(count, unit);
    plan->unit_cost_ns = whole_ns(CALL_CYCLES * tuning->cycle_ns + element_ns * (double)elements);
    return unit;
}

size_t qk_set_units(size_t count, double item_ns, const struct qk_elementwise_tuning *tuning,
                    struct qk_plan *plan)
{
    const size_t unit = items_in_time(count, item_ns, SIZE_MAX, tuning);
    plan->unit_count = qk_divide_up(count, unit);
    plan->unit_cost_ns = whole_ns(item_ns * (double)unit);
    return unit;
}

/* Returns how many elements a segment has: those of a block or, if blocks have one element or are
 * whole rows, those of a row. */
static size_t segment_elements(const struct qk_broadcast *broadcast)
{
    const struct qk_broadcast_axis *inner = &broadcast->axes[broadcast->rank - 1];
    const size_t count =
        inner->block > 1 && inner->block < inner->size ? inner->block : inner->size;
    return count > 0 ? count : 1; /* an empty tensor has none */
}

/* Cuts the tensor into units. */
static void set_units(struct state *state, const struct qk_elementwise_tuning *tuning,
                      struct qk_plan *plan)
{
    const double bytes = (double)(state->elementwise.x_bits + state->elementwise.y_bits) / 8;
    const double rank = (double)state->broadcast.rank;
    double element_ns = state->elementwise.element_cycles * tuning->cycle_ns;
    if (element_ns < bytes * tuning->byte_ns)
        element_ns = bytes * tuning->byte_ns;
    if (state->traverse == traverse_expanded)
        element_ns +=
            (EXPAND_CYCLES + SEGMENT_CYCLES * rank / (double)segment_elements(&state->broadcast)) *
            tuning->cycle_ns;
    state->unit = qk_elementwise_set_units(state->count, element_ns, tuning, plan);
}

static enum qk_status set_output(const struct qk_instance *instance, const struct qk_tensor *x,
                                 enum qk_type y_type, struct qk_plan *plan, struct qk_error *error)
{
    struct qk_tensor *y = &plan->outputs[0];
    qk_tensor_copy(y, x);
    y->type = y_type;
    y->stored = x->count;
    y->data = NULL;
    if (!qk_type_bytes(y_type, x->count, &plan->output_bytes[0]))
        return qk_fail(error, QK_INVALID,
                       "%s: expected an output that fits in memory, got a larger one",
                       instance->op->inputs[0].name);
    return QK_OK;
}

/* Copies and simplifies the strides. If there are no zero points, their strides become 0, so that
 * more axes can be merged. */
static void copy_broadcast(struct qk_broadcast *to, const struct qk_broadcast *from, bool has_zeros)
{
    to->rank = from->rank;
    for (uint32_t i = 0; i < from->rank; i++) {
        to->axes[i] = from->axes[i];
        if (!has_zeros)
            to->axes[i].zero_point_stride = 0;
    }
    qk_broadcast_simplify(to);
}

void *qk_alloc_words(size_t count, struct qk_memory memory)
{
    size_t bytes;
    if (!qk_mul_size(count > 0 ? count : 1, sizeof(uint32_t), &bytes))
        return NULL;
    return memory.alloc(memory.context, bytes);
}

enum qk_status qk_elementwise_plan(const struct qk_elementwise *elementwise,
                                   const struct qk_instance *instance, const struct qk_tensor *x,
                                   enum qk_type y_type, const struct qk_broadcast *broadcast,
                                   struct qk_memory memory, struct qk_plan *plan,
                                   struct qk_error *error)
{
    const struct qk_elementwise_tuning *tuning = elementwise->tuning;
    const enum qk_status status = set_output(instance, x, y_type, plan, error);
    if (status != QK_OK)
        return status;
    struct state *state = memory.alloc(memory.context, sizeof(*state));
    if (!state)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    const size_t x_bytes = x->count / 8 * elementwise->x_bits;
    const size_t y_bytes = plan->output_bytes[0];
    const bool stream = x_bytes >= tuning->stream_bytes || y_bytes >= tuning->stream_bytes;
    memset(state, 0, offsetof(struct state, broadcast)); /* all but `broadcast`, which is large */
    state->count = x->count;
    state->span.stream = stream;
    state->elementwise = *elementwise;
    copy_broadcast(&state->broadcast, broadcast, elementwise->parameters.zeros != NULL);
    choose(state);
    set_units(state, tuning, plan);
    if (state->period && !repeat(state, memory))
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    plan->kernel = elementwise->name;
    plan->run = run;
    plan->state = state;
    return QK_OK;
}
