/* Helpers for tests of libqk: memory, calls by name, whole runs. */
#ifndef TESTS_SUPPORT_KERNELS_QK_TEST_H
#define TESTS_SUPPORT_KERNELS_QK_TEST_H

#include "kernels/qk.h"

/* ---- Memory ------------------------------------------------------------------------------ */

/* A qk_memory on the heap that can be told to fail. */
struct qk_test_memory {
    void **blocks;
    size_t count;
    size_t bytes;   /* of all blocks, as they were asked for */
    size_t fail_at; /* the allocation (from 0) that fails; SIZE_MAX: none */
};

void qk_test_memory_init(struct qk_test_memory *memory, size_t fail_at);
void qk_test_memory_deinit(struct qk_test_memory *memory);
struct qk_memory qk_test_memory_face(struct qk_test_memory *memory);

/* ---- Elements ---------------------------------------------------------------------------- */

/* What qk_element_load reads; a byte's other elements stay as they are. */
void qk_test_store(enum qk_type type, void *data, size_t index, uint32_t value);

/* The same bits, or both NaN: which of two NaNs goes on is the compiler's choice. */
bool qk_test_same(enum qk_type type, const void *a, const void *b, size_t index);

/* ---- Calls ------------------------------------------------------------------------------- */

/* Starts a call; the test fails if the registry lacks the operator or the version. */
void qk_test_call_init(struct qk_call *call, const char *name, uint64_t version);

/* Gives the input `name` a tensor. `data` is borrowed, `dims` copied. */
void qk_test_call_input(struct qk_call *call, const char *name, enum qk_type type, const void *data,
                        uint32_t rank, const size_t *dims);

void qk_test_call_int(struct qk_call *call, const char *name, int64_t number);
void qk_test_call_ints(struct qk_call *call, const char *name, const int64_t *list, size_t count);
void qk_test_call_bool(struct qk_call *call, const char *name, bool value);

/* Says how the elements of an input that is there lie in its data: "<input>.strides". */
void qk_test_call_strides(struct qk_call *call, const char *input, const int64_t *strides,
                          size_t count);

void qk_test_call_string(struct qk_call *call, const char *name, const char *string);

/* The indices by name; the test fails if there is no such input or attribute. */
size_t qk_test_input_index(const struct qk_operator *op, const char *name);
size_t qk_test_attribute_index(const struct qk_operator *op, const char *name);

/* Makes a copy of the call and its constants, unless it says that they stay; and frees it, so that
 * whoever still reads a constant crashes. */
void qk_test_lend(const struct qk_call *call, struct qk_call *lent);
void qk_test_take_back(const struct qk_call *call, struct qk_call *lent);

/* ---- Runs -------------------------------------------------------------------------------- */

/* What came out of one create, plan and run. */
struct qk_test_result {
    enum qk_status status;
    struct qk_error error;
    struct qk_plan plan; /* its state is gone; shape, type and sizes stay */
    void *output;        /* plan.output_bytes; free with qk_test_result_deinit */
};

/* qk_create, unit by unit in an order that `seed` picks, or all at once where that is 0. Unless the
 * call says that they stay, it lends copies of the constants, which are gone when it returns. */
enum qk_status qk_test_create(const struct qk_kernels *kernels, const struct qk_call *call,
                              uint64_t seed, struct qk_memory memory,
                              const struct qk_instance **instance, struct qk_error *error);

/* qk_run with the call's variable inputs, for an operator with one output, in a workspace of its
 * own. */
void qk_test_run_units(const struct qk_plan *plan, const struct qk_call *call, void *output,
                       size_t begin, size_t end);

/* Runs the call whole, in one piece. */
void qk_test_run(const struct qk_kernels *kernels, const struct qk_call *call,
                 struct qk_test_result *result);

/* Runs the call in pieces of random sizes, in a random order, each with a fresh workspace. */
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

/* Runs the call on each tier, whole and in shuffled pieces, all of which must give the same bits.
 * The result is that of the last run. */
void qk_test_run_tiers(const struct qk_test_tiers *tiers, const struct qk_call *call, uint64_t seed,
                       struct qk_test_result *result);

/* Creates and plans the call with the first allocation failing, then the second and so on, each of
 * which must end in QK_NO_MEMORY, until all goes well. Returns how many there are. */
size_t qk_test_fail_allocations(const struct qk_kernels *kernels, const struct qk_call *call);

/* The kernels of a tier, or NULL (and a line on standard error that names the tier) where this
 * CPU lacks it. Any other failure fails the test. */
struct qk_kernels *qk_test_kernels(const char *tier);
struct qk_kernels *qk_test_kernels_gemm(const char *tier, const char *gemm);

/* Fails the test unless the call is refused with QK_INVALID and a text that begins "field: ". */
void qk_test_expect_refusal(const struct qk_call *call, const char *field);

/* The kernels of each backend of convolutions, forced, that this CPU has: "blas" first, in each
 * tier. The others are named on standard error as skipped. */
struct qk_test_gemms {
    struct qk_kernels *kernels[12];
    const char *names[12];
    size_t count;
};

void qk_test_gemms_init(struct qk_test_gemms *gemms);
void qk_test_gemms_deinit(struct qk_test_gemms *gemms);

/* ---- Many cases -------------------------------------------------------------------------- */

/* Whether the case of that number is run: each QK_TEST_EVERYth, of the environment, or all. For
 * loops that take minutes in an emulator. */
bool qk_test_runs(size_t number);

/* ---- Random numbers ---------------------------------------------------------------------- */

/* random_next of tests/support/random.h. */
uint64_t qk_test_random(uint64_t *state);

/* A random number below `limit` (> 0). */
size_t qk_test_random_below(uint64_t *state, size_t limit);

#endif
