/* ONNX files into graphs, and hostile files into errors. What real files hold is in
 * tests/conformance/onnx_files.py. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "server/models/onnx.h"
#include "tests/support/onnx_writer.h"
#include "tests/unit/scratch.h"

static struct scratch scratch;
static struct qd_onnx_graph graph;
static struct qd_error error;

static void setup(void)
{
    scratch_init(&scratch, 64u << 20);
}

static void teardown(void)
{
    scratch_deinit(&scratch);
}

TestSuite(onnx, .init = setup, .fini = teardown);

static enum qd_status read_source(struct qd_onnx_source source)
{
    error.text[0] = '\0';
    return qd_onnx_read(&source, &scratch.arena, &graph, &error);
}

/* Reads the model and frees it. */
static enum qd_status read_model(struct message model)
{
    enum qd_status status =
        read_source((struct qd_onnx_source){.bytes = model.bytes, .count = model.count});
    message_free(&model);
    return status;
}

static void expect_model(struct message model)
{
    enum qd_status status = read_model(model);
    cr_assert_eq(status, QD_OK, "%s", error.text);
}

static void expect_error(struct message model, const char *text)
{
    cr_assert_eq(read_model(model), QD_INVALID, "expected: %s", text);
    cr_assert_str_eq(error.text, text);
}

/* ---- Files ------------------------------------------------------------------------------- */

static struct message tensor_of(const char *name, int type, size_t rank, const int64_t *dims,
                                const void *data, size_t bytes)
{
    struct message tensor = onnx_tensor(name, type, rank, dims);
    put_data(&tensor, ONNX_TENSOR_RAW_DATA, data, bytes);
    return tensor;
}

/* The constants of a 1x1 convolution from 2 channels to 3. */
static void add_conv_constants(struct message *file)
{
    const float scale = 0.5f;
    put_message(file, ONNX_GRAPH_INITIALIZER,
                tensor_of("scale", ONNX_FLOAT, NO_DIMS, &scale, sizeof(scale)));
    put_message(file, ONNX_GRAPH_INITIALIZER, tensor_of("zero", ONNX_UINT8, NO_DIMS, "\x80", 1));
    put_message(file, ONNX_GRAPH_INITIALIZER,
                tensor_of("w", ONNX_INT8, DIMS(3, 2, 1, 1), "\1\2\3\4\5\6", 6));
    put_message(file, ONNX_GRAPH_INITIALIZER, tensor_of("w_zero", ONNX_INT8, NO_DIMS, "\0", 1));
}

static struct message conv_node(void)
{
    return onnx_node("conv", "QLinearConv",
                     NAMES("x", "scale", "zero", "w", "scale", "w_zero", "scale", "zero"),
                     NAMES("y"));
}

static struct message conv_graph(void)
{
    struct message file = {.bytes = NULL};
    struct message node = conv_node();
    put_message(&node, ONNX_NODE_ATTRIBUTE, onnx_attribute_ints("strides", DIMS(2, 1)));
    put_message(&node, ONNX_NODE_ATTRIBUTE, onnx_attribute_int("group", 1));
    put_message(&node, ONNX_NODE_ATTRIBUTE, onnx_attribute_string("auto_pad", "VALID"));
    put_message(&file, ONNX_GRAPH_NODE, node);
    put_string(&file, ONNX_GRAPH_NAME, "one layer");
    add_conv_constants(&file);
    put_message(&file, ONNX_GRAPH_INPUT, onnx_value_info("x", ONNX_UINT8, DIMS(-1, 2, 0, 5)));
    put_message(&file, ONNX_GRAPH_OUTPUT, onnx_value_info("y", ONNX_UINT8, DIMS(-1, 3, -1, 5)));
    return file;
}

/* ---- What comes out ---------------------------------------------------------------------- */

