/* Places the values of a graph: those between nodes lie in the scratch, where values that are alive
 * at different times share bytes. */
#include <stdlib.h>

#include "kernels/graph.h"

/* Each output of a node begins at a multiple of this: qk_run wants it. */
#define ALIGNMENT ((size_t)64)

/* ---- Values that share bytes --------------------------------------------------------------- */

/* Where a value lies: at its root, from `offset` on. Values that share bytes with others lie at one
 * root. All other values are their own roots. */
struct spot {
    uint32_t root;               /* or a value on the way to it: find_place */
    size_t offset;               /* in bytes, from where the value `root` begins */
    enum qk_placement_kind kind; /* of a root */
    uint32_t port;               /* of a root that is an input or an output of the graph */
    uint32_t first; /* the node that makes the value; of a root: the first that makes one of its
                       values */
    uint32_t last;  /* the last node that makes or reads the value; of a root: of all its values */
};

struct sharing {
    const struct qk_graph *graph;
    const struct qk_node_plan *plans;
    struct spot *spots; /* of each value */
    bool *is_idle;      /* of each node: its outputs lie where its inputs do */
};

struct place {
    uint32_t root;
    size_t offset;
};

/* Finds the root, and makes all values on the way point to it (path compression). */
static struct place find_place(struct spot *spots, uint32_t value)
{
    struct place found = {value, 0};
    while (spots[found.root].root != found.root) {
        found.offset += spots[found.root].offset;
        found.root = spots[found.root].root;
    }
    size_t offset = found.offset;
    while (value != found.root) {
        struct spot *spot = &spots[value];
        const size_t step = spot->offset;
        value = spot->root;
        spot->root = found.root;
        spot->offset = offset;
        offset -= step;
    }
    return found;
}

static bool is_in_scratch(const struct spot *spots, uint32_t value)
{
    return spots[value].root == value && spots[value].kind == QK_PLACEMENT_SCRATCH;
}

/* Returns the size of a value that a node makes. */
static size_t bytes_of(const struct sharing *sharing, uint32_t value)
{
    const struct qk_graph_value *made = &sharing->graph->values[value];
    return sharing->plans[made->maker].plan.output_bytes[made->output];
}

/* Puts a root into another one, from `offset` on. */
static void put_into(struct spot *spots, uint32_t root, uint32_t other, size_t offset)
{
    struct spot *to = &spots[other];
    spots[root].root = other;
    spots[root].offset = offset;
    if (spots[root].first < to->first)
        to->first = spots[root].first;
    if (spots[root].last > to->last)
        to->last = spots[root].last;
}

/* Puts an alias and its source at one place. Returns false if they cannot share one, because both
 * are the caller's: the node then copies. */
static bool share_place(struct spot *spots, uint32_t source, uint32_t alias)
{
    const struct place place = find_place(spots, source);
    struct spot *root = &spots[place.root];
    if (spots[alias].kind == QK_PLACEMENT_OUTPUT) {
        if (root->kind != QK_PLACEMENT_SCRATCH)
            return false;
        root->kind = QK_PLACEMENT_OUTPUT;
        root->port = spots[alias].port;
    }
    put_into(spots, alias, place.root, place.offset);
    return true;
}

/* ---- Parts of values ----------------------------------------------------------------------- */

/* Puts the outputs of a node, which are the parts of its input, where they are in the input.
 * Returns false if one of them is the caller's. */
static bool share_parts(const struct sharing *sharing, const struct qk_graph_node *node,
                        const struct qk_plan *plan)
{
    struct spot *spots = sharing->spots;
    if (node->inputs[0] == QK_VALUE_NONE)
        return false;
    for (size_t i = 0; i < plan->output_count; i++)
        if (!is_in_scratch(spots, node->outputs[i]))
            return false;
    struct place place = find_place(spots, node->inputs[0]);
    for (size_t i = 0; i < plan->output_count; i++) {
        put_into(spots, node->outputs[i], place.root, place.offset);
        place.offset += plan->output_bytes[i];
    }
    return true;
}

/* The tensors that a node joins, and where they begin in its output. */
struct parts {
    uint32_t values[QK_INPUT_COUNT_MAX];
    size_t at[QK_INPUT_COUNT_MAX + 1];
    size_t count;
};

