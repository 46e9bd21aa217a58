/* ONNX files into graphs, and hostile files into errors. What real files hold is in
 * tests/conformance/onnx_files.py. */
#include <criterion/criterion.h>

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

Test(onnx, garbage)
{
    expect_error((struct message){.bytes = NULL}, "graph: expected one, got none");
    struct message file = {.bytes = NULL};
    put_bytes(&file, "\x3a\xff\xff\x7f", 4);
    expect_error(file, "expected an ONNX file, which is a ModelProto of protobuf, got 4 bytes that "
                       "are none, or of which some are missing");
}
