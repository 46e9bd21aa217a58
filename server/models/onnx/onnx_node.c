#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "server/models/onnx/onnx_reader.h"
#include "server/oip/signature.h"

/* ---- Constants --------------------------------------------------------------------------- */

static enum qd_status read_list(enum qk_type type, const void *numbers, size_t count, uint32_t rank,
                                struct qk_tensor *tensor)
{
    *tensor = (struct qk_tensor){
        .type = type, .rank = rank, .dims = {count}, .count = count, .stored = count};
    tensor->data = count == 0 ? "" : numbers;
    return QD_OK;
}

/* Reads a Constant node's tensor. The node has one attribute, whose name says what it holds. */
static enum qd_status read_constant(const struct qd_onnx_reader *reader,
                                    struct qd_onnx_value *value)
{
    const Onnx__NodeProto *node = reader->proto->node[value->position];
    const struct qd_onnx_where where = qd_onnx_node_where(reader, value->position);
    char field[256];
    if (node->n_attribute != 1 || node->n_output != 1)
        return qd_fail(reader->error, QD_INVALID,
                       "%s: expected one attribute and one output, got %zu and %zu", where.text,
                       node->n_attribute, node->n_output);
    const Onnx__AttributeProto *attribute = node->attribute[0];
    if (qd_onnx_is(&attribute->name, "value_float"))
        return read_list(QK_FP32, &attribute->f, 1, 0, value->tensor);
    if (qd_onnx_is(&attribute->name, "value_floats"))
        return read_list(QK_FP32, attribute->floats, attribute->n_floats, 1, value->tensor);
    if (qd_onnx_is(&attribute->name, "value_int"))
        return read_list(QK_INT64, &attribute->i, 1, 0, value->tensor);
    if (qd_onnx_is(&attribute->name, "value_ints"))
        return read_list(QK_INT64, attribute->ints, attribute->n_ints, 1, value->tensor);
    if (!qd_onnx_is(&attribute->name, "value") || attribute->t == NULL)
        return qd_fail(reader->error, QD_INVALID,
                       "%s: %s: expected a value that is a tensor, value_float, value_floats, "
                       "value_int or value_ints: no operator here takes others",
                       where.text, qd_onnx_show(&attribute->name).text);
    snprintf(field, sizeof(field), "%s: value", where.text);
    return qd_onnx_read_tensor(reader, attribute->t, field, value->tensor);
}

/* Reads a value's tensor when the first node needs it. A tensor that could not be read is refused
 * again for each other node that qd_onnx_try_node reads. */
static enum qd_status need_tensor(const struct qd_onnx_reader *reader, struct qd_onnx_value *value)
{
    if (value->is_refused)
        return qd_fail(reader->error, QD_INVALID, "%s: expected a tensor that can be read",
                       qd_onnx_value_where(reader, value).text);
    if (value->tensor != NULL)
        return QD_OK;
    value->tensor = qd_arena_alloc(reader->arena, sizeof(*value->tensor));
    if (value->tensor == NULL)
        return qd_onnx_no_memory(reader);
    const enum qd_status status =
        value->maker == QD_ONNX_CONSTANT
            ? read_constant(reader, value)
            : qd_onnx_read_tensor(reader, reader->proto->initializer[value->position],
                                  qd_onnx_value_where(reader, value).text, value->tensor);
    value->is_refused = status != QD_OK;
    return status;
}

/* ---- One node ---------------------------------------------------------------------------- */

struct node {
    struct qd_onnx_reader *reader;
    size_t position;              /* in the file's list of nodes */
    const Onnx__NodeProto *proto; /* the node, or a part of it (read_long_list) */
    const char *name;             /* which all parts share */
    struct qd_onnx_where where;
    struct qk_node *node;
    const struct qk_operator *op;
    const struct qk_version *version;
    uint64_t imported; /* the version of its domain that the file imports */
};

/* The newest opset of ONNX that is known to work. Since the last version in the registry, it has
 * changed the registry's operators only by element types that quantd does not have. */
#define OPSET_LAST 28U

/* Prints the registry's name of a node's operator, such as "onnx.Add" or "com.microsoft.QGemm".
 * Prints "" if the domain is another one, or if op_type has a NUL or is longer than any name. */
