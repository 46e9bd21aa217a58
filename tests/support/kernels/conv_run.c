#include "tests/support/kernels/conv_run.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "kernels/conv/conv.h"
#include "tests/support/guarded.h"

void conv_run_init(struct conv_run *run, const struct qk_kernels *kernels,
                   const struct conv_case *test, const char *text)
{
    const struct qk_instance *instance;
    struct qk_error error;
    run->call = &test->call;
    qk_test_memory_init(&run->memory, SIZE_MAX);
    struct qk_memory face = qk_test_memory_face(&run->memory);
    cr_assert_eq(qk_test_create(kernels, &test->call, test->seed, face, &instance, &error), QK_OK,
                 "%s: %s", error.text, text);
    cr_assert_eq(qk_plan(instance, test->call.inputs, face, &run->plan, &error), QK_OK, "%s: %s",
                 error.text, text);
    cr_assert_eq(run->plan.output_bytes[0], test->y_bytes, "%s", text);
    cr_assert_leq(run->plan.workspace_bytes, QK_CONV_WORKSPACE_MAX, "%s", text);
    cr_assert_eq(run->plan.outputs[0].type, test->form == CONV_FORM_INTEGER ? QK_INT32
                                            : test->naive.y_signed          ? QK_INT8
                                                                            : QK_UINT8);
    cr_assert_eq(run->plan.outputs[0].rank, test->spatial_rank + 2);
    for (uint32_t i = 0; i < test->spatial_rank; i++)
        cr_assert_eq(run->plan.outputs[0].dims[(test->form == CONV_FORM_CHANNELS_LAST ? 1 : 2) + i],
                     (size_t)test->naive.out[3 - test->spatial_rank + i], "%s", text);
    run->output = guarded_alloc(run->plan.output_bytes[0], 64);
}

const char *conv_depthwise_of(const char *gemm)
{
    if (strcmp(gemm, "amx") == 0)
        return "vnni";
    return strcmp(gemm, "i8mm") == 0 ? "dotprod" : gemm;
}

void conv_run_units(const struct conv_run *run, size_t begin, size_t end)
{
    qk_test_run_units(&run->plan, run->call, run->output, begin, end);
}

void conv_run_check(struct conv_run *run, const struct conv_case *test, const char *text)
{
    /* An assertion is slow, so there is only one, for the byte that differs. */
    if (test->y_bytes > 0 && memcmp(run->output, test->expected, test->y_bytes) != 0)
        for (size_t i = 0; i < test->y_bytes; i++)
            cr_assert_eq(run->output[i], test->expected[i], "y[%zu] is %d, expected %d: %s", i,
                         run->output[i], test->expected[i], text);
    guarded_free(run->output);
    qk_test_memory_deinit(&run->memory);
}

void conv_case_check_made(const struct qk_test_gemms *gemms, struct conv_case *test,
                          const char *text)
{
    conv_case_expect(test);
    for (size_t i = 0; i < gemms->count; i++) {
        struct conv_run run;
        char named[700];
        snprintf(named, sizeof(named), "%s: %s", gemms->names[i], text);
        conv_run_init(&run, gemms->kernels[i], test, named);
        conv_run_units(&run, 0, run.plan.unit_count);
        conv_run_check(&run, test, named);
    }
}

/* The forms share all but what fills the slabs and what stores the sums. random_channels_last and
 * random_integer try these with all geometries, so a case runs in one of them, drawn by lot. */
void conv_case_check(const struct qk_test_gemms *gemms, const struct conv_case *test)
{
    static uint64_t lot = 1;
    static size_t runs;
    const bool last = qk_test_random_below(&lot, 2) == 0;
    const enum conv_form forms[] = {CONV_FORM_QLINEAR,
                                    last ? CONV_FORM_CHANNELS_LAST : CONV_FORM_INTEGER};
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        char text[512];
        struct conv_case formed = *test;
        formed.form = forms[i];
        if (!qk_test_runs(runs++))
            continue;
        cr_assert(conv_case_make(&formed));
        conv_case_check_made(gemms, &formed, conv_case_text(&formed, text));
        conv_case_deinit(&formed);
    }
}
