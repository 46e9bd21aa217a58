/* Plans a binary operator: finds the shape of y, joins axes, cuts y into units, and walks both
 * operands in long kernel calls. */
#include "kernels/binary/binary.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/operators/shape_text.h"

/* Rough costs in cycles: a kernel call; copying an element; and finding a row, for each axis. */
#define CALL_CYCLES 40.0
#define GATHER_CYCLES 0.5
#define ROW_CYCLES 24.0

/* A row with at least this many elements is worth a kernel call. Shorter rows are gathered: each
 * operand is written out, element by element, for one call of many rows. */
#define ROW_MIN ((size_t)128)
#define ROWS_MIN ((size_t)32)   /* the same, if one call has many rows */
#define GATHERED ((size_t)1024) /* two operands stay in the L1 cache */
#define ELEMENT_BYTES_MAX 4

/* Consecutive codes, from `first` on. */
#define CODES_4(first) (first), (first) + 1, (first) + 2, (first) + 3
#define CODES_16(first) \
    CODES_4(first), CODES_4((first) + 4), CODES_4((first) + 8), CODES_4((first) + 12)
#define CODES_64(first) \
    CODES_16(first), CODES_16((first) + 16), CODES_16((first) + 32), CODES_16((first) + 48)

/* The operands in the order of the formulas. */
enum { FIRST, SECOND, OPERAND_COUNT };

struct axis {
    size_t size;
    size_t strides[OPERAND_COUNT]; /* 0: the operand repeats along this axis */
};

struct state {
    struct qk_binary_args args;
    qk_binary_fn run;       /* for rows: of the inner axis's form; for gathered rows: of vectors */
    qk_binary_rows_fn rows; /* for whole rows; NULL: `run` computes them */
    void (*finish)(void);
    const struct qk_lookup_kernel *lookup; /* for rows whose operand `repeats` repeats; NULL: `run`
                                              computes them */
    size_t repeats;
    size_t element_bytes;
    bool gathers;               /* rows are short */
    bool packed[OPERAND_COUNT]; /* element i of y is made of element i of the operand */
    size_t inputs[OPERAND_COUNT];
    size_t count;
    size_t unit; /* elements of a unit */
    uint32_t rank;
    struct axis axes[QK_RANK_MAX]; /* at least one; the last one is the innermost */
};

/* ---- Constants ----------------------------------------------------------------------------- */

/* Sets the constants. `exchanged` says that the first operand is b and the second a. For Add, this
 * changes which of the two is rounded first, and so some bits. */
static void set_args(const struct qk_binary *binary, bool exchanged, struct qk_binary_args *args)
{
    const struct qk_binary_operand *first = exchanged ? &binary->b : &binary->a;
    const struct qk_binary_operand *second = exchanged ? &binary->a : &binary->b;
    const float first_zero = (float)first->zero;
    const float second_zero = (float)second->zero;
    const float y_zero = (float)binary->y.zero;
    if (binary->multiplies) {
        *args = (struct qk_binary_args){.first = first_zero,
                                        .second = second_zero,
                                        .scale = first->scale * second->scale / binary->y.scale,
                                        .offset = y_zero};
        return;
    }
    args->first = first->scale / binary->y.scale;
    args->second = second->scale / binary->y.scale;
    args->scale = 1;
    args->offset = y_zero - fmaf(args->first, first_zero, args->second * second_zero);
}

bool qk_binary_first_is_scalar(const struct qk_tensor *a, const struct qk_tensor *b)
{
    if (a->rank == 0 || b->rank == 0)
        return a->rank == 0;
    uint32_t i = a->rank - 1;
    uint32_t k = b->rank - 1;
    while (i > 0 && k > 0 && a->dims[i] == 1 && b->dims[k] == 1) {
        i--;
        k--;
    }
    return a->dims[i] == 1;
}

/* ---- Walking both operands ----------------------------------------------------------------- */

/* A position in y, and the elements of both operands that belong to it. */
struct cursor {
    const struct state *state;
    size_t index[QK_RANK_MAX];
    size_t at[OPERAND_COUNT];
};

