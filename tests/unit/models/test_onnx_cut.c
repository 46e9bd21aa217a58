/* Files that are cut: from which values on, and up to which, nodes are read. */

#include "tests/unit/models/onnx_file.h"

TestSuite(onnx_cut, .init = setup, .fini = teardown);

#define CUT_INPUTS(...) \
    .inputs = NAMES(__VA_ARGS__), .input_count = sizeof(NAMES(__VA_ARGS__)) / sizeof(char *) - 1
#define CUT_OUTPUTS(...) \
    .outputs = NAMES(__VA_ARGS__), .output_count = sizeof(NAMES(__VA_ARGS__)) / sizeof(char *) - 1

/* a -> QuantizeLinear -> b -> Reverse, which quantd does not have, -> c -> DequantizeLinear -> d,
 * and c -> Identity -> e. Nothing needs f, which Reverse makes of b, too. */
static struct message net(void)
{
    struct message file = {.bytes = NULL};
    add_parameters(&file);
    put_message(&file, ONNX_GRAPH_INPUT, onnx_value_info("a", ONNX_FLOAT, DIMS(2, 0)));
    put_message(&file, ONNX_GRAPH_INPUT, onnx_value_info("a2", ONNX_FLOAT, DIMS(2, 0)));
    put_message(&file, ONNX_GRAPH_NODE,
                onnx_node("q", "QuantizeLinear", NAMES("a", "s", "z"), NAMES("b")));
    put_message(&file, ONNX_GRAPH_NODE, onnx_node("r", "Reverse", NAMES("b"), NAMES("c")));
    put_message(&file, ONNX_GRAPH_NODE,
                onnx_node("dq", "DequantizeLinear", NAMES("c", "s", "z"), NAMES("d")));
    put_message(&file, ONNX_GRAPH_NODE, onnx_node("i", "Identity", NAMES("c"), NAMES("e")));
    put_message(&file, ONNX_GRAPH_NODE, onnx_node("r2", "Reverse", NAMES("b"), NAMES("f")));
    put_message(&file, ONNX_GRAPH_OUTPUT, onnx_value_info("d", ONNX_FLOAT, DIMS(2, 0)));
    put_message(&file, ONNX_GRAPH_OUTPUT, onnx_value_info("e", ONNX_UINT8, DIMS(2, 0)));
    return onnx_model(file, 14);
}

static enum qd_status cut_model(struct message model, struct qd_onnx_cut cut)
{
    enum qd_status status = read_source(
        (struct qd_onnx_source){.bytes = model.bytes, .count = model.count, .cut = cut});
    message_free(&model);
    return status;
}

static void expect_cut(struct qd_onnx_cut cut)
{
    const enum qd_status status = cut_model(net(), cut);
    cr_assert_eq(status, QD_OK, "%s", error.text);
}

static void expect_no_cut(struct qd_onnx_cut cut, const char *text)
{
    cr_assert_eq(cut_model(net(), cut), QD_INVALID, "expected: %s", text);
    cr_assert_str_eq(error.text, text);
}

/* Nodes that no output needs are not read, so the last node is not refused. */
Test(onnx_cut, the_whole_file)
{
    expect_no_cut((struct qd_onnx_cut){.inputs = NULL},
                  "node 1 (\"r\", \"Reverse\"): expected an operator that quantd has, got "
                  "\"Reverse\" of ONNX's own domain");
}

Test(onnx_cut, outputs)
{
    expect_cut((struct qd_onnx_cut){CUT_OUTPUTS("b")});
    const struct qk_graph_call *call = &graph.call;
    cr_assert_eq(call->node_count, 1);
    cr_assert_eq(call->nodes[0].number, 1);
    cr_assert_eq(call->value_count, 2);
    cr_assert_eq(call->input_count, 1, "a2 is left out");
    cr_assert_eq(call->inputs[0].type, QK_FP32);
    cr_assert_str_eq(graph.inputs[0].name, "a");
    cr_assert_eq(call->output_count, 1);
    cr_assert_str_eq(graph.outputs[0].name, "b");
    cr_assert_eq(graph.outputs[0].types, 0, "the file does not describe it");
}

