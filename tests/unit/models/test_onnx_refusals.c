/* ONNX files that are wrong, large or hostile, and their errors. */
#include <stdio.h>

#include "tests/unit/models/onnx_file.h"

TestSuite(onnx_refusals, .init = setup, .fini = teardown);

/* ---- Files that are refused -------------------------------------------------------------- */

/* Adds a node that makes the output "z". */
static void put_last_node(struct message *file, struct message node)
{
    put_message(file, ONNX_GRAPH_NODE, node);
    put_message(file, ONNX_GRAPH_OUTPUT, onnx_value_info("z", ONNX_FLOAT, NO_DIMS));
}

Test(onnx_refusals, nodes_that_are_unknown)
{
    struct message file = good_dequantize();
    put_last_node(&file, onnx_node("r", "LSTM", NAMES("y"), NAMES("z")));
    expect_error(onnx_model(file, 13), "node 1 (\"r\", \"LSTM\"): expected an operator that quantd "
                                       "has, got \"LSTM\" of ONNX's own "
                                       "domain");
    file = good_dequantize();
    struct message node = onnx_node("a", "QLinearTanh", NAMES("y"), NAMES("z"));
    put_string(&node, ONNX_NODE_DOMAIN, "com.microsoft");
    put_last_node(&file, node);
    expect_error(onnx_model(file, 13), "node 1 (\"a\", \"QLinearTanh\"): expected an operator that "
                                       "quantd has, got \"QLinearTanh\" of the "
                                       "domain \"com.microsoft\"");
    /* Another domain's operator, although the name put together is one of the registry's. */
    file = good_dequantize();
    node = onnx_node("t", "Dequantize", NAMES("y"), NAMES("z"));
    put_string(&node, ONNX_NODE_DOMAIN, "tensorflow");
    put_last_node(&file, node);
    expect_error(onnx_model(file, 13),
                 "node 1 (\"t\", \"Dequantize\"): expected an operator that quantd has, got "
                 "\"Dequantize\" of the domain \"tensorflow\"");
    file = good_dequantize();
    node = onnx_node("m", "QuantizeLinear", NAMES("y", "s"), NAMES("z"));
    put_string(&node, ONNX_NODE_DOMAIN, "com.microsoft");
    put_last_node(&file, node);
    expect_error(onnx_model(file, 13),
                 "node 1 (\"m\", \"QuantizeLinear\"): expected an operator that quantd has, got "
                 "\"QuantizeLinear\" of the domain \"com.microsoft\"");
    file = good_dequantize();
    put_last_node(&file, onnx_node("c", "ConvTranspose", NAMES("y", "y"), NAMES("z")));
    expect_error(onnx_model(file, 13),
                 "node 1 (\"c\", \"ConvTranspose\"): expected an operator that quantd has, got "
                 "\"ConvTranspose\" of ONNX's own domain");
    /* The name continues after a NUL. */
    file = (struct message){.bytes = NULL};
    node = (struct message){.bytes = NULL};
    put_data(&node, 2, "z", 1);
    put_data(&node, 4, "QLinearConv\0x", 13);
    put_last_node(&file, node);
    cr_assert_eq(read_model(onnx_model(file, 13)), QD_INVALID);
    cr_assert_not_null(strstr(error.text, "got \"QLinearConv?x\" of ONNX's own domain"));
}

/* Checks the error after `inner` was added to a valid file. */
static void expect_error_with(unsigned field, struct message inner, const char *text)
{
    struct message file = good_dequantize();
    if (field == ONNX_GRAPH_NODE)
        put_last_node(&file, inner);
    else
        put_message(&file, field, inner);
    expect_error(onnx_model(file, 13), text);
}

#define DQ "node 0 (\"dq\", \"DequantizeLinear\")"

