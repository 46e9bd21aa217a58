#include "server/models/cut_hint.h"

#include <string.h>

struct search {
    struct qd_build *build;
    const struct qd_source *source;
    struct qd_port *ports;                      /* a copy of the build's inputs, to be changed */
    size_t unknown[QK_GRAPH_PORT_COUNT_MAX];    /* inputs that are looked for */
    const char *names[QK_GRAPH_PORT_COUNT_MAX]; /* of these inputs */
    size_t count;
};

/* Lists the inputs that neither the file nor the configuration describes. */
static void list_unknown(struct search *search)
{
    const struct qd_build *build = search->build;
    const struct qd_model_config *config = build->config;
    for (size_t i = 0; i < config->cut.input_count; i++) {
        bool is_given = build->graph.call.inputs[i].type != QK_NONE && search->ports[i].shaped;
        for (size_t k = 0; k < config->input_count; k++)
            is_given |= strcmp(config->inputs[k].name, search->ports[i].name) == 0;
        if (is_given)
            continue;
        search->names[search->count] = search->ports[i].name;
        search->unknown[search->count++] = i;
    }
}

/* Takes what is known of an output of the part that is left out. */
static void take(struct search *search, size_t index, const struct qd_port *found)
{
    enum qk_type *type = &search->build->graph.call.inputs[index].type;
    struct qd_port *port = &search->ports[index];
    if ((found->types & port->types) == 0)
        return; /* another type than the readers take: what the file is says nothing */
    if (*type == QK_NONE) {
        *type = (enum qk_type)__builtin_ctz(found->types);
        port->types = found->types;
    }
    if (port->shaped || !found->shaped)
        return;
    port->shaped = true;
    port->rank = found->rank;
    memcpy(port->dims, found->dims, found->rank * sizeof(*found->dims));
}

/* Loads the nodes before unknown inputs [first, first + count), without packing them. Returns false
 * if that does not work. */
static bool look_before(struct search *search, size_t first, size_t count)
{
    const struct qd_build *build = search->build;
    const struct qd_onnx_cut before = {.outputs = &search->names[first], .output_count = count};
    struct qd_arena arena;
    struct qd_model *model;
    uint32_t refused_node;
    /* The file is read again, but hardly its weights, which are most of it. */
    if (!qd_build_try(build->work, QD_TRIED_FILE_NODES, search->source->content.count / 4))
        return false;
    qd_arena_init_beside(&arena, build->scratch);
    const enum qd_status status =
        qd_build_part(build, search->source, &before, 0, &arena, &model, &refused_node);
    for (size_t i = 0; i < count && status == QD_OK; i++)
        take(search, search->unknown[first + i], &model->signature.outputs[i]);
    qd_model_release(model);
    qd_arena_deinit(&arena);
    return status == QD_OK;
}

void qd_cut_inputs_describe(struct qd_build *build, const struct qd_source *source)
{
    struct search search = {.build = build, .source = source};
    const size_t bytes = build->graph.call.input_count * sizeof(*search.ports);
    if (source->kind != QD_SOURCE_ONNX || build->config->cut.input_count == 0)
        return;
    search.ports = qd_arena_alloc(build->scratch, bytes);
    if (search.ports == NULL)
        return;
    memcpy(search.ports, build->graph.inputs, bytes);
    build->graph.inputs = search.ports;
    list_unknown(&search);
    if (search.count == 0 || look_before(&search, 0, search.count))
        return;
    for (size_t i = 0; i < search.count && search.count > 1; i++)
        look_before(&search, i, 1);
}
