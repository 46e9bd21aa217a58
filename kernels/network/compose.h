/* A pass over functions of codes. Private to kernels/. */
#pragma once

#include "kernels/qk.h"

/* Makes one table of functions of one value of 8 bits that nothing else reads, such as x *
 * Sigmoid(x). Must be called after qk_graph_tabulate. The call's nodes, the tables and (*origins)
 * are as after qk_graph_tabulate; a table has the place of the last function. */
enum qk_status qk_graph_compose(const struct qk_kernels *kernels, struct qk_graph_call *call,
                                struct qk_memory memory, const uint32_t **origins,
                                struct qk_error *error);
