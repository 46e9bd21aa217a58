/* Which plans are kept, and what happens to them if many threads ask at once. */
#include <criterion/criterion.h>
#include <pthread.h>

#include "server/models/plans.h"
#include "tests/support/kernels/graph_case.h"
#include "tests/unit/scratch.h"

/* A model's graph and its plans, the models' memory, and a request's memory. */
struct shelf {
    struct qk_kernels *kernels;
    struct qd_memory *memory;
    struct qd_arena arena;
    const struct qk_graph *graph;
    struct qd_plans *plans;
    struct scratch own;
    size_t used; /* memory in use without any plan */
};

static void *alloc(void *context, size_t bytes)
{
    return qd_arena_alloc(context, bytes);
}

/* Makes a graph in which x, of one dimension, is dequantized, quantized and so on. Each node
 * takes any size. */
static void shelf_init(struct shelf *shelf, size_t node_count, size_t bytes_max)
{
    static const float scale = 0.5F;
    struct qk_error error;
    struct qk_graph *graph;
    shelf->kernels = qk_test_kernels("scalar");
    struct qk_node *nodes = calloc(node_count, sizeof(*nodes));
    struct qk_graph_call *call = calloc(1, sizeof(*call));
    *call = (struct qk_graph_call){.nodes = nodes,
                                   .node_count = node_count,
                                   .value_count = node_count + 1,
                                   .inputs = {{.value = 0, .type = QK_UINT8}},
                                   .input_count = 1,
                                   .outputs = {(uint32_t)node_count},
                                   .output_count = 1};
    for (uint32_t i = 0; i < node_count; i++) {
        qk_test_call_init(&nodes[i].call,
                          i % 2 == 0 ? "onnx.DequantizeLinear" : "onnx.QuantizeLinear", 25);
        qk_test_call_input(&nodes[i].call, i % 2 == 0 ? "x_scale" : "y_scale", QK_FP32, &scale, 0,
                           NULL);
        nodes[i].name = "";
        nodes[i].inputs[0] = i;
        nodes[i].outputs[0] = i + 1;
    }
    shelf->memory = qd_memory_create(bytes_max);
    qd_arena_init(&shelf->arena, shelf->memory);
    cr_assert_eq(qk_graph_prepare(shelf->kernels, call, (struct qk_memory){alloc, &shelf->arena},
                                  &graph, &error),
                 QK_OK, "%s", error.text);
    qk_graph_pack(graph, 0, graph->pack_unit_count);
    shelf->graph = graph;
    shelf->plans = qd_plans_create(graph, shelf->memory);
    cr_assert_not_null(shelf->plans);
    shelf->used = qd_memory_used(shelf->memory);
    scratch_init(&shelf->own, 64 << 20);
    free(nodes);
    free(call);
}

/* Checks that all memory was given back. */
static void shelf_deinit(struct shelf *shelf)
{
    qd_plans_destroy(shelf->plans);
    cr_assert_eq(qd_memory_used(shelf->memory), shelf->used);
    qd_arena_deinit(&shelf->arena);
    qd_memory_destroy(shelf->memory);
    scratch_deinit(&shelf->own);
    qk_kernels_destroy(shelf->kernels);
}

static struct qk_tensor tensor_of(size_t count)
{
    struct qk_tensor tensor = {.type = QK_UINT8, .rank = 1, .dims = {count}};
    cr_assert(qk_tensor_set_count(&tensor));
    return tensor;
}

static struct qd_pin pin(struct shelf *shelf, size_t count)
{
    struct qd_pin pinned;
    struct qk_error error;
    struct qk_tensor x = tensor_of(count);
    cr_assert_eq(qd_plans_pin(shelf->plans, &x, &shelf->own.arena, &pinned, &error), QK_OK, "%s",
                 error.text);
    cr_assert_eq(pinned.plan->outputs[0].count, count);
    return pinned;
}

static void use(struct shelf *shelf, size_t count)
{
    struct qd_pin pinned = pin(shelf, count);
    qd_plans_unpin(shelf->plans, &pinned);
    cr_assert_null(pinned.plan);
}

/* Returns true if the plan is kept. While the models' memory is full, every other plan lies in the
 * request's memory. */
static bool is_kept(struct shelf *shelf, size_t count)
{
    struct qd_arena hog;
    qd_arena_init(&hog, shelf->memory);
    while (qd_arena_alloc(&hog, 1 << 20) != NULL || qd_arena_alloc(&hog, 1) != NULL) {
    }
    struct qd_pin pinned = pin(shelf, count);
    bool kept = pinned.kept != NULL;
    qd_plans_unpin(shelf->plans, &pinned);
    qd_arena_deinit(&hog);
    return kept;
}

