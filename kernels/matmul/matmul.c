/* Prepares, packs and plans matrix products (matmul.h). */
#include "kernels/matmul/matmul.h"

#include <string.h>

#include "kernels/conv/requantize.h"
#include "kernels/matmul/panels.h"
#include "kernels/sizes.h"

/* Rough guesses: the cycles that packing a byte of B takes, and a panel besides. */
#define BYTE_CYCLES 0.5
#define PANEL_CYCLES 400.0

/* Panels that are packed together. Their rows of B are a few cache lines. */
#define PACKED_TOGETHER ((size_t)8)

/* A rough guess of what a unit takes besides its work. */
#define CALL_NS 200.0

/* A constant B is packed if that takes at most this many times its own bytes, and this number of
 * bytes besides. Panels of very small matrices are mostly padding. */
#define PACKED_TIMES 8
#define PACKED_BYTES ((size_t)1 << 20)

/* The most rows of A in a unit, and the most steps of one part of K: enough for full speed, and few
 * enough to bound the workspace. */
#define BAND_MAX ((size_t)512)
#define PART_STEPS_MAX ((size_t)1024)

/* The most steps of one part of K if B is packed in the workspace. All panels of a part read the
 * same rows of B, so the pages of these 1024 rows should stay in the TLB. */
#define PACKED_STEPS_MAX ((size_t)16)
_Static_assert(PART_STEPS_MAX % QK_IGEMM_CHUNK_STEPS == 0 &&
                   PACKED_STEPS_MAX % QK_IGEMM_CHUNK_STEPS == 0,
               "a part has whole chunks");

static struct qk_matmul_order order_for(const struct qk_igemm *igemm, size_t k, size_t n)
{
    struct qk_matmul_order order = {.slabs = qk_divide_up(k, QK_IGEMM_QUAD_BYTES)};
    order.steps = qk_divide_up(order.slabs, QK_IGEMM_STEP_SLABS);
    order.step_slabs = qk_size_max(qk_size_min(order.slabs, QK_IGEMM_STEP_SLABS), 1);
    order.step_bytes = qk_igemm_step_bytes(igemm, order.step_slabs, n);
    order.panels = qk_divide_up(n, igemm->mr);
    return order;
}

/* Returns the size of `steps` steps of a panel. False if it overflows. */
static bool panel_bytes(const struct qk_igemm *igemm, size_t steps, size_t step_bytes,
                        size_t *bytes)
{
    return qk_mul_size(step_bytes, steps, bytes) &&
           !__builtin_add_overflow(*bytes, qk_igemm_order_bytes(igemm, steps), bytes);
}

/* ---- Prepare and pack -------------------------------------------------------------------- */

/* Sets *bytes to the size of all packed panels of the constant B. */
static bool packed_bytes(const struct qk_matmul *matmul, size_t *bytes)
{
    const struct qk_matmul_order *order = &matmul->order;
    return qk_mul_size(order->panel_bytes, order->panels, bytes) &&
           qk_mul_size(*bytes, matmul->constant.matrices, bytes) &&
           !__builtin_add_overflow(*bytes, QK_IGEMM_SLACK, bytes);
}

/* Takes memory for what `count` columns need. The biases lie where the sums were. */
static bool take_columns(struct qk_matmul *matmul, size_t count, struct qk_memory memory)
{
    int32_t *made = memory.alloc(memory.context, 2 * count * sizeof(*made) + 1);
    matmul->columns = (struct qk_matmul_columns){
        .zero_point = made,
        .bias = matmul->sums,
        .multiplier = made ? (float *)(void *)(made + count) : NULL,
    };
    return made;
}

/* Takes memory for the packed B, or keeps B as it is where packing would multiply its size: also
 * where K is 0, because an empty B may have any number of columns. Returns false if there is no
 * memory. */
