/* Planned values: shapes that nodes compute from other shapes, while a plan is made. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/guarded.h"
#include "tests/support/kernels/qk_test.h"

enum { NODES_MAX = 40, LIST_MAX = 8 };

/* A graph whose input 0 is x, UINT8 of shape [n, 3, 4], and whose input 1 is INT64 of shape [2]. */
struct net {
    struct qk_graph_call call;
    struct qk_node nodes[NODES_MAX];
    int64_t lists[NODES_MAX][QK_INPUT_COUNT_MAX][LIST_MAX];
    const char *names[NODES_MAX + 4];
    struct qk_kernels *kernels;
    struct qk_test_memory memory;
    struct qk_graph *graph;
    struct qk_graph_plan plan;
    struct qk_error error;
};

enum { X, NUMBERS };

static void net_init(struct net *net)
{
    memset(net, 0, sizeof(*net));
    net->kernels = qk_test_kernels("scalar");
    qk_test_memory_init(&net->memory, SIZE_MAX);
    net->call = (struct qk_graph_call){
        .nodes = net->nodes,
        .value_count = 2,
        .value_names = net->names,
        .inputs = {{X, QK_UINT8}, {NUMBERS, QK_INT64}},
        .input_count = 2,
    };
    for (size_t i = 0; i < NODES_MAX + 4; i++)
        net->names[i] = "v";
}

static void net_deinit(struct net *net)
{
    qk_test_memory_deinit(&net->memory);
    qk_kernels_destroy(net->kernels);
}

static struct qk_node *last(struct net *net)
{
    return &net->nodes[net->call.node_count - 1];
}

/* Adds a node that makes one value, and returns the value. Its inputs follow. */
static uint32_t add(struct net *net, const char *op, uint64_t version)
{
    cr_assert_lt(net->call.node_count, NODES_MAX);
    net->call.node_count++;
    struct qk_node *node = last(net);
    *node = (struct qk_node){.name = "n"};
    qk_test_call_init(&node->call, op, version);
    node->call.variable = 0;
    for (size_t i = 0; i < QK_OUTPUT_COUNT_MAX; i++)
        node->outputs[i] = QK_VALUE_NONE;
    return node->outputs[0] = (uint32_t)net->call.value_count++;
}

/* The last node's input is this value. */
static void reads(struct net *net, const char *input, uint32_t value)
{
    struct qk_node *node = last(net);
    const size_t index = qk_test_input_index(node->call.op, input);
    node->call.variable |= 1U << index;
    node->inputs[index] = value;
}

/* The last node's input is a constant list, or a number if `rank` is 0. */
static void takes(struct net *net, const char *input, uint32_t rank, size_t count,
                  const int64_t *numbers)
{
    struct qk_call *call = &last(net)->call;
    int64_t *list = net->lists[net->call.node_count - 1][qk_test_input_index(call->op, input)];
    cr_assert_leq(count, LIST_MAX);
    memcpy(list, numbers, count * sizeof(*list));
    qk_test_call_input(call, input, QK_INT64, list, rank, &count);
}

static uint32_t shape_of(struct net *net, uint32_t value)
{
    const uint32_t made = add(net, "onnx.Shape", 15);
    reads(net, "data", value);
    return made;
}

static uint32_t reshape(struct net *net, uint32_t value, uint32_t shape)
{
    const uint32_t made = add(net, "onnx.Reshape", 14);
    reads(net, "data", value);
    reads(net, "shape", shape);
    return made;
}

/* Gather 0, Unsqueeze, and Concat with -1, as PyTorch exports x.view(x.size(0), -1). */
static uint32_t flat_shape(struct net *net, uint32_t shape)
{
    const uint32_t n = add(net, "onnx.Gather", 13);
    reads(net, "data", shape);
    takes(net, "indices", 0, 1, (int64_t[]){0});
    const uint32_t list = add(net, "onnx.Unsqueeze", 13);
    reads(net, "data", n);
    takes(net, "axes", 1, 1, (int64_t[]){0});
    const uint32_t both = add(net, "onnx.Concat", 13);
    reads(net, "input_0", list);
    takes(net, "input_1", 1, 1, (int64_t[]){-1});
    qk_test_call_int(&last(net)->call, "axis", 0);
    return both;
}

