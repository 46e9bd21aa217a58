#define _GNU_SOURCE
#include "server/work/load.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Bytes of constants that overlap or are the same. */
struct span {
    uintptr_t begin, end;
    atomic_size_t uses_left; /* 0: no unit reads the bytes any more */
};

/* A node that has units of packing. */
struct packed_node {
    struct qk_pack_range units;
    atomic_size_t units_left;
    const struct qk_call *call;
};

struct qd_constant_pages {
    struct packed_node *nodes; /* by their units */
    size_t node_count;
    struct span *spans; /* by their addresses */
    size_t span_count;
};

/* Sets where the bytes of a call's input are. Returns false if the input is no constant, or has no
 * bytes. */
static bool find_constant(const struct qk_call *call, size_t input, struct span *place)
{
    const struct qk_tensor *tensor = &call->inputs[input];
    size_t bytes;
    if ((call->variable >> input & 1) != 0 || tensor->type == QK_NONE || tensor->data == NULL ||
        !qk_type_bytes(tensor->type, tensor->stored, &bytes))
        return false;
    place->begin = (uintptr_t)tensor->data;
    place->end = place->begin + bytes;
    return bytes > 0;
}

/* ---- Finding ------------------------------------------------------------------------------ */

static int compare(uintptr_t a, uintptr_t b)
{
    return a < b ? -1 : a > b;
}

static int by_units(const void *a, const void *b)
{
    return compare(((const struct packed_node *)a)->units.begin,
                   ((const struct packed_node *)b)->units.begin);
}

static int by_address(const void *a, const void *b)
{
    return compare(((const struct span *)a)->begin, ((const struct span *)b)->begin);
}

/* Appends a node, unless it has no units. Returns how many inputs the node has. */
static size_t add_node(struct qd_constant_pages *pages, const struct qk_call *call,
                       struct qk_pack_range units)
{
    if (units.begin == units.end)
        return 0;
    struct packed_node *node = &pages->nodes[pages->node_count++];
    node->units = units;
    node->call = call;
    atomic_init(&node->units_left, units.end - units.begin);
    return call->op->input_count;
}

/* Finds the constants of all nodes. Joins constants that overlap, because a page may be given back
 * only if nobody reads it. */
static void make_spans(struct qd_constant_pages *pages)
{
    struct span *spans = pages->spans;
    size_t use_count = 0;
    for (size_t i = 0; i < pages->node_count; i++) {
        const struct qk_call *call = pages->nodes[i].call;
        for (size_t input = 0; input < call->op->input_count; input++)
            use_count += find_constant(call, input, &spans[use_count]);
    }
    qsort(spans, use_count, sizeof(*spans), by_address);
    for (size_t i = 0; i < use_count; i++) {
        struct span *last = &spans[pages->span_count - (pages->span_count > 0)];
        if (pages->span_count == 0 || spans[i].begin >= last->end) {
            last = &spans[pages->span_count++];
            last->begin = spans[i].begin;
            last->end = spans[i].end;
            atomic_init(&last->uses_left, 0);
        }
        last->end = spans[i].end > last->end ? spans[i].end : last->end;
        atomic_fetch_add(&last->uses_left, 1);
    }
}

struct qd_constant_pages *qd_constant_pages_find(const struct qk_graph_call *call,
                                                 const struct qk_graph *graph,
                                                 struct qd_arena *arena)
{
    const size_t count = graph->node_count;
    for (size_t i = 0; i < count; i++)
        if (call->nodes[i].call.constants_stay)
            return NULL; /* no load asks for this */
    struct qd_constant_pages *pages = qd_arena_calloc(arena, 1, sizeof(*pages));
    struct qk_pack_range *ranges = qd_arena_calloc(arena, count, sizeof(*ranges));
    if (pages == NULL || ranges == NULL)
        return NULL;
    pages->nodes = qd_arena_calloc(arena, count, sizeof(*pages->nodes));
    if (pages->nodes == NULL)
        return NULL;
    qk_graph_pack_ranges(graph, ranges);
    size_t input_count = 0;
    for (size_t i = 0; i < count; i++)
        input_count += add_node(pages, &call->nodes[i].call, ranges[i]);
    qsort(pages->nodes, pages->node_count, sizeof(*pages->nodes), by_units);
    /* One more than inputs: make_spans looks at an input before it knows what it is. */
    pages->spans = qd_arena_calloc(arena, input_count + 1, sizeof(*pages->spans));
    if (pages->spans == NULL)
        return NULL;
    make_spans(pages);
    return pages;
}

/* ---- Giving back -------------------------------------------------------------------------- */

/* Gives back the pages that have only bytes of this span. */
static void give_back(const struct span *span)
{
    const uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE); /* ARM's may have 64 KiB */
    const uintptr_t begin = (span->begin + page_bytes - 1) / page_bytes * page_bytes;
    const uintptr_t end = span->end / page_bytes * page_bytes;
    if (begin < end)
        madvise((void *)begin, end - begin, MADV_DONTNEED);
}

static int find_unit(const void *unit, const void *node)
{
    const struct qk_pack_range *units = &((const struct packed_node *)node)->units;
    return *(const size_t *)unit < units->begin ? -1 : *(const size_t *)unit >= units->end;
}

static int find_place(const void *place, const void *span)
{
    const uintptr_t begin = ((const struct span *)place)->begin;
    return begin < ((const struct span *)span)->begin ? -1
                                                      : begin >= ((const struct span *)span)->end;
}

/* Gives back the constants of a packed node, unless other nodes still read them. */
static void release_constants(struct qd_constant_pages *pages, const struct qk_call *call)
{
    for (size_t i = 0; i < call->op->input_count; i++) {
        struct span place;
        if (!find_constant(call, i, &place))
            continue;
        struct span *span =
            bsearch(&place, pages->spans, pages->span_count, sizeof(*span), find_place);
        if (atomic_fetch_sub(&span->uses_left, 1) == 1)
            give_back(span);
    }
}

void qd_constant_pages_packed(struct qd_constant_pages *pages, size_t begin, size_t end)
{
    if (pages == NULL || begin >= end)
        return;
    struct packed_node *node =
        bsearch(&begin, pages->nodes, pages->node_count, sizeof(*node), find_unit);
    for (; begin < end; node++) {
        const size_t until = end < node->units.end ? end : node->units.end;
        const size_t done = until - begin;
        begin = until;
        if (atomic_fetch_sub(&node->units_left, done) == done)
            release_constants(pages, node->call);
    }
}
