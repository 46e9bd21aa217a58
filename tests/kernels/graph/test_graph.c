/* Runs graphs. Outputs must be those of the nodes run one by one, and intermediate values may share
 * memory only if that is safe. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>

#include "tests/support/guarded.h"
#include "tests/support/kernels/graph_case.h"

/* Checks a graph with every backend that this CPU has. */
static void check_all(const struct graph_case *made)
{
    struct qk_test_gemms gemms;
    qk_test_gemms_init(&gemms);
    for (size_t i = 0; i < gemms.count; i++)
        graph_case_check(made, gemms.kernels[i]);
    qk_test_gemms_deinit(&gemms);
}

/* ---- Shapes of graphs ---------------------------------------------------------------------- */

Test(graph, a_single_node)
{
    struct graph_case *made = graph_case_create(1);
    const uint32_t x = graph_case_input(made, QK_UINT8, "2,5,9,7");
    graph_case_output(made, graph_case_conv(made, x, 6, QK_INT8));
    check_all(made);
    graph_case_destroy(made);
}

/* Adds a chain from floats to floats over two convolutions. Returns the last value. */
static uint32_t add_chain(struct graph_case *made, uint32_t x)
{
    x = graph_case_quantize(made, x, QK_UINT8);
    x = graph_case_conv(made, x, 8, QK_INT8);
    x = graph_case_conv(made, x, 5, QK_UINT8);
    return graph_case_dequantize(made, x, QK_FP32);
}

Test(graph, a_chain)
{
    struct graph_case *made = graph_case_create(2);
    const uint32_t x = graph_case_input(made, QK_FP32, "1,3,16,15");
    graph_case_output(made, add_chain(made, x));
    check_all(made);
    graph_case_destroy(made);
}

Test(graph, nodes_in_any_order)
{
    struct graph_case *made = graph_case_create(3);
    const uint32_t x = graph_case_input(made, QK_FP32, "1,3,8,8");
    graph_case_output(made, add_chain(made, add_chain(made, x)));
    for (size_t i = 0; i < 20; i++) {
        graph_case_shuffle(made);
        graph_case_check(made, made->scalar);
    }
    graph_case_destroy(made);
}

Test(graph, values_that_several_read)
{
    struct graph_case *made = graph_case_create(4);
    const uint32_t x = graph_case_input(made, QK_UINT8, "1,4,8,8");
    const uint32_t first = graph_case_conv(made, x, 4, QK_UINT8);
    const uint32_t left = graph_case_conv(made, first, 8, QK_INT8);
    const uint32_t right = graph_case_conv(made, x, 8, QK_INT8);
    graph_case_output(made, graph_case_dequantize(made, left, QK_FP32));
    graph_case_output(made, graph_case_dequantize(made, first, QK_FP16));
    graph_case_output(made, graph_case_dequantize(made, right, QK_BF16));
    check_all(made);
    graph_case_destroy(made);
}

Test(graph, an_output_that_is_read)
{
    struct graph_case *made = graph_case_create(5);
    const uint32_t x = graph_case_input(made, QK_FP32, "1,3,8,8");
    const uint32_t quantized = graph_case_quantize(made, x, QK_UINT8);
    const uint32_t sums = graph_case_conv(made, quantized, 7, QK_UINT8);
    graph_case_output(made, sums);
    graph_case_output(made, graph_case_conv(made, sums, 3, QK_INT8));
    graph_case_output(made, quantized);
    check_all(made);
    graph_case_destroy(made);
}

Test(graph, a_node_whose_inputs_are_all_constant)
{
    struct graph_case *made = graph_case_create(6);
    const uint32_t x = graph_case_input(made, QK_INT8, "2,3,4,5");
    const uint32_t fixed = graph_case_constant(made, x, QK_FP16);
    graph_case_output(
        made, graph_case_conv(made, graph_case_quantize(made, fixed, QK_UINT8), 2, QK_UINT8));
    check_all(made);
    graph_case_destroy(made);
}

Test(graph, without_inputs)
{
    struct graph_case *made = graph_case_create(7);
    const uint32_t x = graph_case_input(made, QK_INT8, "2,3,4,5");
    graph_case_output(made,
                      graph_case_quantize(made, graph_case_constant(made, x, QK_FP32), QK_INT4));
    made->call.input_count = 0;
    check_all(made);
    graph_case_destroy(made);
}

