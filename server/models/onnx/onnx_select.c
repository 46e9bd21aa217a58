/* Which nodes of a file are read: those that the outputs need, from the inputs on. */
#include <string.h>

#include "server/memory/text.h"
#include "server/models/onnx/onnx_reader.h"

/* ---- Outputs ------------------------------------------------------------------------------- */

static ProtobufCBinaryData name_of(const char *string)
{
    return (ProtobufCBinaryData){.len = strlen(string), .data = (uint8_t *)(uintptr_t)string};
}

size_t qd_onnx_output_count(const struct qd_onnx_reader *reader)
{
    const struct qd_onnx_cut *cut = &reader->source->cut;
    return cut->output_count > 0 ? cut->output_count : reader->proto->n_output;
}

ProtobufCBinaryData qd_onnx_output_name(const struct qd_onnx_reader *reader, size_t index)
{
    const struct qd_onnx_cut *cut = &reader->source->cut;
    return cut->output_count > 0 ? name_of(cut->outputs[index])
                                 : reader->proto->output[index]->name;
}

/* ---- Values that the caller names ---------------------------------------------------------- */

static const Onnx__ValueInfoProto *find_in(Onnx__ValueInfoProto *const *list, size_t count,
                                           const ProtobufCBinaryData *name)
{
    for (size_t i = 0; i < count; i++)
        if (list[i]->name.len == name->len &&
            (name->len == 0 || memcmp(list[i]->name.data, name->data, name->len) == 0))
            return list[i];
    return NULL;
}

const Onnx__ValueInfoProto *qd_onnx_find_info(const struct qd_onnx_reader *reader,
                                              const ProtobufCBinaryData *name)
{
    const Onnx__GraphProto *graph = reader->proto;
    const Onnx__ValueInfoProto *info = find_in(graph->input, graph->n_input, name);
    if (info == NULL)
        info = find_in(graph->output, graph->n_output, name);
    return info != NULL ? info : find_in(graph->value_info, graph->n_value_info, name);
}

/* Prints the names of a few values that nodes make, from the last node on or from the first. */
static void print_some(const struct qd_onnx_reader *reader, bool last, char *text, size_t size)
{
    enum { NAMES_MAX = 3 };
    const Onnx__GraphProto *graph = reader->proto;
    size_t names = 0;
    text[0] = '\0';
    for (size_t i = 0; i < graph->n_node && names < NAMES_MAX; i++) {
        const Onnx__NodeProto *node = graph->node[last ? graph->n_node - 1 - i : i];
        if (qd_onnx_is_constant(node) || node->n_output == 0 || node->output[0].len == 0)
            continue;
        qd_list_name(text, size, qd_onnx_show(&node->output[0]).text);
        names++;
    }
}

/* Refuses a name of the caller's. `list` is "inputs" or "outputs". */
static enum qd_status refuse_name(const struct qd_onnx_reader *reader, const char *list,
                                  size_t index, const char *name, const char *why)
{
    char some[256];
    print_some(reader, strcmp(list, "outputs") == 0, some, sizeof(some));
    return qd_fail(reader->error, QD_INVALID,
                   "the configuration's %s[%zu]: expected a value that a node makes, such as %s, "
                   "got %s, %s",
                   list, index, some, qd_show_string(name).text, why);
}

/* Makes the values that the caller sends inputs. */
static enum qd_status cut_inputs(struct qd_onnx_reader *reader)
{
    const struct qd_onnx_cut *cut = &reader->source->cut;
    for (size_t i = 0; i < cut->input_count; i++) {
        const ProtobufCBinaryData name = name_of(cut->inputs[i]);
        struct qd_onnx_value *value = qd_onnx_find_value(reader, &name);
        if (value == NULL)
            return refuse_name(reader, "inputs", i, cut->inputs[i], "which the file does not have");
        if (value->maker != QD_ONNX_INPUT && value->maker != QD_ONNX_NODE)
            return refuse_name(reader, "inputs", i, cut->inputs[i], "which is a constant");
        value->maker = QD_ONNX_INPUT;
        value->position = i;
    }
    return QD_OK;
}

