/* Graphs of nodes that read two values and make two. No operator does that yet, so the test has its
 * own operator. */
#include <criterion/criterion.h>
#include <string.h>

#include "kernels/operators/operator.h"
#include "tests/support/guarded.h"
#include "tests/support/kernels/qk_test.h"

/* ---- test.Mix: the longer of a and b, and the shorter -------------------------------------- */

enum { A, B };

/* If b is absent, a takes its place. */
struct sizes {
    size_t a, b;
};

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    (void)kernels;
    *instance = memory.alloc(memory.context, sizeof(**instance));
    if (!*instance)
        return qk_fail(error, QK_NO_MEMORY, "out of memory");
    **instance = (struct qk_instance){.output_types = {call->inputs[A].type, QK_UINT8}};
    return QK_OK;
}

/* Computes long[i] = a[i] + 3 b[i] + 1, where the shorter operand repeats, and short[i] = a[i] ^
 * b[i]. */
static void mix(const struct sizes *sizes, const uint8_t *a, const uint8_t *b, uint8_t *longer,
                uint8_t *shorter)
{
    const size_t most = sizes->a > sizes->b ? sizes->a : sizes->b;
    const size_t least = sizes->a > sizes->b ? sizes->b : sizes->a;
    for (size_t i = 0; i < most; i++)
        longer[i] = (uint8_t)(a[i % sizes->a] + 3 * b[i % sizes->b] + 1);
    for (size_t i = 0; i < least; i++)
        shorter[i] = (uint8_t)(a[i] ^ b[i]);
}

static void run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                void *workspace, size_t begin, size_t end)
{
    const uint8_t *b = inputs[B] ? inputs[B] : inputs[A];
    (void)workspace;
    if (begin < end)
        mix(plan->state, inputs[A], b, outputs[0], outputs[1]);
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *made, struct qk_error *error)
{
    struct sizes *sizes = memory.alloc(memory.context, sizeof(*sizes));
    if (!sizes)
        return qk_fail(error, QK_NO_MEMORY, "out of memory");
    sizes->a = inputs[A].count;
    sizes->b = instance->types[B] == QK_NONE ? sizes->a : inputs[B].count;
    for (size_t i = 0; i < 2; i++) {
        made->outputs[i] = (struct qk_tensor){.type = QK_UINT8, .rank = 1};
        made->outputs[i].dims[0] = (sizes->a > sizes->b) == (i == 0) ? sizes->a : sizes->b;
        made->output_bytes[i] = made->outputs[i].dims[0];
        if (!qk_tensor_set_count(&made->outputs[i]))
            return qk_fail(error, QK_INVALID, "a: too long");
    }
    made->kernel = "mix";
    made->unit_count = 1;
    made->run = run;
    made->state = sizes;
    return QK_OK;
}

static const struct qk_version version = {
    .number = 1,
    .inputs = {{QK_BIT(QK_UINT8), false}, {QK_BIT(QK_UINT8), true}},
    .output_types = {QK_BIT(QK_UINT8), QK_BIT(QK_UINT8)},
};

static const struct qk_operator_code code = {.prepare = prepare, .plan = plan};

static const struct qk_operator mix_operator = {
    .name = "test.Mix",
    .inputs = {{.name = "a"}, {.name = "b"}},
    .input_count = 2,
    .variable_inputs = 1U << A | 1U << B,
    .outputs = {{.name = "long"}, {.name = "short"}},
    .output_count = 2,
    .versions = &version,
    .version_count = 1,
    .version_last = 1,
    .code = &code,
};

/* ---- Random graphs of test.Mix ------------------------------------------------------------- */

enum { NODES_MAX = 24, INPUTS_MAX = 6, SIZE_LIMIT = 3000, VALUES_MAX = 2 * NODES_MAX + INPUTS_MAX };

struct mixed {
    struct qk_graph_call call;
    struct qk_node nodes[NODES_MAX];
    size_t sizes[VALUES_MAX];
    uint8_t *data[VALUES_MAX]; /* the expected contents of each value */
    uint64_t random;
};

static size_t pick(struct mixed *mixed, size_t limit)
{
    return qk_test_random_below(&mixed->random, limit);
}

static uint32_t add_value(struct mixed *mixed, size_t bytes)
{
    const size_t value = mixed->call.value_count++;
    mixed->sizes[value] = bytes;
    mixed->data[value] = guarded_alloc(bytes, 64);
    return (uint32_t)value;
}

static void add_input(struct mixed *mixed)
{
    const uint32_t value = add_value(mixed, 1 + pick(mixed, SIZE_LIMIT));
    for (size_t i = 0; i < mixed->sizes[value]; i++)
        mixed->data[value][i] = (uint8_t)(qk_test_random(&mixed->random) >> 40);
    mixed->call.inputs[mixed->call.input_count++] = (struct qk_graph_input){value, QK_UINT8};
}