/* The type of an input that the file does not describe is one that all its readers take. */
Test(onnx_cut, inputs)
{
    expect_cut((struct qd_onnx_cut){CUT_INPUTS("c")});
    const struct qk_graph_call *call = &graph.call;
    cr_assert_eq(call->node_count, 2);
    cr_assert_eq(call->nodes[0].number, 3);
    cr_assert_eq(call->nodes[1].number, 4);
    cr_assert_eq(call->input_count, 1);
    cr_assert_eq(call->inputs[0].type, QK_NONE);
    cr_assert_str_eq(graph.inputs[0].name, "c");
    cr_assert_not(graph.inputs[0].shaped);
    const uint32_t types = graph.inputs[0].types;
    cr_assert((types & QK_BIT(QK_UINT8)) != 0 && (types & QK_BIT(QK_INT32)) != 0);
    cr_assert((types & QK_BIT(QK_FP32)) == 0, "DequantizeLinear does not take it");
    cr_assert_eq(call->output_count, 2);
}

Test(onnx_cut, the_order_is_the_callers)
{
    expect_cut((struct qd_onnx_cut){CUT_INPUTS("c"), CUT_OUTPUTS("e", "b", "d")});
    const char *const outputs[] = {"e", "b", "d"};
    cr_assert_eq(graph.call.output_count, 3);
    for (size_t i = 0; i < 3; i++) {
        cr_assert_str_eq(graph.outputs[i].name, outputs[i]);
        cr_assert_str_eq(graph.call.value_names[graph.call.outputs[i]], outputs[i]);
    }
    cr_assert_eq(graph.outputs[2].types, QK_BIT(QK_FP32), "as the file has it");
    cr_assert_eq(graph.call.input_count, 2);
    cr_assert_str_eq(graph.inputs[0].name, "c");
    cr_assert_str_eq(graph.inputs[1].name, "a", "b still needs it");
}

Test(onnx_cut, inputs_of_the_file_may_be_named)
{
    expect_cut((struct qd_onnx_cut){CUT_INPUTS("a"), CUT_OUTPUTS("b")});
    cr_assert_eq(graph.call.input_count, 1);
    cr_assert_eq(graph.call.inputs[0].type, QK_FP32);
    cr_assert_eq(graph.inputs[0].rank, 2);
}

Test(onnx_cut, value_info)
{
    struct message graph_of_it = {.bytes = NULL};
    put_message(&graph_of_it, 13, onnx_value_info("other", ONNX_FLOAT, DIMS(1)));
    put_message(&graph_of_it, 13, onnx_value_info("b", ONNX_INT8, DIMS(5, 0)));
    put_message(&graph_of_it, ONNX_GRAPH_NODE, onnx_node("x", "Stranger", NAMES("a"), NAMES("b")));
    put_message(&graph_of_it, ONNX_GRAPH_NODE, onnx_node("i", "Identity", NAMES("b"), NAMES("c")));
    put_message(&graph_of_it, ONNX_GRAPH_OUTPUT, onnx_value_info("c", ONNX_INT8, DIMS(5, 0)));
    const enum qd_status status =
        cut_model(onnx_model(graph_of_it, 14), (struct qd_onnx_cut){CUT_INPUTS("b")});
    cr_assert_eq(status, QD_OK, "%s", error.text);
    cr_assert_eq(graph.call.inputs[0].type, QK_INT8);
    cr_assert_eq(graph.inputs[0].rank, 2);
    cr_assert_eq(graph.inputs[0].dims[0], 5);
    cr_assert_eq(graph.inputs[0].dims[1], QD_DIM_FREE);
}

