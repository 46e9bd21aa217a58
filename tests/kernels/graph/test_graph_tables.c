/* Makes tables of chains of float functions: what is left computes the same outputs. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/kernels/graph_case.h"

/* Lowers a copy of the call. `tables` of the `kept` nodes must be tables. The copy's outputs must
 * be those of the whole graph. */
static void check_tables(struct graph_case *made, size_t kept, size_t tables)
{
    struct qk_test_memory memory;
    qk_test_memory_init(&memory, SIZE_MAX);
    const struct qk_memory face = qk_test_memory_face(&memory);
    const struct qk_graph_call whole = made->call;
    const uint32_t *origins = NULL;
    struct qk_error error;
    cr_assert_eq(qk_graph_lower(made->scalar, &made->call, face, &origins, &error), QK_OK, "%s",
                 error.text);
    cr_assert_eq(made->call.node_count, kept);
    for (size_t i = 0; i < kept; i++) {
        cr_assert_str_eq(made->call.nodes[i].name, whole.nodes[origins[i]].name);
        tables -= strcmp(made->call.nodes[i].call.op->name, "quantd.Lookup") == 0;
    }
    cr_assert_eq(tables, 0);
    memcpy(made->nodes, made->call.nodes, kept * sizeof(*made->nodes));
    made->call.nodes = made->nodes;
    graph_case_check(made, made->scalar);
    qk_test_memory_deinit(&memory);
}

Test(graph_tables, chains_of_all_lengths)
{
    static const char *const names[] = {"onnx.HardSwish", "onnx.Abs", "onnx.Sqrt", "onnx.Neg",
                                        "onnx.LeakyRelu"};
    static const enum qk_type types[] = {QK_UINT8, QK_INT8};
    for (size_t length = 1; length <= sizeof(names) / sizeof(names[0]); length++) {
        struct graph_case *made = graph_case_create(length);
        const uint32_t x = graph_case_input(made, types[length % 2], "2,3,4,50");
        uint32_t value = graph_case_dequantize(made, x, QK_FP32);
        for (size_t i = 0; i < length; i++)
            value = graph_case_function(made, names[i], value);
        graph_case_output(made, graph_case_quantize(made, value, types[length / 2 % 2]));
        graph_case_shuffle(made);
        check_tables(made, 1, 1);
        graph_case_destroy(made);
    }
}

/* A number of more dimensions than x gives its rank to y. */
Test(graph_tables, numbers_of_all_ranks)
{
    for (uint32_t rank = 0; rank <= 4; rank++) {
        struct graph_case *made = graph_case_create(50 + rank);
        const uint32_t x = graph_case_input(made, QK_UINT8, "30,40");
        const uint32_t real = graph_case_dequantize(made, x, QK_FP32);
        const uint32_t y = graph_case_divide(made, real, rank);
        const uint32_t z = graph_case_function(made, "onnx.HardSigmoid", y);
        graph_case_output(made, graph_case_quantize(made, z, QK_INT8));
        check_tables(made, 1, 1);
        graph_case_destroy(made);
    }
}

/* Two chains begin at one DequantizeLinear, which nothing else reads. */
Test(graph_tables, chains_that_share_their_beginning)
{
    struct graph_case *made = graph_case_create(20);
    const uint32_t x = graph_case_input(made, QK_UINT8, "1,4,8,8");
    const uint32_t codes = graph_case_conv(made, x, 3, QK_UINT8);
    const uint32_t real = graph_case_dequantize(made, codes, QK_FP32);
    const uint32_t a = graph_case_function(made, "onnx.Sigmoid", real);
    const uint32_t b = graph_case_function(made, "onnx.HardSigmoid", real);
    graph_case_output(made, graph_case_quantize(made, a, QK_UINT8));
    graph_case_output(made, graph_case_quantize(made, b, QK_INT8));
    check_tables(made, 3, 2);
    graph_case_destroy(made);
}