static bool prepare_constant(struct qk_matmul *matmul, struct qk_memory memory)
{
    const struct qk_igemm *igemm = matmul->igemm;
    const struct qk_matmul_constant *b = &matmul->constant;
    struct qk_matmul_order *order = &matmul->order;
    const size_t own = b->matrices * b->k * b->n;
    size_t bytes;
    *order = order_for(igemm, b->k, b->n);
    matmul->packs = b->k > 0 &&
                    panel_bytes(igemm, order->steps, order->step_bytes, &order->panel_bytes) &&
                    packed_bytes(matmul, &bytes) && bytes <= QK_LENGTH_MAX &&
                    bytes / PACKED_TIMES <= own + PACKED_BYTES / PACKED_TIMES;
    if (matmul->packs) {
        const size_t panels = order->panels * b->matrices;
        const double cycles =
            PANEL_CYCLES + BYTE_CYCLES * (double)b->k * (double)qk_size_min(igemm->mr, b->n);
        const double ns = cycles / matmul->tuning->cycles_per_ns;
        const double fit = matmul->tuning->pack_unit_ns / ns;
        const size_t most = qk_size_max(panels, 1);
        matmul->unit_panels = fit >= (double)most
                                  ? most
                                  : qk_size_min(qk_size_max((size_t)fit, PACKED_TOGETHER), most);
        matmul->pack_unit_count = qk_divide_up(panels, matmul->unit_panels);
        matmul->pack_unit_cost_ns = (uint64_t)(ns * (double)matmul->unit_panels) + 1;
        matmul->weights = memory.alloc(memory.context, bytes);
        matmul->sums =
            memory.alloc(memory.context, (panels * igemm->mr + 1) * sizeof(*matmul->sums));
        return matmul->weights && matmul->sums &&
               (!b->columns_known || take_columns(matmul, panels * igemm->mr, memory));
    }
    if (b->stays)
        return true;
    uint8_t *kept = memory.alloc(memory.context, own + 1); /* never 0 bytes */
    if (kept && own > 0)
        memcpy(kept, b->data, own);
    matmul->constant.data = kept;
    return kept;
}

enum qk_status qk_matmul_prepare(const struct qk_matmul_desc *desc,
                                 const struct qk_matmul_constant *constant,
                                 const struct qk_matmul_tuning *tuning, struct qk_memory memory,
                                 struct qk_matmul *matmul, struct qk_error *error)
{
    *matmul = (struct qk_matmul){
        .desc = *desc,
        .kernels = tuning->kernels,
        .backend = tuning->backend,
        .igemm = tuning->backend->matrices ? tuning->backend->matrices : tuning->backend->igemm,
        .tuning = tuning->conv,
        .terms_per_ns = tuning->terms_per_ns,
    };
    if (desc->kind == QK_MATMUL_BYTES)
        matmul->requantize = qk_requantize_for(desc->y_type, desc->y_zero_point);
    if (!constant)
        return QK_OK;
    matmul->constant = *constant;
    if (!prepare_constant(matmul, memory))
        return qk_fail(error, QK_NO_MEMORY, "no memory to pack %zu weights",
                       constant->matrices * constant->k * constant->n);
    return QK_OK;
}

/* Calls `arrange`, if the kernel has it, for each chunk of the steps that are packed. */
static void arrange_slabs(const struct qk_igemm *igemm, const struct qk_matmul_order *order,
                          size_t begin, size_t end, size_t rows, uint8_t *panel)
{
    if (!igemm->arrange)
        return;
    uint8_t *to = panel + (end - begin) * order->step_bytes;
    for (size_t s = begin; s < end; s += QK_IGEMM_CHUNK_STEPS, to += QK_IGEMM_ORDER_BYTES) {
        const size_t last = qk_size_min(end, s + QK_IGEMM_CHUNK_STEPS);
        const size_t slabs = qk_size_min(order->slabs, last * QK_IGEMM_STEP_SLABS);
        igemm->arrange(panel + (s - begin) * order->step_bytes, slabs - s * QK_IGEMM_STEP_SLABS,
                       rows, to);
    }
}

