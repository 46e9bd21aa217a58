/* What an inference does on the workers: decode, prepare, plan, pack, run, encode. */
#ifndef SERVER_WORK_INFER_H
#define SERVER_WORK_INFER_H

#include "server/work/request.h"

/* False: the queue is full, and request->error says so. */
bool qd_infer_try_room(struct qd_scheduler *scheduler, struct qd_request *request);

/* request->message, kernels, thread_count, compute_timeout_ns and on_answered are set. on_answered
 * comes when the request is in REPLYING. False: the queue is full, and request->error says so. */
bool qd_infer_submit(struct qd_scheduler *scheduler, struct qd_request *request);

#endif