/* Two chains after each other are two tables. */
Test(graph_tables, a_chain_behind_a_chain)
{
    struct graph_case *made = graph_case_create(21);
    uint32_t codes = graph_case_input(made, QK_INT8, "700");
    for (size_t i = 0; i < 2; i++) {
        const uint32_t real = graph_case_dequantize(made, codes, QK_FP32);
        const uint32_t y = graph_case_function(made, "onnx.Neg", real);
        codes = graph_case_quantize(made, y, QK_INT8);
    }
    graph_case_output(made, codes);
    check_tables(made, 2, 2);
    graph_case_destroy(made);
}

Test(graph_tables, a_dequantizer_that_others_read_stays)
{
    struct graph_case *made = graph_case_create(22);
    const uint32_t x = graph_case_input(made, QK_INT8, "5,7");
    const uint32_t real = graph_case_dequantize(made, x, QK_FP32);
    const uint32_t y = graph_case_function(made, "onnx.Abs", real);
    graph_case_output(made, graph_case_quantize(made, y, QK_INT8));
    graph_case_output(made, real);
    check_tables(made, 2, 1);
    graph_case_destroy(made);
}

/* A chain of constants is folded, and no function is between these two nodes. */
Test(graph_tables, what_is_no_chain_stays)
{
    struct graph_case *made = graph_case_create(23);
    const uint32_t x = graph_case_input(made, QK_UINT8, "5,7");
    const uint32_t fixed = graph_case_constant(made, x, QK_FP32);
    const uint32_t y = graph_case_function(made, "onnx.Sigmoid", fixed);
    const uint32_t codes = graph_case_quantize(made, y, QK_UINT8);
    graph_case_output(made, graph_case_dequantize(made, codes, QK_FP32));
    const uint32_t real = graph_case_dequantize(made, x, QK_FP32);
    graph_case_output(made, graph_case_quantize(made, real, QK_INT8));
    check_tables(made, 3, 0);
    graph_case_destroy(made);
}

/* ---- Refusals ------------------------------------------------------------------------------ */

/* The graph has no table, and preparing it fails with an error of the node. */
static void expect_refused(struct graph_case *made, const char *name, const char *op)
{
    const size_t count = made->call.node_count;
    struct qk_test_memory memory;
    const uint32_t *origins;
    struct qk_graph *graph;
    struct qk_error error;
    char text[448];
    qk_test_memory_init(&memory, SIZE_MAX);
    const struct qk_memory face = qk_test_memory_face(&memory);
    cr_assert_eq(qk_graph_lower(made->scalar, &made->call, face, &origins, &error), QK_OK);
    cr_assert_eq(made->call.node_count, count);
    cr_assert_eq(qk_graph_prepare(made->scalar, &made->call, face, &graph, &error), QK_INVALID);
    snprintf(text, sizeof(text),
             "node %s (\"n%s\", %s): X: expected FP32 only between DequantizeLinear and "
             "QuantizeLinear of 8 bits, where quantd makes a table of %s, got FP32 elsewhere",
             name, name, op, op);
    cr_assert_str_eq(error.text, text);
    qk_test_memory_deinit(&memory);
    graph_case_destroy(made);
}

Test(graph_tables, floats_that_leave_the_graph)
{
    struct graph_case *made = graph_case_create(30);
    const uint32_t x = graph_case_input(made, QK_UINT8, "5");
    const uint32_t real = graph_case_dequantize(made, x, QK_FP32);
    const uint32_t y = graph_case_function(made, "onnx.Sigmoid", real);
    graph_case_output(made, graph_case_quantize(made, y, QK_UINT8));
    graph_case_output(made, y);
    expect_refused(made, "1", "onnx.Sigmoid");
}

Test(graph_tables, floats_with_two_readers)
{
    struct graph_case *made = graph_case_create(31);
    const uint32_t x = graph_case_input(made, QK_UINT8, "5");
    const uint32_t real = graph_case_dequantize(made, x, QK_FP32);
    const uint32_t y = graph_case_function(made, "onnx.Abs", real);
    graph_case_output(made, graph_case_quantize(made, y, QK_UINT8));
    graph_case_output(made, graph_case_quantize(made, y, QK_INT8));
    expect_refused(made, "1", "onnx.Abs");
}

