/* An inference on its way, for infer.c and its tests. */
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

/* It is expected to take so little memory that it never waits for some. */
bool qd_inference_is_small(const struct qd_inference *inference);

#endif