Test(onnx, a_convolution)
{
    expect_model(onnx_model(conv_graph(), 13));
    cr_assert_eq(graph.opset, 13);
    cr_assert_str_eq(graph.graph_name, "one layer");
    cr_assert_str_eq(graph.producer, "");
    cr_assert_eq(graph.late_count, 0);
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

/* DequantizeLinear of the input x, with the scale "s". */
static struct message dequantize_graph(const char *const *inputs)
{
    struct message file = {.bytes = NULL};
    put_message(&file, ONNX_GRAPH_NODE, onnx_node("dq", "DequantizeLinear", inputs, NAMES("y")));
    put_message(&file, ONNX_GRAPH_INPUT, onnx_value_info("x", ONNX_UINT8, DIMS(-1)));
    put_message(&file, ONNX_GRAPH_OUTPUT, onnx_value_info("y", ONNX_FLOAT, DIMS(-1)));
    return file;
}

static void add_scale(struct message *file)
{
    const float scale = 0.5f;
    put_message(file, ONNX_GRAPH_INITIALIZER,
                tensor_of("s", ONNX_FLOAT, NO_DIMS, &scale, sizeof(scale)));
}

static struct message good_dequantize(void)
{
    struct message file = dequantize_graph(NAMES("x", "s"));
    add_scale(&file);
    return file;
}

/* Of a file whose constant is the scale or the zero point of its one node. */
static const struct qk_tensor *scale(void)
{
    return &graph.call.nodes[0].call.inputs[1];
}

static const struct qk_tensor *zero_point(void)
{
    return &graph.call.nodes[0].call.inputs[2];
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

/* As in ONNX's own node tests. */
Test(onnx, late_constants)
{
    struct message file = dequantize_graph(NAMES("x", "s", "z"));
    put_message(&file, ONNX_GRAPH_INPUT, onnx_value_info("s", ONNX_FLOAT, NO_DIMS));
    put_message(&file, ONNX_GRAPH_INPUT, onnx_value_info("z", ONNX_UINT8, NO_DIMS));
    expect_model(onnx_model(file, 10));
    cr_assert_eq(graph.call.input_count, 3);
    cr_assert_eq(graph.late_count, 2);
    cr_assert_eq(graph.lates[0].node, 0);
    cr_assert_eq(graph.lates[0].input, 1);
    cr_assert_eq(graph.lates[0].port, 1);
    cr_assert_eq(graph.lates[1].input, 2);
    cr_assert_eq(graph.lates[1].port, 2);
    cr_assert_eq(graph.call.nodes[0].call.variable, 1);
    cr_assert_eq(graph.inputs[1].types, QK_BIT(QK_FP32));
    cr_assert_eq(scale()->type, QK_FP32, "the request brings the rest");
    cr_assert_eq(qd_onnx_settle_outputs(&graph, NULL, &error), QD_OK);
    cr_assert_eq(graph.outputs[0].types, QK_BIT(QK_FP32));
}

/* Before IR version 4 every initializer is an input as well. */
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
    cr_assert_eq(graph.late_count, 0);
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

/* Imports of domains that no node uses are nobody's business. */
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

/* ---- Constants --------------------------------------------------------------------------- */

static struct message constant_node(const char *name, struct message attribute)
{
    struct message node = onnx_node("c", "Constant", NAMES(NULL), NAMES(name));
    put_message(&node, ONNX_NODE_ATTRIBUTE, attribute);
    return node;
}

Test(onnx, constant_nodes)
{
    struct message attribute = {.bytes = NULL};
    put_string(&attribute, 1, "value_float");
    put_float(&attribute, 2, 0.25f);
    struct message file = dequantize_graph(NAMES("x", "s", "z"));
    put_message(&file, ONNX_GRAPH_NODE, constant_node("s", attribute));
    attribute = (struct message){.bytes = NULL};
    put_string(&attribute, 1, "value");
    put_message(&attribute, 5, tensor_of("", ONNX_UINT8, NO_DIMS, "\7", 1));
    put_message(&file, ONNX_GRAPH_NODE, constant_node("z", attribute));
    expect_model(onnx_model(file, 13));
    cr_assert_eq(graph.call.node_count, 1);
    cr_assert_eq(scale()->type, QK_FP32);
    cr_assert_eq(scale()->rank, 0);
    cr_assert_eq(memcmp(scale()->data, &(float){0.25f}, 4), 0);
    cr_assert_eq(*(const unsigned char *)zero_point()->data, 7);

    attribute = (struct message){.bytes = NULL};
    put_string(&attribute, 1, "value_floats");
    put_float(&attribute, 7, 0.25f);
    put_float(&attribute, 7, 2);
    file = dequantize_graph(NAMES("x", "s"));
    put_message(&file, ONNX_GRAPH_NODE, constant_node("s", attribute));
    expect_model(onnx_model(file, 13));
    cr_assert_eq(scale()->rank, 1);
    cr_assert_eq(scale()->dims[0], 2);
    cr_assert_eq(memcmp(scale()->data, (const float[]){0.25f, 2}, 8), 0);

    file = dequantize_graph(NAMES("x", "s"));
    put_message(&file, ONNX_GRAPH_NODE, constant_node("s", onnx_attribute_int("value_int", 1)));
    expect_error(onnx_model(file, 13),
                 "node 1 (\"c\", \"Constant\"): \"value_int\": expected a value that is a tensor, "
                 "value_float or value_floats: no operator here takes others");
    file = dequantize_graph(NAMES("x", "s"));
    put_message(&file, ONNX_GRAPH_NODE, onnx_node("c", "Constant", NAMES(NULL), NAMES("s")));
    expect_error(onnx_model(file, 13), "node 1 (\"c\", \"Constant\"): expected one attribute and "
                                       "one output, got 0 and 1");
}

/* A file with the zero point as this tensor, and x of its type. */
static struct message zero_point_file(struct message tensor, int type)
{
    struct message file = {.bytes = NULL};
    put_message(&file, ONNX_GRAPH_NODE,
                onnx_node("", "DequantizeLinear", NAMES("x", "s", "z"), NAMES("y")));
    put_message(&file, ONNX_GRAPH_INPUT, onnx_value_info("x", type, DIMS(-1)));
    put_message(&file, ONNX_GRAPH_OUTPUT, onnx_value_info("y", ONNX_FLOAT, DIMS(-1)));
    add_scale(&file);
    put_message(&file, ONNX_GRAPH_INITIALIZER, tensor);
    return onnx_model(file, 25);
}

/* The bytes of a packed list of int32, each in ten bytes or fewer as a varint. */
static void put_int32s(struct message *tensor, size_t count, const int32_t *numbers)
{
    struct message list = {.bytes = NULL};
    for (size_t i = 0; i < count; i++) {
        struct message one = {.bytes = NULL};
        put_number(&one, 1, (uint64_t)(int64_t)numbers[i]);
        put_bytes(&list, one.bytes + 1, one.count - 1); /* without the field */
        message_free(&one);
    }
    put_message(tensor, ONNX_TENSOR_INT32_DATA, list);
}

Test(onnx, int32_data)
{
    const struct {
        int type;
        size_t elements;
        size_t count;
        int32_t numbers[3];
        const char *bytes;
        size_t byte_count;
    } cases[] = {
        {2, 3, 3, {0, 128, 255}, "\0\x80\xff", 3},       /* UINT8 */
        {3, 3, 3, {-128, -1, 127}, "\x80\xff\x7f", 3},   /* INT8 */
        {4, 2, 2, {1, 65535}, "\1\0\xff\xff", 4},        /* UINT16 */
        {5, 2, 2, {-32768, 32767}, "\0\x80\xff\x7f", 4}, /* INT16 */
        {6, 1, 1, {-2}, "\xfe\xff\xff\xff", 4},          /* INT32 */
        {17, 2, 2, {0, 255}, "\0\xff", 2},               /* FP8E4M3FN */
        {21, 3, 2, {0x21, 3}, "\x21\3", 2},              /* UINT4 */
        {22, 3, 2, {0xf8, -8}, "\xf8\xf8", 2},           /* INT4 */
        {23, 2, 1, {0x7f}, "\x7f", 1},                   /* FP4E2M1 */
        {25, 5, 2, {0xe4, 1}, "\xe4\1", 2},              /* UINT2 */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (int packed = 0; packed < 2; packed++) {
            struct message tensor =
                onnx_tensor("z", cases[i].type, DIMS((int64_t)cases[i].elements));
            for (size_t j = 0; j < cases[i].count && !packed; j++)
                put_number(&tensor, ONNX_TENSOR_INT32_DATA, (uint64_t)(int64_t)cases[i].numbers[j]);
            if (packed)
                put_int32s(&tensor, cases[i].count, cases[i].numbers);
            expect_model(zero_point_file(tensor, cases[i].type));
            cr_assert_eq(qk_type_info(zero_point()->type)->onnx, cases[i].type);
            cr_assert_eq(zero_point()->count, cases[i].elements);
            cr_assert_eq(memcmp(zero_point()->data, cases[i].bytes, cases[i].byte_count), 0,
                         "type %d", cases[i].type);
        }
    }
}

Test(onnx, numbers_beyond_their_type)
{
    const struct {
        int type;
        int32_t number;
        const char *text;
    } cases[] = {
        {2, 256, "int32_data[0]: expected 0 to 255 for UINT8, got 256"},
        {2, -1, "int32_data[0]: expected 0 to 255 for UINT8, got -1"},
        {3, 128, "int32_data[0]: expected -128 to 127 for INT8, got 128"},
        {5, 32768, "int32_data[0]: expected -32768 to 32767 for INT16, got 32768"},
        {17, -1, "int32_data[0]: expected 0 to 255 for FP8E4M3FN, got -1"},
        {22, 256, "int32_data[0]: expected -128 to 255 for INT4, got 256"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[256];
        struct message tensor = onnx_tensor("z", cases[i].type, NO_DIMS);
        put_int32s(&tensor, 1, &cases[i].number);
        snprintf(text, sizeof(text), "initializer 1 (\"z\"): %s", cases[i].text);
        expect_error(zero_point_file(tensor, cases[i].type), text);
    }
}

Test(onnx, float_data_and_raw_data)
{
    struct message tensor = onnx_tensor("s", ONNX_FLOAT, DIMS(2));
    put_data(&tensor, ONNX_TENSOR_FLOAT_DATA, (const float[]){1, 2}, 8);
    struct message file = dequantize_graph(NAMES("x", "s"));
    put_message(&file, ONNX_GRAPH_INITIALIZER, tensor);
    expect_model(onnx_model(file, 13));
    cr_assert_eq(memcmp(scale()->data, (const float[]){1, 2}, 8), 0);

    tensor = onnx_tensor("s", ONNX_FLOAT, DIMS(2));
    put_data(&tensor, ONNX_TENSOR_FLOAT_DATA, (const float[]){1, 2}, 8);
    put_data(&tensor, ONNX_TENSOR_RAW_DATA, (const float[]){1, 2}, 8);
    file = dequantize_graph(NAMES("x", "s"));
    put_message(&file, ONNX_GRAPH_INITIALIZER, tensor);
    expect_error(onnx_model(file, 13),
                 "initializer 0 (\"s\"): expected raw_data or numbers, got both");

    tensor = onnx_tensor("s", ONNX_FLOAT, DIMS(3));
    put_data(&tensor, ONNX_TENSOR_FLOAT_DATA, (const float[]){1, 2}, 8);
    file = dequantize_graph(NAMES("x", "s"));
    put_message(&file, ONNX_GRAPH_INITIALIZER, tensor);
    expect_error(onnx_model(file, 13), "initializer 0 (\"s\"): float_data: expected 3 numbers for "
                                       "3 elements of FP32, got 2");

    file = dequantize_graph(NAMES("x", "s"));
    put_message(&file, ONNX_GRAPH_INITIALIZER,
                tensor_of("s", ONNX_FLOAT, DIMS(2), "\0\0\0\0\0\0\0", 7));
    expect_error(onnx_model(file, 13), "initializer 0 (\"s\"): raw_data: expected 8 bytes for 2 "
                                       "elements of FP32, got 7");
}

/* directml.ElementWiseDequantizeLinear takes UINT32, ONNX's operators do not: such a tensor is read
 * before its node refuses it. */
Test(onnx, uint64_data)
{
    struct message tensor = onnx_tensor("z", 12, NO_DIMS);
    put_number(&tensor, ONNX_TENSOR_UINT64_DATA, UINT32_MAX);
    cr_assert_eq(read_model(zero_point_file(tensor, ONNX_UINT8)), QD_INVALID);
    cr_assert_not_null(strstr(error.text, "got UINT32"), "%s", error.text);
    tensor = onnx_tensor("z", 12, NO_DIMS);
    put_number(&tensor, ONNX_TENSOR_UINT64_DATA, UINT32_MAX + UINT64_C(1));
    expect_error(zero_point_file(tensor, ONNX_UINT8),
                 "initializer 1 (\"z\"): uint64_data[0]: expected 0 to 4294967295 for UINT32, got "
                 "4294967296");
}

Test(onnx, dims)
{
    const struct {
        size_t rank;
        int64_t dims[2];
        const char *text;
    } cases[] = {
        {1, {-3}, "dims[0]: expected at least 0, got -3"},
        {2, {INT64_MAX, 4}, "dims: their product overflows 64 bits"},
        {2,
         {INT64_MAX, 2},
         "raw_data: expected 18446744073709551614 bytes for "
         "18446744073709551614 elements of UINT8, got 1"},
        {1, {2}, "raw_data: expected 2 bytes for 2 elements of UINT8, got 1"},
        {2, {0, 7}, "raw_data: expected 0 bytes for 0 elements of UINT8, got 1"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[256];
        snprintf(text, sizeof(text), "initializer 1 (\"z\"): %s", cases[i].text);
        expect_error(
            zero_point_file(tensor_of("z", ONNX_UINT8, cases[i].rank, cases[i].dims, "\1", 1),
                            ONNX_UINT8),
            text);
    }
    int64_t ones[33];
    for (size_t i = 0; i < 33; i++)
        ones[i] = 1;
    expect_error(zero_point_file(tensor_of("z", ONNX_UINT8, 33, ones, "\1", 1), ONNX_UINT8),
                 "initializer 1 (\"z\"): dims: expected at most 32, got 33");
    expect_error(
        zero_point_file(tensor_of("z", ONNX_INT64, NO_DIMS, "\1\0\0\0\0\0\0\0", 8), ONNX_UINT8),
        "initializer 1 (\"z\"): data_type: expected a TensorProto.DataType that quantd "
        "has, got 7 (INT64)");
    expect_error(zero_point_file(tensor_of("z", 99, NO_DIMS, "\1", 1), ONNX_UINT8),
                 "initializer 1 (\"z\"): data_type: expected a TensorProto.DataType that quantd "
                 "has, got 99");
    expect_model(zero_point_file(tensor_of("z", ONNX_UINT8, DIMS(0), "", 0), ONNX_UINT8));
    cr_assert_eq(zero_point()->count, 0);
    cr_assert_not_null(zero_point()->data);
}

/* ---- External data ----------------------------------------------------------------------- */

struct folder {
    enum qd_status status;
    unsigned calls;
    char location[64];
    uint64_t offset;
    uint64_t length;
};

static enum qd_status read_folder(void *context, const char *location, uint64_t offset,
                                  uint64_t length, struct qd_arena *arena, const void **data,
                                  struct qd_error *refusal)
{
    struct folder *folder = context;
    folder->calls++;
    snprintf(folder->location, sizeof(folder->location), "%s", location);
    folder->offset = offset;
    folder->length = length;
    *data = qd_arena_calloc(arena, 1, length);
    return folder->status == QD_OK ? QD_OK : qd_fail(refusal, folder->status, "no such file");
}

static void put_entry(struct message *tensor, const char *key, const char *value)
{
    struct message entry = {.bytes = NULL};
    put_string(&entry, 1, key);
    put_string(&entry, 2, value);
    put_message(tensor, ONNX_TENSOR_EXTERNAL_DATA, entry);
}

static struct message external_tensor(const char *location, const char *offset, const char *length)
{
    struct message tensor = onnx_tensor("z", ONNX_UINT8, DIMS(3));
    put_number(&tensor, ONNX_TENSOR_DATA_LOCATION, 1);
    if (location != NULL)
        put_entry(&tensor, "location", location);
    if (offset != NULL)
        put_entry(&tensor, "offset", offset);
    if (length != NULL)
        put_entry(&tensor, "length", length);
    return tensor;
}

static enum qd_status read_in(struct folder *folder, struct message tensor)
{
    struct message model = zero_point_file(tensor, ONNX_UINT8);
    enum qd_status status = read_source((struct qd_onnx_source){
        .bytes = model.bytes, .count = model.count, .external = read_folder, .context = folder});
    message_free(&model);
    return status;
}

Test(onnx, external_data)
{
    struct folder folder = {.status = QD_OK};
    struct message tensor = external_tensor("weights/z.bin", "4096", "3");
    put_entry(&tensor, "checksum", "ab");
    cr_assert_eq(read_in(&folder, tensor), QD_OK, "%s", error.text);
    cr_assert_str_eq(folder.location, "weights/z.bin");
    cr_assert_eq(folder.offset, 4096);
    cr_assert_eq(folder.length, 3);
    cr_assert_eq(memcmp(zero_point()->data, "\0\0\0", 3), 0);
    cr_assert_eq(read_in(&folder, external_tensor("z", NULL, NULL)), QD_OK);
    cr_assert_eq(folder.offset, 0);
    cr_assert_eq(folder.length, 3);
    folder.status = QD_NOT_FOUND;
    cr_assert_eq(read_in(&folder, external_tensor("../z", NULL, NULL)), QD_NOT_FOUND);
    cr_assert_str_eq(error.text, "initializer 1 (\"z\"): external_data: location \"../z\": no such "
                                 "file");
    expect_error(zero_point_file(external_tensor("z", NULL, NULL), ONNX_UINT8),
                 "initializer 1 (\"z\"): external_data: location \"z\": expected all data in the "
                 "file itself, for it has no folder");
}

Test(onnx, external_data_that_is_wrong)
{
    struct folder folder = {.status = QD_OK};
    const struct {
        const char *location, *offset, *length, *text;
    } cases[] = {
        {NULL, "0", NULL, "external_data: expected a location, got none"},
        {"z", "-1", NULL, "external_data: offset: expected bytes, got \"-1\""},
        {"z", "0x10", NULL, "external_data: offset: expected bytes, got \"0x10\""},
        {"z", "", NULL, "external_data: offset: expected bytes, got \"\""},
        {"z", "100000000000000000000", NULL,
         "external_data: offset: expected bytes, got \"100000000000000000000\""},
        {"z", "0", "4", "external_data: length: expected 3 bytes for 3 elements of UINT8, got 4"},
        {"\xff", NULL, NULL, "external_data: location: expected UTF-8 without NULs, got \"?\""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[256];
        snprintf(text, sizeof(text), "initializer 1 (\"z\"): %s", cases[i].text);
        cr_assert_eq(
            read_in(&folder, external_tensor(cases[i].location, cases[i].offset, cases[i].length)),
            QD_INVALID);
        cr_assert_str_eq(error.text, text);
    }
    struct message tensor = external_tensor("z", NULL, NULL);
    put_entry(&tensor, "location", "other");
    cr_assert_eq(read_in(&folder, tensor), QD_INVALID);
    cr_assert_str_eq(error.text, "initializer 1 (\"z\"): external_data: expected each key once, "
                                 "got \"location\" twice");
    tensor = external_tensor("z", NULL, NULL);
    put_data(&tensor, ONNX_TENSOR_RAW_DATA, "\1\2\3", 3);
    cr_assert_eq(read_in(&folder, tensor), QD_INVALID);
    cr_assert_str_eq(error.text, "initializer 1 (\"z\"): expected no data beside external_data, "
                                 "got some");
    tensor = external_tensor("z", NULL, NULL);
    put_number(&tensor, ONNX_TENSOR_DATA_LOCATION, 2);
    cr_assert_eq(read_in(&folder, tensor), QD_INVALID);
    cr_assert_str_eq(error.text, "initializer 1 (\"z\"): data_location: expected 0 (DEFAULT) or 1 "
                                 "(EXTERNAL), got 2");
    cr_assert_eq(folder.calls, 0);
}

/* ---- Files that are refused -------------------------------------------------------------- */

Test(onnx, nodes_that_are_unknown)
{
    struct message file = good_dequantize();
    put_message(&file, ONNX_GRAPH_NODE, onnx_node("r", "Relu", NAMES("y"), NAMES("z")));
    expect_error(onnx_model(file, 13),
                 "node 1 (\"r\", \"Relu\"): expected an operator that quantd has, Constant or "
                 "DequantizeLinear, QuantizeLinear, QLinearConv, got \"Relu\" of ONNX's own "
                 "domain");
    file = good_dequantize();
    struct message node = onnx_node("a", "QLinearAdd", NAMES("y"), NAMES("z"));
    put_string(&node, ONNX_NODE_DOMAIN, "com.microsoft");
    put_message(&file, ONNX_GRAPH_NODE, node);
    expect_error(onnx_model(file, 13),
                 "node 1 (\"a\", \"QLinearAdd\"): expected an operator that quantd has, Constant "
                 "or DequantizeLinear, QuantizeLinear, QLinearConv, got \"QLinearAdd\" of the "
                 "domain \"com.microsoft\"");
    /* The name goes on behind a NUL. */
    file = (struct message){.bytes = NULL};
    node = (struct message){.bytes = NULL};
    put_data(&node, 4, "QLinearConv\0x", 13);
    put_message(&file, ONNX_GRAPH_NODE, node);
    cr_assert_eq(read_model(onnx_model(file, 13)), QD_INVALID);
    cr_assert_not_null(strstr(error.text, "got \"QLinearConv?x\" of ONNX's own domain"));
}

/* What `inner` adds to a good file. */
static void expect_error_with(unsigned field, struct message inner, const char *text)
{
    struct message file = good_dequantize();
    put_message(&file, field, inner);
    expect_error(onnx_model(file, 13), text);
}

#define DQ "node 0 (\"dq\", \"DequantizeLinear\")"

Test(onnx, values)
{
    expect_error_with(ONNX_GRAPH_INPUT, onnx_value_info("x", ONNX_UINT8, NO_DIMS),
                      "graph: expected each value once, got \"x\" from input 0 (\"x\") and from "
                      "input 1 (\"x\")");
    expect_error_with(ONNX_GRAPH_INITIALIZER, onnx_tensor("s", ONNX_FLOAT, NO_DIMS),
                      "graph: expected each value once, got \"s\" from initializer 0 (\"s\") and "
                      "from initializer 1 (\"s\")");
    expect_error_with(ONNX_GRAPH_NODE,
                      onnx_node("2", "DequantizeLinear", NAMES("x", "s"), NAMES("x")),
                      "graph: expected each value once, got \"x\" from input 0 (\"x\") and from "
                      "node 1 (\"2\", \"DequantizeLinear\")");
    expect_error_with(ONNX_GRAPH_OUTPUT, onnx_value_info("y", ONNX_FLOAT, NO_DIMS),
                      "output 1 (\"y\"): expected each output once, got it twice");
    expect_error_with(ONNX_GRAPH_OUTPUT, onnx_value_info("n", ONNX_FLOAT, NO_DIMS),
                      "output 1 (\"n\"): expected a node's output, no node makes it");
    expect_error_with(ONNX_GRAPH_OUTPUT, onnx_value_info("s", ONNX_FLOAT, NO_DIMS),
                      "output 1 (\"s\"): expected the output of an operator that quantd has, it is "
                      "initializer 0 (\"s\")");
    expect_error_with(ONNX_GRAPH_OUTPUT, onnx_value_info("x", ONNX_UINT8, NO_DIMS),
                      "output 1 (\"x\"): expected the output of an operator that quantd has, it is "
                      "input 0 (\"x\")");
    expect_error_with(ONNX_GRAPH_INPUT, onnx_value_info("", ONNX_UINT8, NO_DIMS),
                      "input 1: expected a name, got none");
    expect_error_with(ONNX_GRAPH_INPUT, onnx_value_info("i", ONNX_INT64, NO_DIMS),
                      "input 1 (\"i\"): elem_type: expected a TensorProto.DataType that quantd "
                      "has, got 7 (INT64)");
    expect_error_with(ONNX_GRAPH_INPUT, onnx_value_info("i", 0, NO_DIMS),
                      "input 1 (\"i\"): expected a type, got none");
    expect_error_with(ONNX_GRAPH_NODE,
                      onnx_node("2", "DequantizeLinear", NAMES("x", "y"), NAMES("z")),
                      "node 1 (\"2\", \"DequantizeLinear\"): x_scale: expected a constant or an "
                      "input of the graph: the operator takes it once, got \"y\", from " DQ);
    expect_error_with(ONNX_GRAPH_NODE,
                      onnx_node("2", "DequantizeLinear", NAMES("n", "s"), NAMES("z")),
                      "node 1 (\"2\", \"DequantizeLinear\"): x: expected an input of the graph, an "
                      "initializer or a node's output, got \"n\", which nothing makes");
    expect_error_with(ONNX_GRAPH_NODE, onnx_node("2", "DequantizeLinear", NAMES("x"), NAMES("z")),
                      "node 1 (\"2\", \"DequantizeLinear\"): x_scale: expected this input, got "
                      "none");
    expect_error_with(ONNX_GRAPH_NODE,
                      onnx_node("2", "DequantizeLinear", NAMES("x", "s", "", ""), NAMES("z")),
                      "node 1 (\"2\", \"DequantizeLinear\"): expected at most 3 inputs, got 4");
    expect_error_with(ONNX_GRAPH_NODE,
                      onnx_node("2", "DequantizeLinear", NAMES("x", "s"), NAMES("z", "a")),
                      "node 1 (\"2\", \"DequantizeLinear\"): expected 1 to 1 outputs, got 2");
    expect_error_with(
        ONNX_GRAPH_NODE, onnx_node("2", "DequantizeLinear", NAMES("s", "s"), NAMES("z")),
        "node 1 (\"2\", \"DequantizeLinear\"): x: version 13 of onnx.DequantizeLinear "
        "takes UINT8, INT8, INT32, got FP32");
    expect_error_with(ONNX_GRAPH_NODE,
                      onnx_node("2", "QuantizeLinear", NAMES("x", "s"), NAMES("z")),
                      "node 1 (\"2\", \"QuantizeLinear\"): x: version 13 of onnx.QuantizeLinear "
                      "takes INT32, FP32, got UINT8");
}

Test(onnx, sparse_initializers)
{
    struct message sparse = {.bytes = NULL};
    put_message(&sparse, 1, onnx_tensor("p", ONNX_FLOAT, NO_DIMS));
    struct message file = good_dequantize();
    put_message(&file, ONNX_GRAPH_SPARSE_INITIALIZER, sparse);
    put_message(&file, ONNX_GRAPH_NODE,
                onnx_node("2", "DequantizeLinear", NAMES("x", "p"), NAMES("z")));
    expect_error(onnx_model(file, 13),
                 "node 1 (\"2\", \"DequantizeLinear\"): x_scale: expected a dense tensor, got "
                 "\"p\", from sparse_initializer 0 (\"p\")");
}

Test(onnx, functions)
{
    for (int own = 0; own < 2; own++) {
        struct message model = onnx_model(good_dequantize(), 13);
        struct message function = {.bytes = NULL};
        put_string(&function, 1, "DequantizeLinear");
        put_string(&function, 10, own ? "" : "my.own");
        put_message(&model, ONNX_MODEL_FUNCTIONS, function);
        if (own)
            expect_error(model, "functions[0]: expected none in ONNX's own domain, got "
                                "\"DequantizeLinear\"");
        else
            expect_model(model);
    }
}

/* What nobody reads may be anything. */
Test(onnx, unused_initializers)
{
    struct message file = good_dequantize();
    put_message(&file, ONNX_GRAPH_INITIALIZER, onnx_tensor("u", 99, DIMS(-1, INT64_MAX)));
    put_message(&file, ONNX_GRAPH_INITIALIZER, onnx_tensor("", ONNX_INT64, DIMS(7)));
    put_message(&file, ONNX_GRAPH_NODE, onnx_node("", "Constant", NAMES(NULL), NAMES("c")));
    expect_model(onnx_model(file, 13));
    cr_assert_eq(graph.call.value_count, 2);
}

Test(onnx, attributes)
{
    const struct {
        struct message attribute;
        const char *text;
    } cases[] = {
        {onnx_attribute_int("axes", 1), "expected an attribute of onnx.DequantizeLinear, got "
                                        "\"axes\""},
        {onnx_attribute_int("block_size", 1), "block_size: onnx.DequantizeLinear has it since "
                                              "opset 21, the file imports 13"},
        {onnx_attribute_string("axis", "1"), "axis: type: expected 2 (INT), got 3 (STRING)"},
        {onnx_attribute_ints("axis", DIMS(1)), "axis: type: expected 2 (INT), got 7 (INTS)"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[256];
        struct message file = {.bytes = NULL};
        struct message node = onnx_node("dq", "DequantizeLinear", NAMES("x", "s"), NAMES("y"));
        put_message(&node, ONNX_NODE_ATTRIBUTE, cases[i].attribute);
        put_message(&file, ONNX_GRAPH_NODE, node);
        put_message(&file, ONNX_GRAPH_INPUT, onnx_value_info("x", ONNX_UINT8, NO_DIMS));
        add_scale(&file);
        snprintf(text, sizeof(text), DQ ": %s", cases[i].text);
        expect_error(onnx_model(file, 13), text);
    }
}

Test(onnx, attributes_that_are_odd)
{
    const struct {
        unsigned count; /* how often it comes */
        const char *reference;
        const char *text; /* NULL: it is fine */
    } cases[] = {{1, NULL, NULL},
                 {2, NULL, DQ ": axis: expected once, got twice"},
                 {1, "outer",
                  DQ ": axis: expected a value, got a reference to a function's attribute "
                     "\"outer\""}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct message file = {.bytes = NULL};
        struct message node = onnx_node("dq", "DequantizeLinear", NAMES("x", "s"), NAMES("y"));
        for (unsigned j = 0; j < cases[i].count; j++) {
            struct message attribute = {.bytes = NULL}; /* without a type, as in IR version 1 */
            put_string(&attribute, 1, "axis");
            put_number(&attribute, 3, (uint64_t)-1);
            if (cases[i].reference != NULL)
                put_string(&attribute, 21, cases[i].reference);
            put_message(&node, ONNX_NODE_ATTRIBUTE, attribute);
        }
        put_message(&file, ONNX_GRAPH_NODE, node);
        put_message(&file, ONNX_GRAPH_INPUT, onnx_value_info("x", ONNX_UINT8, NO_DIMS));
        put_message(&file, ONNX_GRAPH_OUTPUT, onnx_value_info("y", ONNX_FLOAT, NO_DIMS));
        add_scale(&file);
        if (cases[i].text != NULL) {
            expect_error(onnx_model(file, 13), cases[i].text);
            continue;
        }
        expect_model(onnx_model(file, 13));
        cr_assert_eq(graph.call.nodes[0].call.attributes[0].number, -1);
    }
}

Test(onnx, names_are_text)
{
    struct message file = good_dequantize();
    struct message info = {.bytes = NULL};
    put_data(&info, 1, "a\0b", 3);
    put_message(&file, ONNX_GRAPH_INPUT, info);
    expect_error(onnx_model(file, 13),
                 "input 1 (\"a?b\"): expected UTF-8 without NULs, got \"a?b\"");
    file = good_dequantize();
    put_data(&file, ONNX_GRAPH_NAME, "\xc0\x80", 2);
    expect_error(onnx_model(file, 13), "graph: name: expected UTF-8 without NULs, got \"??\"");
    /* Names that a NUL ends too early are two. */
    file = good_dequantize();
    struct message tensor = {.bytes = NULL};
    put_data(&tensor, ONNX_TENSOR_NAME, "s\0", 2);
    put_message(&file, ONNX_GRAPH_INITIALIZER, tensor);
    expect_model(onnx_model(file, 13));
}

/* ---- Files that are large ---------------------------------------------------------------- */

Test(onnx, too_many)
{
    struct message file = {.bytes = NULL};
    for (unsigned i = 0; i < 1025; i++)
        put_message(&file, ONNX_GRAPH_NODE, onnx_node("", "QLinearConv", NAMES(NULL), NAMES("")));
    expect_error(onnx_model(file, 13),
                 "graph: expected 1 to 1024 nodes that are not Constant, got 1025");
    expect_error(onnx_model((struct message){.bytes = NULL}, 13),
                 "graph: expected 1 to 1024 nodes that are not Constant, got 0");
    file = good_dequantize();
    for (unsigned i = 0; i < 32; i++) {
        char name[8];
        snprintf(name, sizeof(name), "i%u", i);
        put_message(&file, ONNX_GRAPH_INPUT, onnx_value_info(name, ONNX_UINT8, NO_DIMS));
    }
    expect_error(onnx_model(file, 13),
                 "graph: expected at most 32 inputs that are no initializers, got more");
    file = good_dequantize();
    for (unsigned i = 0; i < 32; i++)
        put_message(&file, ONNX_GRAPH_OUTPUT, onnx_value_info("y", ONNX_FLOAT, NO_DIMS));
    expect_error(onnx_model(file, 13), "graph: expected at most 32 outputs, got more");
    file = good_dequantize();
    for (unsigned i = 0; i < QD_ONNX_VALUE_COUNT_MAX; i++)
        put_data(&file, ONNX_GRAPH_INITIALIZER, NULL, 0);
    expect_error(onnx_model(file, 13), "graph: expected at most 65536 initializers, inputs and "
                                       "outputs of nodes, got 65539");
}

/* Each message takes two bytes in the file and fifty times as many here. */
Test(onnx, bombs)
{
    const unsigned fields[] = {ONNX_GRAPH_NODE, ONNX_GRAPH_INITIALIZER, ONNX_GRAPH_INPUT,
                               ONNX_GRAPH_SPARSE_INITIALIZER};
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        struct message file = {.bytes = NULL};
        for (unsigned j = 0; j < 2 << 20; j++)
            put_data(&file, fields[i], NULL, 0);
        cr_assert_eq(read_model(onnx_model(file, 13)), QD_TOO_LARGE);
        cr_assert_not_null(strstr(error.text, "no memory for what the file holds"));
        cr_assert_leq(qd_memory_used(scratch.memory), 64u << 20);
        qd_arena_deinit(&scratch.arena);
        cr_assert_eq(qd_memory_used(scratch.memory), 0);
        qd_arena_init(&scratch.arena, scratch.memory);
    }
}

/* protobuf joins what comes of a message twice: each graph here adds to the one before. */
Test(onnx, a_graph_in_pieces)
{
    struct message model = {.bytes = NULL};
    struct message whole = onnx_model(good_dequantize(), 13);
    struct message node = {.bytes = NULL};
    put_message(&node, ONNX_GRAPH_NODE, onnx_node("", "Constant", NAMES(NULL), NAMES(NULL)));
    put_bytes(&model, whole.bytes, whole.count);
    for (unsigned i = 0; i < 100; i++)
        put_data(&model, ONNX_MODEL_GRAPH, node.bytes, node.count);
    expect_model(model);
    cr_assert_eq(graph.call.node_count, 1);
    model = (struct message){.bytes = NULL};
    for (unsigned i = 0; i < 100000; i++)
        put_data(&model, ONNX_MODEL_GRAPH, node.bytes, node.count);
    cr_assert_eq(read_model(model), QD_TOO_LARGE, "joining takes the square of the pieces");
    message_free(&whole);
    message_free(&node);
}

/* A graph in an attribute of a node in a graph, and so on: nobody goes down. */
Test(onnx, deep_nesting)
{
    enum { DEPTH = 1 << 20, LEVEL_BYTES = 24 };
    char *bytes = calloc(DEPTH, LEVEL_BYTES);
    cr_assert_not_null(bytes);
    size_t at = (size_t)DEPTH * LEVEL_BYTES;
    const size_t end = at;
    for (unsigned i = 0; i < DEPTH; i++) {
        /* attribute { g { node { attribute ... */
        const unsigned char tags[] = {1 << 3 | 2, 6 << 3 | 2, 5 << 3 | 2};
        for (size_t j = 0; j < sizeof(tags); j++) {
            char head[12];
            struct message length = {.bytes = NULL};
            put_number(&length, 1, end - at);
            head[0] = (char)tags[j];
            memcpy(head + 1, length.bytes + 1, length.count - 1);
            at -= length.count;
            memcpy(bytes + at, head, length.count);
            message_free(&length);
        }
    }
    struct message file = good_dequantize();
    put_data(&file, ONNX_GRAPH_NODE, bytes + at, end - at);
    free(bytes);
    expect_error(onnx_model(file, 13),
                 "node 1 (\"\", \"\"): expected an operator that quantd has, Constant or "
                 "DequantizeLinear, QuantizeLinear, QLinearConv, got \"\" of ONNX's own domain");
}

/* ---- Files that are broken --------------------------------------------------------------- */

Test(onnx, truncated)
{
    struct message model = onnx_model(conv_graph(), 13);
    for (size_t count = 0; count < model.count; count++) {
        char *copy = malloc(count + 1); /* so that sanitizers see its end */
        cr_assert_not_null(copy);
        memcpy(copy, model.bytes, count);
        cr_assert_eq(read_source((struct qd_onnx_source){.bytes = copy, .count = count}),
                     QD_INVALID, "the first %zu bytes", count);
        free(copy);
    }
    message_free(&model);
}

/* Whatever the bound on memory, the file is read or refused for want of memory. */
Test(onnx, little_memory)
{
    struct message model = onnx_model(conv_graph(), 13);
    unsigned refused = 0;
    for (size_t bytes = 0; bytes < 256u << 10; bytes += 8 << 10) {
        struct scratch small;
        scratch_init(&small, bytes);
        struct qd_onnx_source source = {.bytes = model.bytes, .count = model.count};
        enum qd_status status = qd_onnx_read(&source, &small.arena, &graph, &error);
        cr_assert(status == QD_OK || status == QD_TOO_LARGE, "%s", error.text);
        refused += status != QD_OK;
        scratch_deinit(&small);
    }
    cr_assert(refused > 0 && refused < 32);
    message_free(&model);
}

Test(onnx, garbage)
{
    expect_error((struct message){.bytes = NULL}, "expected an ONNX file, got an empty one");
    struct message file = {.bytes = NULL};
    put_bytes(&file, "\x3a\xff\xff\x7f", 4);
    expect_error(file, "expected an ONNX file, which is a ModelProto of protobuf, got 4 bytes that "
                       "are none, or of which some are missing");
}