static void print_name(const Onnx__NodeProto *node, char name[static 64])
{
    const ProtobufCBinaryData *op = &node->op_type;
    const char *prefix = qd_onnx_is_own_domain(&node->domain)         ? "onnx."
                         : qd_onnx_is(&node->domain, "com.microsoft") ? "com.microsoft."
                                                                      : NULL;
    name[0] = '\0';
    if (prefix != NULL && op->len < 40 && (op->len == 0 || memchr(op->data, 0, op->len) == NULL))
        snprintf(name, 64, "%s%.*s", prefix, (int)op->len, (const char *)op->data);
}

/* Returns the operator, or NULL if quantd does not have it. *imported is the version of its domain
 * that the file imports, or 0. *opset is the version of the operator. */
static const struct qk_operator *operator_of(const struct qd_onnx_reader *reader,
                                             const Onnx__NodeProto *proto, uint64_t *imported,
                                             uint64_t *opset)
{
    char name[64];
    *imported =
        qd_onnx_is_own_domain(&proto->domain) ? reader->graph->opset : reader->microsoft_opset;
    *opset = *imported;
    print_name(proto, name);
    return qk_graph_operator(name, opset);
}

static enum qd_status find_operator(struct node *node)
{
    const struct qd_onnx_reader *reader = node->reader;
    const Onnx__NodeProto *proto = node->proto;
    const bool own = qd_onnx_is_own_domain(&proto->domain);
    uint64_t imported;
    uint64_t opset;
    node->op = operator_of(reader, proto, &imported, &opset);
    if (node->op == NULL)
        return qd_fail(reader->error, QD_INVALID,
                       "%s: expected an operator that quantd has, got %s of %s%s", node->where.text,
                       qd_onnx_show(&proto->op_type).text,
                       own ? "ONNX's own domain" : "the domain ",
                       own ? "" : qd_onnx_show(&proto->domain).text);
    node->imported = imported;
    if (imported == 0)
        return qd_fail(reader->error, QD_INVALID,
                       "opset_import: expected a version of %s, got none",
                       own ? "ONNX's own domain" : "com.microsoft");
    const unsigned last = node->op->version_last;
    node->version =
        qk_operator_version(node->op, own && opset > last && opset <= OPSET_LAST ? last : opset);
    if (node->version == NULL)
        return qd_fail(reader->error, QD_INVALID,
                       "%s: expected an opset from %u to %u, which quantd has of %s, got %" PRIu64,
                       node->where.text, node->op->versions[0].number,
                       !own || last > OPSET_LAST ? last : OPSET_LAST, node->op->name, opset);
    return QD_OK;
}

/* ---- Its inputs -------------------------------------------------------------------------- */

static enum qd_status refuse_maker(const struct node *node, const char *field,
                                   const struct qd_onnx_value *value, const char *expected)
{
    const struct qd_onnx_reader *reader = node->reader;
    return qd_fail(reader->error, QD_INVALID, "%s: expected %s, got %s, from %s", field, expected,
                   qd_onnx_show(&value->name).text, qd_onnx_value_where(reader, value).text);
}

static bool has_zero_point(const struct qk_port *ports, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strstr(ports[i].name, "zero_point") != NULL)
            return true;
    return false;
}

/* Returns whether an operator that quantd does not have is a quantized one, by its name. */
static bool sounds_quantized(const ProtobufCBinaryData *name)
{
    static const char *const parts[] = {"uantize", "Integer", "NBits"};
    bool sounds = name->len > 1 && name->data[0] == 'Q' && isupper(name->data[1]);
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
        sounds |= strstr(qd_onnx_show(name).text, parts[i]) != NULL;
    return sounds;
}

/* Refuses a network of floats of this type in which no node quantizes, dequantizes or computes
 * quantized values. Operators that do so have a zero point. */