Test(onnx_refusals, values)
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
    expect_error_with(ONNX_GRAPH_INPUT, onnx_value_info("i", ONNX_DOUBLE, NO_DIMS),
                      "input 1 (\"i\"): elem_type: expected a TensorProto.DataType that quantd "
                      "has, got 11 (DOUBLE)");
    expect_error_with(ONNX_GRAPH_INPUT, onnx_value_info("i", 0, NO_DIMS),
                      "input 1 (\"i\"): expected a type, got none");
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
    expect_error_with(ONNX_GRAPH_NODE,
                      onnx_node("2", "DequantizeLinear", NAMES("s", "s"), NAMES("z")),
                      "node 1 (\"2\", \"DequantizeLinear\"): x: expected UINT8, INT8, INT32 for "
                      "version 13 of onnx.DequantizeLinear, got FP32");
    expect_error_with(ONNX_GRAPH_NODE,
                      onnx_node("2", "QuantizeLinear", NAMES("x", "s"), NAMES("z")),
                      "node 1 (\"2\", \"QuantizeLinear\"): x: expected INT32, FP32 for version "
                      "13 of onnx.QuantizeLinear, got UINT8");
}

Test(onnx_refusals, sparse_initializers)
{
    struct message sparse = {.bytes = NULL};
    put_message(&sparse, 1, onnx_tensor("p", ONNX_FLOAT, NO_DIMS));
    struct message file = good_dequantize();
    put_message(&file, ONNX_GRAPH_SPARSE_INITIALIZER, sparse);
    put_last_node(&file, onnx_node("2", "DequantizeLinear", NAMES("x", "p"), NAMES("z")));
    expect_error(onnx_model(file, 13),
                 "node 1 (\"2\", \"DequantizeLinear\"): x_scale: expected a dense tensor, got "
                 "\"p\", from sparse_initializer 0 (\"p\")");
}

Test(onnx_refusals, functions)
{
    static const char *const domains[] = {"my.own", "", "com.microsoft"};
    for (size_t i = 0; i < 3; i++) {
        struct message model = onnx_model(good_dequantize(), 13);
        struct message function = {.bytes = NULL};
        put_string(&function, 1, "DequantizeLinear");
        put_string(&function, 10, domains[i]);
        put_message(&model, ONNX_MODEL_FUNCTIONS, function);
        if (i > 0)
            expect_error(model, "functions[0]: expected none in ONNX's own domain and "
                                "com.microsoft, got \"DequantizeLinear\"");
        else
            expect_model(model);
    }
}

/* An initializer that is not read may have any contents. */
Test(onnx_refusals, unused_initializers)
{
    struct message file = good_dequantize();
    put_message(&file, ONNX_GRAPH_INITIALIZER, onnx_tensor("u", 99, DIMS(-1, INT64_MAX)));
    put_message(&file, ONNX_GRAPH_INITIALIZER, onnx_tensor("", ONNX_INT64, DIMS(7)));
    put_message(&file, ONNX_GRAPH_NODE, onnx_node("", "Constant", NAMES(NULL), NAMES("c")));
    expect_model(onnx_model(file, 13));
    cr_assert_eq(graph.call.value_count, 2);
}

Test(onnx_refusals, attributes)
{
    const struct {
        struct message attribute;
        const char *text;
    } cases[] = {
        {onnx_attribute_int("axes", 1), "expected an attribute of onnx.DequantizeLinear, got "
                                        "\"axes\""},
        {onnx_attribute_int("block_size", 1), "block_size: expected version 21 or later of "
                                              "onnx.DequantizeLinear, got 13, because "
                                              "opset_import says 13"},
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
        put_message(&file, ONNX_GRAPH_OUTPUT, onnx_value_info("y", ONNX_FLOAT, NO_DIMS));
        add_scale(&file);
        snprintf(text, sizeof(text), DQ ": %s", cases[i].text);
        expect_error(onnx_model(file, 13), text);
    }
}

