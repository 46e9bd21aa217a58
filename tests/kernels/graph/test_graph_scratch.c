/* How much scratch the graphs of common networks need. The least that any placement needs is the
 * most bytes that are alive at one node. Only sizes matter, so the test has an operator of its own,
 * which reads up to four values and makes one of any size. */
#include <criterion/criterion.h>

#include "kernels/graph.h"
#include "kernels/operators/operator.h"
#include "tests/support/kernels/qk_test.h"

#define RATIO_MAX 1.1 /* of scratch to what is alive */

/* ---- test.Make ----------------------------------------------------------------------------- */

enum { A, B, C, D, READ_MAX };

struct instance {
    struct qk_instance base;
    size_t bytes;
};

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    (void)kernels;
    struct instance *made = memory.alloc(memory.context, sizeof(*made));
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "out of memory");
    *made = (struct instance){.base = {.output_types = {QK_UINT8}},
                              .bytes = (size_t)call->attributes[0].number};
    *instance = &made->base;
    return QK_OK;
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *made, struct qk_error *error)
{
    const size_t bytes = ((const struct instance *)instance)->bytes;
    (void)inputs;
    (void)memory;
    (void)error;
    made->outputs[0] = (struct qk_tensor){.type = QK_UINT8, .rank = 1, .dims = {bytes}};
    qk_tensor_set_count(&made->outputs[0]);
    made->output_bytes[0] = bytes;
    made->kernel = "make";
    made->unit_count = 1;
    return QK_OK;
}

static const struct qk_version version = {
    .number = 1,
    .inputs = {{QK_BIT(QK_UINT8), false},
               {QK_BIT(QK_UINT8), true},
               {QK_BIT(QK_UINT8), true},
               {QK_BIT(QK_UINT8), true}},
    .output_types = {QK_BIT(QK_UINT8)},
};

static const struct qk_operator_code code = {.prepare = prepare, .plan = plan};

static const struct qk_attribute_def attributes[] = {QK_ATTRIBUTE("bytes", INT, 1, "its size")};

static const struct qk_operator make_operator = {
    .name = "test.Make",
    .inputs = {{.name = "a"}, {.name = "b"}, {.name = "c"}, {.name = "d"}},
    .input_count = READ_MAX,
    .variable_inputs = 1U << A | 1U << B | 1U << C | 1U << D,
    .outputs = {{.name = "y"}},
    .output_count = 1,
    QK_ATTRIBUTES(attributes),
    .versions = &version,
    .version_count = 1,
    .version_last = 1,
    .code = &code,
};

/* ---- A network ----------------------------------------------------------------------------- */

enum { NODES_MAX = 256 };

struct network {
    struct qk_graph_call call;
    struct qk_node nodes[NODES_MAX];
};

/* Adds a node that reads `count` values and makes a tensor [channels, side, side]. */
static uint32_t join(struct network *network, size_t count, const uint32_t *values, size_t channels,
                     size_t side)
{
    struct qk_node *node = &network->nodes[network->call.node_count++];
    cr_assert(network->call.node_count <= NODES_MAX && count <= READ_MAX);
    *node = (struct qk_node){.name = "", .call = {.op = &make_operator, .version = &version}};
    node->call.attributes[0] =
        (struct qk_attribute){.present = true, .number = (int64_t)(channels * side * side)};
    for (size_t i = 0; i < READ_MAX; i++) {
        node->inputs[i] = QK_VALUE_NONE;
        if (i >= count)
            continue;
        node->inputs[i] = values[i];
        node->call.variable |= UINT32_C(1) << i;
        node->call.inputs[i].type = QK_UINT8;
    }
    return node->outputs[0] = (uint32_t)network->call.value_count++;
}

static uint32_t from(struct network *network, uint32_t value, size_t channels, size_t side)
{
    return join(network, 1, &value, channels, side);
}

static uint32_t from_two(struct network *network, uint32_t a, uint32_t b, size_t channels,
                         size_t side)
{
    return join(network, 2, (const uint32_t[]){a, b}, channels, side);
}

static struct network *start(void)
{
    static struct network network;
    network.call = (struct qk_graph_call){.nodes = network.nodes, .value_count = 1};
    network.call.inputs[network.call.input_count++] = (struct qk_graph_input){0, QK_UINT8};
    return &network;
}

/* Returns the most bytes that are alive at one node. A value is alive from the node that makes it
 * to the last node that reads it, and then lies in the scratch. */
static size_t alive_most(const struct qk_graph *graph, const struct qk_graph_plan *plan)
{
    size_t most = 0;
    for (uint32_t node = 0; node < graph->node_count; node++) {
        size_t alive = 0;
        for (size_t i = 0; i < graph->value_count; i++) {
            const struct qk_graph_value *value = &graph->values[i];
            if (value->kind == QK_PLACEMENT_SCRATCH && value->maker <= node && node <= value->last)
                alive += plan->nodes[value->maker].plan.output_bytes[0];
        }
        most = alive > most ? alive : most;
    }
    return most;
}

static void check(struct network *network, uint32_t last)
{
    struct qk_test_memory memory;
    struct qk_graph *graph;
    struct qk_graph_plan made;
    struct qk_error error;
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    struct qk_tensor x = {.type = QK_UINT8, .rank = 1, .dims = {1}};
    qk_tensor_set_count(&x);
    network->call.outputs[network->call.output_count++] = last;
    qk_test_memory_init(&memory, SIZE_MAX);
    const struct qk_memory face = qk_test_memory_face(&memory);
    cr_assert_eq(qk_graph_prepare(kernels, &network->call, face, &graph, &error), QK_OK, "%s",
                 error.text);
    cr_assert_eq(qk_graph_plan(graph, &x, face, &made, &error), QK_OK, "%s", error.text);
    const size_t alive = alive_most(graph, &made);
    cr_expect_geq(made.scratch_bytes, alive);
    cr_expect_leq((double)made.scratch_bytes, RATIO_MAX * (double)alive,
                  "%zu bytes of scratch, of which %zu are alive", made.scratch_bytes, alive);
    qk_test_memory_deinit(&memory);
    qk_kernels_destroy(kernels);
}