/* Packs one step of a panel. */
static void pack_step(const struct qk_matmul *matmul, const uint8_t *b, size_t k, size_t n,
                      size_t panel, size_t step, uint8_t *to, int32_t *sums)
{
    const struct qk_igemm *igemm = matmul->igemm;
    const size_t step_terms = QK_IGEMM_STEP_SLABS * QK_IGEMM_QUAD_BYTES;
    const bool rows = matmul->desc.b_transposed;
    const size_t column = panel * igemm->mr;
    matmul->kernels->fill(&(struct qk_matmul_fill){
        .from = b + step * step_terms * (rows ? 1 : n) + column * (rows ? k : 1),
        .term_stride = rows ? 1 : n,
        .item_stride = rows ? k : 1,
        .terms = qk_size_min(k - step * step_terms, step_terms),
        .items = qk_size_min(n - column, igemm->mr),
        .flip = qk_matmul_flip(matmul->desc.b_type, true),
        .to = to,
        .to_slab = igemm->quad_stride,
        .to_item = igemm->row_stride,
        .pairs = igemm->pairs,
        .is_signed = true,
        .sums = sums,
    });
}

void qk_matmul_pack_panel(const struct qk_matmul *matmul, const uint8_t *b, size_t k, size_t n,
                          size_t panel, size_t begin, size_t end, uint8_t *to, int32_t *sums)
{
    const struct qk_igemm *igemm = matmul->igemm;
    const struct qk_matmul_order order = order_for(igemm, k, n);
    size_t bytes;
    if (!panel_bytes(igemm, end - begin, order.step_bytes, &bytes))
        return; /* the plan has refused that */
    memset(to, 0, bytes);
    for (size_t s = begin; s < end; s++)
        pack_step(matmul, b, k, n, panel, s, to + (s - begin) * order.step_bytes, sums);
    arrange_slabs(igemm, &order, begin, end, qk_size_min(n - panel * igemm->mr, igemm->mr), to);
}

struct qk_matmul_columns_from qk_matmul_columns_from(const struct qk_matmul *matmul,
                                                     const struct qk_matmul_shape *shape,
                                                     const uint8_t *a_zero_point,
                                                     const uint8_t *b_zero_point, size_t b_matrix,
                                                     size_t first, const int32_t *sums)
{
    const struct qk_matmul_desc *desc = &matmul->desc;
    const size_t column = b_matrix * shape->n + first;
    const uint8_t *scale = desc->kind == QK_MATMUL_INT32 ? NULL : desc->b_scale.data;
    const int32_t zero_point = !a_zero_point             ? 0
                               : desc->a_type == QK_INT8 ? (int8_t)a_zero_point[0]
                                                         : a_zero_point[0];
    if (b_zero_point && shape->zero_point_each)
        b_zero_point += column;
    if (scale && shape->scale_each)
        scale += column * sizeof(float);
    return (struct qk_matmul_columns_from){
        .sums = sums,
        .zero_point = b_zero_point,
        .zero_point_each = shape->zero_point_each,
        .zero_point_signed = desc->b_type == QK_INT8,
        .zero_point_moved = qk_matmul_moved(desc->b_type, true),
        .a_offset = zero_point - qk_matmul_moved(desc->a_type, matmul->igemm->x_signed),
        .k = shape->k,
        .scale = scale,
        .scale_each = shape->scale_each,
        .a_scale = desc->a_scale,
        .y_scale = desc->y_scale,
        .divides = desc->kind == QK_MATMUL_BYTES,
    };
}