static void seek(struct cursor *cursor, const struct state *state, size_t i)
{
    cursor->state = state;
    cursor->at[FIRST] = cursor->at[SECOND] = 0;
    for (uint32_t left = state->rank; left > 0; left--) {
        const struct axis *axis = &state->axes[left - 1];
        cursor->index[left - 1] = i % axis->size;
        i /= axis->size;
        for (size_t k = 0; k < OPERAND_COUNT; k++)
            cursor->at[k] += cursor->index[left - 1] * axis->strides[k];
    }
}

/* Returns how many elements are left in the row, but at most `most`. */
static size_t row_left(const struct cursor *cursor, size_t most)
{
    const uint32_t inner = cursor->state->rank - 1;
    const size_t left = cursor->state->axes[inner].size - cursor->index[inner];
    return left < most ? left : most;
}

/* Moves the cursor forward by `count` elements of its row. */
static void move(struct cursor *cursor, size_t count)
{
    const struct axis *axes = cursor->state->axes;
    uint32_t i = cursor->state->rank - 1;
    cursor->index[i] += count;
    for (size_t k = 0; k < OPERAND_COUNT; k++)
        cursor->at[k] += count * axes[i].strides[k];
    for (; i > 0 && cursor->index[i] == axes[i].size; i--) {
        cursor->index[i] = 0;
        cursor->index[i - 1]++;
        for (size_t k = 0; k < OPERAND_COUNT; k++) {
            cursor->at[k] -= axes[i].size * axes[i].strides[k];
            cursor->at[k] += axes[i - 1].strides[k];
        }
    }
}

/* Computes a row of bytes, one of whose operands repeats, by a table that has the result of each
 * code of the other operand. The kernel makes the table, so the bits are the kernel's. */
static void look_up_row(const struct state *state, struct qk_lookup_table *table,
                        const uint8_t *repeated, const uint8_t *x, uint8_t *y, size_t count)
{
    static const uint8_t codes[QK_LOOKUP_ENTRIES] = {CODES_64(0), CODES_64(64), CODES_64(128),
                                                     CODES_64(192)};
    struct qk_binary_args args = state->args;
    args.stream = false;
    state->run(&args, state->repeats == FIRST ? repeated : codes,
               state->repeats == FIRST ? codes : repeated, table->entries, QK_LOOKUP_ENTRIES);
    if (state->args.stream)
        qk_lookup_stream(state->lookup->run, table, x, y, count);
    else
        qk_lookup_run(state->lookup->run, table, x, y, count);
}

/* Computes elements [begin, end) of y by a table for each row, which is made in `table`. */
static void look_up_rows(const struct state *state, struct qk_lookup_table *table,
                         const uint8_t *const *operands, uint8_t *y, size_t begin, size_t end)
{
    const size_t varies = state->repeats == FIRST ? SECOND : FIRST;
    struct cursor cursor;
    seek(&cursor, state, begin);
    for (size_t i = begin, count; i < end; i += count) {
        count = row_left(&cursor, end - i);
        look_up_row(state, table, operands[state->repeats] + cursor.at[state->repeats],
                    operands[varies] + cursor.at[varies], y + i, count);
        move(&cursor, count);
    }
}

/* Returns how many whole rows one call may take that begins at the cursor: as many as have
 * neighbouring elements of the second operand, and end at most `most` elements further on. */
static size_t rows_left(const struct cursor *cursor, size_t most)
{
    const struct state *state = cursor->state;
    const uint32_t inner = state->rank - 1;
    if (!state->rows || cursor->index[inner] > 0)
        return 0;
    const size_t left = state->axes[inner - 1].size - cursor->index[inner - 1];
    const size_t whole = most / state->axes[inner].size;
    return left < whole ? left : whole;
}

/* Moves the cursor forward by whole rows that rows_left has counted. */
static void move_rows(struct cursor *cursor, size_t rows)
{
    const uint32_t inner = cursor->state->rank - 1;
    const size_t size = cursor->state->axes[inner].size;
    cursor->index[inner - 1] += rows - 1;
    for (size_t k = 0; k < OPERAND_COUNT; k++)
        cursor->at[k] += (rows - 1) * cursor->state->axes[inner - 1].strides[k];
    move(cursor, size);
}

