/* The CPU's flags and the table of kernels. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/conv/depthwise/depthwise.h"
#include "kernels/conv/sgemm/im2col_kernels.h"
#include "kernels/cpu.h"
#include "kernels/dispatch.h"
#include "tests/support/kernels/qk_test.h"

Test(dispatch, cpu_flags_build_on_each_other)
{
    uint32_t flags = qk_cpu_flags();
    cr_assert(!(flags & QK_CPU_AVX) || flags & QK_CPU_SSE42);
    cr_assert(!(flags & QK_CPU_AVX2) || flags & QK_CPU_AVX);
    cr_assert(!(flags & QK_CPU_AVX512) || flags & QK_CPU_AVX2);
    cr_assert(!(flags & QK_CPU_VNNI) || flags & QK_CPU_AVX512);
    cr_assert(!(flags & QK_CPU_VBMI) || flags & QK_CPU_VNNI);
    cr_assert(!(flags & QK_CPU_AMX) || flags & QK_CPU_VBMI);
    cr_assert(!(flags & QK_CPU_AVXVNNI) || flags & QK_CPU_AVX2);
    cr_assert(!(flags & QK_CPU_I8MM) || flags & QK_CPU_DOTPROD);
    cr_assert(!(flags & (QK_CPU_DOTPROD | QK_CPU_FP16 | QK_CPU_BF16)) || flags & QK_CPU_NEON);
    cr_assert(!(flags & QK_CPU_SVE) || flags & QK_CPU_FP16);
}

#ifdef __x86_64__
/* The compiler's detection reads CPUID and XCR0 as well. */
Test(dispatch, cpu_flags_are_what_the_compiler_finds)
{
    uint32_t expected = 0;
    unsetenv(QK_CPU_VARIABLE); /* the compiler's detection does not know masks */
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2"))
        expected |= QK_CPU_SSE42;
    if (__builtin_cpu_supports("avx"))
        expected |= QK_CPU_AVX;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2"))
        expected |= QK_CPU_AVX2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        expected |= QK_CPU_AVX512;
    if (expected & QK_CPU_AVX512 && __builtin_cpu_supports("avx512vnni"))
        expected |= QK_CPU_VNNI;
    if (expected & QK_CPU_VNNI && __builtin_cpu_supports("avx512vbmi") &&
        __builtin_cpu_supports("avx512vbmi2"))
        expected |= QK_CPU_VBMI;
    if (__builtin_cpu_is("amd"))
        expected |= QK_CPU_AMD;
    const uint32_t unknown = QK_CPU_AMX | QK_CPU_AVXVNNI; /* unknown to the compiler */
    const uint32_t flags = qk_cpu_flags() & ~unknown;
    cr_assert_eq(flags, expected, "%#x, expected %#x", flags, expected);
}
#endif

Test(dispatch, scalar_hides_the_rest)
{
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    cr_assert_str_eq(qk_kernels_tier(kernels), "scalar");
    cr_assert_eq(kernels->choice.cpu_flags, 0);
    cr_assert_str_eq(kernels->dequantize.name, "dequantize_scalar");
    qk_kernels_destroy(kernels);
}

/* All entries are set, and no flag is beyond those of the tier. */
Test(dispatch, tiers_fill_all_entries)
{
    uint32_t flags = 0;
    for (size_t i = 1; qk_tier_name(i); i++) {
        struct qk_kernels *kernels = qk_test_kernels(qk_tier_name(i));
        if (!kernels)
            return;
        cr_assert_str_eq(qk_kernels_tier(kernels), qk_tier_name(i));
        cr_assert((kernels->choice.cpu_flags & flags) == flags &&
                  kernels->choice.cpu_flags != flags);
        flags = kernels->choice.cpu_flags;
        for (enum qk_code code = 0; code < QK_CODE_COUNT; code++)
            cr_assert(kernels->dequantize.run[code] &&
                      kernels->dequantize.run[code] != qk_dequantize_scalar);
        qk_kernels_destroy(kernels);
    }
}