/* Lists the parts. Returns false if one of them is a constant or the caller's. */
static bool list_parts(const struct sharing *sharing, const struct qk_graph_node *node,
                       struct parts *parts)
{
    const struct qk_operator *op = node->instance->op;
    parts->count = 0;
    parts->at[0] = 0;
    for (size_t i = op->list_begin; i < op->input_count; i += 1 + op->list_begin) {
        const uint32_t value = node->inputs[i];
        if (node->instance->types[i] == QK_NONE)
            break;
        if (value == QK_VALUE_NONE || sharing->graph->values[value].kind == QK_PLACEMENT_INPUT)
            return false;
        parts->values[parts->count] = value;
        parts->at[parts->count + 1] = parts->at[parts->count] + bytes_of(sharing, value);
        parts->count++;
    }
    return parts->count > 0;
}

/* Puts the output where its parts already are, one behind the other. */
static bool share_joined(const struct sharing *sharing, uint32_t output, const struct parts *parts)
{
    struct spot *spots = sharing->spots;
    const struct place first = find_place(spots, parts->values[0]);
    if (!is_in_scratch(spots, output) || first.root == output)
        return false;
    for (size_t i = 1; i < parts->count; i++) {
        const struct place place = find_place(spots, parts->values[i]);
        if (place.root != first.root || place.offset != first.offset + parts->at[i])
            return false;
    }
    put_into(spots, output, first.root, first.offset);
    return true;
}

/* The roots of parts, and where they have to begin in the root of the output. */
struct moves {
    struct place list[QK_INPUT_COUNT_MAX];
    size_t count;
};

/* Adds the root of part i to the roots that move. The root has to consist of this part, or of this
 * part and the next ones, because all values at a root move with it. Returns how many parts these
 * are, or 0 if the root cannot move: it belongs to the caller, moves already, or would begin in the
 * middle of a line, where no node may write an output (qk_run). */
static size_t add_move(const struct sharing *sharing, const struct parts *parts, size_t i,
                       const struct place *to, struct moves *moves)
{
    const struct place from = find_place(sharing->spots, parts->values[i]);
    size_t count = 0;
    if (sharing->spots[from.root].kind != QK_PLACEMENT_SCRATCH || to->offset % ALIGNMENT > 0)
        return 0;
    for (size_t k = 0; k < moves->count; k++)
        if (moves->list[k].root == from.root)
            return 0;
    for (; i + count < parts->count; count++) {
        const struct place place = find_place(sharing->spots, parts->values[i + count]);
        if (place.root != from.root || place.offset != parts->at[i + count] - parts->at[i])
            break;
    }
    if (parts->at[i + count] - parts->at[i] != bytes_of(sharing, from.root))
        return 0;
    moves->list[moves->count++] = (struct place){from.root, to->offset};
    return count;
}

/* Puts all parts of an output where they are in the output, so that the nodes that make them write
 * there. Returns false, and changes nothing, unless that is possible for all parts. */
static bool share_output(const struct sharing *sharing, uint32_t output, const struct parts *parts)
{
    struct spot *spots = sharing->spots;
    const struct place whole = find_place(spots, output);
    struct moves moves = {.count = 0};
    if (spots[whole.root].kind == QK_PLACEMENT_INPUT)
        return false;
    for (size_t i = 0; i < parts->count;) {
        const struct place from = find_place(spots, parts->values[i]);
        const struct place to = {whole.root, whole.offset + parts->at[i]};
        const size_t count = from.root != to.root       ? add_move(sharing, parts, i, &to, &moves)
                             : from.offset == to.offset ? 1
                                                        : 0;
        if (count == 0)
            return false;
        i += count;
    }
    for (size_t i = 0; i < moves.count; i++)
        put_into(spots, moves.list[i].root, whole.root, moves.list[i].offset);
    return true;
}

/* ---- Nodes that have nothing to do --------------------------------------------------------- */

static void find_spots(const struct sharing *sharing)
{
    const struct qk_graph *graph = sharing->graph;
    for (uint32_t i = 0; i < graph->value_count; i++) {
        const struct qk_graph_value *value = &graph->values[i];
        sharing->spots[i] =
            (struct spot){i, 0, value->kind, value->port, value->maker, value->last};
    }
    for (size_t i = 0; i < graph->node_count; i++) {
        const struct qk_graph_node *node = &graph->nodes[i];
        sharing->is_idle[i] = node->runs && sharing->plans[i].plan.is_alias &&
                              node->inputs[0] != QK_VALUE_NONE &&
                              share_place(sharing->spots, node->inputs[0], node->outputs[0]);
    }
}

