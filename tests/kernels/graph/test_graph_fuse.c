/* Fuses operators on floats between DequantizeLinear and QuantizeLinear. A graph of operators on
 * codes runs first, which gives the expected outputs. Then it is written with floats and lowered.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "kernels/element/load.h"
#include "kernels/network/compute.h"
#include "tests/support/kernels/graph_case.h"

/* Has the passes change the nodes where they are: gives the call a copy of its nodes, with room. */
static void give_room(struct qk_graph_call *call, struct qk_memory memory)
{
    const size_t room = 4 * GRAPH_CASE_NODES_MAX;
    struct qk_node *nodes = memory.alloc(memory.context, room * sizeof(*nodes));
    cr_assert_not_null(nodes);
    for (size_t i = 0; i < call->node_count; i++)
        memcpy(&nodes[i], &call->nodes[i], qk_node_bytes(call->nodes[i].call.op));
    call->nodes = nodes;
    call->node_room = room;
}

/* The nodes of both graphs are the same. */
static void expect_same(const struct qk_graph_call *a, const struct qk_graph_call *b)
{
    cr_assert_eq(a->node_count, b->node_count);
    for (size_t i = 0; i < a->node_count; i++) {
        cr_assert_eq(a->nodes[i].call.op, b->nodes[i].call.op);
        cr_assert_str_eq(a->nodes[i].name, b->nodes[i].name);
        cr_assert_eq(a->nodes[i].outputs[0], b->nodes[i].outputs[0]);
    }
}

/* Lowers the graph, once with a copy of its nodes and once where they are. It then has `kept`
 * nodes. Its memory is in `memory`. */
static void lower(struct graph_case *made, size_t kept, struct qk_test_memory *memory)
{
    struct qk_graph_call copied = made->call;
    struct qk_fate fates[GRAPH_CASE_NODES_MAX];
    graph_case_ask_fates(made, fates);
    const struct qk_graph_call whole = made->call;
    const uint32_t *origins = NULL;
    struct qk_error error;
    qk_test_memory_init(memory, SIZE_MAX);
    const struct qk_memory face = qk_test_memory_face(memory);
    cr_assert_eq(qk_graph_lower(made->scalar, &copied, face, &origins, &error), QK_OK, "%s",
                 error.text);
    give_room(&made->call, face);
    const struct qk_node *nodes = made->call.nodes;
    cr_assert_eq(qk_graph_lower(made->scalar, &made->call, face, &origins, &error), QK_OK, "%s",
                 error.text);
    cr_assert_eq(made->call.nodes, nodes);
    expect_same(&made->call, &copied);
    graph_case_keep(made, whole.nodes, origins, kept);
    graph_case_check_fates(made, fates, whole.node_count);
    made->call.fates = NULL;
}

/* What is left of the graph computes the same outputs. */
static void check(struct graph_case *made, size_t kept)
{
    struct qk_test_memory memory;
    graph_case_shuffle(made);
    lower(made, kept, &memory);
    graph_case_check(made, made->scalar);
    qk_test_memory_deinit(&memory);
    graph_case_destroy(made);
}

/* The lowered graph has a ConvInteger, whose sums become floats, and can be prepared. */
static void expect_floats(struct graph_case *made, size_t kept)
{
    struct qk_test_memory memory;
    const struct qk_graph *graph;
    struct qk_error error;
    size_t found = 0;
    lower(made, kept, &memory);
    for (size_t i = 0; i < kept; i++)
        found += strcmp(made->nodes[i].call.op->name, "onnx.ConvInteger") == 0;
    cr_assert_eq(found, 1);
    const struct qk_memory face = qk_test_memory_face(&memory);
    cr_assert_eq(graph_case_prepare(made, made->scalar, face, &graph, &error), QK_OK, "%s",
                 error.text);
    qk_test_memory_deinit(&memory);
    graph_case_destroy(made);
}

/* Returns the node that makes a value. */
static struct qk_node *maker_of(struct graph_case *made, uint32_t value)
{
    size_t i = 0;
    while (made->nodes[i].outputs[0] != value)
        i++;
    return &made->nodes[i];
}

