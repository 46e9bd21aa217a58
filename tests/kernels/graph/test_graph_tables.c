/* Makes tables of float functions, and operators on codes: what is left computes the same outputs.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/kernels/graph_case.h"

/* Lowers a copy of the call. `tables` of the `kept` nodes must be tables. The copy's outputs must
 * be those of the whole graph. */
static void check_tables(struct graph_case *made, size_t kept, size_t tables)
{
    struct qk_test_memory memory;
    qk_test_memory_init(&memory, SIZE_MAX);
    const struct qk_memory face = qk_test_memory_face(&memory);
    struct qk_fate fates[GRAPH_CASE_NODES_MAX];
    graph_case_ask_fates(made, fates);
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
    graph_case_check_fates(made, fates, whole.node_count);
    made->call.fates = NULL;
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

/* Two chains after each other are two tables if something else reads the codes between them. */
Test(graph_tables, a_chain_behind_a_chain)
{
    for (size_t kept = 1; kept <= 2; kept++) {
        struct graph_case *made = graph_case_create(21);
        uint32_t codes = graph_case_input(made, QK_INT8, "700");
        for (size_t i = 0; i < 2; i++) {
            const uint32_t real = graph_case_dequantize(made, codes, QK_FP32);
            const uint32_t y = graph_case_function(made, "onnx.Neg", real);
            codes = graph_case_quantize(made, y, QK_INT8);
            if (i == 1 || kept == 2)
                graph_case_output(made, codes);
        }
        check_tables(made, kept, kept);
        graph_case_destroy(made);
    }
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

/* A chain of constants is folded. Two nodes with no function between them are a table, too. */
Test(graph_tables, chains_without_functions)
{
    struct graph_case *made = graph_case_create(23);
    const uint32_t x = graph_case_input(made, QK_UINT8, "5,7");
    const uint32_t fixed = graph_case_constant(made, x, QK_FP32);
    const uint32_t y = graph_case_function(made, "onnx.Sigmoid", fixed);
    const uint32_t codes = graph_case_quantize(made, y, QK_UINT8);
    graph_case_output(made, graph_case_dequantize(made, codes, QK_FP32));
    const uint32_t real = graph_case_dequantize(made, x, QK_FP32);
    graph_case_output(made, graph_case_quantize(made, real, QK_INT8));
    check_tables(made, 2, 1);
    graph_case_destroy(made);
}

/* x * Sigmoid(x), and more functions of one value. */
Test(graph_tables, branches_that_join)
{
    struct graph_case *made = graph_case_create(24);
    const uint32_t x = graph_case_input(made, QK_INT8, "3,50");
    const uint32_t real = graph_case_dequantize(made, x, QK_FP32);
    const uint32_t gate = graph_case_function(made, "onnx.Sigmoid", real);
    const uint32_t y = graph_case_combine(made, "onnx.Mul", real, gate);
    const uint32_t z = graph_case_function(made, "onnx.Tanh", graph_case_divide(made, y, 3));
    const uint32_t sum = graph_case_combine(made, "onnx.Add", z, y);
    graph_case_output(made, graph_case_quantize(made, sum, QK_UINT8));
    graph_case_shuffle(made);
    check_tables(made, 1, 1);
    graph_case_destroy(made);
}

/* Each of them dequantizes the same codes by its own scale. */
Test(graph_tables, branches_from_two_dequantizers)
{
    struct graph_case *made = graph_case_create(25);
    const uint32_t x = graph_case_input(made, QK_UINT8, "300");
    const uint32_t a = graph_case_dequantize(made, x, QK_FP32);
    const uint32_t b = graph_case_dequantize(made, x, QK_FP32);
    const uint32_t gate = graph_case_function(made, "onnx.HardSigmoid", b);
    const uint32_t y = graph_case_combine(made, "onnx.Mul", a, gate);
    graph_case_output(made, graph_case_quantize(made, y, QK_UINT8));
    check_tables(made, 1, 1);
    graph_case_destroy(made);
}

/* Two tables begin with one function. */
Test(graph_tables, functions_with_two_readers)
{
    struct graph_case *made = graph_case_create(31);
    const uint32_t x = graph_case_input(made, QK_UINT8, "5");
    const uint32_t real = graph_case_dequantize(made, x, QK_FP32);
    const uint32_t y = graph_case_function(made, "onnx.Abs", real);
    graph_case_output(made, graph_case_quantize(made, y, QK_UINT8));
    graph_case_output(made, graph_case_quantize(made, y, QK_INT8));
    check_tables(made, 2, 2);
    graph_case_destroy(made);
}

/* ---- Constants for each channel ------------------------------------------------------------ */

/* The operators' constant is input 0 or 1. */
Test(graph_tables, constants_of_channels)
{
    static const struct {
        const char *name;
        size_t constant;
    } operators[] = {{"onnx.PRelu", 1}, {"onnx.Add", 0}, {"onnx.Mul", 1}, {"onnx.Sub", 0},
                     {"onnx.Div", 1},   {"onnx.Min", 1}, {"onnx.Max", 1}, {"onnx.Div", 0}};
    static const char *const shapes[] = {"2,37,9,7", "1,37,1,1", "37,64,2", "3,37,100,1"};
    static const size_t dims[] = {1, 37, 1, 1};
    for (size_t i = 0; i < sizeof(operators) / sizeof(operators[0]); i++)
        for (size_t k = 0; k < sizeof(shapes) / sizeof(shapes[0]); k++) {
            struct graph_case *made = graph_case_create(100 + 10 * i + k);
            const uint32_t x = graph_case_input(made, i % 2 == 0 ? QK_UINT8 : QK_INT8, shapes[k]);
            const uint32_t real = graph_case_dequantize(made, x, QK_FP32);
            const uint32_t y =
                graph_case_with(made, operators[i].name, real, operators[i].constant, 3, dims + 1);
            graph_case_output(made, graph_case_quantize(made, y, QK_INT8));
            check_tables(made, 1, 1);
            graph_case_destroy(made);
        }
}

/* Functions that join, with constants of several ranks, numbers among them, and one axis behind the
 * channels. */
Test(graph_tables, functions_of_channels)
{
    static const size_t dims[] = {1, 1, 70, 1};
    for (uint32_t rank = 2; rank <= 4; rank++) {
        struct graph_case *made = graph_case_create(200 + rank);
        const uint32_t x = graph_case_input(made, QK_UINT8, "3,70,50");
        const uint32_t real = graph_case_dequantize(made, x, QK_FP32);
        const uint32_t a = graph_case_with(made, "onnx.Mul", real, 1, rank, dims + 4 - rank);
        const uint32_t b = graph_case_function(made, "onnx.HardSigmoid", real);
        const uint32_t c = graph_case_combine(made, "onnx.Add", a, graph_case_divide(made, b, 1));
        const uint32_t d = graph_case_with(made, "onnx.PRelu", c, 1, 2, dims + 2);
        graph_case_output(made, graph_case_quantize(made, d, QK_UINT8));
        check_tables(made, 1, 1);
        graph_case_destroy(made);
    }
}

/* The constants have an axis that x lacks, or of which x has one element. */
Test(graph_tables, channels_that_repeat_x)
{
    static const char *const shapes[] = {"2,1,5,20", "5,20", "20", "1"};
    static const size_t dims[] = {40, 1, 1};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct graph_case *made = graph_case_create(210 + i);
        const uint32_t x = graph_case_input(made, QK_INT8, shapes[i]);
        const uint32_t real = graph_case_dequantize(made, x, QK_FP32);
        const uint32_t y = graph_case_with(made, "onnx.Add", real, 1, 3, dims);
        graph_case_output(made, graph_case_quantize(made, y, QK_INT8));
        check_tables(made, 1, 1);
        graph_case_destroy(made);
    }
}

/* These stay: constants of the last axis, of two axes, of two lengths, and more tables than a graph
 * may have. */
Test(graph_tables, constants_of_channels_that_stay)
{
    static const size_t last[] = {6}, two[] = {2, 3, 1}, many[] = {16385, 1}, few[] = {3, 1, 1};
    static const struct {
        const char *shape;
        uint32_t rank;
        const size_t *dims;
    } cases[] = {{"2,6", 1, last}, {"2,3,5", 3, two}, {"16385,2", 2, many}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct graph_case *made = graph_case_create(220 + i);
        const uint32_t x = graph_case_input(made, QK_UINT8, cases[i].shape);
        const uint32_t real = graph_case_dequantize(made, x, QK_FP32);
        const uint32_t y = graph_case_with(made, "onnx.Mul", real, 1, cases[i].rank, cases[i].dims);
        graph_case_output(made, graph_case_quantize(made, y, QK_UINT8));
        check_tables(made, 3, 0);
        graph_case_destroy(made);
    }
    struct graph_case *made = graph_case_create(230);
    const uint32_t x = graph_case_input(made, QK_UINT8, "3,2,1");
    const uint32_t real = graph_case_dequantize(made, x, QK_FP32);
    const uint32_t y = graph_case_with(made, "onnx.Mul", real, 1, 3, few);
    const uint32_t z = graph_case_with(made, "onnx.Mul", y, 1, 2, (const size_t[]){2, 1});
    graph_case_output(made, graph_case_quantize(made, z, QK_UINT8));
    check_tables(made, 4, 0);
    graph_case_destroy(made);
}

/* The functions are too many for the memory in which tables of channels are computed. */
Test(graph_tables, long_functions_of_channels)
{
    static const size_t dims[] = {64, 1};
    struct graph_case *made = graph_case_create(240);
    const uint32_t x = graph_case_input(made, QK_UINT8, "64,2");
    uint32_t y = graph_case_dequantize(made, x, QK_FP32);
    y = graph_case_with(made, "onnx.Mul", y, 1, 2, dims);
    while (made->call.node_count < GRAPH_CASE_NODES_MAX - 1)
        y = graph_case_function(made, "onnx.Abs", y);
    graph_case_output(made, graph_case_quantize(made, y, QK_UINT8));
    check_tables(made, GRAPH_CASE_NODES_MAX, 0);
    graph_case_destroy(made);
}

/* The axis of x has another length. */
Test(graph_tables, channels_of_another_number)
{
    static const size_t dims[] = {3, 1, 1};
    struct graph_case *made = graph_case_create(241);
    const uint32_t x = graph_case_input(made, QK_UINT8, "2,3,5,4");
    const uint32_t real = graph_case_dequantize(made, x, QK_FP32);
    const uint32_t y = graph_case_with(made, "onnx.PRelu", real, 1, 3, dims);
    graph_case_output(made, graph_case_quantize(made, y, QK_UINT8));
    struct qk_test_memory memory;
    const uint32_t *origins;
    struct qk_graph *graph;
    struct qk_graph_plan plan;
    struct qk_error error;
    qk_test_memory_init(&memory, SIZE_MAX);
    const struct qk_memory face = qk_test_memory_face(&memory);
    cr_assert_eq(qk_graph_lower(made->scalar, &made->call, face, &origins, &error), QK_OK);
    cr_assert_eq(qk_graph_prepare(made->scalar, &made->call, face, &graph, &error), QK_OK);
    struct qk_tensor other = made->values[x];
    other.dims[1] = 5;
    qk_tensor_set_count(&other);
    cr_assert_eq(qk_graph_plan(graph, &other, face, &plan, &error), QK_INVALID);
    cr_assert_str_eq(error.text,
                     "node 0 (\"n2\", quantd.Lookup): X: expected 1 or 3 elements in axis 1, for "
                     "each of which there are constants, got 5");
    qk_test_memory_deinit(&memory);
    graph_case_destroy(made);
}

/* ---- Functions of codes -------------------------------------------------------------------- */

#define MULTIPLY "com.microsoft.QLinearMul"
#define ADD "com.microsoft.QLinearAdd"
#define SIGMOID "com.microsoft.QLinearSigmoid"
#define LEAKY_RELU "com.microsoft.QLinearLeakyRelu"

/* x * Sigmoid(x), with the operands in both orders. */
Test(graph_tables, codes_that_join)
{
    static const enum qk_type types[] = {QK_UINT8, QK_INT8};
    for (size_t i = 0; i < 4; i++) {
        struct graph_case *made = graph_case_create(300 + i);
        const uint32_t input = graph_case_input(made, QK_UINT8, "2,3,5,7");
        const uint32_t x = graph_case_conv(made, input, 4, types[i % 2]);
        const uint32_t gate = graph_case_codes(made, SIGMOID, x, QK_VALUE_NONE);
        graph_case_output(made, i < 2 ? graph_case_codes(made, MULTIPLY, x, gate)
                                      : graph_case_codes(made, MULTIPLY, gate, x));
        check_tables(made, 2, 1);
        graph_case_destroy(made);
    }
}

/* Functions of functions, one of which is read twice, and a chain of floats. */
Test(graph_tables, codes_that_join_again)
{
    struct graph_case *made = graph_case_create(310);
    const uint32_t x = graph_case_input(made, QK_INT8, "3,50");
    const uint32_t a = graph_case_codes(made, LEAKY_RELU, x, QK_VALUE_NONE);
    const uint32_t real = graph_case_dequantize(made, x, QK_FP32);
    const uint32_t b =
        graph_case_quantize(made, graph_case_function(made, "onnx.Abs", real), QK_INT8);
    const uint32_t c = graph_case_codes(made, MULTIPLY, a, b);
    const uint32_t square = graph_case_codes(made, MULTIPLY, c, c);
    graph_case_output(made, graph_case_codes(made, SIGMOID, square, QK_VALUE_NONE));
    check_tables(made, 1, 1);
    graph_case_destroy(made);
}

/* The codes that a table makes have another type than those that it reads. */
Test(graph_tables, codes_of_two_types)
{
    struct graph_case *made = graph_case_create(311);
    const uint32_t x = graph_case_input(made, QK_UINT8, "300");
    const uint32_t real = graph_case_dequantize(made, x, QK_FP32);
    const uint32_t y =
        graph_case_quantize(made, graph_case_function(made, "onnx.Neg", real), QK_INT8);
    graph_case_output(made, graph_case_codes(made, SIGMOID, y, QK_VALUE_NONE));
    check_tables(made, 1, 1);
    graph_case_destroy(made);
}

/* What leaves the graph stays. The functions behind it are one table. */
Test(graph_tables, codes_that_leave_the_graph)
{
    struct graph_case *made = graph_case_create(312);
    const uint32_t x = graph_case_input(made, QK_UINT8, "7,9");
    const uint32_t a = graph_case_codes(made, LEAKY_RELU, x, QK_VALUE_NONE);
    const uint32_t b = graph_case_codes(made, SIGMOID, a, QK_VALUE_NONE);
    graph_case_output(made, a);
    graph_case_output(made, graph_case_codes(made, MULTIPLY, a, b));
    check_tables(made, 2, 1);
    graph_case_destroy(made);
}

/* Nothing is saved if the function stays for another reader. */
Test(graph_tables, codes_that_others_read)
{
    struct graph_case *made = graph_case_create(313);
    const uint32_t x = graph_case_input(made, QK_UINT8, "7,9");
    const uint32_t gate = graph_case_codes(made, SIGMOID, x, QK_VALUE_NONE);
    graph_case_output(made, gate);
    graph_case_output(made, graph_case_codes(made, MULTIPLY, x, gate));
    check_tables(made, 2, 0);
    graph_case_destroy(made);
}

/* A product of two values is no table. */
Test(graph_tables, codes_that_stay)
{
    struct graph_case *made = graph_case_create(314);
    const uint32_t x = graph_case_input(made, QK_UINT8, "7,9");
    const uint32_t other = graph_case_input(made, QK_UINT8, "9");
    const uint32_t a = graph_case_codes(made, SIGMOID, x, QK_VALUE_NONE);
    const uint32_t b = graph_case_codes(made, MULTIPLY, a, other);
    const uint32_t c = graph_case_codes(made, SIGMOID, b, QK_VALUE_NONE);
    graph_case_output(made, graph_case_codes(made, ADD, b, c));
    check_tables(made, 3, 1);
    graph_case_destroy(made);
}

/* Makes operand B of the last node, a value of the graph, a constant. */
static struct qk_node *fix_operand(struct graph_case *made, uint32_t value)
{
    struct qk_node *node = &made->nodes[made->call.node_count - 1];
    node->call.variable &= ~(1U << 3);
    node->call.inputs[3] = made->values[value];
    node->inputs[3] = QK_VALUE_NONE;
    return node;
}

/* A product or sum with a number, whose rank y gets, or with a vector. */
Test(graph_tables, codes_with_constants)
{
    static const char *const shapes[] = {"1", "1,1,1", "5"};
    for (size_t i = 0; i < 2 * sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct graph_case *made = graph_case_create(315 + i);
        const uint32_t x = graph_case_input(made, QK_INT8, "4,5");
        const uint32_t number = graph_case_input(made, QK_INT8, shapes[i / 2]);
        const uint32_t a = graph_case_codes(made, SIGMOID, x, QK_VALUE_NONE);
        const uint32_t b = graph_case_codes(made, i % 2 ? ADD : MULTIPLY, a, number);
        fix_operand(made, number);
        graph_case_output(made, graph_case_codes(made, LEAKY_RELU, b, QK_VALUE_NONE));
        check_tables(made, i < 4 ? 1 : 3, i < 4);
        graph_case_destroy(made);
    }
}

/* With these numbers, 30 codes of a sum depend on which operand is rounded first, and so on the
 * operands' shapes. */
Test(graph_tables, sums_that_stay)
{
    struct graph_case *made = graph_case_create(330);
    const uint32_t x = graph_case_input(made, QK_UINT8, "300");
    const uint32_t number = graph_case_input(made, QK_UINT8, "1");
    const uint32_t sum = graph_case_codes(made, ADD, x, number);
    static const uint8_t code = 208, zeros[] = {237, 178, 0};
    static const float scales[] = {1, 1.4F, 2};
    struct qk_node *node = fix_operand(made, number);
    struct qk_test_memory memory;
    const uint32_t *origins;
    struct qk_error error;
    graph_case_output(made, graph_case_codes(made, LEAKY_RELU, sum, QK_VALUE_NONE));
    node->call.inputs[3].data = &code;
    for (size_t i = 0; i < 3; i++) {
        node->call.inputs[i < 2 ? 3 * i + 1 : 6].data = &scales[i];
        node->call.inputs[i < 2 ? 3 * i + 2 : 7].data = &zeros[i];
    }
    qk_test_memory_init(&memory, SIZE_MAX);
    const struct qk_memory face = qk_test_memory_face(&memory);
    cr_assert_eq(qk_graph_lower(made->scalar, &made->call, face, &origins, &error), QK_OK, "%s",
                 error.text);
    cr_expect_eq(made->call.node_count, 2);
    qk_test_memory_deinit(&memory);
    graph_case_destroy(made);
}

/* ---- Functions that run as they are -------------------------------------------------------- */

/* The function has no table, but its QuantizeLinear has one. */
Test(graph_tables, floats_that_leave_the_graph)
{
    struct graph_case *made = graph_case_create(30);
    const uint32_t x = graph_case_input(made, QK_UINT8, "5");
    const uint32_t real = graph_case_dequantize(made, x, QK_FP32);
    const uint32_t y = graph_case_function(made, "onnx.Sigmoid", real);
    graph_case_output(made, graph_case_quantize(made, y, QK_UINT8));
    graph_case_output(made, y);
    check_tables(made, 3, 1);
    graph_case_destroy(made);
}

Test(graph_tables, floats_of_a_client)
{
    struct graph_case *made = graph_case_create(32);
    const uint32_t x = graph_case_input(made, QK_FP32, "5");
    const uint32_t y = graph_case_function(made, "onnx.Neg", x);
    graph_case_output(made, graph_case_quantize(made, y, QK_UINT8));
    check_tables(made, 2, 0);
    graph_case_destroy(made);
}

Test(graph_tables, functions_of_two_values)
{
    struct graph_case *made = graph_case_create(26);
    const uint32_t a = graph_case_input(made, QK_UINT8, "3,5");
    const uint32_t b = graph_case_input(made, QK_UINT8, "3,1");
    const uint32_t gate =
        graph_case_function(made, "onnx.Sigmoid", graph_case_dequantize(made, b, QK_FP32));
    const uint32_t y =
        graph_case_combine(made, "onnx.Mul", graph_case_dequantize(made, a, QK_FP32), gate);
    graph_case_output(made, graph_case_quantize(made, y, QK_UINT8));
    check_tables(made, 5, 0);
    graph_case_destroy(made);
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
        check_tables(made, 3, 0);
        graph_case_destroy(made);
    }
}

