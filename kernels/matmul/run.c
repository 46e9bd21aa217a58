/* Runs units of matrix products: makes the quads of a band of A's rows, multiplies each panel with
 * each tile of rows, and computes y from the tiles. */
#include "kernels/matmul/panels.h"

#include <string.h>

#include "kernels/sizes.h"

/* The operands of a run, and one thread's workspace. */
struct work {
    const struct qk_matmul_plan *plan;
    const uint8_t *a, *b, *c;
    const uint8_t *a_zero_point, *b_zero_point; /* NULL: 0 */
    uint8_t *y;
    uint8_t *quads, *gathered, *panel;
    int32_t *sums, *rows, *columns, *tile;
    struct qk_matmul_columns parameters; /* of QK_MATMUL_GROUP columns that are not known */
};

/* One product of a unit: rows [row, row + rows) of y by panels [panel_begin, panel_end). */
struct part {
    size_t batch, a_matrix, b_matrix;
    size_t row, rows;
    size_t panel_begin, panel_end;
    size_t gathered;   /* the last rows, computed by dot products */
    size_t begin, end; /* the steps of K that are computed now */
};

static const uint8_t *parameter(const struct qk_matmul_parameter *from, const void *const *inputs)
{
    if (from->data)
        return from->data;
    return from->input == QK_MATMUL_NONE ? NULL : inputs[from->input];
}

/* True if packing has computed what the columns need. */
static bool columns_known(const struct qk_matmul *matmul)
{
    return matmul->packs && matmul->constant.columns_known;
}

/* ---- A's rows as quads ------------------------------------------------------------------- */

/* Makes quads of rows [first, first + rows) of the part, for the part's steps. */
static void fill(const struct work *work, const struct part *part, size_t first, size_t rows,
                 uint8_t *to, size_t to_slab)
{
    const struct qk_matmul *matmul = work->plan->matmul;
    const struct qk_matmul_shape *shape = &work->plan->shape;
    const size_t step_terms = QK_IGEMM_STEP_SLABS * QK_IGEMM_QUAD_BYTES;
    const bool transposed = matmul->desc.a_transposed;
    const bool is_signed = matmul->igemm->x_signed;
    const size_t term = part->begin * step_terms;
    const size_t row = part->row + first;
    if (rows == 0 || part->begin == part->end)
        return;
    matmul->kernels->fill(&(struct qk_matmul_fill){
        .from = work->a + part->a_matrix * shape->m * shape->k +
                (transposed ? term * shape->m + row : row * shape->k + term),
        .term_stride = transposed ? shape->m : 1,
        .item_stride = transposed ? 1 : shape->k,
        .terms = qk_size_min(shape->k - term, (part->end - part->begin) * step_terms),
        .items = rows,
        .flip = qk_matmul_flip(matmul->desc.a_type, is_signed),
        .to = to,
        .to_slab = to_slab,
        .to_item = QK_IGEMM_QUAD_BYTES,
        .is_signed = is_signed,
        .sums = work->rows + first,
    });
}

/* Makes all quads of the part: slabs for most rows, and lists of quads for dot products. */
static void make_quads(const struct work *work, const struct part *part)
{
    const struct qk_matmul_plan *plan = work->plan;
    const size_t slab_rows = part->rows - part->gathered;
    fill(work, part, 0, slab_rows, work->quads, plan->slab_bytes);
    for (size_t i = 0; i < part->gathered; i++) {
        uint8_t *to = work->gathered + i * plan->gathered_bytes;
        const size_t bytes =
            (part->end - part->begin) * plan->order.step_slabs * QK_IGEMM_QUAD_BYTES;
        memset(to + bytes, 0, QK_IGEMM_SLACK);
        fill(work, part, slab_rows + i, 1, to, QK_IGEMM_QUAD_BYTES);
    }
}

/* ---- Tiles ------------------------------------------------------------------------------- */

/* Multiplies a panel by tile `t` of the part's rows. The panel's weights, the steps and the sums
 * are set in `args`; this function sets the rest. */
