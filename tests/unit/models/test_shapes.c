/* What a load finds out about the shapes of a graph's outputs. */
#include <criterion/criterion.h>
#include <string.h>

#include "server/memory/text.h"
#include "server/models/plans.h"
#include "tests/support/kernels/graph_case.h"
#include "tests/unit/scratch.h"

static struct graph_case *made;
static struct qd_memory *memory;
static struct qd_arena arena;
static const struct qk_graph *graph;
static struct qd_plans *plans;
static struct qd_error error;
static size_t planned_bytes;
static uint32_t refused_node;

static void *alloc(void *context, size_t bytes)
{
    return qd_arena_alloc(context, bytes);
}

/* Makes a graph that quantizes floats of two channels, convolves them to four channels, and
 * dequantizes them. It also outputs the quantized values. */
static void setup(void)
{
    struct qk_error cause;
    planned_bytes = 0;
    refused_node = QK_VALUE_NONE;
    made = graph_case_create(7);
    uint32_t x = graph_case_quantize(made, graph_case_input(made, QK_FP32, "1,2,8,8"), QK_UINT8);
    uint32_t y = graph_case_dequantize(made, graph_case_conv(made, x, 4, QK_UINT8), QK_FP32);
    graph_case_output(made, x);
    graph_case_output(made, y);
    memory = qd_memory_create(64 << 20);
    qd_arena_init(&arena, memory);
    cr_assert_eq(
        graph_case_prepare(made, made->scalar, (struct qk_memory){alloc, &arena}, &graph, &cause),
        QK_OK, "%s", cause.text);
    plans = qd_plans_create(graph, memory);
    cr_assert_not_null(plans);
}

static void teardown(void)
{
    qd_plans_destroy(plans);
    qd_arena_deinit(&arena);
    cr_assert_eq(qd_memory_used(memory), 0);
    qd_memory_destroy(memory);
    graph_case_destroy(made);
}

TestSuite(shapes, .init = setup, .fini = teardown);

static struct qd_port port_of(const char *name, enum qk_type type, uint32_t rank,
                              const int64_t *dims)
{
    struct qd_port port = {.name = name, .types = QK_BIT(type), .shaped = true, .rank = rank};
    memcpy(port.dims, dims, rank * sizeof(*dims));
    return port;
}

#define DIMS(...)                                                     \
    (sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) \
    {                                                                 \
        __VA_ARGS__                                                   \
    }
#define PORT(name, type, ...) port_of(name, type, DIMS(__VA_ARGS__))

static enum qd_status settle(struct qd_port x, struct qd_port outputs[2])
{
    return qd_shapes_settle(plans, graph, &x, outputs, memory, &planned_bytes, &refused_node,
                            &error);
}

static void expect_shape(const struct qd_port *port, const char *expected)
{
    char shape[160];
    qd_print_integers(port->dims, port->rank, shape, sizeof(shape));
    cr_expect(port->shaped);
    cr_expect_str_eq(shape, expected);
}

static void expect_refused(struct qd_port x, struct qd_port outputs[2], const char *text)
{
    cr_expect_eq(settle(x, outputs), QD_INVALID);
    cr_expect_str_eq(error.text, text);
}

Test(shapes, whole_inputs_make_a_plan_that_is_kept)
{
    struct qd_port outputs[2] = {{.name = "q"}, {.name = "y"}};
    cr_assert_eq(settle(PORT("x", QK_FP32, 1, 2, 8, 8), outputs), QD_OK, "%s", error.text);
    expect_shape(&outputs[0], "[1,2,8,8]");
    expect_shape(&outputs[1], "[1,4,8,8]");
    struct qk_tensor x = {.type = QK_FP32, .rank = 4, .dims = {1, 2, 8, 8}};
    cr_assert(qk_tensor_set_count(&x));
    struct qd_pin pin;
    struct qk_error cause;
    const size_t used = qd_memory_used(memory);
    cr_assert_eq(qd_plans_pin(plans, &x, &arena, &pin, &cause), QK_OK);
    cr_expect_eq(qd_memory_used(memory), used);
    qd_plans_unpin(plans, &pin);
}

Test(shapes, what_does_not_depend_on_free_dimensions_is_known)
{
    struct qd_port outputs[2] = {{.name = "q"}, {.name = "y"}};
    const size_t used = qd_memory_used(memory);
    cr_assert_eq(settle(PORT("x", QK_FP32, -1, 2, -1, 8), outputs), QD_OK, "%s", error.text);
    expect_shape(&outputs[0], "[-1,2,-1,8]");
    expect_shape(&outputs[1], "[-1,4,-1,8]");
    cr_expect_eq(qd_memory_used(memory), used, "nothing stays");
}

