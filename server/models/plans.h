/* Plans of a loaded model's graph, kept by the shapes of its inputs: at most QD_PLANS_COUNT_MAX,
 * and so many bytes. The one that was not used for the longest time makes room, but never one that
 * a request runs. Safe on any thread. */
#ifndef SERVER_MODELS_PLANS_H
#define SERVER_MODELS_PLANS_H

#include "kernels/qk.h"
#include "server/memory/arena.h"

#define QD_PLANS_COUNT_MAX 8

struct qd_plans;

/* A request's hold on a plan, which stays as long. */
struct qd_pin {
    const struct qk_graph_plan *plan;
    struct qd_kept_plan *kept; /* NULL: the plan lies in the request's own memory */
};

/* The graph and the memory are borrowed. NULL: malloc failed. */
struct qd_plans *qd_plans_create(const struct qk_graph *graph, struct qd_memory *memory);
/* When no plan is pinned any more. NULL is fine. */
void qd_plans_destroy(struct qd_plans *plans);

/* Finds the plan for inputs of these shapes, or makes it. inputs[i] goes with the graph's inputs.
 * Where the models' memory has no room for it, it lies in `own` and is not kept. */
enum qk_status qd_plans_pin(struct qd_plans *plans, const struct qk_tensor *inputs,
                            struct qd_arena *own, struct qd_pin *pin, struct qk_error *error);
/* Once for each pin; of a pin without a plan nothing happens. */
void qd_plans_unpin(struct qd_plans *plans, struct qd_pin *pin);

#endif