static void multiply(const struct work *work, const struct part *part, size_t t, size_t columns,
                     struct qk_igemm_args *args)
{
    const struct qk_matmul_plan *plan = work->plan;
    const struct qk_igemm *igemm = plan->matmul->igemm;
    const size_t rows = qk_size_min(part->rows - t * igemm->nr, igemm->nr);
    const size_t gathered = (t + 1) * igemm->nr >= part->rows ? part->gathered : 0;
    if (args->step_count == 0) {
        memset(args->sums, 0, qk_igemm_tile_sums(igemm) * sizeof(*args->sums));
        return;
    }
    args->quads = work->quads + t * igemm->nr * QK_IGEMM_QUAD_BYTES;
    args->slab_bytes = plan->slab_bytes;
    args->rows = columns;
    args->vectors = qk_divide_up(rows - gathered, QK_IGEMM_VECTOR);
    args->positions = rows - gathered;
    if (rows > gathered)
        igemm->multiply(args);
    if (gathered == 0)
        return;
    int32_t *const sums = args->sums;
    args->quads = work->gathered;
    args->step_slabs = plan->order.step_slabs;
    args->position_bytes = plan->gathered_bytes;
    args->positions = gathered;
    args->sums_row = QK_IGEMM_NR;
    args->sums_position = 1;
    args->sums += args->vectors * QK_IGEMM_VECTOR;
    igemm->dot(args);
    args->sums = sums;
}

/* Returns what the columns of `count` panels need, from panel `panel` on: what packing computed, or
 * what this function computes in the workspace. C is then a part of the bias, unless it differs
 * from row to row. */
static struct qk_matmul_columns find_columns(const struct work *work, const struct part *part,
                                             size_t panel, size_t count)
{
    const struct qk_matmul *matmul = work->plan->matmul;
    const struct qk_matmul_shape *shape = &work->plan->shape;
    const size_t mr = matmul->igemm->mr;
    const size_t packed = (part->b_matrix * work->plan->order.panels + panel) * mr;
    const int32_t *sums =
        matmul->packs ? matmul->sums + packed : work->columns + (panel - part->panel_begin) * mr;
    if (columns_known(matmul))
        return (struct qk_matmul_columns){matmul->columns.zero_point + packed,
                                          matmul->columns.bias + packed,
                                          matmul->columns.multiplier + packed};
    for (size_t i = 0; i < count; i++) {
        const size_t first = (panel + i) * mr;
        struct qk_matmul_columns_from from =
            qk_matmul_columns_from(matmul, shape, work->a_zero_point, work->b_zero_point,
                                   part->b_matrix, first, sums + i * mr);
        if (work->c && shape->c_row == 0) {
            from.c = work->c + first * shape->c_column * sizeof(int32_t);
            from.c_column = shape->c_column;
        }
        matmul->kernels->columns(&from, qk_size_min(shape->n - first, mr),
                                 &(struct qk_matmul_columns){work->parameters.zero_point + i * mr,
                                                             work->parameters.bias + i * mr,
                                                             work->parameters.multiplier + i * mr});
    }
    return work->parameters;
}

/* Computes y from complete sums: `rows` rows from row `row` of the part on, and `count` columns
 * from column `first` on. Sums of a row follow each other. */
static void finish(const struct work *work, const struct part *part, size_t row, size_t rows,
                   size_t first, size_t count, const struct qk_matmul_columns *columns,
                   const int32_t *sums, size_t sums_stride)
{
    const struct qk_matmul_plan *plan = work->plan;
    const struct qk_matmul_shape *shape = &plan->shape;
    const size_t at = part->row + row;
    const bool c = work->c && (shape->c_row != 0 || columns_known(plan->matmul));
    plan->matmul->kernels->finish(&(struct qk_matmul_tile){
        .kind = plan->matmul->desc.kind,
        .rows = rows,
        .columns = count,
        .sums = sums,
        .sums_stride = sums_stride,
        .row_sums = work->rows + row,
        .of_columns = *columns,
        .c = c ? work->c + (at * shape->c_row + first * shape->c_column) * sizeof(int32_t) : NULL,
        .c_row = shape->c_row,
        .c_column = shape->c_column,
        .requantize = plan->matmul->requantize,
        .y = work->y + ((part->batch * shape->m + at) * shape->n + first) * plan->y_bytes,
        .y_stride = shape->n * plan->y_bytes,
    });
}

/* Computes y from tile `t` of a panel, whose sums are complete. */
static void finish_tile(const struct work *work, const struct part *part, size_t t, size_t first,
                        size_t count, const struct qk_matmul_columns *columns, const int32_t *sums)
{
    const struct qk_matmul_plan *plan = work->plan;
    const struct qk_igemm *igemm = plan->matmul->igemm;
    const size_t row = t * igemm->nr;
    const size_t rows = qk_size_min(part->rows - row, igemm->nr);
    size_t stride = igemm->mr;
    if (!igemm->by_position) {
        plan->matmul->kernels->transpose(sums, count, rows, work->tile);
        sums = work->tile;
        stride = QK_IGEMM_MR_MAX;
    }
    finish(work, part, row, rows, first, count, columns, sums, stride);
}

/* ---- Units ------------------------------------------------------------------------------- */

