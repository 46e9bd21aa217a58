#include "server/models/onnx/onnx_list.h"

#include <string.h>

#include "server/models/onnx/onnx_reader.h"

/* Copies two strings of the file, one behind the other, into the arena. A string ends at a NUL, if
 * the file has one. Returns NULL if the arena has no room. */
static char *copy(struct qd_arena *arena, const ProtobufCBinaryData *first,
                  const ProtobufCBinaryData *second)
{
    const size_t gap = first->len > 0;
    char *made = qd_arena_alloc(arena, first->len + gap + second->len + 1);
    if (made == NULL)
        return NULL;
    if (first->len > 0)
        memcpy(made, first->data, first->len);
    if (gap > 0)
        made[first->len] = '.';
    if (second->len > 0)
        memcpy(made + first->len + gap, second->data, second->len);
    made[first->len + gap + second->len] = '\0';
    return made;
}

/* Lists the nodes whose outputs a node reads, one for each input. Leaves out nodes that are cut off
 * or not listed. */
static bool list_reads(const struct qd_onnx_reader *reader, size_t position,
                       struct qd_onnx_listed *listed)
{
    const Onnx__NodeProto *node = reader->proto->node[position];
    uint32_t *reads = qd_arena_calloc(reader->arena, node->n_input, sizeof(*reads));
    for (size_t i = 0; reads != NULL && i < node->n_input; i++) {
        const struct qd_onnx_value *value = qd_onnx_find_value(reader, &node->input[i]);
        if (value != NULL && (value->maker == QD_ONNX_NODE || value->maker == QD_ONNX_CONSTANT) &&
            value->position < QD_ONNX_LISTED_MAX)
            reads[listed->read_count++] = (uint32_t)value->position;
    }
    listed->reads = reads;
    return reads != NULL;
}

static bool describe(const struct qd_onnx_reader *reader, size_t position,
                     struct qd_onnx_listed *listed)
{
    static const ProtobufCBinaryData none = {0};
    const Onnx__NodeProto *node = reader->proto->node[position];
    const ProtobufCBinaryData *domain =
        qd_onnx_is_own_domain(&node->domain) ? &none : &node->domain;
    listed->name = copy(reader->arena, &none, &node->name);
    listed->operator_name = copy(reader->arena, domain, &node->op_type);
    listed->into = QK_VALUE_NONE;
    listed->fate = qd_onnx_is_constant(node)    ? QD_FATE_CONSTANT
                   : reader->is_taken[position] ? QD_FATE_READ
                                                : QD_FATE_LEFT_OUT;
    return listed->name != NULL && listed->operator_name != NULL &&
           list_reads(reader, position, listed);
}

/* Copies the reason out of an error, whose text begins with the node. */
static const char *copy_refusal(struct qd_onnx_reader *reader, size_t position)
{
    const struct qd_onnx_where where = qd_onnx_node_where(reader, position);
    const char *text = reader->error->text;
    const size_t begin = strlen(where.text);
    if (strncmp(text, where.text, begin) == 0 && strncmp(text + begin, ": ", 2) == 0)
        text += begin + 2;
    return qd_arena_copy(reader->arena, text);
}

/* Reads each node alone. Fails if that cannot be done. */
static enum qd_status try_all(struct qd_onnx_reader *reader, struct qd_onnx_list *list)
{
    size_t refusals = 0;
    for (size_t i = 0; i < list->count; i++) {
        struct qd_onnx_listed *listed = &list->nodes[i];
        const enum qd_status status =
            listed->fate == QD_FATE_READ ? qd_onnx_try_node(reader, i) : QD_OK;
        if (status == QD_OK)
            continue;
        if (status != QD_INVALID)
            return status;
        listed->fate = QD_FATE_REFUSED;
        if (refusals++ < QD_ONNX_REFUSALS_MAX)
            listed->refusal = copy_refusal(reader, i);
    }
    return QD_OK;
}

enum qd_status qd_onnx_list_nodes(const struct qd_onnx_reader *reader, struct qd_onnx_list *list)
{
    const size_t all = reader->proto->n_node;
    const size_t count = all < QD_ONNX_LISTED_MAX ? all : QD_ONNX_LISTED_MAX;
    list->count = 0;
    list->unlisted = all - count;
    list->nodes = qd_arena_calloc(reader->arena, count, sizeof(*list->nodes));
    if (list->nodes == NULL)
        return qd_onnx_no_memory(reader);
    for (size_t i = 0; i < count; i++)
        if (!describe(reader, i, &list->nodes[i]))
            return qd_onnx_no_memory(reader);
    list->count = count;
    return QD_OK;
}

enum qd_status qd_onnx_list_refused(const struct qd_onnx_source *source, struct qd_arena *arena,
                                    struct qd_onnx_list *list, struct qd_error *error)
{
    struct qd_onnx_graph graph;
    struct qd_onnx_reader reader = {
        .source = source, .arena = arena, .graph = &graph, .only_lists = true, .error = error};
    list->count = 0;
    return qd_onnx_open(&reader) == QD_OK && qd_onnx_list_nodes(&reader, list) == QD_OK
               ? try_all(&reader, list)
               : error->status;
}