static enum qd_status check_quantized(const struct qd_onnx_reader *reader, const char *field,
                                      const char *type)
{
    const ProtobufCBinaryData *unknown = NULL;
    for (size_t i = 0; i < reader->proto->n_node; i++) {
        uint64_t imported, opset;
        const Onnx__NodeProto *proto = reader->proto->node[i];
        const struct qk_operator *op = operator_of(reader, proto, &imported, &opset);
        if (op != NULL && (has_zero_point(op->inputs, op->input_count) ||
                           has_zero_point(op->outputs, op->output_count)))
            return QD_OK;
        if (op == NULL && unknown == NULL && sounds_quantized(&proto->op_type))
            unknown = &proto->op_type;
    }
    if (unknown != NULL)
        return qd_fail(reader->error, QD_INVALID,
                       "%s: expected quantized operators that quantd has, got %s in a network of "
                       "%s",
                       field, qd_onnx_show(unknown).text, type);
    return qd_fail(reader->error, QD_INVALID,
                   "%s: expected a quantized network, got one of %s; export it as FP32, which "
                   "quantize_static in Python's onnxruntime.quantization can quantize",
                   field, type);
}

/* Checks the type of an operand that is an input of the graph or a constant. Types of other
 * operands are not known yet. */
static enum qd_status check_type(const struct node *node, size_t index, const char *field)
{
    const enum qk_type type = node->node->call.inputs[index].type;
    const uint32_t types = node->version->inputs[index].types;
    if ((types & QK_BIT(type)) != 0)
        return QD_OK;
    if ((type == QK_FP16 || type == QK_BF16) &&
        check_quantized(node->reader, field, qk_type_info(type)->name) != QD_OK)
        return QD_INVALID;
    return qd_refuse_type(node->op->name, node->version->number, types, field,
                          qk_type_info(type)->name, node->reader->error);
}

/* Leaves an input of the graph only those types that this node takes, too. */
static enum qd_status narrow_types(const struct node *node, size_t index, const char *field,
                                   size_t port)
{
    uint32_t *types = &node->reader->inputs[port].types;
    const uint32_t left = *types & node->version->inputs[index].types;
    char before[160];
    if (left == 0) {
        qk_print_types(*types, before, sizeof(before));
        return qd_refuse_type(node->op->name, node->version->number,
                              node->version->inputs[index].types, field, before,
                              node->reader->error);
    }
    *types = left;
    return QD_OK;
}

static enum qd_status read_input(const struct node *node, size_t index, const char *field,
                                 struct qd_onnx_value *value)
{
    struct qd_onnx_reader *reader = node->reader;
    struct qd_onnx_graph *graph = reader->graph;
    struct qk_call *call = &node->node->call;
    const bool variable = (node->op->variable_inputs >> index & 1) != 0;
    enum qd_status status = QD_OK;
    switch (value->maker) {
    case QD_ONNX_SPARSE:
        return refuse_maker(node, field, value, "a dense tensor");
    case QD_ONNX_NODE:
        break;
    case QD_ONNX_INPUT:
        call->inputs[index].type = graph->call.inputs[value->number].type;
        if (call->inputs[index].type == QK_NONE)
            status = narrow_types(node, index, field, value->number);
        else
            status = check_type(node, index, field);
        if (status != QD_OK)
            return status;
        break;
    case QD_ONNX_INITIALIZER:
    case QD_ONNX_CONSTANT:
        status = need_tensor(reader, value);
        if (status == QD_OK)
            call->inputs[index] = *value->tensor;
        return status == QD_OK ? check_type(node, index, field) : status;
    }
    node->node->inputs[index] = value->number;
    if (variable || value->maker == QD_ONNX_NODE)
        call->variable |= 1U << index;
    else
        graph->has_deferred = true;
    return QD_OK;
}

/* The inputs of an operator that joins a list (qk_operator.joins_list). */
struct list {
    size_t group;      /* inputs of one tensor of the list: itself, and what describes it */
    size_t groups_max; /* how many tensors the operator takes */
};

static struct list list_of(const struct qk_operator *op)
{
    const size_t group = 1 + op->list_begin;
    return (struct list){group, (op->input_count - op->list_begin) / group};
}

/* Returns how many inputs a node may have. If it has more than the operator, the node becomes
 * several nodes, and the last of them joins what the others make. */