Test(shapes, what_is_declared_beyond_is_kept)
{
    struct qd_port outputs[2] = {PORT("q", QK_UINT8, 1, -1, 5, 8), PORT("y", QK_FP32, 1, 4, 5, 8)};
    cr_assert_eq(settle(PORT("x", QK_FP32, -1, 2, -1, -1), outputs), QD_OK, "%s", error.text);
    expect_shape(&outputs[0], "[1,2,5,8]");
    expect_shape(&outputs[1], "[1,4,5,8]");
}

Test(shapes, declared_otherwise)
{
    struct qd_port outputs[2] = {{.name = "q"}, PORT("y", QK_FP32, 1, 3, 8, 8)};
    expect_refused(PORT("x", QK_FP32, 1, 2, 8, 8), outputs,
                   "output 1 (\"y\"): shape: expected [1,4,8,8], which the graph makes of its "
                   "inputs, got [1,3,8,8]");
    outputs[0].shaped = false;
    expect_refused(PORT("x", QK_FP32, -1, 2, -1, 8), outputs,
                   "output 1 (\"y\"): shape: expected [-1,4,-1,8], which the graph makes of its "
                   "inputs, got [1,3,8,8]");
    outputs[0].shaped = false;
    outputs[1] = PORT("y", QK_FP32, -1, -1, -1);
    expect_refused(PORT("x", QK_FP32, -1, 2, -1, 8), outputs,
                   "output 1 (\"y\"): shape: expected [-1,4,-1,8], which the graph makes of its "
                   "inputs, got [-1,-1,-1]");
}

Test(shapes, no_request_could_run_it)
{
    struct qd_port outputs[2] = {{.name = "q"}, {.name = "y"}};
    expect_refused(PORT("x", QK_FP32, 1, 3, 8, 8), outputs,
                   "with inputs of the declared shapes: node 1 (\"n1\", onnx.QLinearConv): x: "
                   "expected C = 2 (of w) * 1 (group) channels, got shape [1,3,8,8]");
    expect_refused(PORT("x", QK_FP32, INT64_MAX, 2, INT64_MAX, 8), outputs,
                   "inputs: expected shapes whose sizes fit in 64 bits");
}

/* None of the tried sizes is right, or none is small enough. Other sizes may be. */
Test(shapes, no_size_will_do)
{
    struct qd_port outputs[2] = {{.name = "q"}, PORT("y", QK_FP32, 9, 9)};
    cr_expect_eq(settle(PORT("x", QK_FP32, -1, 3, -1, -1), outputs), QD_OK);
    cr_expect_eq(settle(PORT("x", QK_FP32, -1, 2, INT64_MAX, 8), outputs), QD_OK);
    cr_expect_not(outputs[0].shaped);
    expect_shape(&outputs[1], "[9,9]");
}

Test(shapes, a_rank_that_is_wrong_with_all_sizes)
{
    struct qk_error cause;
    struct graph_case *other = graph_case_create(7);
    const struct qk_graph *averages;
    uint32_t x = graph_case_dequantize(other, graph_case_input(other, QK_UINT8, "1,2,8"), QK_FP32);
    graph_case_output(other, graph_case_average(other, x, (const int64_t[]){2}, NULL));
    cr_assert_eq(graph_case_prepare(other, other->scalar, (struct qk_memory){alloc, &arena},
                                    &averages, &cause),
                 QK_OK, "%s", cause.text);
    struct qd_plans *none = qd_plans_create(averages, memory);
    struct qd_port y = {.name = "y"};
    const struct qd_port right = PORT("x", QK_UINT8, -1, 2, -1);
    const struct qd_port wrong = PORT("x", QK_UINT8, -1, 2, -1, 8);
    cr_expect_eq(
        qd_shapes_settle(none, averages, &right, &y, memory, &planned_bytes, &refused_node, &error),
        QD_OK, "%s", error.text);
    cr_expect_eq(refused_node, QK_VALUE_NONE);
    cr_expect_eq(
        qd_shapes_settle(none, averages, &wrong, &y, memory, &planned_bytes, &refused_node, &error),
        QD_INVALID);
    cr_expect_str_eq(error.text, "with inputs of the declared shapes: node 1 (\"n1\", "
                                 "onnx.AveragePool): X: expected rank 3 for kernel_shape of 1, "
                                 "got 4");
    cr_expect_eq(refused_node, 1);
    planned_bytes = QD_SHAPES_BYTES_MAX;
    cr_expect_eq(
        qd_shapes_settle(none, averages, &wrong, &y, memory, &planned_bytes, &refused_node, &error),
        QD_OK, "without memory nothing is known");
    qd_plans_destroy(none);
    graph_case_destroy(other);
}

