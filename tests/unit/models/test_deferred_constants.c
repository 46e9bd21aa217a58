/* Graphs that are made anew for each request, with the constants that the request brings. */
#include <criterion/criterion.h>

#include "server/models/model.h"
#include "server/models/onnx/onnx.h"
#include "tests/support/onnx_writer.h"
#include "tests/unit/scratch.h"

/* Returns a file with a = (x - 3) * t and y = a / s + 3. s and t are deferred. */
static struct message file(void)
{
    struct message graph = {.bytes = NULL};
    struct message zero = onnx_tensor("z", ONNX_UINT8, NO_DIMS);
    struct message second =
        onnx_node("second", "QuantizeLinear", NAMES("a", "s", "zs"), NAMES("y"));
    put_data(&zero, ONNX_TENSOR_RAW_DATA, "\3", 1);
    put_message(&second, ONNX_NODE_ATTRIBUTE, onnx_attribute_int("axis", 0));
    put_message(&graph, ONNX_GRAPH_INITIALIZER, zero);
    zero = onnx_tensor("zs", ONNX_UINT8, DIMS(3));
    put_data(&zero, ONNX_TENSOR_RAW_DATA, "\3\3\3", 3);
    put_message(&graph, ONNX_GRAPH_INITIALIZER, zero);
    put_message(&graph, ONNX_GRAPH_NODE,
                onnx_node("first", "DequantizeLinear", NAMES("x", "t", "z"), NAMES("a")));
    put_message(&graph, ONNX_GRAPH_NODE, second);
    put_message(&graph, ONNX_GRAPH_INPUT, onnx_value_info("s", ONNX_FLOAT, DIMS(-1)));
    put_message(&graph, ONNX_GRAPH_INPUT, onnx_value_info("x", ONNX_UINT8, DIMS(-1)));
    put_message(&graph, ONNX_GRAPH_INPUT, onnx_value_info("t", ONNX_FLOAT, NO_DIMS));
    put_message(&graph, ONNX_GRAPH_OUTPUT, onnx_value_info("y", ONNX_UINT8, DIMS(-1)));
    return onnx_model(graph, 13);
}

/* Reads the file, copies the graph, and frees everything but the copy. */
static struct qk_graph_call *load(struct qd_arena *arena)
{
    struct scratch scratch;
    struct qd_onnx_graph graph;
    struct qd_error error = {.text = ""};
    struct message model = file();
    struct qd_onnx_source source = {.bytes = model.bytes, .count = model.count};
    scratch_init(&scratch, 1 << 20);
    cr_assert_eq(qd_onnx_read(&source, &scratch.arena, &graph, &error), QD_OK, "%s", error.text);
    cr_assert(graph.has_deferred);
    struct qk_graph_call *deferred = qd_deferred_copy(&graph.call, arena);
    scratch_deinit(&scratch);
    message_free(&model);
    return deferred;
}

static void *take(void *context, size_t bytes)
{
    return qd_arena_alloc(context, bytes);
}

static struct qk_tensor tensor_of(enum qk_type type, uint32_t rank, size_t count, const void *data)
{
    return (struct qk_tensor){
        .type = type, .rank = rank, .dims = {count}, .count = count, .stored = count, .data = data};
}

static enum qk_status prepare(const struct qk_graph_call *deferred, const struct qk_tensor *inputs,
                              struct qd_arena *arena, struct qk_graph **graph,
                              struct qk_kernels **kernels, struct qk_error *error)
{
    cr_assert_eq(qk_kernels_create("auto", "auto", false, 1, kernels, error), QK_OK);
    return qd_deferred_prepare(deferred, *kernels, inputs, (struct qk_memory){take, arena}, graph,
                               error);
}

