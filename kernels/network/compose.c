/* Functions of codes that follow one another become one table. Where a quantizer puts
 * QuantizeLinear and DequantizeLinear between float functions, each of them works on codes:
 *
 *    x UINT8 -> QLinearSigmoid -> s UINT8     x, s -> QLinearMul -> y UINT8
 *    x UINT8 -> quantd.Lookup -> y UINT8
 *
 * The operators themselves compute the table, when the graph is loaded. Each node is joined with
 * the functions that make what it reads. These may be tables that were joined before, so chains of
 * any length become one table. */
#include "kernels/network/compose.h"

#include <string.h>

#include "kernels/lookup/lookup.h"
#include "kernels/network/edit.h"
#include "kernels/network/fate.h"
#include "kernels/operators/operator.h"

/* quantd.Lookup */
enum { X, TABLE };
enum { X_TYPE, RANK, INNER_RANK };

/* The operators that are functions of the codes of one value, or of two. */
struct kind {
    const struct qk_operator *op;
    size_t operand_count;
    size_t operands[2];    /* the inputs that have codes */
    size_t zero_points[2]; /* of the operands */
};

static const struct kind kinds[] = {
    {&qk_microsoft_qlinear_add, 2, {0, 3}, {2, 5}}, {&qk_microsoft_qlinear_mul, 2, {0, 3}, {2, 5}},
    {&qk_microsoft_qlinear_sigmoid, 1, {0}, {2}},   {&qk_microsoft_qlinear_leaky_relu, 1, {0}, {2}},
    {&qk_quantd_lookup, 1, {X}, {TABLE}},
};

/* A node that is a function of codes. */
struct function {
    uint32_t node;
    const struct kind *kind;
    enum qk_type x_type; /* of the values that it reads */
};

struct composing {
    struct qk_edit edit;
    struct qk_tensor codes; /* all 256, of any type */
};

/* ---- Finding ------------------------------------------------------------------------------- */

static const struct kind *kind_of(const struct qk_operator *op)
{
    for (size_t i = 0; i < QK_LENGTH_OF(kinds); i++)
        if (kinds[i].op == op)
            return &kinds[i];
    return NULL;
}

/* Returns the type of codes that an operand has, or QK_NONE if the node does not say it. */
static enum qk_type type_of(const struct qk_call *call, const struct kind *kind, size_t operand)
{
    if (call->op != &qk_quantd_lookup)
        return call->inputs[kind->zero_points[operand]].type;
    const int64_t type = call->attributes[X_TYPE].number;
    return type == qk_type_info(QK_INT8)->onnx ? QK_INT8 : QK_UINT8;
}

/* Returns whether each constant is known, and is one number or the only table. */
static bool has_numbers(const struct qk_call *call)
{
    for (size_t i = 0; i < call->op->input_count; i++) {
        const struct qk_tensor *constant = &call->inputs[i];
        const bool is_table = call->op == &qk_quantd_lookup && i == TABLE;
        if (!(call->variable >> i & 1) && constant->type != QK_NONE &&
            (!constant->data || constant->count != (is_table ? QK_LOOKUP_ENTRIES : 1)))
            return false;
    }
    return true;
}

/* Reads a node. Returns false if it is no function of codes of one type. */
static bool read_function(const struct qk_edit *edit, uint32_t node, struct function *function)
{
    const struct qk_call *call = &edit->nodes[node].call;
    const struct kind *kind = kind_of(call->op);
    *function = (struct function){node, kind, QK_NONE};
    if (!kind || !has_numbers(call) ||
        (call->op == &qk_quantd_lookup && call->attributes[INNER_RANK].present))
        return false;
    for (size_t i = 0; i < kind->operand_count; i++) {
        const enum qk_type type = type_of(call, kind, i);
        if (!(call->variable >> kind->operands[i] & 1))
            continue;
        if (qk_edit_value_of(edit, node, kind->operands[i]) == QK_VALUE_NONE ||
            (function->x_type != QK_NONE && function->x_type != type))
            return false;
        function->x_type = type;
    }
    return function->x_type == QK_UINT8 || function->x_type == QK_INT8;
}