/* A scale that comes with each request has no data when the model is loaded. */
Test(graph_tables, scales_without_data)
{
    struct graph_case *made = graph_case_create(40);
    struct qk_test_memory memory;
    const uint32_t *origins;
    struct qk_error error;
    const uint32_t x = graph_case_input(made, QK_UINT8, "5");
    const uint32_t real = graph_case_dequantize(made, x, QK_FP32);
    const uint32_t y = graph_case_function(made, "onnx.Sqrt", real);
    graph_case_output(made, graph_case_quantize(made, y, QK_UINT8));
    made->nodes[2].call.inputs[1].data = NULL;
    qk_test_memory_init(&memory, SIZE_MAX);
    const struct qk_memory face = qk_test_memory_face(&memory);
    cr_assert_eq(qk_graph_lower(made->scalar, &made->call, face, &origins, &error), QK_OK);
    cr_assert_eq(made->call.node_count, 3);
    qk_test_memory_deinit(&memory);
    graph_case_destroy(made);
}

/* A node of constants stays if it makes an output. What follows it depends on no code. */
Test(graph_tables, functions_of_constants)
{
    struct graph_case *made = graph_case_create(45);
    const uint32_t x = graph_case_input(made, QK_UINT8, "1");
    const uint32_t fixed = graph_case_constant(made, x, QK_FP32);
    const uint32_t y = graph_case_function(made, "onnx.Sigmoid", fixed);
    const uint32_t z = graph_case_function(made, "onnx.Abs", y);
    graph_case_output(made, y);
    graph_case_output(made, graph_case_quantize(made, z, QK_UINT8));
    check_tables(made, 3, 0);
    graph_case_destroy(made);
}

