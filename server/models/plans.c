#include "server/models/plans.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/lock.h"

/* Bounds the bytes of all plans of one graph. A plan takes some 4.5 KiB for each node, so a graph
 * of QK_GRAPH_NODE_COUNT_MAX nodes keeps one plan, and much shorter graphs keep eight. */
enum { BYTES_MAX = 24 << 20 };

#define NODE_NS_MAX (UINT64_C(1) << 40)

/* A kept plan. It lies in its own arena, with its key. */
struct qd_kept_plan {
    struct qk_graph_plan plan;
    uint64_t compute_ns;
    size_t pin_count;
    bool listed; /* false: there was no room in the list, so the last unpin frees the plan */
    struct qd_arena arena;
    size_t key[]; /* the rank and the dims of each input */
};

struct qd_plans {
    const struct qk_graph *graph;
    struct qd_memory *memory;
    pthread_mutex_t lock; /* protects all fields below, and the fields of the kept plans */
    struct qd_kept_plan *list[QD_PLANS_COUNT_MAX]; /* the one that was used last is first */
    size_t count;
    size_t bytes; /* the sum of the plans' arenas */
};

struct qd_plans *qd_plans_create(const struct qk_graph *graph, struct qd_memory *memory)
{
    struct qd_plans *plans = calloc(1, sizeof(*plans));
    if (plans != NULL) {
        plans->graph = graph;
        plans->memory = memory;
        pthread_mutex_init(&plans->lock, NULL);
    }
    return plans;
}

uint64_t qd_plan_node_ns(const struct qk_plan *node)
{
    uint64_t ns;
    return __builtin_mul_overflow(node->unit_count, node->unit_cost_ns, &ns) || ns > NODE_NS_MAX
               ? NODE_NS_MAX
               : ns;
}

uint64_t qd_plan_compute_ns(const struct qk_graph_plan *plan)
{
    uint64_t sum_ns = 0;
    for (size_t i = 0; i < plan->node_count; i++)
        sum_ns += qd_plan_node_ns(&plan->nodes[i].plan);
    return sum_ns;
}

static void destroy_kept(struct qd_kept_plan *kept)
{
    struct qd_arena arena = kept->arena;
    qd_arena_deinit(&arena);
}

/* ---- The list ----------------------------------------------------------------------------- */

static void move_to_front(struct qd_plans *plans, size_t index)
{
    struct qd_kept_plan *kept = plans->list[index];
    memmove(&plans->list[1], &plans->list[0], index * sizeof(struct qd_kept_plan *));
    plans->list[0] = kept;
}

static bool fits(const struct qd_plans *plans, size_t bytes)
{
    return plans->count < QD_PLANS_COUNT_MAX && bytes <= BYTES_MAX - plans->bytes;
}

/* Removes the oldest plans that are not pinned from the list, until `bytes` more bytes fit. Removes
 * none if that can never succeed. Moves the removed plans to `out`, and returns how many there are.
 * The caller holds the lock. */
static size_t make_room(struct qd_plans *plans, size_t bytes,
                        struct qd_kept_plan *out[QD_PLANS_COUNT_MAX])
{
    size_t out_count = 0;
    for (size_t i = plans->count; i-- > 0 && bytes <= BYTES_MAX && !fits(plans, bytes);) {
        struct qd_kept_plan *kept = plans->list[i];
        if (kept->pin_count > 0)
            continue;
        plans->count--;
        plans->bytes -= kept->arena.bytes;
        memmove(&plans->list[i], &plans->list[i + 1],
                (plans->count - i) * sizeof(struct qd_kept_plan *));
        out[out_count++] = kept;
    }
    return out_count;
}

void qd_plans_destroy(struct qd_plans *plans)
{
    if (plans == NULL)
        return;
    for (size_t i = 0; i < plans->count; i++) {
        assert(plans->list[i]->pin_count == 0);
        destroy_kept(plans->list[i]);
    }
    pthread_mutex_destroy(&plans->lock);
    free(plans);
}

/* ---- Keys --------------------------------------------------------------------------------- */

static size_t count_key(const struct qd_plans *plans, const struct qk_tensor *inputs)
{
    size_t count = 0;
    for (size_t i = 0; i < plans->graph->input_count; i++)
        count += 1 + inputs[i].rank;
    return count;
}

static bool has_key(const struct qd_plans *plans, const struct qd_kept_plan *kept,
                    const struct qk_tensor *inputs)
{
    const size_t *at = kept->key;
    for (size_t i = 0; i < plans->graph->input_count; i++) {
        const uint32_t rank = inputs[i].rank;
        if (*at != rank || memcmp(at + 1, inputs[i].dims, rank * sizeof(*at)) != 0)
            return false;
        at += 1 + rank;
    }
    return true;
}

static void write_key(const struct qd_plans *plans, struct qd_kept_plan *kept,
                      const struct qk_tensor *inputs)
{
    size_t *at = kept->key;
    for (size_t i = 0; i < plans->graph->input_count; i++) {
        *at++ = inputs[i].rank;
        memcpy(at, inputs[i].dims, inputs[i].rank * sizeof(*at));
        at += inputs[i].rank;
    }
}

