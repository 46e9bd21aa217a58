/* Finds what became of each node of a file. A load keeps it for GET /v2/models/{model}/nodes, and
 * --explain prints it. */
#include <string.h>

#include "server/memory/text.h"
#include "server/models/explain/explain.h"

/* For dimensions behind the first that are free: what most networks for images take, and less, if
 * the graph refuses that. */
static const size_t free_sizes[] = {224, 64, 1};

struct describer {
    struct qd_build *build;
    const struct qk_graph *graph;
    struct qd_explanation *made;
    struct qd_arena plan_arena;
    struct qk_graph_plan plan;
};

/* ---- A plan -------------------------------------------------------------------------------- */

static void *alloc(void *context, size_t bytes)
{
    struct describer *describer = context;
    size_t *planned_bytes = &describer->build->work->planned_bytes;
    if (bytes > QD_SHAPES_BYTES_MAX - *planned_bytes)
        return NULL;
    *planned_bytes += bytes;
    return qd_arena_alloc(&describer->plan_arena, bytes);
}

/* Sets the shapes of the inputs. The first dimension is 1 where it is free, and the others are
 * `size`. Returns false if an input has no shape, or one that is too large. */
static bool set_inputs(struct qd_explanation *made, size_t size)
{
    const struct qd_signature *signature = made->signature;
    made->has_free_sizes = false;
    made->free_size = 0;
    for (size_t i = 0; i < signature->input_count; i++) {
        const struct qd_port *port = &signature->inputs[i];
        for (uint32_t k = 0; k < port->rank; k++) {
            const bool is_free = port->dims[k] == QD_DIM_FREE;
            made->has_free_sizes |= is_free;
            made->free_size = is_free && k > 0 ? size : made->free_size;
        }
        if (!port->shaped || !qd_port_make_tensor(port, size, 0, 1, &made->inputs[i]))
            return false;
    }
    return true;
}

/* Copies a text. Returns "" if the arena has no room. */
static const char *copy(struct qd_arena *arena, const char *text)
{
    const char *made = qd_arena_copy(arena, text);
    return made == NULL ? "" : made;
}

/* Plans the graph with sizes that it takes. */
static void plan(struct describer *describer)
{
    struct qd_explanation *made = describer->made;
    const struct qk_memory memory = {alloc, describer};
    struct qk_error error = {.text = "an input has no shape"};
    const size_t count = sizeof(free_sizes) / sizeof(free_sizes[0]);
    for (size_t i = 0; i < count && !made->is_planned; i++) {
        qd_arena_deinit(&describer->plan_arena);
        if (!set_inputs(made, free_sizes[i]))
            break;
        made->is_planned = qk_graph_plan(describer->graph, made->inputs, memory, &describer->plan,
                                         &error) == QK_OK;
        if (made->free_size == 0)
            break;
    }
    made->scratch_bytes = made->is_planned ? describer->plan.scratch_bytes : 0;
    made->workspace_bytes = made->is_planned ? describer->plan.workspace_bytes : 0;
    made->why_unplanned = made->is_planned ? NULL : copy(describer->build->scratch, error.text);
}

/* ---- Nodes --------------------------------------------------------------------------------- */

/* What lowering did with a node that the graph does not have any more. */
static void set_fate(struct qd_onnx_listed *node, const struct qk_fate *fate)
{
    static const enum qd_onnx_fate fates[] = {
        [QK_FATE_KEPT] = QD_FATE_REMOVED,        [QK_FATE_FOLDED] = QD_FATE_FOLDED,
        [QK_FATE_FUSED] = QD_FATE_FUSED,         [QK_FATE_TABLE] = QD_FATE_IN_TABLE,
        [QK_FATE_CANCELLED] = QD_FATE_CANCELLED, [QK_FATE_REMOVED] = QD_FATE_REMOVED,
    };
    node->fate = fates[fate->kind];
    node->into = fate->kind == QK_FATE_KEPT ? QK_VALUE_NONE : fate->into;
}