Test(deferred_constants, computes_with_what_a_request_brings)
{
    struct scratch scratch;
    struct qk_kernels *kernels;
    struct qk_graph *graph;
    struct qk_graph_plan plan;
    struct qk_error error = {.text = ""};
    scratch_init(&scratch, 4 << 20);
    struct qk_graph_call *deferred = load(&scratch.arena);
    cr_assert_not_null(deferred);
    const float s[] = {0.5f, 2, 4};
    const float t = 2;
    const struct qk_tensor inputs[] = {tensor_of(QK_FP32, 1, 3, s),
                                       tensor_of(QK_UINT8, 1, 3, "\4\5\7"),
                                       tensor_of(QK_FP32, 0, 1, &t)};
    cr_assert_eq(prepare(deferred, inputs, &scratch.arena, &graph, &kernels, &error), QK_OK, "%s",
                 error.text);
    qk_graph_pack(graph, 0, graph->pack_unit_count);
    struct qk_memory memory = {take, &scratch.arena};
    cr_assert_eq(qk_graph_plan(graph, inputs, memory, &plan, &error), QK_OK, "%s", error.text);
    unsigned char y[3];
    cr_assert_eq(plan.output_bytes[0], sizeof(y));
    void *room = qd_arena_alloc(&scratch.arena, plan.scratch_bytes);
    void *workspace = qd_arena_alloc(&scratch.arena, plan.workspace_bytes);
    const void *data[] = {s, inputs[1].data, &t};
    void *outputs[] = {y};
    for (size_t i = 0; i < plan.node_count; i++)
        qk_graph_run(&plan, i, data, outputs, room, workspace, 0, plan.nodes[i].plan.unit_count);
    cr_assert_eq(memcmp(y, "\7\5\5", 3), 0, "2 / 0.5 + 3, 4 / 2 + 3, 8 / 4 + 3");
    qk_kernels_destroy(kernels);
    scratch_deinit(&scratch);
}

Test(deferred_constants, refuses_with_the_node_s_name)
{
    struct scratch scratch;
    struct qk_kernels *kernels;
    struct qk_graph *graph;
    struct qk_error error = {.text = ""};
    scratch_init(&scratch, 4 << 20);
    struct qk_graph_call *deferred = load(&scratch.arena);
    const float s[] = {0.5f, 2, 4};
    const struct qk_tensor inputs[] = {tensor_of(QK_FP32, 1, 3, s),
                                       tensor_of(QK_UINT8, 1, 3, "\4\5\7"),
                                       tensor_of(QK_FP16, 0, 1, s)};
    cr_assert_eq(prepare(deferred, inputs, &scratch.arena, &graph, &kernels, &error), QK_INVALID);
    cr_assert_str_eq(error.text,
                     "node 0 (\"first\", onnx.DequantizeLinear): x_scale: expected datatype FP32 "
                     "for onnx.DequantizeLinear 13, got FP16");
    qk_kernels_destroy(kernels);
    scratch_deinit(&scratch);
}

/* Sixteen nodes read one constant of 64 KiB. */
Test(deferred_constants, copies_a_constant_once)
{
    enum { NODES = 16, BYTES = 64 << 10 };
    static const uint8_t data[BYTES];
    static struct qk_node nodes[NODES];
    static const char *names[NODES];
    struct scratch scratch;
    size_t count;
    scratch_init(&scratch, 4 << 20);
    for (uint32_t i = 0; i < NODES; i++) {
        nodes[i] = (struct qk_node){.name = "n", .call = {.op = qk_operators(&count)[0]}};
        nodes[i].call.inputs[0] = tensor_of(QK_UINT8, 1, BYTES, data);
        names[i] = "v";
    }
    const struct qk_graph_call call = {
        .nodes = nodes, .node_count = NODES, .value_names = names, .value_count = NODES};
    const struct qk_graph_call *made = qd_deferred_copy(&call, &scratch.arena);
    cr_assert_not_null(made);
    cr_expect_lt(scratch.arena.bytes, 2 * BYTES + NODES * sizeof(nodes[0]));
    for (size_t i = 0; i < NODES; i++) {
        cr_expect_eq(made->nodes[i].call.inputs[0].data, made->nodes[0].call.inputs[0].data);
        cr_expect_eq(made->nodes[i].name, made->nodes[0].name);
        cr_expect_eq(made->value_names[i], made->value_names[0]);
    }
    scratch_deinit(&scratch);
}

Test(deferred_constants, a_copy_without_memory)
{
    unsigned copied = 0;
    for (size_t bytes = 0; bytes <= 192u << 10; bytes += 64 << 10) {
        struct scratch scratch;
        scratch_init(&scratch, bytes);
        copied += load(&scratch.arena) != NULL;
        scratch_deinit(&scratch);
    }
    cr_assert_eq(copied, 2, "128 KiB are enough");
}