/* ---- Operators ----------------------------------------------------------------------------- */

static const struct {
    const char *codes;
    const char *floats;
    uint64_t version;
    size_t operands;
} operators[] = {
    {"com.microsoft.QLinearAdd", "onnx.Add", 14, 2},
    {"com.microsoft.QLinearMul", "onnx.Mul", 14, 2},
    {"com.microsoft.QLinearAveragePool", "onnx.AveragePool", 11, 1},
    {"com.microsoft.QLinearGlobalAveragePool", "onnx.GlobalAveragePool", 1, 1},
    {"onnx.QLinearMatMul", "onnx.MatMul", 13, 2},
};

Test(graph_fuse, operators)
{
    for (size_t i = 0; i < 2 * sizeof(operators) / sizeof(operators[0]); i++) {
        const size_t at = i / 2;
        struct graph_case *made = graph_case_create(i + 1);
        const uint32_t a = graph_case_input(made, i % 2 ? QK_INT8 : QK_UINT8, "1,3,6,6");
        const uint32_t b = graph_case_input(made, i % 2 ? QK_INT8 : QK_UINT8, "1,3,6,6");
        const uint32_t y = graph_case_codes(made, operators[at].codes, a,
                                            operators[at].operands == 2 ? b : QK_VALUE_NONE);
        graph_case_output(made, y);
        graph_case_to_floats(made, y, operators[at].floats, operators[at].version);
        check(made, 1);
    }
}

/* All types of x and y. */
Test(graph_fuse, convolutions)
{
    static const enum qk_type types[] = {QK_UINT8, QK_INT8};
    for (size_t i = 0; i < 4; i++) {
        struct graph_case *made = graph_case_create(20 + i);
        const uint32_t x = graph_case_input(made, types[i % 2], "2,3,5,6");
        const uint32_t y = graph_case_conv(made, x, 4, types[i / 2]);
        graph_case_output(made, y);
        graph_case_to_floats(made, y, "onnx.Conv", 11);
        check(made, 1);
    }
}

/* y = a + conv(conv(a)), in which both read one DequantizeLinear. */
Test(graph_fuse, residual)
{
    struct graph_case *made = graph_case_create(30);
    const uint32_t x = graph_case_input(made, QK_UINT8, "1,3,6,6");
    const uint32_t a = graph_case_conv(made, x, 5, QK_UINT8);
    const uint32_t b = graph_case_conv(made, a, 5, QK_UINT8);
    const uint32_t y = graph_case_codes(made, "com.microsoft.QLinearAdd", b, a);
    graph_case_output(made, y);
    graph_case_output(made, a);
    graph_case_to_floats(made, a, "onnx.Conv", 11);
    graph_case_to_floats(made, b, "onnx.Conv", 11);
    graph_case_to_floats(made, y, "onnx.Add", 14);
    check(made, 3);
}

Test(graph_fuse, one_dequantizer_for_both_operands)
{
    struct graph_case *made = graph_case_create(31);
    const uint32_t x = graph_case_input(made, QK_INT8, "3,7");
    const uint32_t y = graph_case_codes(made, "com.microsoft.QLinearMul", x, x);
    struct qk_node *node = maker_of(made, y);
    graph_case_output(made, y);
    cr_assert_eq(node->inputs[3], x);
    node->call.inputs[5] = node->call.inputs[2];
    node->call.inputs[4] = node->call.inputs[1];
    graph_case_to_floats(made, y, "onnx.Mul", 14);
    node->inputs[1] = node->inputs[0];
    made->nodes[2] = made->nodes[3]; /* instead of the DequantizeLinear that nothing reads now */
    made->call.node_count--;
    struct qk_test_memory memory;
    lower(made, 1, &memory);
    cr_assert_str_eq(made->nodes[0].call.op->name, "com.microsoft.QLinearMul");
    cr_assert_eq(made->nodes[0].inputs[3], x);
    qk_test_memory_deinit(&memory);
    graph_case_destroy(made);
}

/* ---- Relu ---------------------------------------------------------------------------------- */

