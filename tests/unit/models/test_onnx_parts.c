/* Parts of a refused file. */

#include "server/models/onnx/onnx_list.h"
#include "tests/unit/models/onnx_file.h"

TestSuite(onnx_parts, .init = setup, .fini = teardown);

/* x -> 3 times Identity -> c -> Strange -> d -> 2 times Identity -> y, and c -> Identity -> z. */
static struct message net(void)
{
    static const char *const ends[][2] = {{"x", "a"}, {"a", "b"}, {"b", "c"}, {"c", "d"},
                                          {"d", "e"}, {"e", "y"}, {"c", "z"}};
    struct message file = {.bytes = NULL};
    put_message(&file, ONNX_GRAPH_INPUT, onnx_value_info("x", ONNX_UINT8, DIMS(2)));
    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++)
        put_message(
            &file, ONNX_GRAPH_NODE,
            onnx_node("", i == 3 ? "Strange" : "Identity", NAMES(ends[i][0]), NAMES(ends[i][1])));
    put_message(&file, ONNX_GRAPH_OUTPUT, onnx_value_info("y", ONNX_UINT8, DIMS(2)));
    put_message(&file, ONNX_GRAPH_OUTPUT, onnx_value_info("z", ONNX_UINT8, DIMS(2)));
    return onnx_model(file, 14);
}

static struct qd_onnx_parts find(const uint32_t *also, size_t also_count)
{
    struct message model = net();
    struct qd_onnx_parts parts;
    const struct qd_onnx_source source = {.bytes = model.bytes, .count = model.count};
    cr_assert(qd_onnx_find_parts(&source, also, also_count, &scratch.arena, &parts));
    message_free(&model);
    return parts;
}

Test(onnx_parts, before_and_after)
{
    const struct qd_onnx_parts parts = find(NULL, 0);
    cr_assert_eq(parts.node_count, 7);
    cr_assert_eq(parts.before.node_count, 4);
    cr_assert_eq(parts.before.cut.input_count, 0);
    cr_assert_eq(parts.before.cut.output_count, 2);
    cr_assert_str_eq(parts.before.cut.outputs[0], "c");
    cr_assert_str_eq(parts.before.cut.outputs[1], "z");
    cr_assert_eq(parts.after.node_count, 2);
    cr_assert_eq(parts.after.cut.input_count, 1);
    cr_assert_str_eq(parts.after.cut.inputs[0], "d");
    cr_assert_eq(parts.after.cut.output_count, 1);
    cr_assert_str_eq(parts.after.cut.outputs[0], "y");
}

Test(onnx_parts, other_nodes_count_as_refused)
{
    const uint32_t also[] = {2, 5, 1000000};
    const struct qd_onnx_parts parts = find(also, 3);
    cr_assert_eq(parts.before.node_count, 2);
    cr_assert_eq(parts.before.cut.output_count, 1);
    cr_assert_str_eq(parts.before.cut.outputs[0], "b");
    cr_assert_eq(parts.after.node_count, 0, "one node is too small");
}

/* Two nodes read a shape of 4 bytes, where an INT64 has 8. Both are refused. */
Test(onnx_parts, constants_that_cannot_be_read)
{
    static const char *const ends[][3] = {{"x", "a"},      {"a", "b"}, {"b", "c", "n"},
                                          {"c", "d", "n"}, {"d", "e"}, {"e", "y"}};
    struct message file = {.bytes = NULL};
    struct message shape = onnx_tensor("n", ONNX_INT64, DIMS(1));
    struct qd_onnx_parts parts;
    put_data(&shape, ONNX_TENSOR_RAW_DATA, "four", 4);
    put_message(&file, ONNX_GRAPH_INITIALIZER, shape);
    put_message(&file, ONNX_GRAPH_INPUT, onnx_value_info("x", ONNX_UINT8, DIMS(2)));
    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++)
        put_message(&file, ONNX_GRAPH_NODE,
                    ends[i][2]
                        ? onnx_node("", "Reshape", NAMES(ends[i][0], ends[i][2]), NAMES(ends[i][1]))
                        : onnx_node("", "Identity", NAMES(ends[i][0]), NAMES(ends[i][1])));
    put_message(&file, ONNX_GRAPH_OUTPUT, onnx_value_info("y", ONNX_UINT8, DIMS(2)));
    struct message model = onnx_model(file, 14);
    const struct qd_onnx_source source = {.bytes = model.bytes, .count = model.count};
    cr_assert(qd_onnx_find_parts(&source, NULL, 0, &scratch.arena, &parts));
    message_free(&model);
    cr_assert_eq(parts.before.node_count, 2);
    cr_assert_eq(parts.after.node_count, 2);
    cr_assert_str_eq(parts.after.cut.inputs[0], "d");
}

Test(onnx_parts, little_memory)
{
    struct message model = net();
    const struct qd_onnx_source source = {.bytes = model.bytes, .count = model.count};
    for (size_t bytes = 4096; bytes < 512 << 10; bytes += 4096) {
        struct scratch small;
        struct qd_onnx_parts parts;
        scratch_init(&small, bytes);
        qd_onnx_find_parts(&source, NULL, 0, &small.arena, &parts);
        scratch_deinit(&small);
    }
    message_free(&model);
}
