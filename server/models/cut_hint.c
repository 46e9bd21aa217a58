#include "server/models/cut_hint.h"

#include <stdio.h>
#include <string.h>

#include "server/models/onnx/onnx_parts.h"

/* How often a part is tried, each time without one node more that was refused. Networks have few
 * kinds of nodes, so most parts load at once. */
enum { ATTEMPTS_MAX = 8 };

/* Loads a part without packing it. If a node is refused, sets *node to it. */
static enum qd_status load(const struct qd_build *refused, const struct qd_source *source,
                           const struct qd_onnx_cut *cut, struct qd_arena *arena, uint32_t *node)
{
    struct qd_error error = {.status = QD_OK};
    struct qd_model_config config;
    struct qd_build build = *refused;
    struct qd_model *model = NULL;
    struct qk_graph *graph;
    qd_model_config_init(&config);
    config.batch_max = refused->config->batch_max;
    config.cut = *cut;
    build.config = &config;
    build.scratch = arena;
    enum qd_status status = qd_build_read(&build, source, &error);
    if (status == QD_OK)
        status = qd_build_prepare(&build, &model, &graph, &error);
    qd_model_release(model);
    *node = build.refused_node;
    return status;
}

/* A text that grows. */
struct text {
    char bytes[sizeof(((struct qd_error *)NULL)->text)];
    size_t count;
    bool is_full;
};

static void put(struct text *text, const char *string)
{
    const size_t bytes = strlen(string);
    text->is_full |= text->count + bytes >= sizeof(text->bytes);
    if (text->is_full)
        return;
    memcpy(text->bytes + text->count, string, bytes + 1);
    text->count += bytes;
}

/* Puts a list of the configuration. Nothing is escaped: names that would have to be are no part of
 * a hint. */
static void put_names(struct text *text, const char *key, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        for (const char *at = names[i]; *at != '\0'; at++)
            text->is_full |= (unsigned char)*at < ' ' || *at == '"' || *at == '\\';
        put(text, i == 0 ? "\"" : ", ");
        put(text, i == 0 ? key : "");
        put(text, i == 0 ? "\": [\"" : "\"");
        put(text, names[i]);
        put(text, "\"");
    }
    put(text, count == 0 ? "" : "]");
}

/* Puts what a part's configuration is, and how many nodes it runs. */
static void put_part(struct text *text, const struct qd_onnx_part *part, bool is_first,
                     size_t node_count)
{
    const struct qd_onnx_cut *cut = &part->cut;
    char nodes[96];
    put(text, is_first ? "; the configuration {" : ", {");
    put_names(text, "inputs", cut->inputs, cut->input_count);
    put(text, cut->input_count > 0 && cut->output_count > 0 ? ", " : "");
    put_names(text, "outputs", cut->outputs, cut->output_count);
    if (is_first)
        snprintf(nodes, sizeof(nodes), "} runs %zu of the %zu nodes that depend on inputs",
                 part->node_count, node_count);
    else
        snprintf(nodes, sizeof(nodes), "} runs %zu", part->node_count);
    put(text, nodes);
}

/* Finds one of the two parts that loads, and puts it into the text. Puts nothing if there is none.
 */
static void put_side(const struct qd_build *refused, const struct qd_source *source, bool is_after,
                     bool is_first, struct text *text)
{
    uint32_t nodes[ATTEMPTS_MAX];
    struct qd_source inner = *source; /* data of other files have not been read yet */
    inner.content.external = NULL;
    inner.content.cut = refused->config->cut;
    for (size_t i = 0; i < ATTEMPTS_MAX; i++) {
        struct qd_arena arena;
        struct qd_onnx_parts parts;
        enum qd_status status = QD_INTERNAL;
        qd_arena_init(&arena, refused->scratch->memory);
        arena.together = refused->scratch->together;
        nodes[i] = QK_VALUE_NONE;
        /* Parts are found by reading each node of the file, and then loaded. Most of a file is
         * weights, which are hardly read. */
        if (qd_build_try(refused->work, 2 * QK_GRAPH_NODE_COUNT_MAX, inner.content.count / 4) &&
            qd_onnx_find_parts(&inner.content, nodes, i, &arena, &parts)) {
            const struct qd_onnx_part *part = is_after ? &parts.after : &parts.before;
            if (part->node_count > 0)
                status = load(refused, &inner, &part->cut, &arena, &nodes[i]);
            if (status == QD_OK)
                put_part(text, part, is_first, parts.node_count);
        }
        qd_arena_deinit(&arena);
        if (status != QD_INVALID || nodes[i] == QK_VALUE_NONE)
            return;
    }
}

void qd_cut_hint_add(const struct qd_build *refused, const struct qd_source *source,
                     size_t bytes_max, struct qd_error *error)
{
    struct text hint = {.count = 0};
    const size_t used = strlen(error->text);
    if (error->status != QD_INVALID || source->kind != QD_SOURCE_ONNX ||
        refused->refused_node == QK_VALUE_NONE || used >= bytes_max)
        return;
    for (int after = 0; after < 2; after++) {
        struct text with = hint;
        put_side(refused, source, after == 1, hint.count == 0, &with);
        if (!with.is_full && used + with.count < bytes_max)
            hint = with;
    }
    const size_t room = sizeof(error->text) - used;
    snprintf(error->text + used, room, "%s", hint.bytes);
}
