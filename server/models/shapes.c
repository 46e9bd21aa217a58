#include "server/models/plans.h"

#include <string.h>

#include "server/json/tree.h"
#include "server/memory/text.h"

/* The sizes that stand for a free dimension. If an output's dimension is the same with one of the
 * small sizes and with the far one, it does not depend on the free dimension, because no model has
 * strides that would take a million elements in one step. The first small size is larger than most
 * kernels, and the second is larger than nearly all. The last one is so small that the product of
 * the dimensions fits in 64 bits for any rank. */
static const size_t small_sizes[] = {61, 1021, 2};
#define FAR_SIZE ((size_t)1 << 20)
#define NO_AXIS UINT32_MAX

struct search {
    const struct qk_graph *graph;
    const struct qd_port *inputs;
    struct qd_memory *memory;
    struct qd_arena arena; /* of the plan that is tried */
    size_t *planned_bytes;
    struct qk_tensor tensors[QK_GRAPH_PORT_COUNT_MAX];
    struct qk_error refusal; /* of a rank; the status is QK_OK if there is none */
    bool has_others; /* a size was refused for anything else, such as a lack of memory, or for
                        another rank: sizes decide which rank onnx.Squeeze makes */
    /* The ranks and dimensions of outputs that are known. */
    struct qd_port found[QK_GRAPH_PORT_COUNT_MAX];
};

static void *alloc(void *context, size_t bytes)
{
    struct search *search = context;
    if (bytes > QD_SHAPES_BYTES_MAX - *search->planned_bytes)
        return NULL;
    *search->planned_bytes += bytes;
    return qd_arena_alloc(&search->arena, bytes);
}

/* ---- Inputs ------------------------------------------------------------------------------- */

static bool any_is_free(const struct search *search, uint32_t axis)
{
    for (size_t i = 0; i < search->graph->input_count; i++)
        if (axis < search->inputs[i].rank && search->inputs[i].dims[axis] == QD_DIM_FREE)
            return true;
    return false;
}

static bool all_are_shaped(const struct search *search)
{
    for (size_t i = 0; i < search->graph->input_count; i++)
        if (!search->inputs[i].shaped)
            return false;
    return true;
}

/* Sets `tensors` to the inputs' shapes. Returns false if a tensor would be too large. */
static bool set_tensors(struct search *search, size_t size, uint32_t far_axis)
{
    bool done = true;
    for (size_t i = 0; i < search->graph->input_count && done; i++)
        done =
            qd_port_make_tensor(&search->inputs[i], size, far_axis, FAR_SIZE, &search->tensors[i]);
    return done;
}

/* ---- Outputs ------------------------------------------------------------------------------ */

static void take_shapes(struct search *search, const struct qk_graph_plan *plan)
{
    for (size_t i = 0; i < plan->output_count; i++) {
        const struct qk_tensor *tensor = &plan->outputs[i];
        struct qd_port *port = &search->found[i];
        port->shaped = true;
        port->rank = tensor->rank;
        for (uint32_t k = 0; k < tensor->rank; k++)
            port->dims[k] = (int64_t)tensor->dims[k];
    }
}

/* Marks the dimensions that differ in this plan as free. A NULL plan could not be made, so all
 * dimensions become free. If the number of dimensions differs, the output has no shape: nodes may
 * compute it from sizes. */
static void forget_others(struct search *search, const struct qk_graph_plan *plan)
{
    for (size_t i = 0; i < search->graph->output_count; i++) {
        struct qd_port *port = &search->found[i];
        port->shaped = port->shaped && (plan == NULL || plan->outputs[i].rank == port->rank);
        if (!port->shaped)
            continue;
        for (uint32_t k = 0; k < port->rank; k++)
            if (plan == NULL || port->dims[k] != (int64_t)plan->outputs[i].dims[k])
                port->dims[k] = QD_DIM_FREE;
    }
}

static enum qd_status refuse_shape(const struct qd_port *found, const struct qd_port *declared,
                                   size_t index, struct qd_error *error)
{
    char made[160];
    char got[160];
    qd_print_integers(found->dims, found->rank, made, sizeof(made));
    qd_print_integers(declared->dims, declared->rank, got, sizeof(got));
    return qd_fail(error, QD_INVALID,
                   "output %zu (%s): shape: expected %s, which the graph makes of its inputs, got "
                   "%s",
                   index, qd_show_string(declared->name).text, made, got);
}

static enum qd_status settle_output(const struct qd_port *found, struct qd_port *port, size_t index,
                                    struct qd_error *error)
{
    const struct qd_port declared = *port;
    if (!found->shaped)
        return QD_OK;
    if (!port->shaped) {
        port->shaped = true;
        port->rank = found->rank;
        for (uint32_t k = 0; k < found->rank; k++)
            port->dims[k] = QD_DIM_FREE;
    }
    if (port->rank != found->rank)
        return refuse_shape(found, &declared, index, error);
    for (uint32_t k = 0; k < found->rank; k++) {
        if (found->dims[k] == QD_DIM_FREE)
            continue;
        if (port->dims[k] != QD_DIM_FREE && port->dims[k] != found->dims[k])
            return refuse_shape(found, &declared, index, error);
        port->dims[k] = found->dims[k];
    }
    return QD_OK;
}

