#define _GNU_SOURCE
#include "server/work/constant_pages.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* A constant of a node. */
struct use {
    uintptr_t begin, end; /* where its bytes are */
    size_t node;          /* index into `nodes` */
    size_t span;          /* index into `spans` */
};

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
    size_t use_begin, use_end;
};

struct qd_constant_pages {
    struct packed_node *nodes; /* by their units */
    size_t node_count;
    struct use *uses; /* by their nodes */
    size_t use_count;
    struct span *spans;
    size_t span_count;
};

/* ---- Finding ------------------------------------------------------------------------------ */

/* Appends the constants of a call. Only counts them while `uses` is NULL. */
static void add_uses(struct qd_constant_pages *pages, const struct qk_call *call, size_t node)
{
    for (size_t i = 0; i < call->op->input_count; i++) {
        const struct qk_tensor *tensor = &call->inputs[i];
        size_t bytes;
        if ((call->variable >> i & 1) != 0 || tensor->type == QK_NONE || tensor->data == NULL ||
            !qk_type_bytes(tensor->type, tensor->stored, &bytes))
            continue;
        if (pages->uses != NULL)
            pages->uses[pages->use_count] = (struct use){.begin = (uintptr_t)tensor->data,
                                                         .end = (uintptr_t)tensor->data + bytes,
                                                         .node = node};
        pages->use_count++;
    }
}

static void add_all_uses(struct qd_constant_pages *pages)
{
    pages->use_count = 0;
    for (size_t i = 0; i < pages->node_count; i++)
        add_uses(pages, pages->nodes[i].call, i);
}

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
    return compare(((const struct use *)a)->begin, ((const struct use *)b)->begin);
}

static int by_node(const void *a, const void *b)
{
    return compare(((const struct use *)a)->node, ((const struct use *)b)->node);
}

/* Appends a node, unless it has no units. */
static void add_node(struct qd_constant_pages *pages, const struct qk_call *call,
                     struct qk_pack_range units)
{
    if (units.begin == units.end)
        return;
    struct packed_node *node = &pages->nodes[pages->node_count++];
    node->units = units;
    node->call = call;
}

/* Joins constants that overlap, because a page may be given back only if nobody reads it. */
static void make_spans(struct qd_constant_pages *pages)
{
    struct span *span = NULL;
    qsort(pages->uses, pages->use_count, sizeof(*pages->uses), by_address);
    for (size_t i = 0; i < pages->use_count; i++) {
        struct use *use = &pages->uses[i];
        if (span == NULL || use->begin >= span->end) {
            span = &pages->spans[pages->span_count++];
            span->begin = use->begin;
            span->end = use->end;
            atomic_init(&span->uses_left, 0);
        }
        span->end = use->end > span->end ? use->end : span->end;
        atomic_fetch_add(&span->uses_left, 1);
        use->span = pages->span_count - 1;
    }
}

static void sort_by_node(struct qd_constant_pages *pages)
{
    qsort(pages->uses, pages->use_count, sizeof(*pages->uses), by_node);
    size_t at = 0;
    for (size_t i = 0; i < pages->node_count; i++) {
        pages->nodes[i].use_begin = at;
        while (at < pages->use_count && pages->uses[at].node == i)
            at++;
        pages->nodes[i].use_end = at;
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
    for (size_t i = 0; i < count; i++)
        add_node(pages, &call->nodes[i].call, ranges[i]);
    qsort(pages->nodes, pages->node_count, sizeof(*pages->nodes), by_units);
    for (size_t i = 0; i < pages->node_count; i++) {
        const struct qk_pack_range units = pages->nodes[i].units;
        atomic_init(&pages->nodes[i].units_left, units.end - units.begin);
    }
    add_all_uses(pages);
    pages->uses = qd_arena_calloc(arena, pages->use_count, sizeof(*pages->uses));
    pages->spans = qd_arena_calloc(arena, pages->use_count, sizeof(*pages->spans));
    if (pages->uses == NULL || pages->spans == NULL)
        return NULL;
    add_all_uses(pages);
    make_spans(pages);
    sort_by_node(pages);
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

/* Returns the index of the node that has this unit. */
static size_t find_node(const struct qd_constant_pages *pages, size_t unit)
{
    size_t begin = 0, end = pages->node_count;
    while (end - begin > 1) {
        const size_t middle = begin + (end - begin) / 2;
        if (pages->nodes[middle].units.begin <= unit)
            begin = middle;
        else
            end = middle;
    }
    return begin;
}

void qd_constant_pages_packed(struct qd_constant_pages *pages, size_t begin, size_t end)
{
    if (pages == NULL || begin >= end)
        return;
    for (size_t i = find_node(pages, begin); begin < end; i++) {
        struct packed_node *node = &pages->nodes[i];
        const size_t until = end < node->units.end ? end : node->units.end;
        const size_t done = until - begin;
        begin = until;
        if (atomic_fetch_sub(&node->units_left, done) != done)
            continue;
        for (size_t k = node->use_begin; k < node->use_end; k++) {
            struct span *span = &pages->spans[pages->uses[k].span];
            if (atomic_fetch_sub(&span->uses_left, 1) == 1)
                give_back(span);
        }
    }
}