Test(graph, values_that_nobody_reads)
{
    struct graph_case *made = graph_case_create(8);
    const uint32_t x = graph_case_input(made, QK_UINT8, "1,3,8,8");
    graph_case_input(made, QK_FP32, "3");
    graph_case_conv(made, x, 100, QK_UINT8);
    const uint32_t quantized =
        graph_case_quantize(made, graph_case_dequantize(made, x, QK_FP32), QK_UINT8);
    graph_case_conv(made, x, 90, QK_UINT8);
    made->nodes[3].outputs[0] = QK_VALUE_NONE; /* so no node makes the value */
    graph_case_output(made, quantized);
    check_all(made);
    graph_case_destroy(made);
}

Test(graph, empty_tensors)
{
    struct graph_case *made = graph_case_create(9);
    const uint32_t x = graph_case_input(made, QK_FP32, "0,3,16,15");
    const uint32_t y = graph_case_input(made, QK_FP32, "2,0,3");
    graph_case_output(made, add_chain(made, x));
    graph_case_output(made,
                      graph_case_dequantize(made, graph_case_quantize(made, y, QK_UINT4), QK_BF16));
    check_all(made);
    graph_case_destroy(made);
}

/* ---- Random graphs ------------------------------------------------------------------------- */

static size_t pick(struct graph_case *made, size_t limit)
{
    return qk_test_random_below(&made->random, limit);
}

/* Adds a node that can read the value. Here and below, each statement draws one random number,
 * because the compiler chooses the order in which a call's arguments are evaluated, and may choose
 * another for another machine. */
static uint32_t add_any(struct graph_case *made, uint32_t x)
{
    static const enum qk_type codes[] = {QK_UINT8, QK_INT8,  QK_UINT8, QK_INT8,
                                         QK_UINT4, QK_INT16, QK_UINT16};
    static const enum qk_type floats[] = {QK_FP32, QK_FP16, QK_BF16};
    const enum qk_type type = made->values[x].type;
    if (qk_type_info(type)->kind == QK_KIND_FLOAT)
        return graph_case_quantize(made, x, codes[pick(made, 7)]);
    if (pick(made, 20) == 0)
        return graph_case_constant(made, x, floats[pick(made, 3)]);
    if ((type == QK_UINT8 || type == QK_INT8) && pick(made, 3) > 0) {
        const enum qk_type output = codes[pick(made, 4)];
        return graph_case_conv(made, x, 1 + pick(made, 12), output);
    }
    return graph_case_dequantize(made, x, floats[pick(made, 3)]);
}

static struct graph_case *make_random(uint64_t seed)
{
    static const char *const shapes[] = {"1,3,8,8", "2,1,5,17", "1,8,12,3", "3,2,1,1"};
    struct graph_case *made = graph_case_create(seed);
    const size_t node_count = 1 + pick(made, 32);
    for (size_t i = 1 + pick(made, 3); i-- > 0;) {
        const char *shape = shapes[pick(made, 4)];
        graph_case_input(made, pick(made, 2) ? QK_FP32 : QK_UINT8, shape);
    }
    for (size_t i = 0; i < node_count; i++) {
        /* Half of the time any value, otherwise one of the last few. */
        const size_t count = made->call.value_count;
        const size_t back = pick(made, pick(made, 2) && count > 4 ? 4 : count);
        const uint32_t value = add_any(made, (uint32_t)(count - 1 - back));
        if (i + 1 == node_count || (pick(made, 8) == 0 && made->call.output_count < 20))
            graph_case_output(made, value);
    }
    return made;
}

/* Runs a case on some kernels, and keeps the plan for checks. */
struct run {
    struct qk_test_memory memory;
    const struct qk_graph *graph;
    struct qk_graph_plan plan;
};

static void run_init(struct run *run, const struct graph_case *made,
                     const struct qk_kernels *kernels)
{
    struct qk_error error;
    qk_test_memory_init(&run->memory, SIZE_MAX);
    struct qk_memory face = qk_test_memory_face(&run->memory);
    cr_assert_eq(graph_case_prepare(made, kernels, face, &run->graph, &error), QK_OK, "%s",
                 error.text);
    cr_assert_eq(graph_case_plan(made, run->graph, face, &run->plan, &error), QK_OK, "%s",
                 error.text);
}