/* The far size is too large for the values made from it, so only the rank is known. */
Test(shapes, sizes_that_barely_fit)
{
    struct qd_port outputs[2] = {{.name = "q"}, {.name = "y"}};
    const int64_t large = INT64_C(1) << 46;
    cr_expect_eq(settle(PORT("x", QK_FP32, -1, 2, large, 8), outputs), QD_OK, "%s", error.text);
    expect_shape(&outputs[1], "[-1,-1,-1,-1]");
}

Test(shapes, unknown_ranks)
{
    struct qd_port outputs[2] = {{.name = "q"}, PORT("y", QK_FP32, 9, 9)};
    const struct qd_port x = {.name = "x", .types = QK_BIT(QK_FP32)};
    cr_expect_eq(settle(x, outputs), QD_OK);
    cr_expect_not(outputs[0].shaped);
    expect_shape(&outputs[1], "[9,9]");
}

Test(shapes, no_memory)
{
    struct qd_port outputs[2] = {{.name = "q"}, {.name = "y"}};
    struct qd_memory *none = qd_memory_create(1);
    struct qd_plans *poor = qd_plans_create(graph, none);
    const struct qd_port whole = PORT("x", QK_FP32, 1, 2, 8, 8);
    const struct qd_port open = PORT("x", QK_FP32, -1, 2, 8, 8);
    cr_expect_eq(
        qd_shapes_settle(poor, graph, &whole, outputs, none, &planned_bytes, &refused_node, &error),
        QD_OK);
    cr_expect_eq(
        qd_shapes_settle(poor, graph, &open, outputs, none, &planned_bytes, &refused_node, &error),
        QD_OK);
    cr_expect_not(outputs[0].shaped || outputs[1].shaped);
    qd_plans_destroy(poor);
    qd_memory_destroy(none);
}

/* The same plans are made again until they have taken all that a load may take. */
Test(shapes, plans_that_are_tried_are_bounded)
{
    struct qd_port outputs[2] = {{.name = "q"}, {.name = "y"}};
    const struct qd_port x = PORT("x", QK_FP32, -1, 2, 8, 8);
    cr_assert_eq(settle(x, outputs), QD_OK, "%s", error.text);
    expect_shape(&outputs[0], "[-1,2,8,8]");
    const size_t bytes = planned_bytes;
    cr_assert_gt(bytes, 0);
    cr_assert_eq(settle(PORT("x", QK_FP32, 1, 2, 8, 8), outputs), QD_OK);
    cr_assert_eq(planned_bytes, bytes, "a plan that is not tried does not count");
    planned_bytes = QD_SHAPES_BYTES_MAX - bytes + 1;
    outputs[0] = (struct qd_port){.name = "q"};
    cr_assert_eq(settle(x, outputs), QD_OK, "%s", error.text);
    expect_shape(&outputs[0], "[-1,-1,-1,-1]");
    cr_assert_leq(planned_bytes, QD_SHAPES_BYTES_MAX);
}

/* All dimensions, up to the highest rank, are free and have any size. */
Test(shapes, highest_rank)
{
    struct qk_error cause;
    struct graph_case *other = graph_case_create(7);
    const struct qk_graph *single;
    graph_case_output(
        other, graph_case_quantize(other, graph_case_input(other, QK_FP32, "2,3"), QK_UINT8));
    cr_assert_eq(graph_case_prepare(other, other->scalar, (struct qk_memory){alloc, &arena},
                                    &single, &cause),
                 QK_OK, "%s", cause.text);
    struct qd_plans *none = qd_plans_create(single, memory);
    struct qd_port x = {.name = "x", .types = QK_BIT(QK_FP32), .shaped = true, .rank = QK_RANK_MAX};
    struct qd_port y = {.name = "y"};
    for (uint32_t i = 0; i < x.rank; i++)
        x.dims[i] = QD_DIM_FREE;
    cr_assert_eq(
        qd_shapes_settle(none, single, &x, &y, memory, &planned_bytes, &refused_node, &error),
        QD_OK, "%s", error.text);
    cr_expect(y.shaped);
    cr_expect_eq(y.rank, QK_RANK_MAX);
    cr_expect_eq(memcmp(y.dims, x.dims, sizeof(x.dims)), 0);
    qd_plans_destroy(none);
    graph_case_destroy(other);
}