Test(onnx_refusals, attributes_that_are_odd)
{
    const struct {
        unsigned count; /* how often it occurs */
        const char *reference;
        const char *text; /* NULL: accepted */
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

Test(onnx_refusals, names_are_text)
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
    /* Names that differ only after a NUL are different names. */
    file = good_dequantize();
    struct message tensor = {.bytes = NULL};
    put_data(&tensor, ONNX_TENSOR_NAME, "s\0", 2);
    put_message(&file, ONNX_GRAPH_INITIALIZER, tensor);
    expect_model(onnx_model(file, 13));
}

/* quantd does not compute Dropout's mask. Files may name it, as old exporters do. */
Test(onnx_refusals, outputs_that_are_not_computed)
{
    const struct message info = onnx_value_info("a", ONNX_FLOAT, NO_DIMS);
    struct message file = good_dequantize();
    put_message(&file, ONNX_GRAPH_NODE, onnx_node("d", "Dropout", NAMES("y"), NAMES("a", "m")));
    put_message(&file, ONNX_GRAPH_OUTPUT, info);
    expect_model(onnx_model(file, 13));
    file = good_dequantize();
    put_message(&file, ONNX_GRAPH_NODE, onnx_node("d", "Dropout", NAMES("y"), NAMES("m", "a")));
    put_message(&file, ONNX_GRAPH_OUTPUT, onnx_value_info("a", ONNX_FLOAT, NO_DIMS));
    expect_error(onnx_model(file, 13),
                 "node 1 (\"d\", \"Dropout\"): outputs[1]: expected no reader, because quantd does "
                 "not compute this output, got one of \"a\"");
    file = good_dequantize();
    put_message(&file, ONNX_GRAPH_NODE,
                onnx_node("d", "Dropout", NAMES("y"), NAMES("a", "m", "n")));
    put_message(&file, ONNX_GRAPH_OUTPUT, onnx_value_info("a", ONNX_FLOAT, NO_DIMS));
    expect_error(onnx_model(file, 13),
                 "node 1 (\"d\", \"Dropout\"): expected 1 to 2 outputs, got 3");
}

/* A Concat of `count` times y, which quantd takes 32 at a time. */
static struct message long_concat(size_t count)
{
    const char *inputs[1026] = {NULL};
    struct message file = good_dequantize();
    for (size_t i = 0; i < count; i++)
        inputs[i] = "y";
    struct message node = onnx_node("c", "Concat", inputs, NAMES("a"));
    put_message(&node, ONNX_NODE_ATTRIBUTE, onnx_attribute_int("axis", 0));
    put_message(&file, ONNX_GRAPH_NODE, node);
    put_message(&file, ONNX_GRAPH_OUTPUT, onnx_value_info("a", ONNX_FLOAT, NO_DIMS));
    return onnx_model(file, 13);
}

/* The last node of a long list joins what the others make, and the rest of the list. */
Test(onnx_refusals, long_lists)
{
    static const size_t counts[][3] = {
        {32, 2, 32}, {33, 3, 2}, {63, 3, 32}, {64, 4, 2}, {1024, 34, 32}};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        expect_model(long_concat(counts[i][0]));
        const size_t node_count = graph.call.node_count;
        cr_assert_eq(node_count, counts[i][1]);
        cr_assert_eq(graph.call.value_count, 2 + node_count - 1);
        const struct qk_node *last = &graph.call.nodes[node_count - 1];
        cr_expect_eq(__builtin_popcount(last->call.variable), (int)counts[i][2]);
        for (size_t k = 1; k + 1 < node_count; k++)
            cr_expect_eq(last->inputs[k - 1], graph.call.nodes[k].outputs[0]);
        /* All of them share one copy of their name. */
        for (size_t k = 1; k + 1 < node_count; k++)
            cr_expect_eq(last->name, graph.call.nodes[k].name);
        cr_expect_eq(last->outputs[0], graph.call.outputs[1]);
    }
    expect_error(long_concat(1025),
                 "node 1 (\"c\", \"Concat\"): expected at most 1024 inputs, got 1025");
}

