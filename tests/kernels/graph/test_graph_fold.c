/* Folds constants of graphs: what is left computes the same outputs. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/kernels/graph_case.h"

/* Folds a copy of the call and checks that `kept` nodes are left. The copy's outputs must be those
 * of the whole graph. */
static void check_fold(struct graph_case *made, size_t kept)
{
    struct qk_test_memory memory;
    qk_test_memory_init(&memory, SIZE_MAX);
    const struct qk_memory face = qk_test_memory_face(&memory);
    const struct qk_graph_call whole = made->call;
    const uint32_t *origins = NULL;
    struct qk_error error;
    cr_assert_eq(qk_graph_fold(made->scalar, &made->call, face, &origins, &error), QK_OK, "%s",
                 error.text);
    graph_case_keep(made, whole.nodes, origins, kept);
    graph_case_check(made, made->scalar);
    qk_test_memory_deinit(&memory);
}

Test(graph_fold, a_chain_of_constants)
{
    struct graph_case *made = graph_case_create(1);
    const uint32_t x = graph_case_input(made, QK_INT8, "2,3,4,5");
    const uint32_t fixed = graph_case_constant(made, x, QK_FP32);
    const uint32_t codes = graph_case_quantize(made, fixed, QK_UINT8);
    graph_case_output(made, graph_case_conv(made, codes, 2, QK_UINT8));
    check_fold(made, 1);
    graph_case_destroy(made);
}

/* Both readers of a folded value get it, whatever the order of the nodes in the call. */
Test(graph_fold, what_several_nodes_read)
{
    for (uint64_t seed = 1; seed < 20; seed++) {
        struct graph_case *made = graph_case_create(seed);
        const uint32_t x = graph_case_input(made, QK_UINT8, "1,4,8,8");
        const uint32_t fixed = graph_case_constant(made, x, QK_FP32);
        const uint32_t codes = graph_case_quantize(made, fixed, QK_INT8);
        graph_case_output(made, graph_case_dequantize(made, codes, QK_FP16));
        graph_case_output(made, graph_case_conv(made, codes, 3, QK_INT8));
        graph_case_output(made, graph_case_conv(made, x, 3, QK_INT8));
        graph_case_shuffle(made);
        check_fold(made, 3);
        graph_case_destroy(made);
    }
}

Test(graph_fold, nodes_that_make_outputs_stay)
{
    struct graph_case *made = graph_case_create(2);
    const uint32_t x = graph_case_input(made, QK_INT8, "2,3,4,5");
    const uint32_t fixed = graph_case_constant(made, x, QK_FP32);
    graph_case_output(made, fixed);
    graph_case_output(made, graph_case_quantize(made, fixed, QK_INT4));
    check_fold(made, 2);
    graph_case_destroy(made);
}

Test(graph_fold, nodes_that_read_inputs_stay)
{
    struct graph_case *made = graph_case_create(3);
    const uint32_t x = graph_case_input(made, QK_FP32, "1,3,8,8");
    graph_case_output(made,
                      graph_case_conv(made, graph_case_quantize(made, x, QK_UINT8), 7, QK_UINT8));
    check_fold(made, 2);
    graph_case_destroy(made);
}

/* A constant that comes with each request has no data when the model is loaded. */
Test(graph_fold, constants_without_data_stay)
{
    struct graph_case *made = graph_case_create(4);
    const uint32_t x = graph_case_input(made, QK_UINT8, "1,4,8,8");
    const uint32_t fixed = graph_case_constant(made, x, QK_FP32);
    const void *data = made->nodes[0].call.inputs[1].data;
    graph_case_output(made, graph_case_quantize(made, fixed, QK_INT8));
    struct qk_test_memory memory;
    const uint32_t *origins;
    struct qk_error error;
    qk_test_memory_init(&memory, SIZE_MAX);
    made->nodes[0].call.inputs[1].data = NULL;
    cr_assert_eq(
        qk_graph_fold(made->scalar, &made->call, qk_test_memory_face(&memory), &origins, &error),
        QK_OK);
    cr_assert_eq(made->call.node_count, 2);
    qk_test_memory_deinit(&memory);
    made->nodes[0].call.inputs[1].data = data;
    graph_case_destroy(made);
}

