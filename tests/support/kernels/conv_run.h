/* Runs of a conv_case, in guarded buffers, checked byte for byte. */
#ifndef TESTS_SUPPORT_KERNELS_CONV_RUN_H
#define TESTS_SUPPORT_KERNELS_CONV_RUN_H

#include "tests/support/kernels/conv_case.h"
#include "tests/support/kernels/qk_test.h"

/* A planned case and its output. `text`, here and below, says in failures which case it is. */
struct conv_run {
    struct qk_test_memory memory;
    const struct qk_call *call; /* the case's */
    struct qk_plan plan;
    uint8_t *output;
};

/* Creates and plans; checks shape, type and sizes. */
void conv_run_init(struct conv_run *run, const struct qk_kernels *kernels,
                   const struct conv_case *test, const char *text);

/* Runs units [begin, end) in a workspace of their own. */
void conv_run_units(const struct conv_run *run, size_t begin, size_t end);

/* Checks the output against test->expected, and frees. */
void conv_run_check(struct conv_run *run, const struct conv_case *test, const char *text);

/* All of it with every backend, for a case that conv_case_make has made. */
void conv_case_check_made(const struct qk_test_gemms *gemms, struct conv_case *test,
                          const char *text);

/* Makes, checks and frees a case. */
void conv_case_check(const struct qk_test_gemms *gemms, struct conv_case *test);

/* The backend whose depthwise kernel that of this name has. */
const char *conv_depthwise_of(const char *gemm);

#endif