/* Sets where the part's steps of a panel lie. Packs them first if B is not packed. */
static void find_panel(const struct work *work, const struct part *part, size_t panel,
                       struct qk_igemm_args *args)
{
    const struct qk_matmul_plan *plan = work->plan;
    const struct qk_matmul *matmul = plan->matmul;
    const struct qk_matmul_order *order = &plan->order;
    const struct qk_igemm *igemm = matmul->igemm;
    const uint8_t *weights = work->panel;
    size_t steps = part->end - part->begin;
    size_t first = 0;
    if (matmul->packs) {
        weights = matmul->weights + (part->b_matrix * order->panels + panel) * order->panel_bytes;
        steps = order->steps;
        first = part->begin;
    } else {
        const struct qk_matmul_shape *shape = &plan->shape;
        qk_matmul_pack_panel(matmul, work->b + part->b_matrix * shape->k * shape->n, shape->k,
                             shape->n, panel, part->begin, part->end, work->panel,
                             work->columns + (panel - part->panel_begin) * igemm->mr);
    }
    args->weights = weights + first * order->step_bytes;
    args->step_bytes = order->step_bytes;
    if (igemm->arrange)
        args->order = weights + steps * order->step_bytes +
                      first / QK_IGEMM_CHUNK_STEPS * QK_IGEMM_ORDER_BYTES;
}

/* Computes all tiles of a panel over the part's steps, and y if these are the last. */
static void run_panel(const struct work *work, const struct part *part, size_t panel)
{
    const struct qk_matmul_plan *plan = work->plan;
    const struct qk_matmul_order *order = &plan->order;
    const struct qk_igemm *igemm = plan->matmul->igemm;
    const size_t first = panel * igemm->mr;
    const size_t count = qk_size_min(plan->shape.n - first, igemm->mr);
    const size_t tiles = qk_divide_up(part->rows, igemm->nr);
    const bool last = part->end == order->steps;
    const bool whole = last && part->begin == 0;
    struct qk_matmul_columns columns = {0};
    struct qk_igemm_args args = {
        .steps = plan->steps + (last ? plan->part_steps : 0),
        .step_count = part->end - part->begin,
        .add = part->begin > 0,
        .sums = work->sums,
    };
    find_panel(work, part, panel, &args);
    if (!whole)
        args.sums += (panel - part->panel_begin) * tiles * qk_igemm_tile_sums(igemm);
    if (last)
        columns = find_columns(work, part, panel, 1);
    for (size_t t = 0; t < tiles; t++) {
        multiply(work, part, t, count, &args);
        if (last)
            finish_tile(work, part, t, first, count, &columns, args.sums);
        args.sums += whole ? 0 : qk_igemm_tile_sums(igemm);
    }
}

/* True if a group of panels may write the sums of each row side by side. */
static bool goes_by_groups(const struct qk_matmul_plan *plan, const struct part *part)
{
    const bool one_part = plan->order.steps > 0 && plan->part_steps >= plan->order.steps;
    const bool one_row = plan->matmul->igemm->by_position && part->rows == 1;
    return one_part && (one_row || part->gathered == part->rows);
}

/* Computes all of y that the part has, for few rows of A: many panels' sums first, then y, so that
 * neither waits for the other. */
static void run_groups(const struct work *work, const struct part *part)
{
    const struct qk_matmul_plan *plan = work->plan;
    const struct qk_igemm *igemm = plan->matmul->igemm;
    const size_t panels = QK_MATMUL_GROUP / igemm->mr;
    struct qk_igemm_args args = {
        .quads = igemm->by_position ? work->quads : work->gathered,
        .slab_bytes = plan->slab_bytes,
        .steps = plan->steps + plan->part_steps,
        .step_count = plan->order.steps,
        .vectors = 1,
        .positions = part->rows,
        .step_slabs = plan->order.step_slabs,
        .position_bytes = plan->gathered_bytes,
        .sums_row = 1,
        .sums_position = QK_MATMUL_GROUP,
    };
    for (size_t panel = part->panel_begin, count; panel < part->panel_end; panel += count) {
        const size_t first = panel * igemm->mr;
        count = qk_size_min(part->panel_end - panel, panels);
        for (size_t i = 0; i < count; i++) {
            find_panel(work, part, panel + i, &args);
            args.rows = qk_size_min(plan->shape.n - (first + i * igemm->mr), igemm->mr);
            args.sums = work->sums + i * igemm->mr;
            if (igemm->by_position)
                igemm->multiply(&args);
            else
                igemm->dot(&args);
        }
        const struct qk_matmul_columns columns = find_columns(work, part, panel, count);
        finish(work, part, 0, part->rows, first,
               qk_size_min(plan->shape.n - first, count * igemm->mr), &columns, work->sums,
               QK_MATMUL_GROUP);
    }
}

