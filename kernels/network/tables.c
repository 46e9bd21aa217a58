/* Tables: float functions between DequantizeLinear and QuantizeLinear of 8 bits have 256 possible
 * inputs, so they become one table. The operators themselves compute it, when the graph is loaded.
 *
 *    x UINT8 -> DequantizeLinear -> HardSigmoid -> Div by 6 -> QuantizeLinear -> y UINT8
 *    x UINT8 -> quantd.Lookup -> y UINT8
 *
 * The functions need not be a chain: x * Sigmoid(x) is a function of one code, too. Constants of
 * one axis, such as a slope of PRelu for each channel, give a table for each index of this axis.
 * There are axes behind it, so that a kernel looks up many elements in one table. */
#include <string.h>

#include "kernels/element/load.h"
#include "kernels/graph.h"
#include "kernels/lookup/lookup.h"
#include "kernels/network/edit.h"
#include "kernels/network/fate.h"
#include "kernels/network/pair.h"
#include "kernels/operators/operator.h"

/* quantd.Lookup */
enum { X, TABLE };
enum { X_TYPE, RANK, INNER_RANK };

/* All tables of a graph run at most this many nodes, because a node may be computed for several
 * tables. Functions stay as they are when this is used up. */
#define COMPUTED_NODES_MAX 4096

/* All tables of channels together have at most this many bytes, which stay with the model, and may
 * be more than its weights. A network for faces with 50 PRelu of 64 to 512 channels has 3 MB of
 * tables. */
#define CHANNEL_TABLE_BYTES_MAX ((size_t)4 << 20)

/* All nodes together compute at most this many elements for tables of channels, because a long
 * function may be computed for many channels. They take some 20 ms. */
#define CHANNEL_ELEMENTS_MAX ((size_t)16 << 20)

/* Tables of channels are computed for GROUP channels at a time, in memory that all groups share. It
 * has room for functions of some 25 nodes. Longer ones stay as they are. */
#define GROUP 32
#define GROUP_BYTES ((size_t)1 << 20)

/* Constants for each index of an axis. */
struct channels {
    size_t count;        /* 0: there are none */
    uint32_t inner_rank; /* the number of axes behind this axis, at least 1 */
};

/* Memory that is used again. */
struct region {
    char *begin;
    size_t used;
};

struct tables {
    struct qk_edit edit;
    uint32_t *found; /* nodes that one table replaces, each behind those whose outputs it reads */
    size_t found_count;
    uint32_t *states; /* of each node: 2 * number of the search, and one more when it is done */
    uint32_t search;
    struct step {
        uint32_t node;
        uint32_t input;         /* the next input to look at */
    } * steps;                  /* the search's way from the QuantizeLinear */
    struct qk_tensor **results; /* of each node found: its output, for all codes */
    uint32_t x;                 /* the value that all functions found depend on */
    enum qk_type x_type;
    struct channels channels; /* of all functions found */
    size_t computed;
    size_t channel_table_bytes;
    size_t channel_elements;
    struct region region;
};

/* ---- DequantizeLinear and QuantizeLinear --------------------------------------------------- */

/* Returns whether a node is this operator, DequantizeLinear or QuantizeLinear, and does it by one
 * scale of FP32 and one zero point that are known. It then reads a value. */
static bool is_per_tensor(const struct qk_edit *edit, uint32_t index, const struct qk_operator *op)
{
    const struct qk_call *call = &edit->nodes[index].call;
    if (call->op != op || call->variable != 1U << QK_PAIR_X ||
        qk_edit_value_of(edit, index, QK_PAIR_X) == QK_VALUE_NONE ||
        call->inputs[QK_PAIR_SCALE].type != QK_FP32)
        return false;
    for (size_t i = QK_PAIR_SCALE; i <= QK_PAIR_ZERO_POINT; i++)
        if (call->inputs[i].type != QK_NONE &&
            (!call->inputs[i].data || call->inputs[i].count != 1))
            return false;
    return true;
}

/* Returns the type of codes that a per-tensor QuantizeLinear or DequantizeLinear has, or QK_NONE if
 * it is not known here. Without a zero point, x of a DequantizeLinear has the type that its maker
 * or the graph's caller gives it. */
