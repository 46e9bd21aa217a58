#include "tests/support/conv_run.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/conv/conv.h"

#define GUARD_BYTES 64
#define GUARD 0x5a

/* 64-byte aligned, with a guard behind it. */
static uint8_t *guarded(size_t bytes)
{
    void *block = NULL;
    cr_assert_eq(posix_memalign(&block, 64, bytes + GUARD_BYTES), 0);
    memset(block, GUARD, bytes + GUARD_BYTES);
    return block;
}

static void free_guarded(uint8_t *block, size_t bytes, const char *text)
{
    for (size_t i = 0; i < GUARD_BYTES; i++)
        cr_assert_eq(block[bytes + i], GUARD, "byte %zu behind a buffer of %zu: %s", i, bytes,
                     text);
    free(block);
}

void conv_run_init(struct conv_run *run, const struct qk_kernels *kernels,
                   const struct conv_case *test, const char *text)
{
    const struct qk_instance *instance;
    struct qk_error error;
    qk_test_memory_init(&run->memory, SIZE_MAX);
    struct qk_memory face = qk_test_memory_face(&run->memory);
    cr_assert_eq(qk_create(kernels, &test->call, face, &instance, &error), QK_OK, "%s: %s",
                 error.text, text);
    cr_assert_eq(qk_plan(instance, &test->call, face, &run->plan, &error), QK_OK, "%s: %s",
                 error.text, text);
    cr_assert_eq(run->plan.output_bytes, test->y_bytes, "%s", text);
    cr_assert_leq(run->plan.workspace_bytes, QK_CONV_WORKSPACE_MAX, "%s", text);
    cr_assert_eq(run->plan.output.type, test->naive.y_signed ? QK_INT8 : QK_UINT8);
    cr_assert_eq(run->plan.output.rank, test->spatial_rank + 2);
    for (uint32_t i = 0; i < test->spatial_rank; i++)
        cr_assert_eq(run->plan.output.dims[2 + i],
                     (size_t)test->naive.out[3 - test->spatial_rank + i], "%s", text);
    run->output = guarded(run->plan.output_bytes);
}

void conv_run_units(const struct conv_run *run, size_t begin, size_t end, const char *text)
{
    uint8_t *workspace = guarded(run->plan.workspace_bytes);
    qk_run(&run->plan, run->output, workspace, begin, end);
    free_guarded(workspace, run->plan.workspace_bytes, text);
}

void conv_run_check(struct conv_run *run, const struct conv_case *test, const char *text)
{
    for (size_t i = 0; i < test->y_bytes; i++)
        cr_assert_eq(run->output[i], test->expected[i], "y[%zu] is %d, expected %d: %s", i,
                     run->output[i], test->expected[i], text);
    free_guarded(run->output, test->y_bytes, text);
    qk_test_memory_deinit(&run->memory);
}

void conv_case_check_made(const struct qk_kernels *kernels, struct conv_case *test,
                          const char *text)
{
    struct conv_run run;
    conv_case_expect(test);
    conv_run_init(&run, kernels, test, text);
    conv_run_units(&run, 0, run.plan.unit_count, text);
    conv_run_check(&run, test, text);
}

void conv_case_check(const struct qk_kernels *kernels, struct conv_case *test)
{
    char text[512];
    cr_assert(conv_case_make(test));
    conv_case_check_made(kernels, test, conv_case_text(test, text));
    conv_case_deinit(test);
}