/* Makes Relu(conv(x)), whose expected outputs are those of a Clip of codes at the zero point. */
static struct graph_case *make_relu(uint64_t seed)
{
    struct graph_case *made = graph_case_create(seed);
    const uint32_t x = graph_case_input(made, QK_UINT8, "1,3,5,5");
    const uint32_t sums = graph_case_conv(made, x, 4, QK_INT8);
    const uint32_t y = graph_case_clip(made, sums, &maker_of(made, sums)->call.inputs[7]);
    graph_case_output(made, y);
    graph_case_to_floats(made, sums, "onnx.Conv", 11);
    struct qk_node *relu = maker_of(made, y);
    struct qk_node *quantizer = maker_of(made, sums);
    qk_test_call_init(&relu->call, "onnx.Relu", 14);
    relu->call.variable = 1;
    relu->inputs[0] = quantizer->inputs[0];
    relu->outputs[0] = sums;
    quantizer->inputs[0] = sums;
    quantizer->outputs[0] = y;
    return made;
}

Test(graph_fuse, relu_becomes_a_clip_of_codes)
{
    check(make_relu(40), 2);
}

/* Codes end where Relu ends. */
Test(graph_fuse, relu_that_codes_absorb)
{
    struct graph_case *made = make_relu(41);
    struct qk_test_memory memory;
    const struct qk_node *quantizer = maker_of(made, made->call.outputs[0]);
    *(int8_t *)quantizer->call.inputs[2].data = INT8_MIN;
    lower(made, 1, &memory);
    cr_assert_str_eq(made->nodes[0].call.op->name, "onnx.QLinearConv");
    qk_test_memory_deinit(&memory);
    graph_case_destroy(made);
}

/* By a negative scale, a greater number has a smaller code. */
Test(graph_fuse, relu_before_a_negative_scale_stays)
{
    struct graph_case *made = make_relu(42);
    const struct qk_node *quantizer = maker_of(made, made->call.outputs[0]);
    *(float *)quantizer->call.inputs[1].data = -1;
    expect_floats(made, 4);
}

/* ---- Moves --------------------------------------------------------------------------------- */

/* Adds onnx.Identity between DequantizeLinear and QuantizeLinear of the same parameters. */
static uint32_t move(struct graph_case *made, uint32_t x, const struct qk_tensor *scale)
{
    const uint32_t y = graph_case_identity(made, x);
    struct qk_node *node = maker_of(made, y);
    node->call.inputs[1] = node->call.inputs[3] = scale[0];
    node->call.inputs[2] = node->call.inputs[4] = scale[1];
    graph_case_to_floats(made, y, "onnx.Identity", 25);
    return y;
}

/* x -> DQ -> Identity -> Q -> .. -> Conv -> Q -> .. -> DQ -> Identity -> Q */
Test(graph_fuse, moves_around_a_convolution)
{
    struct graph_case *made = graph_case_create(50);
    const uint32_t x = graph_case_input(made, QK_UINT8, "1,3,5,5");
    const uint32_t guess = graph_case_conv(made, x, 3, QK_UINT8); /* for its constants */
    struct qk_tensor scales[4];
    memcpy(scales, &maker_of(made, guess)->call.inputs[6], 2 * sizeof(scales[0]));
    graph_case_output(made, guess);
    graph_case_to_floats(made, guess, "onnx.Conv", 11);
    uint32_t at = move(made, move(made, guess, scales), scales);
    at = graph_case_conv(made, at, 2, QK_UINT8);
    memcpy(scales, &maker_of(made, at)->call.inputs[6], 2 * sizeof(scales[0]));
    graph_case_to_floats(made, at, "onnx.Conv", 11);
    at = move(made, at, scales);
    graph_case_output(made, at);
    check(made, 6); /* the last QuantizeLinear is a table, because it makes the output */
}

