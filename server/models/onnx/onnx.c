#include "server/models/onnx/onnx.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/memory/text.h"
#include "server/models/onnx/onnx_reader.h"

/* ---- Parts of the file, and its strings -------------------------------------------------- */

struct qd_shown qd_onnx_show(const ProtobufCBinaryData *bytes)
{
    return qd_show_bytes((const char *)bytes->data, bytes->len);
}

bool qd_onnx_is(const ProtobufCBinaryData *bytes, const char *text)
{
    const size_t count = strlen(text);
    return bytes->len == count && (count == 0 || memcmp(bytes->data, text, count) == 0);
}

bool qd_onnx_is_own_domain(const ProtobufCBinaryData *domain)
{
    return qd_onnx_is(domain, "") || qd_onnx_is(domain, "ai.onnx");
}

bool qd_onnx_is_constant(const Onnx__NodeProto *node)
{
    return qd_onnx_is_own_domain(&node->domain) && qd_onnx_is(&node->op_type, "Constant");
}

/* Prints a place in the file, such as 'initializer 2 ("w")'. */
static struct qd_onnx_where place(const char *list, size_t position,
                                  const ProtobufCBinaryData *name)
{
    struct qd_onnx_where where;
    snprintf(where.text, sizeof(where.text), "%s %zu (%s)", list, position,
             qd_onnx_show(name).text);
    return where;
}

struct qd_onnx_where qd_onnx_node_where(const struct qd_onnx_reader *reader, size_t position)
{
    const Onnx__NodeProto *node = reader->proto->node[position];
    struct qd_onnx_where where;
    snprintf(where.text, sizeof(where.text), "node %zu (%s, %s)", position,
             qd_onnx_show(&node->name).text, qd_onnx_show(&node->op_type).text);
    return where;
}

struct qd_onnx_where qd_onnx_value_where(const struct qd_onnx_reader *reader,
                                         const struct qd_onnx_value *value)
{
    static const char *const lists[] = {[QD_ONNX_INITIALIZER] = "initializer",
                                        [QD_ONNX_SPARSE] = "sparse_initializer",
                                        [QD_ONNX_INPUT] = "input"};
    if (value->maker == QD_ONNX_CONSTANT || value->maker == QD_ONNX_NODE)
        return qd_onnx_node_where(reader, value->position);
    return place(lists[value->maker], value->position, &value->name);
}

enum qd_status qd_onnx_copy_string(const ProtobufCBinaryData *bytes, const char *where,
                                   struct qd_arena *arena, const char **string,
                                   struct qd_error *error)
{
    const char *from = (const char *)bytes->data;
    if (bytes->len > QD_ONNX_NAME_BYTES_MAX)
        return qd_fail(error, QD_INVALID, "%s: expected at most %zu bytes in a name, got %zu",
                       where, QD_ONNX_NAME_BYTES_MAX, bytes->len);
    for (size_t at = 0, length; at < bytes->len; at += length) {
        length = from[at] == '\0' ? 0 : qd_utf8_length(from + at, bytes->len - at);
        if (length == 0)
            return qd_fail(error, QD_INVALID, "%s: expected UTF-8 without NULs, got %s", where,
                           qd_onnx_show(bytes).text);
    }
    char *copy = qd_arena_alloc(arena, bytes->len + 1);
    if (copy == NULL)
        return qd_refuse_memory(arena, "the file's names", error);
    if (bytes->len > 0)
        memcpy(copy, from, bytes->len);
    copy[bytes->len] = '\0';
    *string = copy;
    return QD_OK;
}

enum qd_status qd_onnx_no_memory(const struct qd_onnx_reader *reader)
{
    return qd_refuse_memory(reader->arena, "what the file holds", reader->error);
}

/* ---- Which value is which ---------------------------------------------------------------- */

static int compare_names(const ProtobufCBinaryData *a, const ProtobufCBinaryData *b)
{
    size_t count = a->len < b->len ? a->len : b->len;
    int order = count == 0 ? 0 : memcmp(a->data, b->data, count);
    return order != 0 ? order : (a->len > b->len) - (a->len < b->len);
}

