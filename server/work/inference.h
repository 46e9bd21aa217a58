/* The state of an inference, for infer.c, outputs.c and their tests. */
#pragma once

#include <stdatomic.h>

#include "server/oip/encode.h"
#include "server/work/compression.h"
#include "server/work/infer.h"

/* An inference, from the last byte of its body to its answer. It lies in the request's arena. */
struct qd_inference {
    struct qd_job job;
    const struct qd_infer_tools *tools;
    struct qd_request *request;
    struct qd_arena *arena; /* this and the next two belong to the request */
    struct qd_error *error;
    struct qd_oip_asked *asked;
    enum qd_request_state doing; /* the request's state while a worker has it */
    bool abandoned;              /* the client has gone; used by the loop only */
    struct qd_inflater *inflater;
    struct qd_oip_reader *reader;
    bool read; /* all JSON is read, except the tensors' numbers */

    struct qk_graph *graph;           /* packed for this request; NULL for a loaded model */
    struct qk_graph_plan own_plan;    /* of `graph` */
    struct qd_pin pin;                /* holds a loaded model's plan */
    const struct qk_graph_plan *plan; /* &own_plan or pin.plan */
    const void *inputs[QK_GRAPH_PORT_COUNT_MAX]; /* the data of variable inputs */
    void *outputs[QK_GRAPH_PORT_COUNT_MAX];
    uint32_t copied_outputs;      /* bit i: output i is still to be copied to shared memory */
    void *scratch;                /* NULL: the plan needs none */
    struct qd_worker_slot *slots; /* the same for all phases */
    size_t slot_count;            /* how many slots have a workspace */
    size_t workspace_bytes;       /* of each of them */
    atomic_bool begun;            /* some unit of the computation was taken */
    size_t node;                  /* the plan's node that is computed now */
    uint64_t ahead_ns;            /* how long the later nodes take; 0: not known yet */
    uint64_t *node_ns;            /* how long each node took; NULL: nobody asks */
    uint64_t node_began_ns;       /* running_ns when the present node began */
    struct qd_oip_writer *writer; /* NULL until the answer is printed */
    struct qd_deflater *deflater; /* NULL if the answer is not compressed */
};

/* Returns whether the inference is expected to take so little memory that it never waits for
 * memory. */
bool qd_inference_is_small(const struct qd_inference *inference);

/* Chooses where the outputs are computed: in the request's memory, or in shared memory that the
 * client provides (oip/shm_tensors.h). Allocates room for each of the plan's outputs, or finds it
 * in shared memory, and sets outputs[i], which must be NULL before. Sets bit i of *copied if output
 * i must end up in shared memory but is computed elsewhere. On failure, the error is in
 * request->error. */
enum qd_status qd_outputs_take(struct qd_request *request, const struct qk_graph_plan *plan,
                               void **outputs, uint32_t *copied);

/* Returns how many bytes came with the request, in its body and in shared memory. */
uint64_t qd_outputs_request_bytes(const struct qd_request *request);

/* Returns how many numbers the answer has as JSON. */
size_t qd_outputs_number_count(const struct qd_request *request, const struct qk_graph_plan *plan);