/* A node that reads what comes behind it is refused when the graph is prepared. */
Test(graph_tables, cycles)
{
    struct graph_case *made = graph_case_create(43);
    struct qk_test_memory memory;
    const uint32_t *origins;
    struct qk_graph *graph;
    struct qk_error error;
    const uint32_t x = graph_case_input(made, QK_UINT8, "5");
    const uint32_t real = graph_case_dequantize(made, x, QK_FP32);
    const uint32_t y = graph_case_combine(made, "onnx.Mul", real, real);
    const uint32_t z = graph_case_function(made, "onnx.Abs", y);
    graph_case_output(made, graph_case_quantize(made, z, QK_UINT8));
    made->nodes[1].inputs[1] = z;
    qk_test_memory_init(&memory, SIZE_MAX);
    const struct qk_memory face = qk_test_memory_face(&memory);
    cr_assert_eq(qk_graph_lower(made->scalar, &made->call, face, &origins, &error), QK_OK);
    cr_assert_eq(made->call.node_count, 4);
    cr_assert_eq(qk_graph_prepare(made->scalar, &made->call, face, &graph, &error), QK_INVALID);
    qk_test_memory_deinit(&memory);
    graph_case_destroy(made);
}

/* Memory for more blocks than struct qk_test_memory has. */
struct heap {
    char *begin, *next;
    size_t left;
};

