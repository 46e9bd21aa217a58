/* Where the outputs of an inference are computed: in the request's memory, or where the client has
 * made room for them (oip/shm_tensors.h). Not for a request whose answer is no inference's. */
#ifndef SERVER_WORK_OUTPUTS_H
#define SERVER_WORK_OUTPUTS_H

#include "server/work/request.h"

/* Room for each of the plan's outputs, of which none has any yet: outputs[i]. Bit i of *copied:
 * output i has to be in shared memory, but is computed elsewhere. A failure is in request->error.
 */
enum qd_status qd_outputs_take(struct qd_request *request, const struct qk_graph_plan *plan,
                               void **outputs, uint32_t *copied);

/* What came with the request, in its body or in shared memory. */
uint64_t qd_outputs_request_bytes(const struct qd_request *request);

/* Numbers that the answer has as JSON. */
size_t qd_outputs_number_count(const struct qd_request *request, const struct qk_graph_plan *plan);

#endif
