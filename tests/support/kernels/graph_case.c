#include "tests/support/kernels/graph_case.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/graph.h"
#include "tests/support/guarded.h"

struct graph_case *graph_case_create(uint64_t seed)
{
    struct graph_case *made = calloc(1, sizeof(*made));
    cr_assert_not_null(made);
    made->call.nodes = made->nodes;
    made->call.value_names = made->value_names;
    made->scalar = qk_test_kernels("scalar");
    made->random = seed;
    return made;
}

void graph_case_destroy(struct graph_case *made)
{
    for (size_t i = 0; i < made->block_count; i++)
        guarded_free(made->blocks[i]);
    qk_kernels_destroy(made->scalar);
    free(made);
}

/* ---- Values -------------------------------------------------------------------------------- */

static void *take(struct graph_case *made, size_t bytes)
{
    cr_assert_lt(made->block_count, sizeof(made->blocks) / sizeof(made->blocks[0]));
    return made->blocks[made->block_count++] = guarded_alloc(bytes, 64);
}

/* Fills in random elements. Floats are from -100 to 100 with few digits, so none is NaN. */
static void fill(struct graph_case *made, struct qk_tensor *tensor)
{
    size_t bytes;
    cr_assert(qk_tensor_set_count(tensor));
    cr_assert(qk_type_bytes(tensor->type, tensor->count, &bytes));
    uint8_t *data = take(made, bytes);
    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)(qk_test_random(&made->random) >> 40);
    for (size_t i = 0; tensor->type == QK_FP32 && i < tensor->count; i++)
        ((float *)(void *)data)[i] = (float)qk_test_random_below(&made->random, 2000) / 10 - 100;
    tensor->data = data;
}

static uint32_t add_value(struct graph_case *made, const struct qk_tensor *tensor)
{
    const size_t value = made->call.value_count++;
    char *name = made->names[GRAPH_CASE_NODES_MAX + value];
    cr_assert_lt(value, GRAPH_CASE_VALUES_MAX);
    snprintf(name, sizeof(made->names[0]), "v%u", (unsigned)value % 1000);
    made->value_names[value] = name;
    made->values[value] = *tensor;
    return (uint32_t)value;
}

uint32_t graph_case_input(struct graph_case *made, enum qk_type type, const char *shape)
{
    struct qk_tensor tensor = {.type = type};
    for (char *end; *shape; shape = *end ? end + 1 : end) {
        cr_assert_lt(tensor.rank, QK_RANK_MAX);
        tensor.dims[tensor.rank++] = strtoul(shape, &end, 10);
    }
    fill(made, &tensor);
    const uint32_t value = add_value(made, &tensor);
    made->call.inputs[made->call.input_count++] = (struct qk_graph_input){value, type};
    return value;
}

void graph_case_output(struct graph_case *made, uint32_t value)
{
    made->call.outputs[made->call.output_count++] = value;
}

/* ---- Nodes --------------------------------------------------------------------------------- */

static void give(struct graph_case *made, struct qk_call *call, const char *name, enum qk_type type,
                 uint32_t rank, const size_t *dims)
{
    qk_test_call_input(call, name, type, NULL, rank, dims);
    fill(made, &call->inputs[qk_test_input_index(call->op, name)]);
}

static void give_float(struct graph_case *made, struct qk_call *call, const char *name, float value)
{
    give(made, call, name, QK_FP32, 0, NULL);
    *(float *)call->inputs[qk_test_input_index(call->op, name)].data = value;
}

/* Runs the call and makes a node of it. The node's inputs 0 and `second` are the two values, or the
 * call's own inputs where a value is QK_VALUE_NONE. */