static enum qd_status check_outputs(const struct qd_onnx_reader *reader)
{
    const struct qd_onnx_cut *cut = &reader->source->cut;
    for (size_t i = 0; i < cut->output_count; i++) {
        const ProtobufCBinaryData name = name_of(cut->outputs[i]);
        const struct qd_onnx_value *value = qd_onnx_find_value(reader, &name);
        if (value == NULL)
            return refuse_name(reader, "outputs", i, cut->outputs[i],
                               "which the file does not have");
        if (value->maker != QD_ONNX_NODE)
            return refuse_name(reader, "outputs", i, cut->outputs[i],
                               value->maker == QD_ONNX_INPUT ? "which is an input"
                                                             : "which is a constant");
    }
    return QD_OK;
}

/* ---- Nodes --------------------------------------------------------------------------------- */

/* A node that is taken waits on the path until the nodes that it reads have their places. */
struct search {
    struct qd_onnx_reader *reader;
    size_t *path;
    size_t path_length;
    size_t *next_input; /* of each node: the input to look at next */
};

static void need(struct search *search, const ProtobufCBinaryData *name)
{
    struct qd_onnx_reader *reader = search->reader;
    struct qd_onnx_value *value = qd_onnx_find_value(reader, name);
    if (value == NULL || value->is_needed)
        return;
    value->is_needed = true;
    if (value->maker != QD_ONNX_NODE || reader->is_taken[value->position])
        return;
    reader->is_taken[value->position] = true;
    search->path[search->path_length++] = value->position;
}

/* Takes what a value is made of. */
static void take(struct search *search, const ProtobufCBinaryData *name)
{
    struct qd_onnx_reader *reader = search->reader;
    need(search, name);
    while (search->path_length > 0) {
        const size_t at = search->path[search->path_length - 1];
        const Onnx__NodeProto *node = reader->proto->node[at];
        if (search->next_input[at] < node->n_input) {
            need(search, &node->input[search->next_input[at]++]);
        } else {
            reader->order[reader->taken_count++] = at;
            search->path_length--;
        }
    }
}

/* Refuses an input that no output needs. Such a cut is a mistake of the caller's. */
static enum qd_status check_needed(const struct qd_onnx_reader *reader)
{
    const struct qd_onnx_cut *cut = &reader->source->cut;
    for (size_t i = 0; i < cut->input_count; i++) {
        const ProtobufCBinaryData name = name_of(cut->inputs[i]);
        if (!qd_onnx_find_value(reader, &name)->is_needed)
            return qd_fail(reader->error, QD_INVALID,
                           "the configuration's inputs[%zu]: expected a value that the outputs "
                           "need, got %s",
                           i, qd_show_string(cut->inputs[i]).text);
    }
    return QD_OK;
}

enum qd_status qd_onnx_select(struct qd_onnx_reader *reader)
{
    const size_t count = reader->proto->n_node;
    struct search search = {.reader = reader};
    search.path = qd_arena_calloc(reader->arena, count, sizeof(*search.path));
    search.next_input = qd_arena_calloc(reader->arena, count, sizeof(*search.next_input));
    reader->is_taken = qd_arena_calloc(reader->arena, count, sizeof(*reader->is_taken));
    reader->order = qd_arena_calloc(reader->arena, count, sizeof(*reader->order));
    if (search.path == NULL || search.next_input == NULL || reader->is_taken == NULL ||
        reader->order == NULL)
        return qd_onnx_no_memory(reader);
    enum qd_status status = cut_inputs(reader);
    if (status == QD_OK)
        status = check_outputs(reader);
    for (size_t i = 0; i < qd_onnx_output_count(reader) && status == QD_OK; i++) {
        const ProtobufCBinaryData name = qd_onnx_output_name(reader, i);
        take(&search, &name);
    }
    return status == QD_OK ? check_needed(reader) : status;
}
