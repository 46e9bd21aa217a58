/* Runs operators while a graph is loaded, for passes that compute constants. Private to kernels/.
 */
#ifndef KERNELS_NETWORK_COMPUTE_H
#define KERNELS_NETWORK_COMPUTE_H

#include "kernels/qk.h"

/* The most time that all operators of a graph may take on one core while it is loaded, as their
 * plans guess it. Weights of a gigabyte take less than a second; a file that asks for more was made
 * to hold up the loader. */
#define QK_COMPUTE_NS_MAX UINT64_C(1000000000)

/* Runs a call whose inputs are all constant, and makes its outputs: tensors whose data lies in
 * `memory`. Adds the time that the plan guesses to *cost_ns, and fails if the sum is above
 * QK_COMPUTE_NS_MAX. The error does not name a node. */
enum qk_status qk_compute(const struct qk_kernels *kernels, const struct qk_call *call,
                          struct qk_memory memory, uint64_t *cost_ns,
                          struct qk_tensor outputs[QK_OUTPUT_COUNT_MAX], struct qk_error *error);

#endif