/* The movers lie between the convolution and the only QuantizeLinear. */
Test(graph_fuse, quantizer_behind_a_move)
{
    struct graph_case *made = graph_case_create(51);
    const uint32_t x = graph_case_input(made, QK_INT8, "1,3,5,5");
    const uint32_t sums = graph_case_conv(made, x, 3, QK_INT8);
    const uint32_t y = graph_case_identity(made, sums);
    graph_case_output(made, y);
    graph_case_to_floats(made, sums, "onnx.Conv", 11);
    struct qk_node *mover = maker_of(made, y);
    struct qk_node *quantizer = maker_of(made, sums);
    mover->inputs[0] = quantizer->inputs[0];
    mover->outputs[0] = sums;
    quantizer->inputs[0] = sums;
    quantizer->outputs[0] = y;
    check(made, 2);
}

/* Pads what a DequantizeLinear makes for other readers, too, and quantizes it, by the `same` scale
 * or another one. */
static void check_pad(enum qk_type type, const char *mode, const float *value, bool same,
                      size_t kept)
{
    struct graph_case *made = graph_case_create(52);
    const uint32_t x = graph_case_input(made, type, "1,3,5,6");
    const uint32_t floats = graph_case_dequantize(made, x, QK_FP32);
    const uint32_t padded = graph_case_pad(made, floats, mode, value);
    const uint32_t y = graph_case_quantize(made, padded, type);
    struct qk_test_memory memory;
    graph_case_output(made, y);
    graph_case_output(made, floats);
    if (same)
        memcpy(&maker_of(made, y)->call.inputs[1], &maker_of(made, floats)->call.inputs[1],
               2 * sizeof(struct qk_tensor));
    lower(made, kept, &memory);
    if (same) {
        cr_expect_str_eq(maker_of(made, y)->call.op->name, "onnx.Pad");
        cr_expect_eq(maker_of(made, y)->inputs[0], x);
    } else {
        graph_case_check(made, made->scalar);
    }
    qk_test_memory_deinit(&memory);
    graph_case_destroy(made);
}

Test(graph_fuse, pads_of_codes)
{
    static const float zero = 0, one = 1;
    for (size_t i = 0; i < 2; i++) {
        const enum qk_type type = i == 0 ? QK_UINT8 : QK_INT8;
        check_pad(type, "constant", NULL, true, 2);
        check_pad(type, "constant", &zero, true, 2);
        check_pad(type, "reflect", &zero, true, 2);
        check_pad(type, "constant", NULL, false, 3); /* a table makes codes of another scale */
        check_pad(type, "constant", &zero, false, 3);
        check_pad(type, "edge", &zero, false, 3);
        check_pad(type, "constant", &one, false, 3); /* stays on floats */
    }
}

/* ---- What stays ---------------------------------------------------------------------------- */

static struct graph_case *make_conv(uint64_t seed)
{
    struct graph_case *made = graph_case_create(seed);
    const uint32_t x = graph_case_input(made, QK_UINT8, "1,3,5,5");
    const uint32_t y = graph_case_conv(made, x, 2, QK_UINT8);
    graph_case_output(made, y);
    graph_case_to_floats(made, y, "onnx.Conv", 11);
    return made;
}

/* Makes a convolution whose result leaves the graph as floats, too. */
static struct graph_case *make_float_conv(uint64_t seed)
{
    struct graph_case *made = make_conv(seed);
    graph_case_output(made, made->nodes[0].outputs[0]);
    return made;
}

Test(graph_fuse, floats_that_leave_the_graph)
{
    expect_floats(make_float_conv(60), 3);
}

Test(graph_fuse, constants_without_data)
{
    struct graph_case *made = make_conv(61);
    struct qk_test_memory memory;
    made->nodes[2].call.inputs[0].data = NULL; /* of the weights' DequantizeLinear */
    lower(made, 4, &memory);
    cr_assert_str_eq(made->nodes[0].call.op->name, "onnx.Conv");
    qk_test_memory_deinit(&memory);
    graph_case_destroy(made);
}

