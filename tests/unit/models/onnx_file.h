/* ONNX files for the tests of models/onnx/onnx.h, and functions that read them. */
#pragma once

#include <criterion/criterion.h>

#include "server/models/onnx/onnx.h"
#include "tests/support/onnx_writer.h"
#include "tests/unit/scratch.h"

static struct scratch scratch;
static struct qd_onnx_graph graph;
static struct qd_error error;

static inline void setup(void)
{
    scratch_init(&scratch, 64u << 20);
}

static inline void teardown(void)
{
    scratch_deinit(&scratch);
}

static inline enum qd_status read_source(struct qd_onnx_source source)
{
    error.text[0] = '\0';
    return qd_onnx_read(&source, &scratch.arena, &graph, &error);
}

/* Reads the model and frees it. */
static inline enum qd_status read_model(struct message model)
{
    enum qd_status status =
        read_source((struct qd_onnx_source){.bytes = model.bytes, .count = model.count});
    message_free(&model);
    return status;
}

static inline void expect_model(struct message model)
{
    enum qd_status status = read_model(model);
    cr_assert_eq(status, QD_OK, "%s", error.text);
}

static inline void expect_error(struct message model, const char *text)
{
    cr_assert_eq(read_model(model), QD_INVALID, "expected: %s", text);
    cr_assert_str_eq(error.text, text);
}

/* ---- Files ------------------------------------------------------------------------------- */

static inline struct message tensor_of(const char *name, int type, size_t rank, const int64_t *dims,
                                       const void *data, size_t bytes)
{
    struct message tensor = onnx_tensor(name, type, rank, dims);
    put_data(&tensor, ONNX_TENSOR_RAW_DATA, data, bytes);
    return tensor;
}

/* Adds the constants of a 1x1 convolution from 2 channels to 3. */
static inline void add_conv_constants(struct message *file)
{
    const float scale = 0.5f;
    put_message(file, ONNX_GRAPH_INITIALIZER,
                tensor_of("scale", ONNX_FLOAT, NO_DIMS, &scale, sizeof(scale)));
    put_message(file, ONNX_GRAPH_INITIALIZER, tensor_of("zero", ONNX_UINT8, NO_DIMS, "\x80", 1));
    put_message(file, ONNX_GRAPH_INITIALIZER,
                tensor_of("w", ONNX_INT8, DIMS(3, 2, 1, 1), "\1\2\3\4\5\6", 6));
    put_message(file, ONNX_GRAPH_INITIALIZER, tensor_of("w_zero", ONNX_INT8, NO_DIMS, "\0", 1));
}

static inline struct message conv_node(void)
{
    return onnx_node("conv", "QLinearConv",
                     NAMES("x", "scale", "zero", "w", "scale", "w_zero", "scale", "zero"),
                     NAMES("y"));
}

static inline struct message conv_graph(void)
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

/* Makes a graph with DequantizeLinear of the input x, with the scale "s". */
static inline struct message dequantize_graph(const char *const *inputs)
{
    struct message file = {.bytes = NULL};
    put_message(&file, ONNX_GRAPH_NODE, onnx_node("dq", "DequantizeLinear", inputs, NAMES("y")));
    put_message(&file, ONNX_GRAPH_INPUT, onnx_value_info("x", ONNX_UINT8, DIMS(-1)));
    put_message(&file, ONNX_GRAPH_OUTPUT, onnx_value_info("y", ONNX_FLOAT, DIMS(-1)));
    return file;
}

static inline void add_scale(struct message *file)
{
    const float scale = 0.5f;
    put_message(file, ONNX_GRAPH_INITIALIZER,
                tensor_of("s", ONNX_FLOAT, NO_DIMS, &scale, sizeof(scale)));
}

/* Adds the scale "s" and the zero point "z" of UINT8. */
static inline void add_parameters(struct message *file)
{
    add_scale(file);
    put_message(file, ONNX_GRAPH_INITIALIZER, tensor_of("z", ONNX_UINT8, NO_DIMS, "\3", 1));
}

static inline struct message good_dequantize(void)
{
    struct message file = dequantize_graph(NAMES("x", "s"));
    add_scale(&file);
    return file;
}

/* Return the scale or the zero point of a file with one node, of which it is the constant. */
static inline const struct qk_tensor *scale(void)
{
    return &graph.call.nodes[0].call.inputs[1];
}

static inline const struct qk_tensor *zero_point(void)
{
    return &graph.call.nodes[0].call.inputs[2];
}
