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
    build.lists_nodes = false;
    enum qd_status status = qd_build_read(&build, source, &error);
    if (status == QD_OK)
        status = qd_build_prepare(&build, &model, &graph, &error);
    qd_model_release(model);
    *node = build.refused_node;
    return status;
}

/* A text that grows. */
struct text {
    char *bytes;
    size_t size;
    size_t count;
    bool is_full;
};

static void put(struct text *text, const char *string)
{
    const size_t bytes = strlen(string);
    text->is_full |= text->count + bytes >= text->size;
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

/* Adds what a part's configuration is, and how many nodes it runs. */
static void add(struct qd_cut_hints *hints, const struct qd_onnx_part *part, size_t node_count)
{
    const struct qd_onnx_cut *cut = &part->cut;
    struct qd_cut_hint *hint = &hints->list[hints->count];
    struct text text = {.bytes = hint->config, .size = sizeof(hint->config)};
    put(&text, "{");
    put_names(&text, "inputs", cut->inputs, cut->input_count);
    put(&text, cut->input_count > 0 && cut->output_count > 0 ? ", " : "");
    put_names(&text, "outputs", cut->outputs, cut->output_count);
    put(&text, "}");
    hint->node_count = part->node_count;
    hints->node_count = node_count;
    hints->count += !text.is_full;
}

/* Finds one of the two parts that loads, and adds it. Adds nothing if there is none. The node that
 * the file is refused for counts as refused from the start: a node whose operator quantd has, but
 * which cannot be prepared, would otherwise be in the part before, and no node behind it. */
static void add_side(const struct qd_build *refused, const struct qd_source *source, bool is_after,
                     struct qd_cut_hints *hints)
{
    uint32_t nodes[1 + ATTEMPTS_MAX] = {refused->refused_node};
    struct qd_source inner = *source; /* data of other files have not been read yet */
    inner.content.external = NULL;
    inner.content.cut = refused->config->cut;
    for (size_t i = 0; i < ATTEMPTS_MAX; i++) {
        struct qd_arena arena;
        struct qd_onnx_parts parts;
        enum qd_status status = QD_INTERNAL;
        qd_arena_init(&arena, refused->scratch->memory);
        arena.together = refused->scratch->together;
        nodes[1 + i] = QK_VALUE_NONE;
        /* Parts are found by reading each node of the file, and then loaded. Most of a file is
         * weights, which are hardly read. */
        if (qd_build_try(refused->work, QD_TRIED_FILE_NODES, inner.content.count / 4) &&
            qd_onnx_find_parts(&inner.content, nodes, 1 + i, &arena, &parts)) {
            const struct qd_onnx_part *part = is_after ? &parts.after : &parts.before;
            if (part->node_count > 0)
                status = load(refused, &inner, &part->cut, &arena, &nodes[1 + i]);
            if (status == QD_OK)
                add(hints, part, parts.node_count);
        }
        qd_arena_deinit(&arena);
        if (status != QD_INVALID || nodes[1 + i] == QK_VALUE_NONE)
            return;
    }
}

void qd_cut_hints_find(const struct qd_build *refused, const struct qd_source *source,
                       const struct qd_error *error, struct qd_cut_hints *hints)
{
    hints->count = 0;
    if (error->status != QD_INVALID || source->kind != QD_SOURCE_ONNX ||
        refused->refused_node == QK_VALUE_NONE)
        return;
    for (int after = 0; after < QD_CUT_HINTS_MAX; after++)
        add_side(refused, source, after == 1, hints);
}

void qd_cut_hints_print(const struct qd_cut_hints *hints, size_t bytes_max, struct qd_error *error)
{
    const size_t used = strlen(error->text);
    const size_t size = bytes_max < sizeof(error->text) ? bytes_max : sizeof(error->text);
    bool is_first = true;
    if (used >= size)
        return;
    struct text text = {.bytes = error->text + used, .size = size - used};
    for (size_t i = 0; i < hints->count; i++) {
        const struct text before = text;
        char nodes[96];
        put(&text, is_first ? "; the configuration " : ", ");
        put(&text, hints->list[i].config);
        if (is_first)
            snprintf(nodes, sizeof(nodes), " runs %zu of the %zu nodes that depend on inputs",
                     hints->list[i].node_count, hints->node_count);
        else
            snprintf(nodes, sizeof(nodes), " runs %zu", hints->list[i].node_count);
        put(&text, nodes);
        is_first = is_first && text.is_full;
        if (text.is_full)
            text = before;
        text.bytes[text.count] = '\0';
    }
}