static int compare_values(const void *left, const void *right)
{
    const struct qd_onnx_value *a = left;
    const struct qd_onnx_value *b = right;
    int order = compare_names(&a->name, &b->name);
    if (order == 0)
        order = (a->maker > b->maker) - (a->maker < b->maker);
    return order != 0 ? order : (a->position > b->position) - (a->position < b->position);
}

static int compare_to_name(const void *name, const void *value)
{
    return compare_names(name, &((const struct qd_onnx_value *)value)->name);
}

struct qd_onnx_value *qd_onnx_find_value(const struct qd_onnx_reader *reader,
                                         const ProtobufCBinaryData *name)
{
    return bsearch(name, reader->values, reader->value_count, sizeof(struct qd_onnx_value),
                   compare_to_name);
}

/* Adds a value. Skips a value without a name, because no node can read it. */
static void add_value(struct qd_onnx_reader *reader, const ProtobufCBinaryData *name,
                      enum qd_onnx_maker maker, size_t position)
{
    if (name->len > 0)
        reader->values[reader->value_count++] =
            (struct qd_onnx_value){.name = *name, .maker = maker, .position = position};
}

static void add_values(struct qd_onnx_reader *reader)
{
    const Onnx__GraphProto *graph = reader->proto;
    for (size_t i = 0; i < graph->n_initializer; i++)
        add_value(reader, &graph->initializer[i]->name, QD_ONNX_INITIALIZER, i);
    for (size_t i = 0; i < graph->n_sparse_initializer; i++)
        if (graph->sparse_initializer[i]->values != NULL)
            add_value(reader, &graph->sparse_initializer[i]->values->name, QD_ONNX_SPARSE, i);
    for (size_t i = 0; i < graph->n_input; i++)
        add_value(reader, &graph->input[i]->name, QD_ONNX_INPUT, i);
    for (size_t i = 0; i < graph->n_node; i++)
        for (size_t j = 0; j < graph->node[i]->n_output; j++)
            add_value(reader, &graph->node[i]->output[j],
                      qd_onnx_is_constant(graph->node[i]) ? QD_ONNX_CONSTANT : QD_ONNX_NODE, i);
}

/* Keeps one value of each name. An initializer may be listed as an input too. Before IR version 4
 * it had to be. Since then this means that callers may override it, which is not possible here. */
static enum qd_status drop_duplicates(struct qd_onnx_reader *reader)
{
    size_t kept = 0;
    for (size_t i = 0; i < reader->value_count; i++) {
        const struct qd_onnx_value *value = &reader->values[i];
        const struct qd_onnx_value *last = kept > 0 ? &reader->values[kept - 1] : NULL;
        if (last == NULL || compare_names(&last->name, &value->name) != 0)
            reader->values[kept++] = *value;
        else if (last->maker > QD_ONNX_SPARSE || value->maker != QD_ONNX_INPUT)
            return qd_fail(reader->error, QD_INVALID,
                           "graph: expected each value once, got %s from %s and from %s",
                           qd_onnx_show(&value->name).text, qd_onnx_value_where(reader, last).text,
                           qd_onnx_value_where(reader, value).text);
    }
    reader->value_count = kept;
    return QD_OK;
}

static enum qd_status collect_values(struct qd_onnx_reader *reader)
{
    const Onnx__GraphProto *graph = reader->proto;
    size_t count = graph->n_initializer + graph->n_sparse_initializer + graph->n_input;
    for (size_t i = 0; i < graph->n_node; i++)
        count += graph->node[i]->n_output;
    if (count > QD_ONNX_VALUE_COUNT_MAX)
        return qd_fail(reader->error, QD_INVALID,
                       "graph: expected at most %d initializers, inputs and outputs of nodes, got "
                       "%zu",
                       QD_ONNX_VALUE_COUNT_MAX, count);
    reader->values = qd_arena_alloc(reader->arena, count * sizeof(*reader->values));
    if (reader->values == NULL)
        return qd_onnx_no_memory(reader);
    add_values(reader);
    qsort(reader->values, reader->value_count, sizeof(*reader->values), compare_values);
    return drop_duplicates(reader);
}