static enum qk_type code_type(const struct qk_edit *edit, uint32_t index)
{
    const struct qk_node *node = &edit->nodes[index];
    const enum qk_type type = node->call.inputs[QK_PAIR_ZERO_POINT].type;
    if (type != QK_NONE || node->call.op != &qk_onnx_dequantize_linear)
        return type;
    const uint32_t maker = qk_edit_maker_of(edit, index, QK_PAIR_X);
    if (maker != QK_NO_NODE && edit->nodes[maker].call.op == &qk_onnx_quantize_linear)
        return edit->nodes[maker].call.inputs[QK_PAIR_ZERO_POINT].type;
    return edit->types[node->inputs[QK_PAIR_X]];
}

/* ---- Finding functions of one value -------------------------------------------------------- */

/* Returns whether a constant is one number that is known, or absent. */
static bool is_number(const struct qk_tensor *constant)
{
    return constant->type == QK_NONE || (constant->data && constant->count == 1);
}

/* Returns whether a known constant has one axis of more than one element, and axes behind it. */
static bool read_channels(const struct qk_tensor *constant, struct channels *channels)
{
    if (constant->type != QK_FP32 || !constant->data || constant->count < 2)
        return false;
    uint32_t axis = 0;
    while (constant->dims[axis] == 1)
        axis++;
    *channels = (struct channels){constant->count, constant->rank - 1 - axis};
    return constant->dims[axis] == constant->count && channels->inner_rank > 0;
}

/* Returns whether a constant has a zero. Which of two zeros Min and Max return depends on the
 * shapes of their operands. */
static bool has_zero(const struct qk_tensor *constant)
{
    for (size_t i = 0; i < constant->count; i++)
        if (qk_load_f32(constant->data, i) == 0)
            return true;
    return false;
}

/* Returns whether a table can have this constant: a number, or numbers for the same axis as others
 * that are operands of functions. */
static bool take_constant(struct tables *tables, const struct qk_node *node, uint32_t input)
{
    const struct qk_call *call = &node->call;
    const struct qk_tensor *constant = &call->inputs[input];
    struct channels found;
    if (is_number(constant))
        return true;
    if (!(call->op->variable_inputs >> input & 1) || !read_channels(constant, &found))
        return false;
    if ((call->op == &qk_onnx_min || call->op == &qk_onnx_max) && has_zero(constant))
        return false;
    if (tables->channels.count == 0)
        tables->channels = found;
    return tables->channels.count == found.count && tables->channels.inner_rank == found.inner_rank;
}

/* Adds a DequantizeLinear. Returns false if its codes are not those of the others. */
static bool add_source(struct tables *tables, uint32_t index)
{
    const uint32_t x = tables->edit.nodes[index].inputs[QK_PAIR_X];
    if (tables->x != QK_VALUE_NONE && tables->x != x)
        return false;
    tables->x = x;
    tables->x_type = code_type(&tables->edit, index);
    tables->states[index] = 2 * tables->search + 1;
    tables->found[tables->found_count++] = index;
    return tables->x_type == QK_UINT8 || tables->x_type == QK_INT8;
}

/* Goes on to the node that makes the step's next input. Returns false if the search fails. */
static bool take_step(struct tables *tables, size_t *depth)
{
    const struct qk_edit *edit = &tables->edit;
    struct step *step = &tables->steps[*depth - 1];
    const struct qk_node *node = &edit->nodes[step->node];
    const uint32_t input = step->input++;
    if (!(node->call.variable >> input & 1))
        return take_constant(tables, node, input);
    const uint32_t maker = qk_edit_maker_of(edit, step->node, input);
    if (maker == QK_NO_NODE || tables->states[maker] == 2 * tables->search)
        return false; /* an input of the graph, or a cycle, which qk_graph_prepare refuses */
    if (tables->states[maker] == 2 * tables->search + 1)
        return true;
    if (is_per_tensor(edit, maker, &qk_onnx_dequantize_linear))
        return add_source(tables, maker);
    if (!edit->nodes[maker].call.op->code->is_element_by_element)
        return false;
    tables->states[maker] = 2 * tables->search;
    tables->steps[(*depth)++] = (struct step){maker, 0};
    return true;
}

/* Finds the functions that a QuantizeLinear of 8 bits reads, back to codes of one value. Returns
 * false if there are none, or if they depend on anything else. */