static void *take(void *context, size_t bytes)
{
    struct heap *heap = context;
    const size_t rounded = (bytes + 63) / 64 * 64;
    cr_assert_leq(rounded, heap->left);
    void *taken = heap->next;
    heap->next += rounded;
    heap->left -= rounded;
    return taken;
}

/* Functions that many tables share are computed for some of them, and the others stay. */
Test(graph_tables, many_tables_of_long_chains)
{
    enum { LENGTH = 1000, NODES = 1024, READERS = NODES - LENGTH - 1 };
    struct graph_case *made = graph_case_create(44);
    struct heap heap = {.left = (size_t)64 << 20};
    heap.next = heap.begin = aligned_alloc(64, heap.left);
    cr_assert_not_null(heap.begin);
    const uint32_t *origins;
    struct qk_error error;
    const uint32_t x = graph_case_input(made, QK_UINT8, "5");
    const uint32_t real = graph_case_dequantize(made, x, QK_FP32);
    const uint32_t y = graph_case_function(made, "onnx.Abs", real);
    graph_case_output(made, graph_case_quantize(made, y, QK_UINT8));
    struct qk_node *nodes = calloc(NODES, sizeof(*nodes));
    cr_assert_not_null(nodes);
    for (uint32_t i = 0; i < NODES; i++) {
        const bool reads = i > LENGTH;
        nodes[i] = made->nodes[i == 0 ? 0 : reads ? 2 : 1];
        nodes[i].inputs[0] = i == 0 ? x : (reads ? LENGTH : i - 1) + 1;
        nodes[i].outputs[0] = i + 1;
    }
    made->call.nodes = nodes;
    made->call.node_count = NODES;
    made->call.value_count = NODES + 1;
    made->call.value_names = NULL;
    made->call.outputs[0] = NODES;
    const struct qk_memory face = {take, &heap};
    cr_assert_eq(qk_graph_lower(made->scalar, &made->call, face, &origins, &error), QK_OK);
    size_t tables = 0;
    for (size_t i = 0; i < made->call.node_count; i++)
        tables += strcmp(made->call.nodes[i].call.op->name, "quantd.Lookup") == 0;
    cr_assert_gt(tables, 1);
    cr_assert_lt(tables, READERS);
    free(heap.begin);
    free(nodes);
    graph_case_destroy(made);
}