static void expect_refused(struct graph_case *made, const char *text)
{
    struct qk_test_memory memory;
    const uint32_t *origins;
    struct qk_error error;
    qk_test_memory_init(&memory, SIZE_MAX);
    cr_assert_eq(
        qk_graph_fold(made->scalar, &made->call, qk_test_memory_face(&memory), &origins, &error),
        QK_INVALID);
    cr_assert_str_eq(error.text, text);
    qk_test_memory_deinit(&memory);
}

Test(graph_fold, a_constant_that_follows_from_an_input)
{
    struct graph_case *made = graph_case_create(5);
    const uint32_t x = graph_case_input(made, QK_FP32, "4");
    const uint32_t codes = graph_case_quantize(made, x, QK_UINT8);
    graph_case_output(made, graph_case_dequantize(made, codes, QK_FP32));
    made->nodes[1].call.variable |= 1U << 1;
    made->nodes[1].inputs[1] = codes;
    expect_refused(made,
                   "node 1 (\"n1\", onnx.DequantizeLinear): x_scale: expected a constant or an "
                   "input of the graph, because the operator takes it once, got value 1 "
                   "(\"v1\"), which a node computes from the graph's inputs");
    graph_case_destroy(made);
}

Test(graph_fold, what_an_operator_refuses)
{
    struct graph_case *made = graph_case_create(6);
    const uint32_t x = graph_case_input(made, QK_INT8, "2,3");
    const uint32_t fixed = graph_case_constant(made, x, QK_FP32);
    graph_case_output(made, graph_case_quantize(made, fixed, QK_UINT8));
    made->nodes[0].call.inputs[1].type = QK_INT32;
    expect_refused(made, "node 0 (\"n0\", onnx.DequantizeLinear): x_scale: expected datatype FP16, "
                         "BF16, FP32, FP8E8M0 for onnx.DequantizeLinear 25, got INT32");
    graph_case_destroy(made);
}

/* The tensor is only said to be so large: a refusal comes before memory is asked for. */
Test(graph_fold, constants_that_take_too_long)
{
    struct graph_case *made = graph_case_create(7);
    const uint32_t x = graph_case_input(made, QK_INT8, "2,3");
    const uint32_t fixed = graph_case_constant(made, x, QK_FP32);
    graph_case_output(made, graph_case_quantize(made, fixed, QK_UINT8));
    struct qk_tensor *large = &made->nodes[0].call.inputs[0];
    large->dims[0] = (size_t)1 << 44;
    cr_assert(qk_tensor_set_count(large));
    expect_refused(made, "node 0 (\"n0\", onnx.DequantizeLinear): expected constants that take at "
                         "most 1 s to compute, got more");
    graph_case_destroy(made);
}

/* Adds a Concat of as many inputs as there can be, which are all the same. */
static void concat_node(struct qk_node *node, const char *name)
{
    *node = (struct qk_node){.name = name};
    qk_test_call_init(&node->call, "onnx.Concat", 13);
    qk_test_call_int(&node->call, "axis", 0);
}

enum { BYTES = 128 << 10 };

/* Makes a constant of all inputs of a Concat. */
static void put_constants(struct qk_node *node)
{
    static uint8_t data[BYTES];
    node->call.variable = 0;
    for (size_t i = 0; i < node->call.op->input_count; i++)
        node->call.inputs[i] = (struct qk_tensor){.type = QK_UINT8,
                                                  .rank = 1,
                                                  .dims = {BYTES},
                                                  .count = BYTES,
                                                  .stored = BYTES,
                                                  .data = data};
}

/* Two nodes make 1024 times as much of a constant. The second one is refused before its memory is
 * asked for. */
