#include "kernels/dequantize/affine.h"

#include "kernels/element/words.h"

/* Large enough to hide a call's costs, small enough to stop soon and to keep in a cache. */
#define UNIT_ELEMENTS ((size_t)64 * 1024)
#define UNIT_COST_NS 30000         /* from memory and back; a few thousand from a cache */
#define UNIT_COST_CHUNKS_NS 200000 /* a few instructions more for each element */

/* Shorter runs of one scale cost a kernel's call more than they gain. */
#define KERNEL_RUN_MIN 16

/* ---- What is constant -------------------------------------------------------------------- */

void *qk_alloc_words(size_t count, struct qk_memory memory)
{
    size_t bytes;
    if (!qk_mul_size(count > 0 ? count : 1, sizeof(int32_t), &bytes))
        return NULL;
    return memory.alloc(memory.context, bytes);
}

static const float *copy_scales(const struct qk_tensor *scale, struct qk_memory memory)
{
    float *scales = qk_alloc_words(scale->stored, memory);
    for (size_t i = 0; scales && i < scale->stored; i++)
        scales[i] = qk_float_decode(scale->type, qk_element_load(scale->type, scale->data, i));
    return scales;
}

static const int32_t *copy_zero_points(const struct qk_tensor *zero_point, struct qk_memory memory)
{
    int32_t *zero_points = qk_alloc_words(zero_point->stored, memory);
    if (zero_points)
        qk_load_words(zero_point->type, zero_point->data, 0, 1, zero_point->stored, zero_points);
    return zero_points;
}

static const float *decode_codes(enum qk_type type, struct qk_memory memory)
{
    const uint32_t count = 1U << qk_type_info(type)->bits;
    float *codes = qk_alloc_words(count, memory);
    for (uint32_t code = 0; codes && code < count; code++)
        codes[code] = qk_float_decode(type, code);
    return codes;
}

enum qk_status qk_affine_set(struct qk_affine *affine, const struct qk_tensor *scale,
                             const struct qk_tensor *zero_point, struct qk_memory memory,
                             struct qk_error *error)
{
    const bool decoded = affine->form == QK_AFFINE_DECODED;
    const bool has_zero_points = zero_point->type != QK_NONE && !decoded;
    affine->scales = copy_scales(scale, memory);
    affine->zero_points = has_zero_points ? copy_zero_points(zero_point, memory) : NULL;
    affine->codes = decoded ? decode_codes(affine->x_type, memory) : NULL;
    if (!affine->scales || (has_zero_points && !affine->zero_points) || (decoded && !affine->codes))
        return qk_fail(error, QK_NO_MEMORY, "out of memory for %zu scales and zero points",
                       scale->stored);
    return QK_OK;
}

/* ---- Plan and run ------------------------------------------------------------------------ */

struct state {
    const struct qk_affine *affine;
    qk_dequantize_fn kernel; /* NULL: chunk by chunk */
    const uint8_t *x;
    size_t x_bytes; /* of one element; for kernels, which take whole bytes */
    size_t count;
    struct qk_grid grid;
};

/* Elements [begin, end), each piece by the tier's kernel. */
static void run_pieces(const struct state *state, float *y, size_t begin, size_t end)
{
    const struct qk_affine *affine = state->affine;
    struct qk_grid_cursor cursor;
    struct qk_grid_piece piece;
    qk_grid_seek(&cursor, &state->grid, begin);
    for (size_t i = begin; i < end; i += piece.count) {
        qk_grid_next(&cursor, end - i, &piece);
        state->kernel(state->x + piece.x * state->x_bytes, piece.count,
                      affine->zero_points ? affine->zero_points[piece.zero_point] : 0,
                      affine->scales[piece.scale], y + i);
    }
}