static void leaves(struct net *net, uint32_t value)
{
    net->call.outputs[net->call.output_count++] = value;
}

static enum qk_status prepare(struct net *net)
{
    return qk_graph_prepare(net->kernels, &net->call, qk_test_memory_face(&net->memory),
                            &net->graph, &net->error);
}

static enum qk_status plan(struct net *net, size_t n)
{
    struct qk_tensor inputs[] = {{.type = QK_UINT8, .rank = 3, .dims = {n, 3, 4}},
                                 {.type = QK_INT64, .rank = 1, .dims = {2}}};
    cr_assert(qk_tensor_set_count(&inputs[X]));
    cr_assert(qk_tensor_set_count(&inputs[NUMBERS]));
    return qk_graph_plan(net->graph, inputs, qk_test_memory_face(&net->memory), &net->plan,
                         &net->error);
}

/* Plans and runs the graph. x has the bytes 0, 1, 2 and so on, and the numbers are 7 and 8. */
static void run(struct net *net, size_t n, void **outputs)
{
    static const int64_t numbers[] = {7, 8};
    uint8_t *x = guarded_alloc(n * 12, 64);
    for (size_t i = 0; i < n * 12; i++)
        x[i] = (uint8_t)i;
    cr_assert_eq(plan(net, n), QK_OK, "%s", net->error.text);
    for (size_t i = 0; i < net->plan.output_count; i++)
        outputs[i] = guarded_alloc(net->plan.output_bytes[i], 64);
    void *scratch = guarded_alloc(net->plan.scratch_bytes, 64);
    void *workspace = guarded_alloc(net->plan.workspace_bytes, 64);
    for (size_t i = 0; i < net->plan.node_count; i++)
        if (net->plan.nodes[i].plan.unit_count > 0)
            qk_graph_run(&net->plan, i, (const void *[]){x, numbers}, outputs, scratch, workspace,
                         0, net->plan.nodes[i].plan.unit_count);
    guarded_free(workspace);
    guarded_free(scratch);
    guarded_free(x);
}

/* Runs the graph and checks its output 0: these integers, or x in another shape if there are none.
 */
static void check(struct net *net, size_t n, size_t busy_count, const int64_t *expected,
                  size_t count)
{
    void *outputs[QK_GRAPH_PORT_COUNT_MAX];
    size_t busy = 0;
    run(net, n, outputs);
    for (size_t i = 0; i < net->plan.node_count; i++)
        busy += net->plan.nodes[i].plan.unit_count > 0;
    cr_expect_eq(busy, busy_count, "%zu nodes run", busy);
    for (size_t i = 0; i < (expected ? 0 : n * 12); i++)
        cr_assert_eq(((uint8_t *)outputs[0])[i], (uint8_t)i);
    if (expected) {
        cr_assert_eq(net->plan.output_bytes[0], count * sizeof(*expected));
        cr_expect_eq(memcmp(outputs[0], expected, count * sizeof(*expected)), 0);
    }
    for (size_t i = 0; i < net->plan.output_count; i++)
        guarded_free(outputs[i]);
}

static void expect_shape(const struct net *net, size_t output, uint32_t rank, const size_t *dims)
{
    cr_assert_eq(net->plan.outputs[output].rank, rank);
    for (uint32_t i = 0; i < rank; i++)
        cr_expect_eq(net->plan.outputs[output].dims[i], dims[i]);
}

static void expect_error(const struct net *net, enum qk_status status, const char *text)
{
    cr_assert_eq(status, QK_INVALID);
    cr_assert_str_eq(net->error.text, text);
}

/* ---- Values -------------------------------------------------------------------------------- */

Test(graph_planned, a_shape_of_any_batch)
{
    struct net net;
    net_init(&net);
    leaves(&net, reshape(&net, X, flat_shape(&net, shape_of(&net, X))));
    cr_assert_eq(prepare(&net), QK_OK, "%s", net.error.text);
    for (size_t n = 1; n < 4; n++) {
        check(&net, n, 1, NULL, 0);
        expect_shape(&net, 0, 2, (size_t[]){n, 12});
        cr_expect_eq(net.plan.scratch_bytes, 0);
        cr_expect_str_eq(net.plan.kernel, "move_copy");
    }
    net_deinit(&net);
}