static enum qd_status settle_outputs(const struct search *search, struct qd_port *outputs,
                                     struct qd_error *error)
{
    enum qd_status status = QD_OK;
    for (size_t i = 0; i < search->graph->output_count && status == QD_OK; i++)
        status = settle_output(&search->found[i], &outputs[i], i, error);
    return status;
}

/* ---- Plans -------------------------------------------------------------------------------- */

static enum qd_status refuse_graph(const struct qk_error *cause, uint32_t *refused_node,
                                   struct qd_error *error)
{
    *refused_node = cause->node;
    return qd_fail(error, QD_INVALID, "with inputs of the declared shapes: %s", cause->text);
}

/* Plans the graph with the declared shapes, which are fully known, as a request would. */
static enum qd_status plan_known(struct search *search, struct qd_plans *plans,
                                 struct qd_port *outputs, uint32_t *refused_node,
                                 struct qd_error *error)
{
    struct qd_pin pin = {.plan = NULL};
    struct qk_error cause = {.status = QK_OK};
    struct qd_arena arena;
    if (!set_tensors(search, 0, NO_AXIS))
        return qd_fail(error, QD_INVALID, "inputs: expected shapes whose sizes fit in 64 bits");
    qd_arena_init(&arena, search->memory);
    enum qk_status planned = qd_plans_pin(plans, search->tensors, &arena, &pin, &cause);
    if (planned == QK_OK)
        take_shapes(search, pin.plan);
    qd_plans_unpin(plans, &pin);
    qd_arena_deinit(&arena);
    if (planned == QK_OK)
        return settle_outputs(search, outputs, error);
    return planned == QK_INVALID ? refuse_graph(&cause, refused_node, error) : QD_OK;
}

/* Plans the graph with these sizes. Returns false if the graph refuses them or there is no memory
 * for the plan. */
static bool try_sizes(struct search *search, size_t size, uint32_t far_axis)
{
    struct qk_error cause = {.status = QK_OK};
    struct qk_graph_plan plan;
    if (!set_tensors(search, size, far_axis)) {
        search->has_others = true;
        return false;
    }
    qd_arena_init(&search->arena, search->memory);
    bool planned = qk_graph_plan(search->graph, search->tensors, (struct qk_memory){alloc, search},
                                 &plan, &cause) == QK_OK;
    if (planned && far_axis == NO_AXIS)
        take_shapes(search, &plan);
    else if (planned)
        forget_others(search, &plan);
    else if (!cause.is_of_rank ||
             (search->refusal.status != QK_OK && strcmp(search->refusal.text, cause.text) != 0))
        search->has_others = true;
    else
        search->refusal = cause;
    qd_arena_deinit(&search->arena);
    return planned;
}

/* Returns whether no sizes would do: the graph also refuses axes of one element, and the far size
 * along each axis, and always because of the same rank. */
static bool refuses_ranks(struct search *search)
{
    bool is_refused = !try_sizes(search, 1, NO_AXIS);
    for (uint32_t axis = 0; axis < QK_RANK_MAX && is_refused && !search->has_others; axis++)
        is_refused = !any_is_free(search, axis) || !try_sizes(search, small_sizes[0], axis);
    return is_refused && !search->has_others;
}

/* Finds the outputs' shapes if some input dimensions are free. */
static enum qd_status plan_free(struct search *search, struct qd_port *outputs,
                                uint32_t *refused_node, struct qd_error *error)
{
    const size_t count = sizeof(small_sizes) / sizeof(*small_sizes);
    size_t at = 0;
    while (at < count && !try_sizes(search, small_sizes[at], NO_AXIS))
        at++;
    if (at == count)
        return refuses_ranks(search) ? refuse_graph(&search->refusal, refused_node, error) : QD_OK;
    for (uint32_t axis = 0; axis < QK_RANK_MAX; axis++)
        if (any_is_free(search, axis) && !try_sizes(search, small_sizes[at], axis))
            forget_others(search, NULL);
    return settle_outputs(search, outputs, error);
}

enum qd_status qd_shapes_settle(struct qd_plans *plans, const struct qk_graph *graph,
                                const struct qd_port *inputs, struct qd_port *outputs,
                                struct qd_memory *memory, size_t *planned_bytes,
                                uint32_t *refused_node, struct qd_error *error)
{
    struct search search = {
        .graph = graph, .inputs = inputs, .memory = memory, .planned_bytes = planned_bytes};
    if (!all_are_shaped(&search))
        return QD_OK;
    uint32_t axis = 0;
    while (axis < QK_RANK_MAX && !any_is_free(&search, axis))
        axis++;
    return axis == QK_RANK_MAX ? plan_known(&search, plans, outputs, refused_node, error)
                               : plan_free(&search, outputs, refused_node, error);
}