Test(plans, a_shape_is_planned_once)
{
    struct shelf shelf;
    shelf_init(&shelf, 1, 16 << 20);
    struct qd_pin first = pin(&shelf, 5);
    struct qd_pin second = pin(&shelf, 5);
    struct qd_pin other = pin(&shelf, 6);
    cr_assert_eq(first.plan, second.plan);
    cr_assert_neq(first.plan, other.plan);
    qd_plans_unpin(shelf.plans, &first);
    qd_plans_unpin(shelf.plans, &second);
    qd_plans_unpin(shelf.plans, &other);
    const size_t used = qd_memory_used(shelf.memory);
    use(&shelf, 5);
    use(&shelf, 6);
    cr_assert_eq(qd_memory_used(shelf.memory), used);
    cr_assert_eq(shelf.own.arena.bytes, 0);
    shelf_deinit(&shelf);
}

Test(plans, the_rank_is_part_of_the_key)
{
    struct shelf shelf;
    struct qk_error error;
    shelf_init(&shelf, 1, 16 << 20);
    struct qk_tensor flat = {.type = QK_UINT8, .rank = 1, .dims = {6, 1}};
    struct qk_tensor deep = {.type = QK_UINT8, .rank = 2, .dims = {6, 1}};
    struct qk_tensor none = {.type = QK_UINT8, .rank = 0, .dims = {6, 1}};
    const struct qk_tensor *const all[] = {&flat, &deep, &none, &flat};
    qk_tensor_set_count(&flat);
    qk_tensor_set_count(&deep);
    qk_tensor_set_count(&none);
    for (size_t i = 0; i < 4; i++) {
        struct qd_pin pinned;
        cr_assert_eq(qd_plans_pin(shelf.plans, all[i], &shelf.own.arena, &pinned, &error), QK_OK);
        cr_assert_eq(pinned.plan->outputs[0].rank, all[i]->rank);
        qd_plans_unpin(shelf.plans, &pinned);
    }
    shelf_deinit(&shelf);
}

Test(plans, the_one_not_used_for_longest_makes_room)
{
    struct shelf shelf;
    shelf_init(&shelf, 1, 16 << 20);
    for (size_t count = 1; count <= QD_PLANS_COUNT_MAX; count++)
        use(&shelf, count);
    const size_t used = qd_memory_used(shelf.memory);
    use(&shelf, 1);
    use(&shelf, 100); /* replaces 2 */
    cr_assert_eq(qd_memory_used(shelf.memory), used);
    cr_assert_not(is_kept(&shelf, 2));
    cr_assert(is_kept(&shelf, 1));
    for (size_t count = 3; count <= QD_PLANS_COUNT_MAX; count++)
        cr_assert(is_kept(&shelf, count));
    cr_assert(is_kept(&shelf, 100));
    shelf_deinit(&shelf);
}

/* More shapes than may be kept run at once. Each has its plan, and the earliest plans stay. */
Test(plans, a_plan_that_runs_is_never_taken_away)
{
    enum { COUNT = 3 * QD_PLANS_COUNT_MAX };
    struct shelf shelf;
    struct qd_pin pins[COUNT];
    shelf_init(&shelf, 1, 16 << 20);
    for (size_t i = 0; i < COUNT; i++)
        pins[i] = pin(&shelf, i + 1);
    for (size_t i = 0; i < COUNT; i++)
        cr_assert_eq(pins[i].plan->outputs[0].count, i + 1);
    struct qd_pin again = pin(&shelf, 1);
    cr_assert_eq(again.plan, pins[0].plan);
    qd_plans_unpin(shelf.plans, &again);
    for (size_t i = 0; i < COUNT; i++)
        qd_plans_unpin(shelf.plans, &pins[i]);
    for (size_t i = 0; i < COUNT; i++)
        cr_assert_eq(is_kept(&shelf, i + 1), i < QD_PLANS_COUNT_MAX, "%zu", i);
    use(&shelf, 1000);
    cr_assert(is_kept(&shelf, 1000));
    shelf_deinit(&shelf);
}

/* The longest graph keeps a plan. Two are too much. */
Test(plans, their_bytes_are_bounded)
{
    struct shelf shelf;
    shelf_init(&shelf, QK_GRAPH_NODE_COUNT_MAX, 256 << 20);
    use(&shelf, 1);
    cr_assert(is_kept(&shelf, 1));
    const size_t used = qd_memory_used(shelf.memory);
    cr_assert_gt(used - shelf.used, 1 << 20);
    use(&shelf, 2);
    cr_assert_eq(qd_memory_used(shelf.memory), used);
    cr_assert_not(is_kept(&shelf, 1));
    struct qd_pin held = pin(&shelf, 2);
    struct qd_pin other = pin(&shelf, 3); /* made next to it, but not kept */
    qd_plans_unpin(shelf.plans, &other);
    cr_assert(is_kept(&shelf, 2));
    cr_assert_not(is_kept(&shelf, 3));
    qd_plans_unpin(shelf.plans, &held);
    cr_assert_eq(qd_memory_used(shelf.memory), used);
    shelf_deinit(&shelf);
}

