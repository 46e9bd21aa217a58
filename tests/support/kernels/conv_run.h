/* Runs a conv_case in guarded buffers, and checks the output byte for byte. */
#pragma once

#include "tests/support/kernels/conv_case.h"
#include "tests/support/kernels/qk_test.h"

/* A planned case and its output. In the functions below, `text` names the case in failures. */
struct conv_run {
    struct qk_test_memory memory;
    const struct qk_call *call; /* the call of the case */
    struct qk_plan plan;
    uint8_t *output;
};

/* Creates and plans the case. Checks shape, type and sizes. */
void conv_run_init(struct conv_run *run, const struct qk_kernels *kernels,
                   const struct conv_case *test, const char *text);

/* Runs units [begin, end) in their own workspace. */
void conv_run_units(const struct conv_run *run, size_t begin, size_t end);

/* Checks the output against test->expected, and frees the run. */
void conv_run_check(struct conv_run *run, const struct conv_case *test, const char *text);

/* Creates, runs and checks a case with every backend. The caller has called conv_case_make. */
void conv_case_check_made(const struct qk_test_gemms *gemms, struct conv_case *test,
                          const char *text);

/* Makes, checks and frees the case as QLinearConv, and in one of the other forms. `test->form` is
 * not read. With QK_TEST_EVERY only some of a test's calls do so. */
void conv_case_check(const struct qk_test_gemms *gemms, const struct conv_case *test);

/* Returns the name of the backend whose depthwise kernel the backend `gemm` uses. */
const char *conv_depthwise_of(const char *gemm);