/* A node may make two values of which one is cut away. */
Test(onnx_cut, one_of_two_outputs_of_a_node)
{
    struct message file = {.bytes = NULL};
    put_message(&file, ONNX_GRAPH_INPUT, onnx_value_info("x", ONNX_UINT8, DIMS(4)));
    put_message(&file, ONNX_GRAPH_NODE, onnx_node("s", "Split", NAMES("x"), NAMES("p", "q")));
    put_message(&file, ONNX_GRAPH_NODE, onnx_node("i", "Identity", NAMES("p"), NAMES("y")));
    const enum qd_status status = cut_model(
        onnx_model(file, 13), (struct qd_onnx_cut){CUT_INPUTS("p"), CUT_OUTPUTS("y", "q")});
    cr_assert_eq(status, QD_OK, "%s", error.text);
    cr_assert_eq(graph.call.nodes[0].outputs[0], QK_VALUE_NONE);
    cr_assert_eq(graph.call.nodes[0].outputs[1], graph.call.outputs[1]);
    cr_assert_eq(graph.call.nodes[1].inputs[0], 0);
}

Test(onnx_cut, names_that_do_not_fit)
{
#define OUTPUTS_EXPECTED(index)                                                                   \
    "the configuration's outputs[" index "]: expected a value that a node makes, such as \"f\", " \
    "\"e\", \"d\", got "
#define INPUTS_EXPECTED(index)                                                                   \
    "the configuration's inputs[" index "]: expected a value that a node makes, such as \"b\", " \
    "\"c\", \"d\", got "
    expect_no_cut((struct qd_onnx_cut){CUT_OUTPUTS("b", "z")},
                  OUTPUTS_EXPECTED("1") "\"z\", which is a constant");
    expect_no_cut((struct qd_onnx_cut){CUT_OUTPUTS("a")},
                  OUTPUTS_EXPECTED("0") "\"a\", which is an input");
    expect_no_cut((struct qd_onnx_cut){CUT_INPUTS("c"), CUT_OUTPUTS("c")},
                  OUTPUTS_EXPECTED("0") "\"c\", which is an input");
    expect_no_cut((struct qd_onnx_cut){CUT_OUTPUTS("")},
                  OUTPUTS_EXPECTED("0") "\"\", which the file does not have");
    expect_no_cut((struct qd_onnx_cut){CUT_INPUTS("s")},
                  INPUTS_EXPECTED("0") "\"s\", which is a constant");
    expect_no_cut((struct qd_onnx_cut){CUT_INPUTS("b", "B")},
                  INPUTS_EXPECTED("1") "\"B\", which the file does not have");
    expect_no_cut(
        (struct qd_onnx_cut){CUT_INPUTS("d"), CUT_OUTPUTS("b")},
        "the configuration's inputs[0]: expected a value that the outputs need, got \"d\"");
    expect_no_cut(
        (struct qd_onnx_cut){CUT_INPUTS("c", "b")},
        "the configuration's inputs[1]: expected a value that the outputs need, got \"b\"");
    expect_no_cut((struct qd_onnx_cut){CUT_INPUTS("d"), CUT_OUTPUTS("d", "b")},
                  OUTPUTS_EXPECTED("0") "\"d\", which is an input");
    /* The file's outputs are d and e. */
    expect_no_cut((struct qd_onnx_cut){CUT_INPUTS("d")},
                  "output 0 (\"d\"): expected the output of an operator that quantd has, it is "
                  "input 0 (\"d\")");
}

/* A cycle is cut open where one of its values is sent. */
Test(onnx_cut, a_cycle)
{
    const struct qd_onnx_cut cuts[2] = {{CUT_OUTPUTS("q")}, {CUT_INPUTS("p"), CUT_OUTPUTS("q")}};
    for (size_t i = 0; i < 2; i++) {
        struct message file = {.bytes = NULL};
        put_message(&file, ONNX_GRAPH_NODE, onnx_node("1", "Identity", NAMES("q"), NAMES("p")));
        put_message(&file, ONNX_GRAPH_NODE, onnx_node("2", "Identity", NAMES("p"), NAMES("q")));
        const enum qd_status status = cut_model(onnx_model(file, 14), cuts[i]);
        cr_assert_eq(status, QD_OK, "%s", error.text);
        cr_assert_eq(graph.call.node_count, 2 - i);
    }
}