/* Computes what the columns of panel `panel` of all matrices need. The panel is packed. */
static void make_columns(const struct qk_matmul *matmul, size_t panel)
{
    const struct qk_matmul_constant *b = &matmul->constant;
    const struct qk_matmul_shape shape = {
        .k = b->k, .n = b->n, .scale_each = b->scale_each, .zero_point_each = b->zero_point_each};
    const size_t first = panel % matmul->order.panels * matmul->igemm->mr;
    const size_t at = panel * matmul->igemm->mr;
    const struct qk_matmul_columns to = {
        matmul->columns.zero_point + at,
        matmul->columns.bias + at,
        matmul->columns.multiplier + at,
    };
    const struct qk_matmul_columns_from from = qk_matmul_columns_from(
        matmul, &shape, matmul->desc.a_zero_point.data, matmul->desc.b_zero_point.data,
        panel / matmul->order.panels, first, matmul->sums + at);
    matmul->kernels->columns(&from, qk_size_min(b->n - first, matmul->igemm->mr), &to);
}

/* Packs panels [begin, end) of one matrix, step by step, so that B is read in whole cache lines. */
static void pack_panels(const struct qk_matmul *matmul, const uint8_t *b, size_t begin, size_t end,
                        uint8_t *to, int32_t *sums)
{
    const struct qk_igemm *igemm = matmul->igemm;
    const struct qk_matmul_order *order = &matmul->order;
    const size_t k = matmul->constant.k;
    const size_t n = matmul->constant.n;
    memset(sums, 0, (end - begin) * igemm->mr * sizeof(*sums));
    memset(to, 0, (end - begin) * order->panel_bytes);
    for (size_t s = 0; s < order->steps; s++)
        for (size_t i = begin; i < end; i++)
            pack_step(matmul, b, k, n, i, s,
                      to + (i - begin) * order->panel_bytes + s * order->step_bytes,
                      sums + (i - begin) * igemm->mr);
    for (size_t i = begin; i < end; i++)
        arrange_slabs(igemm, order, 0, order->steps, qk_size_min(n - i * igemm->mr, igemm->mr),
                      to + (i - begin) * order->panel_bytes);
}

void qk_matmul_pack(const struct qk_matmul *matmul, size_t begin, size_t end)
{
    const struct qk_matmul_constant *b = &matmul->constant;
    const struct qk_matmul_order *order = &matmul->order;
    const size_t last = qk_size_min(end * matmul->unit_panels, order->panels * b->matrices);
    for (size_t i = begin * matmul->unit_panels; i < last;) {
        const size_t panel = i % order->panels;
        const size_t count =
            qk_size_min(qk_size_min(order->panels - panel, last - i), PACKED_TOGETHER);
        pack_panels(matmul, b->data + i / order->panels * b->k * b->n, panel, panel + count,
                    matmul->weights + i * order->panel_bytes, matmul->sums + i * matmul->igemm->mr);
        for (size_t j = i; j < i + count && b->columns_known; j++)
            make_columns(matmul, j);
        i += count;
    }
}

/* ---- Plan -------------------------------------------------------------------------------- */

/* Chooses how many rows of A a unit has, and how K is cut, so that a unit's quads stay in the L2
 * cache. */
static void cut_rows(struct qk_matmul_plan *made)
{
    const struct qk_conv_tuning *tuning = made->matmul->tuning;
    const struct qk_matmul_order *order = &made->order;
    const size_t nr = made->matmul->igemm->nr;
    const size_t slabs = qk_size_max(order->steps * QK_IGEMM_STEP_SLABS, 1);
    const size_t fit = tuning->quads_bytes / QK_IGEMM_QUAD_BYTES / slabs / nr * nr;
    const size_t most = qk_size_min(qk_size_max(fit, nr), BAND_MAX / nr * nr);
    made->band = qk_size_min(made->shape.m, most);
    made->bands = qk_divide_up(made->shape.m, made->band);
    /* An odd number of cache lines, so that the slabs of a position lie in all sets of the L1
     * cache. */
    made->slab_bytes =
        (qk_divide_up(made->band, QK_IGEMM_VECTOR) | 1) * QK_IGEMM_VECTOR * QK_IGEMM_QUAD_BYTES;
    /* The quads of a single tile follow each other. */
    if (made->shape.m <= nr && made->matmul->igemm->by_position)
        made->slab_bytes = made->shape.m * QK_IGEMM_QUAD_BYTES;
    const size_t steps = tuning->quads_bytes / (made->slab_bytes * QK_IGEMM_STEP_SLABS);
    made->part_steps = qk_size_min(qk_size_max(steps, 1), PART_STEPS_MAX);
    if (made->matmul->igemm->arrange) /* chunks are arranged as a whole */
        made->part_steps =
            qk_divide_up(made->part_steps, QK_IGEMM_CHUNK_STEPS) * QK_IGEMM_CHUNK_STEPS;
    if (!made->matmul->packs)
        made->part_steps = qk_size_min(made->part_steps, PACKED_STEPS_MAX);
    made->part_steps = qk_size_min(made->part_steps, qk_size_max(order->steps, 1));
}

