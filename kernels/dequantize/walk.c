#include "kernels/dequantize/walk.h"

#include "kernels/dequantize/spread.h"

/* A unit takes about this long, from memory and back. */
#define UNIT_NS 100000
#define UNIT_ELEMENTS_MIN ((size_t)4096)
#define UNIT_ELEMENTS_MAX ((size_t)1 << 18)
#define CALL_NS 100
#define BYTE_PS 50    /* to or from memory */
#define SPREAD_PS 150 /* an element's parameters */

/* A call of a kernel for each run of one scale, or row of them, pays from here on. */
#define RUN_MIN 192
#define RUN_MIN_STREAM                                                         \
    4096 /* where it may have to begin with single elements, up to a line of y \
          */
#define ROW_MIN 512

/* Parameters that repeat after so many elements at most are spread once. */
#define PERIOD_MAX 2048

/* Outputs from here on are not going to be in a cache when they are read. */
#define STREAM_BYTES_MIN ((size_t)4 << 20)

struct state;
typedef void walk_fn(const struct state *state, struct qk_dequantize_args args, size_t begin,
                     size_t end);

struct state {
    const struct qk_affine *affine;
    const struct qk_dequantize_kernels *kernels;
    walk_fn *walk;
    struct qk_dequantize_args args; /* what all calls have in common */
    size_t count;
    size_t unit; /* elements */
    bool packed; /* element i of y is element i of x */
    size_t period;
    struct qk_spread repeated; /* the parameters of period + QK_SPREAD_COUNT elements */
    struct qk_grid grid;
};

/* ---- The walks: elements [begin, end), of which args->y has the first ---------------------- */

static void call(const struct state *state, struct qk_dequantize_args *args, size_t first,
                 size_t count)
{
    args->first = first;
    args->count = count;
    qk_dequantize(state->kernels, args);
    args->y = (char *)args->y + count * (args->y_type == QK_FP32 ? sizeof(float) : 2);
}

static void set_parameters(const struct qk_affine *affine, struct qk_dequantize_args *args,
                           size_t scale, size_t zero)
{
    args->scales = affine->scales + scale;
    if (affine->zeros)
        args->zeros = (const uint32_t *)affine->zeros + zero;
    if (affine->offsets)
        args->offsets = affine->offsets + scale;
}

/* A call for each row. */
static void walk_rows(const struct state *state, struct qk_dequantize_args args, size_t begin,
                      size_t end)
{
    struct qk_grid_cursor cursor;
    struct qk_grid_piece piece;
    qk_grid_seek(&cursor, &state->grid, begin);
    for (size_t i = begin; i < end; i += piece.count) {
        qk_grid_next(&cursor, end - i, &piece);
        set_parameters(state->affine, &args, piece.scale, piece.zero_point);
        call(state, &args, piece.x, piece.count);
    }
}

/* A call for each block of a row. */
static void walk_blocks(const struct state *state, struct qk_dequantize_args args, size_t begin,
                        size_t end)
{
    struct qk_grid_cursor cursor;
    struct qk_grid_piece piece;
    qk_grid_seek(&cursor, &state->grid, begin);
    for (size_t i = begin; i < end; i += piece.count) {
        qk_grid_next(&cursor, end - i, &piece);
        size_t run = piece.block - piece.block_done;
        for (size_t k = 0, p = 0; k < piece.count; k += run, run = piece.block, p++) {
            run = run < piece.count - k ? run : piece.count - k;
            set_parameters(state->affine, &args, piece.scale + p * piece.scale_stride,
                           piece.zero_point + p * piece.zero_point_stride);
            call(state, &args, piece.x + k, run);
        }
    }
}

static void set_spread(const struct qk_spread *spread, size_t at, struct qk_dequantize_args *args)
{
    args->scales = (const float *)spread->scales + at;
    args->zeros = spread->zeros ? spread->zeros + at : NULL;
    args->offsets = spread->offsets ? (const float *)spread->offsets + at : NULL;
}

/* Parameters that have been spread for all. */
static void walk_period(const struct state *state, struct qk_dequantize_args args, size_t begin,
                        size_t end)
{
    size_t phase = begin % state->period;
    for (size_t i = begin; i < end; i += args.count) {
        set_spread(&state->repeated, phase, &args);
        call(state, &args, i, end - i < QK_SPREAD_COUNT ? end - i : QK_SPREAD_COUNT);
        phase = (phase + args.count) % state->period;
    }
}

