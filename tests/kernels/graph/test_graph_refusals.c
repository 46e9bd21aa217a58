/* Graphs that are refused. The text must name the node, the field, the rule and the actual value.
 * Also tests memory that runs out, and sizes that no memory has. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/kernels/graph_case.h"

/* FP32 -> n0 -> v1 UINT8 -> n1 -> v2 INT8 -> n2 -> v3 FP32 */
static struct graph_case *make_chain(void)
{
    struct graph_case *made = graph_case_create(1);
    uint32_t x = graph_case_input(made, QK_FP32, "1,3,8,8");
    x = graph_case_quantize(made, x, QK_UINT8);
    x = graph_case_conv(made, x, 4, QK_INT8);
    graph_case_output(made, graph_case_dequantize(made, x, QK_FP32));
    return made;
}

/* Checks the error text of qk_graph_prepare. */
static void expect_refused(struct graph_case *made, const char *text)
{
    struct qk_test_memory memory;
    const struct qk_graph *graph;
    struct qk_error error = {.status = QK_OK};
    qk_test_memory_init(&memory, SIZE_MAX);
    cr_expect_eq(
        graph_case_prepare(made, made->scalar, qk_test_memory_face(&memory), &graph, &error),
        QK_INVALID);
    cr_expect_eq(error.status, QK_INVALID);
    cr_expect_str_eq(error.text, text);
    qk_test_memory_deinit(&memory);
    graph_case_destroy(made);
}

/* ---- Counts -------------------------------------------------------------------------------- */

static void expect_count(size_t *count, struct graph_case *made, size_t value, const char *text)
{
    struct qk_test_memory memory;
    struct qk_graph *graph;
    struct qk_error error;
    *count = value;
    qk_test_memory_init(&memory, 0); /* no memory may be allocated */
    cr_expect_eq(
        qk_graph_prepare(made->scalar, &made->call, qk_test_memory_face(&memory), &graph, &error),
        QK_INVALID);
    cr_expect_str_eq(error.text, text);
    qk_test_memory_deinit(&memory);
    graph_case_destroy(made);
}

Test(graph_refusals, counts)
{
    struct graph_case *made = make_chain();
    expect_count(&made->call.node_count, made, 0, "nodes: expected 1 to 4096 in a graph, got 0");
    made = make_chain();
    expect_count(&made->call.node_count, made, 4097,
                 "nodes: expected 1 to 4096 in a graph, got 4097");
    made = make_chain();
    expect_count(&made->call.value_count, made, 0, "values: expected 1 to 32800 in a graph, got 0");
    made = make_chain();
    expect_count(&made->call.value_count, made, SIZE_MAX,
                 "values: expected 1 to 32800 in a graph, got 18446744073709551615");
    made = make_chain();
    expect_count(&made->call.input_count, made, 33, "inputs: expected 0 to 32 in a graph, got 33");
    made = make_chain();
    expect_count(&made->call.output_count, made, 0, "outputs: expected 1 to 32 in a graph, got 0");
    made = make_chain();
    expect_count(&made->call.output_count, made, 33,
                 "outputs: expected 1 to 32 in a graph, got 33");
}

/* ---- Inputs and outputs -------------------------------------------------------------------- */

Test(graph_refusals, an_input_beyond_the_values)
{
    struct graph_case *made = make_chain();
    made->call.inputs[0].value = 4;
    expect_refused(made, "input 0: expected a value of its own, got value 4: there are 4");
}

Test(graph_refusals, an_input_without_a_type)
{
    struct graph_case *made = make_chain();
    made->call.inputs[0].type = QK_NONE;
    expect_refused(made, "input 0: expected a datatype, got none");
    made = make_chain();
    made->call.inputs[0].type = QK_TYPE_COUNT;
    expect_refused(made, "input 0: expected a datatype, got none");
}

Test(graph_refusals, two_inputs_that_are_one_value)
{
    struct graph_case *made = make_chain();
    made->call.inputs[1] = made->call.inputs[0];
    made->call.input_count = 2;
    expect_refused(made,
                   "input 1: expected a value of its own, got value 0 (\"v0\"): it is input 0");
}

