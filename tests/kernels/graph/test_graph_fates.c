/* The passes say what became of the nodes of a file. test_graph_fuse.c and test_graph_tables.c
 * check of each of their graphs that no node is forgotten. Here the fates are named. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/kernels/graph_case.h"

/* Lowers the graph and destroys it. */
static void lower(struct graph_case *made, struct qk_fate fates[GRAPH_CASE_NODES_MAX])
{
    struct qk_test_memory memory;
    const uint32_t *origins;
    struct qk_error error;
    qk_test_memory_init(&memory, SIZE_MAX);
    const struct qk_memory face = qk_test_memory_face(&memory);
    graph_case_ask_fates(made, fates);
    const size_t count = made->call.node_count;
    cr_assert_eq(qk_graph_lower(made->scalar, &made->call, face, &origins, &error), QK_OK, "%s",
                 error.text);
    graph_case_check_fates(made, fates, count);
    qk_test_memory_deinit(&memory);
}

static void expect(const struct qk_fate *fate, enum qk_fate_kind kind, uint32_t into)
{
    cr_assert_eq(fate->kind, kind, "got %d", (int)fate->kind);
    cr_assert_eq(fate->into, into, "got %u", fate->into);
}

/* Returns the first node of an operator. */
static uint32_t find(const struct qk_node *nodes, size_t count, const char *name)
{
    uint32_t i = 0;
    while (i < count && strcmp(nodes[i].call.op->name, name) != 0)
        i++;
    cr_assert_lt(i, count, "%s", name);
    return i;
}

/* The DequantizeLinear of x and of the weights, and the QuantizeLinear, are parts of the Conv. */
Test(graph_fates, fused)
{
    struct graph_case *made = graph_case_create(1);
    struct qk_fate fates[GRAPH_CASE_NODES_MAX];
    const uint32_t x = graph_case_input(made, QK_UINT8, "1,3,5,5");
    const uint32_t y = graph_case_conv(made, x, 2, QK_UINT8);
    graph_case_output(made, y);
    graph_case_to_floats(made, y, "onnx.Conv", 11);
    const size_t count = made->call.node_count;
    const uint32_t conv = find(made->nodes, count, "onnx.Conv");
    lower(made, fates);
    for (uint32_t i = 0; i < count; i++)
        if (i != conv)
            expect(&fates[i], QK_FATE_FUSED, conv);
    cr_assert_eq(made->call.node_count, 1);
    graph_case_destroy(made);
}

/* DequantizeLinear, two functions and QuantizeLinear are one table, in the place of the last. */
Test(graph_fates, table)
{
    struct graph_case *made = graph_case_create(2);
    struct qk_fate fates[GRAPH_CASE_NODES_MAX];
    const uint32_t x = graph_case_input(made, QK_UINT8, "30");
    uint32_t value = graph_case_dequantize(made, x, QK_FP32);
    value = graph_case_function(made, "onnx.Sigmoid", value);
    value = graph_case_function(made, "onnx.Abs", value);
    graph_case_output(made, graph_case_quantize(made, value, QK_INT8));
    lower(made, fates);
    for (uint32_t i = 0; i < 4; i++)
        expect(&fates[i], QK_FATE_TABLE, 3);
    graph_case_destroy(made);
}

Test(graph_fates, folded)
{
    struct graph_case *made = graph_case_create(3);
    struct qk_fate fates[GRAPH_CASE_NODES_MAX];
    const uint32_t x = graph_case_input(made, QK_UINT8, "5,7");
    const uint32_t fixed = graph_case_constant(made, x, QK_FP32);
    const uint32_t y = graph_case_function(made, "onnx.Sigmoid", fixed);
    const uint32_t real = graph_case_dequantize(made, x, QK_FP32);
    graph_case_output(made, graph_case_combine(made, "onnx.Mul", real, y));
    lower(made, fates);
    expect(&fates[0], QK_FATE_FOLDED, QK_VALUE_NONE);
    expect(&fates[1], QK_FATE_FOLDED, QK_VALUE_NONE);
    graph_case_destroy(made);
}

