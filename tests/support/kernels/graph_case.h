/* Makes random graphs for tests, and the expected contents of every value. When a node is added, it
 * runs at once: alone, with the scalar kernels, and into its own memory. So the expected contents
 * are known before there is a graph. */
#pragma once

#include "kernels/qk.h"
#include "tests/support/kernels/qk_test.h"

#define GRAPH_CASE_NODES_MAX 48
#define GRAPH_CASE_VALUES_MAX (GRAPH_CASE_NODES_MAX + QK_GRAPH_PORT_COUNT_MAX)

struct graph_case {
    struct qk_graph_call call; /* points at the two arrays below */
    struct qk_node nodes[GRAPH_CASE_NODES_MAX];
    const char *value_names[GRAPH_CASE_VALUES_MAX];
    struct qk_tensor values[GRAPH_CASE_VALUES_MAX]; /* with the expected data */

    /* Private. */
    struct qk_kernels *scalar;
    uint64_t random;
    char names[GRAPH_CASE_NODES_MAX + GRAPH_CASE_VALUES_MAX][8];
    void *blocks[8 * GRAPH_CASE_NODES_MAX + GRAPH_CASE_VALUES_MAX];
    size_t block_count;
};

/* Creates an empty graph. The seed is not 0. */
struct graph_case *graph_case_create(uint64_t seed);
void graph_case_destroy(struct graph_case *made);

/* Each function adds an input of the graph, or a node with random constants, and returns its value.
 * Nodes are named "n0", "n1" and so on, values "v0", "v1" and so on. A shape is a text such as
 * "2,3,8,8". */
uint32_t graph_case_input(struct graph_case *made, enum qk_type type, const char *shape);
uint32_t graph_case_quantize(struct graph_case *made, uint32_t x, enum qk_type y_type);
uint32_t graph_case_dequantize(struct graph_case *made, uint32_t x, enum qk_type y_type);
/* Adds an operator such as onnx.Sigmoid, whose only input is FP32. */
uint32_t graph_case_function(struct graph_case *made, const char *name, uint32_t x);
/* Adds an operator such as onnx.Mul, of two values. */
uint32_t graph_case_combine(struct graph_case *made, const char *name, uint32_t a, uint32_t b);
/* Adds an average of windows along one axis. `dilations` may be NULL. */
uint32_t graph_case_average(struct graph_case *made, uint32_t x, const int64_t *kernel_shape,
                            const int64_t *dilations);
/* Adds a Pad of an x of four axes, in a mode; `value` is the constant, or NULL. */
uint32_t graph_case_pad(struct graph_case *made, uint32_t x, const char *mode, const float *value);
/* Adds a division by a number of this rank, up to 4. */
uint32_t graph_case_divide(struct graph_case *made, uint32_t x, uint32_t rank);
/* Adds an operator such as onnx.Mul, of a value and, as input `constant` (0 or 1), numbers of FP32
 * of this shape. */
uint32_t graph_case_with(struct graph_case *made, const char *name, uint32_t x, size_t constant,
                         uint32_t rank, const size_t *dims);
/* Adds a dequantization whose input is fixed, with the type and shape of another value. */
uint32_t graph_case_constant(struct graph_case *made, uint32_t like, enum qk_type y_type);
/* Adds a convolution of 3 x 3, with padding that keeps the size of planes. */
uint32_t graph_case_conv(struct graph_case *made, uint32_t x, size_t out_channels,
                         enum qk_type y_type);

/* Adds a Clip of codes, with this least code. */
uint32_t graph_case_clip(struct graph_case *made, uint32_t x, const struct qk_tensor *min);

/* Adds an operator on codes, such as com.microsoft.QLinearAdd, of one value, or of two if b is not
 * QK_VALUE_NONE. */
uint32_t graph_case_codes(struct graph_case *made, const char *name, uint32_t a, uint32_t b);

/* Puts DequantizeLinear nodes, an operator on floats such as onnx.Conv, and a QuantizeLinear, into
 * the place of the operator on codes that makes value y. None of them runs. */
void graph_case_to_floats(struct graph_case *made, uint32_t y, const char *name, uint64_t version);

/* Adds a node whose output has the bytes of its input. */
uint32_t graph_case_identity(struct graph_case *made, uint32_t x);

/* Adds onnx.Concat of values along an axis. */
uint32_t graph_case_concat(struct graph_case *made, size_t count, const uint32_t *values,
                           int64_t axis);

/* Adds com.microsoft.QLinearConcat, whose parts have the output's scale and zero point, or all but
 * the first part if it `changes`. */
uint32_t graph_case_concat_codes(struct graph_case *made, size_t count, const uint32_t *values,
                                 int64_t axis, bool changes);

/* Adds onnx.Split of a value into two parts along an axis, the first of which has `first` elements
 * there. Fills in both of their values. */
void graph_case_split(struct graph_case *made, uint32_t x, int64_t axis, size_t first,
                      uint32_t *both);

void graph_case_output(struct graph_case *made, uint32_t value);

/* Shuffles the nodes. */
void graph_case_shuffle(struct graph_case *made);

/* Calls qk_graph_prepare and then qk_graph_pack, unit by unit in a random order. Passes copies of
 * the call and of all constants, and frees these copies before it returns, so that later reads of
 * them crash. */
enum qk_status graph_case_prepare(const struct graph_case *made, const struct qk_kernels *kernels,
                                  struct qk_memory memory, const struct qk_graph **graph,
                                  struct qk_error *error);

enum qk_status graph_case_plan(const struct graph_case *made, const struct qk_graph *graph,
                               struct qk_memory memory, struct qk_graph_plan *plan,
                               struct qk_error *error);

/* Runs all nodes, each in ranges of units of random lengths in a random order, in memory with
 * watched edges. Fails the test unless, after each node, all values that are alive are as expected,
 * and all outputs in the end. */
void graph_case_run(const struct graph_case *made, const struct qk_graph_plan *plan, uint64_t seed);

/* Numbers the nodes as a file does, and has the passes say in `fates` what becomes of them. */
void graph_case_ask_fates(struct graph_case *made, struct qk_fate fates[GRAPH_CASE_NODES_MAX]);

/* Fails the test unless each of `count` nodes that were numbered is left in the graph or has a
 * fate. A node that is a part of another leads to one that is left. */
void graph_case_check_fates(const struct graph_case *made, const struct qk_fate *fates,
                            size_t count);

/* Takes the nodes that passes have left in the call, and fails the test unless they are `kept`.
 * `before` are the nodes before the passes: origins[i] says which of them node i was, or is a copy
 * of. */
void graph_case_keep(struct graph_case *made, const struct qk_node *before, const uint32_t *origins,
                     size_t kept);

/* Prepares, plans and runs the graph. */
void graph_case_check(const struct graph_case *made, const struct qk_kernels *kernels);

/* Prepares, plans, runs and destroys the graph. Fails the test unless `busy_count` of its nodes
 * have units, and it needs scratch_bytes of scratch. */
void graph_case_check_work(struct graph_case *made, size_t busy_count, size_t scratch_bytes);