/* What a run needs of it, the run computes, too. */
Test(graph_planned, a_value_that_leaves_the_graph)
{
    struct net net;
    net_init(&net);
    const uint32_t shape = flat_shape(&net, shape_of(&net, X));
    leaves(&net, shape);
    leaves(&net, reshape(&net, X, shape));
    cr_assert_eq(prepare(&net), QK_OK, "%s", net.error.text);
    check(&net, 5, 2, (int64_t[]){5, -1}, 2);
    expect_shape(&net, 1, 2, (size_t[]){5, 12});
    net_deinit(&net);
}

Test(graph_planned, a_value_that_a_run_reads)
{
    struct net net;
    net_init(&net);
    const uint32_t shape = flat_shape(&net, shape_of(&net, X));
    const uint32_t sum = add(&net, "onnx.Add", 14);
    reads(&net, "A", shape);
    reads(&net, "B", NUMBERS);
    leaves(&net, sum);
    leaves(&net, reshape(&net, X, shape));
    cr_assert_eq(prepare(&net), QK_OK, "%s", net.error.text);
    check(&net, 5, 2, (int64_t[]){12, 7}, 2);
    cr_expect_eq(net.plan.scratch_bytes, 0);
    net_deinit(&net);
}

/* An alias of a planned value lies where the value does. */
Test(graph_planned, an_alias_that_a_run_reads)
{
    struct net net;
    net_init(&net);
    const uint32_t shape = flat_shape(&net, shape_of(&net, X));
    const uint32_t same = add(&net, "onnx.Identity", 13);
    reads(&net, "input", shape);
    const uint32_t sum = add(&net, "onnx.Add", 14);
    reads(&net, "A", same);
    reads(&net, "B", NUMBERS);
    leaves(&net, sum);
    leaves(&net, reshape(&net, X, shape));
    cr_assert_eq(prepare(&net), QK_OK, "%s", net.error.text);
    check(&net, 5, 2, (int64_t[]){12, 7}, 2);
    cr_expect_eq(net.plan.scratch_bytes, 0);
    net_deinit(&net);
}

/* The copy that only Shape reads never runs, and takes no memory. */
Test(graph_planned, the_shape_of_what_no_run_reads)
{
    struct net net;
    net_init(&net);
    const uint32_t turned = add(&net, "onnx.Transpose", 13);
    reads(&net, "data", X);
    qk_test_call_ints(&last(&net)->call, "perm", (int64_t[]){2, 0, 1}, 3);
    leaves(&net, reshape(&net, X, shape_of(&net, turned)));
    cr_assert_eq(prepare(&net), QK_OK, "%s", net.error.text);
    check(&net, 2, 1, NULL, 0);
    expect_shape(&net, 0, 3, (size_t[]){4, 2, 3});
    cr_expect_eq(net.plan.scratch_bytes, 0);
    net_deinit(&net);
}

Test(graph_planned, a_shape_that_leaves_the_graph)
{
    struct net net;
    net_init(&net);
    leaves(&net, shape_of(&net, X));
    cr_assert_eq(prepare(&net), QK_OK, "%s", net.error.text);
    check(&net, 9, 1, (int64_t[]){9, 3, 4}, 3);
    net_deinit(&net);
}

/* Of the parts, a plan needs one, a run reads another, and a third leaves the graph. */
static void check_split(bool third_leaves)
{
    struct net net;
    net_init(&net);
    const uint32_t shape = shape_of(&net, X);
    const uint32_t first = add(&net, "onnx.Split", 13);
    reads(&net, "input", shape);
    takes(&net, "split", 1, 3, (int64_t[]){1, 1, 1});
    last(&net)->outputs[1] = (uint32_t)net.call.value_count++;
    last(&net)->outputs[2] = (uint32_t)net.call.value_count++;
    const uint32_t both = add(&net, "onnx.Concat", 13);
    reads(&net, "input_0", first);
    takes(&net, "input_1", 1, 1, (int64_t[]){-1});
    qk_test_call_int(&last(&net)->call, "axis", 0);
    const uint32_t sum = add(&net, "onnx.Mul", 14);
    reads(&net, "A", first + 1);
    reads(&net, "B", NUMBERS);
    leaves(&net, sum);
    leaves(&net, reshape(&net, X, both));
    if (third_leaves)
        leaves(&net, first + 2);
    cr_assert_eq(prepare(&net), QK_OK, "%s", net.error.text);
    check(&net, 6, third_leaves ? 3 : 2, (int64_t[]){21, 24}, 2);
    expect_shape(&net, 1, 2, (size_t[]){6, 12});
    net_deinit(&net);
}

