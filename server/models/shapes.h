/* Finds at load time which output shapes follow from the input shapes of a graph, and refuses a
 * graph that no request could run. */
#ifndef SERVER_MODELS_SHAPES_H
#define SERVER_MODELS_SHAPES_H

#include "kernels/qk.h"
#include "server/base/status.h"
#include "server/memory/arena.h"
#include "server/models/plans.h"
#include "server/oip/signature.h"

/* Plans are as fast as they can write what they keep, so this is a bound of time, too: half a GiB
 * takes about half a second. A plan has some KiB for each node. Operators such as Resize also have
 * tables as long as an axis, which is 8 MiB for each if the axis has a free size. */
#define QD_SHAPES_BYTES_MAX ((size_t)512 << 20)

/* Fills in the parts of the outputs' shapes that are not known yet. inputs[i] and outputs[i] belong
 * to the graph's input i and output i.
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

#endif