static bool find_functions(struct tables *tables, uint32_t last)
{
    const struct qk_edit *edit = &tables->edit;
    const enum qk_type type = code_type(edit, last);
    size_t depth = 1;
    if (type != QK_NONE && type != QK_UINT8 && type != QK_INT8)
        return false;
    tables->found_count = 0;
    tables->x = QK_VALUE_NONE;
    tables->channels = (struct channels){0};
    tables->search++;
    tables->states[last] = 2 * tables->search;
    tables->steps[0] = (struct step){last, 0};
    while (depth > 0) {
        const struct step *step = &tables->steps[depth - 1];
        if (step->input < edit->nodes[step->node].call.op->input_count) {
            if (!take_step(tables, &depth))
                return false;
            continue;
        }
        tables->states[step->node] = 2 * tables->search + 1;
        tables->found[tables->found_count++] = step->node;
        depth--;
    }
    /* Functions of constants have no codes. They were not folded because one makes an output.
     * qk_graph_prepare refuses a QuantizeLinear that reads its own codes. */
    return tables->found_count > 1 && tables->x != QK_VALUE_NONE && edit->makers[tables->x] != last;
}

/* ---- Tables -------------------------------------------------------------------------------- */

/* Channels [first, first + count). Without channels, the only table is that of channel 0. */
struct group {
    size_t first;
    size_t count;
};

/* Cuts the group's part out of a constant. */
static void cut(const struct tables *tables, const struct group *group, struct qk_tensor *constant)
{
    struct channels found;
    if (tables->channels.count == 0 || !read_channels(constant, &found))
        return;
    constant->dims[constant->rank - 1 - found.inner_rank] = group->count;
    constant->count = constant->stored = group->count;
    constant->data = (const char *)constant->data + group->first * sizeof(float);
}

/* Makes room for the results of the functions found. */
static bool take_results(struct tables *tables)
{
    for (size_t i = 0; i < tables->found_count; i++) {
        struct qk_tensor **result = &tables->results[tables->found[i]];
        if (!*result)
            *result = qk_edit_take(&tables->edit, 1, sizeof(**result));
        if (!*result)
            return false;
    }
    return true;
}

/* Runs a node on all codes. */
static enum qk_status run_node(struct tables *tables, uint32_t index, const struct group *group,
                               const struct qk_tensor *codes, struct qk_computing *computing)
{
    const struct qk_edit *edit = &tables->edit;
    const struct qk_node *node = &edit->nodes[index];
    const struct qk_graph_node named = {.name = node->name,
                                        .number = qk_graph_node_number(node, index)};
    struct qk_tensor outputs[QK_OUTPUT_COUNT_MAX];
    struct qk_error cause;
    struct qk_call call = node->call;
    for (size_t i = 0; i < call.op->input_count; i++)
        if (!(call.variable >> i & 1))
            cut(tables, group, &call.inputs[i]);
        else
            call.inputs[i] = node->inputs[i] == tables->x
                                 ? *codes
                                 : *tables->results[edit->makers[node->inputs[i]]];
    call.variable = 0;
    const enum qk_status status = qk_compute(computing, &call, outputs, &cause);
    if (status != QK_OK)
        return qk_graph_fail_in(&named, call.op, &cause, edit->error);
    *tables->results[index] = outputs[0];
    return QK_OK;
}

/* Makes the codes that all functions get: all 256 for each channel of the group, in the shape in
 * which the constants of channels broadcast. */
static enum qk_status make_codes(const struct tables *tables, const struct group *group,
                                 struct qk_tensor *codes)
{
    const size_t count = group->count * QK_LOOKUP_ENTRIES;
    uint8_t *data = qk_edit_take(&tables->edit, count, 1);
    if (!data)
        return QK_NO_MEMORY;
    for (size_t i = 0; i < count; i++)
        data[i] = (uint8_t)i;
    *codes = (struct qk_tensor){.type = tables->x_type, .data = data};
    if (tables->channels.count > 0)
        codes->dims[codes->rank++] = group->count;
    codes->dims[codes->rank++] = QK_LOOKUP_ENTRIES;
    for (uint32_t i = 1; i < tables->channels.inner_rank; i++)
        codes->dims[codes->rank++] = 1;
    codes->count = codes->stored = count;
    return QK_OK;
}