/* Returns the value that a function reads, or QK_VALUE_NONE if it reads two. */
static uint32_t source_of(const struct qk_edit *edit, const struct function *function)
{
    uint32_t source = QK_VALUE_NONE;
    for (size_t i = 0; i < function->kind->operand_count; i++) {
        const uint32_t value = qk_edit_value_of(edit, function->node, function->kind->operands[i]);
        if (value != QK_VALUE_NONE && source != QK_VALUE_NONE && value != source)
            return QK_VALUE_NONE;
        source = value != QK_VALUE_NONE ? value : source;
    }
    return source;
}

/* Reads the function that makes an operand of another. Returns false if there is none. */
static bool read_maker(const struct qk_edit *edit, const struct function *last, size_t operand,
                       struct function *maker)
{
    const uint32_t node = qk_edit_maker_of(edit, last->node, last->kind->operands[operand]);
    return node != QK_NO_NODE && node != last->node && read_function(edit, node, maker) &&
           source_of(edit, maker) != QK_VALUE_NONE;
}

/* Returns whether all operands of a function are x, constants, or functions of x. */
static bool depends_on(const struct qk_edit *edit, const struct function *last, uint32_t x,
                       enum qk_type x_type)
{
    struct function maker;
    for (size_t i = 0; i < last->kind->operand_count; i++) {
        const uint32_t value = qk_edit_value_of(edit, last->node, last->kind->operands[i]);
        if (value == QK_VALUE_NONE || (value == x && last->x_type == x_type))
            continue;
        if (value == x || !read_maker(edit, last, i, &maker) || source_of(edit, &maker) != x ||
            maker.x_type != x_type)
            return false;
    }
    return true;
}

/* Returns whether a node reads a value, and nothing else does. */
static bool is_only_reader(const struct qk_edit *edit, const struct function *last, uint32_t value)
{
    uint32_t reads = 0;
    for (size_t i = 0; i < last->kind->operand_count; i++)
        reads += qk_edit_value_of(edit, last->node, last->kind->operands[i]) == value;
    return edit->reads[value] == reads;
}

/* Finds a function that can be removed if `last` becomes a table of what that function reads. */
static bool find_first(const struct qk_edit *edit, const struct function *last,
                       struct function *first)
{
    for (size_t i = 0; i < last->kind->operand_count; i++) {
        if (!read_maker(edit, last, i, first) ||
            !is_only_reader(edit, last, edit->nodes[first->node].outputs[0]))
            continue;
        const uint32_t x = source_of(edit, first);
        if (edit->makers[x] != last->node && depends_on(edit, last, x, first->x_type))
            return true;
    }
    return false;
}

/* ---- Joining ------------------------------------------------------------------------------- */

/* Makes as many codes of a number as there are in a table. */
static enum qk_status repeat(struct qk_edit *edit, struct qk_tensor *number)
{
    uint8_t *codes = qk_edit_take(edit, QK_LOOKUP_ENTRIES, 1);
    if (!codes)
        return QK_NO_MEMORY;
    memset(codes, *(const uint8_t *)number->data, QK_LOOKUP_ENTRIES);
    *number = (struct qk_tensor){
        .type = number->type, .rank = 1, .dims = {QK_LOOKUP_ENTRIES}, .data = codes};
    qk_tensor_set_count(number);
    return QK_OK;
}

/* Computes QLinearAdd of operands of one shape. Which of its operands it rounds first depends on
 * their shapes in a run (qk_binary_first_is_scalar), so both orders are computed. Returns
 * QK_INVALID if they differ, which is rare. */