static size_t most_inputs(const struct qk_operator *op)
{
    const struct list list = list_of(op);
    return op->joins_list ? op->list_begin + list.groups_max * list.groups_max * list.group
                          : op->input_count;
}

/* Returns how many nodes the last one joins. 0: the node stays one node, or has too many inputs. */
static size_t count_parts(const struct qk_operator *op, const Onnx__NodeProto *proto)
{
    const struct list list = list_of(op);
    if (!op->joins_list || proto->n_input <= op->input_count || proto->n_input > most_inputs(op))
        return 0;
    const size_t groups = (proto->n_input - op->list_begin + list.group - 1) / list.group;
    /* With each part, the last node has groups_max - 1 inputs less. */
    return (groups - 2) / (list.groups_max - 1);
}

/* Reads a node's inputs. An input without a name is absent, and so are inputs behind the node's
 * last one. */
static enum qd_status read_inputs(const struct node *node)
{
    const struct qd_onnx_reader *reader = node->reader;
    const Onnx__NodeProto *proto = node->proto;
    const struct qk_operator *op = node->op;
    enum qd_status status = QD_OK;
    if (proto->n_input > op->input_count)
        return qd_fail(reader->error, QD_INVALID, "%s: expected at most %zu inputs, got %zu",
                       node->where.text, most_inputs(op), proto->n_input);
    for (size_t i = 0; i < op->input_count && status == QD_OK; i++) {
        char field[256];
        snprintf(field, sizeof(field), "%s: %s", node->where.text, op->inputs[i].name);
        node->node->inputs[i] = QK_VALUE_NONE;
        if (i >= proto->n_input || proto->input[i].len == 0) {
            if (!node->version->inputs[i].optional)
                return qd_fail(reader->error, QD_INVALID, "%s: expected this input, got none",
                               field);
            continue;
        }
        struct qd_onnx_value *value = qd_onnx_find_value(reader, &proto->input[i]);
        if (value == NULL)
            return qd_fail(reader->error, QD_INVALID,
                           "%s: expected an input of the graph, an initializer or a node's "
                           "output, got %s, which nothing makes",
                           field, qd_onnx_show(&proto->input[i]).text);
        status = read_input(node, i, field, value);
    }
    return status;
}

/* ---- Its outputs and attributes ---------------------------------------------------------- */

/* Refuses outputs that are not computed, such as the mask of Dropout, if something reads them. */
static enum qd_status check_uncomputed(const struct node *node)
{
    const struct qd_onnx_reader *reader = node->reader;
    const Onnx__NodeProto *proto = node->proto;
    for (size_t i = node->op->output_count; i < proto->n_output; i++) {
        const struct qd_onnx_value *value = qd_onnx_find_value(reader, &proto->output[i]);
        if (value != NULL && value->is_needed)
            return qd_fail(reader->error, QD_INVALID,
                           "%s: outputs[%zu]: expected no reader, because quantd does not compute "
                           "this output, got one of %s",
                           node->where.text, i, qd_onnx_show(&proto->output[i]).text);
    }
    return QD_OK;
}

static enum qd_status read_outputs(const struct node *node)
{
    const struct qd_onnx_reader *reader = node->reader;
    const Onnx__NodeProto *proto = node->proto;
    const size_t computed = node->op->output_count;
    const size_t most = computed + node->op->uncomputed_output_count;
    if (proto->n_output == 0 || proto->n_output > most)
        return qd_fail(reader->error, QD_INVALID, "%s: expected 1 to %zu outputs, got %zu",
                       node->where.text, most, proto->n_output);
    const size_t count = proto->n_output < computed ? proto->n_output : computed;
    node->node->call.output_count = count;
    for (size_t i = 0; i < QK_OUTPUT_COUNT_MAX; i++) {
        const struct qd_onnx_value *value =
            i < count ? qd_onnx_find_value(reader, &proto->output[i]) : NULL;
        const bool is_made = value != NULL && value->maker == QD_ONNX_NODE;
        node->node->outputs[i] = is_made ? value->number : QK_VALUE_NONE;
    }
    return check_uncomputed(node);
}

/* AttributeProto.AttributeType */
enum { ANY = 0, FLOAT = 1, INT = 2, STRING = 3, TENSOR = 4, INTS = 7 };