Test(graph_planned, parts_of_a_shape)
{
    check_split(false);
    check_split(true);
}

/* ---- Operators of images ------------------------------------------------------------------- */

/* The shape [n, 3, 4] times a list of three integers. */
static uint32_t shape_times(struct net *net, const int64_t *factors)
{
    const uint32_t shape = shape_of(net, X);
    const uint32_t product = add(net, "onnx.Mul", 14);
    reads(net, "A", shape);
    takes(net, "B", 1, 3, factors);
    return product;
}

static uint32_t resize(struct net *net, const char *input, uint32_t value)
{
    const uint32_t made = add(net, "onnx.Resize", 13);
    reads(net, "X", X);
    reads(net, input, value);
    qk_test_call_string(&last(net)->call, "coordinate_transformation_mode", "asymmetric");
    qk_test_call_string(&last(net)->call, "nearest_mode", "floor");
    return made;
}

/* Runs the graph for n = 2 and checks the shape of output 0 and some of its bytes. */
static void check_bytes(struct net *net, const size_t *dims, const uint8_t *bytes, size_t count)
{
    void *outputs[QK_GRAPH_PORT_COUNT_MAX];
    cr_assert_eq(prepare(net), QK_OK, "%s", net->error.text);
    run(net, 2, outputs);
    expect_shape(net, 0, 3, dims);
    cr_assert_leq(count, net->plan.output_bytes[0]);
    cr_expect_eq(memcmp(outputs[0], bytes, count), 0);
    for (size_t i = 0; i < net->plan.output_count; i++)
        guarded_free(outputs[i]);
    net_deinit(net);
}

/* PyTorch exports interpolate with the sizes of another tensor so. */
Test(graph_planned, sizes_of_resize)
{
    struct net net;
    net_init(&net);
    leaves(&net, resize(&net, "sizes", shape_times(&net, (int64_t[]){1, 1, 2})));
    check_bytes(&net, (size_t[]){2, 3, 8}, (uint8_t[]){0, 0, 1, 1, 2, 2, 3, 3, 4}, 9);
}

/* Paddle exports scales as the quotient of two shapes. */
Test(graph_planned, scales_of_resize)
{
    struct net net;
    net_init(&net);
    const uint32_t larger = shape_times(&net, (int64_t[]){1, 2, 1});
    uint32_t floats[2];
    for (size_t i = 0; i < 2; i++) {
        const uint32_t shape = i == 0 ? larger : shape_of(&net, X);
        floats[i] = add(&net, "onnx.Cast", 13);
        reads(&net, "input", shape);
        qk_test_call_int(&last(&net)->call, "to", 1 /* FP32 */);
    }
    const uint32_t scales = add(&net, "onnx.Div", 14);
    reads(&net, "A", floats[0]);
    reads(&net, "B", floats[1]);
    leaves(&net, resize(&net, "scales", scales));
    check_bytes(&net, (size_t[]){2, 6, 4}, (uint8_t[]){0, 1, 2, 3, 0, 1, 2, 3, 4}, 9);
}

/* Sizes that a plan computes are bounded as constants are. */
Test(graph_planned, sizes_of_resize_that_are_too_large)
{
    struct net net;
    net_init(&net);
    leaves(&net, resize(&net, "sizes", shape_times(&net, (int64_t[]){1, 1, INT64_C(1) << 46})));
    cr_assert_eq(prepare(&net), QK_OK, "%s", net.error.text);
    expect_error(&net, plan(&net, 2),
                 "node 2 (\"n\", onnx.Resize): sizes: expected sizes in [0, 140737488355327], got "
                 "281474976710656");
    net_deinit(&net);
}

