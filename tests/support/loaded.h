/* Loaded models for tests: graphs of graph_case.h, as a load would make models of them. */
#ifndef TESTS_SUPPORT_LOADED_H
#define TESTS_SUPPORT_LOADED_H

#include "server/models/model.h"
#include "tests/support/kernels/graph_case.h"

/* Its ports have the names and types of the case's values; the first dimension of inputs is free,
 * and nothing is known of the outputs' shapes. */
struct qd_model *loaded_create(const struct graph_case *made, const struct qk_kernels *kernels,
                               struct qd_memory *memory, const char *name, uint64_t version);

#endif
