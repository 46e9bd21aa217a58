/* Finds what became of each node of a file. A load keeps it for GET /v2/models/{model}/nodes, and
 * --explain prints it. */
#include <string.h>

#include "server/memory/text.h"
#include "server/models/explain/explain.h"
#include "server/models/shapes.h"

/* For dimensions behind the first that are free: what most networks for images take, and less, if
 * the graph refuses that. */
static const size_t free_sizes[] = {224, 64, 1};

struct describer {
    const struct qd_build *build;
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
        const struct qk_attribute *strides = port->strides;
        struct qk_tensor *tensor = &made->inputs[i];
        *tensor = (struct qk_tensor){.type = (enum qk_type)__builtin_ctz(port->types),
                                     .rank = port->rank};
        for (uint32_t k = 0; k < port->rank; k++) {
            const bool is_free = port->dims[k] == QD_DIM_FREE;
            tensor->dims[k] = !is_free ? (size_t)port->dims[k] : k == 0 ? 1 : size;
            made->has_free_sizes |= is_free;
            made->free_size = is_free && k > 0 ? size : made->free_size;
        }
        if (!port->shaped || !qk_tensor_set_count(tensor) ||
            (strides != NULL && !qk_tensor_set_strides(tensor, strides->list, strides->list_count)))
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
static void set_fate(struct qd_explained_node *node, const struct qk_fate *fate)
{
    static const enum qd_explained_fate fates[] = {
        [QK_FATE_KEPT] = QD_EXPLAINED_REMOVED,        [QK_FATE_FOLDED] = QD_EXPLAINED_FOLDED,
        [QK_FATE_FUSED] = QD_EXPLAINED_FUSED,         [QK_FATE_TABLE] = QD_EXPLAINED_IN_TABLE,
        [QK_FATE_CANCELLED] = QD_EXPLAINED_CANCELLED, [QK_FATE_REMOVED] = QD_EXPLAINED_REMOVED,
    };
    node->fate = fates[fate->kind];
    node->into = fate->kind == QK_FATE_KEPT ? QK_VALUE_NONE : fate->into;
}

/* Describes the nodes as the file has them. */
static void add_listed(struct describer *describer, bool is_refused)
{
    struct qd_explanation *made = describer->made;
    const struct qd_onnx_list *list = &describer->build->listed;
    for (size_t i = 0; i < list->count; i++) {
        const struct qd_onnx_listed *listed = &list->nodes[i];
        struct qd_explained_node *node = &made->nodes[i];
        *node = (struct qd_explained_node){.name = listed->name,
                                           .operator_name = listed->operator_name,
                                           .fate = QD_EXPLAINED_READ,
                                           .into = QK_VALUE_NONE,
                                           .reads = listed->reads,
                                           .read_count = listed->read_count,
                                           .refusal = listed->refusal};
        if (listed->is_refused)
            node->fate = QD_EXPLAINED_REFUSED;
        else if (listed->is_constant)
            node->fate = QD_EXPLAINED_CONSTANT;
        else if (!listed->is_needed)
            node->fate = QD_EXPLAINED_LEFT_OUT;
        else if (!is_refused)
            set_fate(node, &describer->build->call.fates[i]);
    }
}

static enum qd_explained_fate fate_of(const struct qk_node_report *report)
{
    switch (report->role) {
    case QK_NODE_MOVES_NOTHING:
        return QD_EXPLAINED_ALIAS;
    case QK_NODE_IN_PLAN:
        return QD_EXPLAINED_PLANNED;
    case QK_NODE_UNUSED:
        return QD_EXPLAINED_UNUSED;
    default:
        return report->op->is_table ? QD_EXPLAINED_TABLE : QD_EXPLAINED_OPERATOR;
    }
}

/* Describes what is left of a node. One that became several nodes runs if one of them does. */
static void add_left(struct qd_explanation *made, const struct qk_node_report *report)
{
    if (report->index >= made->node_count)
        return;
    struct qd_explained_node *node = &made->nodes[report->index];
    const enum qd_explained_fate fate = fate_of(report);
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
    const struct qk_graph_call *call = &describer->build->call;
    for (size_t i = 0; graph != NULL && i < graph->node_count; i++) {
        struct qk_node_report report;
        qk_graph_report(graph, made->is_planned ? &describer->plan : NULL, i, &report);
        add_left(made, &report);
    }
    for (size_t i = 0; graph == NULL && i < call->node_count; i++) {
        const struct qk_node *node = &call->nodes[i];
        add_left(made, &(struct qk_node_report){.index = node->number > 0 ? node->number - 1
                                                                          : QK_VALUE_NONE,
                                                .op = node->call.op,
                                                .role = QK_NODE_RUNS});
    }
}

enum qd_status qd_explain_nodes(const struct qd_build *build, const struct qd_model *model,
                                const struct qk_graph *graph, struct qd_explanation *made,
                                struct qd_error *error)
{
    struct describer describer = {.build = build, .graph = graph, .made = made};
    const size_t count = build->listed.count;
    made->nodes = qd_arena_calloc(build->scratch, count, sizeof(*made->nodes));
    if (made->nodes == NULL)
        return qd_refuse_memory(build->scratch, "the list of nodes", error);
    made->about = build->about;
    made->node_count = count;
    made->unlisted = build->listed.unlisted;
    add_listed(&describer, model == NULL);
    if (model == NULL)
        return QD_OK;
    made->signature = &model->signature;
    made->brings_constants = graph == NULL;
    qd_arena_init(&describer.plan_arena, build->memory);
    describer.plan_arena.together = build->scratch->together;
    if (graph != NULL)
        plan(&describer);
    add_all_left(&describer);
    qd_arena_deinit(&describer.plan_arena);
    return QD_OK;
}

/* ---- A loaded model's nodes ---------------------------------------------------------------- */

enum qd_status qd_explain_keep(const struct qd_build *build, struct qd_model *model,
                               const struct qk_graph *graph, struct qd_explanation *made,
                               struct qd_error *error)
{
    struct qd_text text;
    enum qd_status status = qd_explain_nodes(build, model, graph, made, error);
    if (status != QD_OK)
        return status;
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
