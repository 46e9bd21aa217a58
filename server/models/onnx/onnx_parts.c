#include "server/models/onnx/onnx_list.h"

#include <string.h>

#include "server/models/onnx/onnx_reader.h"

enum { WEIGHTS_SHARE = 16, NODES_MIN = 2 };

/* What is known of each node of the file. */
struct node {
    bool is_refused;
    bool computes;        /* from the inputs; other nodes compute constants */
    bool needs_refused;   /* it is refused, or it depends on a refused node */
    bool feeds_refused;   /* it is refused, or a refused node depends on it */
    size_t weights_bytes; /* the constants that it reads, and those from which nodes compute them */
};

/* What is known of a value while a part is cut out. */
struct mark {
    bool is_listed; /* among the part's inputs */
    bool is_read_outside;
};

struct finder {
    struct qd_onnx_reader *reader;
    struct qd_arena *arena;
    struct node *nodes;
    struct mark *marks; /* one for each value */
};

/* ---- Nodes --------------------------------------------------------------------------------- */

/* Returns the value that a node's input reads, or NULL if it is absent or nothing makes it. */
static const struct qd_onnx_value *value_of(const struct finder *finder, size_t node, size_t input)
{
    return qd_onnx_find_value(finder->reader, &finder->reader->proto->node[node]->input[input]);
}

/* Adds without an overflow: a constant may be counted once for each way from it to a node. */
static void add(size_t *sum, size_t bytes)
{
    if (__builtin_add_overflow(*sum, bytes, sum))
        *sum = SIZE_MAX;
}

static size_t tensor_bytes(const Onnx__TensorProto *tensor)
{
    return tensor->raw_data.len + 4 * (tensor->n_float_data + tensor->n_int32_data) +
           8 * (tensor->n_int64_data + tensor->n_uint64_data);
}

static size_t constant_bytes(const struct finder *finder, const struct qd_onnx_value *value)
{
    const Onnx__GraphProto *graph = finder->reader->proto;
    if (value->maker == QD_ONNX_INITIALIZER)
        return tensor_bytes(graph->initializer[value->position]);
    const Onnx__NodeProto *node = graph->node[value->position];
    return node->n_attribute > 0 && node->attribute[0]->t != NULL
               ? tensor_bytes(node->attribute[0]->t)
               : 0;
}

static void look_at_inputs(struct finder *finder, size_t at)
{
    struct node *node = &finder->nodes[at];
    node->needs_refused = node->is_refused;
    for (size_t i = 0; i < finder->reader->proto->node[at]->n_input; i++) {
        const struct qd_onnx_value *value = value_of(finder, at, i);
        if (value == NULL)
            continue;
        const struct node *maker =
            value->maker == QD_ONNX_NODE ? &finder->nodes[value->position] : NULL;
        if (maker != NULL) {
            node->computes |= maker->computes;
            node->needs_refused |= maker->needs_refused;
            add(&node->weights_bytes, maker->computes ? 0 : maker->weights_bytes);
        } else if (value->maker == QD_ONNX_INPUT) {
            node->computes = true;
        } else if (value->maker != QD_ONNX_SPARSE) {
            add(&node->weights_bytes, constant_bytes(finder, value));
        }
    }
}

static void look_at_readers(struct finder *finder, size_t at)
{
    struct node *node = &finder->nodes[at];
    node->feeds_refused |= node->is_refused;
    for (size_t i = 0; node->feeds_refused && i < finder->reader->proto->node[at]->n_input; i++) {
        const struct qd_onnx_value *value = value_of(finder, at, i);
        if (value != NULL && value->maker == QD_ONNX_NODE)
            finder->nodes[value->position].feeds_refused = true;
    }
}

/* ---- A part -------------------------------------------------------------------------------- */

static bool is_before(const struct node *node)
{
    return node->computes && !node->needs_refused;
}

static bool is_after(const struct node *node)
{
    return node->computes && !node->feeds_refused && !is_before(node);
}

/* Appends a value's name to a list of at most QK_GRAPH_PORT_COUNT_MAX. Returns false if the list is
 * full, or there is no memory. */
static bool list_name(const struct finder *finder, const ProtobufCBinaryData *name,
                      const char *const **names, size_t *count)
{
    struct qd_error ignored;
    const char **list = (const char **)(uintptr_t)*names;
    if (list == NULL)
        list = qd_arena_alloc(finder->arena, QK_GRAPH_PORT_COUNT_MAX * sizeof(*list));
    *names = list;
    return list != NULL && *count < QK_GRAPH_PORT_COUNT_MAX &&
           qd_onnx_copy_string(name, "", finder->arena, &list[(*count)++], &ignored) == QD_OK;
}

/* Marks the values that nodes outside a part read, and the outputs of the file. */
static void mark_outputs(struct finder *finder, bool (*is_in)(const struct node *node))
{
    const struct qd_onnx_reader *reader = finder->reader;
    memset(finder->marks, 0, reader->value_count * sizeof(*finder->marks));
    for (size_t i = 0; i < qd_onnx_output_count(reader); i++) {
        const ProtobufCBinaryData name = qd_onnx_output_name(reader, i);
        const struct qd_onnx_value *value = qd_onnx_find_value(reader, &name);
        if (value != NULL)
            finder->marks[value - reader->values].is_read_outside = true;
    }
    for (size_t at = 0; at < reader->proto->n_node; at++) {
        const bool is_outside = reader->is_taken[at] && !is_in(&finder->nodes[at]);
        for (size_t k = 0; is_outside && k < reader->proto->node[at]->n_input; k++) {
            const struct qd_onnx_value *value = value_of(finder, at, k);
            if (value != NULL)
                finder->marks[value - reader->values].is_read_outside = true;
        }
    }
}