/* x -> Q -> DQ -> Q -> DQ -> y, all of one scale: the inner pair cancels. */
Test(graph_fates, cancelled)
{
    struct graph_case *made = graph_case_create(4);
    struct qk_fate fates[GRAPH_CASE_NODES_MAX];
    const uint32_t x = graph_case_input(made, QK_FP32, "5,7");
    const uint32_t a = graph_case_quantize(made, x, QK_UINT8);
    const uint32_t b = graph_case_dequantize(made, a, QK_FP32);
    const uint32_t c = graph_case_quantize(made, b, QK_UINT8);
    graph_case_output(made, graph_case_dequantize(made, c, QK_FP32));
    for (size_t i = 1; i < 4; i++)
        for (size_t k = 1; k <= 2; k++)
            made->nodes[i].call.inputs[k] = made->nodes[0].call.inputs[k];
    lower(made, fates);
    expect(&fates[0], QK_FATE_KEPT, 0);
    expect(&fates[1], QK_FATE_CANCELLED, 2);
    expect(&fates[2], QK_FATE_CANCELLED, 1);
    expect(&fates[3], QK_FATE_KEPT, 0);
    graph_case_destroy(made);
}

/* A caller that does not ask, or for fewer nodes than there are, gets the same graph. */
Test(graph_fates, fewer_than_nodes)
{
    struct graph_case *made = graph_case_create(5);
    struct qk_fate fates[GRAPH_CASE_NODES_MAX];
    struct qk_test_memory memory;
    const uint32_t *origins;
    struct qk_error error;
    const uint32_t x = graph_case_input(made, QK_UINT8, "30");
    uint32_t value = graph_case_dequantize(made, x, QK_FP32);
    value = graph_case_function(made, "onnx.Sigmoid", value);
    graph_case_output(made, graph_case_quantize(made, value, QK_INT8));
    graph_case_ask_fates(made, fates);
    made->call.fate_count = 1;
    qk_test_memory_init(&memory, SIZE_MAX);
    const struct qk_memory face = qk_test_memory_face(&memory);
    cr_assert_eq(qk_graph_lower(made->scalar, &made->call, face, &origins, &error), QK_OK);
    expect(&fates[0], QK_FATE_TABLE, 2);
    expect(&fates[1], QK_FATE_KEPT, 0);
    qk_test_memory_deinit(&memory);
    graph_case_destroy(made);
}

/* Products of a convolution of 3 x 3 over 3 channels, and what the other nodes do in a run. */
Test(graph_fates, report)
{
    struct graph_case *made = graph_case_create(6);
    struct qk_test_memory memory;
    const struct qk_graph *graph;
    struct qk_graph_plan plan;
    struct qk_node_report report;
    struct qk_error error;
    const uint32_t x = graph_case_input(made, QK_UINT8, "2,3,5,6");
    const uint32_t same = graph_case_identity(made, graph_case_identity(made, x));
    const uint32_t y = graph_case_conv(made, same, 4, QK_UINT8);
    graph_case_output(made, y);
    struct qk_fate fates[GRAPH_CASE_NODES_MAX];
    graph_case_ask_fates(made, fates);
    qk_test_memory_init(&memory, SIZE_MAX);
    const struct qk_memory face = qk_test_memory_face(&memory);
    cr_assert_eq(graph_case_prepare(made, made->scalar, face, &graph, &error), QK_OK);
    cr_assert_eq(graph_case_plan(made, graph, face, &plan, &error), QK_OK);
    qk_graph_report(graph, &plan, 1, &report);
    cr_assert_eq(report.role, QK_NODE_MOVES_NOTHING);
    cr_assert_eq(report.multiplications, 0);
    qk_graph_report(graph, &plan, 2, &report);
    cr_assert_eq(report.index, 2);
    cr_assert_str_eq(report.name, "n2");
    cr_assert_str_eq(report.op->name, "onnx.QLinearConv");
    cr_assert_eq(report.role, QK_NODE_RUNS);
    cr_assert_eq(report.multiplications, UINT64_C(2) * 4 * 5 * 6 * 3 * 3 * 3);
    cr_assert_str_eq(report.kernel, plan.nodes[2].plan.kernel);
    qk_graph_report(graph, NULL, 2, &report);
    cr_assert_null(report.kernel);
    qk_test_memory_deinit(&memory);
    graph_case_destroy(made);
}
