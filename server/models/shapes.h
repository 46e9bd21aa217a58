/* What a loaded graph makes of its inputs' shapes, found when it is loaded: outputs whose shapes
 * are known before any request, and graphs that no request could run. */
#ifndef SERVER_MODELS_SHAPES_H
#define SERVER_MODELS_SHAPES_H

#include "kernels/qk.h"
#include "server/base/status.h"
#include "server/memory/arena.h"
#include "server/models/plans.h"
#include "server/oip/signature.h"

/* Fills in what is not known yet of the outputs' shapes. `inputs` and `outputs` go with the
 * graph's.
 *
 * Where all dimensions of all inputs are known, the graph is planned with them, and the plan is
 * kept in `plans`; if that cannot be, no request could run the graph, and it is refused. Where some
 * are free, it is planned with a few sizes instead of them: a dimension of an output that is the
 * same with all of them is known, and others are free. If none of these sizes will do, nothing is
 * found, as others may. An output that is declared with another shape than what is found is
 * refused; what is declared beyond that is kept.
 *
 * No tensor is made. A lack of memory is no error: less is known then. */
enum qd_status qd_shapes_settle(struct qd_plans *plans, const struct qk_graph *graph,
                                const struct qd_port *inputs, struct qd_port *outputs,
                                struct qd_memory *memory, struct qd_error *error);

#endif
