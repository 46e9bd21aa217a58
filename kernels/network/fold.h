/* Constant folding in two steps. Private to kernels/. */
#pragma once

#include "kernels/qk.h"

/* Like qk_graph_fold. If `keeps_pairs` is set, no DequantizeLinear is computed that makes more
 * than scales, so that passes still find the codes of weights, and it is not checked that inputs
 * are constant. */
enum qk_status qk_fold(const struct qk_kernels *kernels, struct qk_graph_call *call,
                       struct qk_memory memory, bool keeps_pairs, const uint32_t **origins,
                       struct qk_error *error);