Test(graph_planned, sizes_of_split)
{
    struct net net;
    net_init(&net);
    const uint32_t shape = shape_of(&net, X);
    const uint32_t sizes = add(&net, "onnx.Slice", 13);
    reads(&net, "data", shape);
    takes(&net, "starts", 1, 1, (int64_t[]){1});
    takes(&net, "ends", 1, 1, (int64_t[]){2});
    const uint32_t both = add(&net, "onnx.Concat", 13);
    reads(&net, "input_0", sizes);
    takes(&net, "input_1", 1, 1, (int64_t[]){1});
    qk_test_call_int(&last(&net)->call, "axis", 0);
    leaves(&net, add(&net, "onnx.Split", 13));
    reads(&net, "input", X);
    reads(&net, "split", both);
    qk_test_call_int(&last(&net)->call, "axis", 2);
    last(&net)->call.output_count = 2;
    check_bytes(&net, (size_t[]){2, 3, 3}, (uint8_t[]){0, 1, 2, 4, 5, 6, 8, 9, 10, 12}, 10);
}

/* A node of two outputs gets three sizes. */
Test(graph_planned, sizes_of_split_that_are_too_many)
{
    struct net net;
    net_init(&net);
    const uint32_t sizes = shape_of(&net, X);
    leaves(&net, add(&net, "onnx.Split", 13));
    reads(&net, "input", X);
    reads(&net, "split", sizes);
    last(&net)->call.output_count = 2;
    cr_assert_eq(prepare(&net), QK_OK, "%s", net.error.text);
    expect_error(&net, plan(&net, 2),
                 "node 1 (\"n\", onnx.Split): split: expected 2, the number of outputs, got 3");
    net_deinit(&net);
}

/* PyTorch exports pads as half of a list, and the rest by ConstantOfShape. */
Test(graph_planned, pads_and_axes)
{
    struct net net;
    net_init(&net);
    const uint32_t shape = shape_of(&net, X);
    const uint32_t pads = add(&net, "onnx.Slice", 13);
    reads(&net, "data", shape);
    takes(&net, "starts", 1, 1, (int64_t[]){0});
    takes(&net, "ends", 1, 1, (int64_t[]){2});
    const uint32_t axes = add(&net, "onnx.Sub", 14);
    reads(&net, "A", pads);
    reads(&net, "B", pads);
    const uint32_t axis = add(&net, "onnx.Slice", 13);
    reads(&net, "data", axes);
    takes(&net, "starts", 1, 1, (int64_t[]){0});
    takes(&net, "ends", 1, 1, (int64_t[]){1});
    leaves(&net, add(&net, "onnx.Pad", 18));
    reads(&net, "data", X);
    reads(&net, "pads", pads);
    reads(&net, "axes", axis);
    const uint8_t bytes[26] = {[25] = 1};
    check_bytes(&net, (size_t[]){2 + 2 + 3, 3, 4}, bytes, sizeof(bytes));
}

Test(graph_planned, pads_that_depend_on_data)
{
    struct net net;
    net_init(&net);
    leaves(&net, add(&net, "onnx.Pad", 18));
    reads(&net, "data", X);
    reads(&net, "pads", NUMBERS);
    expect_error(
        &net, prepare(&net),
        "node 0 (\"n\", onnx.Pad): pads: expected a constant, or a value that follows from "
        "shapes alone, got value 1 (\"v\"): it is input 1");
    net_deinit(&net);
}

/* ---- Refusals ------------------------------------------------------------------------------ */

Test(graph_planned, a_shape_that_depends_on_data)
{
    struct net net;
    net_init(&net);
    const uint32_t sum = add(&net, "onnx.Add", 14);
    reads(&net, "A", NUMBERS);
    takes(&net, "B", 0, 1, (int64_t[]){1});
    const uint32_t same = add(&net, "onnx.Identity", 13);
    reads(&net, "input", sum);
    leaves(&net, reshape(&net, X, same));
    expect_error(
        &net, prepare(&net),
        "node 2 (\"n\", onnx.Reshape): shape: expected a constant, or a value that "
        "follows from shapes alone, got value 3 (\"v\"), which depends on value 1 (\"v\"): "
        "it is input 1");
    net_deinit(&net);
}

