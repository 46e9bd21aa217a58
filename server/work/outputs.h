/* Chooses where the outputs of an inference are computed: in the request's memory, or in shared
 * memory that the client provides (oip/shm_tensors.h). Only for requests that are inferences. */
#ifndef SERVER_WORK_OUTPUTS_H
#define SERVER_WORK_OUTPUTS_H

#include "server/work/request.h"

/* Allocates room for each of the plan's outputs, or finds it in shared memory, and sets outputs[i],
 * which must be NULL before. Sets bit i of *copied if output i must end up in shared memory but is
 * computed elsewhere. On failure, the error is in request->error. */
enum qd_status qd_outputs_take(struct qd_request *request, const struct qk_graph_plan *plan,
                               void **outputs, uint32_t *copied);

/* Returns how many bytes came with the request, in its body and in shared memory. */
uint64_t qd_outputs_request_bytes(const struct qd_request *request);

/* Returns how many numbers the answer has as JSON. */
size_t qd_outputs_number_count(const struct qd_request *request, const struct qk_graph_plan *plan);

#endif