Test(dispatch, auto_takes_the_best)
{
    struct qk_kernels *kernels = qk_test_kernels("auto");
    const char *best = qk_cpu_flags() & QK_CPU_AVX512 ? "avx512"
                       : qk_cpu_flags() & QK_CPU_AVX2 ? "avx2"
                       : qk_cpu_flags() & QK_CPU_NEON ? "neon"
                                                      : "scalar";
    cr_assert_str_eq(qk_kernels_tier(kernels), best);
    cr_assert_eq(kernels->choice.cpu_flags, qk_cpu_flags());
    qk_kernels_destroy(kernels);
}

#ifdef __aarch64__
#define TIER_NAMES "auto, scalar or neon"
enum { TIER_COUNT = 2 };
#else
#define TIER_NAMES "auto, scalar, avx2 or avx512"
enum { TIER_COUNT = 3 };
#endif

Test(dispatch, lists_the_tiers)
{
    char text[QK_NAMES_BYTES];
    qk_tier_names(text, sizeof(text));
    cr_assert_str_eq(text, TIER_NAMES);
    cr_assert_str_eq(qk_tier_name(0), "scalar");
    cr_assert_null(qk_tier_name(TIER_COUNT));
}

Test(dispatch, gemm_is_what_the_tier_has_or_what_is_named)
{
    struct qk_kernels *scalar = qk_test_kernels("scalar");
    cr_assert_str_eq(qk_kernels_gemm(scalar), "scalar");
    qk_kernels_destroy(scalar);
    for (size_t i = 0; qk_gemm_name(i); i++) {
        struct qk_kernels *named = qk_test_kernels_gemm("scalar", qk_gemm_name(i));
        struct qk_kernels *best = qk_test_kernels("auto");
        if (named) {
            cr_assert_str_eq(qk_kernels_gemm(named), qk_gemm_name(i));
            cr_assert(qk_gemm_name(i + 1) || strcmp(qk_kernels_gemm(best), qk_gemm_name(i)) == 0);
            qk_kernels_destroy(named);
        }
        qk_kernels_destroy(best);
    }
}

/* Runs call the entries of the tables without a check for NULL. */
Test(dispatch, tables_are_full)
{
    static const struct qk_im2col_kernels *const im2col[] = {
        &qk_im2col_kernels__scalar,
#ifdef __x86_64__
        &qk_im2col_kernels__avx2,
        &qk_im2col_kernels__avx512bw,
#endif
    };
    size_t count;
    const struct qk_conv_backend *backends = qk_conv_backends(&count);
    for (size_t kind = 0; kind < QK_EPILOGUE_KIND_COUNT; kind++) {
        for (size_t i = 0; i < count; i++) {
            cr_assert(backends[i].slabs->epilogues[kind], "%s, epilogue %zu", backends[i].name,
                      kind);
            cr_assert(backends[i].depthwise->run[QK_EPILOGUE_BYTES], "%s, epilogue %zu",
                      backends[i].name, kind);
        }
        for (size_t i = 0; i < sizeof(im2col) / sizeof(im2col[0]); i++)
            cr_assert(im2col[i]->epilogues[kind], "im2col kernels %zu, epilogue %zu", i, kind);
    }
    for (size_t i = 0; i < count; i++) {
        cr_assert_leq(backends[i].igemm->mr, QK_IGEMM_MR_MAX, "%s", backends[i].name);
        cr_assert(backends[i].igemm->multiply, "%s", backends[i].name);
    }
}

/* The exception is a tier with a bound, if the CPU has more. */
Test(dispatch, naming_the_best_tier_changes_nothing)
{
    struct qk_kernels *best = qk_test_kernels("auto");
    struct qk_kernels *named = qk_test_kernels(qk_kernels_tier(best));
    if (!(best->choice.cpu_flags & ~named->choice.cpu_flags & ~(uint32_t)QK_CPU_AMD))
        cr_assert_str_eq(qk_kernels_gemm(named), qk_kernels_gemm(best));
    else
        cr_assert_neq(strcmp(qk_kernels_tier(best), "avx512"), 0);
    qk_kernels_destroy(named);
    qk_kernels_destroy(best);
}

