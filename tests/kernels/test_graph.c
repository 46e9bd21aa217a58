/* Graphs run: what comes out is what nodes give one by one, and intermediate values share memory
 * only where they may. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>

#include "tests/support/graph_case.h"
#include "tests/support/guarded.h"

/* With every backend that this CPU has. */
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

/* Adds floats to floats over two convolutions, and returns the last value. */
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