/* ---- Operators on codes -------------------------------------------------------------------- */

/* Node `index` of the lowered graph is this operator, and the outputs are as before. The scales are
 * 1/2 and 3/4, so there are no ties, which both operators would round differently. */
static void check_quantized(struct graph_case *made, size_t kept, size_t index, const char *name)
{
    check_tables(made, kept, 0);
    cr_assert_str_eq(made->nodes[index].call.op->name, name);
    graph_case_destroy(made);
}

Test(graph_tables, sums_and_products_of_codes)
{
    static const char *const names[][2] = {{"onnx.Add", "com.microsoft.QLinearAdd"},
                                           {"onnx.Mul", "com.microsoft.QLinearMul"}};
    static const enum qk_type types[] = {QK_UINT8, QK_INT8};
    for (size_t i = 0; i < 4; i++) {
        struct graph_case *made = graph_case_create(50 + i);
        const uint32_t a = graph_case_input(made, types[i / 2], "3,5");
        const uint32_t b = graph_case_input(made, types[i / 2], "2,3,1");
        const uint32_t y =
            graph_case_combine(made, names[i % 2][0], graph_case_dequantize(made, a, QK_FP32),
                               graph_case_dequantize(made, b, QK_FP32));
        graph_case_output(made, graph_case_quantize(made, y, types[i / 2]));
        check_quantized(made, 1, 0, names[i % 2][1]);
    }
}

