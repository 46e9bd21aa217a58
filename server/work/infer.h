/* What becomes of an inference between its body's last byte and its answer. It is a job of these
 * phases, in this order; infer.c has them. Each has
 * a function run_*, for its units, and after_*, which sets the next phase. A slot is what a
 * worker needs at a phase (scheduler.h).
 *
 *   state     phase    units                            slots
 *   QUEUED             waits, in arrival order          none
 *   DECODING  inflate  a step each, of what is gzip     one
 *                      or deflate
 *             read     64 KiB of JSON each              one
 *             convert  a piece of the tensors' numbers  as many as it is worth
 *             plan     one: call, graph, plan, memory   one
 *   RUNNING   pack     as the kernels cut it            as many as it is worth
 *             compute  the same, for each node          as many as it is worth
 *             copy     256 KiB of an output that has    as many as it is worth
 *                      to be in shared memory, but
 *                      could not be computed there
 *   ENCODING  print    2048 numbers each                as many as it is worth
 *             deflate  32 KiB each, where it is wanted  one
 *   REPLYING
 *
 * Waiting requests come first: between two batches of units, and before a phase, a worker gives way
 * when its time slice is over. Then the request is QUEUED again, and goes on from there
 * (scheduler.h). From the end of `read` on it waits by its `priority`: 1 is first, 0 and 3 are the
 * same, 5 and all above are last. Its `timeout` is looked at then, before any number is converted,
 * and whenever it is taken from the queue until it computes.
 *
 * A small request has no such phases: what is short is read and planned in `start`, what is small
 * is printed at the end, and only the operators' units are left.
 *
 * One deadline (--compute-timeout) is over all of it, from the body's last byte. It, a client that
 * has gone (qd_infer_abandon) and the server's end (qd_scheduler_abandon) end the request before
 * its next unit or phase. All memory is the request's arena, and bounded with it. */
#ifndef SERVER_WORK_INFER_H
#define SERVER_WORK_INFER_H

#include "kernels/qk.h"
#include "server/work/request.h"
#include "server/work/scheduler/scheduler.h"

/* What all inferences share. All borrowed. */
struct qd_infer_tools {
    const struct qk_kernels *kernels;
    struct qd_scheduler *scheduler;
    unsigned thread_count; /* that may compute one inference */
    uint64_t compute_timeout_ns;
    uint64_t max_body_bytes; /* of what a compressed body becomes */
};

/* When it is worth to try again, by the queue and by who waits for memory: at least 1 and at most
 * QD_RETRY_AFTER_MAX_S. On any thread. */
unsigned qd_infer_retry_after_s(struct qd_scheduler *scheduler, struct qd_memory *memory);

/* False: the queue is full, or the server shuts down; request->error says so. */
bool qd_infer_try_room(const struct qd_infer_tools *tools, struct qd_request *request);

/* request->message but its body, and on_answered, are set. on_answered comes when the request is in
 * REPLYING. False: as above, or there is no memory. The tools are used until then. */
bool qd_infer_submit(const struct qd_infer_tools *tools, struct qd_request *request);

/* The client has gone: the work for it ends, in the queue at once and else with its next unit, as
 * qd_scheduler_cancel has it. on_answered follows as ever, later, and the memory is free by then.
 * On its loop's thread, at any time and as often as you like: without an inference on its way, it
 * does nothing. */
void qd_infer_abandon(struct qd_request *request);

#endif