/* ---- Networks ------------------------------------------------------------------------------ */

Test(graph_scratch, residual) /* ResNet-50 */
{
    static const size_t counts[] = {3, 4, 6, 3};
    struct network *network = start();
    uint32_t at = from(network, from(network, 0, 64, 112), 64, 56);
    size_t width = 64, side = 56;
    for (size_t stage = 0; stage < 4; stage++, width *= 2, side /= 2)
        for (size_t block = 0; block < counts[stage]; block++) {
            const size_t before = stage > 0 && block == 0 ? 2 * side : side;
            uint32_t branch = from(network, from(network, at, width, before), width, side);
            branch = from(network, branch, 4 * width, side);
            if (block == 0)
                at = from(network, at, 4 * width, side);
            at = from_two(network, branch, at, 4 * width, side);
        }
    check(network, from(network, from(network, at, 2048, 1), 1000, 1));
}

Test(graph_scratch, inverted_bottlenecks) /* MobileNetV3, with gates */
{
    static const struct {
        size_t wide, narrow, side, stride;
    } blocks[] = {{16, 16, 56, 2},  {72, 24, 28, 2},  {88, 24, 28, 1},  {96, 40, 14, 2},
                  {240, 40, 14, 1}, {240, 40, 14, 1}, {120, 48, 14, 1}, {144, 48, 14, 1},
                  {288, 96, 7, 2},  {576, 96, 7, 1},  {576, 96, 7, 1}};
    struct network *network = start();
    uint32_t at = from(network, 0, 16, 112);
    for (size_t i = 0; i < QK_LENGTH_OF(blocks); i++) {
        const size_t wide = blocks[i].wide, narrow = blocks[i].narrow, side = blocks[i].side;
        uint32_t inner = from(network, at, wide, side * blocks[i].stride);
        inner = from_two(network, inner, from(network, inner, wide, side * blocks[i].stride), wide,
                         side * blocks[i].stride);
        inner = from(network, inner, wide, side);
        const uint32_t gate = from(network, from(network, inner, wide, 1), wide, 1);
        inner = from(network, from_two(network, inner, gate, wide, side), narrow, side);
        const bool adds = i > 0 && blocks[i - 1].narrow == narrow && blocks[i].stride == 1;
        at = adds ? from_two(network, inner, at, narrow, side) : inner;
    }
    check(network, from(network, at, 1000, 1));
}

Test(graph_scratch, dense) /* DenseNet-121's first two blocks */
{
    struct network *network = start();
    uint32_t at = from(network, from(network, 0, 64, 112), 64, 56);
    size_t channels = 64, side = 56;
    for (size_t block = 0; block < 2; block++) {
        for (size_t i = 0; i < (block == 0 ? 6 : 12); i++, channels += 32) {
            const uint32_t scaled = from(network, at, channels, side);
            const uint32_t grown = from(network, from(network, scaled, 128, side), 32, side);
            at = from_two(network, at, grown, channels + 32, side);
        }
        channels /= 2;
        at = from(network, from(network, at, channels, side), channels, side / 2);
        side /= 2;
    }
    check(network, from(network, at, 1000, 1));
}

Test(graph_scratch, inception) /* GoogLeNet's first modules: 1x1, 3x3, 5x5 and a pool */
{
    static const size_t widths[][6] = {{64, 96, 128, 16, 32, 32},
                                       {128, 128, 192, 32, 96, 64},
                                       {192, 96, 208, 16, 48, 64},
                                       {160, 112, 224, 24, 64, 64}};
    struct network *network = start();
    uint32_t at = from(network, from(network, 0, 64, 112), 192, 28);
    size_t channels = 192;
    for (size_t i = 0; i < QK_LENGTH_OF(widths); i++) {
        const size_t *width = widths[i], side = i < 2 ? 28 : 14;
        if (i == 2)
            at = from(network, at, channels, side);
        const uint32_t branches[] = {
            from(network, at, width[0], side),
            from(network, from(network, at, width[1], side), width[2], side),
            from(network, from(network, at, width[3], side), width[4], side),
            from(network, from(network, at, channels, side), width[5], side)};
        channels = width[0] + width[2] + width[4] + width[5];
        at = join(network, 4, branches, channels, side);
    }
    check(network, from(network, at, 1000, 1));
}

Test(graph_scratch, pyramid) /* U-Net: long shortcuts from the way down to the way up */
{
    enum { LEVELS = 5 };
    struct network *network = start();
    uint32_t down[LEVELS];
    uint32_t at = 0;
    for (size_t i = 0; i < LEVELS; i++) {
        const size_t channels = (size_t)16 << i, side = (size_t)256 >> i;
        down[i] = from(network, from(network, at, channels, side), channels, side);
        at = from(network, down[i], channels, side / 2);
    }
    for (size_t i = LEVELS; i-- > 0;) {
        const size_t channels = (size_t)16 << i, side = (size_t)256 >> i;
        at = from(network, at, channels, side);
        at = from_two(network, down[i], at, 2 * channels, side);
        at = from(network, from(network, at, channels, side), channels, side);
    }
    check(network, from(network, at, 1, 256));
}
