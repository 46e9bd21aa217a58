/* When the pages of constants are given back. The graph is made by hand: what its units pack does
 * not matter, and a page that was given back has zeros. */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/graph.h"
#include "server/memory/blocks.h"
#include "server/work/load.h"
#include "tests/unit/scratch.h"

enum { NODES = 4, PAGES = 16 };

static struct scratch scratch;
static struct qk_operator op = {.input_count = 2};
static struct qk_node nodes[NODES];
static struct qk_graph_call call = {.nodes = nodes, .node_count = NODES};
static struct qk_instance instances[NODES];
static struct qk_graph_node graph_nodes[NODES];
static struct qk_graph graph = {.node_count = NODES, .nodes = graph_nodes};
static char *bytes; /* [PAGES][QD_PAGE_BYTES] of ones */

/* Gives a node of the call its units. The graph has the nodes in the reverse order. */
static void add_node(size_t index, size_t units)
{
    const size_t place = NODES - 1 - index;
    nodes[index].call = (struct qk_call){.op = &op, .variable = 1};
    instances[place] = (struct qk_instance){.pack_unit_count = units};
    graph_nodes[place] =
        (struct qk_graph_node){.instance = &instances[place], .index = (uint32_t)index};
}

/* Sets the constant of a node: from page `first` and `more` bytes on. */
static void set_constant(size_t index, size_t first, size_t more, size_t count)
{
    nodes[index].call.inputs[1] = (struct qk_tensor){.type = QK_UINT8,
                                                     .stored = count,
                                                     .count = count,
                                                     .data = bytes + first * QD_PAGE_BYTES + more};
}

static void set_up(void)
{
    if (sysconf(_SC_PAGESIZE) != QD_PAGE_BYTES)
        cr_skip_test("this kernel has other pages");
    scratch_init(&scratch, (size_t)1 << 20);
    bytes = mmap(NULL, PAGES * QD_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                 -1, 0);
    cr_assert_neq(bytes, MAP_FAILED);
    memset(bytes, 1, PAGES * QD_PAGE_BYTES);
    for (size_t i = 0; i < NODES; i++)
        add_node(i, i + 1); /* units: node 3 has 0 to 3, node 2 has 4 to 6, node 1 has 7 and 8 */
}

static void tear_down(void)
{
    munmap(bytes, PAGES * QD_PAGE_BYTES);
    scratch_deinit(&scratch);
}

TestSuite(constant_pages, .init = set_up, .fini = tear_down);

static struct qd_constant_pages *find(void)
{
    size_t unit = 0;
    for (size_t i = 0; i < NODES; i++) {
        graph_nodes[i].pack_begin = unit;
        unit += instances[i].pack_unit_count;
    }
    struct qd_constant_pages *pages = qd_constant_pages_find(&call, &graph, &scratch.arena);
    cr_assert_not_null(pages);
    return pages;
}

/* Expects that exactly the pages [first, end) were given back. */
static void expect_gone(size_t first, size_t end)
{
    for (size_t i = 0; i < PAGES; i++)
        cr_expect_eq(bytes[i * QD_PAGE_BYTES], i < first || i >= end, "page %zu", i);
}

Test(constant_pages, are_given_back_after_the_last_unit_of_their_node)
{
    set_constant(3, 2, 0, 4 * QD_PAGE_BYTES);
    struct qd_constant_pages *pages = find();
    qd_constant_pages_packed(pages, 2, 4);
    qd_constant_pages_packed(pages, 0, 1);
    expect_gone(0, 0);
    qd_constant_pages_packed(pages, 1, 2);
    expect_gone(2, 6);
}

Test(constant_pages, a_batch_may_end_in_another_node)
{
    set_constant(3, 0, 0, QD_PAGE_BYTES);
    set_constant(2, 1, 0, QD_PAGE_BYTES);
    set_constant(1, 2, 0, QD_PAGE_BYTES);
    struct qd_constant_pages *pages = find();
    qd_constant_pages_packed(pages, 0, 8);
    expect_gone(0, 2);
    qd_constant_pages_packed(pages, 8, 10);
    expect_gone(0, 3);
}

/* The first and the last page have bytes of others, too. */
Test(constant_pages, pages_with_other_bytes_stay)
{
    set_constant(0, 2, 1, 4 * QD_PAGE_BYTES);
    qd_constant_pages_packed(find(), 9, 10);
    expect_gone(3, 6);
    for (size_t i = 6 * QD_PAGE_BYTES; i < 7 * QD_PAGE_BYTES; i++)
        cr_assert_eq(bytes[i], 1);
}

Test(constant_pages, stay_until_all_nodes_that_share_them_are_packed)
{
    set_constant(3, 0, 0, 4 * QD_PAGE_BYTES);
    set_constant(2, 0, 0, 4 * QD_PAGE_BYTES);
    set_constant(1, 3, 0, 4 * QD_PAGE_BYTES); /* overlaps */
    struct qd_constant_pages *pages = find();
    qd_constant_pages_packed(pages, 0, 4);
    qd_constant_pages_packed(pages, 7, 9);
    expect_gone(0, 0);
    qd_constant_pages_packed(pages, 4, 7);
    expect_gone(0, 7);
}

/* A node without units was packed while it was prepared. */
Test(constant_pages, nodes_without_units_read_nothing)
{
    add_node(1, 0);
    set_constant(1, 0, 0, 2 * QD_PAGE_BYTES);
    set_constant(0, 0, 0, 2 * QD_PAGE_BYTES);
    struct qd_constant_pages *pages = find();
    qd_constant_pages_packed(pages, 0, 7);
    expect_gone(0, 0);
    qd_constant_pages_packed(pages, 7, 8);
    expect_gone(0, 2);
}

Test(constant_pages, constants_that_stay_are_kept)
{
    set_constant(0, 8, 0, QD_PAGE_BYTES);
    nodes[2].call.constants_stay = true;
    cr_assert_null(qd_constant_pages_find(&call, &graph, &scratch.arena));
}

Test(constant_pages, variable_inputs_are_no_constants)
{
    set_constant(0, 0, 0, QD_PAGE_BYTES);
    nodes[0].call.variable = 3;
    qd_constant_pages_packed(find(), 0, 10);
    expect_gone(0, 0);
}

/* Without memory for the lists, pages stay until their block is freed. */
Test(constant_pages, no_list_gives_nothing_back)
{
    set_constant(0, 0, 0, QD_PAGE_BYTES);
    qd_constant_pages_packed(NULL, 0, 10);
    expect_gone(0, 0);
}