static void run_deinit(struct run *run)
{
    qk_test_memory_deinit(&run->memory);
}

static size_t rounded_bytes(const struct graph_case *made, uint32_t value)
{
    size_t bytes;
    cr_assert(qk_type_bytes(made->values[value].type, made->values[value].count, &bytes));
    return (bytes + 63) / 64 * 64;
}

static bool is_output(const struct graph_case *made, uint32_t value)
{
    for (size_t i = 0; i < made->call.output_count; i++)
        if (made->call.outputs[i] == value)
            return true;
    return false;
}

/* Finds the values that outputs are computed from. Nodes that make no such value do not run. */
static void find_used(const struct graph_case *made, bool *used)
{
    for (size_t i = 0; i < made->call.value_count; i++)
        used[i] = is_output(made, (uint32_t)i);
    for (size_t i = made->call.node_count; i-- > 0;)
        if (used[made->nodes[i].outputs[0]] && made->nodes[i].call.variable)
            used[made->nodes[i].inputs[0]] = true;
}

/* Returns the most bytes of intermediate values that are alive at one node, if nodes run in order.
 * No scratch can be smaller. Sets *sum to the bytes of all values, which is the size without
 * sharing. */
static size_t count_live_bytes(const struct graph_case *made, size_t *sum)
{
    size_t live[GRAPH_CASE_NODES_MAX] = {0};
    bool used[GRAPH_CASE_VALUES_MAX];
    size_t most = 0;
    *sum = 0;
    find_used(made, used);
    for (size_t i = 0; i < made->call.node_count; i++) {
        const uint32_t value = made->nodes[i].outputs[0];
        const size_t bytes =
            is_output(made, value) || !used[value] ? 0 : rounded_bytes(made, value);
        size_t last = i;
        for (size_t k = i; k < made->call.node_count; k++)
            if (made->nodes[k].call.variable && made->nodes[k].inputs[0] == value &&
                used[made->nodes[k].outputs[0]])
                last = k;
        for (size_t k = i; k <= last; k++)
            live[k] += bytes;
        *sum += bytes;
    }
    for (size_t i = 0; i < made->call.node_count; i++)
        if (live[i] > most)
            most = live[i];
    return most;
}

Test(graph, random_graphs)
{
    struct qk_kernels *kernels = qk_test_kernels("auto");
    size_t all_least = 0;
    size_t all_sums = 0;
    size_t all_bytes = 0;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct graph_case *made = make_random(seed * 1000003);
        struct run run;
        size_t sum;
        const size_t least = count_live_bytes(made, &sum);
        run_init(&run, made, kernels);
        cr_expect_geq(run.plan.scratch_bytes, least);
        cr_expect_leq(run.plan.scratch_bytes, sum);
        for (size_t i = 0; i < run.plan.node_count; i++)
            if (run.plan.nodes[i].outputs[0].kind == QK_PLACEMENT_SCRATCH)
                cr_expect_eq(run.plan.nodes[i].outputs[0].at % 64, 0);
        all_least += least;
        all_sums += sum;
        all_bytes += run.plan.scratch_bytes;
        graph_case_run(made, &run.plan, seed);
        run_deinit(&run);
        graph_case_shuffle(made);
        graph_case_check(made, kernels);
        graph_case_destroy(made);
    }
    /* Checks that placement is good: near the lower bound, and far below a buffer for each
     * value. */
    cr_expect_leq(all_bytes * 100, all_least * 105, "%zu, and at least %zu", all_bytes, all_least);
    cr_expect_leq(all_bytes * 3, all_sums * 2, "%zu of %zu", all_bytes, all_sums);
    qk_kernels_destroy(kernels);
}

Test(graph, a_chain_needs_room_for_two)
{
    struct graph_case *made = graph_case_create(10);
    uint32_t x = graph_case_input(made, QK_UINT8, "1,4,16,16");
    struct run run;
    for (size_t i = 0; i < 20; i++)
        x = graph_case_conv(made, x, 4, QK_UINT8);
    graph_case_output(made, x);
    run_init(&run, made, made->scalar);
    cr_expect_eq(run.plan.scratch_bytes, 2 * 4 * 16 * 16);
    graph_case_run(made, &run.plan, 1);
    run_deinit(&run);
    graph_case_destroy(made);
}