static uint32_t add_node_at(struct graph_case *made, struct qk_call *call, size_t second,
                            const uint32_t values[2])
{
    const size_t index = made->call.node_count++;
    struct qk_node *node = &made->nodes[index];
    struct qk_test_result result;
    cr_assert_lt(index, GRAPH_CASE_NODES_MAX);
    call->variable = 0;
    for (size_t i = 0; i < 2; i++)
        if (values[i] != QK_VALUE_NONE) {
            call->inputs[i * second] = made->values[values[i]];
            call->variable |= 1U << i * second;
        }
    qk_test_run(made->scalar, call, &result);
    cr_assert_eq(result.status, QK_OK, "node %zu: %s", index, result.error.text);
    made->blocks[made->block_count++] = result.output;
    struct qk_tensor y = result.plan.outputs[0];
    y.data = result.output;

    snprintf(made->names[index], sizeof(made->names[0]), "n%u", (unsigned)index % 1000);
    *node = (struct qk_node){.name = made->names[index], .call = *call};
    for (size_t i = 0; i < QK_INPUT_COUNT_MAX; i++) {
        const bool reads = call->variable >> i & 1;
        if (reads)
            node->call.inputs[i] = (struct qk_tensor){.type = QK_FP8E8M0}; /* not read */
        node->inputs[i] = reads ? values[i > 0] : 12345;                   /* not read */
    }
    for (size_t i = 0; i < QK_OUTPUT_COUNT_MAX; i++)
        node->outputs[i] = QK_VALUE_NONE;
    node->outputs[0] = add_value(made, &y);
    return node->outputs[0];
}

/* The same for inputs 0 and 1. */
static uint32_t add_node_of(struct graph_case *made, struct qk_call *call, const uint32_t values[2])
{
    return add_node_at(made, call, 1, values);
}

/* The same for a node that reads one value. */
static uint32_t add_node(struct graph_case *made, struct qk_call *call, uint32_t x)
{
    return add_node_of(made, call, (const uint32_t[]){x, QK_VALUE_NONE});
}

uint32_t graph_case_quantize(struct graph_case *made, uint32_t x, enum qk_type y_type)
{
    struct qk_call call;
    qk_test_call_init(&call, "onnx.QuantizeLinear", 25);
    give_float(made, &call, "y_scale", 0.75F);
    give(made, &call, "y_zero_point", y_type, 0, NULL);
    return add_node(made, &call, x);
}

uint32_t graph_case_dequantize(struct graph_case *made, uint32_t x, enum qk_type y_type)
{
    struct qk_call call;
    qk_test_call_init(&call, "onnx.DequantizeLinear", 25);
    give_float(made, &call, "x_scale", 0.5F);
    give(made, &call, "x_zero_point", made->values[x].type, 0, NULL);
    qk_test_call_int(&call, "output_dtype", qk_type_info(y_type)->onnx);
    return add_node(made, &call, x);
}

uint32_t graph_case_function(struct graph_case *made, const char *name, uint32_t x)
{
    struct qk_call call;
    qk_test_call_init(&call, name, 25);
    return add_node(made, &call, x);
}

uint32_t graph_case_combine(struct graph_case *made, const char *name, uint32_t a, uint32_t b)
{
    struct qk_call call;
    qk_test_call_init(&call, name, 25);
    return add_node_of(made, &call, (const uint32_t[]){a, b});
}

uint32_t graph_case_average(struct graph_case *made, uint32_t x, const int64_t *kernel_shape,
                            const int64_t *dilations)
{
    struct qk_call call;
    qk_test_call_init(&call, "onnx.AveragePool", 22);
    qk_test_call_ints(&call, "kernel_shape", kernel_shape, 1);
    if (dilations)
        qk_test_call_ints(&call, "dilations", dilations, 1);
    return add_node(made, &call, x);
}

uint32_t graph_case_pad(struct graph_case *made, uint32_t x, const char *mode, const float *value)
{
    static const int64_t pads[] = {0, 0, 1, 0, 0, 0, 2, 1};
    struct qk_call call;
    qk_test_call_init(&call, "onnx.Pad", 13);
    call.variable = 1;
    qk_test_call_string(&call, "mode", mode);
    qk_test_call_input(&call, "pads", QK_INT64, pads, 1, (const size_t[]){8});
    if (value)
        qk_test_call_input(&call, "constant_value", QK_FP32, value, 0, NULL);
    return add_node(made, &call, x);
}

uint32_t graph_case_divide(struct graph_case *made, uint32_t x, uint32_t rank)
{
    static const size_t ones[] = {1, 1, 1, 1};
    struct qk_call call;
    qk_test_call_init(&call, "onnx.Div", 14);
    call.variable = 1;
    give(made, &call, "B", QK_FP32, rank, ones);
    return add_node(made, &call, x);
}