Test(graph_refusals, an_output_beyond_the_values)
{
    struct graph_case *made = make_chain();
    made->call.outputs[0] = QK_VALUE_NONE;
    expect_refused(made, "output 0: expected a value that a node makes, got value 4294967295: "
                         "there are 4");
}

Test(graph_refusals, an_output_that_is_an_input)
{
    struct graph_case *made = make_chain();
    graph_case_output(made, 0);
    expect_refused(made, "output 1: expected a value that a node makes, got value 0 (\"v0\"): "
                         "it is input 0");
}

Test(graph_refusals, an_output_that_nothing_makes)
{
    struct graph_case *made = make_chain();
    made->nodes[2].outputs[0] = QK_VALUE_NONE;
    expect_refused(made, "output 0: expected a value that a node makes, got value 3 (\"v3\"): "
                         "nothing makes it");
}

Test(graph_refusals, two_outputs_that_are_one_value)
{
    struct graph_case *made = make_chain();
    graph_case_output(made, 2);
    graph_case_output(made, 2);
    expect_refused(made, "output 2: expected a value that is no other output, got that of "
                         "output 1");
}

/* ---- Values -------------------------------------------------------------------------------- */

Test(graph_refusals, a_value_that_two_nodes_make)
{
    struct graph_case *made = make_chain();
    made->nodes[2].outputs[0] = 1;
    expect_refused(made, "node 2 (\"n2\", onnx.DequantizeLinear): y: expected a value that nothing "
                         "else makes, got value 1 (\"v1\"): node 0 (\"n0\", onnx.QuantizeLinear) "
                         "makes it");
}

Test(graph_refusals, a_node_that_makes_an_input)
{
    struct graph_case *made = make_chain();
    made->nodes[2].name = "";
    made->nodes[2].outputs[0] = 0;
    expect_refused(made, "node 2 (onnx.DequantizeLinear): y: expected a value that nothing else "
                         "makes, got value 0 (\"v0\"): it is input 0");
}

Test(graph_refusals, a_value_that_nothing_makes)
{
    struct graph_case *made = make_chain();
    made->call.value_names = NULL;
    made->call.value_count = 5;
    made->nodes[1].inputs[0] = 4;
    expect_refused(made, "node 1 (\"n1\", onnx.QLinearConv): x: expected a value that is an input, "
                         "or that a node makes, got value 4: nothing makes it");
}

Test(graph_refusals, values_beyond_their_number)
{
    struct graph_case *made = make_chain();
    made->nodes[1].inputs[0] = QK_VALUE_NONE - 1;
    expect_refused(made, "node 1 (\"n1\", onnx.QLinearConv): x: expected a value that is an input, "
                         "or that a node makes, got value 4294967294: there are 4");
    made = make_chain();
    made->nodes[1].outputs[0] = 4;
    expect_refused(made, "node 1 (\"n1\", onnx.QLinearConv): y: expected a value that nothing else "
                         "makes, got value 4: there are 4");
}

/* ---- Cycles -------------------------------------------------------------------------------- */

Test(graph_refusals, a_node_that_reads_itself)
{
    struct graph_case *made = make_chain();
    made->nodes[1].inputs[0] = 2;
    expect_refused(made, "node 1 (\"n1\", onnx.QLinearConv): x: expected no cycle, got one: it "
                         "reads node 1 (\"n1\", onnx.QLinearConv)");
}

Test(graph_refusals, a_cycle_with_nodes_before_and_behind_it)
{
    struct graph_case *made = make_chain();
    graph_case_output(made, graph_case_quantize(made, 3, QK_UINT8));
    made->nodes[1].inputs[0] = 3;
    expect_refused(made, "node 1 (\"n1\", onnx.QLinearConv): x: expected no cycle, got one: it "
                         "reads node 2 (\"n2\", onnx.DequantizeLinear), which reads node 1 "
                         "(\"n1\", onnx.QLinearConv)");
}

