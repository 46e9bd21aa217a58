/* One version of one model.
 *
 * A built-in model is a version of an operator, and has only a signature: each request brings all
 * inputs. A loaded model has a graph with its constants, and plans for the input shapes that
 * requests have used. If requests bring some of the constants, the model has no graph. It then has
 * a description from which each request makes its own graph (qd_deferred_copy).
 *
 * A load makes the model, on one thread at a time. Once the model is in service (table.h), only its
 * plans and its reference count change.
 *
 * The table holds a reference, and so does each request until it is destroyed. The holder of a
 * reference may take another one and release it on any thread. Releasing the last reference
 * destroys the model. */
#pragma once

#include <stdatomic.h>

#include "kernels/qk.h"
#include "server/memory/arena.h"
#include "server/memory/text.h"
#include "server/models/plans.h"
#include "server/oip/signature.h"
#include "server/telemetry/metrics.h"

struct qd_model {
    struct qd_signature signature; /* in the arena if the model is loaded */
    const struct qk_graph *graph;  /* packed, in the arena; NULL if each request makes its own */
    struct qd_plans *plans;        /* plans of the graph; NULL if there is no graph */
    /* In the arena. NULL if the model has a graph or is built in. */
    const struct qk_graph_call *deferred;
    struct qd_counters *counters; /* counters of this name and version; taken by the table */
    struct qd_part nodes;         /* the file's nodes as JSON, in the arena; no bytes: not known */
    size_t resident_bytes;        /* size of the arena once the graph is prepared */
    struct qd_arena arena;        /* its memory counts in --max-model-bytes */
    atomic_size_t reference_count;
    atomic_size_t *namesake_count; /* the table's count of models of this name that still exist */
};

/* Creates an empty model with one reference, which belongs to the caller. A load fills in the
 * signature and the graph. Returns NULL if malloc failed. */
struct qd_model *qd_model_create(struct qd_memory *memory);

/* Releases a reference. NULL is fine. */
void qd_model_release(struct qd_model *model);

/* ---- Deferred constants -------------------------------------------------------------------- */

/* A deferred constant is an input of the graph that an
 * operator uses as a constant, such as a scale or a weight. Its value must be known when the graph
 * is prepared, but comes with each request. ONNX's own tests pass all their scales and weights in
 * this way. Each request therefore prepares a graph of its own, as for a built-in model.
 *
 * Copies the call, with everything it points at, into the arena. Returns NULL if the arena has no
 * room. In the call's nodes, a deferred constant is an input that is not variable and has a type,
 * but no data. The entry of qk_node.inputs, which libqk does not read then, is the number of the
 * graph's input, which is also that of its value. */
struct qk_graph_call *qd_deferred_copy(const struct qk_graph_call *call, struct qd_arena *arena);

/* Prepares the graph with a request's tensors. inputs[i] belongs to the graph's input i. The
 * tensors and `deferred` must outlive the graph. */
enum qk_status qd_deferred_prepare(const struct qk_graph_call *deferred,
                                   const struct qk_kernels *kernels, const struct qk_tensor *inputs,
                                   struct qk_memory memory, struct qk_graph **graph,
                                   struct qk_error *error);