/* A bias of another number of channels, which Conv refuses and Add would broadcast. */
Test(graph_fuse, biases_of_other_channels)
{
    static const float bias[3];
    for (size_t count = 1; count <= 3; count += 2) {
        struct graph_case *made = make_float_conv(70 + count);
        struct qk_test_memory memory;
        const uint32_t *origins;
        struct qk_error error;
        made->nodes[0].call.inputs[2] = (struct qk_tensor){.type = QK_FP32,
                                                           .rank = 1,
                                                           .dims = {count},
                                                           .count = count,
                                                           .stored = count,
                                                           .data = bias};
        qk_test_memory_init(&memory, SIZE_MAX);
        const struct qk_memory face = qk_test_memory_face(&memory);
        cr_assert_eq(qk_graph_fuse(made->scalar, &made->call, face, &origins, &error), QK_OK);
        cr_expect_str_eq(made->call.nodes[0].call.op->name, "onnx.Conv");
        qk_test_memory_deinit(&memory);
        graph_case_destroy(made);
    }
}

/* Scales of an axis that the weights do not have, which DequantizeLinear refuses. */
Test(graph_fuse, transposes_of_scales_without_axis)
{
    static const float scales[] = {1, 2};
    for (int64_t axis = -5; axis <= 4; axis += 9) {
        struct graph_case *made = make_conv(75);
        struct qk_test_memory memory;
        const uint32_t *origins;
        struct qk_error error;
        struct qk_node *transpose = &made->nodes[0];
        struct qk_call *weights = &made->nodes[2].call;
        weights->inputs[1] = (struct qk_tensor){
            .type = QK_FP32, .rank = 1, .dims = {2}, .count = 2, .stored = 2, .data = scales};
        weights->inputs[2].type = QK_NONE;
        qk_test_call_int(weights, "axis", axis);
        qk_test_call_init(&transpose->call, "onnx.Transpose", 13);
        transpose->inputs[0] = made->nodes[2].outputs[0];
        transpose->inputs[1] = QK_VALUE_NONE;
        qk_test_memory_init(&memory, SIZE_MAX);
        const struct qk_memory face = qk_test_memory_face(&memory);
        cr_assert_eq(qk_graph_fuse(made->scalar, &made->call, face, &origins, &error), QK_OK);
        cr_expect_str_eq(made->call.nodes[0].call.op->name, "onnx.Transpose");
        qk_test_memory_deinit(&memory);
        graph_case_destroy(made);
    }
}

/* A zero point for each channel, beside one scale, which DequantizeLinear refuses. */
Test(graph_fuse, zero_points_without_scales)
{
    struct graph_case *made = make_conv(62);
    static const int8_t zeros[2];
    struct qk_tensor *zero = &made->nodes[2].call.inputs[2];
    *zero = (struct qk_tensor){
        .type = QK_INT8, .rank = 1, .dims = {2}, .count = 2, .stored = 2, .data = zeros};
    struct qk_test_memory memory;
    const uint32_t *origins;
    struct qk_error error;
    qk_test_memory_init(&memory, SIZE_MAX);
    const struct qk_memory face = qk_test_memory_face(&memory);
    cr_assert_eq(qk_graph_lower(made->scalar, &made->call, face, &origins, &error), QK_INVALID);
    cr_assert(strstr(error.text, "x_zero_point"), "%s", error.text);
    qk_test_memory_deinit(&memory);
    graph_case_destroy(made);
}

/* qk_graph_prepare refuses these graphs, so they stay as they are. */
Test(graph_fuse, unsound_graphs)
{
    for (size_t i = 0; i < 4; i++) {
        struct graph_case *made = make_conv(63 + i);
        struct qk_test_memory memory;
        const uint32_t *origins;
        struct qk_error error;
        struct qk_node *const quantizer = &made->nodes[3];
        if (i == 0)
            made->nodes[1].inputs[0] = quantizer->outputs[0]; /* a cycle */
        else if (i == 1)
            made->nodes[1].outputs[0] = quantizer->outputs[0]; /* two makers */
        else if (i == 2)
            quantizer->outputs[0] = made->call.inputs[0].value; /* a maker of an input */
        else
            made->nodes[1].inputs[0] = 1000; /* no value */
        qk_test_memory_init(&memory, SIZE_MAX);
        const struct qk_memory face = qk_test_memory_face(&memory);
        cr_assert_eq(qk_graph_fuse(made->scalar, &made->call, face, &origins, &error), QK_OK);
        cr_assert_eq(made->call.node_count, 4);
        qk_test_memory_deinit(&memory);
        graph_case_destroy(made);
    }
}

