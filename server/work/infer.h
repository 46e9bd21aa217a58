/* Computes inferences, from the body's last byte to the answer. An inference is a job of these
 * phases, in this order (infer.c). Each phase has a function run_*, for its units, and after_*,
 * which sets the next phase. Each worker needs a slot at a phase (scheduler.h). "As many as the
 * phase is worth" is the number that qd_scheduler_shares returns for all workers.
 *
 *   state     phase    units                            slots
 *   QUEUED             waits, in arrival order          none
 *   DECODING  inflate  one step each, of a body with    one
 *                      gzip or deflate
 *             read     64 KiB of JSON each              one
 *             convert  a piece of the tensors' numbers  as many as the phase is worth
 *                      or 256 KiB of BOOL
 *             plan     one: call, graph, plan, memory   one
 *   RUNNING   pack     as the kernels divide it         as many as the phase is worth
 *             compute  the same, for each node          as many as the phase is worth
 *             copy     256 KiB of an output that must   as many as the phase is worth
 *                      be in shared memory, but could
 *                      not be computed there
 *   ENCODING  print    2048 numbers each                as many as the phase is worth
 *             deflate  32 KiB each, if asked for        one
 *   REPLYING
 *
 * Waiting requests come first: between two batches of units, and before a phase, a worker gives way
 * if its time slice is over. Then the request is QUEUED again, and goes on from there
 * (scheduler.h). From the end of `read` on, the request waits by its `priority`: 1 is first, 0 and
 * 3 are the same, 5 and all above are last. Its `timeout` is checked then, before any number is
 * converted, and whenever the request is taken from the queue until it computes.
 *
 * A small request has fewer phases: short JSON is read and planned in `start`, a small answer is
 * printed at the end, and only the operators' units are left.
 *
 * One deadline (--compute-timeout) bounds all of it, from the body's last byte. The deadline, a
 * client that has gone (qd_infer_abandon) and the server's end (qd_scheduler_abandon) end the
 * request before its next unit or phase. All memory is in the request's arena, and bounded with it.
 */
#pragma once

#include "kernels/qk.h"
#include "server/work/request.h"
#include "server/work/scheduler/scheduler.h"

/* What all inferences share. All pointers are borrowed. */
struct qd_infer_tools {
    const struct qk_kernels *kernels;
    struct qd_scheduler *scheduler;
    unsigned thread_count; /* how many may compute one inference */
    uint64_t compute_timeout_ns;
    uint64_t max_body_bytes; /* bound of a compressed body after inflating */
};

/* Returns false if the server shuts down, or if the queue is full and the loop cannot compute the
 * request inline; request->error says which. Called when the request's head has come. body_bytes:
 * as the head says, UINT64_MAX if it does not. */
bool qd_infer_try_room(const struct qd_infer_tools *tools, struct qd_request *request,
                       uint64_t body_bytes);

/* Submits an inference. The caller has set on_answered and all of request->oip.message but its
 * body. on_answered is called when the request is in REPLYING, or request->error says why it is
 * not; `tools` is borrowed until then. Returns false if the queue is full, the server shuts down,
 * or there is no memory; request->error says which. */
bool qd_infer_submit(const struct qd_infer_tools *tools, struct qd_request *request);

/* Ends the work for a client that has gone: at once if the inference is in the queue, otherwise
 * before its next unit, as qd_scheduler_cancel does. on_answered is called as usual, later, and the
 * memory is free by then. May be called at any time, and repeatedly. Does nothing if the request
 * has no inference. On the request's loop's thread. */
void qd_infer_abandon(struct qd_request *request);