/* Returns a guess of how long one band takes with all panels. Few rows take as long as reading the
 * weights. */
static double guess_band_ns(const struct qk_matmul_plan *made)
{
    const struct qk_matmul *matmul = made->matmul;
    const struct qk_conv_tuning *tuning = matmul->tuning;
    const double columns = (double)(made->order.panels * matmul->igemm->mr);
    const double weights = (double)made->shape.k * columns;
    const double rows = (double)made->band;
    const double read = weights / (tuning->weights_per_cycle * tuning->cycles_per_ns);
    const double products = rows * weights / matmul->terms_per_ns;
    const double packed = matmul->packs ? 0 : weights * BYTE_CYCLES / tuning->cycles_per_ns;
    return CALL_NS + (read > products ? read : products) + packed +
           rows * columns / tuning->requantized_per_ns;
}

/* Cuts the product into units. A unit has a band of A's rows and a part of B's panels, or it has
 * several small products. */
static void cut_units(struct qk_matmul_plan *made, struct qk_plan *plan)
{
    const struct qk_conv_tuning *tuning = made->matmul->tuning;
    const struct qk_igemm *igemm = made->matmul->igemm;
    const size_t panels = made->order.panels;
    const double ns = guess_band_ns(made);
    const double count = (double)made->bands * (double)made->shape.batches;
    const double fit_ns = qk_conv_unit_ns(tuning, ns * count);
    const double parts = ns / fit_ns + 0.5;
    const size_t part_count = parts >= (double)panels ? panels : qk_size_max((size_t)parts, 1);
    made->part_panels = qk_divide_up(panels, part_count);
    if (made->bands * made->shape.batches % 2 == 1)
        made->part_panels = qk_unit_items(panels, 1, made->part_panels);
    if (made->part_steps < made->order.steps) { /* the sums of all tiles wait for the next part */
        const size_t tiles = qk_divide_up(made->band, igemm->nr);
        const size_t bytes = tiles * qk_igemm_tile_sums(igemm) * sizeof(int32_t);
        made->part_panels =
            qk_size_min(made->part_panels, qk_size_max(tuning->sums_bytes / bytes, 1));
    }
    made->panel_parts = qk_divide_up(panels, made->part_panels);
    const double few = fit_ns / ns;
    made->unit_batches = 1;
    if (made->panel_parts == 1 && made->bands == 1 && few > 1)
        made->unit_batches = few >= (double)made->shape.batches ? made->shape.batches : (size_t)few;
    plan->unit_count =
        qk_divide_up(made->shape.batches, made->unit_batches) * made->bands * made->panel_parts;
    const double unit_ns = ns / (double)made->panel_parts * (double)made->unit_batches;
    plan->unit_cost_ns = unit_ns < 0x1p53 ? (uint64_t)unit_ns + 1 : UINT64_C(1) << 53;
}

/* Places a buffer at the end of the workspace and returns its offset. */
static size_t place(struct qk_plan *plan, size_t bytes)
{
    const size_t at = plan->workspace_bytes;
    plan->workspace_bytes += (bytes + 63) / 64 * 64;
    return at;
}

