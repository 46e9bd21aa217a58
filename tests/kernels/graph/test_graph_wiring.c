/* Graphs with random wires. Each graph must be refused, or must compute the results of its nodes
 * run one by one. Every node can read every value, so only the wires decide. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/guarded.h"
#include "tests/support/kernels/graph_case.h"

enum { ROUNDS = 5000, NODES_MAX = 6 };

/* What makes a value: the index of a node, an input, nothing, or several of these. */
enum { INPUT = -1, NOTHING = -2, SEVERAL = -3 };

struct makers {
    int of[GRAPH_CASE_VALUES_MAX];
};

static void add_maker(struct makers *makers, const struct qk_graph_call *call, uint32_t value,
                      int maker, bool *sound)
{
    if (value >= call->value_count)
        *sound = false;
    else
        makers->of[value] = makers->of[value] == NOTHING ? maker : SEVERAL;
}

/* Returns true if the value of a node can be computed from inputs by going back at most `depth`
 * nodes. */
static bool reaches_input(const struct qk_graph_call *call, const struct makers *makers,
                          size_t node, size_t depth)
{
    const uint32_t value = call->nodes[node].inputs[0];
    if (depth == 0 || value >= call->value_count)
        return false;
    const int maker = makers->of[value];
    return maker == INPUT || (maker >= 0 && reaches_input(call, makers, (size_t)maker, depth - 1));
}

/* Checks the rules of qk.h for graphs, independently of kernels/. */
static bool is_sound(const struct qk_graph_call *call, struct makers *makers)
{
    bool sound = true;
    for (size_t i = 0; i < call->value_count; i++)
        makers->of[i] = NOTHING;
    for (size_t i = 0; i < call->input_count; i++)
        add_maker(makers, call, call->inputs[i].value, INPUT, &sound);
    for (size_t i = 0; i < call->node_count; i++)
        if (call->nodes[i].outputs[0] != QK_VALUE_NONE)
            add_maker(makers, call, call->nodes[i].outputs[0], (int)i, &sound);
    for (size_t i = 0; i < call->value_count; i++)
        sound = sound && makers->of[i] != SEVERAL;
    for (size_t i = 0; i < call->node_count; i++)
        sound = sound && reaches_input(call, makers, i, call->node_count);
    for (size_t i = 0; i < call->output_count; i++) {
        const uint32_t value = call->outputs[i];
        sound = sound && value < call->value_count && makers->of[value] >= 0;
        for (size_t k = 0; k < i; k++)
            sound = sound && call->outputs[k] != value;
    }
    return sound;
}

/* Returns one of the values or, rarely, a number that is no value. */
static uint32_t pick(const struct graph_case *made, uint64_t *random)
{
    const size_t value = qk_test_random_below(random, made->call.value_count * 8 + 2);
    return (uint32_t)(value < made->call.value_count * 8 ? value / 8 : QK_VALUE_NONE - value % 2);
}

static void wire(struct graph_case *made, uint64_t *random)
{
    made->call.node_count = 1 + qk_test_random_below(random, NODES_MAX);
    for (size_t i = 0; i < made->call.node_count; i++) {
        if (qk_test_random_below(random, 3) == 0)
            made->nodes[i].inputs[0] = pick(made, random);
        if (qk_test_random_below(random, 8) == 0)
            made->nodes[i].outputs[0] = pick(made, random);
    }
    made->call.output_count = 1 + qk_test_random_below(random, 3);
    for (size_t i = 0; i < made->call.output_count; i++)
        made->call.outputs[i] = pick(made, random);
}

/* Computes the expected values of the new wiring. */
static void compute(struct graph_case *made, const struct makers *makers, uint32_t value)
{
    const struct qk_node *node = &made->nodes[makers->of[value]];
    const int maker = makers->of[node->inputs[0]];
    if (maker >= 0)
        compute(made, makers, node->inputs[0]);
    struct qk_call call = node->call;
    struct qk_test_result result;
    call.inputs[0] = made->values[node->inputs[0]];
    qk_test_run(made->scalar, &call, &result);
    cr_assert_eq(result.status, QK_OK, "%s", result.error.text);
    memcpy((void *)made->values[value].data, result.output, result.plan.output_bytes[0]);
    qk_test_result_deinit(&result);
}

static struct graph_case *make_case(void)
{
    struct graph_case *made = graph_case_create(1);
    uint32_t x = graph_case_input(made, QK_UINT8, "1,1,5,5");
    graph_case_input(made, QK_UINT8, "1,1,5,5");
    for (size_t i = 0; i < NODES_MAX; i++)
        x = graph_case_conv(made, x, 1, QK_UINT8);
    graph_case_output(made, x);
    return made;
}

Test(graph_wiring, is_refused_or_right)
{
    struct graph_case *made = make_case();
    uint64_t random = 4711;
    size_t sound_count = 0;
    struct qk_node nodes[NODES_MAX];
    memcpy(nodes, made->nodes, sizeof(nodes));
    for (size_t i = 0; i < ROUNDS; i++) {
        struct qk_test_memory memory;
        struct qk_graph *graph;
        struct qk_graph_plan plan;
        struct qk_error error;
        struct makers makers;
        memcpy(made->nodes, nodes, sizeof(nodes));
        wire(made, &random);
        qk_test_memory_init(&memory, SIZE_MAX);
        struct qk_memory face = qk_test_memory_face(&memory);
        const bool sound = is_sound(&made->call, &makers);
        const enum qk_status status =
            qk_graph_prepare(made->scalar, &made->call, face, &graph, &error);
        cr_assert_eq(status, sound ? QK_OK : QK_INVALID, "round %zu: %s", i, error.text);
        if (sound) {
            sound_count++;
            for (size_t k = 0; k < made->call.output_count; k++)
                compute(made, &makers, made->call.outputs[k]);
            qk_graph_pack(graph, 0, graph->pack_unit_count);
            cr_assert_eq(graph_case_plan(made, graph, face, &plan, &error), QK_OK);
            graph_case_run(made, &plan, 1 + i);
        }
        qk_test_memory_deinit(&memory);
    }
    cr_expect_gt(sound_count, ROUNDS / 50);
    cr_expect_lt(sound_count, ROUNDS / 2);
    graph_case_destroy(made);
}
