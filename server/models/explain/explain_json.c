/* Prints an explanation as a JSON object. */
#include <string.h>

#include "server/memory/text.h"
#include "server/models/explain/explain.h"

static const char *const fate_names[] = {
#define X(name, json, words) json,
    QD_FATE_LIST(X)
#undef X
};

/* The most bytes that a node's JSON takes beside strings of the file and `reads`, and the member
 * `unlisted_nodes`. */
enum { NODE_BYTES_MAX = 512 };

static void put_key(struct qd_text *text, const char *key)
{
    qd_text_string(text, ",\"");
    qd_text_string(text, key);
    qd_text_string(text, "\":");
}

static void put_string(struct qd_text *text, const char *key, const char *string)
{
    put_key(text, key);
    qd_text_json_string(text, string);
}

static void put_number(struct qd_text *text, const char *key, uint64_t number)
{
    put_key(text, key);
    qd_text_decimal(text, number);
}

static void put_ports(struct qd_text *text, const char *key, const struct qd_port *ports,
                      size_t count)
{
    put_key(text, key);
    for (size_t i = 0; i < count; i++) {
        const struct qd_port *port = &ports[i];
        qd_text_string(text, i == 0 ? "[{\"name\":" : ",{\"name\":");
        qd_text_json_string(text, port->name);
        if (port->types != 0)
            put_string(text, "datatype",
                       qk_type_info((enum qk_type)__builtin_ctz(port->types))->name);
        for (uint32_t k = 0; port->shaped && k < port->rank; k++)
            qd_text_format(text, "%s%lld", k == 0 ? ",\"shape\":[" : ",", (long long)port->dims[k]);
        if (port->shaped)
            qd_text_string(text, port->rank == 0 ? ",\"shape\":[]" : "]");
        qd_text_string(text, "}");
    }
    qd_text_string(text, count == 0 ? "[]" : "]");
}

static void put_node(struct qd_text *text, const struct qd_onnx_listed *node, size_t index)
{
    qd_text_format(text, "%s\n{\"index\":%zu", index == 0 ? "" : ",", index);
    put_string(text, "name", node->name);
    put_string(text, "operator", node->operator_name);
    put_string(text, "fate", fate_names[node->fate]);
    if (node->into != QK_VALUE_NONE)
        put_number(text, "into", node->into);
    for (size_t i = 0; i < node->read_count; i++) {
        qd_text_string(text, i == 0 ? ",\"reads\":[" : ",");
        qd_text_decimal(text, node->reads[i]);
    }
    qd_text_string(text, node->read_count == 0 ? ",\"reads\":[]" : "]");
    if (node->runs_as != NULL)
        put_string(text, "runs_as", node->runs_as);
    if (node->kernel != NULL)
        put_string(text, "kernel", node->kernel);
    if (node->multiplications > 0)
        put_number(text, "multiplications", node->multiplications);
    if (node->refusal != NULL)
        put_string(text, "refusal", node->refusal);
    qd_text_string(text, "}");
}

/* Returns a length that the node's JSON does not exceed. A byte of a string may become six. */
static size_t node_bytes_max(const struct qd_onnx_listed *node)
{
    const size_t refusal_bytes = node->refusal == NULL ? 0 : strlen(node->refusal);
    return NODE_BYTES_MAX + 6 * (strlen(node->name) + strlen(node->operator_name) + refusal_bytes) +
           (QD_DECIMAL_BYTES_MAX + 1) * node->read_count;
}

void qd_explanation_put_nodes(struct qd_text *text, const struct qd_explanation *explanation,
                              size_t bytes_max)
{
    const struct qd_onnx_list *list = explanation->list;
    const size_t begin = text->bytes;
    size_t i = 0;
    qd_text_string(text, "\"nodes\":[");
    for (; i < list->count; i++) {
        const struct qd_onnx_listed *node = &list->nodes[i];
        if (text->bytes - begin + node_bytes_max(node) > bytes_max)
            break;
        put_node(text, node, i);
    }
    qd_text_string(text, "]");
    if (list->unlisted + list->count > i)
        put_number(text, "unlisted_nodes", list->unlisted + list->count - i);
}