/* Finds nodes that cut or join, and whose parts lie in the whole. Of nodes that join, the last come
 * first: in a network whose layers read all layers before, the last one joins the most, and what
 * the others join is a part of it. */
static void find_parts(const struct sharing *sharing)
{
    const struct qk_graph *graph = sharing->graph;
    struct parts parts;
    for (size_t i = 0; i < graph->node_count; i++)
        if (graph->nodes[i].runs && sharing->plans[i].plan.cuts)
            sharing->is_idle[i] = share_parts(sharing, &graph->nodes[i], &sharing->plans[i].plan);
    for (size_t left = graph->node_count; left > 0; left--) {
        const struct qk_graph_node *node = &graph->nodes[left - 1];
        if (node->runs && sharing->plans[left - 1].plan.joins && list_parts(sharing, node, &parts))
            sharing->is_idle[left - 1] = share_joined(sharing, node->outputs[0], &parts) ||
                                         share_output(sharing, node->outputs[0], &parts);
    }
}

/* ---- The scratch --------------------------------------------------------------------------- */

/* The bytes of a root in the scratch. Roots that are alive at the same time never share a byte. A
 * node's inputs and outputs are alive at the same time. */
struct room {
    const struct spot *spot;
    uint32_t first, last; /* as in the spot */
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

/* The heavier room comes first. Of two rooms of the same weight, the value with the lower number
 * comes first. */
static int compare(const void *first, const void *second)
{
    const struct room *a = first, *b = second;
    return a->weight > b->weight   ? -1
           : a->weight < b->weight ? 1
                                   : (a->spot > b->spot) - (a->spot < b->spot);
}

static bool live_together(const struct room *a, const struct room *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* Puts a room into the lowest gap that is large enough. Returns false if its end would overflow. */
static bool place(struct room *room, struct room **first, size_t *scratch_bytes)
{
    size_t end;
    struct room **link = first;
    room->begin = 0;
    for (struct room *other = *first; other; other = other->next) {
        if (live_together(other, room)) {
            if (other->begin >= room->begin && other->begin - room->begin >= room->bytes)
                break;
            if (other->begin + other->bytes > room->begin)
                room->begin = other->begin + other->bytes;
        }
        if (other->begin <= room->begin)
            link = &other->next;
    }
    if (__builtin_add_overflow(room->begin, room->bytes, &end))
        return false;
    if (end > *scratch_bytes)
        *scratch_bytes = end;
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
    qsort(rooms->list, rooms->count, sizeof(*rooms->list), compare);
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
            if (room->first <= node && node <= room->last)
                alive += room->bytes;
        }
        most = alive > most ? alive : most;
    }
    return most;
}

/* The most rooms that are placed several times, for the smallest scratch. The time of placing grows
 * with the square of the rooms. Networks have fewer rooms, because few nodes have more than one
 * output. More rooms are placed once, which takes about a second for QK_GRAPH_VALUE_COUNT_MAX
 * values. */
#define ROOMS_TRIED_MAX ((size_t)QK_GRAPH_NODE_COUNT_MAX)

/* Places all rooms, and returns the size of the scratch, or SIZE_MAX if it would be larger. The
 * largest rooms come first, which is nearly always the best order. If it leaves gaps, the rooms
 * that are large for a long time come first, and the smaller scratch counts. */
static size_t place_rooms(const struct rooms *rooms)
{
    size_t best_bytes = SIZE_MAX;
    for (size_t i = 0; i < rooms->count; i++)
        rooms->list[i].weight = (double)rooms->list[i].bytes;
    try_weights(rooms, &best_bytes);
    if (best_bytes == SIZE_MAX || rooms->count > ROOMS_TRIED_MAX || best_bytes == most_alive(rooms))
        return best_bytes;
    for (size_t i = 0; i < rooms->count; i++) {
        struct room *room = &rooms->list[i];
        room->weight *= room->last - room->first + 1;
    }
    try_weights(rooms, &best_bytes);
    return best_bytes;
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
        *rooms = (struct room){.spot = &spots[i], .first = spots[i].first, .last = spots[i].last};
        if (__builtin_add_overflow(bytes, ALIGNMENT - 1, &rooms->bytes))
            return false;
        rooms->bytes -= rooms->bytes % ALIGNMENT;
        rooms++;
    }
    return true;
}