Test(dispatch, refuses_unknown_gemms)
{
    struct qk_kernels *kernels = NULL;
    struct qk_error error = {0};
    char names[QK_NAMES_BYTES];
    qk_gemm_names(names, sizeof(names));
    cr_assert(strstr(names, " or "), "cut off: %s", names);
    cr_assert_eq(qk_kernels_create("auto", "mkl", false, 1, &kernels, &error), QK_UNAVAILABLE);
    cr_assert(strstr(error.text, names), "%s", error.text);
    cr_assert(strstr(error.text, "got \"mkl\""), "%s", error.text);
    cr_assert_null(kernels);
}

Test(dispatch, refuses_unknown_tiers)
{
    static const char *const names[] = {"", "AVX2", "avx512f", "avx", "scalar "};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct qk_kernels *kernels = NULL;
        struct qk_error error = {0};
        cr_assert_eq(qk_kernels_create(names[i], "auto", false, 1, &kernels, &error),
                     QK_UNAVAILABLE);
        cr_assert_null(kernels);
        cr_assert_not_null(strstr(error.text, "expected " TIER_NAMES));
    }
}

Test(dispatch, tables_do_not_share)
{
    struct qk_kernels *first = qk_test_kernels_gemm("scalar", "blas");
    struct qk_kernels *second = qk_test_kernels_gemm("auto", "blas");
    qk_kernels_destroy(first);
    cr_assert_str_neq(qk_kernels_blas_core(second), "none");
    const float one = 1;
    float c = 0;
    const struct qk_sgemm_args args = {
        .m = 1, .n = 1, .k = 1, .a = &one, .b = &one, .c = &c, .lda = 1, .ldb = 1, .ldc = 1};
    qk_openblas_sgemm(&second->openblas, &args);
    cr_assert_float_eq(c, 1.0F, 0);
    qk_kernels_destroy(second);
}

/* Other backends do not load OpenBLAS. */
Test(dispatch, openblas_is_loaded_for_those_who_multiply_with_it)
{
    for (size_t i = 0; qk_gemm_name(i); i++) {
        struct qk_kernels *kernels = qk_test_kernels_gemm("auto", qk_gemm_name(i));
        if (!kernels)
            continue;
        const bool blas = strcmp(qk_gemm_name(i), "blas") == 0;
        cr_expect_eq(strcmp(qk_kernels_blas_core(kernels), "none") != 0, blas, "%s: %s",
                     qk_gemm_name(i), qk_kernels_blas_core(kernels));
        qk_kernels_destroy(kernels);
    }
}

#ifdef __x86_64__
/* What each machine runs. `backends` are all that can be named on it. OpenBLAS may multiply instead
 * of `main` if its floats are faster. */