/* Computes elements [begin, end) of y, with as many rows in a call as possible. */
static void run_rows(const struct state *state, const uint8_t *const *operands, uint8_t *y,
                     size_t begin, size_t end)
{
    struct cursor cursor;
    seek(&cursor, state, begin);
    for (size_t i = begin, count; i < end; i += count) {
        const uint8_t *first = operands[FIRST] + cursor.at[FIRST] * state->element_bytes;
        const uint8_t *second = operands[SECOND] + cursor.at[SECOND] * state->element_bytes;
        const size_t rows = rows_left(&cursor, end - i);
        if (rows > 0) {
            const size_t size = state->axes[state->rank - 1].size;
            count = rows * size;
            state->rows(&state->args, first, second, y + i, size, rows);
            move_rows(&cursor, rows);
            continue;
        }
        count = row_left(&cursor, end - i);
        state->run(&state->args, first, second, y + i * state->element_bytes, count);
        move(&cursor, count);
    }
}

/* Writes an element `count` times. */
static void fill(uint8_t *to, const uint8_t *element, size_t count, size_t element_bytes)
{
    if (element_bytes == 1)
        memset(to, *element, count);
    else
        for (size_t i = 0; i < count; i++)
            memcpy(to + i * element_bytes, element, element_bytes);
}

/* Writes out the next `count` elements of the operands that are not packed. */
static void gather(struct cursor *cursor, const uint8_t *const *operands,
                   uint8_t to[OPERAND_COUNT][GATHERED * ELEMENT_BYTES_MAX], size_t count)
{
    const struct state *state = cursor->state;
    const size_t bytes = state->element_bytes;
    const struct axis *inner = &state->axes[state->rank - 1];
    for (size_t done = 0, part; done < count; done += part) {
        part = row_left(cursor, count - done);
        for (size_t k = 0; k < OPERAND_COUNT; k++) {
            if (state->packed[k])
                continue;
            const uint8_t *from = operands[k] + cursor->at[k] * bytes;
            if (inner->strides[k] == 0)
                fill(&to[k][done * bytes], from, part, bytes);
            else
                memcpy(&to[k][done * bytes], from, part * bytes);
        }
        move(cursor, part);
    }
}

static void run_gathered(const struct state *state, const uint8_t *const *operands, uint8_t *y,
                         size_t begin, size_t end)
{
    uint8_t gathered[OPERAND_COUNT][GATHERED * ELEMENT_BYTES_MAX];
    const size_t bytes = state->element_bytes;
    struct cursor cursor;
    seek(&cursor, state, begin);
    for (size_t i = begin, count; i < end; i += count) {
        count = end - i < GATHERED ? end - i : GATHERED;
        gather(&cursor, operands, gathered, count);
        state->run(&state->args,
                   state->packed[FIRST] ? operands[FIRST] + i * bytes : gathered[FIRST],
                   state->packed[SECOND] ? operands[SECOND] + i * bytes : gathered[SECOND],
                   y + i * bytes, count);
    }
}

static void run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                void *workspace, size_t begin, size_t end)
{
    const struct state *state = plan->state;
    const size_t first = begin * state->unit;
    const size_t last = end < plan->unit_count ? end * state->unit : state->count;
    const uint8_t *const operands[OPERAND_COUNT] = {inputs[state->inputs[FIRST]],
                                                    inputs[state->inputs[SECOND]]};
    if (first >= last)
        return;
    if (state->gathers)
        run_gathered(state, operands, outputs[0], first, last);
    else if (state->lookup)
        look_up_rows(state, workspace, operands, outputs[0], first, last);
    else
        run_rows(state, operands, outputs[0], first, last);
    if (state->args.stream && state->finish)
        state->finish();
}

/* ---- The plan ------------------------------------------------------------------------------ */

/* Sets the shape of y. */
static enum qk_status set_output(const struct qk_binary_walk *walk,
                                 const struct qk_instance *instance, const struct qk_tensor *a,
                                 const struct qk_tensor *b, struct qk_plan *plan,
                                 struct qk_error *error)
{
    struct qk_tensor *y = &plan->outputs[0];
    const uint32_t rank = a->rank > b->rank ? a->rank : b->rank;
    const char *a_name = instance->op->inputs[walk->a_input].name;
    const char *b_name = instance->op->inputs[walk->b_input].name;
    struct qk_shape_text shapes[2];
    *y = (struct qk_tensor){.type = walk->type, .rank = rank};
    for (uint32_t i = 1; i <= rank; i++) {
        const size_t a_size = i <= a->rank ? a->dims[a->rank - i] : 1;
        const size_t b_size = i <= b->rank ? b->dims[b->rank - i] : 1;
        if (a_size != b_size && a_size != 1 && b_size != 1)
            return qk_fail(error, QK_INVALID,
                           "%s: expected a shape that broadcasts with that of %s, %s, got %s",
                           b_name, a_name, qk_shape_text(a, &shapes[0]),
                           qk_shape_text(b, &shapes[1]));
        y->dims[rank - i] = a_size == 1 ? b_size : a_size;
    }
    if (!qk_tensor_set_count(y) ||
        !qk_mul_size(y->count, walk->element_bytes, &plan->output_bytes[0]))
        return qk_fail(error, QK_INVALID,
                       "%s: expected an output that fits in memory with %s of %s, got %s", b_name,
                       a_name, qk_shape_text(a, &shapes[0]), qk_shape_text(b, &shapes[1]));
    return QK_OK;
}