Test(graph_fold, constants_that_take_too_much_memory)
{
    static const float scale = 1;
    struct qk_node nodes[3];
    struct qk_test_memory memory;
    const uint32_t *origins;
    struct qk_error error;
    struct qk_graph_call call = {.nodes = nodes, .node_count = 3, .value_count = 3};
    concat_node(&nodes[0], "first");
    concat_node(&nodes[1], "second");
    nodes[2] = (struct qk_node){.name = "last"};
    qk_test_call_init(&nodes[2].call, "onnx.DequantizeLinear", 13);
    qk_test_call_input(&nodes[2].call, "x_scale", QK_FP32, &scale, 0, NULL);
    put_constants(&nodes[0]);
    for (size_t i = 0; i < nodes[0].call.op->input_count; i++) {
        nodes[1].call.inputs[i].type = QK_UINT8;
        nodes[1].inputs[i] = 0;
    }
    for (uint32_t i = 0; i < 3; i++)
        nodes[i].outputs[0] = i;
    nodes[2].inputs[0] = 1;
    call.outputs[call.output_count++] = 2;
    qk_test_memory_init(&memory, SIZE_MAX);
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    cr_assert_eq(qk_graph_fold(kernels, &call, qk_test_memory_face(&memory), &origins, &error),
                 QK_INVALID);
    cr_expect_str_eq(error.text,
                     "node 1 (\"second\", onnx.Concat): expected constants that take at most "
                     "69206080 bytes to compute, which is 64 MiB and 16 times the graph's "
                     "constants, got more");
    cr_expect_lt(memory.bytes, (size_t)16 << 20);
    qk_test_memory_deinit(&memory);
    qk_kernels_destroy(kernels);
}

/* The first pass folds the Concat, which makes 4 MiB. A later pass computes 16 MiB of them, and
 * then 5 times as much: more than one load may take, but less than a pass could that began to count
 * anew, with the 4 MiB as constants of the graph. */
Test(graph_fold, all_passes_share_one_bound)
{
    static const float numbers[5] = {1, 1, 1, 1, 1};
    static const size_t column[] = {5, 1};
    struct qk_node nodes[4];
    struct qk_test_memory memory;
    const uint32_t *origins;
    struct qk_error error;
    struct qk_graph_call call = {.nodes = nodes, .node_count = 4, .value_count = 4};
    concat_node(&nodes[0], "concat");
    put_constants(&nodes[0]);
    nodes[1] = (struct qk_node){.name = "floats"};
    qk_test_call_init(&nodes[1].call, "onnx.DequantizeLinear", 13);
    qk_test_call_input(&nodes[1].call, "x_scale", QK_FP32, numbers, 0, NULL);
    nodes[2] = (struct qk_node){.name = "add"};
    qk_test_call_init(&nodes[2].call, "onnx.Add", 14);
    qk_test_call_input(&nodes[2].call, "B", QK_FP32, numbers, 2, column);
    nodes[2].call.variable = 1;
    nodes[3] = (struct qk_node){.name = "codes"};
    qk_test_call_init(&nodes[3].call, "onnx.QuantizeLinear", 13);
    qk_test_call_input(&nodes[3].call, "y_scale", QK_FP32, numbers, 0, NULL);
    for (uint32_t i = 0; i < 4; i++) {
        nodes[i].number = i + 1;
        nodes[i].outputs[0] = i;
        nodes[i].inputs[0] = i - (i > 0);
    }
    call.outputs[call.output_count++] = 3;
    qk_test_memory_init(&memory, SIZE_MAX);
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    cr_assert_eq(qk_graph_lower(kernels, &call, qk_test_memory_face(&memory), &origins, &error),
                 QK_INVALID);
    cr_expect_str_eq(error.text,
                     "node 2 (\"add\", onnx.Add): expected constants that take at most 69206336 "
                     "bytes to compute, which is 64 MiB and 16 times the graph's constants, got "
                     "more");
    cr_expect_lt(memory.bytes, (size_t)32 << 20);
    cr_expect_null(call.memory);
    qk_test_memory_deinit(&memory);
    qk_kernels_destroy(kernels);
}

Test(graph_fold, every_allocation_may_fail)
{
    size_t fail_at = 0;
    for (enum qk_status status = QK_NO_MEMORY; status != QK_OK; fail_at++) {
        struct graph_case *made = graph_case_create(8);
        const uint32_t x = graph_case_input(made, QK_INT8, "2,3,4,5");
        const uint32_t fixed = graph_case_constant(made, x, QK_FP32);
        graph_case_output(made, graph_case_quantize(made, fixed, QK_UINT8));
        struct qk_test_memory memory;
        const uint32_t *origins;
        struct qk_error error;
        qk_test_memory_init(&memory, fail_at);
        status = qk_graph_fold(made->scalar, &made->call, qk_test_memory_face(&memory), &origins,
                               &error);
        cr_assert(status == QK_OK || status == QK_NO_MEMORY, "%zu: %s", fail_at, error.text);
        qk_test_memory_deinit(&memory);
        graph_case_destroy(made);
    }
    cr_assert_gt(fail_at, 10);
}