static const struct played {
    const char *machine, *tier, *dequantize, *quantize, *main, *small_tile, *depthwise, *core;
    const struct qk_im2col_kernels *im2col;
    const char *backends;
} played[] = {
    {"haswell", "avx2", "dequantize_avx2", "quantize_avx2", "avx2", "avx2", "conv_depthwise_avx2",
     "Haswell", &qk_im2col_kernels__avx2, "blas scalar avx2"},
    {"zen2", "avx2", "dequantize_avx2", "quantize_avx2", "avx2", "avx2", "conv_depthwise_avx2",
     "Zen", &qk_im2col_kernels__avx2, "blas scalar avx2"},
    {"skylakex", "avx512", "dequantize_avx512bw", "quantize_avx512", NULL, "avx2",
     "conv_depthwise_avx2", "SkylakeX", &qk_im2col_kernels__avx512bw, "blas scalar avx2"},
    {"cascadelake", "avx512", "dequantize_avx512bw", "quantize_avx512", "vnni_novbmi",
     "vnni_novbmi", "conv_depthwise_vnni_novbmi", "SkylakeX", &qk_im2col_kernels__avx512bw,
     "blas scalar avx2 vnni_novbmi"},
    {"icelake", "avx512", "dequantize_avx512", "quantize_avx512", "vnni", "vnni",
     "conv_depthwise_vnni", "SkylakeX", &qk_im2col_kernels__avx512bw,
     "blas scalar avx2 vnni_novbmi vnni"},
    {"zen4", "avx512", "dequantize_avx512", "quantize_avx512", "vnni", "vnni",
     "conv_depthwise_vnni", "SkylakeX", &qk_im2col_kernels__avx512bw,
     "blas scalar avx2 vnni_novbmi vnni"},
    {"sapphirerapids", "avx512", "dequantize_avx512", "quantize_avx512", "amx", "vnni",
     "conv_depthwise_vnni", "SkylakeX", &qk_im2col_kernels__avx512bw,
     "blas scalar avx2 avxvnni vnni_novbmi vnni amx"},
};

static void expect_backends(const struct played *machine)
{
    char names[QK_NAMES_BYTES] = "";
    for (size_t i = 0; qk_gemm_name(i); i++) {
        struct qk_kernels *kernels = qk_test_kernels_gemm("auto", qk_gemm_name(i));
        if (!kernels)
            continue;
        const size_t used = strlen(names);
        snprintf(names + used, sizeof(names) - used, "%s%s", used > 0 ? " " : "", qk_gemm_name(i));
        qk_kernels_destroy(kernels);
    }
    cr_expect_str_eq(names, machine->backends, "%s: %s", machine->machine, names);
}

static void expect_played(const struct played *machine)
{
    struct qk_kernels *kernels = qk_test_kernels("auto");
    const struct qk_conv_tuning *conv = &kernels->choice.conv;
    const char *name = machine->machine;
    const char *core = qk_openblas_core(kernels->profile.cpu_flags, NULL);
    cr_expect_str_eq(qk_kernels_mask(kernels), name);
    cr_expect_str_eq(qk_kernels_tier(kernels), machine->tier, "%s", name);
    cr_expect_str_eq(kernels->dequantize.name, machine->dequantize, "%s", name);
    cr_expect_str_eq(kernels->quantize.name, machine->quantize, "%s", name);
    cr_expect_eq(kernels->im2col, machine->im2col, "%s", name);
    cr_expect_str_eq(conv->main ? conv->main->name : "blas", machine->main ? machine->main : "blas",
                     "%s", name);
    cr_expect_str_eq(conv->small_tile->name, machine->small_tile, "%s", name);
    cr_expect_str_eq(conv->depthwise->depthwise->kernel, machine->depthwise, "%s", name);
    cr_expect_str_eq(core, machine->core, "%s", name);
    qk_kernels_destroy(kernels);
}

/* Each machine that this CPU can play runs its own kernels, and not faster ones. */
Test(dispatch, machines_run_their_kernels)
{
    size_t count;
    const struct qk_machine *machines = qk_machines(&count);
    cr_assert_eq(count, sizeof(played) / sizeof(played[0]));
    for (size_t i = 0; i < count; i++) {
        cr_assert_str_eq(machines[i].name, played[i].machine);
        if (qk_machine_lacks(&machines[i])) {
            fprintf(stderr, "skipped: this CPU cannot play %s\n", machines[i].name);
            continue;
        }
        setenv(QK_CPU_VARIABLE, machines[i].name, 1);
        expect_played(&played[i]);
        expect_backends(&played[i]);
    }
}
#endif

/* Returns true if any backend that runs with these flags has this product. "vnni" and "vnni_novbmi"
 * have the same. */
