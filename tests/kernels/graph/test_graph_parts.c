/* Nodes that join or cut tensors: where possible, the parts lie in the whole, and the node has
 * nothing to do. */
#include <criterion/criterion.h>

#include "tests/support/kernels/graph_case.h"

static uint32_t input(struct graph_case *made)
{
    return graph_case_input(made, QK_UINT8, "1,4,16,16"); /* 1024 bytes */
}

/* Both convolutions write into the output of Concat. Other nodes read the parts, too. */
Test(graph_parts, concat)
{
    struct graph_case *made = graph_case_create(20);
    const uint32_t x = input(made);
    const uint32_t parts[] = {graph_case_conv(made, x, 4, QK_UINT8),
                              graph_case_conv(made, x, 2, QK_UINT8)};
    const uint32_t y = graph_case_concat(made, 2, parts, 1);
    graph_case_output(made, graph_case_conv(made, y, 4, QK_INT8));
    graph_case_output(made, graph_case_dequantize(made, parts[1], QK_FP32));
    graph_case_check_work(made, 4, 1536);
}

/* The output of Concat leaves the graph. */
Test(graph_parts, concat_that_is_an_output)
{
    struct graph_case *made = graph_case_create(21);
    const uint32_t x = input(made);
    const uint32_t first = graph_case_conv(made, x, 4, QK_UINT8);
    const uint32_t second = graph_case_conv(made, first, 8, QK_UINT8);
    graph_case_output(made, graph_case_concat(made, 2, (const uint32_t[]){first, second}, 1));
    graph_case_check_work(made, 2, 0);
}

/* Each layer reads all layers before, as in DenseNet: by a list of all of them, or by the list
 * before and one more. */
Test(graph_parts, dense)
{
    enum { LAYERS = 5 };
    for (size_t i = 0; i < 2; i++) {
        struct graph_case *made = graph_case_create(22 + i);
        uint32_t layers[LAYERS], y;
        layers[0] = y = graph_case_conv(made, input(made), 4, QK_UINT8);
        for (size_t k = 1; k < LAYERS; k++) {
            layers[k] = graph_case_conv(made, y, 4, QK_UINT8);
            y = i == 0 ? graph_case_concat(made, k + 1, layers, 1)
                       : graph_case_concat(made, 2, (const uint32_t[]){y, layers[k]}, 1);
        }
        graph_case_output(made, graph_case_conv(made, y, 4, QK_INT8));
        graph_case_check_work(made, LAYERS + 1, LAYERS * (size_t)1024);
    }
}

/* These copy: an axis behind one of more than one element, a value twice, an input of the graph, a
 * part that leaves the graph, and a part that does not begin at a line. */
Test(graph_parts, concat_that_copies)
{
    for (size_t i = 0; i < 5; i++) {
        struct graph_case *made = graph_case_create(30 + i);
        const uint32_t x = i == 4 ? graph_case_input(made, QK_UINT8, "1,4,5,5") : input(made);
        const uint32_t a = graph_case_conv(made, x, 4, QK_UINT8);
        const uint32_t b = graph_case_conv(made, x, 4, QK_UINT8);
        const uint32_t parts[] = {a, i == 1 ? a : i == 2 ? x : b};
        const uint32_t y = graph_case_concat(made, 2, parts, i == 0 ? 2 : 1);
        graph_case_output(made, graph_case_conv(made, y, 4, QK_INT8));
        graph_case_output(made, i == 3 ? b : graph_case_dequantize(made, b, QK_FP32));
        graph_case_check_work(made, i == 3 ? 4 : 5, i == 3 ? 3072 : i == 4 ? 512 : 4096);
    }
}

/* The parts of Split lie in its input, which may be the caller's, and begin anywhere. */
Test(graph_parts, split)
{
    static const char *const shapes[] = {"1,4,16,16", "1,3,5,5"};
    for (size_t i = 0; i < 4; i++) {
        struct graph_case *made = graph_case_create(40 + i);
        uint32_t parts[2];
        uint32_t x = graph_case_input(made, QK_UINT8, shapes[i / 2]);
        if (i % 2 == 1)
            x = graph_case_conv(made, x, 4, QK_UINT8);
        graph_case_split(made, x, 1, 1, parts);
        graph_case_output(made, graph_case_conv(made, parts[1], 4, QK_UINT8));
        graph_case_output(made, graph_case_dequantize(made, parts[0], QK_FP32));
        graph_case_check_work(made, 2 + i % 2, i == 1 ? 1024 : i == 3 ? 128 : 0);
    }
}