/* ---- The graph's inputs and outputs ------------------------------------------------------ */

#define ALL_TYPES ((QK_BIT(QK_TYPE_COUNT) - 1) & ~QK_BIT(QK_NONE))

static enum qd_status read_dims(const struct qd_onnx_reader *reader,
                                const Onnx__TensorShapeProto *shape, const char *where,
                                struct qd_port *port)
{
    port->shaped = shape != NULL;
    if (shape == NULL)
        return QD_OK;
    if (shape->n_dim > QK_RANK_MAX)
        return qd_fail(reader->error, QD_INVALID, "%s: shape: expected at most %d dims, got %zu",
                       where, QK_RANK_MAX, shape->n_dim);
    port->rank = (uint32_t)shape->n_dim;
    for (uint32_t i = 0; i < port->rank; i++) {
        /* protobuf-c reads a symbolic or missing size as 0. Some exporters also write 0 for an
         * unknown size. */
        const int64_t size = shape->dim[i]->dim_value;
        port->dims[i] = size > 0 ? size : QD_DIM_FREE;
    }
    return QD_OK;
}

/* Reads a ValueInfoProto. *type is QK_NONE if it has no type. */
static enum qd_status read_port(const struct qd_onnx_reader *reader,
                                const Onnx__ValueInfoProto *proto, const char *where,
                                struct qd_port *port, enum qk_type *type)
{
    char field[256];
    *port = (struct qd_port){.name = ""};
    *type = QK_NONE;
    enum qd_status status =
        qd_onnx_copy_string(&proto->name, where, reader->arena, &port->name, reader->error);
    if (status != QD_OK || proto->type == NULL)
        return status;
    const Onnx__TensorTypeProto *tensor = proto->type->tensor_type;
    if (tensor == NULL)
        return qd_fail(reader->error, QD_INVALID, "%s: type: expected a tensor, got something else",
                       where);
    snprintf(field, sizeof(field), "%s: elem_type", where);
    if (tensor->elem_type != 0)
        status = qd_onnx_read_type(tensor->elem_type, field, type, reader->error);
    if (status == QD_OK)
        status = read_dims(reader, tensor->shape, where, port);
    port->types = *type == QK_NONE ? 0 : QK_BIT(*type);
    return status;
}

static enum qd_status refuse_port_count(const struct qd_onnx_reader *reader, const char *what)
{
    return qd_fail(reader->error, QD_INVALID, "graph: expected at most %d %s, got more",
                   QK_GRAPH_PORT_COUNT_MAX, what);
}

static enum qd_status read_input(struct qd_onnx_reader *reader, struct qd_onnx_value *value,
                                 const Onnx__ValueInfoProto *proto, const char *where)
{
    struct qk_graph_call *call = &reader->graph->call;
    if (call->input_count == QK_GRAPH_PORT_COUNT_MAX)
        return refuse_port_count(reader, "inputs that are no initializers");
    struct qk_graph_input *input = &call->inputs[call->input_count];
    struct qd_port *port = &reader->inputs[call->input_count];
    enum qd_status status = read_port(reader, proto, where, port, &input->type);
    value->number = input->value = (uint32_t)call->input_count++;
    return status;
}

/* Reads the inputs that the caller names. The type of an input that the file does not describe
 * follows from the nodes that read it (onnx_node.c). */
static enum qd_status read_cut_inputs(struct qd_onnx_reader *reader)
{
    const struct qd_onnx_cut *cut = &reader->source->cut;
    enum qd_status status = QD_OK;
    for (size_t i = 0; i < cut->input_count && status == QD_OK; i++) {
        const size_t length = strlen(cut->inputs[i]);
        const Onnx__ValueInfoProto undescribed = {
            .name = {.len = length, .data = (uint8_t *)(uintptr_t)cut->inputs[i]}};
        const Onnx__ValueInfoProto *info = qd_onnx_find_info(reader, &undescribed.name);
        const struct qd_onnx_where where = place("input", i, &undescribed.name);
        status = read_input(reader, qd_onnx_find_value(reader, &undescribed.name),
                            info == NULL ? &undescribed : info, where.text);
        if (reader->inputs[i].types == 0)
            reader->inputs[i].types = ALL_TYPES;
    }
    return status;
}

