/* The masks of QK_CPU. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu.h"
#include "kernels/dispatch.h"

/* Whoever runs the tests under a mask that there is not, or that this CPU cannot play, has tested
 * nothing. */
Test(cpu, the_mask_of_these_tests_can_be_played)
{
    const struct qk_machine *mask;
    struct qk_error error = {0};
    cr_assert_eq(qk_cpu_mask(&mask, &error), QK_OK, "%s", error.text);
    cr_assert(!mask || qk_cpu_flags() == mask->cpu_flags);
}

static void mask_as(const char *name)
{
    cr_assert_eq(setenv(QK_CPU_VARIABLE, name, 1), 0);
}

static void expect_refusal(const char *name, const char *why)
{
    const struct qk_machine *mask;
    struct qk_profile profile;
    struct qk_kernels *kernels = NULL;
    struct qk_error error = {0};
    mask_as(name);
    cr_expect_eq(qk_cpu_mask(&mask, &error), QK_UNAVAILABLE, "%s", name);
    cr_expect_null(mask);
    cr_expect_eq(strncmp(error.text, "QK_CPU: expected ", 17), 0, "%s", error.text);
    cr_expect_not_null(strstr(error.text, why), "%s is not in: %s", why, error.text);
    cr_expect_eq(qk_cpu_flags(), 0, "%s: %#x", name, qk_cpu_flags());
    cr_expect_eq(qk_profile_read(&profile, &error), QK_UNAVAILABLE, "%s", name);
    cr_expect_eq(qk_kernels_create("auto", "auto", false, 1, &kernels, &error), QK_UNAVAILABLE);
    cr_expect_null(kernels);
}

Test(cpu, refuses_machines_that_there_are_not)
{
    expect_refusal("Haswell", "got \"Haswell\"");
    expect_refusal("skylake", "got \"skylake\"");
    expect_refusal("haswell ", "got \"haswell \"");
    expect_refusal("auto", "got \"auto\"");
    expect_refusal("0123456789012345678901234567890123456789x",
                   "got \"0123456789012345678901234567890123456789\"");
}

Test(cpu, an_empty_mask_is_none)
{
    const struct qk_machine *mask;
    struct qk_error error;
    unsetenv(QK_CPU_VARIABLE);
    const uint32_t unmasked = qk_cpu_flags();
    mask_as("");
    cr_assert_eq(qk_cpu_mask(&mask, &error), QK_OK);
    cr_assert_null(mask);
    cr_assert_eq(qk_cpu_flags(), unmasked);
}

/* Each machine is played with no feature more and none less, or else refused with what is lacking.
 */
Test(cpu, plays_what_it_has_all_features_of)
{
    size_t count;
    const struct qk_machine *machines = qk_machines(&count);
    unsetenv(QK_CPU_VARIABLE);
    const uint32_t unmasked = qk_cpu_flags();
    for (size_t i = 0; i < count; i++) {
        const uint32_t lacks = machines[i].cpu_flags & ~unmasked & ~(uint32_t)QK_CPU_AMD;
        struct qk_profile profile;
        struct qk_error error;
        char features[QK_CPU_FLAGS_BYTES];
        cr_expect_eq(qk_machine_lacks(&machines[i]), lacks, "%s", machines[i].name);
        qk_cpu_print_flags(lacks, features, sizeof(features));
        if (lacks) {
            expect_refusal(machines[i].name, features);
            continue;
        }
        mask_as(machines[i].name);
        cr_expect_eq(qk_cpu_flags(), machines[i].cpu_flags, "%s", machines[i].name);
        cr_assert_eq(qk_profile_read(&profile, &error), QK_OK, "%s", error.text);
        cr_expect_eq(profile.cpu_flags, machines[i].cpu_flags, "%s", machines[i].name);
        cr_expect_eq(profile.mask, &machines[i]);
        cr_expect(profile.family == machines[i].family && profile.model == machines[i].model);
    }
}

Test(cpu, names_of_features_are_cut_off)
{
    char text[QK_CPU_FLAGS_BYTES];
    char tiny[8];
    qk_cpu_print_flags(UINT32_MAX, text, sizeof(text));
    cr_assert_lt(strlen(text), sizeof(text) - 1);
    cr_assert_not_null(strstr(text, "avx512_vbmi amx_int8 "));
    qk_cpu_print_flags(UINT32_MAX, tiny, sizeof(tiny));
    cr_assert_eq(strlen(tiny), sizeof(tiny) - 1);
    cr_assert_eq(strncmp(tiny, text, sizeof(tiny) - 1), 0);
    qk_cpu_print_flags(QK_CPU_AMD, text, sizeof(text));
    cr_assert_str_eq(text, "");
}
