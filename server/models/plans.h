/* A cache of plans for a loaded model's graph. The key is the shapes of the inputs. The number of
 * plans (QD_PLANS_COUNT_MAX) and their bytes are bounded. To make room, the cache destroys the
 * least recently used plan that no request is using. All functions may be called on any thread. */
#pragma once

#include "kernels/qk.h"
#include "server/base/status.h"
#include "server/memory/arena.h"
#include "server/oip/signature.h"

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

/* ---- Shapes, which plans find: shapes.c ---------------------------------------------------- */

/* The most bytes of all plans that one load makes to find shapes. Making a plan takes about as long
 * as writing its bytes, so this also bounds the time: half a GiB takes about half a second. A plan
 * has some KiB for each node. Operators such as Resize also have tables as long as an axis, which
 * is 8 MiB for each if the axis has a free size. */
#define QD_SHAPES_BYTES_MAX ((size_t)512 << 20)

/* Fills in, at load time, the parts of the outputs' shapes that are not known yet, and refuses a
 * graph that no request could run. inputs[i] and outputs[i] belong to the graph's input i and
 * output i.
 *
 * If all dimensions of all inputs are known, the graph is planned with them, and `plans` keeps the
 * plan. If the graph refuses these shapes, no request could run it, so it is refused. If some
 * dimensions are free, the graph is planned with a few sizes in their place. A dimension of an
 * output that is the same with all these sizes is known; the other dimensions are free. If the
 * graph accepts none of these sizes, nothing is found, because the graph may accept other sizes.
 * But if it refuses all of them in the same words, which therefore name no size, the graph is
 * refused. An output that is declared with a different shape than the one found is refused.
 * Declared dimensions that were not found are kept.
 *
 * If a node is refused, *refused_node becomes its number, as errors print it.
 *
 * Allocates no tensors. A lack of memory is no error, but leaves more dimensions unknown.
 *
 * Adds to *planned_bytes how many bytes the plans of sizes that are only tried took. No such plan
 * is made if they would be more than QD_SHAPES_BYTES_MAX in all: the dimensions that it would find
 * stay unknown. */
enum qd_status qd_shapes_settle(struct qd_plans *plans, const struct qk_graph *graph,
                                const struct qd_port *inputs, struct qd_port *outputs,
                                struct qd_memory *memory, size_t *planned_bytes,
                                uint32_t *refused_node, struct qd_error *error);