static enum qd_onnx_fate fate_of(const struct qk_node_report *report)
{
    switch (report->role) {
    case QK_NODE_MOVES_NOTHING:
        return QD_FATE_ALIAS;
    case QK_NODE_IN_PLAN:
        return QD_FATE_PLANNED;
    case QK_NODE_UNUSED:
        return QD_FATE_UNUSED;
    default:
        return report->op->is_table ? QD_FATE_TABLE : QD_FATE_OPERATOR;
    }
}

/* Describes what is left of a node. One that became several nodes runs if one of them does. */
static void add_left(struct describer *describer, const struct qk_node_report *report)
{
    struct qd_explanation *made = describer->made;
    const struct qd_onnx_list *list = &describer->build->listed;
    if (report->index >= list->count)
        return;
    struct qd_onnx_listed *node = &list->nodes[report->index];
    const enum qd_onnx_fate fate = fate_of(report);
    if (node->runs_as == NULL || fate < node->fate) {
        node->fate = fate;
        node->into = QK_VALUE_NONE;
        node->runs_as = report->op->name;
        node->kernel = report->kernel;
    }
    if (__builtin_add_overflow(node->multiplications, report->multiplications,
                               &node->multiplications))
        node->multiplications = UINT64_MAX;
    if (__builtin_add_overflow(made->multiplications, report->multiplications,
                               &made->multiplications))
        made->multiplications = UINT64_MAX;
}

static void add_all_left(struct describer *describer)
{
    struct qd_explanation *made = describer->made;
    const struct qk_graph *graph = describer->graph;
    const struct qk_graph_call *call = &describer->build->graph.call;
    for (size_t i = 0; graph != NULL && i < graph->node_count; i++) {
        struct qk_node_report report;
        qk_graph_report(graph, made->is_planned ? &describer->plan : NULL, i, &report);
        add_left(describer, &report);
    }
    for (size_t i = 0; graph == NULL && i < call->node_count; i++) {
        const struct qk_node *node = &call->nodes[i];
        add_left(describer, &(struct qk_node_report){.index = node->number > 0 ? node->number - 1
                                                                               : QK_VALUE_NONE,
                                                     .op = node->call.op,
                                                     .role = QK_NODE_RUNS});
    }
}

static void describe(struct describer *describer, const struct qd_model *model)
{
    struct qd_build *build = describer->build;
    struct qd_explanation *made = describer->made;
    made->about = build->about;
    made->list = &build->listed;
    for (size_t i = 0; i < build->listed.count; i++)
        if (build->listed.nodes[i].fate == QD_FATE_READ)
            set_fate(&build->listed.nodes[i], &build->graph.call.fates[i]);
    made->signature = &model->signature;
    made->brings_constants = describer->graph == NULL;
    qd_arena_init_beside(&describer->plan_arena, build->scratch);
    if (describer->graph != NULL)
        plan(describer);
    add_all_left(describer);
    qd_arena_deinit(&describer->plan_arena);
}

/* ---- A loaded model's nodes ---------------------------------------------------------------- */

enum qd_status qd_explain_keep(struct qd_build *build, struct qd_model *model,
                               const struct qk_graph *graph, struct qd_explanation *made,
                               struct qd_error *error)
{
    struct describer describer = {.build = build, .graph = graph, .made = made};
    struct qd_text text;
    describe(&describer, model);
    qd_text_init(&text, build->scratch);
    qd_explanation_put_nodes(&text, made, QD_KEPT_NODES_BYTES_MAX);
    char *bytes = text.failed ? NULL : qd_arena_alloc(&model->arena, text.bytes);
    if (bytes == NULL)
        return qd_refuse_memory(&model->arena, "the list of nodes", error);
    model->nodes = (struct qd_part){bytes, text.bytes};
    for (size_t i = 0; i < text.part_count; i++) {
        memcpy(bytes, text.parts[i].bytes, text.parts[i].count);
        bytes += text.parts[i].count;
    }
    model->resident_bytes = made->resident_bytes = model->arena.bytes;
    return QD_OK;
}
