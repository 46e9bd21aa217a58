/* Places the values of a graph: those between nodes lie in the scratch, where values that are alive
 * at different times share bytes. */
#include "kernels/graph.h"

/* The size of the widest vectors, and of a cache line. */
#define ALIGNMENT ((size_t)64)

/* ---- Values that share bytes --------------------------------------------------------------- */

/* Where a value lies. An alias lies where its root does: it has the same bytes. All other values
 * are their own roots. */
struct spot {
    uint32_t root;
    enum qk_placement_kind kind; /* of a root */
    uint32_t port;               /* of a root that is an input or an output of the graph */
    uint32_t maker;
    uint32_t
        last; /* the last node that makes or reads the value; of a root: or one of its aliases */
};

static struct spot *take_spots(const struct qk_graph *graph, struct qk_memory memory)
{
    struct spot *spots = memory.alloc(memory.context, graph->value_count * sizeof(*spots));
    for (uint32_t i = 0; spots && i < graph->value_count; i++) {
        const struct qk_graph_value *value = &graph->values[i];
        spots[i] = (struct spot){i, value->kind, value->port, value->maker, value->last};
    }
    return spots;
}

/* Puts an alias and its source at one place. Returns false if they cannot share one, because both
 * are the caller's: the node then copies. */
static bool share_place(struct spot *spots, uint32_t source, uint32_t alias)
{
    struct spot *root = &spots[spots[source].root];
    if (spots[alias].kind == QK_PLACEMENT_OUTPUT) {
        if (root->kind != QK_PLACEMENT_SCRATCH)
            return false;
        root->kind = QK_PLACEMENT_OUTPUT;
        root->port = spots[alias].port;
    }
    if (spots[alias].last > root->last)
        root->last = spots[alias].last;
    spots[alias].root = spots[source].root;
    return true;
}

/* Finds the aliases. Their nodes have nothing to do. */
static void find_aliases(const struct qk_graph *graph, struct qk_node_plan *plans,
                         struct spot *spots)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        const struct qk_graph_node *node = &graph->nodes[i];
        if (node->runs && plans[i].plan.is_alias && node->inputs[0] != QK_VALUE_NONE &&
            share_place(spots, node->inputs[0], node->outputs[0]))
            plans[i].plan.unit_count = 0;
    }
}

/* ---- The scratch --------------------------------------------------------------------------- */

/* The bytes of a root in the scratch. Roots that are alive at the same time never share a byte. A
 * node's inputs and outputs are alive at the same time. */
struct room {
    const struct spot *spot;
    size_t bytes;
    double weight; /* heavier rooms are placed first */
    size_t begin;
    size_t best_begin; /* in the smallest scratch so far */
    struct room *next; /* the placed room that begins next */
};

struct rooms {
    struct room *list;
    size_t count;
    size_t node_count;
};

/* Sorts by weight. Of two rooms of the same weight, the value with the lower number comes first. */
static void sort_by_weight(const struct rooms *rooms)
{
    struct room *list = rooms->list;
    for (size_t i = 1; i < rooms->count; i++) {
        const struct room room = list[i];
        size_t at = i;
        for (; at > 0 && (list[at - 1].weight < room.weight ||
                          (list[at - 1].weight == room.weight && list[at - 1].spot > room.spot));
             at--)
            list[at] = list[at - 1];
        list[at] = room;
    }
}

static bool live_together(const struct spot *a, const struct spot *b)
{
    return a->maker <= b->last && b->maker <= a->last;
}

/* Puts a room into the lowest gap that is large enough. Returns false if its end would overflow. */
static bool place(struct room *room, struct room **first, size_t *scratch_bytes)
{
    size_t end;
    room->begin = 0;
    for (const struct room *other = *first; other; other = other->next) {
        if (!live_together(other->spot, room->spot))
            continue;
        if (other->begin >= room->begin && other->begin - room->begin >= room->bytes)
            break;
        if (other->begin + other->bytes > room->begin)
            room->begin = other->begin + other->bytes;
    }
    if (__builtin_add_overflow(room->begin, room->bytes, &end))
        return false;
    if (end > *scratch_bytes)
        *scratch_bytes = end;
    struct room **link = first;
    while (*link && (*link)->begin <= room->begin)
        link = &(*link)->next;
    room->next = *link;
    *link = room;
    return true;
}

/* Places all rooms in the order of their weights. Keeps the result if the scratch is smaller than
 * *best_bytes. */
static void try_weights(const struct rooms *rooms, size_t *best_bytes)
{
    struct room *first = NULL;
    size_t bytes = 0;
    bool fits = true;
    sort_by_weight(rooms);
    for (size_t i = 0; i < rooms->count && fits; i++)
        fits = place(&rooms->list[i], &first, &bytes);
    if (!fits || bytes >= *best_bytes)
        return;
    for (size_t i = 0; i < rooms->count; i++)
        rooms->list[i].best_begin = rooms->list[i].begin;
    *best_bytes = bytes;
}

/* Returns the most bytes that are alive at one node. No scratch can be smaller. */
static size_t most_alive(const struct rooms *rooms)
{
    size_t most = 0;
    for (uint32_t node = 0; node < rooms->node_count; node++) {
        size_t alive = 0;
        for (size_t i = 0; i < rooms->count; i++) {
            const struct room *room = &rooms->list[i];
            if (room->spot->maker <= node && node <= room->spot->last)
                alive += room->bytes;
        }
        most = alive > most ? alive : most;
    }
    return most;
}