/* Add reads one DequantizeLinear twice, and so does a function. */
Test(graph_tables, sums_of_one_value)
{
    struct graph_case *made = graph_case_create(54);
    const uint32_t x = graph_case_input(made, QK_INT8, "7");
    const uint32_t codes = graph_case_identity(made, x);
    const uint32_t real = graph_case_dequantize(made, codes, QK_FP32);
    const uint32_t y = graph_case_combine(made, "onnx.Add", real, real);
    graph_case_output(made, graph_case_quantize(made, y, QK_INT8));
    check_quantized(made, 2, 1, "com.microsoft.QLinearAdd");
}

Test(graph_tables, averages_of_codes)
{
    struct graph_case *made = graph_case_create(55);
    const uint32_t x = graph_case_input(made, QK_UINT8, "2,3,1,3");
    const uint32_t real = graph_case_dequantize(made, x, QK_FP32);
    const uint32_t y = graph_case_function(made, "onnx.GlobalAveragePool", real);
    graph_case_output(made, graph_case_quantize(made, y, QK_UINT8));
    check_quantized(made, 1, 0, "com.microsoft.QLinearGlobalAveragePool");
}

/* An attribute that QLinearAveragePool does not have keeps the floats. */
Test(graph_tables, averages_of_windows)
{
    static const int64_t kernel[] = {3};
    static const int64_t dilations[] = {2};
    for (size_t i = 0; i < 2; i++) {
        struct graph_case *made = graph_case_create(58 + i);
        const uint32_t x = graph_case_input(made, QK_UINT8, "2,3,9");
        const uint32_t real = graph_case_dequantize(made, x, QK_FP32);
        const uint32_t y = graph_case_average(made, real, kernel, i == 1 ? dilations : NULL);
        graph_case_output(made, graph_case_quantize(made, y, QK_UINT8));
        if (i == 0) {
            check_quantized(made, 1, 0, "com.microsoft.QLinearAveragePool");
        } else {
            check_tables(made, 3, 0);
            graph_case_destroy(made);
        }
    }
}