/* Concat joins both parts of Split, both and a third one, or them in another order. */
Test(graph_parts, concat_of_split)
{
    for (size_t i = 0; i < 3; i++) {
        struct graph_case *made = graph_case_create(50 + i);
        uint32_t parts[3];
        const uint32_t x = graph_case_conv(made, input(made), 4, QK_UINT8);
        graph_case_split(made, x, 1, 1, parts);
        parts[2] = i == 1 ? graph_case_conv(made, parts[1], 2, QK_UINT8) : parts[0];
        const uint32_t y = graph_case_concat(made, i == 1 ? 3 : 2, parts + i / 2, 1);
        graph_case_output(made, graph_case_conv(made, y, 4, QK_INT8));
        graph_case_check_work(made, i == 0 ? 2 : 3, i == 0 ? 1024 : i == 1 ? 1536 : 2048);
    }
}

/* The first part of Split begins where its input does, which is longer than the part. The input
 * cannot move into the output of Concat, so both parts are copied. */
Test(graph_parts, concat_of_a_longer_value)
{
    struct graph_case *made = graph_case_create(61);
    uint32_t cut[2];
    const uint32_t x = graph_case_conv(made, input(made), 4, QK_UINT8);
    graph_case_split(made, x, 1, 1, cut);
    const uint32_t parts[] = {cut[0], graph_case_conv(made, x, 2, QK_UINT8)};
    const uint32_t y = graph_case_concat(made, 2, parts, 1);
    graph_case_output(made, graph_case_conv(made, y, 4, QK_INT8));
    graph_case_output(made, graph_case_dequantize(made, x, QK_FP32));
    graph_case_check_work(made, 5, 2304);
}

/* One part is made long before the other, while others need the room that the whole would take. It
 * is copied. */
Test(graph_parts, concat_of_an_old_part)
{
    struct graph_case *made = graph_case_create(60);
    const uint32_t old = graph_case_conv(made, input(made), 4, QK_UINT8);
    uint32_t x = graph_case_conv(made, old, 24, QK_UINT8);
    x = graph_case_conv(made, x, 24, QK_UINT8);
    x = graph_case_conv(made, x, 8, QK_UINT8);
    x = graph_case_concat(made, 2, (const uint32_t[]){x, old}, 1);
    graph_case_output(made, graph_case_conv(made, x, 4, QK_INT8));
    graph_case_check_work(made, 6, 13312);
}

/* The operator's list begins behind the output's scale and zero point, and each part has its own. A
 * part with another scale is not a part of the output, so all parts are copied. */
Test(graph_parts, concat_of_codes)
{
    for (size_t i = 0; i < 2; i++) {
        struct graph_case *made = graph_case_create(70 + i);
        const uint32_t x = input(made);
        const uint32_t parts[] = {graph_case_conv(made, x, 4, QK_UINT8),
                                  graph_case_conv(made, x, 2, QK_UINT8)};
        const uint32_t y = graph_case_concat_codes(made, 2, parts, 1, i == 1);
        graph_case_output(made, graph_case_conv(made, y, 4, QK_INT8));
        graph_case_check_work(made, 3 + i, i == 0 ? 1536 : 3072);
    }
}

/* Whole images are parts, too, along the batch. */
Test(graph_parts, concat_along_the_batch)
{
    struct graph_case *made = graph_case_create(72);
    uint32_t parts[2];
    graph_case_split(made, graph_case_input(made, QK_UINT8, "3,4,16,16"), 0, 1, parts);
    const uint32_t each[] = {graph_case_conv(made, parts[1], 4, QK_UINT8),
                             graph_case_conv(made, parts[0], 4, QK_UINT8)};
    const uint32_t y = graph_case_concat(made, 2, each, 0);
    graph_case_output(made, graph_case_conv(made, y, 4, QK_INT8));
    graph_case_check_work(made, 3, 3072);
}

