/* What the files of an inference share: infer.c, and inference_coding.c for its two phases that
 * inflate and deflate. On a worker, but where infer.h says otherwise. */
#ifndef SERVER_WORK_INFERENCE_H
#define SERVER_WORK_INFERENCE_H

#include "server/oip/encode.h"
#include "server/work/compression.h"
#include "server/work/infer.h"

/* One on its way from its body's last byte to its answer. It lies in the request's arena. */
struct qd_inference {
    struct qd_job job;
    const struct qd_infer_tools *tools;
    struct qd_request *request;
    struct qd_arena *arena; /* these three are the request's */
    struct qd_error *error;
    struct qd_oip_asked *asked;
    enum qd_request_state doing; /* the request's state when a worker has it */
    bool abandoned;              /* nobody waits for the answer any more; the loop's */
    struct qd_inflater *inflater;
    struct qd_oip_reader *reader;
    bool read; /* all of the JSON, but for tensors' numbers */

    struct qk_graph *graph;                      /* packed for this request; NULL: a loaded one */
    struct qk_graph_plan own_plan;               /* of that graph */
    struct qd_pin pin;                           /* a loaded model's plan */
    const struct qk_graph_plan *plan;            /* one of the two */
    const void *inputs[QK_GRAPH_PORT_COUNT_MAX]; /* the data of the variable ones */
    void *outputs[QK_GRAPH_PORT_COUNT_MAX];
    uint32_t copied_outputs; /* bit i: still to be copied to shared memory */
    void *scratch;
    struct qd_worker_slot *slots; /* the same for all phases */
    size_t slot_count;            /* that have a workspace */
    size_t node;                  /* of the plan, that is computed now */
    struct qd_oip_writer *writer; /* from its first unit on; NULL: there is none */
    struct qd_deflater *deflater; /* NULL: the answer is not compressed */
};

typedef void qd_run_units(struct qd_job *job, void *workspace, size_t begin, size_t end);

static inline struct qd_inference *qd_inference_of(struct qd_job *job)
{
    return (struct qd_inference *)((char *)job - offsetof(struct qd_inference, job));
}

/* True, as a `then` says that it has set a phase. */
static inline bool qd_inference_set_phase(struct qd_inference *inference, qd_run_units *run,
                                          bool (*then)(struct qd_job *job), size_t unit_count,
                                          uint64_t unit_cost_ns, size_t slot_count)
{
    inference->job.phase = (struct qd_phase){
        .run = run,
        .then = then,
        .unit_count = unit_count,
        .unit_cost_ns = unit_cost_ns,
        .slots = inference->slots,
        .slot_count = slot_count,
    };
    return true;
}

/* It is expected to take so little memory that it never waits for some. */
bool qd_inference_is_small(const struct qd_inference *inference);
/* The may_start of all others, by what they are expected to take (memory/admission.h). From then on
 * nobody takes the body; who has lost it starts, and is told. */
bool qd_inference_may_start(struct qd_job *job, bool others_wait);

/* Of the body as it was before it was compressed. As a `then`, like the next two. */
bool qd_inference_read(struct qd_inference *inference);

/* The body; then it is read. */
bool qd_inference_inflate(struct qd_inference *inference);

/* The answer stands: it is compressed as the client would have it, where it gains something, and
 * goes. Without memory it goes as it is. */
bool qd_inference_reply(struct qd_inference *inference);

#endif
