/* Loaded models for tests, made from the graphs of graph_case.h like a load makes models. */
#ifndef TESTS_SUPPORT_LOADED_H
#define TESTS_SUPPORT_LOADED_H

#include "server/models/model.h"
#include "tests/support/kernels/graph_case.h"

/* Creates a model. Its ports have the names and types of the case's values. The first dimension of
 * inputs is free, and the shapes of outputs are unknown. */
struct qd_model *loaded_create(const struct graph_case *made, const struct qk_kernels *kernels,
                               struct qd_memory *memory, const char *name, uint64_t version);

#endif
