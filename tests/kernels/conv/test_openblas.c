/* The choice of OpenBLAS's core, and its sgemm. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "kernels/cpu.h"
#include "kernels/gemm/openblas.h"
#include "tests/support/kernels/qk_test.h"

#define SSE42 QK_CPU_SSE42
#define AVX (SSE42 | QK_CPU_AVX)
#define AVX2 (AVX | QK_CPU_AVX2)
#define AVX512 (AVX2 | QK_CPU_AVX512)
#define AMD QK_CPU_AMD

/* ---- The core ---------------------------------------------------------------------------- */

static void expect_core(uint32_t cpu_flags, const char *wanted, const char *expected)
{
    const char *core = qk_openblas_core(cpu_flags, wanted);
    if (expected == NULL)
        cr_assert_null(core, "flags %#x, wanted %s: got %s", cpu_flags, wanted, core);
    else
        cr_assert(core && strcmp(core, expected) == 0, "flags %#x, wanted %s: got %s, not %s",
                  cpu_flags, wanted ? wanted : "nothing", core ? core : "nothing", expected);
}

Test(openblas, core_by_cpu)
{
    expect_core(0, NULL, NULL);
    expect_core(AMD, NULL, NULL);
    expect_core(SSE42, NULL, "Nehalem");
    expect_core(AVX, NULL, "Sandybridge");
    expect_core(AVX | AMD, NULL, "Sandybridge");
    expect_core(AVX2, NULL, "Haswell");
    expect_core(AVX2 | AMD, NULL, "Zen");
    expect_core(AVX512, NULL, "SkylakeX");
    expect_core(AVX512 | AMD, NULL, "SkylakeX");
}

Test(openblas, core_wanted_and_fitting_is_kept)
{
    expect_core(AVX512, "Haswell", "Haswell");
    expect_core(AVX512, "hASWELL", "hASWELL");
    expect_core(AVX512, "SKYLAKEX", "SKYLAKEX");
    expect_core(AVX2, "Zen", "Zen");
    expect_core(AVX2 | AMD, "Haswell", "Haswell");
    expect_core(AVX2, "Nehalem", "Nehalem");
    expect_core(SSE42, "Prescott", "Prescott");
}

Test(openblas, core_that_the_cpu_lacks_is_replaced)
{
    expect_core(AVX2, "SkylakeX", "Haswell");
    expect_core(AVX2, "skylakex", "Haswell");
    expect_core(AVX, "Haswell", "Sandybridge");
    expect_core(AVX | AMD, "Zen", "Sandybridge");
    expect_core(SSE42, "Sandybridge", "Nehalem");
    expect_core(0, "Haswell", NULL);
    /* The flags do not show BF16, AMX and FMA4. */
    expect_core(AVX512, "Cooperlake", "SkylakeX");
    expect_core(AVX512, "SapphireRapids", "SkylakeX");
    expect_core(AVX2, "Bulldozer", "Haswell");
}

Test(openblas, core_of_an_unknown_name)
{
    expect_core(AVX512, "Nonsense", "SkylakeX");
    expect_core(AVX512, "", "SkylakeX");
    expect_core(AVX2, "Haswell ", "Haswell");
    /* The CPU is neither an x86-64 nor an AArch64, so the core may be one of that machine's. */
    expect_core(0, "POWER9", "POWER9");
}

Test(openblas, core_of_an_arm)
{
    const uint32_t armv82 = QK_CPU_NEON | QK_CPU_FP16 | QK_CPU_DOTPROD;
    expect_core(QK_CPU_NEON, NULL, NULL);
    expect_core(armv82, NULL, NULL);
    expect_core(QK_CPU_NEON, "CORTEXA57", "CORTEXA57");
    expect_core(armv82, "NEOVERSEN1", "NEOVERSEN1");
    expect_core(QK_CPU_NEON, "NEOVERSEN1", NULL);
    expect_core(armv82 | QK_CPU_I8MM, "NEOVERSEV1", NULL); /* the flags do not show SVE */
    expect_core(armv82, "Haswell", NULL);
    expect_core(armv82, "Nonsense", NULL);
    expect_core(AVX2, "NEOVERSEN1", "Haswell");
}