Test(graph_tables, floats_of_a_client)
{
    struct graph_case *made = graph_case_create(32);
    const uint32_t x = graph_case_input(made, QK_FP32, "5");
    const uint32_t y = graph_case_function(made, "onnx.Neg", x);
    graph_case_output(made, graph_case_quantize(made, y, QK_UINT8));
    expect_refused(made, "0", "onnx.Neg");
}

Test(graph_tables, codes_of_other_sizes)
{
    static const enum qk_type types[][2] = {
        {QK_UINT8, QK_UINT16}, {QK_INT16, QK_INT8}, {QK_INT4, QK_INT8}};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct graph_case *made = graph_case_create(33 + i);
        const uint32_t x = graph_case_input(made, types[i][0], "6");
        const uint32_t real = graph_case_dequantize(made, x, QK_FP32);
        const uint32_t y = graph_case_function(made, "onnx.HardSigmoid", real);
        graph_case_output(made, graph_case_quantize(made, y, types[i][1]));
        expect_refused(made, "1", "onnx.HardSigmoid");
    }
}

/* A scale that comes with each request has no data when the model is loaded. */
Test(graph_tables, scales_without_data)
{
    struct graph_case *made = graph_case_create(40);
    const uint32_t x = graph_case_input(made, QK_UINT8, "5");
    const uint32_t real = graph_case_dequantize(made, x, QK_FP32);
    const uint32_t y = graph_case_function(made, "onnx.Sqrt", real);
    graph_case_output(made, graph_case_quantize(made, y, QK_UINT8));
    made->nodes[2].call.inputs[1].data = NULL;
    expect_refused(made, "1", "onnx.Sqrt");
}

/* The table is for codes of UINT8, but the graph's input is INT8. */
Test(graph_tables, codes_of_another_type)
{
    struct graph_case *made = graph_case_create(41);
    const uint32_t x = graph_case_input(made, QK_UINT8, "5");
    const uint32_t real = graph_case_dequantize(made, x, QK_FP32);
    const uint32_t y = graph_case_function(made, "onnx.Sqrt", real);
    graph_case_output(made, graph_case_quantize(made, y, QK_UINT8));
    made->call.inputs[0].type = QK_INT8;
    struct qk_test_memory memory;
    const uint32_t *origins;
    struct qk_graph *graph;
    struct qk_error error;
    qk_test_memory_init(&memory, SIZE_MAX);
    const struct qk_memory face = qk_test_memory_face(&memory);
    cr_assert_eq(qk_graph_lower(made->scalar, &made->call, face, &origins, &error), QK_OK);
    cr_assert_eq(qk_graph_prepare(made->scalar, &made->call, face, &graph, &error), QK_INVALID);
    cr_assert_str_eq(error.text, "node 0 (\"n2\", quantd.Lookup): X: expected the datatype of its "
                                 "zero point, got INT8");
    qk_test_memory_deinit(&memory);
    graph_case_destroy(made);
}

Test(graph_tables, every_allocation_may_fail)
{
    size_t fail_at = 0;
    for (enum qk_status status = QK_NO_MEMORY; status != QK_OK; fail_at++) {
        struct graph_case *made = graph_case_create(42);
        const uint32_t x = graph_case_input(made, QK_INT8, "2,3");
        const uint32_t real = graph_case_dequantize(made, x, QK_FP32);
        const uint32_t y = graph_case_function(made, "onnx.Sigmoid", real);
        graph_case_output(made, graph_case_quantize(made, y, QK_UINT8));
        struct qk_test_memory memory;
        const uint32_t *origins;
        struct qk_error error;
        qk_test_memory_init(&memory, fail_at);
        status = qk_graph_lower(made->scalar, &made->call, qk_test_memory_face(&memory), &origins,
                                &error);
        cr_assert(status == QK_OK || status == QK_NO_MEMORY, "%zu: %s", fail_at, error.text);
        qk_test_memory_deinit(&memory);
        graph_case_destroy(made);
    }
    cr_assert_gt(fail_at, 20);
}