uint32_t graph_case_with(struct graph_case *made, const char *name, uint32_t x, size_t constant,
                         uint32_t rank, const size_t *dims)
{
    struct qk_call call;
    qk_test_call_init(&call, name, 18);
    give(made, &call, call.op->inputs[constant].name, QK_FP32, rank, dims);
    return add_node_of(made, &call,
                       constant == 1 ? (const uint32_t[]){x, QK_VALUE_NONE}
                                     : (const uint32_t[]){QK_VALUE_NONE, x});
}

uint32_t graph_case_constant(struct graph_case *made, uint32_t like, enum qk_type y_type)
{
    const struct qk_tensor *x = &made->values[like];
    struct qk_call call;
    qk_test_call_init(&call, "onnx.DequantizeLinear", 25);
    give(made, &call, "x", x->type, x->rank, x->dims);
    give_float(made, &call, "x_scale", 2.0F);
    qk_test_call_int(&call, "output_dtype", qk_type_info(y_type)->onnx);
    return add_node(made, &call, QK_VALUE_NONE);
}

/* Runs a call whose list of inputs is `count` values, and makes a node of it. Fills in the values
 * of its first outputs. */
static void add_list(struct graph_case *made, struct qk_call *call, size_t count,
                     const uint32_t *values, size_t output_count, uint32_t *outputs)
{
    const size_t index = made->call.node_count++;
    const size_t first = call->op->list_begin, step = first + 1;
    struct qk_node *node = &made->nodes[index];
    struct qk_test_result result;
    cr_assert_lt(index, GRAPH_CASE_NODES_MAX);
    call->variable = 0;
    for (size_t i = 0; i < count; i++) {
        call->inputs[first + i * step] = made->values[values[i]];
        call->variable |= UINT32_C(1) << (first + i * step);
    }
    qk_test_run(made->scalar, call, &result);
    cr_assert_eq(result.status, QK_OK, "node %zu: %s", index, result.error.text);
    snprintf(made->names[index], sizeof(made->names[0]), "n%u", (unsigned)index % 1000);
    *node = (struct qk_node){.name = made->names[index], .call = *call};
    for (size_t i = 0; i < count; i++) {
        node->call.inputs[first + i * step] = (struct qk_tensor){.type = QK_FP8E8M0}; /* not read */
        node->inputs[first + i * step] = values[i];
    }
    for (size_t i = 0; i < QK_OUTPUT_COUNT_MAX; i++)
        node->outputs[i] = QK_VALUE_NONE;
    for (size_t i = 0; i < call->op->output_count; i++) {
        if (result.outputs[i])
            made->blocks[made->block_count++] = result.outputs[i];
        struct qk_tensor y = result.plan.outputs[i];
        y.data = result.outputs[i];
        if (i < output_count)
            outputs[i] = node->outputs[i] = add_value(made, &y);
    }
}

uint32_t graph_case_concat(struct graph_case *made, size_t count, const uint32_t *values,
                           int64_t axis)
{
    uint32_t y;
    struct qk_call call;
    qk_test_call_init(&call, "onnx.Concat", 13);
    qk_test_call_int(&call, "axis", axis);
    for (size_t i = count; i < call.op->input_count; i++)
        call.inputs[i] = (struct qk_tensor){.type = QK_NONE};
    add_list(made, &call, count, values, 1, &y);
    return y;
}

uint32_t graph_case_concat_codes(struct graph_case *made, size_t count, const uint32_t *values,
                                 int64_t axis, bool changes)
{
    const enum qk_type type = made->values[values[0]].type;
    uint32_t y;
    struct qk_call call;
    qk_test_call_init(&call, "com.microsoft.QLinearConcat", 1);
    qk_test_call_int(&call, "axis", axis);
    give_float(made, &call, "Y_scale", 0.5F);
    give(made, &call, "Y_zero_point", type, 0, NULL);
    for (size_t i = call.op->list_begin; i + 2 < call.op->input_count; i += 3) {
        if (i >= call.op->list_begin + 3 * count) {
            for (size_t k = i; k < i + 3; k++)
                call.inputs[k] = (struct qk_tensor){.type = QK_NONE};
            continue;
        }
        give_float(made, &call, call.op->inputs[i + 1].name, changes && i == 2 ? 0.25F : 0.5F);
        call.inputs[i + 2] = call.inputs[1];
    }
    add_list(made, &call, count, values, 1, &y);
    return y;
}

