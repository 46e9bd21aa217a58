#include "server/models/cut_hint.h"

#include <stdio.h>
#include <string.h>

#include "server/memory/text.h"

/* How often a part is tried, each time without one node more that was refused. Networks have few
 * kinds of nodes, so most parts load at once. */
enum { ATTEMPTS_MAX = 8 };

/* Puts a list of the configuration. Nothing is escaped: names that would have to be are no part of
 * a hint. */
static void put_names(struct qd_text *text, const char *key, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        for (const char *at = names[i]; *at != '\0'; at++)
            text->failed |= (unsigned char)*at < ' ' || *at == '"' || *at == '\\';
        qd_text_string(text, i == 0 ? "\"" : ", ");
        qd_text_string(text, i == 0 ? key : "");
        qd_text_string(text, i == 0 ? "\": [\"" : "\"");
        qd_text_string(text, names[i]);
        qd_text_string(text, "\"");
    }
    qd_text_string(text, count == 0 ? "" : "]");
}

/* Adds what a part's configuration is, and how many nodes it runs. */
static void add(struct qd_cut_hints *hints, const struct qd_onnx_part *found, size_t node_count)
{
    const struct qd_onnx_cut *cut = &found->cut;
    struct qd_cut_hint *hint = &hints->list[hints->count];
    struct qd_text text;
    qd_text_init_in(&text, hint->config, sizeof(hint->config) - 1);
    qd_text_string(&text, "{");
    put_names(&text, "inputs", cut->inputs, cut->input_count);
    qd_text_string(&text, cut->input_count > 0 && cut->output_count > 0 ? ", " : "");
    put_names(&text, "outputs", cut->outputs, cut->output_count);
    qd_text_string(&text, "}");
    hint->config[text.bytes] = '\0';
    hint->node_count = found->node_count;
    hints->node_count = node_count;
    hints->count += !text.failed;
}

/* Finds one of the two parts that loads, and adds it. Adds nothing if there is none. The node that
 * the file is refused for counts as refused from the start: a node whose operator quantd has, but
 * which cannot be prepared, would otherwise be in the part before, and no node behind it. */
static void add_side(const struct qd_build *refused, const struct qd_source *source, bool is_after,
                     struct qd_cut_hints *hints)
{
    uint32_t nodes[1 + ATTEMPTS_MAX] = {refused->graph.refused_node};
    struct qd_source inner = *source;
    inner.content.external = NULL;
    inner.content.cut = refused->config->cut;
    for (size_t i = 0; i < ATTEMPTS_MAX; i++) {
        struct qd_arena arena;
        struct qd_onnx_parts parts;
        struct qd_model *model = NULL;
        enum qd_status status = QD_INTERNAL;
        qd_arena_init_beside(&arena, refused->scratch);
        nodes[1 + i] = QK_VALUE_NONE;
        /* Parts are found by reading each node of the file, and then loaded. Most of a file is
         * weights, which are hardly read. */
        if (qd_build_try(refused->work, QD_TRIED_FILE_NODES, inner.content.count / 4) &&
            qd_onnx_find_parts(&inner.content, nodes, 1 + i, &arena, &parts)) {
            const struct qd_onnx_part *part = is_after ? &parts.after : &parts.before;
            if (part->node_count > 0)
                status = qd_build_part(refused, &inner, &part->cut, refused->config->batch_max,
                                       &arena, &model, &nodes[1 + i]);
            if (status == QD_OK)
                add(hints, part, parts.node_count);
        }
        qd_model_release(model);
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
        refused->graph.refused_node == QK_VALUE_NONE)
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
    for (size_t i = 0; i < hints->count; i++) {
        const size_t begin = strlen(error->text);
        struct qd_text text;
        char nodes[96];
        qd_text_init_in(&text, error->text + begin, size - begin - 1);
        qd_text_string(&text, is_first ? "; the configuration " : ", ");
        qd_text_string(&text, hints->list[i].config);
        if (is_first)
            snprintf(nodes, sizeof(nodes), " runs %zu of the %zu nodes that depend on inputs",
                     hints->list[i].node_count, hints->node_count);
        else
            snprintf(nodes, sizeof(nodes), " runs %zu", hints->list[i].node_count);
        qd_text_string(&text, nodes);
        is_first = is_first && text.failed;
        error->text[text.failed ? begin : begin + text.bytes] = '\0';
    }
}