/* The lengths of names are bounded, because what is made of a file may repeat them. */
Test(onnx_refusals, long_names)
{
    static char name[4098];
    memset(name, 'n', 4096);
    struct message file = good_dequantize();
    put_last_node(&file, onnx_node(name, "Identity", NAMES("y"), NAMES("z")));
    expect_model(onnx_model(file, 13));
    name[4096] = 'n';
    file = good_dequantize();
    put_last_node(&file, onnx_node(name, "Identity", NAMES("y"), NAMES("z")));
    cr_assert_eq(read_model(onnx_model(file, 13)), QD_INVALID);
    cr_expect_not_null(strstr(error.text, "expected at most 4096 bytes in a name, got 4097"), "%s",
                       error.text);
    file = good_dequantize();
    put_message(&file, ONNX_GRAPH_NODE, onnx_node("a", "Identity", NAMES("y"), NAMES(name)));
    put_last_node(&file, onnx_node("b", "Identity", NAMES(name), NAMES("z")));
    expect_error(onnx_model(file, 13), "node 1 (\"a\", \"Identity\"): expected at most 4096 bytes "
                                       "in a name, got 4097");
    file = good_dequantize();
    put_string(&file, ONNX_GRAPH_NAME, name);
    expect_error(onnx_model(file, 13),
                 "graph: name: expected at most 4096 bytes in a name, got 4097");
}

/* ---- Files that are large ---------------------------------------------------------------- */

Test(onnx_refusals, too_many)
{
    struct message file = {.bytes = NULL};
    put_message(&file, ONNX_GRAPH_INPUT, onnx_value_info("v0", ONNX_UINT8, NO_DIMS));
    for (unsigned i = 0; i < 4097; i++) {
        char names[2][8];
        snprintf(names[0], sizeof(names[0]), "v%u", i);
        snprintf(names[1], sizeof(names[1]), "v%u", i + 1);
        put_message(&file, ONNX_GRAPH_NODE,
                    onnx_node("", "Identity", NAMES(names[0]), NAMES(names[1])));
    }
    put_message(&file, ONNX_GRAPH_OUTPUT, onnx_value_info("v4097", ONNX_UINT8, NO_DIMS));
    expect_error(onnx_model(file, 14), "graph: expected at most 4096 nodes, Constant aside, that "
                                       "its outputs need, got 4097");
    expect_error(onnx_model((struct message){.bytes = NULL}, 13),
                 "graph: expected an output, got none");
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

/* Each message takes two bytes in the file, and fifty times as many in memory. */
Test(onnx_refusals, bombs)
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

/* protobuf merges a message that occurs twice, so each graph here adds to the one before. */
Test(onnx_refusals, a_graph_in_pieces)
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

/* A graph in an attribute of a node in a graph, and so on. The reader must not recurse into it. */
Test(onnx_refusals, deep_nesting)
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
    struct message nested = {.bytes = NULL};
    put_bytes(&nested, bytes + at, end - at);
    put_data(&nested, 2, "z", 1); /* its output */
    put_last_node(&file, nested);
    free(bytes);
    expect_error(
        onnx_model(file, 13),
        "node 1 (\"\", \"\"): expected an operator that quantd has, got \"\" of ONNX's own domain");
}

/* ---- Files that are broken --------------------------------------------------------------- */

Test(onnx_refusals, truncated)
{
    struct message model = onnx_model(conv_graph(), 13);
    for (size_t count = 0; count < model.count; count++) {
        char *copy = malloc(count + 1); /* so that sanitizers see reads beyond the end */
        cr_assert_not_null(copy);
        memcpy(copy, model.bytes, count);
        cr_assert_eq(read_source((struct qd_onnx_source){.bytes = copy, .count = count}),
                     QD_INVALID, "the first %zu bytes", count);
        free(copy);
    }
    message_free(&model);
}

/* For any bound on memory, the file is read, or refused for lack of memory. */
Test(onnx_refusals, little_memory)
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

Test(onnx_refusals, garbage)
{
    expect_error((struct message){.bytes = NULL}, "expected an ONNX file, got an empty file");
    struct message file = {.bytes = NULL};
    put_bytes(&file, "\x3b\xff\xff\x7f", 4);
    expect_error(file, "expected an ONNX file, which is a ModelProto of protobuf, got 4 bytes that "
                       "are not one, or only a part of one");
}