/* Runs all functions found. Returns what the last of them makes. */
static enum qk_status run_functions(struct tables *tables, const struct group *group,
                                    const struct qk_tensor *codes, struct qk_computing *computing,
                                    const struct qk_tensor **made)
{
    enum qk_status status = QK_OK;
    for (size_t i = 0; i < tables->found_count && status == QK_OK; i++)
        status = run_node(tables, tables->found[i], group, codes, computing);
    *made = tables->results[tables->found[tables->found_count - 1]];
    return status;
}

/* Returns the largest rank of the numbers that nodes take beside an operand of any shape, such as
 * the [1] in Div: no value behind such a node has a smaller rank. */
static uint32_t least_rank(const struct tables *tables)
{
    uint32_t rank = 0;
    for (size_t i = 0; i < tables->found_count; i++) {
        const struct qk_call *call = &tables->edit.nodes[tables->found[i]].call;
        const uint32_t numbers = call->op->variable_inputs & ~call->variable;
        for (size_t k = 0; k < call->op->input_count; k++)
            if (numbers >> k & 1 && call->inputs[k].rank > rank)
                rank = call->inputs[k].rank;
    }
    return rank;
}

/* Puts the table into the place of the QuantizeLinear. */
static void replace(struct tables *tables, enum qk_type type, const void *data)
{
    struct qk_edit *edit = &tables->edit;
    const struct channels *channels = &tables->channels;
    const uint32_t last = tables->found[tables->found_count - 1];
    struct qk_node made = edit->nodes[last];
    struct qk_call *call = &made.call;
    struct qk_tensor *table = &call->inputs[TABLE];
    *call = (struct qk_call){
        .op = &qk_quantd_lookup,
        .version = &qk_quantd_lookup.versions[0],
        .variable = 1U << X,
        .constants_stay = call->constants_stay,
    };
    call->attributes[X_TYPE] =
        (struct qk_attribute){.present = true, .number = qk_type_info(tables->x_type)->onnx};
    call->attributes[RANK] = (struct qk_attribute){.present = true, .number = least_rank(tables)};
    call->attributes[INNER_RANK] =
        (struct qk_attribute){.present = channels->count > 0, .number = channels->inner_rank};
    call->inputs[X] = (struct qk_tensor){.type = tables->x_type};
    *table = (struct qk_tensor){.type = type, .data = data};
    if (channels->count > 0)
        table->dims[table->rank++] = channels->count;
    table->dims[table->rank++] = QK_LOOKUP_ENTRIES;
    qk_tensor_set_count(table);
    made.inputs[X] = tables->x;
    made.inputs[TABLE] = QK_VALUE_NONE;
    for (size_t i = 0; i < tables->found_count; i++)
        qk_fate_set(edit->call, &edit->nodes[tables->found[i]], QK_FATE_TABLE, &made);
    qk_edit_replace(edit, last, &made, edit->origins[last]);
}

/* Makes the functions found one table, if it has 8 bits. */
static enum qk_status make_table(struct tables *tables)
{
    const struct group all = {0, 1};
    const struct qk_tensor *made;
    struct qk_tensor codes;
    enum qk_status status = make_codes(tables, &all, &codes);
    if (status == QK_OK)
        status = run_functions(tables, &all, &codes, &tables->edit.computing, &made);
    if (status != QK_OK)
        return status;
    tables->computed += tables->found_count;
    if (made->type == QK_UINT8 || made->type == QK_INT8)
        replace(tables, made->type, made->data);
    return QK_OK;
}

/* ---- Tables of channels -------------------------------------------------------------------- */

static void *take_again(void *context, size_t bytes)
{
    struct region *region = context;
    if (bytes > GROUP_BYTES - region->used)
        return NULL;
    void *made = region->begin + region->used;
    region->used += (bytes + 63) / 64 * 64;
    return made;
}

/* Counts the work and the memory of a table for each channel. Returns false, and counts nothing, if
 * that would be too much. */
static bool count_channels(struct tables *tables)
{
    const size_t most = CHANNEL_TABLE_BYTES_MAX - tables->channel_table_bytes;
    if (tables->channels.count > most / QK_LOOKUP_ENTRIES)
        return false;
    const size_t bytes = tables->channels.count * QK_LOOKUP_ENTRIES;
    const size_t elements = bytes * tables->found_count;
    if (elements > CHANNEL_ELEMENTS_MAX - tables->channel_elements)
        return false;
    tables->channel_table_bytes += bytes;
    tables->channel_elements += elements;
    return true;
}

