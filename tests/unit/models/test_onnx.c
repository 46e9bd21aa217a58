/* ONNX files that become graphs. tests/conformance/onnx_files.py tests real files. */

#include "tests/unit/models/onnx_file.h"

TestSuite(onnx, .init = setup, .fini = teardown);

Test(onnx, a_convolution)
{
    expect_model(onnx_model(conv_graph(), 13));
    cr_assert_eq(graph.opset, 13);
    cr_assert_str_eq(graph.graph_name, "one layer");
    cr_assert_str_eq(graph.producer, "");
    cr_assert(!graph.has_deferred);
    const struct qk_graph_call *call = &graph.call;
    cr_assert_eq(call->node_count, 1);
    cr_assert_eq(call->value_count, 2);
    cr_assert_eq(call->input_count, 1);
    cr_assert_eq(call->inputs[0].value, 0);
    cr_assert_eq(call->inputs[0].type, QK_UINT8);
    cr_assert_eq(call->output_count, 1);
    cr_assert_eq(call->outputs[0], 1);
    cr_assert_str_eq(call->value_names[0], "x");
    cr_assert_str_eq(call->value_names[1], "y");

    const struct qk_node *node = &call->nodes[0];
    cr_assert_str_eq(node->name, "conv");
    cr_assert_str_eq(node->call.op->name, "onnx.QLinearConv");
    cr_assert_eq(node->call.version->number, 10);
    cr_assert_eq(node->call.variable, 1);
    cr_assert_eq(node->inputs[0], 0);
    cr_assert_eq(node->outputs[0], 1);
    cr_assert_eq(node->outputs[1], QK_VALUE_NONE);
    cr_assert_eq(node->call.inputs[3].type, QK_INT8);
    cr_assert_eq(node->call.inputs[3].rank, 4);
    cr_assert_eq(node->call.inputs[3].dims[0], 3);
    cr_assert_eq(node->call.inputs[3].count, 6);
    cr_assert_eq(memcmp(node->call.inputs[3].data, "\1\2\3\4\5\6", 6), 0);
    cr_assert_eq(node->call.inputs[8].type, QK_NONE);
    cr_assert_eq(node->call.attributes[2].number, 1);
    cr_assert_str_eq(node->call.attributes[0].string, "VALID");
    cr_assert_eq(node->call.attributes[5].list_count, 2);
    cr_assert_eq(node->call.attributes[5].list[0], 2);
    cr_assert_not(node->call.attributes[4].present);
}

Test(onnx, ports)
{
    expect_model(onnx_model(conv_graph(), 13));
    const struct qd_port *x = &graph.inputs[0];
    cr_assert_str_eq(x->name, "x");
    cr_assert_eq(x->types, QK_BIT(QK_UINT8));
    cr_assert(x->shaped && !x->optional);
    cr_assert_eq(x->rank, 4);
    cr_assert_eq(x->dims[0], QD_DIM_FREE);
    cr_assert_eq(x->dims[1], 2);
    cr_assert_eq(x->dims[2], QD_DIM_FREE);
    cr_assert_eq(x->dims[3], 5);
    cr_assert_str_eq(graph.outputs[0].name, "y");
    cr_assert_eq(graph.outputs[0].dims[1], 3);
}