/* Returns the size of the tensor's axis that lies over axis i of y. */
static size_t size_over(const struct qk_tensor *y, uint32_t i, const struct qk_tensor *tensor)
{
    const uint32_t missing = y->rank - tensor->rank;
    return i < missing ? 1 : tensor->dims[i - missing];
}

/* Sets the axes of y and the strides of the operands, with as few and as long axes as possible.
 * Axes of size 1 are left out, and an axis joins the one inside it if both operands step over the
 * two as over one. */
static void set_axes(struct state *state, const struct qk_tensor *y,
                     const struct qk_tensor *const *operands)
{
    size_t strides[OPERAND_COUNT] = {1, 1};
    struct axis made[QK_RANK_MAX + 1]; /* the innermost first */
    uint32_t rank = 0;
    made[0] = (struct axis){.size = 1, .strides = {1, 1}};
    for (uint32_t i = y->rank; i > 0; i--) {
        struct axis axis = {.size = y->dims[i - 1]};
        for (size_t k = 0; k < OPERAND_COUNT; k++) {
            const size_t size = size_over(y, i - 1, operands[k]);
            axis.strides[k] = size == 1 ? 0 : strides[k];
            strides[k] *= size;
        }
        struct axis *inner = &made[rank > 0 ? rank - 1 : 0];
        if (axis.size == 1)
            continue;
        if (rank > 0 && axis.strides[FIRST] == inner->strides[FIRST] * inner->size &&
            axis.strides[SECOND] == inner->strides[SECOND] * inner->size)
            inner->size *= axis.size;
        else
            made[rank++] = axis;
    }
    state->rank = rank > 0 ? rank : 1;
    for (uint32_t i = 0; i < state->rank; i++)
        state->axes[i] = made[state->rank - 1 - i];
    for (size_t k = 0; k < OPERAND_COUNT; k++)
        state->packed[k] = operands[k]->count == y->count;
}

/* Chooses between a call for each row and gathered rows, and the kernel. */
static void choose(struct state *state, const struct qk_binary_walk *walk)
{
    const struct axis *inner = &state->axes[state->rank - 1];
    const enum qk_binary_form form = inner->strides[FIRST] == 0    ? QK_BINARY_FIRST_REPEATS
                                     : inner->strides[SECOND] == 0 ? QK_BINARY_SECOND_REPEATS
                                                                   : QK_BINARY_NONE_REPEATS;
    const bool has_rows = walk->rows && state->rank > 1 && form == QK_BINARY_SECOND_REPEATS &&
                          inner[-1].strides[FIRST] == inner->size &&
                          inner[-1].strides[SECOND] == 1 && !state->args.stream;
    state->gathers = state->rank > 1 && inner->size < (has_rows ? ROWS_MIN : ROW_MIN);
    state->run = walk->forms[state->gathers ? QK_BINARY_NONE_REPEATS : form];
    state->repeats = form == QK_BINARY_FIRST_REPEATS ? FIRST : SECOND;
    if (walk->lookup && !state->gathers && form != QK_BINARY_NONE_REPEATS &&
        inner->size >= walk->lookup_min) {
        state->lookup = walk->lookup;
        state->finish = walk->lookup->finish;
    }
    state->rows = has_rows && !state->gathers && !state->lookup ? walk->rows : NULL;
}