/* As many pieces together as there is room for. */
static void walk_spread(const struct state *state, struct qk_dequantize_args args, size_t begin,
                        size_t end)
{
    enum { ROOM = QK_SPREAD_COUNT + QK_SPREAD_SLACK };
    uint32_t parameters[3][ROOM];
    char x[QK_SPREAD_COUNT * sizeof(uint32_t)];
    const struct qk_spread spread = {parameters[0], state->affine->zeros ? parameters[1] : NULL,
                                     state->affine->offsets ? parameters[2] : NULL};
    const size_t x_bytes = qk_type_info(state->affine->x_type)->bits / 8;
    struct qk_grid_cursor cursor;
    struct qk_grid_piece piece;
    qk_grid_seek(&cursor, &state->grid, begin);
    set_spread(&spread, 0, &args);
    if (!state->packed)
        args.x = x;
    for (size_t i = begin; i < end; i += args.count) {
        const size_t count = end - i < QK_SPREAD_COUNT ? end - i : QK_SPREAD_COUNT;
        for (size_t done = 0; done < count; done += piece.count) {
            qk_grid_next(&cursor, count - done, &piece);
            qk_spread_parameters(state->affine, &piece, &spread, done);
            if (!state->packed)
                qk_spread_elements(state->args.x, x_bytes, &piece, x + done * x_bytes);
        }
        call(state, &args, state->packed ? i : 0, count);
    }
}

static void run(const struct qk_plan *plan, void *output, void *workspace, size_t begin, size_t end)
{
    const struct state *state = plan->state;
    const size_t first = begin * state->unit;
    const size_t last = end < plan->unit_count ? end * state->unit : state->count;
    (void)workspace;
    if (first >= last)
        return;
    struct qk_dequantize_args args = state->args;
    args.y = (char *)output + first * (args.y_type == QK_FP32 ? sizeof(float) : 2);
    state->walk(state, args, first, last);
    if (args.stream)
        state->kernels->finish();
}

/* ---- The choice ---------------------------------------------------------------------------- */

static enum qk_code code_of(const struct qk_affine *affine)
{
    switch (affine->x_type) {
    case QK_UINT8:
        return QK_CODE_U8;
    case QK_INT8:
        return QK_CODE_S8;
    case QK_UINT16:
        return QK_CODE_U16;
    case QK_INT16:
        return QK_CODE_S16;
    case QK_UINT32:
        return QK_CODE_U32_EXACT;
    case QK_INT32:
        return affine->form == QK_AFFINE_WRAPPED ? QK_CODE_S32_WRAPPED
               : affine->form == QK_AFFINE_EXACT ? QK_CODE_S32_EXACT
               : affine->form == QK_AFFINE_FLOAT ? QK_CODE_S32
                                                 : QK_CODE_S32_RECAST;
    default:
        return qk_type_info(affine->x_type)->bits == 2   ? QK_CODE_BITS2
               : qk_type_info(affine->x_type)->bits == 4 ? QK_CODE_BITS4
                                                         : QK_CODE_FLOAT8;
    }
}

static bool is_packed(const struct qk_grid *grid)
{
    size_t stride = 1;
    for (uint32_t i = grid->rank; i-- > 0;) {
        if (grid->axes[i].x_stride != stride)
            return false;
        stride *= grid->axes[i].size;
    }
    return true;
}

/* After how many elements the parameters begin again; 0: never, or too late. */
static size_t period_of(const struct state *state)
{
    const struct qk_grid *grid = &state->grid;
    size_t period = 1;
    if (!state->packed || grid->axes[0].scale_stride != 0 || grid->axes[0].zero_point_stride != 0)
        return 0;
    for (uint32_t i = 1; i < grid->rank && period <= PERIOD_MAX; i++)
        period *= grid->axes[i].size;
    return period <= PERIOD_MAX && state->count >= 2 * (period + QK_SPREAD_COUNT) ? period : 0;
}