Test(plans, without_memory_the_request_has_its_own)
{
    struct shelf shelf;
    struct scratch none;
    struct qd_pin pinned;
    struct qk_error error;
    struct qk_tensor x = tensor_of(7);
    shelf_init(&shelf, 1, 16 << 20);
    struct qd_arena hog;
    qd_arena_init(&hog, shelf.memory);
    while (qd_arena_alloc(&hog, 1 << 20) != NULL || qd_arena_alloc(&hog, 1) != NULL) {
    }
    struct qd_pin own = pin(&shelf, 7);
    cr_assert_null(own.kept);
    qd_plans_unpin(shelf.plans, &own);
    scratch_init(&none, 0);
    cr_assert_eq(qd_plans_pin(shelf.plans, &x, &none.arena, &pinned, &error), QK_NO_MEMORY);
    cr_assert_null(pinned.plan);
    qd_plans_unpin(shelf.plans, &pinned);
    scratch_deinit(&none);
    qd_arena_deinit(&hog);
    cr_assert_not(is_kept(&shelf, 7));
    use(&shelf, 7);
    cr_assert(is_kept(&shelf, 7));
    shelf_deinit(&shelf);
}

Test(plans, what_does_not_fit_the_graph_is_refused)
{
    struct shelf shelf;
    struct qd_pin pinned;
    struct qk_error error;
    struct qk_tensor x = tensor_of(7);
    x.type = QK_INT8;
    shelf_init(&shelf, 1, 16 << 20);
    cr_assert_eq(qd_plans_pin(shelf.plans, &x, &shelf.own.arena, &pinned, &error), QK_INVALID);
    cr_assert_null(pinned.plan);
    cr_assert_eq(qd_memory_used(shelf.memory), shelf.used);
    shelf_deinit(&shelf);
}

/* ---- Many at once ------------------------------------------------------------------------- */

enum { THREAD_COUNT = 8, TURN_COUNT = 3000 };

struct visitor {
    struct shelf *shelf;
    uint64_t random;
};

/* Holds some plans at a time, and checks each before it releases it. */
static void *visit(void *context)
{
    enum { HELD = 3 };
    struct visitor *visitor = context;
    struct qd_pin pins[HELD] = {{NULL, NULL}};
    size_t counts[HELD];
    struct scratch own;
    scratch_init(&own, 64 << 20);
    for (size_t i = 0; i < TURN_COUNT; i++) {
        const size_t at = qk_test_random_below(&visitor->random, HELD);
        struct qk_error error;
        if (pins[at].plan != NULL)
            cr_assert_eq(pins[at].plan->outputs[0].count, counts[at]);
        qd_plans_unpin(visitor->shelf->plans, &pins[at]);
        counts[at] = 1 + qk_test_random_below(&visitor->random, QD_PLANS_COUNT_MAX + 4);
        struct qk_tensor x = tensor_of(counts[at]);
        cr_assert_eq(qd_plans_pin(visitor->shelf->plans, &x, &own.arena, &pins[at], &error), QK_OK);
        cr_assert_eq(pins[at].plan->outputs[0].count, counts[at]);
    }
    for (size_t i = 0; i < HELD; i++)
        qd_plans_unpin(visitor->shelf->plans, &pins[i]);
    scratch_deinit(&own);
    return NULL;
}

Test(plans, on_many_threads)
{
    struct shelf shelf;
    struct visitor visitors[THREAD_COUNT];
    pthread_t threads[THREAD_COUNT];
    shelf_init(&shelf, 2, 64 << 20);
    for (size_t i = 0; i < THREAD_COUNT; i++) {
        visitors[i] = (struct visitor){&shelf, i + 1};
        cr_assert_eq(pthread_create(&threads[i], NULL, visit, &visitors[i]), 0);
    }
    for (size_t i = 0; i < THREAD_COUNT; i++)
        pthread_join(threads[i], NULL);
    cr_assert_leq(qd_memory_used(shelf.memory) - shelf.used, QD_PLANS_COUNT_MAX * (size_t)32768);
    shelf_deinit(&shelf);
}

/* What another shape takes does not matter. */
Test(plans, how_long_a_shape_takes_is_known_while_its_plan_is_kept)
{
    static const size_t counts[] = {5, 3 << 20};
    struct shelf shelf;
    shelf_init(&shelf, 1, 16 << 20);
    for (size_t i = 0; i < 2; i++) {
        const struct qk_tensor x = tensor_of(counts[i]);
        cr_assert_eq(qd_plans_compute_ns(shelf.plans, &x), 0);
        use(&shelf, counts[i]);
    }
    uint64_t found_ns[2];
    for (size_t i = 0; i < 2; i++) {
        const struct qk_tensor x = tensor_of(counts[i]);
        struct qd_pin pinned = pin(&shelf, counts[i]);
        found_ns[i] = qd_plans_compute_ns(shelf.plans, &x);
        cr_assert_eq(found_ns[i], qd_plan_compute_ns(pinned.plan));
        qd_plans_unpin(shelf.plans, &pinned);
    }
    cr_assert_lt(found_ns[0], found_ns[1]);
    shelf_deinit(&shelf);
}