/* Lists the inputs of a part that a node reads: values from outside that must be sent. Those are
 * the results of other nodes, and inputs where the file is cut already. */
static bool list_inputs(struct finder *finder, bool (*is_in)(const struct node *node), size_t at,
                        struct qd_onnx_cut *cut)
{
    const struct qd_onnx_reader *reader = finder->reader;
    bool done = true;
    for (size_t k = 0; done && k < reader->proto->node[at]->n_input; k++) {
        const struct qd_onnx_value *value = value_of(finder, at, k);
        if (value == NULL)
            continue;
        const struct node *maker =
            value->maker == QD_ONNX_NODE ? &finder->nodes[value->position] : NULL;
        const bool is_sent = maker != NULL
                                 ? !is_in(maker) && (maker->computes || maker->needs_refused)
                                 : qd_onnx_is_cut(reader, value);
        struct mark *mark = &finder->marks[value - reader->values];
        if (is_sent && !mark->is_listed)
            done = list_name(finder, &value->name, &cut->inputs, &cut->input_count);
        mark->is_listed |= is_sent;
    }
    return done;
}

static bool list_outputs(struct finder *finder, size_t at, struct qd_onnx_cut *cut)
{
    const struct qd_onnx_reader *reader = finder->reader;
    const Onnx__NodeProto *node = reader->proto->node[at];
    bool done = true;
    for (size_t k = 0; done && k < node->n_output; k++) {
        const struct qd_onnx_value *value = qd_onnx_find_value(reader, &node->output[k]);
        if (value != NULL && value->maker == QD_ONNX_NODE &&
            finder->marks[value - reader->values].is_read_outside)
            done = list_name(finder, &value->name, &cut->outputs, &cut->output_count);
    }
    return done;
}

/* Cuts out the part that is_in says. It has no nodes if it is too small, or has too many ports. */
static struct qd_onnx_part cut_out(struct finder *finder, bool (*is_in)(const struct node *node))
{
    struct qd_onnx_part part = {.node_count = 0};
    size_t bytes = 0;
    size_t all_bytes = 0;
    bool done = true;
    mark_outputs(finder, is_in);
    for (size_t at = 0; at < finder->reader->proto->n_node && done; at++) {
        const struct node *node = &finder->nodes[at]; /* one that is not taken computes nothing */
        add(&all_bytes, node->computes ? node->weights_bytes : 0);
        if (!is_in(node))
            continue;
        add(&bytes, node->weights_bytes);
        part.node_count++;
        done = list_inputs(finder, is_in, at, &part.cut) && list_outputs(finder, at, &part.cut);
    }
    if (!done || part.node_count < NODES_MIN || bytes < all_bytes / WEIGHTS_SHARE)
        return (struct qd_onnx_part){.node_count = 0};
    if (is_in == is_after && finder->reader->source->cut.output_count == 0 &&
        part.cut.output_count == qd_onnx_output_count(finder->reader))
        part.cut.output_count = 0; /* all outputs of the file, which need not be named */
    return part;
}

/* ---- All parts ----------------------------------------------------------------------------- */

bool qd_onnx_find_parts(const struct qd_onnx_source *source, const uint32_t *also,
                        size_t also_count, struct qd_arena *arena, struct qd_onnx_parts *parts)
{
    struct qd_error error;
    struct qd_onnx_graph graph;
    struct qd_onnx_reader reader = {
        .source = source, .arena = arena, .graph = &graph, .error = &error};
    struct finder finder = {.reader = &reader, .arena = arena};
    if (qd_onnx_open(&reader) != QD_OK)
        return false;
    const size_t count = reader.proto->n_node;
    finder.nodes = qd_arena_calloc(arena, count, sizeof(*finder.nodes));
    finder.marks = qd_arena_calloc(arena, reader.value_count, sizeof(*finder.marks));
    if (finder.nodes == NULL || finder.marks == NULL)
        return false;
    for (size_t i = 0; i < reader.taken_count; i++) {
        const size_t at = reader.order[i];
        const enum qd_status status = qd_onnx_try_node(&reader, at);
        if (status != QD_OK && status != QD_INVALID)
            return false;
        finder.nodes[at].is_refused = status != QD_OK;
    }
    for (size_t i = 0; i < also_count; i++)
        if (also[i] < count)
            finder.nodes[also[i]].is_refused = true;
    for (size_t i = 0; i < reader.taken_count; i++)
        look_at_inputs(&finder, reader.order[i]);
    for (size_t i = reader.taken_count; i-- > 0;)
        look_at_readers(&finder, reader.order[i]);
    *parts = (struct qd_onnx_parts){.node_count = 0};
    for (size_t i = 0; i < count; i++)
        parts->node_count += finder.nodes[i].computes;
    parts->before = cut_out(&finder, is_before);
    parts->after = cut_out(&finder, is_after);
    return true;
}