Test(graph_planned, values_that_no_shape_has)
{
    static const struct {
        const char *op;
        const char *text;
    } cases[] = {
        {"onnx.Mul", "node 2 (\"n\", onnx.Reshape): shape: expected sizes in [-1, "
                     "140737488355327], got -8446744073709551616"},
        {"onnx.Div", "node 1 (\"n\", onnx.Div): B: expected divisors other than 0, got 0 at 0"},
        {"onnx.Gather", "node 1 (\"n\", onnx.Gather): indices: expected integers in [-3, 2], got "
                        "10000000"},
        {"onnx.ConstantOfShape", "node 1 (\"n\", onnx.ConstantOfShape): output: expected at most "
                                 "4096 elements, because shapes depend on their values, got "
                                 "120000000"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct net net;
        net_init(&net);
        const uint32_t shape = shape_of(&net, X);
        const uint32_t made = add(&net, cases[i].op, 13);
        if (i == 0) {
            reads(&net, "A", shape);
            takes(&net, "B", 0, 1, (int64_t[]){1000000000000});
        } else if (i == 1) {
            takes(&net, "A", 0, 1, (int64_t[]){1});
            reads(&net, "B", shape);
        } else if (i == 2) {
            reads(&net, "data", shape);
            reads(&net, "indices", shape);
        } else {
            reads(&net, "input", shape);
            qk_test_call_input(&last(&net)->call, "value", QK_INT64, net.lists[1][1], 0, NULL);
        }
        leaves(&net, reshape(&net, X, made));
        cr_assert_eq(prepare(&net), QK_OK, "%s", net.error.text);
        expect_error(&net, plan(&net, i == 1 ? 0 : 10000000), cases[i].text);
        net_deinit(&net);
    }
}

/* Seventeen values of 4000 elements. */
Test(graph_planned, values_that_are_too_many)
{
    struct net net;
    net_init(&net);
    uint32_t value = add(&net, "onnx.Range", 11);
    const uint32_t size = add(&net, "onnx.Size", 13);
    reads(&net, "data", X);
    net.nodes[0].call.variable = 1U << 1;
    net.nodes[0].inputs[1] = size;
    static const int64_t numbers[] = {0, 1};
    qk_test_call_input(&net.nodes[0].call, "start", QK_INT64, &numbers[0], 0, NULL);
    qk_test_call_input(&net.nodes[0].call, "delta", QK_INT64, &numbers[1], 0, NULL);
    for (size_t i = 0; i < 16; i++) {
        const uint32_t same = add(&net, "onnx.Identity", 13);
        reads(&net, "input", value);
        value = same;
    }
    const uint32_t one = add(&net, "onnx.Slice", 13);
    reads(&net, "data", value);
    takes(&net, "starts", 1, 1, (int64_t[]){0});
    takes(&net, "ends", 1, 1, (int64_t[]){1});
    const uint32_t shape = add(&net, "onnx.Sub", 13);
    reads(&net, "A", one);
    takes(&net, "B", 0, 1, (int64_t[]){1});
    leaves(&net, reshape(&net, X, shape));
    cr_assert_eq(prepare(&net), QK_OK, "%s", net.error.text);
    expect_error(&net, plan(&net, 333),
                 "node 17 (\"n\", onnx.Identity): expected at most 65536 elements in all values on "
                 "which shapes depend, got at least 67933");
    check(&net, 300, 1, NULL, 0);
    expect_shape(&net, 0, 1, (size_t[]){3600});
    net_deinit(&net);
}

Test(graph_planned, no_memory)
{
    struct net net;
    enum qk_status status = QK_NO_MEMORY;
    net_init(&net);
    const uint32_t shape = flat_shape(&net, shape_of(&net, X));
    leaves(&net, shape);
    leaves(&net, reshape(&net, X, shape));
    cr_assert_eq(prepare(&net), QK_OK, "%s", net.error.text);
    const size_t before = net.memory.count;
    for (size_t i = 0; status == QK_NO_MEMORY; i++) {
        net.memory.fail_at = net.memory.count + i;
        status = plan(&net, 3);
        cr_assert_leq(i, 100);
    }
    cr_expect_eq(status, QK_OK, "%s", net.error.text);
    cr_expect_gt(net.memory.count - before, 10);
    net_deinit(&net);
}