static enum qk_status compute_sum(struct composing *composing, struct qk_call *call,
                                  struct qk_tensor *y, struct qk_error *cause)
{
    enum { B = 3 };
    struct qk_tensor exchanged[QK_OUTPUT_COUNT_MAX];
    enum qk_status status = QK_OK;
    for (size_t i = 0; i <= B && status == QK_OK; i += B)
        if (call->inputs[i].count == 1)
            status = repeat(&composing->edit, &call->inputs[i]);
    if (status == QK_OK)
        status = qk_compute(&composing->edit.computing, call, y, cause);
    for (size_t i = 0; i < B; i++) {
        const struct qk_tensor a = call->inputs[i];
        call->inputs[i] = call->inputs[B + i];
        call->inputs[B + i] = a;
    }
    if (status == QK_OK)
        status = qk_compute(&composing->edit.computing, call, exchanged, cause);
    if (status == QK_OK && memcmp(y->data, exchanged[0].data, QK_LOOKUP_ENTRIES) != 0)
        return QK_INVALID;
    return status;
}

/* Computes a function of all codes, each operand of which is one of `operands`. */
static enum qk_status compute(struct composing *composing, const struct function *function,
                              const struct qk_tensor operands[2], struct qk_tensor *y)
{
    struct qk_call call = composing->edit.nodes[function->node].call;
    struct qk_tensor outputs[QK_OUTPUT_COUNT_MAX];
    struct qk_error cause;
    for (size_t i = 0; i < function->kind->operand_count; i++)
        if (call.variable >> function->kind->operands[i] & 1)
            call.inputs[function->kind->operands[i]] = operands[i];
    call.variable = 0;
    const enum qk_status status =
        call.op == &qk_microsoft_qlinear_add
            ? compute_sum(composing, &call, outputs, &cause)
            : qk_compute(&composing->edit.computing, &call, outputs, &cause);
    if (status == QK_OK) /* y has ones in front if a number has more dimensions than the codes */
        *y = (struct qk_tensor){.type = outputs[0].type,
                                .rank = 1,
                                .dims = {outputs[0].count},
                                .count = outputs[0].count,
                                .stored = outputs[0].count,
                                .data = outputs[0].data};
    return status;
}

/* Computes y for all codes of x, which has the type of those that `first` reads. */
static enum qk_status compute_all(struct composing *composing, const struct function *last,
                                  const struct function *first, struct qk_tensor *y)
{
    const struct qk_edit *edit = &composing->edit;
    const uint32_t x = source_of(edit, first);
    struct qk_tensor codes[2] = {composing->codes, composing->codes};
    struct qk_tensor operands[2];
    codes[0].type = codes[1].type = first->x_type;
    for (size_t i = 0; i < last->kind->operand_count; i++) {
        const uint32_t value = qk_edit_value_of(edit, last->node, last->kind->operands[i]);
        struct function maker;
        operands[i] = codes[i];
        if (value == QK_VALUE_NONE || value == x || !read_maker(edit, last, i, &maker))
            continue;
        const enum qk_status status = compute(composing, &maker, codes, &operands[i]);
        if (status != QK_OK)
            return status;
    }
    return compute(composing, last, operands, y);
}

/* Raises *rank to that of the numbers beside an operand of any shape, whose rank y has at least. */
static void raise_rank(const struct qk_call *call, int64_t *rank)
{
    const struct kind *kind = kind_of(call->op);
    if (call->op == &qk_quantd_lookup && call->attributes[RANK].present &&
        call->attributes[RANK].number > *rank)
        *rank = call->attributes[RANK].number;
    for (size_t i = 0; i < kind->operand_count; i++)
        if (!(call->variable >> kind->operands[i] & 1) &&
            call->inputs[kind->operands[i]].rank > *rank)
            *rank = call->inputs[kind->operands[i]].rank;
}