/* The sizes for which everything behind them holds. */
static void put_plan(struct qd_text *text, const struct qd_explanation *explanation)
{
    const struct qd_signature *signature = explanation->signature;
    if (!explanation->is_planned) {
        if (explanation->why_unplanned != NULL)
            put_string(text, "not_planned", explanation->why_unplanned);
        return;
    }
    put_key(text, "planned_shapes");
    for (size_t i = 0; i < signature->input_count; i++) {
        const struct qk_tensor *tensor = &explanation->inputs[i];
        qd_text_string(text, i == 0 ? "{" : ",");
        qd_text_json_string(text, signature->inputs[i].name);
        qd_text_string(text, ":[");
        for (uint32_t k = 0; k < tensor->rank; k++)
            qd_text_format(text, "%s%zu", k == 0 ? "" : ",", tensor->dims[k]);
        qd_text_string(text, "]");
    }
    qd_text_string(text, signature->input_count == 0 ? "{}" : "}");
    put_number(text, "scratch_bytes", explanation->scratch_bytes);
    put_number(text, "workspace_bytes", explanation->workspace_bytes);
    put_number(text, "multiplications", explanation->multiplications);
}

static void put_commands(struct qd_text *text, const struct qd_explanation *explanation,
                         size_t part)
{
    const char *commands[QD_EXPLAIN_COMMAND_COUNT_MAX];
    const size_t count = qd_explanation_commands(explanation, part, text->arena, commands);
    put_key(text, "commands");
    qd_text_string(text, "[");
    for (size_t i = 0; i < count; i++) {
        qd_text_string(text, i == 0 ? "" : ",");
        qd_text_json_string(text, commands[i]);
    }
    qd_text_string(text, "]");
}

static void put_refusal(struct qd_text *text, const struct qd_explanation *explanation)
{
    const struct qd_cut_hints *cuts = &explanation->cuts;
    put_string(text, "error", explanation->error.text);
    put_key(text, "cuts");
    qd_text_string(text, "[");
    for (size_t i = 0; i < cuts->count; i++) {
        qd_text_string(text, i == 0 ? "{\"config\":" : ",{\"config\":");
        qd_text_string(text, cuts->list[i].config);
        put_number(text, "nodes", cuts->list[i].node_count);
        put_number(text, "of_nodes", cuts->node_count);
        put_commands(text, explanation, i);
        qd_text_string(text, "}");
    }
    qd_text_string(text, "]");
}

static bool write_all(const struct qd_text *text, FILE *out)
{
    bool done = !text->failed;
    for (size_t i = 0; i < text->part_count && done; i++)
        done = fwrite(text->parts[i].bytes, 1, text->parts[i].count, out) == text->parts[i].count;
    return done && fflush(out) == 0;
}

bool qd_explanation_print_json(const struct qd_explanation *explanation, struct qd_arena *arena,
                               FILE *out)
{
    const struct qd_signature *signature = explanation->signature;
    struct qd_text text;
    qd_text_init(&text, arena);
    qd_text_format(&text, "{\"served\":%s", signature != NULL ? "true" : "false");
    put_string(&text, "name", explanation->name);
    put_string(&text, "file", explanation->file);
    if (signature != NULL) {
        put_string(&text, "about", explanation->about);
        put_ports(&text, "inputs", signature->inputs, signature->input_count);
        put_ports(&text, "outputs", signature->outputs, signature->output_count);
        put_number(&text, "resident_bytes", explanation->resident_bytes);
        put_plan(&text, explanation);
        put_commands(&text, explanation, 0);
    } else {
        put_refusal(&text, explanation);
    }
    qd_text_string(&text, ",");
    qd_explanation_put_nodes(&text, explanation, SIZE_MAX);
    qd_text_string(&text, "}\n");
    return write_all(&text, out);
}