bool qd_onnx_is_cut(const struct qd_onnx_reader *reader, const struct qd_onnx_value *value)
{
    const struct qd_onnx_cut *cut = &reader->source->cut;
    return value->number < cut->input_count && qd_onnx_is(&value->name, cut->inputs[value->number]);
}

/* Reads all inputs except those that are initializers, which are constants. If the file is cut,
 * inputs that no node needs are left out, too. */
static enum qd_status read_inputs(struct qd_onnx_reader *reader)
{
    const struct qd_onnx_cut *cut = &reader->source->cut;
    const bool takes_all = cut->input_count == 0 && cut->output_count == 0;
    reader->inputs =
        qd_arena_alloc(reader->arena, QK_GRAPH_PORT_COUNT_MAX * sizeof(*reader->inputs));
    if (reader->inputs == NULL)
        return qd_onnx_no_memory(reader);
    reader->graph->inputs = reader->inputs;
    enum qd_status status = read_cut_inputs(reader);
    for (size_t i = 0; i < reader->proto->n_input && status == QD_OK; i++) {
        const Onnx__ValueInfoProto *proto = reader->proto->input[i];
        struct qd_onnx_where where = place("input", i, &proto->name);
        struct qd_onnx_value *value = qd_onnx_find_value(reader, &proto->name);
        if (value == NULL)
            return qd_fail(reader->error, QD_INVALID, "input %zu: expected a name, got none", i);
        if (value->maker != QD_ONNX_INPUT || (!takes_all && !value->is_needed) ||
            qd_onnx_is_cut(reader, value))
            continue;
        status = read_input(reader, value, proto, where.text);
        if (status == QD_OK && reader->inputs[value->number].types == 0)
            return qd_fail(reader->error, QD_INVALID, "%s: expected a type, got none", where.text);
    }
    return status;
}

static enum qd_status read_output(struct qd_onnx_reader *reader, size_t position)
{
    const Onnx__ValueInfoProto unknown = {.name = qd_onnx_output_name(reader, position)};
    struct qk_graph_call *call = &reader->graph->call;
    struct qd_onnx_where where = place("output", position, &unknown.name);
    const struct qd_onnx_value *value = qd_onnx_find_value(reader, &unknown.name);
    const bool is_cut = reader->source->cut.output_count > 0;
    const Onnx__ValueInfoProto *proto =
        is_cut ? qd_onnx_find_info(reader, &unknown.name) : reader->proto->output[position];
    enum qk_type type;
    if (value == NULL)
        return qd_fail(reader->error, QD_INVALID, "%s: expected a node's output, no node makes it",
                       where.text);
    if (value->maker != QD_ONNX_NODE)
        return qd_fail(reader->error, QD_INVALID,
                       "%s: expected the output of an operator that quantd has, it is %s",
                       where.text, qd_onnx_value_where(reader, value).text);
    for (size_t i = 0; i < call->output_count; i++)
        if (call->outputs[i] == value->number)
            return qd_fail(reader->error, QD_INVALID, "%s: expected each output once, got it twice",
                           where.text);
    call->outputs[call->output_count] = value->number;
    struct qd_port *port = &reader->graph->outputs[call->output_count++];
    enum qd_status status =
        read_port(reader, proto == NULL ? &unknown : proto, where.text, port, &type);
    /* What the file says of a value inside it is a note of the exporter's, perhaps from before the
     * batch size was changed. The shape that the nodes make counts. */
    port->shaped = port->shaped && !is_cut;
    return status;
}