/* Finds a plan and makes it the newest. The caller holds the lock. */
static struct qd_kept_plan *find(struct qd_plans *plans, const struct qk_tensor *inputs)
{
    size_t i = 0;
    while (i < plans->count && !has_key(plans, plans->list[i], inputs))
        i++;
    if (i == plans->count)
        return NULL;
    move_to_front(plans, i);
    return plans->list[0];
}

/* ---- Pins --------------------------------------------------------------------------------- */

static struct qd_kept_plan *pin_known(struct qd_plans *plans, const struct qk_tensor *inputs)
{
    QD_LOCKED(&plans->lock);
    struct qd_kept_plan *kept = find(plans, inputs);
    if (kept != NULL)
        kept->pin_count++;
    return kept;
}

uint64_t qd_plans_compute_ns(struct qd_plans *plans, const struct qk_tensor *inputs)
{
    QD_LOCKED(&plans->lock);
    const struct qd_kept_plan *kept = find(plans, inputs);
    return kept == NULL ? 0 : kept->compute_ns;
}

/* Makes a plan with one pin, in the models' memory. Sets *made to NULL and succeeds if that memory
 * has no room. */
static enum qk_status make(struct qd_plans *plans, const struct qk_tensor *inputs,
                           struct qd_kept_plan **made, struct qk_error *error)
{
    struct qd_arena arena;
    *made = NULL;
    qd_arena_init(&arena, plans->memory);
    const size_t key_count = count_key(plans, inputs);
    struct qd_kept_plan *kept =
        qd_arena_alloc(&arena, sizeof(*kept) + key_count * sizeof(*kept->key));
    enum qk_status status = QK_NO_MEMORY;
    if (kept != NULL) {
        *kept = (struct qd_kept_plan){.pin_count = 1};
        write_key(plans, kept, inputs);
        status = qk_graph_plan(plans->graph, inputs, (struct qk_memory){qd_arena_alloc_any, &arena},
                               &kept->plan, error);
    }
    if (status != QK_OK) {
        qd_arena_deinit(&arena);
        return status == QK_NO_MEMORY ? QK_OK : status;
    }
    kept->compute_ns = qd_plan_compute_ns(&kept->plan);
    kept->arena = arena;
    *made = kept;
    return QK_OK;
}

/* Adds a new plan to the list. If another thread has added the same plan meanwhile, pins that plan
 * instead and destroys `made`. */
static struct qd_kept_plan *list_new(struct qd_plans *plans, const struct qk_tensor *inputs,
                                     struct qd_kept_plan *made)
{
    struct qd_kept_plan *out[QD_PLANS_COUNT_MAX];
    size_t out_count = 0;
    pthread_mutex_lock(&plans->lock);
    struct qd_kept_plan *kept = find(plans, inputs);
    if (kept != NULL) {
        kept->pin_count++;
        out[out_count++] = made;
    } else {
        kept = made;
        out_count = make_room(plans, made->arena.bytes, out);
        made->listed = fits(plans, made->arena.bytes);
    }
    if (kept == made && made->listed) {
        plans->list[plans->count] = made;
        move_to_front(plans, plans->count++);
        plans->bytes += made->arena.bytes;
    }
    pthread_mutex_unlock(&plans->lock);
    while (out_count > 0)
        destroy_kept(out[--out_count]);
    return kept;
}

enum qk_status qd_plans_pin(struct qd_plans *plans, const struct qk_tensor *inputs,
                            struct qd_arena *own, struct qd_pin *pin, struct qk_error *error)
{
    *pin = (struct qd_pin){.kept = pin_known(plans, inputs)};
    if (pin->kept == NULL) {
        struct qd_kept_plan *made;
        enum qk_status status = make(plans, inputs, &made, error);
        if (status != QK_OK)
            return status;
        pin->kept = made == NULL ? NULL : list_new(plans, inputs, made);
    }
    if (pin->kept != NULL) {
        pin->plan = &pin->kept->plan;
        return QK_OK;
    }
    struct qk_graph_plan *plan = qd_arena_alloc(own, sizeof(*plan));
    if (plan == NULL)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    enum qk_status status = qk_graph_plan(plans->graph, inputs,
                                          (struct qk_memory){qd_arena_alloc_any, own}, plan, error);
    pin->plan = status == QK_OK ? plan : NULL;
    return status;
}

void qd_plans_unpin(struct qd_plans *plans, struct qd_pin *pin)
{
    struct qd_kept_plan *kept = pin->kept;
    *pin = (struct qd_pin){.plan = NULL};
    if (kept == NULL)
        return;
    pthread_mutex_lock(&plans->lock);
    bool gone = --kept->pin_count == 0 && !kept->listed;
    pthread_mutex_unlock(&plans->lock);
    if (gone)
        destroy_kept(kept);
}