void graph_case_split(struct graph_case *made, uint32_t x, int64_t axis, size_t first,
                      uint32_t *both)
{
    int64_t *sizes = take(made, 2 * sizeof(*sizes));
    struct qk_call call;
    sizes[0] = (int64_t)first;
    sizes[1] = (int64_t)(made->values[x].dims[axis] - first);
    qk_test_call_init(&call, "onnx.Split", 13);
    qk_test_call_int(&call, "axis", axis);
    qk_test_call_input(&call, "split", QK_INT64, sizes, 1, (const size_t[]){2});
    call.output_count = 2;
    add_list(made, &call, 1, &x, 2, both);
}

uint32_t graph_case_identity(struct graph_case *made, uint32_t x)
{
    struct qk_call call;
    qk_test_call_init(&call, "onnx.Identity", 25);
    return add_node(made, &call, x);
}

uint32_t graph_case_conv(struct graph_case *made, uint32_t x, size_t out_channels,
                         enum qk_type y_type)
{
    static const int64_t pads[] = {1, 1, 1, 1};
    const size_t channels = made->values[x].dims[1];
    struct qk_call call;
    qk_test_call_init(&call, "onnx.QLinearConv", 10);
    give_float(made, &call, "x_scale", 0.5F);
    give(made, &call, "x_zero_point", made->values[x].type, 0, NULL);
    give(made, &call, "w", QK_INT8, 4, (size_t[]){out_channels, channels, 3, 3});
    give_float(made, &call, "w_scale", 0.25F);
    give(made, &call, "w_zero_point", QK_INT8, 0, NULL);
    give_float(made, &call, "y_scale", (float)channels * 5);
    give(made, &call, "y_zero_point", y_type, 0, NULL);
    qk_test_call_ints(&call, "pads", pads, 4);
    return add_node(made, &call, x);
}

uint32_t graph_case_clip(struct graph_case *made, uint32_t x, const struct qk_tensor *min)
{
    struct qk_call call;
    qk_test_call_init(&call, "onnx.Clip", 13);
    call.inputs[1] = *min;
    return add_node(made, &call, x);
}

uint32_t graph_case_codes(struct graph_case *made, const char *name, uint32_t a, uint32_t b)
{
    static const int64_t sides[] = {2, 2};
    const enum qk_type type = made->values[a].type;
    const size_t operands = b == QK_VALUE_NONE ? 1 : 2;
    struct qk_call call;
    qk_test_call_init(&call, name, strncmp(name, "onnx.", 5) == 0 ? 10 : 1);
    for (size_t i = 0; i <= operands; i++) {
        const size_t scale = i < operands ? 3 * i + 1 : 3 * i;
        give_float(made, &call, call.op->inputs[scale].name, i < operands ? 0.1F : 0.75F);
        give(made, &call, call.op->inputs[scale + 1].name, type, 0, NULL);
    }
    if (strstr(name, "AveragePool") && !strstr(name, "Global"))
        qk_test_call_ints(&call, "kernel_shape", sides, 2);
    return add_node_at(made, &call, 3, (const uint32_t[]){a, b});
}

/* ---- Operators on floats ------------------------------------------------------------------- */

/* Adds a node of an operator of three inputs, such as QuantizeLinear, that nothing has run. */
static struct qk_node *add_pair(struct graph_case *made, const char *name,
                                const struct qk_tensor *scale)
{
    const size_t index = made->call.node_count++;
    struct qk_node *node = &made->nodes[index];
    cr_assert_lt(index, GRAPH_CASE_NODES_MAX);
    snprintf(made->names[index], sizeof(made->names[0]), "n%u", (unsigned)index % 1000);
    *node = (struct qk_node){.name = made->names[index]};
    qk_test_call_init(&node->call, name, 25);
    node->call.variable = 1;
    for (size_t i = 0; i < QK_OUTPUT_COUNT_MAX; i++)
        node->outputs[i] = QK_VALUE_NONE;
    node->call.inputs[1] = scale[0];
    node->call.inputs[2] = scale[1];
    return node;
}