static enum qd_status read_outputs(struct qd_onnx_reader *reader)
{
    const size_t count = qd_onnx_output_count(reader);
    if (count == 0)
        return qd_fail(reader->error, QD_INVALID, "graph: expected an output, got none");
    if (count > QK_GRAPH_PORT_COUNT_MAX)
        return refuse_port_count(reader, "outputs");
    reader->graph->outputs = qd_arena_alloc(reader->arena, count * sizeof(*reader->graph->outputs));
    if (reader->graph->outputs == NULL)
        return qd_onnx_no_memory(reader);
    enum qd_status status = QD_OK;
    for (size_t i = 0; i < count && status == QD_OK; i++)
        status = read_output(reader, i);
    return status;
}

/* Numbers the values that are taken and not constants, from 0 on: first the inputs in the file's
 * order, then the outputs of nodes in the order of their names, because reader->values is sorted by
 * name. */
static enum qd_status number_values(struct qd_onnx_reader *reader)
{
    struct qk_graph_call *call = &reader->graph->call;
    const char **names = qd_arena_alloc(reader->arena, (reader->value_count + 1) * sizeof(*names));
    if (names == NULL)
        return qd_onnx_no_memory(reader);
    call->value_names = names;
    call->value_count = call->input_count;
    for (size_t i = 0; i < call->input_count; i++)
        names[i] = reader->graph->inputs[i].name;
    for (size_t i = 0; i < reader->value_count; i++) {
        struct qd_onnx_value *value = &reader->values[i];
        if (value->maker != QD_ONNX_NODE || !reader->is_taken[value->position])
            continue;
        struct qd_onnx_where where = qd_onnx_value_where(reader, value);
        if (qd_onnx_copy_string(&value->name, where.text, reader->arena, &names[call->value_count],
                                reader->error) != QD_OK)
            return reader->error->status;
        value->number = (uint32_t)call->value_count++;
    }
    return QD_OK;
}

/* ---- The file ---------------------------------------------------------------------------- */

struct allocator {
    struct qd_arena *arena;
    bool failed;
};

static void *allocate(void *context, size_t bytes)
{
    struct allocator *allocator = context;
    void *made = qd_arena_alloc(allocator->arena, bytes);
    allocator->failed |= made == NULL;
    return made;
}

/* Frees nothing, because the arena frees everything at its end. */
static void keep(void *context, void *allocation)
{
    (void)context;
    (void)allocation;
}

/* Refuses a file that is not a model. Says what kind of file it is, if that is known. */
static enum qd_status refuse_file(const struct qd_onnx_reader *reader)
{
    const struct qd_onnx_source *source = reader->source;
    const char *name = qd_foreign_name(source->bytes, source->count);
    if (name != NULL)
        return qd_fail(reader->error, QD_INVALID, "expected an ONNX file, got %s", name);
    if (reader->model != NULL)
        return qd_fail(reader->error, QD_INVALID, "graph: expected one, got none");
    return qd_fail(reader->error, QD_INVALID,
                   "expected an ONNX file, which is a ModelProto of protobuf, got %zu bytes that "
                   "are not one, or only a part of one",
                   source->count);
}

static enum qd_status parse(struct qd_onnx_reader *reader)
{
    struct allocator allocator = {.arena = reader->arena};
    ProtobufCAllocator calls = {.alloc = allocate, .free = keep, .allocator_data = &allocator};
    struct qd_onnx_skeleton skeleton;
    if (qd_onnx_make_skeleton(reader, &skeleton) != QD_OK)
        return reader->error->status;
    reader->model = onnx__model_proto__unpack(&calls, skeleton.count, skeleton.bytes);
    if (allocator.failed)
        return qd_onnx_no_memory(reader);
    if (reader->model == NULL || reader->model->graph == NULL)
        return refuse_file(reader);
    qd_onnx_put_back(&skeleton, reader->model->graph);
    reader->proto = reader->model->graph;
    reader->graph->points_into_file = skeleton.taken_count > 0;
    return QD_OK;
}

/* Reads which version of a domain the file imports. *version is 0 until one is known. */
static enum qd_status read_import(const struct qd_onnx_reader *reader, size_t index,
                                  const char *domain, uint64_t *version)
{
    const int64_t given = reader->model->opset_import[index]->version;
    if (given < 1 || (*version != 0 && *version != (uint64_t)given))
        return qd_fail(reader->error, QD_INVALID,
                       "opset_import[%zu]: expected one version of %s, at least 1, got %" PRId64,
                       index, domain, given);
    *version = (uint64_t)given;
    return QD_OK;
}