static void lay_out(struct qk_matmul_plan *made, struct qk_plan *plan)
{
    const struct qk_igemm *igemm = made->matmul->igemm;
    const struct qk_matmul_order *order = &made->order;
    const size_t tile = qk_igemm_tile_sums(igemm) * sizeof(int32_t);
    const size_t tiles = qk_divide_up(made->band, igemm->nr);
    const bool parts = made->part_steps < order->steps;
    size_t packed = 0;
    if (!made->matmul->packs)
        (void)panel_bytes(igemm, made->part_steps, order->step_bytes, &packed);
    made->quads = place(plan, made->part_steps * QK_IGEMM_STEP_SLABS * made->slab_bytes +
                                  QK_IGEMM_NR * QK_IGEMM_QUAD_BYTES);
    const size_t most = qk_matmul_dots_max(igemm, made->shape.n);
    const size_t group = most * QK_MATMUL_GROUP * sizeof(int32_t);
    made->sums = place(plan, qk_size_max(parts ? tile * tiles * made->part_panels : tile, group));
    made->gathered_bytes =
        made->part_steps * order->step_slabs * QK_IGEMM_QUAD_BYTES + QK_IGEMM_SLACK;
    made->gathered = place(plan, igemm->dot ? most * made->gathered_bytes : 0);
    made->panel = place(plan, packed + QK_IGEMM_SLACK);
    made->rows = place(plan, made->band * sizeof(int32_t));
    made->columns = place(plan, made->part_panels * igemm->mr * sizeof(int32_t));
    made->tile =
        place(plan, igemm->by_position ? 0 : QK_IGEMM_NR * QK_IGEMM_MR_MAX * sizeof(int32_t));
    made->parameters = place(plan, 3 * QK_MATMUL_GROUP * sizeof(int32_t));
}

/* Lists the steps of a part of K, and those of the last part, whose last step may be short. */
static const struct qk_igemm_step *list_steps(const struct qk_matmul_plan *made,
                                              struct qk_memory memory)
{
    const struct qk_matmul_order *order = &made->order;
    struct qk_igemm_step *steps =
        memory.alloc(memory.context, 2 * made->part_steps * sizeof(*steps));
    if (!steps)
        return NULL;
    for (size_t s = 0; s < 2 * made->part_steps; s++)
        steps[s] = (struct qk_igemm_step){
            .offset = (uint32_t)(s % made->part_steps * QK_IGEMM_STEP_SLABS * made->slab_bytes),
            .slabs = (uint32_t)order->step_slabs,
        };
    if (order->steps > 0)
        steps[made->part_steps + (order->steps - 1) % made->part_steps].slabs =
            (uint32_t)(order->slabs - (order->steps - 1) * QK_IGEMM_STEP_SLABS);
    return steps;
}

enum qk_status qk_matmul_plan(const struct qk_matmul *matmul, const struct qk_matmul_shape *shape,
                              struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    struct qk_matmul_plan *made = memory.alloc(memory.context, sizeof(*made));
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "no memory for the plan");
    *made = (struct qk_matmul_plan){
        .matmul = matmul,
        .shape = *shape,
        .order = order_for(matmul->igemm, shape->k, shape->n),
        .y_bytes = matmul->desc.kind == QK_MATMUL_BYTES ? 1 : sizeof(int32_t),
    };
    if (matmul->packs)
        made->order = matmul->order;
    plan->kernel = matmul->backend->matmul_kernel;
    plan->run = qk_matmul_run;
    plan->state = made;
    if (shape->batches == 0 || shape->m == 0 || shape->n == 0)
        return QK_OK;
    cut_rows(made);
    cut_units(made, plan);
    lay_out(made, plan);
    made->steps = list_steps(made, memory);
    return made->steps ? QK_OK : qk_fail(error, QK_NO_MEMORY, "no memory for the plan");
}
