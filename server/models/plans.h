/* A cache of plans for a loaded model's graph. The key is the shapes of the inputs. The number of
 * plans (QD_PLANS_COUNT_MAX) and their bytes are bounded. To make room, the cache destroys the
 * least recently used plan that no request is using. All functions may be called on any thread. */
#ifndef SERVER_MODELS_PLANS_H
#define SERVER_MODELS_PLANS_H

#include "kernels/qk.h"
#include "server/memory/arena.h"

#define QD_PLANS_COUNT_MAX 8

struct qd_plans;

/* A request's reference to a plan. The plan is not destroyed before qd_plans_unpin. */
struct qd_pin {
    const struct qk_graph_plan *plan;
    struct qd_kept_plan *kept; /* NULL if the plan lies in the request's own arena */
};

/* Return about how long one thread takes to compute a node, 2^40 ns at most, so that sums over all
 * nodes of a graph cannot overflow; and how long it takes for all nodes. */
uint64_t qd_plan_node_ns(const struct qk_plan *node);
uint64_t qd_plan_compute_ns(const struct qk_graph_plan *plan);

/* Borrows the graph and the memory. Returns NULL if malloc failed. */
struct qd_plans *qd_plans_create(const struct qk_graph *graph, struct qd_memory *memory);
/* Destroys all plans, which must have been unpinned. NULL is fine. */
void qd_plans_destroy(struct qd_plans *plans);

/* Finds the plan for inputs of these shapes, or makes it. inputs[i] belongs to the graph's input i.
 * If the models' memory has no room for a new plan, the plan is made in `own` and not kept. */
enum qk_status qd_plans_pin(struct qd_plans *plans, const struct qk_tensor *inputs,
                            struct qd_arena *own, struct qd_pin *pin, struct qk_error *error);
/* Returns qd_plan_compute_ns of the kept plan for inputs of these shapes, or 0 if none is kept. */
uint64_t qd_plans_compute_ns(struct qd_plans *plans, const struct qk_tensor *inputs);
/* Releases a pin. Call it once for each pin. Does nothing for a pin without a plan. */
void qd_plans_unpin(struct qd_plans *plans, struct qd_pin *pin);

#endif