/* Finds the matrices of A and B from which product `batch` is made. */
static void locate(const struct qk_matmul_shape *shape, struct part *part)
{
    size_t left = part->batch;
    part->a_matrix = part->b_matrix = 0;
    for (uint32_t axis = shape->rank; axis > 0; axis--) {
        const size_t size = shape->dims[axis - 1];
        part->a_matrix += left % size * shape->a_strides[axis - 1];
        part->b_matrix += left % size * shape->b_strides[axis - 1];
        left /= size;
    }
}

static void run_part(const struct work *work, struct part *part)
{
    const struct qk_matmul_plan *plan = work->plan;
    const struct qk_matmul_order *order = &plan->order;
    const struct qk_igemm *igemm = plan->matmul->igemm;
    const size_t beyond = igemm->whole_steps ? part->rows : part->rows % QK_IGEMM_VECTOR;
    const size_t most = qk_matmul_dots_max(igemm, plan->shape.n);
    locate(&plan->shape, part);
    part->gathered = igemm->dot && beyond <= most ? beyond : 0;
    memset(work->rows, 0, part->rows * sizeof(*work->rows));
    if (!plan->matmul->packs)
        memset(work->columns, 0, plan->part_panels * igemm->mr * sizeof(*work->columns));
    part->end = 0;
    do {
        part->begin = part->end;
        part->end = qk_size_min(part->begin + plan->part_steps, order->steps);
        make_quads(work, part);
        if (goes_by_groups(plan, part)) {
            run_groups(work, part);
            return;
        }
        for (size_t panel = part->panel_begin; panel < part->panel_end; panel++)
            run_panel(work, part, panel);
    } while (part->end < order->steps);
}

/* Runs units [begin, end) as if they were one. They may differ only in their panels. */
static void run_units(const struct work *work, size_t begin, size_t end)
{
    const struct qk_matmul_plan *plan = work->plan;
    const struct qk_matmul_shape *shape = &plan->shape;
    const size_t last_part = (end - 1) % plan->panel_parts;
    const size_t unit = begin / plan->panel_parts;
    struct part part;
    part.panel_begin = begin % plan->panel_parts * plan->part_panels;
    part.panel_end = qk_size_min((last_part + 1) * plan->part_panels, plan->order.panels);
    part.row = unit % plan->bands * plan->band;
    part.rows = qk_size_min(shape->m - part.row, plan->band);
    const size_t first = unit / plan->bands * plan->unit_batches;
    const size_t last = first + qk_size_min(plan->unit_batches, shape->batches - first);
    for (part.batch = first; part.batch < last; part.batch++)
        run_part(work, &part);
}

void qk_matmul_run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                   void *workspace, size_t begin, size_t end)
{
    const struct qk_matmul_plan *made = plan->state;
    const struct qk_matmul_desc *desc = &made->matmul->desc;
    const struct qk_igemm *igemm = made->matmul->igemm;
    uint8_t *bytes = workspace;
    const struct work work = {
        .plan = made,
        .a = inputs[desc->a_input],
        .b = made->matmul->constant.data ? made->matmul->constant.data : inputs[desc->b_input],
        .c = desc->c_input == QK_MATMUL_NONE ? NULL : inputs[desc->c_input],
        .a_zero_point = parameter(&desc->a_zero_point, inputs),
        .b_zero_point = parameter(&desc->b_zero_point, inputs),
        .y = outputs[0],
        .quads = bytes + made->quads,
        .gathered = bytes + made->gathered,
        .panel = bytes + made->panel,
        .sums = (int32_t *)(void *)(bytes + made->sums),
        .rows = (int32_t *)(void *)(bytes + made->rows),
        .columns = (int32_t *)(void *)(bytes + made->columns),
        .tile = (int32_t *)(void *)(bytes + made->tile),
        .parameters = {(int32_t *)(void *)(bytes + made->parameters),
                       (int32_t *)(void *)(bytes + made->parameters) + QK_MATMUL_GROUP,
                       (float *)(void *)(bytes + made->parameters) + 2 * QK_MATMUL_GROUP},
    };
    if (begin < end && igemm->set_up)
        igemm->set_up(made->order.step_slabs);
    /* If a unit's quads hold all of K, the units of this call that have the same rows share them.
     * Units that differ only in their panels follow each other. */
    const bool share = made->matmul->packs && made->part_steps >= made->order.steps;
    const size_t parts = share ? made->panel_parts : 1;
    const bool any = begin < end;
    for (size_t next; begin < end; begin = next) {
        next = qk_size_min(begin - begin % parts + parts, end);
        run_units(&work, begin, next);
    }
    if (any && igemm->tear_down)
        igemm->tear_down();
}