/* Gives `to` the attributes that it has in common with `from`. */
static void copy_attributes(const struct qk_call *from, struct qk_call *to)
{
    for (size_t i = 0; i < from->op->attribute_count; i++)
        for (size_t k = 0; k < to->op->attribute_count; k++)
            if (strcmp(from->op->attributes[i].name, to->op->attributes[k].name) == 0)
                to->attributes[k] = from->attributes[i];
}

void graph_case_to_floats(struct graph_case *made, uint32_t y, const char *name, uint64_t version)
{
    const struct qk_tensor none = {.type = QK_FP32};
    size_t index = 0;
    while (made->nodes[index].outputs[0] != y)
        index++;
    const struct qk_node old = made->nodes[index];
    const size_t operands = old.call.variable >> 3 != 0 || strcmp(name, "onnx.Conv") == 0 ? 2 : 1;
    struct qk_node *real = &made->nodes[index];
    *real = (struct qk_node){.name = old.name};
    qk_test_call_init(&real->call, name, version);
    copy_attributes(&old.call, &real->call);
    real->call.variable = (1U << operands) - 1;
    for (size_t i = 0; i < operands; i++) {
        struct qk_node *before =
            add_pair(made, "onnx.DequantizeLinear", &old.call.inputs[3 * i + 1]);
        before->call.inputs[0] = old.call.inputs[3 * i];
        before->call.variable = old.call.variable >> 3 * i & 1;
        before->inputs[0] = old.inputs[3 * i];
        real->inputs[i] = before->outputs[0] = add_value(made, &none);
    }
    for (size_t i = 0; i < QK_OUTPUT_COUNT_MAX; i++)
        real->outputs[i] = i == 0 ? add_value(made, &none) : QK_VALUE_NONE;
    struct qk_node *behind = add_pair(made, "onnx.QuantizeLinear", &old.call.inputs[3 * operands]);
    behind->inputs[0] = real->outputs[0];
    behind->outputs[0] = y;
}

void graph_case_shuffle(struct graph_case *made)
{
    for (size_t i = made->call.node_count; i-- > 1;) {
        const size_t k = qk_test_random_below(&made->random, i + 1);
        const struct qk_node node = made->nodes[i];
        made->nodes[i] = made->nodes[k];
        made->nodes[k] = node;
    }
}

/* ---- Runs ---------------------------------------------------------------------------------- */

/* Returns the size of the next piece of `count` units, of which `done` are done. Pieces begin at
 * any unit and wrap around. */
static size_t take_piece(size_t count, size_t first, size_t done, size_t *begin, uint64_t *random)
{
    *begin = (first + done) % count;
    const size_t limit = *begin >= first ? count - *begin : count - done;
    return 1 + qk_test_random_below(random, limit);
}

static void pack(struct qk_graph *graph, uint64_t seed)
{
    const size_t count = graph->pack_unit_count;
    const size_t first = count > 0 ? qk_test_random_below(&seed, count) : 0;
    for (size_t done = 0, piece, begin; done < count; done += piece) {
        piece = take_piece(count, first, done, &begin, &seed);
        qk_graph_pack(graph, begin, begin + piece);
    }
}

enum qk_status graph_case_prepare(const struct graph_case *made, const struct qk_kernels *kernels,
                                  struct qk_memory memory, const struct qk_graph **graph,
                                  struct qk_error *error)
{
    const size_t node_count = made->call.node_count;
    struct qk_graph *prepared = NULL;
    struct qk_graph_call *call = guarded_alloc(sizeof(*call), 8);
    struct qk_node *nodes = guarded_alloc(sizeof(*nodes) * node_count, 8);
    memcpy(call, &made->call, sizeof(*call));
    memcpy(nodes, made->nodes, sizeof(*nodes) * node_count);
    call->nodes = nodes;
    for (size_t i = 0; i < node_count; i++)
        qk_test_lend(&made->nodes[i].call, &nodes[i].call);
    const enum qk_status status = qk_graph_prepare(kernels, call, memory, &prepared, error);
    if (status == QK_OK)
        pack(prepared, made->random);
    for (size_t i = 0; i < node_count; i++)
        qk_test_take_back(&made->nodes[i].call, &nodes[i].call);
    guarded_free(nodes);
    guarded_free(call);
    *graph = prepared;
    return status;
}