/* QuantizeLinear behind each other, which read codes, are wrong. None of them rises twice. */
Test(graph_fuse, quantizers_that_read_codes)
{
    struct graph_case *made = make_conv(67);
    const struct qk_node quantizer = made->nodes[3];
    uint32_t value = quantizer.inputs[0];
    made->call.node_count = 3;
    for (size_t i = 0; i < 12; i++) {
        struct qk_node *node = &made->nodes[made->call.node_count++];
        if (i % 2 == 0) {
            *node = (struct qk_node){.name = "join"};
            qk_test_call_init(&node->call, "onnx.Concat", 13);
            node->call.variable = 31;
            for (size_t k = 0; k < 5; k++)
                node->inputs[k] = value;
        } else {
            *node = quantizer;
            node->inputs[0] = value;
        }
        for (size_t k = 0; k < QK_OUTPUT_COUNT_MAX; k++)
            node->outputs[k] = QK_VALUE_NONE;
        node->outputs[0] = value = (uint32_t)made->call.value_count++;
        made->value_names[value] = "value";
    }
    made->call.outputs[0] = value;
    struct qk_test_memory memory;
    const uint32_t *origins;
    struct qk_error error;
    qk_test_memory_init(&memory, SIZE_MAX);
    const struct qk_memory face = qk_test_memory_face(&memory);
    cr_assert_eq(qk_graph_fuse(made->scalar, &made->call, face, &origins, &error), QK_OK);
    cr_assert_leq(made->call.node_count, 3 + 6 + 6 * 5 + 2);
    qk_test_memory_deinit(&memory);
    graph_case_destroy(made);
}

/* Each Dropout passes its input, so the DequantizeLinear sinks behind all of them. */
Test(graph_fuse, dropouts_in_a_row)
{
    enum { COUNT = 40 };
    struct graph_case *made = graph_case_create(69);
    uint32_t value =
        graph_case_dequantize(made, graph_case_input(made, QK_UINT8, "1,3,5,5"), QK_FP32);
    for (size_t i = 0; i < COUNT; i++) {
        struct qk_node *node = &made->nodes[made->call.node_count++];
        *node = (struct qk_node){.name = "dropout"};
        qk_test_call_init(&node->call, "onnx.Dropout", 13);
        node->call.variable = 1;
        node->inputs[0] = value;
        for (size_t k = 0; k < QK_OUTPUT_COUNT_MAX; k++)
            node->outputs[k] = QK_VALUE_NONE;
        node->outputs[0] = value = (uint32_t)made->call.value_count++;
        made->value_names[value] = "value";
    }
    made->call.outputs[made->call.output_count++] = value;
    struct qk_test_memory memory;
    const uint32_t *origins;
    struct qk_error error;
    qk_test_memory_init(&memory, SIZE_MAX);
    const struct qk_memory face = qk_test_memory_face(&memory);
    cr_assert_eq(qk_graph_fuse(made->scalar, &made->call, face, &origins, &error), QK_OK, "%s",
                 error.text);
    cr_assert_eq(made->call.node_count, 1 + COUNT);
    cr_assert_str_eq(made->nodes[0].call.op->name, "onnx.DequantizeLinear");
    cr_assert_str_eq(made->call.nodes[COUNT].call.op->name, "onnx.DequantizeLinear");
    qk_test_memory_deinit(&memory);
    graph_case_destroy(made);
}

/* ---- Weights of 4 bits --------------------------------------------------------------------- */

/* Makes a convolution by weights of INT4 in blocks of 2 channels, which together have one scale for
 * each output channel. */