static int32_t type_of(enum qk_attribute_kind kind)
{
    switch (kind) {
    case QK_ATTRIBUTE_INTS:
    case QK_ATTRIBUTE_STRIDES:
        return INTS;
    case QK_ATTRIBUTE_STRING:
        return STRING;
    case QK_ATTRIBUTE_FLOAT:
        return FLOAT;
    case QK_ATTRIBUTE_INT:
    case QK_ATTRIBUTE_BOOL:
    case QK_ATTRIBUTE_TYPE:
        break;
    }
    return INT;
}

static const char *type_name(int32_t type)
{
    static const char *const names[] = {
        "UNDEFINED",      "FLOAT",      "INT",        "STRING",  "TENSOR", "GRAPH",
        "FLOATS",         "INTS",       "STRINGS",    "TENSORS", "GRAPHS", "SPARSE_TENSOR",
        "SPARSE_TENSORS", "TYPE_PROTO", "TYPE_PROTOS"};
    return type >= 0 && type < (int32_t)(sizeof(names) / sizeof(names[0])) ? names[type] : "?";
}

/* Reads one attribute. Files of IR version 1 may leave out its type. */
static enum qd_status read_attribute(const struct node *node, size_t index,
                                     const Onnx__AttributeProto *proto)
{
    const struct qd_onnx_reader *reader = node->reader;
    const struct qk_attribute_def *def = &node->op->attributes[index];
    struct qk_attribute *attribute = &node->node->call.attributes[index];
    const int32_t type = type_of(def->kind);
    char field[256];
    snprintf(field, sizeof(field), "%s: %s", node->where.text, def->name);
    if (def->since > node->version->number)
        return qd_fail(reader->error, QD_INVALID,
                       "%s: expected version %u or later of %s, got %u, because opset_import says "
                       "%" PRIu64,
                       field, def->since, node->op->name, node->version->number, node->imported);
    if (attribute->present)
        return qd_fail(reader->error, QD_INVALID, "%s: expected once, got twice", field);
    if (proto->ref_attr_name.len > 0)
        return qd_fail(reader->error, QD_INVALID,
                       "%s: expected a value, got a reference to a function's attribute %s", field,
                       qd_onnx_show(&proto->ref_attr_name).text);
    if (proto->type != ANY && proto->type != type)
        return qd_fail(reader->error, QD_INVALID, "%s: type: expected %d (%s), got %d (%s)", field,
                       type, type_name(type), proto->type, type_name(proto->type));
    attribute->present = true;
    attribute->number = proto->i;
    attribute->real = proto->f;
    attribute->list = proto->ints;
    attribute->list_count = proto->n_ints;
    if (type != STRING)
        return QD_OK;
    return qd_onnx_copy_string(&proto->s, field, reader->arena, &attribute->string, reader->error);
}

/* Returns the input that has an attribute's name and that the node's proto cannot give: the
 * registry has attributes that are tensors as inputs. Returns the number of inputs if there is
 * none. */
static size_t find_tensor_input(const struct node *node, const Onnx__AttributeProto *attribute)
{
    const struct qk_operator *op = node->op;
    size_t index = node->proto->n_input;
    while (index < op->input_count && !qd_onnx_is(&attribute->name, op->inputs[index].name))
        index++;
    return attribute->type == TENSOR && attribute->t != NULL ? index : op->input_count;
}

/* Reads an attribute that is a tensor, such as ConstantOfShape's value, as an input. */
static enum qd_status read_tensor_attribute(const struct node *node, size_t index,
                                            const Onnx__AttributeProto *attribute)
{
    struct qk_tensor *tensor = &node->node->call.inputs[index];
    char field[256];
    snprintf(field, sizeof(field), "%s: %s", node->where.text, node->op->inputs[index].name);
    if (tensor->type != QK_NONE)
        return qd_fail(node->reader->error, QD_INVALID, "%s: expected once, got twice", field);
    const enum qd_status status = qd_onnx_read_tensor(node->reader, attribute->t, field, tensor);
    return status == QD_OK ? check_type(node, index, field) : status;
}