static bool repeat(struct state *state, struct qk_memory memory)
{
    const size_t count = state->period + QK_SPREAD_COUNT;
    const size_t room = count + QK_SPREAD_SLACK;
    uint32_t *words = qk_alloc_words(3 * room, memory);
    struct qk_grid_cursor cursor;
    struct qk_grid_piece piece;
    if (!words)
        return false;
    state->repeated = (struct qk_spread){words, state->affine->zeros ? words + room : NULL,
                                         state->affine->offsets ? words + 2 * room : NULL};
    qk_grid_seek(&cursor, &state->grid, 0);
    for (size_t i = 0; i < count; i += piece.count) {
        qk_grid_next(&cursor, count - i, &piece);
        qk_spread_parameters(state->affine, &piece, &state->repeated, i);
    }
    return true;
}

/* log2 of a block that a kernel takes, or 0. */
static unsigned block_shift(const struct qk_grid_axis *inner)
{
    for (unsigned shift = QK_SHIFT_MIN; shift <= QK_SHIFT_MAX; shift++)
        if (inner->block == (size_t)1 << shift)
            return shift;
    return 0;
}

static bool runs_are_long(const struct state *state, size_t run)
{
    const bool aligned = !state->args.stream || run % QK_STEP == 0;
    return run >= (aligned ? RUN_MIN : RUN_MIN_STREAM);
}

static void choose(struct state *state)
{
    struct qk_grid *grid = &state->grid;
    struct qk_grid_axis *inner = &grid->axes[grid->rank - 1];
    const bool whole = inner->scale_stride == 0 && inner->zero_point_stride == 0;
    const bool steps =
        inner->scale_stride == 1 && (inner->zero_point_stride == 1 || !state->affine->zeros);
    const unsigned shift = steps ? block_shift(inner) : 0;
    state->args.shift = QK_SHIFT_WHOLE;
    state->packed = is_packed(grid);
    state->walk = walk_rows;
    if (inner->x_stride == 1 && whole && (grid->rank == 1 || runs_are_long(state, inner->size)))
        return;
    if (inner->x_stride == 1 && !whole && runs_are_long(state, inner->block)) {
        state->walk = walk_blocks;
        return;
    }
    state->args.shift = shift;
    if (inner->x_stride == 1 && shift && (grid->rank == 1 || inner->size % inner->block == 0))
        return;
    state->args.shift = QK_SHIFT_EACH;
    state->period = period_of(state);
    if (state->period)
        state->walk = walk_period;
    else if (inner->x_stride != 1 || !steps || inner->block > 1 || inner->size < ROW_MIN)
        state->walk = walk_spread;
}

/* The largest power of two that takes no longer than a unit should. */
static void set_units(struct state *state, struct qk_plan *plan)
{
    const struct qk_affine *affine = state->affine;
    const uint64_t bits = qk_type_info(affine->x_type)->bits + qk_type_info(affine->y_type)->bits;
    uint64_t element_ps = state->kernels->element_ps;
    if (element_ps < bits * BYTE_PS / 8)
        element_ps = bits * BYTE_PS / 8;
    if (state->walk == walk_spread)
        element_ps += SPREAD_PS;
    state->unit = UNIT_ELEMENTS_MIN;
    while (state->unit < UNIT_ELEMENTS_MAX && state->unit * 2 * element_ps <= UNIT_NS * 1000)
        state->unit *= 2;
    plan->unit_count = state->count / state->unit + (state->count % state->unit != 0);
    const size_t elements = state->count < state->unit ? state->count : state->unit;
    plan->unit_cost_ns = CALL_NS + element_ps * elements / 1000;
}

enum qk_status qk_walk_plan(const struct qk_affine *affine,
                            const struct qk_dequantize_kernels *kernels, const struct qk_tensor *x,
                            const struct qk_grid *grid, struct qk_memory memory,
                            struct qk_plan *plan, struct qk_error *error)
{
    struct state *state = memory.alloc(memory.context, sizeof(*state));
    if (!state)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    *state = (struct state){.affine = affine,
                            .kernels = kernels,
                            .args = {.code = code_of(affine),
                                     .y_type = affine->y_type,
                                     .x = x->data,
                                     .table = affine->table,
                                     .stream = plan->output_bytes >= STREAM_BYTES_MIN},
                            .count = x->count,
                            .grid = *grid};
    for (uint32_t i = 0; i < grid->rank && !affine->zeros; i++)
        state->grid.axes[i].zero_point_stride = 0;
    qk_grid_simplify(&state->grid);
    choose(state);
    set_units(state, plan);
    if (state->period && !repeat(state, memory))
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    plan->kernel = kernels->name;
    plan->run = run;
    plan->state = state;
    return QK_OK;
}