/* Adds a node that reads any two values or, sometimes, only one. Some results are unused. */
static void add_node(struct mixed *mixed)
{
    struct qk_node *node = &mixed->nodes[mixed->call.node_count++];
    const size_t count = mixed->call.value_count;
    const uint32_t a = (uint32_t)(count - 1 - pick(mixed, pick(mixed, 2) && count > 5 ? 5 : count));
    const uint32_t b = pick(mixed, 6) ? (uint32_t)pick(mixed, count) : QK_VALUE_NONE;
    const struct sizes sizes = {mixed->sizes[a], mixed->sizes[b == QK_VALUE_NONE ? a : b]};
    const uint32_t longer = add_value(mixed, sizes.a > sizes.b ? sizes.a : sizes.b);
    const uint32_t shorter = add_value(mixed, sizes.a > sizes.b ? sizes.b : sizes.a);
    mix(&sizes, mixed->data[a], mixed->data[b == QK_VALUE_NONE ? a : b], mixed->data[longer],
        mixed->data[shorter]);
    *node = (struct qk_node){
        .name = "",
        .call = {.op = &mix_operator, .version = &version, .variable = 1U << A | 1U << B},
        .inputs = {a, b},
        .outputs = {longer, shorter},
    };
}

static void mixed_init(struct mixed *mixed, uint64_t seed)
{
    *mixed = (struct mixed){.random = seed, .call.nodes = mixed->nodes};
    for (size_t i = 1 + pick(mixed, INPUTS_MAX); i-- > 0;)
        add_input(mixed);
    for (size_t i = 2 + pick(mixed, NODES_MAX - 2); i-- > 0;)
        add_node(mixed);
    const size_t last = mixed->call.node_count - 1;
    mixed->call.outputs[mixed->call.output_count++] = mixed->nodes[last].outputs[0];
    for (size_t i = 0; i < last; i++)
        for (size_t k = 0; k < 2; k++)
            if (pick(mixed, 6) == 0 && mixed->call.output_count < QK_GRAPH_PORT_COUNT_MAX)
                mixed->call.outputs[mixed->call.output_count++] = mixed->nodes[i].outputs[k];
    if (pick(mixed, 2))
        mixed->nodes[last].outputs[1] = QK_VALUE_NONE;
}

static void mixed_deinit(struct mixed *mixed)
{
    for (size_t i = 0; i < mixed->call.value_count; i++)
        guarded_free(mixed->data[i]);
}

static void check(const struct mixed *mixed, const struct qk_graph_plan *made)
{
    const void *inputs[INPUTS_MAX];
    void *outputs[QK_GRAPH_PORT_COUNT_MAX];
    void *scratch = guarded_alloc(made->scratch_bytes, 64);
    for (size_t i = 0; i < mixed->call.input_count; i++)
        inputs[i] = mixed->data[i];
    for (size_t i = 0; i < made->output_count; i++)
        outputs[i] = guarded_alloc(made->output_bytes[i], 64);
    for (size_t i = 0; i < made->node_count; i++)
        qk_graph_run(made, i, inputs, outputs, scratch, NULL, 0, made->nodes[i].plan.unit_count);
    for (size_t i = 0; i < made->output_count; i++) {
        const uint32_t value = mixed->call.outputs[i];
        cr_assert_eq(made->output_bytes[i], mixed->sizes[value]);
        cr_assert_eq(memcmp(outputs[i], mixed->data[value], mixed->sizes[value]), 0,
                     "output %zu: other bytes", i);
        guarded_free(outputs[i]);
    }
    guarded_free(scratch);
}

Test(graph_joins, random_graphs)
{
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    static struct mixed mixed;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct qk_tensor inputs[INPUTS_MAX];
        struct qk_test_memory memory;
        struct qk_graph *graph;
        struct qk_graph_plan made;
        struct qk_error error;
        mixed_init(&mixed, seed * 7919);
        qk_test_memory_init(&memory, SIZE_MAX);
        struct qk_memory face = qk_test_memory_face(&memory);
        for (size_t i = 0; i < mixed.call.input_count; i++) {
            inputs[i] = (struct qk_tensor){.type = QK_UINT8, .rank = 1, .dims = {mixed.sizes[i]}};
            cr_assert(qk_tensor_set_count(&inputs[i]));
        }
        cr_assert_eq(qk_graph_prepare(kernels, &mixed.call, face, &graph, &error), QK_OK, "%s",
                     error.text);
        cr_assert_eq(qk_graph_plan(graph, inputs, face, &made, &error), QK_OK, "%s", error.text);
        check(&mixed, &made);
        qk_test_memory_deinit(&memory);
        mixed_deinit(&mixed);
    }
    qk_kernels_destroy(kernels);
}