/* Loads OpenBLAS with the core that the user named. */
static void load(struct qk_openblas *openblas, const char *wanted)
{
    struct qk_error error;
    if (wanted)
        setenv("OPENBLAS_CORETYPE", wanted, 1);
    else
        unsetenv("OPENBLAS_CORETYPE");
    cr_assert_eq(qk_openblas_init(openblas, qk_cpu_flags(), 1, &error), QK_OK, "%s", error.text);
}

/* Each call has its own process, because OpenBLAS chooses only once. */
static void expect_loaded(const char *wanted)
{
    struct qk_openblas openblas;
    const char *expected = qk_openblas_core(qk_cpu_flags(), wanted);
    load(&openblas, wanted);
    cr_assert(!expected || strcasecmp(openblas.core, expected) == 0,
              "wanted %s, expected %s, got %s", wanted ? wanted : "nothing", expected,
              openblas.core);
    cr_assert_str_eq(getenv("OPENBLAS_NUM_THREADS"), "1");
    qk_openblas_deinit(&openblas);
}

Test(openblas, openblas_runs_the_core_that_fits)
{
    expect_loaded(NULL);
}

Test(openblas, openblas_runs_the_core_that_the_user_wants)
{
    expect_loaded("nehalem");
}

Test(openblas, openblas_runs_the_core_that_the_user_of_an_arm_wants)
{
    expect_loaded("cortexa57");
}

Test(openblas, openblas_does_not_see_an_unfit_core)
{
    expect_loaded("SapphireRapids");
}

Test(openblas, openblas_does_not_see_an_unknown_core)
{
    expect_loaded("Nonsense");
}

/* ---- sgemm ------------------------------------------------------------------------------- */

Test(openblas, small_product_in_larger_matrices)
{
    /* 2x3 times 3x2. The 9s are padding up to the leading dimensions. */
    static const float a[] = {1, 2, 3, 9, 4, 5, 6, 9};
    static const float b[] = {7, 8, 9, 9, 10, 9, 11, 12, 9};
    static const float expected[] = {58, 64, 5, 139, 154, 5};
    float c[] = {NAN, NAN, 5, NAN, NAN, 5};
    struct qk_openblas openblas;
    const struct qk_sgemm_args args = {
        .m = 2, .n = 2, .k = 3, .a = a, .b = b, .c = c, .lda = 4, .ldb = 3, .ldc = 3};
    load(&openblas, NULL);
    qk_openblas_sgemm(&openblas, &args);
    for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++)
        cr_assert_float_eq(c[i], expected[i], 0, "element %zu: %g", i, (double)c[i]);
    qk_openblas_deinit(&openblas);
}

static void random_operand(uint64_t *random, float *values, size_t count, bool extreme)
{
    for (size_t i = 0; i < count; i++)
        values[i] = extreme ? -128 : (float)((int)qk_test_random_below(random, 256) - 128);
}

static void check_exact(const struct qk_openblas *openblas, int m, int n, int k, bool extreme)
{
    uint64_t random = 7;
    float *a = malloc((size_t)(m * k) * sizeof(*a));
    float *b = malloc((size_t)(k * n) * sizeof(*b));
    float *c = malloc((size_t)(m * n) * sizeof(*c));
    cr_assert(a && b && c);
    random_operand(&random, a, (size_t)(m * k), extreme);
    random_operand(&random, b, (size_t)(k * n), extreme);
    const struct qk_sgemm_args args = {
        .m = m, .n = n, .k = k, .a = a, .b = b, .c = c, .lda = k, .ldb = n, .ldc = n};
    qk_openblas_sgemm(openblas, &args);
    for (int i = 0; i < m * n; i++) {
        int32_t sum = 0;
        for (int j = 0; j < k; j++)
            sum += (int32_t)a[i / n * k + j] * (int32_t)b[j * n + i % n];
        cr_assert_eq((int32_t)c[i], sum, "%dx%dx%d, element %d: %a, not %d", m, n, k, i,
                     (double)c[i], sum);
    }
    free(a);
    free(b);
    free(c);
}

Test(openblas, integers_are_exact_up_to_the_bound)
{
    struct qk_openblas openblas;
    load(&openblas, NULL);
    check_exact(&openblas, 5, 7, QK_SGEMM_EXACT_K, true);
    check_exact(&openblas, 33, 65, QK_SGEMM_EXACT_K, false);
    check_exact(&openblas, 1, 1, 1, false);
    check_exact(&openblas, 64, 31, 27, false);
    qk_openblas_deinit(&openblas);
}