/* ---- What a graph reports of itself -------------------------------------------------------- */

Test(graph, packed_bytes_are_what_the_memory_gave)
{
    struct graph_case *made = make_random(77);
    struct qk_test_memory memory;
    const struct qk_graph *graph;
    struct qk_error error;
    qk_test_memory_init(&memory, SIZE_MAX);
    cr_assert_eq(
        graph_case_prepare(made, made->scalar, qk_test_memory_face(&memory), &graph, &error),
        QK_OK);
    cr_expect_eq(graph->packed_bytes, memory.bytes);
    qk_test_memory_deinit(&memory);
    graph_case_destroy(made);
}

Test(graph, counts_types_and_kernels)
{
    struct graph_case *made = graph_case_create(11);
    const uint32_t x = graph_case_input(made, QK_FP32, "1,3,16,15");
    const uint32_t quantized = graph_case_quantize(made, x, QK_INT8);
    graph_case_output(made, graph_case_conv(made, quantized, 4, QK_UINT8));
    graph_case_output(made, graph_case_dequantize(made, quantized, QK_BF16));
    struct run run;
    run_init(&run, made, made->scalar);
    cr_expect_eq(run.graph->node_count, 3);
    cr_expect_eq(run.graph->input_count, 1);
    cr_expect_eq(run.graph->output_count, 2);
    cr_expect_eq(run.graph->output_types[0], QK_UINT8);
    cr_expect_eq(run.graph->output_types[1], QK_BF16);
    cr_expect_eq(run.plan.node_count, 3);
    cr_expect_str_eq(run.plan.kernel, "quantize_scalar+conv_scalar+dequantize_scalar");
    run_deinit(&run);
    graph_case_destroy(made);
}

Test(graph, names_as_many_kernels_as_it_may)
{
    struct graph_case *made = graph_case_create(12);
    uint32_t x = graph_case_input(made, QK_FP32, "3");
    for (size_t i = 0; i < QK_GRAPH_KERNELS_MAX + 2; i += 2)
        x = graph_case_dequantize(made, graph_case_quantize(made, x, QK_INT8), QK_FP32);
    graph_case_output(made, x);
    struct run run;
    run_init(&run, made, made->scalar);
    size_t joined = 0;
    for (const char *at = run.plan.kernel; *at; at++)
        if (*at == '+')
            joined++;
    cr_expect_eq(joined, QK_GRAPH_KERNELS_MAX - 1);
    cr_expect_str_eq(run.plan.kernel + strlen(run.plan.kernel) - strlen("+dequantize_scalar"),
                     "+dequantize_scalar");
    run_deinit(&run);
    graph_case_destroy(made);
}

/* ---- Packing, and what threads share ------------------------------------------------------- */

/* Makes a graph with two convolutions whose weights are packed in several units, and small nodes
 * around them. */
static struct graph_case *make_heavy(void)
{
    struct graph_case *made = graph_case_create(13);
    uint32_t x = graph_case_input(made, QK_FP32, "1,3,6,5");
    x = graph_case_quantize(made, x, QK_UINT8);
    x = graph_case_conv(made, x, 320, QK_UINT8);
    x = graph_case_conv(made, x, 400, QK_INT8);
    x = graph_case_conv(made, x, 200, QK_UINT8);
    graph_case_output(made, graph_case_dequantize(made, x, QK_FP32));
    return made;
}

Test(graph, nodes_are_packed_in_units)
{
    struct graph_case *made = make_heavy();
    struct qk_test_gemms gemms;
    qk_test_gemms_init(&gemms);
    for (size_t i = 0; i < gemms.count; i++) {
        struct run run;
        run_init(&run, made, gemms.kernels[i]);
        cr_expect_gt(run.graph->pack_unit_count, 4);
        cr_expect_gt(run.graph->pack_unit_cost_ns, 0);
        run_deinit(&run);
        for (made->random = 1; made->random < 5; made->random++)
            graph_case_check(made, gemms.kernels[i]);
    }
    qk_test_gemms_deinit(&gemms);
    graph_case_destroy(made);
}

struct packer {
    struct qk_graph *graph;
    size_t first, step;
};