static struct graph_case *make_blocked_conv(uint64_t seed)
{
    static const float scales[2][2][9] = {
        {{1, 2, 1, 2, 1, 2, 1, 2, 1}, {4, 4, 4, 4, 4, 4, 4, 4, 4}},
        {{1.5F, 3, 3, 3, 3, 3, 3, 3, 3}, {3, 3, 3, 3, 3, 3, 3, 3, 4.5F}}};
    struct graph_case *made = make_conv(seed);
    struct qk_call *weights = &made->nodes[2].call;
    weights->version = qk_operator_version(weights->op, 21);
    weights->inputs[0].type = QK_INT4;
    weights->inputs[1] = (struct qk_tensor){.type = QK_FP32,
                                            .rank = 4,
                                            .dims = {2, 2, 3, 3},
                                            .count = 36,
                                            .stored = 36,
                                            .data = scales};
    weights->inputs[2].type = QK_NONE;
    made->nodes[0].call.inputs[2].type = QK_NONE; /* the bias */
    made->nodes[0].call.variable &= 3;
    made->nodes[0].inputs[2] = QK_VALUE_NONE;
    qk_test_call_int(weights, "axis", 1);
    qk_test_call_int(weights, "block_size", 2);
    return made;
}

Test(graph_fuse, weights_in_blocks)
{
    struct graph_case *made = make_blocked_conv(71);
    const uint8_t *old = made->nodes[2].call.inputs[0].data;
    struct qk_test_memory memory;
    const uint32_t *origins;
    struct qk_error error;
    qk_test_memory_init(&memory, SIZE_MAX);
    const struct qk_memory face = qk_test_memory_face(&memory);
    cr_assert_eq(qk_graph_fuse(made->scalar, &made->call, face, &origins, &error), QK_OK);
    const struct qk_call *conv = &made->call.nodes[0].call;
    cr_assert_str_eq(conv->op->name, "onnx.QLinearConv");
    cr_assert_eq(conv->inputs[3].type, QK_INT8);
    cr_assert_eq(conv->inputs[4].count, 2);
    cr_expect_eq(((const float *)conv->inputs[4].data)[0], 1);
    cr_expect_eq(((const float *)conv->inputs[4].data)[1], 1.5F);
    const int8_t *codes = conv->inputs[3].data;
    cr_expect_eq(codes[1], 2 * qk_load_integer(QK_INT4, old, 1));
    cr_expect_eq(codes[18], 4 * qk_load_integer(QK_INT4, old, 18));
    cr_expect_eq(codes[53], 3 * qk_load_integer(QK_INT4, old, 53));
    qk_test_memory_deinit(&memory);
    graph_case_destroy(made);
}

/* A pass over the codes counts as work of the load, because many nodes may have the same codes. */
Test(graph_fuse, weights_in_blocks_are_bounded)
{
    struct graph_case *made = make_blocked_conv(72);
    struct qk_graph_work work = {.cost_ns = QK_COMPUTE_NS_MAX - 1};
    struct qk_test_memory memory;
    const uint32_t *origins;
    struct qk_error error;
    qk_test_memory_init(&memory, SIZE_MAX);
    made->call.work = &work;
    cr_assert_eq(
        qk_graph_fuse(made->scalar, &made->call, qk_test_memory_face(&memory), &origins, &error),
        QK_OK);
    cr_expect(work.is_refused);
    cr_expect_str_eq(made->call.nodes[0].call.op->name, "onnx.Conv");
    qk_test_memory_deinit(&memory);
    graph_case_destroy(made);
}

/* ---- Memory -------------------------------------------------------------------------------- */

/* Fails each allocation once. */
static void fail_allocations(struct graph_case *(*make)(uint64_t seed))
{
    size_t limit = 0;
    for (enum qk_status status = QK_NO_MEMORY; status != QK_OK; limit++) {
        struct graph_case *made = make(70);
        struct qk_test_memory memory;
        const uint32_t *origins;
        struct qk_error error;
        qk_test_memory_init(&memory, limit);
        const struct qk_memory face = qk_test_memory_face(&memory);
        status = qk_graph_lower(made->scalar, &made->call, face, &origins, &error);
        cr_assert(status == QK_OK || status == QK_NO_MEMORY, "%s", error.text);
        qk_test_memory_deinit(&memory);
        graph_case_destroy(made);
    }
    cr_assert_gt(limit, 20);
}

Test(graph_fuse, out_of_memory)
{
    fail_allocations(make_relu);
    fail_allocations(make_float_conv);
    fail_allocations(make_blocked_conv);
}