enum qk_status graph_case_plan(const struct graph_case *made, const struct qk_graph *graph,
                               struct qk_memory memory, struct qk_graph_plan *plan,
                               struct qk_error *error)
{
    struct qk_tensor inputs[QK_GRAPH_PORT_COUNT_MAX];
    for (size_t i = 0; i < made->call.input_count; i++) {
        inputs[i] = made->values[made->call.inputs[i].value];
        inputs[i].data = NULL;
    }
    return qk_graph_plan(graph, inputs, memory, plan, error);
}

/* Runs all units of a node, beginning with any unit, in pieces that each have their own
 * workspace. */
static void run_node(const struct qk_graph_plan *plan, size_t node, const void *const *inputs,
                     void *const *outputs, void *scratch, uint64_t *random)
{
    const size_t count = plan->nodes[node].plan.unit_count;
    const size_t first = count > 0 ? qk_test_random_below(random, count) : 0;
    for (size_t done = 0, piece, begin; done < count; done += piece) {
        piece = take_piece(count, first, done, &begin, random);
        void *workspace = guarded_alloc(plan->workspace_bytes, 64);
        qk_graph_run(plan, node, inputs, outputs, scratch, workspace, begin, begin + piece);
        guarded_free(workspace);
    }
}

/* Fails the test unless all values that are alive at a node are as expected after it has run. */
static void check_alive(const struct graph_case *made, const struct qk_graph_plan *plan,
                        size_t node, void *const *outputs, const char *scratch)
{
    for (size_t i = 0; plan->graph->values && i < made->call.value_count; i++) {
        const struct qk_graph_value *value = &plan->graph->values[i];
        const void *expected = made->values[i].data;
        if (!expected || value->maker > node ||
            (value->kind != QK_PLACEMENT_OUTPUT &&
             (value->kind != QK_PLACEMENT_SCRATCH || value->last < node)))
            continue;
        const struct qk_node_plan *maker = &plan->nodes[value->maker];
        const struct qk_placement *place = &maker->outputs[value->output];
        const char *got = place->kind == QK_PLACEMENT_OUTPUT ? outputs[place->port] : scratch;
        if (place->kind != QK_PLACEMENT_OUTPUT && place->kind != QK_PLACEMENT_SCRATCH)
            continue; /* it lies in an input, or in the plan */
        got += place->at;
        cr_assert(maker->plan.unit_count == 0 || (uintptr_t)got % 64 == 0);
        cr_assert_eq(memcmp(got, expected, maker->plan.output_bytes[value->output]), 0,
                     "value %zu: other bytes after node %zu", i, node);
    }
}

void graph_case_run(const struct graph_case *made, const struct qk_graph_plan *plan, uint64_t seed)
{
    const struct qk_graph_call *call = &made->call;
    const void *inputs[QK_GRAPH_PORT_COUNT_MAX];
    void *outputs[QK_GRAPH_PORT_COUNT_MAX];
    void *scratch = guarded_alloc(plan->scratch_bytes, 64);
    cr_assert_eq(plan->output_count, call->output_count);
    for (size_t i = 0; i < call->input_count; i++)
        inputs[i] = made->values[call->inputs[i].value].data;
    for (size_t i = 0; i < call->output_count; i++)
        outputs[i] = guarded_alloc(plan->output_bytes[i], 64);
    for (size_t i = 0; i < plan->node_count; i++) {
        run_node(plan, i, inputs, outputs, scratch, &seed);
        check_alive(made, plan, i, outputs, scratch);
    }
    for (size_t i = 0; i < call->output_count; i++) {
        const struct qk_tensor *expected = &made->values[call->outputs[i]];
        const struct qk_tensor *got = &plan->outputs[i];
        size_t bytes;
        cr_assert(qk_type_bytes(expected->type, expected->count, &bytes));
        cr_assert_eq(plan->output_bytes[i], bytes);
        cr_assert_eq(got->type, expected->type);
        cr_assert_eq(got->rank, expected->rank);
        cr_assert_eq(memcmp(got->dims, expected->dims, got->rank * sizeof(got->dims[0])), 0);
        cr_assert_eq(memcmp(outputs[i], expected->data, bytes), 0, "output %zu: other bytes", i);
        guarded_free(outputs[i]);
    }
    guarded_free(scratch);
}