/* Nodes may stand in any order. */
Test(onnx, a_chain)
{
    struct message file = {.bytes = NULL};
    add_conv_constants(&file);
    put_message(&file, ONNX_GRAPH_NODE,
                onnx_node("last", "DequantizeLinear", NAMES("y", "scale", "zero"), NAMES("b")));
    put_message(&file, ONNX_GRAPH_NODE, conv_node());
    put_message(&file, ONNX_GRAPH_NODE,
                onnx_node("first", "QuantizeLinear", NAMES("a", "scale", "zero"), NAMES("x")));
    put_message(&file, ONNX_GRAPH_INPUT, onnx_value_info("a", ONNX_FLOAT, DIMS(1, 2, 5, 5)));
    put_message(&file, ONNX_GRAPH_OUTPUT, onnx_value_info("b", ONNX_FLOAT, DIMS(1, 3, 5, 5)));
    put_message(&file, ONNX_GRAPH_OUTPUT, onnx_value_info("y", ONNX_UINT8, DIMS(1, 3, 5, 5)));
    expect_model(onnx_model(file, 20));
    const struct qk_graph_call *call = &graph.call;
    cr_assert_eq(call->node_count, 3);
    cr_assert_eq(call->value_count, 4);
    cr_assert_eq(call->nodes[2].inputs[0], call->inputs[0].value);
    cr_assert_eq(call->nodes[1].inputs[0], call->nodes[2].outputs[0]);
    cr_assert_eq(call->nodes[0].inputs[0], call->nodes[1].outputs[0]);
    cr_assert_eq(call->outputs[0], call->nodes[0].outputs[0]);
    cr_assert_eq(call->outputs[1], call->nodes[1].outputs[0]);
    cr_assert_str_eq(call->value_names[call->outputs[1]], "y");
    cr_assert_eq(call->nodes[0].call.version->number, 19, "20 means 19");
    for (size_t i = 0; i < 3; i++)
        cr_assert_eq(call->nodes[i].call.variable, 1);
}

Test(onnx, constants_alone_and_inputs_that_are_absent)
{
    struct message file = {.bytes = NULL};
    put_message(&file, ONNX_GRAPH_NODE,
                onnx_node("", "DequantizeLinear", NAMES("w", "s", ""), NAMES("y")));
    put_message(&file, ONNX_GRAPH_INITIALIZER, tensor_of("w", ONNX_INT8, DIMS(2), "\1\2", 2));
    add_scale(&file);
    put_message(&file, ONNX_GRAPH_OUTPUT, onnx_value_info("y", ONNX_FLOAT, DIMS(2)));
    expect_model(onnx_model(file, 13));
    cr_assert_eq(graph.call.input_count, 0);
    cr_assert_eq(graph.call.nodes[0].call.variable, 0);
    cr_assert_eq(graph.call.nodes[0].call.inputs[0].count, 2);
    cr_assert_eq(zero_point()->type, QK_NONE);
}

/* Like in ONNX's own node tests. */
Test(onnx, deferred_constants)
{
    struct message file = dequantize_graph(NAMES("x", "s", "z"));
    put_message(&file, ONNX_GRAPH_INPUT, onnx_value_info("s", ONNX_FLOAT, NO_DIMS));
    put_message(&file, ONNX_GRAPH_INPUT, onnx_value_info("z", ONNX_UINT8, NO_DIMS));
    expect_model(onnx_model(file, 10));
    cr_assert_eq(graph.call.input_count, 3);
    cr_assert(graph.has_deferred);
    cr_assert_eq(graph.call.nodes[0].inputs[1], 1);
    cr_assert_eq(graph.call.nodes[0].inputs[2], 2);
    cr_assert_eq(graph.call.nodes[0].call.variable, 1);
    cr_assert_eq(graph.inputs[1].types, QK_BIT(QK_FP32));
    cr_assert_eq(scale()->type, QK_FP32, "the request brings the rest");
    cr_assert_eq(qd_onnx_settle_outputs(&graph, NULL, &error), QD_OK);
    cr_assert_eq(graph.outputs[0].types, QK_BIT(QK_FP32));
}

/* Before IR version 4, every initializer is also an input. */
Test(onnx, initializers_that_are_inputs)
{
    struct message file = {.bytes = NULL};
    put_message(&file, ONNX_GRAPH_INPUT, onnx_value_info("s", ONNX_FLOAT, NO_DIMS));
    struct message rest = good_dequantize();
    put_bytes(&file, rest.bytes, rest.count);
    message_free(&rest);
    expect_model(onnx_model(file, 13));
    cr_assert_eq(graph.call.input_count, 1);
    cr_assert_str_eq(graph.inputs[0].name, "x");
    cr_assert_eq(graph.call.inputs[0].value, 0);
    cr_assert(!graph.has_deferred);
    cr_assert_eq(scale()->count, 1);
}