/* Fills the tables of a group. Sets *type to that of the tables, or to QK_NONE if there are none,
 * because a function has no room or refuses to be computed. */
static void fill_group(struct tables *tables, const struct group *group,
                       const struct qk_tensor *codes, uint8_t *data, enum qk_type *type)
{
    struct qk_computing computing = tables->edit.computing;
    const struct qk_tensor *made;
    struct qk_graph_memory bounded = {.bytes_max = GROUP_BYTES};
    computing.memory = (struct qk_memory){take_again, &tables->region};
    computing.taken = &bounded;
    computing.work = computing.work ? computing.work : &tables->edit.computing.own_work;
    tables->region.used = 0;
    *type = QK_NONE;
    if (run_functions(tables, group, codes, &computing, &made) != QK_OK ||
        made->count != group->count * QK_LOOKUP_ENTRIES ||
        (made->type != QK_UINT8 && made->type != QK_INT8))
        return;
    *type = made->type;
    memcpy(data + group->first * QK_LOOKUP_ENTRIES, made->data, made->count);
}

/* Makes the functions found a table for each channel, unless they have to stay as they are. */
static enum qk_status make_channel_tables(struct tables *tables)
{
    const struct qk_edit *edit = &tables->edit;
    const size_t count = tables->channels.count;
    struct qk_tensor codes;
    enum qk_type type = QK_UINT8;
    enum qk_status status = QK_OK;
    if (!count_channels(tables))
        return QK_OK;
    if (!tables->region.begin)
        tables->region.begin = qk_edit_take(edit, GROUP_BYTES, 1);
    uint8_t *data = qk_edit_take(edit, count * QK_LOOKUP_ENTRIES, 1);
    if (!tables->region.begin || !data)
        return QK_NO_MEMORY;
    for (size_t first = 0; first < count && type != QK_NONE && status == QK_OK; first += GROUP) {
        const struct group group = {first, count - first < GROUP ? count - first : GROUP};
        if (first == 0 || group.count < GROUP)
            status = make_codes(tables, &group, &codes);
        if (status == QK_OK)
            fill_group(tables, &group, &codes, data, &type);
    }
    if (status == QK_OK && type != QK_NONE)
        replace(tables, type, data);
    return status;
}

/* ---- All nodes ----------------------------------------------------------------------------- */

static enum qk_status start(struct tables *tables)
{
    struct qk_edit *edit = &tables->edit;
    const size_t count = edit->call->node_count;
    const enum qk_status status = qk_edit_begin(edit, 0, 0);
    if (status != QK_OK)
        return status;
    tables->found = qk_edit_take(edit, count, sizeof(*tables->found));
    tables->states = qk_edit_take(edit, count, sizeof(*tables->states));
    tables->steps = qk_edit_take(edit, count, sizeof(*tables->steps));
    tables->results = qk_edit_take(edit, count, sizeof(*tables->results));
    if (!tables->found || !tables->states || !tables->steps || !tables->results)
        return QK_NO_MEMORY;
    memset(tables->states, 0, count * sizeof(*tables->states));
    for (size_t i = 0; i < count; i++)
        tables->results[i] = NULL;
    return QK_OK;
}

/* Replaces what lies before node `last`, if it is a QuantizeLinear. */
static enum qk_status replace_before(struct tables *tables, uint32_t last)
{
    if (!is_per_tensor(&tables->edit, last, &qk_onnx_quantize_linear) ||
        tables->computed > COMPUTED_NODES_MAX || !find_functions(tables, last))
        return QK_OK;
    if (!take_results(tables))
        return QK_NO_MEMORY;
    return tables->channels.count > 0 ? make_channel_tables(tables) : make_table(tables);
}

enum qk_status qk_graph_tabulate(const struct qk_kernels *kernels, struct qk_graph_call *call,
                                 struct qk_memory memory, const uint32_t **origins,
                                 struct qk_error *error)
{
    struct tables tables = {.edit = {.call = call, .memory = memory, .error = error}};
    enum qk_status status = start(&tables);
    if (status == QK_OK)
        status = qk_computing_init(&tables.edit.computing, kernels, call, memory, error);
    for (uint32_t i = 0; i < call->node_count && status == QK_OK; i++)
        status = tables.edit.is_removed[i] ? QK_OK : replace_before(&tables, i);
    if (status == QK_OK)
        qk_edit_end(&tables.edit, origins);
    return status;
}
