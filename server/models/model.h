/* One version of one model: what serves a request.
 *
 * A built-in model is an operator's version, and has nothing but its signature: each request brings
 * all inputs. A loaded one has a graph, whose constants it keeps, and the plans of the shapes that
 * were asked for; or, where requests bring constants, what each makes its graph of
 * (deferred_constants.h). It is made by a load, on any one thread at a time; once it is in service
 * (table.h) nothing but its plans and its references changes.
 *
 * Who uses it holds a reference: the table, and each request until it is destroyed. Whoever has one
 * may take another and give it back, on any thread; the last one destroys it. */
#ifndef SERVER_MODELS_MODEL_H
#define SERVER_MODELS_MODEL_H

#include <stdatomic.h>

#include "kernels/qk.h"
#include "server/memory/arena.h"
#include "server/models/deferred_constants.h"
#include "server/models/plans.h"
#include "server/oip/signature.h"
#include "server/telemetry/metrics.h"

struct qd_model {
    struct qd_signature signature; /* a loaded model's lies in its arena */
    const struct qk_graph *graph;  /* packed, in the arena; NULL: each request makes one */
    struct qd_plans *plans;        /* of the graph; NULL: there is none */
    /* In the arena. NULL: it has a graph, or is built in. */
    const struct qd_deferred_graph *deferred;
    struct qd_counters *counters; /* of this name and version; taken by the table */
    size_t resident_bytes;        /* of the arena, when it was installed */
    struct qd_arena arena;        /* from the models' own memory, --max-model-bytes */
    atomic_size_t reference_count;
    atomic_size_t
        *namesake_count; /* the table's own: of all models of its name that are still there */
};

/* An empty one, with one reference, that of who makes it. A load fills in the signature and the
 * graph. NULL: malloc failed. */
struct qd_model *qd_model_create(struct qd_memory *memory);

/* NULL is fine. */
void qd_model_release(struct qd_model *model);

#endif
