#include "server/models/model.h"

#include <string.h>

/* Once a copy has failed, all later copies fail. Nodes share names and constants, so each block of
 * bytes is copied once: a file of one large constant that many nodes read must not take a multiple
 * of its bytes. */
struct copier {
    struct qd_arena *arena;
    struct block {
        const void *from;
        size_t bytes;
        void *made;
    } * blocks; /* an open hash table; made is NULL in free slots */
    size_t mask;
    bool failed;
};

static void *copy(struct copier *copier, const void *from, size_t bytes)
{
    void *made = copier->failed ? NULL : qd_arena_alloc(copier->arena, bytes);
    copier->failed = made == NULL;
    if (made != NULL && bytes > 0)
        memcpy(made, from, bytes);
    return made;
}

/* Returns the copy of these bytes, which is made when they are seen first. */
static void *copy_once(struct copier *copier, const void *from, size_t bytes)
{
    const uint64_t hash = (uintptr_t)from * UINT64_C(0x9e3779b97f4a7c15);
    size_t slot = (size_t)(hash >> 32) & copier->mask;
    while (copier->blocks[slot].made != NULL &&
           (copier->blocks[slot].from != from || copier->blocks[slot].bytes != bytes))
        slot = (slot + 1) & copier->mask;
    if (copier->blocks[slot].made == NULL)
        copier->blocks[slot] = (struct block){from, bytes, copy(copier, from, bytes)};
    return copier->blocks[slot].made;
}

static const char *copy_string(struct copier *copier, const char *from)
{
    return copy_once(copier, from, strlen(from) + 1);
}

/* Copies what the node's call points at. Inputs that come with each request have NULL data. */
static void copy_call(struct copier *copier, struct qk_call *call)
{
    for (size_t i = 0; i < call->op->input_count; i++) {
        struct qk_tensor *tensor = &call->inputs[i];
        size_t bytes;
        if (tensor->type != QK_NONE && tensor->data != NULL &&
            qk_type_bytes(tensor->type, tensor->stored, &bytes))
            tensor->data = copy_once(copier, tensor->data, bytes);
    }
    for (size_t i = 0; i < call->op->attribute_count; i++) {
        struct qk_attribute *attribute = &call->attributes[i];
        if (attribute->list_count > 0)
            attribute->list = copy_once(copier, attribute->list,
                                        attribute->list_count * sizeof(*attribute->list));
        if (attribute->string != NULL)
            attribute->string = copy_string(copier, attribute->string);
    }
}

/* Makes a hash table that stays half empty. */
static bool make_table(struct copier *copier, const struct qk_graph_call *call,
                       struct qd_arena *scratch)
{
    size_t count = call->value_count;
    size_t slots = 1;
    for (size_t i = 0; i < call->node_count; i++) {
        const struct qk_operator *op = call->nodes[i].call.op;
        count += 1 + op->input_count + 2 * op->attribute_count;
    }
    while (slots < 2 * count)
        slots *= 2;
    copier->blocks = qd_arena_calloc(scratch, slots, sizeof(*copier->blocks));
    copier->mask = slots - 1;
    return copier->blocks != NULL;
}

static struct qk_graph_call *copy_graph(struct copier *copier, const struct qk_graph_call *call)
{
    struct qk_node *nodes = copy(copier, call->nodes, call->node_count * sizeof(*call->nodes));
    const char **names =
        copy(copier, call->value_names, call->value_count * sizeof(*call->value_names));
    struct qk_graph_call made = *call;
    for (size_t i = 0; i < call->node_count && !copier->failed; i++) {
        nodes[i].name = copy_string(copier, nodes[i].name);
        copy_call(copier, &nodes[i].call);
    }
    for (size_t i = 0; i < call->value_count && !copier->failed; i++)
        names[i] = copy_string(copier, names[i]);
    made.nodes = nodes;
    made.value_names = names;
    made.work = NULL; /* these are the load's, which ends */
    made.memory = NULL;
    made.fates = NULL;
    made.fate_count = 0;
    return copy(copier, &made, sizeof(made));
}

struct qk_graph_call *qd_deferred_copy(const struct qk_graph_call *call, struct qd_arena *arena)
{
    struct copier copier = {.arena = arena};
    struct qd_arena scratch;
    qd_arena_init_beside(&scratch, arena);
    struct qk_graph_call *made = NULL;
    if (make_table(&copier, call, &scratch))
        made = copy_graph(&copier, call);
    else
        arena->refused_bytes = scratch.refused_bytes; /* for qd_refuse_memory */
    qd_arena_deinit(&scratch);
    return made;
}

enum qk_status qd_deferred_prepare(const struct qk_graph_call *deferred,
                                   const struct qk_kernels *kernels, const struct qk_tensor *inputs,
                                   struct qk_memory memory, struct qk_graph **graph,
                                   struct qk_error *error)
{
    struct qk_graph_call call = *deferred;
    const size_t bytes = call.node_count * sizeof(*call.nodes);
    struct qk_node *nodes = memory.alloc(memory.context, bytes);
    if (nodes == NULL)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a graph of %zu nodes",
                       call.node_count);
    memcpy(nodes, call.nodes, bytes);
    for (size_t i = 0; i < call.node_count; i++) {
        nodes[i].call.constants_stay = true;
        for (size_t k = 0; k < nodes[i].call.op->input_count; k++) {
            struct qk_tensor *tensor = &nodes[i].call.inputs[k];
            if (!(nodes[i].call.variable >> k & 1) && tensor->type != QK_NONE &&
                tensor->data == NULL)
                *tensor = inputs[nodes[i].inputs[k]];
        }
    }
    call.nodes = nodes;
    return qk_graph_prepare(kernels, &call, memory, graph, error);
}
