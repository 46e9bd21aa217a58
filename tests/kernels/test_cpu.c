/* What is known of this CPU, and the masks of QK_CPU. */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "kernels/cpu.h"
#include "kernels/dispatch.h"

/* A test run under a mask that does not exist, or that this CPU cannot play, would have tested
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

/* Each machine is played with exactly its features, or refused with the list of missing
 * features. */
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
    cr_assert_str_eq(text, "sse4.2 avx avx2 avx_vnni avx512 avx512_vnni avx512_vbmi amx_int8 neon "
                           "dotprod i8mm fp16 bf16 sve");
    qk_cpu_print_flags(UINT32_MAX, tiny, sizeof(tiny));
    cr_assert_eq(strlen(tiny), sizeof(tiny) - 1);
    cr_assert_eq(strncmp(tiny, text, sizeof(tiny) - 1), 0);
    qk_cpu_print_flags(QK_CPU_AMD, text, sizeof(text));
    cr_assert_str_eq(text, "");
}

#ifdef __x86_64__
/* Returns true if Linux gets this CPU's caches from the leaves that qk_profile_read reads, as it
 * does on Intel's CPUs. */
static bool has_leaf_4(void)
{
    uint32_t a, b, c, d;
    return __get_cpuid_count(4, 0, &a, &b, &c, &d) && (a & 31) != 0;
}

/* Keeps this thread on its current CPU, because another CPU may have other caches. Returns the
 * CPU's number. */
static int stay_here(void)
{
    cpu_set_t here;
    const int cpu = sched_getcpu();
    CPU_ZERO(&here);
    CPU_SET((size_t)cpu, &here);
    cr_assert_eq(sched_setaffinity(0, sizeof(here), &here), 0);
    return cpu;
}

/* Reads a word of a cache's file. Returns false if there is no such file. */
static bool read_word(int cpu, int index, const char *name, char word[32])
{
    char path[128];
    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/cache/index%d/%s", cpu, index,
             name);
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    const bool has = fscanf(file, "%31s", word) == 1;
    fclose(file);
    return has;
}

Test(cpu, caches_are_those_that_linux_finds)
{
    struct qk_profile profile, expected = {0};
    struct qk_error error;
    const int cpu = stay_here();
    bool any = false;
    for (int index = 0; index < 8; index++) {
        char level[32], type[32], size[32];
        if (!read_word(cpu, index, "level", level) || !read_word(cpu, index, "type", type) ||
            !read_word(cpu, index, "size", size) || strcmp(type, "Instruction") == 0)
            continue;
        size_t *const sizes[] = {NULL, &expected.l1_bytes, &expected.l2_bytes, &expected.l3_bytes};
        const size_t at = strtoul(level, NULL, 10);
        any = true;
        if (at > 0 && at < 4)
            *sizes[at] = strtoul(size, NULL, 10) * 1024;
    }
    if (!any || !has_leaf_4())
        cr_skip_test("Linux does not tell this CPU's caches");
    cr_assert_eq(qk_profile_read(&profile, &error), QK_OK, "%s", error.text);
    expected.cpu_flags = profile.cpu_flags;
    qk_profile_fill(&expected);
    cr_expect_eq(profile.l1_bytes, expected.l1_bytes, "%zu", profile.l1_bytes);
    cr_expect_eq(profile.l2_bytes, expected.l2_bytes, "%zu", profile.l2_bytes);
    cr_expect_eq(profile.l3_bytes, expected.l3_bytes, "%zu", profile.l3_bytes);
}

/* Copies a text without its blanks, because Linux leaves out some of them. */
static void without_blanks(const char *text, char *copy, size_t bytes)
{
    size_t used = 0;
    for (; *text != '\0' && *text != '\n' && used < bytes - 1; text++)
        if (*text != ' ')
            copy[used++] = *text;
    copy[used] = '\0';
}

Test(cpu, name_is_that_which_linux_finds)
{
    static const char begin[] = "model name\t: ";
    char line[256] = "", mine[64], linux_has[64];
    struct qk_profile profile;
    struct qk_error error;
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && fgets(line, sizeof(line), file) && strncmp(line, begin, strlen(begin)) != 0)
        continue;
    if (file)
        fclose(file);
    if (strncmp(line, begin, strlen(begin)) != 0 || !has_leaf_4())
        cr_skip_test("Linux does not tell this CPU's name");
    cr_assert_eq(qk_profile_read(&profile, &error), QK_OK, "%s", error.text);
    without_blanks(profile.name, mine, sizeof(mine));
    without_blanks(line + strlen(begin), linux_has, sizeof(linux_has));
    cr_assert_str_eq(mine, linux_has);
}
#endif