static enum qd_status read_attributes(const struct node *node)
{
    const struct qk_operator *op = node->op;
    enum qd_status status = QD_OK;
    for (size_t i = 0; i < node->proto->n_attribute && status == QD_OK; i++) {
        const Onnx__AttributeProto *attribute = node->proto->attribute[i];
        size_t index = 0;
        while (index < op->attribute_count &&
               !qd_onnx_is(&attribute->name, op->attributes[index].name))
            index++;
        const size_t input = find_tensor_input(node, attribute);
        if (index == op->attribute_count && input < op->input_count) {
            status = read_tensor_attribute(node, input, attribute);
            continue;
        }
        if (index == op->attribute_count)
            return qd_fail(node->reader->error, QD_INVALID,
                           "%s: expected an attribute of %s, got %s", node->where.text, op->name,
                           qd_onnx_show(&attribute->name).text);
        status = read_attribute(node, index, attribute);
    }
    return status;
}

/* ---- All nodes --------------------------------------------------------------------------- */

/* Reads a node all but its outputs. `proto` is the node in the file, or a part of it. */
static enum qd_status begin_node(struct node *node, const Onnx__NodeProto *proto)
{
    struct qd_onnx_reader *reader = node->reader;
    node->proto = proto;
    node->node = &reader->nodes[reader->graph->call.node_count++];
    memset(node->node, 0, qk_node_bytes(node->op));
    node->node->name = node->name;
    node->node->number = (uint32_t)node->position + 1;
    node->node->call.op = node->op;
    node->node->call.version = node->version;
    const enum qd_status status = read_inputs(node);
    return status == QD_OK ? read_attributes(node) : status;
}

/* Reads a part of a long list of inputs, from input `first` on, as a node of its own. Sets *value
 * to what this node makes. */
static enum qd_status read_part(struct node *node, const Onnx__NodeProto *whole, size_t first,
                                size_t count, uint32_t *value)
{
    struct qk_graph_call *call = &node->reader->graph->call;
    const size_t begin = node->op->list_begin;
    ProtobufCBinaryData inputs[QK_INPUT_COUNT_MAX];
    Onnx__NodeProto proto = *whole;
    memcpy(inputs, whole->input, begin * sizeof(*inputs));
    memcpy(inputs + begin, whole->input + first, count * sizeof(*inputs));
    proto.n_input = begin + count;
    proto.input = inputs;
    const enum qd_status status = begin_node(node, &proto);
    for (size_t i = 0; i < QK_OUTPUT_COUNT_MAX; i++)
        node->node->outputs[i] = QK_VALUE_NONE;
    node->node->call.output_count = 1;
    node->reader->value_names[call->value_count] = node->node->name;
    *value = node->node->outputs[0] = (uint32_t)call->value_count++;
    return status;
}

/* Reads a node with a long list of inputs: parts of the list, and what joins their results and the
 * rest of the list. */
static enum qd_status read_long_list(struct node *node, const Onnx__NodeProto *whole, size_t parts)
{
    const size_t begin = node->op->list_begin;
    const struct list list = list_of(node->op);
    uint32_t values[QK_INPUT_COUNT_MAX];
    ProtobufCBinaryData inputs[QK_INPUT_COUNT_MAX];
    Onnx__NodeProto last = *whole;
    size_t done = begin;
    enum qd_status status = QD_OK;
    for (size_t i = 0; i < parts && status == QD_OK; i++) {
        const size_t left = whole->n_input - done;
        const size_t most = list.groups_max * list.group;
        const size_t count = left < most ? left : most;
        status = read_part(node, whole, done, count, &values[i]);
        /* A name that the file has stands for what the part makes, until it is read. */
        inputs[begin + i * list.group] = whole->input[done];
        memcpy(&inputs[begin + i * list.group + 1], whole->input, begin * sizeof(*inputs));
        done += count;
    }
    if (status != QD_OK)
        return status;
    const size_t joined = begin + parts * list.group;
    memcpy(inputs, whole->input, begin * sizeof(*inputs));
    memcpy(inputs + joined, whole->input + done, (whole->n_input - done) * sizeof(*inputs));
    last.n_input = joined + whole->n_input - done;
    last.input = inputs;
    status = begin_node(node, &last);
    for (size_t i = 0; i < parts && status == QD_OK; i++) {
        const size_t input = begin + i * list.group;
        node->node->call.variable |= UINT32_C(1) << input;
        node->node->call.inputs[input] = (struct qk_tensor){.type = QK_NONE};
        node->node->inputs[input] = values[i];
    }
    node->proto = whole;
    return status == QD_OK ? read_outputs(node) : status;
}

