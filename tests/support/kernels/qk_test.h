/* Helps tests to call libqk: memory that can fail, calls by the names of inputs, and whole runs. */
#pragma once

#include "kernels/qk.h"

/* ---- Memory ------------------------------------------------------------------------------ */

/* A qk_memory on the heap that can be told to fail. */
struct qk_test_memory {
    void **blocks;
    size_t count;
    size_t bytes;   /* total size of all blocks, as requested */
    size_t fail_at; /* index of the allocation that fails, from 0; SIZE_MAX: none */
};

void qk_test_memory_init(struct qk_test_memory *memory, size_t fail_at);
void qk_test_memory_deinit(struct qk_test_memory *memory);
struct qk_memory qk_test_memory_face(struct qk_test_memory *memory);

/* ---- Elements ---------------------------------------------------------------------------- */

/* Stores an element in the format that qk_element_load reads. The other elements of a byte stay as
 * they are. */
void qk_test_store(enum qk_type type, void *data, size_t index, uint32_t value);

/* Returns true if the bits are the same, or both are NaN. The compiler may choose which of two NaNs
 * an operation returns. */
bool qk_test_same(enum qk_type type, const void *a, const void *b, size_t index);

/* ---- Calls ------------------------------------------------------------------------------- */

/* Starts a call. Fails the test if the registry lacks the operator or the version. */
void qk_test_call_init(struct qk_call *call, const char *name, uint64_t version);

/* Gives the input `name` a tensor. `data` is borrowed, `dims` copied. */
void qk_test_call_input(struct qk_call *call, const char *name, enum qk_type type, const void *data,
                        uint32_t rank, const size_t *dims);

void qk_test_call_int(struct qk_call *call, const char *name, int64_t number);
void qk_test_call_ints(struct qk_call *call, const char *name, const int64_t *list, size_t count);
void qk_test_call_bool(struct qk_call *call, const char *name, bool value);
void qk_test_call_float(struct qk_call *call, const char *name, float real);

/* Sets the attribute "<input>.strides", which says how the elements of a present input lie in its
 * data. */
void qk_test_call_strides(struct qk_call *call, const char *input, const int64_t *strides,
                          size_t count);

void qk_test_call_string(struct qk_call *call, const char *name, const char *string);

/* Return indices by name. Fail the test if there is no such input or attribute. */
size_t qk_test_input_index(const struct qk_operator *op, const char *name);
size_t qk_test_attribute_index(const struct qk_operator *op, const char *name);

/* qk_test_lend copies the call, its constants and its lists of attributes, or only the call if it
 * says that constants stay. The copy of a variable input has only a type. qk_test_take_back frees
 * the copies, so that code which still reads a constant crashes. */
void qk_test_lend(const struct qk_call *call, struct qk_call *lent);
void qk_test_take_back(const struct qk_call *call, struct qk_call *lent);

/* ---- Runs -------------------------------------------------------------------------------- */

/* The result of one create, plan and run. */
struct qk_test_result {
    enum qk_status status;
    struct qk_error error;
    struct qk_plan plan; /* its state has been freed; shape, type and sizes remain */
    void *output;        /* plan.output_bytes bytes; freed by qk_test_result_deinit */
    void *outputs[QK_OUTPUT_COUNT_MAX]; /* of all outputs; the first is `output` */
};

/* Does what qk_create does, but packs unit by unit in an order that `seed` picks, or all units at
 * once if `seed` is 0. Passes copies of the constants (qk_test_lend), and frees these copies before
 * it returns. */
enum qk_status qk_test_create(const struct qk_kernels *kernels, const struct qk_call *call,
                              uint64_t seed, struct qk_memory memory,
                              const struct qk_instance **instance, struct qk_error *error);

/* Calls qk_run with the call's variable inputs, for an operator with one output, in a new
 * workspace. */
void qk_test_run_units(const struct qk_plan *plan, const struct qk_call *call, void *output,
                       size_t begin, size_t end);

/* Runs all units of the call at once. */
void qk_test_run(const struct qk_kernels *kernels, const struct qk_call *call,
                 struct qk_test_result *result);

/* Runs the call in ranges of units of random lengths, in a random order, each with a fresh
 * workspace. */
void qk_test_run_shuffled(const struct qk_kernels *kernels, const struct qk_call *call,
                          uint64_t seed, struct qk_test_result *result);

void qk_test_result_deinit(struct qk_test_result *result);

/* The kernels of every tier that this CPU has, scalar first. */
struct qk_test_tiers {
    struct qk_kernels *kernels[4];
    size_t count;
};

void qk_test_tiers_init(struct qk_test_tiers *tiers);
void qk_test_tiers_deinit(struct qk_test_tiers *tiers);

/* Runs the call on each tier, once with all units at a time and once shuffled. All runs must give
 * the same bits. The result is that of the last run. */
void qk_test_run_tiers(const struct qk_test_tiers *tiers, const struct qk_call *call, uint64_t seed,
                       struct qk_test_result *result);

/* Creates and plans the call with the first allocation failing, then the second and so on, until
 * all succeed. Each failure must give QK_NO_MEMORY. Returns how many allocations there are. */
size_t qk_test_fail_allocations(const struct qk_kernels *kernels, const struct qk_call *call);

/* Returns the kernels of a tier. If this CPU lacks the tier, names it on standard error and returns
 * NULL. Any other failure fails the test. */
struct qk_kernels *qk_test_kernels(const char *tier);
struct qk_kernels *qk_test_kernels_gemm(const char *tier, const char *gemm);

/* Fails the test unless the call is refused with QK_INVALID and a text that begins "field: ". */
void qk_test_expect_refusal(const struct qk_call *call, const char *field);

/* The kernels of each backend of convolutions that this CPU has, chosen by name: "blas" first, once
 * for each tier, then the others. The backends that this CPU lacks are named on standard error as
 * skipped. */
struct qk_test_gemms {
    struct qk_kernels *kernels[12];
    const char *names[12];
    size_t count;
};

void qk_test_gemms_init(struct qk_test_gemms *gemms);
void qk_test_gemms_deinit(struct qk_test_gemms *gemms);

/* ---- Many cases -------------------------------------------------------------------------- */

/* Returns true if case `number` is to run. By default all cases run. If the environment sets
 * QK_TEST_EVERY to n, only every n-th case runs, for loops that take minutes in an emulator. */
bool qk_test_runs(size_t number);

/* ---- Random numbers ---------------------------------------------------------------------- */

/* Calls random_next of tests/support/random.h. */
uint64_t qk_test_random(uint64_t *state);

/* Returns a random number below `limit` (> 0). */
size_t qk_test_random_below(uint64_t *state, size_t limit);