/* Reads the versions of the domains whose operators quantd has. */
static enum qd_status read_opsets(struct qd_onnx_reader *reader)
{
    enum qd_status status = QD_OK;
    for (size_t i = 0; i < reader->model->n_opset_import && status == QD_OK; i++) {
        const ProtobufCBinaryData *domain = &reader->model->opset_import[i]->domain;
        if (qd_onnx_is_own_domain(domain))
            status = read_import(reader, i, "ONNX's domain", &reader->graph->opset);
        else if (qd_onnx_is(domain, "com.microsoft"))
            status = read_import(reader, i, "com.microsoft", &reader->microsoft_opset);
    }
    return status;
}

/* Refuses functions in the domains whose operators quantd has, because they could replace an
 * operator. Functions in other domains are refused when a node needs them. */
static enum qd_status check_functions(const struct qd_onnx_reader *reader)
{
    const Onnx__ModelProto *model = reader->model;
    for (size_t i = 0; i < model->n_functions; i++)
        if (qd_onnx_is_own_domain(&model->functions[i]->domain) ||
            qd_onnx_is(&model->functions[i]->domain, "com.microsoft"))
            return qd_fail(reader->error, QD_INVALID,
                           "functions[%zu]: expected none in ONNX's own domain and com.microsoft, "
                           "got %s",
                           i, qd_onnx_show(&model->functions[i]->name).text);
    return QD_OK;
}

enum qd_status qd_onnx_open(struct qd_onnx_reader *reader)
{
    struct qd_onnx_graph *graph = reader->graph;
    *graph = (struct qd_onnx_graph){.refused_node = QK_VALUE_NONE};
    if (parse(reader) != QD_OK || read_opsets(reader) != QD_OK ||
        check_functions(reader) != QD_OK ||
        qd_onnx_copy_string(&reader->proto->name, "graph: name", reader->arena, &graph->graph_name,
                            reader->error) != QD_OK ||
        qd_onnx_copy_string(&reader->model->producer_name, "producer_name", reader->arena,
                            &graph->producer, reader->error) != QD_OK ||
        collect_values(reader) != QD_OK || qd_onnx_select(reader) != QD_OK ||
        read_inputs(reader) != QD_OK)
        return reader->error->status;
    return number_values(reader);
}

enum qd_status qd_onnx_read(const struct qd_onnx_source *source, struct qd_arena *arena,
                            struct qd_onnx_graph *graph, struct qd_error *error)
{
    struct qd_onnx_reader reader = {
        .source = source, .arena = arena, .graph = graph, .error = error};
    enum qd_status status = qd_onnx_open(&reader);
    if (status == QD_OK && source->list != NULL)
        status = qd_onnx_list_nodes(&reader, source->list);
    if (status == QD_OK)
        status = read_outputs(&reader);
    return status == QD_OK ? qd_onnx_read_nodes(&reader) : status;
}

enum qd_status qd_onnx_settle_outputs(const struct qd_onnx_graph *graph, const enum qk_type *types,
                                      struct qd_error *error)
{
    for (size_t i = 0; i < graph->call.output_count; i++) {
        struct qd_port *port = &graph->outputs[i];
        if (types == NULL && port->types == 0)
            return qd_fail(error, QD_INVALID, "output %zu (%s): expected a type, got none", i,
                           qd_show_string(port->name).text);
        if (types == NULL)
            continue;
        if (port->types != 0 && port->types != QK_BIT(types[i]))
            return qd_fail(error, QD_INVALID,
                           "output %zu (%s): elem_type: expected %d (%s), which its node makes, "
                           "got %s",
                           i, qd_show_string(port->name).text, qk_type_info(types[i])->onnx,
                           qk_type_info(types[i])->name,
                           qk_type_info((enum qk_type)__builtin_ctz(port->types))->name);
        port->types = QK_BIT(types[i]);
    }
    return QD_OK;
}