static enum qd_status read_node(struct qd_onnx_reader *reader, size_t position)
{
    const Onnx__NodeProto *proto = reader->proto->node[position];
    struct node node = {.reader = reader,
                        .position = position,
                        .proto = proto,
                        .where = qd_onnx_node_where(reader, position)};
    enum qd_status status = find_operator(&node);
    if (status == QD_OK)
        status = qd_onnx_copy_string(&proto->name, node.where.text, reader->arena, &node.name,
                                     reader->error);
    if (status != QD_OK)
        return status;
    const size_t parts = count_parts(node.op, proto);
    if (parts > 0)
        return read_long_list(&node, proto, parts);
    status = begin_node(&node, proto);
    return status == QD_OK ? read_outputs(&node) : status;
}

/* Returns how many nodes more than one this node of the file becomes. */
static size_t count_more(const struct qd_onnx_reader *reader, size_t position)
{
    uint64_t imported;
    uint64_t opset;
    const Onnx__NodeProto *proto = reader->proto->node[position];
    const struct qk_operator *op = operator_of(reader, proto, &imported, &opset);
    return op == NULL ? 0 : count_parts(op, proto);
}

/* Allocates `count` nodes, and makes room for the names of `more` values that the file does not
 * have. */
static enum qd_status make_nodes(struct qd_onnx_reader *reader, size_t count, size_t more)
{
    struct qk_graph_call *call = &reader->graph->call;
    const size_t names = call->value_count;
    reader->nodes = qd_arena_alloc(reader->arena, count * sizeof(*reader->nodes));
    reader->value_names =
        qd_arena_alloc(reader->arena, (names + more + 1) * sizeof(*reader->value_names));
    if (reader->nodes == NULL || reader->value_names == NULL)
        return qd_onnx_no_memory(reader);
    memcpy(reader->value_names, call->value_names, names * sizeof(*reader->value_names));
    call->value_names = reader->value_names;
    return QD_OK;
}

enum qd_status qd_onnx_try_node(struct qd_onnx_reader *reader, size_t position)
{
    struct qk_graph_call *call = &reader->graph->call;
    enum qd_status status = reader->nodes == NULL
                                ? make_nodes(reader, 1 + QK_INPUT_COUNT_MAX, QK_INPUT_COUNT_MAX)
                                : QD_OK;
    const size_t value_count = call->value_count;
    call->node_count = 0;
    if (status == QD_OK)
        status = read_node(reader, position);
    call->value_count = value_count;
    return status;
}

enum qd_status qd_onnx_read_nodes(struct qd_onnx_reader *reader)
{
    size_t count = reader->taken_count;
    for (size_t i = 0; i < reader->proto->n_node && count <= QK_GRAPH_NODE_COUNT_MAX; i++)
        count += reader->is_taken[i] ? count_more(reader, i) : 0;
    if (count > QK_GRAPH_NODE_COUNT_MAX)
        return qd_fail(reader->error, QD_INVALID,
                       "graph: expected at most %d nodes, Constant aside, that its outputs need, "
                       "got %zu",
                       QK_GRAPH_NODE_COUNT_MAX, count);
    /* Passes add at most as many to most files. Pages of nodes that are not added stay untouched.
     */
    const size_t room = 2 * count;
    enum qd_status status = make_nodes(reader, room, count - reader->taken_count);
    reader->graph->call.nodes = reader->nodes;
    reader->graph->node_room = room;
    for (size_t i = 0; i < reader->proto->n_node && status == QD_OK; i++)
        if (reader->is_taken[i]) {
            reader->graph->refused_node = (uint32_t)i;
            status = read_node(reader, i);
        }
    if (status == QD_OK)
        reader->graph->refused_node = QK_VALUE_NONE;
    return status;
}