static void set_units(struct state *state, const struct qk_binary_walk *walk,
                      const struct qk_elementwise_tuning *tuning, struct qk_plan *plan)
{
    const struct axis *inner = &state->axes[state->rank - 1];
    const double row = inner->size > 0 ? (double)inner->size : 1;
    double row_cycles = state->rows ? 0 : ROW_CYCLES * (double)state->rank;
    double cycles = walk->element_cycles;
    if (state->lookup) { /* a row's table has the results of 256 elements */
        row_cycles += CALL_CYCLES + QK_LOOKUP_ENTRIES * cycles;
        cycles = state->lookup->element_cycles;
    }
    /* two elements are read and one is written */
    const double move_ns = 3 * (double)walk->element_bytes * tuning->byte_ns;
    double element_ns = cycles * tuning->cycle_ns;
    if (element_ns < move_ns)
        element_ns = move_ns;
    element_ns +=
        (state->gathers ? GATHER_CYCLES + row_cycles / row : (row_cycles + CALL_CYCLES) / row) *
        tuning->cycle_ns;
    state->unit = qk_elementwise_set_units(state->count, element_ns, tuning, plan);
}

enum qk_status qk_binary_walk_plan(const struct qk_binary_walk *walk,
                                   const struct qk_elementwise_tuning *tuning,
                                   const struct qk_instance *instance,
                                   const struct qk_tensor *inputs, struct qk_memory memory,
                                   struct qk_plan *plan, struct qk_error *error)
{
    const struct qk_tensor *a = &inputs[walk->a_input];
    const struct qk_tensor *b = &inputs[walk->b_input];
    const struct qk_tensor *operands[OPERAND_COUNT] = {walk->exchanged ? b : a,
                                                       walk->exchanged ? a : b};
    const enum qk_status status = set_output(walk, instance, a, b, plan, error);
    if (status != QK_OK)
        return status;
    struct state *state = memory.alloc(memory.context, sizeof(*state));
    if (!state)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    *state = (struct state){.args = walk->args, .finish = walk->finish};
    state->args.stream = plan->output_bytes[0] >= tuning->stream_bytes;
    state->element_bytes = walk->element_bytes;
    state->inputs[FIRST] = walk->exchanged ? walk->b_input : walk->a_input;
    state->inputs[SECOND] = walk->exchanged ? walk->a_input : walk->b_input;
    state->count = plan->outputs[0].count;
    set_axes(state, &plan->outputs[0], operands);
    choose(state, walk);
    set_units(state, walk, tuning, plan);
    plan->workspace_bytes = state->lookup ? sizeof(struct qk_lookup_table) : 0;
    plan->kernel = walk->name;
    plan->run = run;
    plan->state = state;
    return QK_OK;
}

enum qk_status qk_binary_plan(const struct qk_binary *binary,
                              const struct qk_binary_kernels *kernels,
                              const struct qk_lookup_kernel *lookup,
                              const struct qk_elementwise_tuning *tuning,
                              const struct qk_instance *instance, const struct qk_tensor *inputs,
                              struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    /* A table costs as much as 256 elements and two calls. */
    const double saved = kernels->element_cycles - lookup->element_cycles;
    const double made = QK_LOOKUP_ENTRIES * kernels->element_cycles + 2 * CALL_CYCLES;
    const struct qk_tensor *a = &inputs[binary->a_input];
    const struct qk_tensor *b = &inputs[binary->b_input];
    /* A product's bits do not depend on the order of its operands. */
    const bool exchanged =
        binary->multiplies ? a->count < b->count : qk_binary_first_is_scalar(a, b);
    struct qk_binary_walk walk = {
        .name = binary->multiplies ? kernels->multiply_name : kernels->add_name,
        .forms = binary->multiplies ? kernels->multiply[binary->is_signed]
                                    : kernels->add[binary->is_signed],
        .element_cycles = kernels->element_cycles,
        .finish = kernels->finish,
        .lookup = saved > kernels->element_cycles / 2 ? lookup : NULL,
        .lookup_min = saved > kernels->element_cycles / 2 ? (size_t)(made / saved) : 0,
        .type = binary->is_signed ? QK_INT8 : QK_UINT8,
        .element_bytes = 1,
        .a_input = binary->a_input,
        .b_input = binary->b_input,
        .rows = binary->multiplies ? kernels->multiply_rows[binary->is_signed] : NULL,
        .exchanged = exchanged,
    };
    set_args(binary, walk.exchanged, &walk.args);
    return qk_binary_walk_plan(&walk, tuning, instance, inputs, memory, plan, error);
}