Test(graph_refusals, a_cycle_that_is_longer_than_a_text)
{
    static char long_name[5000];
    struct graph_case *made = graph_case_create(1);
    struct qk_test_memory memory;
    const struct qk_graph *graph;
    struct qk_error error;
    uint32_t x = graph_case_input(made, QK_UINT8, "1,1,2,2");
    memset(long_name, 'x', sizeof(long_name) - 1);
    for (size_t i = 0; i < 40; i++)
        x = graph_case_conv(made, x, 1, QK_UINT8);
    for (size_t i = 0; i < 40; i++)
        made->nodes[i].name = long_name;
    made->nodes[0].inputs[0] = x;
    graph_case_output(made, x);
    qk_test_memory_init(&memory, SIZE_MAX);
    cr_expect_eq(
        graph_case_prepare(made, made->scalar, qk_test_memory_face(&memory), &graph, &error),
        QK_INVALID);
    cr_expect_lt(strlen(error.text), sizeof(error.text));
    cr_expect(strstr(error.text, ": x: expected no cycle, got one: it reads node "), "%s",
              error.text);
    qk_test_memory_deinit(&memory);
    graph_case_destroy(made);
}

/* ---- Types and rules of operators ---------------------------------------------------------- */

Test(graph_refusals, a_type_that_the_next_node_does_not_take)
{
    struct graph_case *made = make_chain();
    made->nodes[1].inputs[0] = 3;
    made->nodes[2].inputs[0] = 1;
    made->nodes[2].call.inputs[2].type = QK_UINT8;
    expect_refused(made, "node 1 (\"n1\", onnx.QLinearConv): x: expected datatype UINT8, "
                         "INT8 for onnx.QLinearConv 10, got FP32");
}

Test(graph_refusals, a_type_that_differs_from_its_zero_point)
{
    struct graph_case *made = make_chain();
    made->nodes[2].call.inputs[2].type = QK_UINT8;
    expect_refused(made, "node 2 (\"n2\", onnx.DequantizeLinear): x_zero_point: expected the "
                         "datatype of x, INT8, got UINT8");
}

Test(graph_refusals, an_input_that_is_not_there)
{
    struct graph_case *made = make_chain();
    made->nodes[1].inputs[0] = QK_VALUE_NONE;
    expect_refused(made, "node 1 (\"n1\", onnx.QLinearConv): x: expected this input, which "
                         "onnx.QLinearConv 10 requires, got none");
}

Test(graph_refusals, a_constant_that_is_a_value)
{
    struct graph_case *made = make_chain();
    made->nodes[1].call.variable |= 1U << 3;
    made->nodes[1].inputs[3] = 1;
    expect_refused(made, "node 1 (\"n1\", onnx.QLinearConv): w: expected a constant, which "
                         "onnx.QLinearConv takes once, got an input that comes with each run");
}

Test(graph_refusals, a_rule_of_an_operator)
{
    struct graph_case *made = make_chain();
    qk_test_call_int(&made->nodes[1].call, "group", 3);
    expect_refused(made, "node 1 (\"n1\", onnx.QLinearConv): group: expected a divisor of w's 4 "
                         "output channels, got 3");
}

Test(graph_refusals, a_long_name_is_cut)
{
    static char name[1 << 20];
    char text[512];
    struct graph_case *made = make_chain();
    memset(name, 'n', sizeof(name) - 1);
    made->nodes[1].name = name;
    qk_test_call_int(&made->nodes[1].call, "group", 3);
    snprintf(text, sizeof(text),
             "node 1 (\"%.64s\", onnx.QLinearConv): group: expected a divisor of w's 4 output "
             "channels, got 3",
             name);
    expect_refused(made, text);
}

/* ---- Plans --------------------------------------------------------------------------------- */

/* Checks the error text of qk_graph_plan for an x of this type and shape. */
static void expect_plan_refused(const struct graph_case *made, const struct qk_tensor *x,
                                const char *text)
{
    struct qk_test_memory memory;
    const struct qk_graph *graph;
    struct qk_graph_plan plan;
    struct qk_error error;
    qk_test_memory_init(&memory, SIZE_MAX);
    struct qk_memory face = qk_test_memory_face(&memory);
    cr_assert_eq(graph_case_prepare(made, made->scalar, face, &graph, &error), QK_OK, "%s",
                 error.text);
    cr_expect_eq(qk_graph_plan(graph, x, face, &plan, &error), QK_INVALID);
    cr_expect_str_eq(error.text, text);
    qk_test_memory_deinit(&memory);
}