/* Places each root that lies in the scratch. The plan of the node that makes it keeps the place.
 * `list` has room for all roots. */
static enum qk_status place_all(const struct sharing *sharing, struct room *list,
                                struct qk_node_plan *plans, size_t *scratch_bytes,
                                struct qk_error *error)
{
    const struct qk_graph *graph = sharing->graph;
    const struct spot *spots = sharing->spots;
    const struct rooms rooms = {
        .list = list, .count = count_rooms(graph, spots), .node_count = graph->node_count};
    *scratch_bytes = 0;
    if (rooms.count == 0)
        return QK_OK;
    *scratch_bytes = list_rooms(graph, spots, plans, list) ? place_rooms(&rooms) : SIZE_MAX;
    if (*scratch_bytes == SIZE_MAX)
        return qk_fail(error, QK_INVALID,
                       "the graph: expected intermediate tensors of less than %zu bytes, got more",
                       SIZE_MAX);
    for (size_t i = 0; i < rooms.count; i++)
        placement_by_maker(graph, plans, (uint32_t)(list[i].spot - spots))->at = list[i].best_begin;
    return QK_OK;
}

static struct qk_placement placement_of(const struct qk_graph *graph, struct spot *spots,
                                        const struct qk_node_plan *plans, uint32_t index)
{
    if (index == QK_VALUE_NONE)
        return (struct qk_placement){.kind = QK_PLACEMENT_NONE};
    const struct place place = find_place(spots, index);
    const struct spot *root = &spots[place.root];
    if (root->kind != QK_PLACEMENT_SCRATCH)
        return (struct qk_placement){root->kind, root->port, place.offset};
    return (struct qk_placement){root->kind, 0,
                                 placement_by_maker(graph, plans, place.root)->at + place.offset};
}

/* A root's own placement is already there, and is filled in again. */
static void fill_placements(const struct qk_graph *graph, struct spot *spots,
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

/* A whole that has its parts is alive from the first node that makes a part to the last node that
 * reads one, which may need more scratch than copies do. Parts lie in the whole only if the scratch
 * grows at most by this factor. */
#define WHOLE_RATIO_MAX 1.05

static bool has_parts(const struct sharing *sharing)
{
    for (size_t i = 0; i < sharing->graph->node_count; i++)
        if (sharing->plans[i].plan.joins || sharing->plans[i].plan.cuts)
            return true;
    return false;
}

/* Places all values, with or without parts in their wholes. */
static enum qk_status place_values(const struct sharing *sharing, bool with_parts,
                                   struct room *list, struct qk_node_plan *plans,
                                   size_t *scratch_bytes, struct qk_error *error)
{
    find_spots(sharing);
    if (with_parts)
        find_parts(sharing);
    return place_all(sharing, list, plans, scratch_bytes, error);
}

enum qk_status qk_graph_place(const struct qk_graph *graph, struct qk_node_plan *plans,
                              struct qk_memory memory, size_t *scratch_bytes,
                              struct qk_error *error)
{
    struct sharing sharing = {.graph = graph, .plans = plans};
    struct room *list = NULL;
    size_t count = 0;
    sharing.spots = memory.alloc(memory.context, graph->value_count * sizeof(*sharing.spots));
    sharing.is_idle = memory.alloc(memory.context, graph->node_count * sizeof(*sharing.is_idle));
    if (sharing.spots && sharing.is_idle) {
        find_spots(&sharing);
        count = count_rooms(graph, sharing.spots);
        list = memory.alloc(memory.context, (count + 1) * sizeof(*list));
    }
    if (!list)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan of %zu nodes",
                       graph->node_count);
    size_t least;
    enum qk_status status = place_values(&sharing, false, list, plans, &least, error);
    *scratch_bytes = least;
    if (status == QK_OK && count <= ROOMS_TRIED_MAX && has_parts(&sharing)) {
        status = place_values(&sharing, true, list, plans, scratch_bytes, error);
        if (status == QK_OK && (double)*scratch_bytes > WHOLE_RATIO_MAX * (double)least)
            status = place_values(&sharing, false, list, plans, scratch_bytes, error);
    }
    if (status != QK_OK)
        return status;
    fill_placements(graph, sharing.spots, plans);
    for (size_t i = 0; i < graph->node_count; i++)
        if (sharing.is_idle[i])
            plans[i].plan.unit_count = 0;
    return QK_OK;
}