/* ONNX Runtime leaves these in floats: codes of two types, and a sum that leaves the graph. */
Test(graph_tables, sums_that_stay_floats)
{
    struct graph_case *made = graph_case_create(56);
    const uint32_t a = graph_case_input(made, QK_UINT8, "3,5");
    const uint32_t b = graph_case_input(made, QK_INT8, "3,5");
    const uint32_t y = graph_case_combine(made, "onnx.Add", graph_case_dequantize(made, a, QK_FP32),
                                          graph_case_dequantize(made, b, QK_FP32));
    graph_case_output(made, graph_case_quantize(made, y, QK_UINT8));
    check_tables(made, 4, 0);
    graph_case_destroy(made);
    made = graph_case_create(57);
    const uint32_t c = graph_case_input(made, QK_UINT8, "3,5");
    const uint32_t d = graph_case_input(made, QK_UINT8, "3,5");
    const uint32_t z = graph_case_combine(made, "onnx.Add", graph_case_dequantize(made, c, QK_FP32),
                                          graph_case_dequantize(made, d, QK_FP32));
    graph_case_output(made, graph_case_quantize(made, z, QK_UINT8));
    graph_case_output(made, z);
    check_tables(made, 4, 0);
    graph_case_destroy(made);
}

/* ---- Refusals ------------------------------------------------------------------------------ */

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
        const uint32_t x = graph_case_input(made, QK_INT8, "3,2");
        const uint32_t real = graph_case_dequantize(made, x, QK_FP32);
        const uint32_t y = graph_case_function(made, "onnx.Sigmoid", real);
        const uint32_t z = graph_case_with(made, "onnx.PRelu", real, 1, 2, (const size_t[]){3, 1});
        graph_case_output(made, graph_case_quantize(made, z, QK_INT8));
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