Test(graph_refusals, shapes_that_a_node_does_not_take)
{
    struct graph_case *made = make_chain();
    struct qk_tensor x = {.type = QK_FP32, .rank = 3, .dims = {1, 3, 8}};
    cr_assert(qk_tensor_set_count(&x));
    expect_plan_refused(made, &x,
                        "node 1 (\"n1\", onnx.QLinearConv): x: expected rank 4 as w has, "
                        "got 3");
    x.type = QK_FP16;
    expect_plan_refused(made, &x,
                        "node 0 (\"n0\", onnx.QuantizeLinear): x: expected datatype FP32 "
                        "as for create, got FP16");
    x.type = QK_FP32;
    x.count++;
    expect_plan_refused(made, &x,
                        "node 0 (\"n0\", onnx.QuantizeLinear): x: its count does not "
                        "match its shape");
    graph_case_destroy(made);
}

/* Plans are made without data, so a tensor may have any size. */
Test(graph_refusals, intermediate_values_beyond_all_memory)
{
    struct graph_case *made = graph_case_create(1);
    const uint32_t x = graph_case_input(made, QK_UINT8, "3");
    uint32_t halves[5];
    for (size_t i = 0; i < 5; i++)
        halves[i] = graph_case_dequantize(made, x, QK_FP32);
    for (size_t i = 0; i < 5; i++)
        graph_case_output(made, graph_case_quantize(made, halves[i], QK_INT2));
    struct qk_tensor huge = {.type = QK_UINT8, .rank = 1, .dims = {SIZE_MAX / 16}};
    cr_assert(qk_tensor_set_count(&huge));
    expect_plan_refused(made, &huge,
                        "the graph: expected intermediate tensors of less than "
                        "18446744073709551615 bytes, got more");
    graph_case_destroy(made);
}

/* ---- Memory that runs out ------------------------------------------------------------------ */

Test(graph_refusals, every_allocation_may_fail)
{
    struct graph_case *made = make_chain();
    struct qk_kernels *kernels = qk_test_kernels("auto");
    enum qk_status status = QK_NO_MEMORY;
    size_t fail_at = 0;
    for (; status != QK_OK; fail_at++) {
        struct qk_test_memory memory;
        const struct qk_graph *graph;
        struct qk_graph_plan plan;
        struct qk_error error = {.status = QK_OK};
        qk_test_memory_init(&memory, fail_at);
        struct qk_memory face = qk_test_memory_face(&memory);
        status = graph_case_prepare(made, kernels, face, &graph, &error);
        if (status == QK_OK)
            status = graph_case_plan(made, graph, face, &plan, &error);
        if (status != QK_OK) {
            cr_assert_eq(status, QK_NO_MEMORY);
            cr_assert_eq(error.status, QK_NO_MEMORY);
            cr_assert(strstr(error.text, "memory"), "%s", error.text);
        }
        qk_test_memory_deinit(&memory);
    }
    cr_expect_gt(fail_at, 15);

    struct qk_test_memory memory;
    struct qk_instance *instance;
    struct qk_graph *graph;
    struct qk_error error;
    struct qk_call call = made->nodes[0].call;
    call.inputs[0].type = QK_FP32;
    qk_test_memory_init(&memory, SIZE_MAX);
    struct qk_memory face = qk_test_memory_face(&memory);
    cr_assert_eq(qk_prepare(kernels, &call, face, &instance, &error), QK_OK, "%s", error.text);
    memory.fail_at = memory.count;
    cr_expect_eq(qk_graph_of(instance, face, &graph, &error), QK_NO_MEMORY);
    qk_test_memory_deinit(&memory);
    qk_kernels_destroy(kernels);
    graph_case_destroy(made);
}