static bool has_product(uint32_t cpu_flags, enum qk_product product)
{
    size_t count;
    const struct qk_conv_backend *backends = qk_conv_backends(&count);
    for (size_t i = 0; i < count; i++)
        if (backends[i].product == product && !(backends[i].cpu_flags & ~cpu_flags))
            return true;
    return false;
}

/* A measurement finds what the machine has, in bounded time, and changes only what it may. */
Test(dispatch, measures_the_machine)
{
    struct qk_kernels *kernels;
    struct qk_error error;
    cr_assert_eq(qk_kernels_create("auto", "blas", true, 1, &kernels, &error), QK_OK, "%s",
                 error.text);
    const struct qk_profile *profile = &kernels->profile;
    cr_assert(profile->measured);
    cr_assert(profile->product_ops_per_ns[QK_PRODUCT_SGEMM] > 0);
    cr_assert(profile->cycles_per_ns > 0.1 && profile->cycles_per_ns < 10);
    cr_assert_gt(profile->copy_bytes_per_ns, 0);
    cr_assert_null(kernels->choice.conv.main);
    size_t count;
    const struct qk_conv_backend *backends = qk_conv_backends(&count);
    for (size_t i = 0; i < count; i++)
        if (!has_product(profile->cpu_flags, backends[i].product))
            cr_expect_eq(profile->product_ops_per_ns[backends[i].product], 0, "%s",
                         backends[i].name);
    size_t best = count - 1;
    while (backends[best].cpu_flags & ~profile->cpu_flags)
        best--;
    cr_expect_gt(profile->product_ops_per_ns[backends[best].product], 0, "%s", backends[best].name);
    qk_kernels_destroy(kernels);
}

Test(dispatch, describes_what_was_chosen)
{
    struct qk_kernels *kernels = qk_test_kernels_gemm("scalar", "scalar");
    char text[QK_KERNELS_TEXT_BYTES];
    char tiny[40];
    qk_kernels_describe(kernels, text, sizeof(text));
    static const char *const parts[] = {
        "This machine\n", "  features ",       "  caches ",     "assumed\n",
        "not measured\n", "dequantize_scalar", "conv_scalar\n", "conv_depthwise_scalar\n",
        "not loaded\n",   "matmul_scalar\n",   "pool_scalar\n"};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        cr_expect_not_null(strstr(text, parts[i]), "%s is not in:\n%s", parts[i], text);
    cr_expect_lt(strlen(text), sizeof(text) - 1);
    qk_kernels_describe(kernels, tiny, sizeof(tiny));
    cr_expect_eq(strlen(tiny), sizeof(tiny) - 1);
    cr_expect_eq(strncmp(tiny, text, sizeof(tiny) - 1), 0);
    qk_kernels_destroy(kernels);
}

/* A product has the name of the backend that this CPU multiplies with. */
Test(dispatch, describes_products_by_their_backends)
{
    struct qk_kernels *kernels = qk_test_kernels_gemm("scalar", "scalar");
    char text[QK_KERNELS_TEXT_BYTES];
    size_t count;
    const struct qk_conv_backend *backends = qk_conv_backends(&count);
    kernels->profile.measured = true;
    for (size_t i = 0; i < count; i++) {
        char wanted[64];
        kernels->profile.cpu_flags = backends[i].cpu_flags;
        for (enum qk_product p = 0; p < QK_PRODUCT_COUNT; p++)
            kernels->profile.product_ops_per_ns[p] = 0;
        kernels->profile.product_ops_per_ns[QK_PRODUCT_SGEMM] = 50;
        kernels->profile.product_ops_per_ns[backends[i].product] = 100;
        qk_kernels_describe(kernels, text, sizeof(text));
        snprintf(wanted, sizeof(wanted), "  sgemm 50, %s 100 Gop/s", backends[i].name);
        cr_expect_not_null(strstr(text, wanted), "%s is not in:\n%s", wanted, text);
    }
    qk_kernels_destroy(kernels);
}
