/* Nodes whose output has the bytes of their input: both lie at one place, and the node has nothing
 * to do, unless both belong to the caller. */
#include <criterion/criterion.h>

#include "tests/support/kernels/graph_case.h"

static uint32_t input(struct graph_case *made)
{
    return graph_case_input(made, QK_UINT8, "1,4,16,16"); /* 1024 bytes */
}

Test(graph_aliases, between_nodes)
{
    struct graph_case *made = graph_case_create(1);
    uint32_t x = graph_case_conv(made, input(made), 4, QK_UINT8);
    x = graph_case_identity(made, graph_case_identity(made, x));
    graph_case_output(made, graph_case_conv(made, x, 4, QK_INT8));
    graph_case_check_work(made, 2, 1024);
}

Test(graph_aliases, of_an_input)
{
    struct graph_case *made = graph_case_create(2);
    const uint32_t x = graph_case_identity(made, input(made));
    graph_case_output(made, graph_case_conv(made, x, 4, QK_UINT8));
    graph_case_check_work(made, 1, 0);
}

/* The convolution writes the alias's output. Another node reads it there. */
Test(graph_aliases, that_is_an_output)
{
    struct graph_case *made = graph_case_create(3);
    const uint32_t sums = graph_case_conv(made, input(made), 4, QK_UINT8);
    graph_case_output(made, graph_case_identity(made, sums));
    graph_case_output(made, graph_case_dequantize(made, sums, QK_FP32));
    graph_case_check_work(made, 2, 0);
}

Test(graph_aliases, from_the_caller_to_the_caller)
{
    struct graph_case *made = graph_case_create(4);
    const uint32_t x = input(made);
    graph_case_output(made, graph_case_identity(made, x));
    graph_case_output(made, graph_case_identity(made, x));
    graph_case_check_work(made, 2, 0);
}

Test(graph_aliases, two_outputs_of_one_value)
{
    struct graph_case *made = graph_case_create(5);
    const uint32_t sums = graph_case_conv(made, input(made), 4, QK_UINT8);
    const uint32_t same = graph_case_identity(made, sums);
    graph_case_output(made, same);
    graph_case_output(made, graph_case_identity(made, same));
    graph_case_check_work(made, 2, 0);
}

Test(graph_aliases, of_an_output)
{
    struct graph_case *made = graph_case_create(6);
    const uint32_t sums = graph_case_conv(made, input(made), 4, QK_UINT8);
    graph_case_output(made, sums);
    graph_case_output(made, graph_case_conv(made, graph_case_identity(made, sums), 4, QK_INT8));
    graph_case_check_work(made, 2, 0);
}

/* The value must not be overwritten while its alias is still read. */
Test(graph_aliases, live_as_long_as_their_readers)
{
    struct graph_case *made = graph_case_create(7);
    const uint32_t sums = graph_case_conv(made, input(made), 4, QK_UINT8);
    const uint32_t same = graph_case_identity(made, sums);
    uint32_t x = sums;
    for (size_t i = 0; i < 4; i++)
        x = graph_case_conv(made, x, 4, QK_UINT8);
    graph_case_output(made, x);
    graph_case_output(made, graph_case_conv(made, same, 4, QK_INT8));
    graph_case_check_work(made, 6, (size_t)3 * 1024);
}

Test(graph_aliases, in_random_graphs)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct graph_case *made = graph_case_create(seed);
        uint64_t random = seed * 7919;
        uint32_t values[16];
        values[0] = input(made);
        for (size_t i = 1; i < 16; i++) {
            const uint32_t x = values[qk_test_random_below(&random, i)];
            values[i] = qk_test_random_below(&random, 2) ? graph_case_identity(made, x)
                                                         : graph_case_conv(made, x, 4, QK_UINT8);
            if (i > 10 || qk_test_random_below(&random, 5) == 0)
                graph_case_output(made, values[i]);
        }
        graph_case_shuffle(made);
        graph_case_check(made, made->scalar);
        graph_case_destroy(made);
    }
}
