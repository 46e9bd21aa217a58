/* Makes loaded models for tests of the server, from the graphs of graph_case.h. They are like those
 * that the server loads from files. */
#pragma once

#include "server/models/model.h"
#include "tests/support/kernels/graph_case.h"

/* Creates a model. Its inputs and outputs have the names and types of the graph's values. The first
 * dimension of each input is free (any size), and the shapes of outputs are unknown. */
struct qd_model *loaded_create(const struct graph_case *made, const struct qk_kernels *kernels,
                               struct qd_memory *memory, const char *name, uint64_t version);