/* Elements [begin, end), as many pieces together as a chunk holds. */
static void run_chunks(const struct state *state, void *y, size_t begin, size_t end)
{
    struct qk_chunk chunk = {.count = 0}; /* without zero points all are 0 */
    struct qk_grid_cursor cursor;
    struct qk_grid_piece piece;
    qk_grid_seek(&cursor, &state->grid, begin);
    for (size_t i = begin; i < end; i += chunk.count) {
        const size_t count = end - i < QK_CHUNK ? end - i : QK_CHUNK;
        for (chunk.count = 0; chunk.count < count;) {
            qk_grid_next(&cursor, count - chunk.count, &piece);
            qk_chunk_append(&chunk, state->affine, state->x, &piece);
        }
        qk_chunk_compute(&chunk, state->affine);
        qk_chunk_store(&chunk, state->affine->y_type, y, i);
    }
}

static void run(const struct qk_plan *plan, void *output, void *workspace, size_t begin, size_t end)
{
    const struct state *state = plan->state;
    const size_t first = begin * UNIT_ELEMENTS;
    const size_t last = end < plan->unit_count ? end * UNIT_ELEMENTS : state->count;
    (void)workspace;
    if (first >= last)
        return;
    if (state->kernel)
        run_pieces(state, output, first, last);
    else
        run_chunks(state, output, first, last);
}

/* The kernel that does all of it, or NULL. Differences of 8-bit elements are exact and do not
 * wrap. */
static qk_dequantize_fn pick_kernel(const struct qk_dequantize_kernels *kernels,
                                    const struct qk_affine *affine, const struct qk_grid *grid,
                                    size_t count)
{
    const size_t run_length = qk_grid_run(grid);
    const bool rows = grid->axes[grid->rank - 1].x_stride == 1 &&
                      (run_length >= KERNEL_RUN_MIN || run_length == count);
    if (!rows || affine->y_type != QK_FP32 || affine->form > QK_AFFINE_EXACT)
        return NULL;
    if (affine->x_type == QK_UINT8)
        return kernels->u8;
    if (affine->x_type == QK_INT8)
        return kernels->s8;
    if (affine->x_type == QK_INT32 && affine->form == QK_AFFINE_WRAPPED)
        return kernels->s32;
    return NULL;
}

enum qk_status qk_affine_plan(const struct qk_affine *affine,
                              const struct qk_dequantize_kernels *kernels,
                              const struct qk_call *call, const struct qk_grid *grid,
                              struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct qk_tensor *x = &call->inputs[0];
    if (x->type != affine->x_type)
        return qk_fail(error, QK_INVALID, "%s: expected datatype %s as for create, got %s",
                       call->op->input_names[0], qk_type_info(affine->x_type)->name,
                       qk_type_info(x->type)->name);
    plan->output = *x;
    plan->output.type = affine->y_type;
    plan->output.stored = x->count;
    plan->output.data = NULL;
    if (!qk_type_bytes(affine->y_type, x->count, &plan->output_bytes))
        return qk_fail(error, QK_INVALID, "%s: too large, its output has more bytes than memory",
                       call->op->input_names[0]);

    struct state *state = memory.alloc(memory.context, sizeof(*state));
    if (!state)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    *state = (struct state){.affine = affine,
                            .x = x->data,
                            .x_bytes = qk_type_info(affine->x_type)->bits / 8,
                            .count = x->count,
                            .grid = *grid};
    for (uint32_t i = 0; i < grid->rank && !affine->zero_points; i++)
        state->grid.axes[i].zero_point_stride = 0;
    qk_grid_simplify(&state->grid);
    state->kernel = pick_kernel(kernels, affine, &state->grid, x->count);
    const uint64_t unit_cost_ns = state->kernel ? UNIT_COST_NS : UNIT_COST_CHUNKS_NS;
    plan->kernel = state->kernel ? kernels->name : "dequantize_scalar_chunks";
    plan->unit_count = x->count / UNIT_ELEMENTS + (x->count % UNIT_ELEMENTS != 0);
    plan->unit_cost_ns =
        x->count < UNIT_ELEMENTS ? 100 + unit_cost_ns * x->count / UNIT_ELEMENTS : unit_cost_ns;
    plan->run = run;
    plan->state = state;
    return QK_OK;
}