void graph_case_check(const struct graph_case *made, const struct qk_kernels *kernels)
{
    struct qk_test_memory memory;
    const struct qk_graph *graph;
    struct qk_graph_plan plan;
    struct qk_error error;
    qk_test_memory_init(&memory, SIZE_MAX);
    struct qk_memory face = qk_test_memory_face(&memory);
    cr_assert_eq(graph_case_prepare(made, kernels, face, &graph, &error), QK_OK, "%s", error.text);
    cr_assert_eq(graph_case_plan(made, graph, face, &plan, &error), QK_OK, "%s", error.text);
    for (uint64_t seed = 1; seed < 4; seed++)
        graph_case_run(made, &plan, seed);
    qk_test_memory_deinit(&memory);
}

void graph_case_check_work(struct graph_case *made, size_t busy_count, size_t scratch_bytes)
{
    struct qk_test_memory memory;
    const struct qk_graph *graph;
    struct qk_graph_plan plan;
    struct qk_error error;
    size_t busy = 0;
    qk_test_memory_init(&memory, SIZE_MAX);
    const struct qk_memory face = qk_test_memory_face(&memory);
    cr_assert_eq(graph_case_prepare(made, made->scalar, face, &graph, &error), QK_OK, "%s",
                 error.text);
    cr_assert_eq(graph_case_plan(made, graph, face, &plan, &error), QK_OK, "%s", error.text);
    for (size_t i = 0; i < plan.node_count; i++)
        busy += plan.nodes[i].plan.unit_count > 0;
    cr_expect_eq(busy, busy_count, "%zu and not %zu nodes", busy, busy_count);
    cr_expect_eq(plan.scratch_bytes, scratch_bytes, "%zu and not %zu bytes", plan.scratch_bytes,
                 scratch_bytes);
    graph_case_run(made, &plan, 1);
    qk_test_memory_deinit(&memory);
    graph_case_destroy(made);
}

void graph_case_keep(struct graph_case *made, const struct qk_node *before, const uint32_t *origins,
                     size_t kept)
{
    cr_assert_eq(made->call.node_count, kept);
    for (size_t i = 0; i < kept; i++)
        cr_assert_str_eq(made->call.nodes[i].name, before[origins[i]].name);
    memcpy(made->nodes, made->call.nodes, kept * sizeof(*made->nodes));
    made->call.nodes = made->nodes;
}

/* ---- Fates --------------------------------------------------------------------------------- */

void graph_case_ask_fates(struct graph_case *made, struct qk_fate fates[GRAPH_CASE_NODES_MAX])
{
    memset(fates, 0, GRAPH_CASE_NODES_MAX * sizeof(*fates));
    for (uint32_t i = 0; i < made->call.node_count; i++)
        made->nodes[i].number = i + 1;
    made->call.fates = fates;
    made->call.fate_count = GRAPH_CASE_NODES_MAX;
}

static bool is_left(const struct graph_case *made, uint32_t index)
{
    for (size_t i = 0; i < made->call.node_count; i++)
        if (made->call.nodes[i].number == index + 1)
            return true;
    return false;
}

void graph_case_check_fates(const struct graph_case *made, const struct qk_fate *fates,
                            size_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = i;
        size_t steps = 0;
        cr_assert(is_left(made, i) || fates[i].kind != QK_FATE_KEPT, "node %u has no fate", i);
        for (; !is_left(made, at) &&
               (fates[at].kind == QK_FATE_FUSED || fates[at].kind == QK_FATE_TABLE);
             at = fates[at].into) {
            cr_assert_lt(fates[at].into, count, "node %u is a part of none", at);
            cr_assert_lt(steps++, count, "node %u is a part of itself", i);
            cr_assert(fates[at].kind != QK_FATE_TABLE || is_left(made, fates[at].into) ||
                          fates[fates[at].into].kind != QK_FATE_TABLE,
                      "node %u is a part of the table %u, which is none", at, fates[at].into);
        }
        cr_assert(at == i || is_left(made, at), "node %u is a part of %u, which has gone", i, at);
    }
}
