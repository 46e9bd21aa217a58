/* Keeps plans of a loaded model's graph, by the shapes of its inputs. The number of plans
 * (QD_PLANS_COUNT_MAX) and their bytes are bounded. The plan that was not used for the longest time
 * makes room, but never while a request runs it. All functions may be called on any thread. */
#ifndef SERVER_MODELS_PLANS_H
#define SERVER_MODELS_PLANS_H

#include "kernels/qk.h"
#include "server/memory/arena.h"

#define QD_PLANS_COUNT_MAX 8

struct qd_plans;

/* A request's hold on a plan. The plan stays until it is unpinned. */
struct qd_pin {
    const struct qk_graph_plan *plan;
    struct qd_kept_plan *kept; /* NULL if the plan lies in the request's own arena */
};

/* Borrows the graph and the memory. Returns NULL if malloc failed. */
struct qd_plans *qd_plans_create(const struct qk_graph *graph, struct qd_memory *memory);
/* All plans must have been unpinned. NULL is fine. */
void qd_plans_destroy(struct qd_plans *plans);

/* Finds the plan for inputs of these shapes, or makes it. inputs[i] belongs to the graph's input i.
 * If the models' memory has no room for a new plan, the plan is made in `own` and not kept. */
enum qk_status qd_plans_pin(struct qd_plans *plans, const struct qk_tensor *inputs,
                            struct qd_arena *own, struct qd_pin *pin, struct qk_error *error);
/* Releases a pin. Call it once for each pin. Does nothing for a pin without a plan. */
void qd_plans_unpin(struct qd_plans *plans, struct qd_pin *pin);

#endif