Test(onnx, opsets)
{
    const struct {
        uint64_t opset;
        unsigned version;
    } cases[] = {{10, 10}, {12, 10}, {18, 13}, {25, 25}, {26, 25}, {28, 25}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        expect_model(onnx_model(good_dequantize(), cases[i].opset));
        cr_assert_eq(graph.call.nodes[0].call.version->number, cases[i].version);
    }
    expect_error(onnx_model(good_dequantize(), 9),
                 "node 0 (\"dq\", \"DequantizeLinear\"): expected an opset from 10 to 28, which "
                 "quantd has of onnx.DequantizeLinear, got 9");
    expect_error(onnx_model(good_dequantize(), 29),
                 "node 0 (\"dq\", \"DequantizeLinear\"): expected an opset from 10 to 28, which "
                 "quantd has of onnx.DequantizeLinear, got 29");
    expect_error(onnx_model(good_dequantize(), UINT64_MAX),
                 "opset_import[0]: expected one version of ONNX's domain, at least 1, got -1");
    expect_error(onnx_model(good_dequantize(), 0),
                 "opset_import[0]: expected one version of ONNX's domain, at least 1, got 0");
}

/* Imports of domains that no node uses are ignored. */
Test(onnx, imports)
{
    struct message model = onnx_model(good_dequantize(), 13);
    struct message import = {.bytes = NULL};
    put_string(&import, 1, "com.microsoft");
    put_number(&import, 2, 1);
    put_message(&model, ONNX_MODEL_OPSET_IMPORT, import);
    import = (struct message){.bytes = NULL};
    put_string(&import, 1, "ai.onnx");
    put_number(&import, 2, 13);
    put_message(&model, ONNX_MODEL_OPSET_IMPORT, import);
    put_string(&model, ONNX_MODEL_PRODUCER_NAME, "a test");
    put_number(&model, ONNX_MODEL_IR_VERSION, 1000);
    expect_model(model);
    cr_assert_eq(graph.opset, 13);
    cr_assert_str_eq(graph.producer, "a test");

    model = onnx_model(good_dequantize(), 13);
    import = (struct message){.bytes = NULL};
    put_string(&import, 1, "ai.onnx");
    put_number(&import, 2, 14);
    put_message(&model, ONNX_MODEL_OPSET_IMPORT, import);
    expect_error(model,
                 "opset_import[1]: expected one version of ONNX's domain, at least 1, got 14");

    model = (struct message){.bytes = NULL};
    put_message(&model, ONNX_MODEL_GRAPH, good_dequantize());
    expect_error(model, "opset_import: expected a version of ONNX's own domain, got none");
}

Test(onnx, shapes_that_are_not_known)
{
    struct message file = {.bytes = NULL};
    struct message info = {.bytes = NULL};
    struct message type = {.bytes = NULL};
    struct message tensor = {.bytes = NULL};
    put_number(&tensor, 1, ONNX_UINT8);
    put_message(&type, 1, tensor);
    put_string(&info, 1, "x");
    put_message(&info, 2, type);
    put_message(&file, ONNX_GRAPH_INPUT, info);
    info = (struct message){.bytes = NULL};
    put_string(&info, 1, "y");
    put_message(&file, ONNX_GRAPH_OUTPUT, info);
    put_message(&file, ONNX_GRAPH_NODE,
                onnx_node("", "DequantizeLinear", NAMES("x", "s"), NAMES("y")));
    add_scale(&file);
    expect_model(onnx_model(file, 13));
    cr_assert_not(graph.inputs[0].shaped);
    cr_assert_eq(graph.outputs[0].types, 0);
    cr_assert_eq(qd_onnx_settle_outputs(&graph, NULL, &error), QD_INVALID);
    cr_assert_str_eq(error.text, "output 0 (\"y\"): expected a type, got none");
    cr_assert_eq(qd_onnx_settle_outputs(&graph, (enum qk_type[]){QK_FP32}, &error), QD_OK);
    cr_assert_eq(graph.outputs[0].types, QK_BIT(QK_FP32));
    cr_assert_eq(qd_onnx_settle_outputs(&graph, (enum qk_type[]){QK_FP16}, &error), QD_INVALID);
    cr_assert_str_eq(error.text, "output 0 (\"y\"): elem_type: expected 10 (FP16), which its node "
                                 "makes, got FP32");
}