static void *pack_some(void *argument)
{
    const struct packer *packer = argument;
    for (size_t i = packer->first; i < packer->graph->pack_unit_count; i += packer->step)
        qk_graph_pack(packer->graph, i, i + 1);
    return NULL;
}

struct runner {
    const struct graph_case *made;
    const struct qk_graph_plan *plan;
    uint64_t seed;
};

static void *run_one(void *argument)
{
    const struct runner *runner = argument;
    for (uint64_t i = 0; i < 3; i++)
        graph_case_run(runner->made, runner->plan, runner->seed + 10 * i);
    return NULL;
}

Test(graph, threads_pack_it_and_share_a_plan)
{
    enum { THREADS = 3 };
    struct graph_case *made = make_heavy();
    struct qk_kernels *kernels = qk_test_kernels("auto");
    struct qk_test_memory memory;
    struct qk_graph *graph;
    struct qk_graph_plan plan;
    struct qk_error error;
    struct packer packers[THREADS];
    struct runner runners[THREADS];
    pthread_t threads[THREADS];
    qk_test_memory_init(&memory, SIZE_MAX);
    struct qk_memory face = qk_test_memory_face(&memory);
    cr_assert_eq(qk_graph_prepare(kernels, &made->call, face, &graph, &error), QK_OK, "%s",
                 error.text);
    cr_assert_eq(graph_case_plan(made, graph, face, &plan, &error), QK_OK, "%s", error.text);
    for (size_t i = 0; i < THREADS; i++) {
        packers[i] = (struct packer){graph, i, THREADS};
        cr_assert_eq(pthread_create(&threads[i], NULL, pack_some, &packers[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (size_t i = 0; i < THREADS; i++) {
        runners[i] = (struct runner){made, &plan, i + 1};
        cr_assert_eq(pthread_create(&threads[i], NULL, run_one, &runners[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    qk_test_memory_deinit(&memory);
    qk_kernels_destroy(kernels);
    graph_case_destroy(made);
}

/* ---- A graph around one instance ----------------------------------------------------------- */

Test(graph, of_an_instance)
{
    struct graph_case *made = graph_case_create(14);
    const uint32_t x = graph_case_input(made, QK_UINT8, "1,64,9,7");
    graph_case_output(made, graph_case_conv(made, x, 500, QK_INT8));
    struct qk_kernels *kernels = qk_test_kernels("auto");
    struct qk_test_memory memory;
    struct qk_instance *instance;
    struct qk_graph *graph;
    struct qk_graph_plan plan;
    struct qk_error error;
    struct qk_call call = made->nodes[0].call;
    qk_test_memory_init(&memory, SIZE_MAX);
    struct qk_memory face = qk_test_memory_face(&memory);
    call.inputs[0] = made->values[x];
    cr_assert_eq(qk_prepare(kernels, &call, face, &instance, &error), QK_OK, "%s", error.text);
    cr_assert_eq(qk_graph_of(instance, face, &graph, &error), QK_OK, "%s", error.text);
    cr_expect_eq(graph->packed_bytes, memory.bytes);
    cr_expect_eq(graph->pack_unit_count, instance->pack_unit_count);
    cr_expect_eq(graph->input_count, call.op->input_count);
    cr_expect_eq(graph->output_types[0], QK_INT8);
    qk_graph_pack(graph, 0, graph->pack_unit_count);
    cr_assert_eq(qk_graph_plan(graph, call.inputs, face, &plan, &error), QK_OK, "%s", error.text);
    cr_expect_eq(plan.scratch_bytes, 0);
    cr_expect_str_eq(plan.kernel, plan.nodes[0].plan.kernel);
    graph_case_run(made, &plan, 1);

    /* The graph must report the same error as the instance. */
    struct qk_error own;
    struct qk_plan single;
    call.inputs[0].rank = 3;
    qk_tensor_set_count(&call.inputs[0]);
    cr_expect_eq(qk_graph_plan(graph, call.inputs, face, &plan, &error), QK_INVALID);
    cr_expect_eq(qk_plan(instance, call.inputs, face, &single, &own), QK_INVALID);
    cr_expect_str_eq(error.text, own.text);
    qk_test_memory_deinit(&memory);
    qk_kernels_destroy(kernels);
    graph_case_destroy(made);
}