/* Puts the table into the place of `last`. */
static void replace(struct qk_edit *edit, const struct function *last, const struct function *first,
                    const struct qk_tensor *table)
{
    struct qk_node made = edit->nodes[last->node];
    struct qk_call *call = &made.call;
    int64_t rank = 0;
    raise_rank(call, &rank);
    for (size_t i = 0; i < last->kind->operand_count; i++) {
        struct function maker;
        const uint32_t value = qk_edit_value_of(edit, last->node, last->kind->operands[i]);
        if (value == QK_VALUE_NONE || value == source_of(edit, first) ||
            !read_maker(edit, last, i, &maker))
            continue;
        raise_rank(&edit->nodes[maker.node].call, &rank);
        if (is_only_reader(edit, last, value))
            qk_fate_set(edit->call, &edit->nodes[maker.node], QK_FATE_TABLE, &made);
    }
    *call = (struct qk_call){
        .op = &qk_quantd_lookup,
        .version = &qk_quantd_lookup.versions[0],
        .variable = 1U << X,
        .constants_stay = call->constants_stay,
    };
    call->attributes[X_TYPE] =
        (struct qk_attribute){.present = true, .number = qk_type_info(first->x_type)->onnx};
    call->attributes[RANK] = (struct qk_attribute){.present = true, .number = rank};
    call->inputs[X] = (struct qk_tensor){.type = first->x_type};
    call->inputs[TABLE] = *table;
    made.inputs[X] = source_of(edit, first);
    made.inputs[TABLE] = QK_VALUE_NONE;
    qk_fate_set(edit->call, &edit->nodes[last->node], QK_FATE_TABLE, &made);
    qk_edit_replace(edit, last->node, &made, edit->origins[last->node]);
}

/* Joins a node with the functions that make what it reads. A node that cannot be computed stays:
 * qk_graph_prepare says why. */
static enum qk_status join(struct composing *composing, uint32_t node)
{
    struct qk_edit *edit = &composing->edit;
    struct function last;
    struct function first;
    struct qk_tensor table;
    if (!read_function(edit, node, &last) || !find_first(edit, &last, &first))
        return QK_OK;
    const enum qk_status status = compute_all(composing, &last, &first, &table);
    if (status == QK_NO_MEMORY)
        return qk_fail(edit->error, QK_NO_MEMORY, "out of memory for a graph of %zu nodes",
                       edit->call->node_count);
    if (status == QK_OK && table.count == QK_LOOKUP_ENTRIES)
        replace(edit, &last, &first, &table);
    return QK_OK;
}

static enum qk_status start(struct composing *composing, const struct qk_kernels *kernels)
{
    struct qk_edit *edit = &composing->edit;
    const enum qk_status status = qk_edit_begin(edit, 0, 0);
    if (status != QK_OK)
        return status;
    uint8_t *codes = qk_edit_take(edit, QK_LOOKUP_ENTRIES, 1);
    if (!codes)
        return QK_NO_MEMORY;
    for (size_t i = 0; i < QK_LOOKUP_ENTRIES; i++)
        codes[i] = (uint8_t)i;
    composing->codes = (struct qk_tensor){.rank = 1, .dims = {QK_LOOKUP_ENTRIES}, .data = codes};
    qk_tensor_set_count(&composing->codes);
    return qk_computing_init(&edit->computing, kernels, edit->call, edit->memory, edit->error);
}

enum qk_status qk_graph_compose(const struct qk_kernels *kernels, struct qk_graph_call *call,
                                struct qk_memory memory, const uint32_t **origins,
                                struct qk_error *error)
{
    struct composing composing = {.edit = {.call = call, .memory = memory, .error = error}};
    enum qk_status status = start(&composing, kernels);
    for (uint32_t i = 0; i < call->node_count && status == QK_OK; i++)
        status = composing.edit.is_removed[i] ? QK_OK : join(&composing, i);
    if (status == QK_OK)
        qk_edit_end(&composing.edit, origins);
    qk_fate_settle_tables(call);
    return status;
}