/* Places all rooms, and returns the size of the scratch, or SIZE_MAX if it would be larger. The
 * largest rooms come first, which is nearly always the best order. If it leaves gaps, the rooms
 * that are large for a long time come first, and the smaller scratch counts. */
static size_t place_rooms(const struct rooms *rooms)
{
    size_t best_bytes = SIZE_MAX;
    for (size_t i = 0; i < rooms->count; i++)
        rooms->list[i].weight = (double)rooms->list[i].bytes;
    try_weights(rooms, &best_bytes);
    if (best_bytes == SIZE_MAX || best_bytes == most_alive(rooms))
        return best_bytes;
    for (size_t i = 0; i < rooms->count; i++) {
        struct room *room = &rooms->list[i];
        room->weight *= room->spot->last - room->spot->maker + 1;
    }
    try_weights(rooms, &best_bytes);
    return best_bytes;
}

static bool is_in_scratch(const struct spot *spots, uint32_t value)
{
    return spots[value].root == value && spots[value].kind == QK_PLACEMENT_SCRATCH;
}

static size_t count_rooms(const struct qk_graph *graph, const struct spot *spots)
{
    size_t count = 0;
    for (uint32_t i = 0; i < graph->value_count; i++)
        count += is_in_scratch(spots, i);
    return count;
}

static struct qk_placement *placement_by_maker(const struct qk_graph *graph,
                                               const struct qk_node_plan *plans, uint32_t value)
{
    return &plans[graph->values[value].maker].outputs[graph->values[value].output];
}

/* Lists the roots that lie in the scratch. Returns false if the size of one would overflow. */
static bool list_rooms(const struct qk_graph *graph, const struct spot *spots,
                       const struct qk_node_plan *plans, struct room *rooms)
{
    for (uint32_t i = 0; i < graph->value_count; i++) {
        const struct qk_graph_value *value = &graph->values[i];
        if (!is_in_scratch(spots, i))
            continue;
        const size_t bytes = plans[value->maker].plan.output_bytes[value->output];
        *rooms = (struct room){.spot = &spots[i]};
        if (__builtin_add_overflow(bytes, ALIGNMENT - 1, &rooms->bytes))
            return false;
        rooms->bytes -= rooms->bytes % ALIGNMENT;
        rooms++;
    }
    return true;
}

/* Places each root that lies in the scratch. The plan of the node that makes it keeps the place. */
static enum qk_status place_all(const struct qk_graph *graph, const struct spot *spots,
                                struct qk_memory memory, struct qk_node_plan *plans,
                                size_t *scratch_bytes, struct qk_error *error)
{
    struct rooms rooms = {.count = count_rooms(graph, spots), .node_count = graph->node_count};
    *scratch_bytes = 0;
    if (rooms.count == 0)
        return QK_OK;
    rooms.list = memory.alloc(memory.context, rooms.count * sizeof(*rooms.list));
    if (!rooms.list)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan of %zu values", rooms.count);
    *scratch_bytes = list_rooms(graph, spots, plans, rooms.list) ? place_rooms(&rooms) : SIZE_MAX;
    if (*scratch_bytes == SIZE_MAX)
        return qk_fail(error, QK_INVALID,
                       "the graph: expected intermediate tensors of less than %zu bytes, got more",
                       SIZE_MAX);
    for (size_t i = 0; i < rooms.count; i++)
        placement_by_maker(graph, plans, (uint32_t)(rooms.list[i].spot - spots))->at =
            rooms.list[i].best_begin;
    return QK_OK;
}

static struct qk_placement placement_of(const struct qk_graph *graph, const struct spot *spots,
                                        const struct qk_node_plan *plans, uint32_t index)
{
    if (index == QK_VALUE_NONE)
        return (struct qk_placement){.kind = QK_PLACEMENT_NONE};
    const uint32_t root = spots[index].root;
    const bool is_placed = spots[root].kind == QK_PLACEMENT_SCRATCH;
    return (struct qk_placement){
        .kind = spots[root].kind,
        .at = is_placed ? placement_by_maker(graph, plans, root)->at : spots[root].port,
    };
}

/* A root's placement is filled in before its aliases', because its node comes first. */
static void fill_placements(const struct qk_graph *graph, const struct spot *spots,
                            struct qk_node_plan *plans)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        const struct qk_graph_node *node = &graph->nodes[i];
        const struct qk_operator *op = node->instance->op;
        for (size_t k = 0; k < op->input_count; k++)
            plans[i].inputs[k] = placement_of(graph, spots, plans, node->inputs[k]);
        for (size_t k = 0; k < op->output_count; k++)
            plans[i].outputs[k] = placement_of(graph, spots, plans, node->outputs[k]);
    }
}

/* ---- All ----------------------------------------------------------------------------------- */

enum qk_status qk_graph_place(const struct qk_graph *graph, struct qk_node_plan *plans,
                              struct qk_memory memory, size_t *scratch_bytes,
                              struct qk_error *error)
{
    struct spot *spots = take_spots(graph, memory);
    if (!spots)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan of %zu nodes",
                       graph->node_count);
    find_aliases(graph, plans, spots);
    const enum qk_status status = place_all(graph, spots, memory, plans, scratch_bytes, error);
    if (status == QK_OK)
        fill_placements(graph, spots, plans);
    return status;
}