/* A part may be empty. It then begins where the next part does. */
Test(graph_parts, empty)
{
    struct graph_case *made = graph_case_create(73);
    uint32_t parts[3];
    const uint32_t x = graph_case_conv(made, input(made), 4, QK_UINT8);
    graph_case_split(made, x, 1, 0, parts);
    parts[2] = graph_case_conv(made, parts[1], 4, QK_UINT8);
    graph_case_output(made, graph_case_concat(made, 3, parts, 1));
    graph_case_check_work(made, 2, 0);
}

/* ---- Random graphs ------------------------------------------------------------------------- */

enum { VALUES_MAX = 24, CHANNELS_MAX = 20 };

struct pool {
    struct graph_case *made;
    uint64_t random;
    uint32_t list[VALUES_MAX];
    size_t count;
};

static size_t channels_of(const struct pool *pool, uint32_t value)
{
    return pool->made->values[value].dims[1];
}

static void add(struct pool *pool, uint32_t value)
{
    pool->list[pool->count++] = value;
    if (qk_test_random_below(&pool->random, 7) == 0)
        graph_case_output(pool->made, value);
}

/* Returns one of all values, or more likely one of the newest. */
static uint32_t pick(struct pool *pool)
{
    const size_t few = pool->count < 4 ? pool->count : 4;
    return qk_test_random_below(&pool->random, 3) == 0
               ? pool->list[qk_test_random_below(&pool->random, pool->count)]
               : pool->list[pool->count - 1 - qk_test_random_below(&pool->random, few)];
}

static void add_joined(struct pool *pool)
{
    uint32_t parts[4] = {pick(pool)};
    size_t count = 1;
    size_t channels = channels_of(pool, parts[0]);
    for (size_t wanted = 1 + qk_test_random_below(&pool->random, 4); count < wanted; count++) {
        parts[count] = pick(pool);
        channels += channels_of(pool, parts[count]);
        if (channels > CHANNELS_MAX)
            break;
    }
    const size_t kind = qk_test_random_below(&pool->random, 6);
    add(pool, kind == 0   ? graph_case_concat_codes(pool->made, count, parts, 1, true)
              : kind == 1 ? graph_case_concat_codes(pool->made, count, parts, 1, false)
                          : graph_case_concat(pool->made, count, parts, 1));
}

static void add_cut(struct pool *pool)
{
    const uint32_t x = pick(pool);
    uint32_t parts[2];
    if (channels_of(pool, x) < 2)
        return;
    const size_t first = 1 + qk_test_random_below(&pool->random, channels_of(pool, x) - 1);
    graph_case_split(pool->made, x, 1, first, parts);
    add(pool, parts[0]);
    add(pool, parts[1]);
}

static void add_any(struct pool *pool)
{
    const size_t kind = qk_test_random_below(&pool->random, 8);
    if (kind < 3)
        add_joined(pool);
    else if (kind == 3)
        add_cut(pool);
    else if (kind == 4)
        add(pool, graph_case_identity(pool->made, pick(pool)));
    else
        add(pool, graph_case_conv(pool->made, pick(pool),
                                  1 + qk_test_random_below(&pool->random, 4), QK_UINT8));
}

/* Parts of wholes that are parts, of values that leave the graph, of inputs, and of themselves, in
 * planes that fill lines or do not, of one image or two. Every value that is alive is compared
 * after each node. */
Test(graph_parts, in_random_graphs)
{
    static const char *const shapes[] = {"1,2,8,8", "1,3,4,8", "1,2,3,5", "2,2,8,8"};
    for (uint64_t seed = 1; seed <= 30; seed++) {
        struct pool pool = {.made = graph_case_create(seed), .random = seed * 7919};
        const char *shape = shapes[seed % 4];
        pool.list[pool.count++] = graph_case_input(pool.made, QK_UINT8, shape);
        while (pool.count < VALUES_MAX - 2)
            add_any(&pool);
        graph_case_output(pool.made, graph_case_conv(pool.made, pick(&pool), 3, QK_UINT8));
        if (seed % 2 == 0)
            graph_case_shuffle(pool.made);
        graph_case_check(pool.made, pool.made->scalar);
        graph_case_destroy(pool.made);
    }
}
