/* What is chosen for other machines. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "kernels/choice.h"

#define ARMV8 QK_CPU_NEON
#define ARMV82 (ARMV8 | QK_CPU_FP16 | QK_CPU_DOTPROD)
#define ARMV86 (ARMV82 | QK_CPU_I8MM | QK_CPU_BF16)
#define KIB ((size_t)1024)
#define MIB (1024 * KIB)

struct machine {
    const char *name;
    uint32_t cpu_flags, family;
    size_t l1_bytes, l2_bytes, l3_bytes;
    double sgemm, slowest; /* measured operations per nanosecond; 0: not measured */
    bool no_blas;
    const char *tier, *main, *small_tile, *depthwise; /* the expected choice */
    size_t quads_bytes, stream_bytes;
};

/* Each architecture has only its own machines. The last but one has all products. */
#ifdef __x86_64__
enum { SLOWEST = QK_PRODUCT_AVX2, SECOND = QK_PRODUCT_VNNI, FASTEST = QK_PRODUCT_AMX };

static const struct machine machines[] = {
    {"Haswell", QK_CPU_HASWELL, 6, 32 * KIB, 256 * KIB, 8 * MIB, 0, 0, false, "avx2", "avx2",
     "avx2", "avx2", 128 * KIB, 8 * MIB},
    {"Haswell, slow integers", QK_CPU_HASWELL, 6, 32 * KIB, 256 * KIB, 8 * MIB, 95, 60, false,
     "avx2", "blas", "avx2", "avx2", 128 * KIB, 8 * MIB},
    {"Haswell without OpenBLAS", QK_CPU_HASWELL, 6, 32 * KIB, 256 * KIB, 8 * MIB, 95, 60, true,
     "avx2", "avx2", "avx2", "avx2", 128 * KIB, 8 * MIB},
    {"Zen 2", QK_CPU_HASWELL | QK_CPU_AMD, 0x17, 32 * KIB, 512 * KIB, 16 * MIB, 0, 0, false, "avx2",
     "avx2", "avx2", "avx2", 256 * KIB, 16 * MIB},
    {"Skylake-X", QK_CPU_SKYLAKEX, 6, 32 * KIB, 1 * MIB, 24 * MIB, 0, 0, false, "avx512", "blas",
     "avx2", "avx2", 512 * KIB, 24 * MIB},
    {"Skylake-X, measured", QK_CPU_SKYLAKEX, 6, 32 * KIB, 1 * MIB, 24 * MIB, 230, 168, false,
     "avx512", "blas", "avx2", "avx2", 512 * KIB, 24 * MIB},
    {"Skylake-X, slow floats", QK_CPU_SKYLAKEX, 6, 32 * KIB, 1 * MIB, 24 * MIB, 150, 168, false,
     "avx512", "avx2", "avx2", "avx2", 512 * KIB, 24 * MIB},
    {"Skylake-X without OpenBLAS", QK_CPU_SKYLAKEX, 6, 32 * KIB, 1 * MIB, 24 * MIB, 0, 0, true,
     "avx512", "avx2", "avx2", "avx2", 512 * KIB, 24 * MIB},
    {"Cascade Lake", QK_CPU_CASCADELAKE, 6, 32 * KIB, 1 * MIB, 36 * MIB, 0, 0, false, "avx512",
     "vnni_novbmi", "vnni_novbmi", "vnni_novbmi", 512 * KIB, 36 * MIB},
    {"Ice Lake", QK_CPU_ICELAKE, 6, 48 * KIB, 1280 * KIB, 48 * MIB, 0, 0, false, "avx512", "vnni",
     "vnni", "vnni", 512 * KIB, 48 * MIB},
    {"Zen 4", QK_CPU_ICELAKE | QK_CPU_AMD, 0x19, 32 * KIB, 1 * MIB, 32 * MIB, 0, 0, false, "avx512",
     "vnni", "vnni", "vnni", 512 * KIB, 32 * MIB},
    {"Sapphire Rapids", QK_CPU_ICELAKE | QK_CPU_AVXVNNI | QK_CPU_AMX, 6, 48 * KIB, 2 * MIB,
     105 * MIB, 0, 0, false, "avx512", "amx", "vnni", "amx", 512 * KIB, 48 * MIB},
    {"Alder Lake", QK_CPU_HASWELL | QK_CPU_AVXVNNI, 6, 48 * KIB, 1280 * KIB, 30 * MIB, 0, 0, false,
     "avx2", "avxvnni", "avxvnni", "avxvnni", 512 * KIB, 30 * MIB},
};
#elif defined(__aarch64__)
enum { SLOWEST = QK_PRODUCT_NEON, SECOND = QK_PRODUCT_DOTPROD, FASTEST = QK_PRODUCT_I8MM };

static const struct machine machines[] = {
    {"Cortex-A72", ARMV8, 0x41, 32 * KIB, 1 * MIB, 8 * MIB, 0, 0, false, "neon", "neon", "neon",
     "neon", 512 * KIB, 8 * MIB},
    {"Cortex-A72, slow integers", ARMV8, 0x41, 32 * KIB, 1 * MIB, 8 * MIB, 20, 12, false, "neon",
     "blas", "neon", "neon", 512 * KIB, 8 * MIB},
    {"Cortex-A72, slow floats", ARMV8, 0x41, 32 * KIB, 1 * MIB, 8 * MIB, 20, 18, false, "neon",
     "neon", "neon", "neon", 512 * KIB, 8 * MIB},
    {"Cortex-A72 without OpenBLAS", ARMV8, 0x41, 32 * KIB, 1 * MIB, 8 * MIB, 20, 12, true, "neon",
     "neon", "neon", "neon", 512 * KIB, 8 * MIB},
    {"Neoverse N1", ARMV82, 0x41, 64 * KIB, 1 * MIB, 32 * MIB, 0, 0, false, "neon", "dotprod",
     "dotprod", "dotprod", 512 * KIB, 32 * MIB},
    {"Apple M1, virtual", ARMV82, 0x61, 64 * KIB, 4 * MIB, 8 * MIB, 0, 0, false, "neon", "dotprod",
     "dotprod", "dotprod", 512 * KIB, 8 * MIB},
    {"Apple M2, virtual", ARMV86, 0x61, 64 * KIB, 4 * MIB, 8 * MIB, 0, 0, false, "neon", "i8mm",
     "i8mm", "i8mm", 512 * KIB, 8 * MIB},
    {"Neoverse V1", ARMV86 | QK_CPU_SVE, 0x41, 64 * KIB, 1 * MIB, 32 * MIB, 0, 0, false, "neon",
     "i8mm", "i8mm", "i8mm", 512 * KIB, 32 * MIB},
    {"Neoverse V2", ARMV86 | QK_CPU_SVE, 0x41, 64 * KIB, 2 * MIB, 36 * MIB, 0, 0, false, "neon",
     "i8mm", "i8mm", "i8mm", 512 * KIB, 36 * MIB},
    {"A64FX", ARMV8 | QK_CPU_FP16, 0x46, 64 * KIB, 8 * MIB, 8 * MIB, 0, 0, false, "neon", "neon",
     "neon", "neon", 512 * KIB, 8 * MIB},
};
#endif

enum { MACHINE_COUNT = sizeof(machines) / sizeof(machines[0]) };

static struct qk_profile profile_of(const struct machine *machine)
{
    struct qk_profile profile = {
        .cpu_flags = machine->cpu_flags,
        .family = machine->family,
        .l1_bytes = machine->l1_bytes,
        .l2_bytes = machine->l2_bytes,
        .l3_bytes = machine->l3_bytes,
        .product_ops_per_ns = {[QK_PRODUCT_SGEMM] = machine->sgemm, [SLOWEST] = machine->slowest},
    };
    qk_profile_fill(&profile);
    return profile;
}

static struct qk_choice choose(const struct qk_profile *profile, const char *tier, const char *gemm,
                               bool blas)
{
    const struct qk_kernel_options options = {
        .tier = tier, .gemm = gemm, .blas = blas, .threads = 2};
    struct qk_choice choice;
    struct qk_error error;
    cr_assert_eq(qk_choose(profile, &options, &choice, &error), QK_OK, "%s", error.text);
    return choice;
}

static const char *name_of(const struct qk_conv_backend *backend)
{
    return backend ? backend->name : "blas";
}

Test(choice, kernels_that_run)
{
    for (size_t i = 0; i < MACHINE_COUNT; i++) {
        const struct machine *machine = &machines[i];
        const struct qk_profile profile = profile_of(machine);
        const struct qk_choice choice = choose(&profile, "auto", "auto", !machine->no_blas);
        cr_expect_str_eq(choice.tier, machine->tier, "%s: %s", machine->name, choice.tier);
        const char *main = name_of(choice.conv.main);
        const char *small_tile = name_of(choice.conv.small_tile);
        const char *depthwise = name_of(choice.conv.depthwise);
        cr_expect_str_eq(main, machine->main, "%s: %s", machine->name, main);
        cr_expect_str_eq(small_tile, machine->small_tile, "%s: %s", machine->name, small_tile);
        cr_expect_str_eq(depthwise, machine->depthwise, "%s: %s", machine->name, depthwise);
    }
}

/* Whatever conv/choose.c may take has costs. */
Test(choice, all_backends_have_costs)
{
    for (size_t i = 0; i < MACHINE_COUNT; i++) {
        const struct qk_profile profile = profile_of(&machines[i]);
        const struct qk_choice choice = choose(&profile, "auto", "auto", !machines[i].no_blas);
        const struct qk_conv_tuning *conv = &choice.conv;
        const struct qk_conv_backend *small_m = conv->small_tile->small_m;
        cr_expect(conv->small_tile_costs.terms_per_ns > 0, "%s", machines[i].name);
        cr_expect(!conv->main || conv->main_costs.terms_per_ns > 0, "%s", machines[i].name);
        cr_expect(!small_m || !small_m->words || conv->words_costs.terms_per_ns > 0, "%s",
                  machines[i].name);
    }
}

Test(choice, nothing_that_the_machine_lacks)
{
    for (size_t i = 0; i < MACHINE_COUNT; i++) {
        const struct qk_profile profile = profile_of(&machines[i]);
        const struct qk_choice choice = choose(&profile, "auto", "auto", true);
        const struct qk_conv_backend *const all[] = {choice.conv.main, choice.conv.small_tile,
                                                     choice.conv.depthwise};
        cr_expect_eq(choice.cpu_flags, profile.cpu_flags);
        for (size_t k = 0; k < 3; k++)
            cr_expect(!all[k] || !(all[k]->cpu_flags & ~profile.cpu_flags), "%s: %s",
                      machines[i].name, all[k]->name);
    }
}

/* An emulator may have had time to measure only one product, and is slower than all
 * expectations. */
Test(choice, compares_measured_speeds_with_each_other_only)
{
    struct qk_profile profile = profile_of(&machines[MACHINE_COUNT - 2]);
    const char *best = name_of(choose(&profile, "auto", "auto", true).conv.main);
    profile.product_ops_per_ns[FASTEST] = 0.1;
    cr_expect_str_eq(name_of(choose(&profile, "auto", "auto", true).conv.main), best);
    profile.product_ops_per_ns[SECOND] = 0.2;
    const struct qk_conv_backend *second = choose(&profile, "auto", "auto", true).conv.main;
    cr_expect_eq((int)second->product, SECOND, "%s", second->name);
}

Test(choice, sizes_stay_inside_their_caches)
{
    for (size_t i = 0; i < MACHINE_COUNT; i++) {
        const struct machine *machine = &machines[i];
        const struct qk_profile profile = profile_of(machine);
        const struct qk_choice choice = choose(&profile, "auto", "auto", true);
        const struct qk_conv_tuning *conv = &choice.conv;
        cr_expect_eq(conv->quads_bytes, machine->quads_bytes, "%s: %zu", machine->name,
                     conv->quads_bytes);
        cr_expect_leq(conv->quads_bytes, machine->l2_bytes / 2, "%s", machine->name);
        cr_expect_leq(conv->sums_bytes, machine->l2_bytes / 2, "%s", machine->name);
        cr_expect_leq(conv->slabs_most * 64, machine->l2_bytes, "%s", machine->name);
        cr_expect_leq(conv->dot_bytes, machine->l1_bytes / 4, "%s", machine->name);
        cr_expect_leq(conv->sgemm_floats * sizeof(float), machine->l3_bytes, "%s", machine->name);
        cr_expect_eq(choice.elementwise.stream_bytes, machine->stream_bytes, "%s: %zu",
                     machine->name, choice.elementwise.stream_bytes);
    }
}

Test(choice, an_unknown_machine)
{
    struct qk_profile profile = {0};
    qk_profile_fill(&profile);
    const struct qk_choice choice = choose(&profile, "auto", "auto", true);
    cr_assert_str_eq(choice.tier, "scalar");
    cr_assert_null(choice.conv.main);
    cr_assert_str_eq(choice.conv.small_tile->name, "scalar");
    cr_assert_str_eq(choose(&profile, "auto", "auto", false).conv.main->name, "scalar");
    cr_assert_geq(choice.conv.quads_bytes, 64 * KIB);
    cr_assert_leq(choice.conv.quads_bytes, 128 * KIB);
    cr_assert_eq(choice.elementwise.stream_bytes, 8 * MIB);
    cr_assert(choice.conv.cycles_per_ns > 0 && choice.elementwise.byte_ns > 0);
    cr_assert(choice.conv.sgemm_terms_per_ns > 0);
}

/* A hypervisor may report any size of a cache. */
Test(choice, sizes_that_cannot_be_are_replaced)
{
    static const size_t sizes[] = {0, 1, 63, 4096, SIZE_MAX};
    const size_t count = sizeof(sizes) / sizeof(sizes[0]);
    for (size_t i = 0; i < count * count * count; i++) {
        struct qk_profile profile = {
            .cpu_flags = QK_CPU_ICELAKE,
            .l1_bytes = sizes[i % count],
            .l2_bytes = sizes[i / count % count],
            .l3_bytes = sizes[i / count / count],
        };
        qk_profile_fill(&profile);
        cr_assert_eq(profile.l1_bytes, 48 * KIB);
        cr_assert_eq(profile.l2_bytes, 1 * MIB);
        cr_assert_geq(profile.l3_bytes, 1 * MIB);
        const struct qk_choice choice = choose(&profile, "auto", "auto", true);
        cr_assert_leq(choice.conv.quads_bytes, 512 * KIB);
        cr_assert_leq(choice.elementwise.stream_bytes, 48 * MIB);
    }
}

#ifdef __x86_64__
/* A named tier bounds the choice on every machine, even if it is the second best tier and the CPU
 * has no better one. */
Test(choice, avx2_is_avx2_everywhere)
{
    for (size_t i = 0; i < MACHINE_COUNT; i++) {
        const struct qk_profile profile = profile_of(&machines[i]);
        const struct qk_choice choice = choose(&profile, "avx2", "auto", false);
        const bool all = !(profile.cpu_flags & ~(uint32_t)(QK_CPU_HASWELL | QK_CPU_AMD));
        cr_expect_str_eq(choice.tier, "avx2", "%s", machines[i].name);
        cr_expect_eq(choice.cpu_flags, QK_CPU_HASWELL, "%s: %#x", machines[i].name,
                     choice.cpu_flags);
        cr_expect_str_eq(name_of(choice.conv.main), "avx2", "%s", machines[i].name);
        cr_expect_str_eq(name_of(choice.conv.small_tile), "avx2", "%s", machines[i].name);
        cr_expect_str_eq(name_of(choice.conv.depthwise), "avx2", "%s", machines[i].name);
        cr_expect_eq(choice.wants_blas, all, "%s", machines[i].name);
    }
}

/* This tier takes all of AVX-512 that the machine has. */
Test(choice, avx512_is_all_that_the_machine_has)
{
    for (size_t i = 0; i < MACHINE_COUNT; i++) {
        const struct qk_profile profile = profile_of(&machines[i]);
        if (!(profile.cpu_flags & QK_CPU_AVX512))
            continue;
        const struct qk_choice best = choose(&profile, "auto", "auto", true);
        const struct qk_choice named = choose(&profile, "avx512", "auto", true);
        cr_expect_str_eq(named.tier, "avx512");
        cr_expect_eq(named.cpu_flags, profile.cpu_flags, "%s", machines[i].name);
        cr_expect_eq(named.conv.main, best.conv.main, "%s", machines[i].name);
        cr_expect_eq(named.wants_blas, best.wants_blas, "%s", machines[i].name);
    }
}

static void expect_refusal(uint32_t cpu_flags, const char *tier, const char *gemm,
                           const char *expected)
{
    const struct qk_kernel_options options = {.tier = tier, .gemm = gemm, .threads = 2};
    struct qk_profile profile = {.cpu_flags = cpu_flags};
    struct qk_choice choice;
    struct qk_error error;
    qk_profile_fill(&profile);
    cr_assert_eq(qk_choose(&profile, &options, &choice, &error), QK_UNAVAILABLE, "%s", expected);
    cr_expect_str_eq(error.text, expected, "%s", error.text);
}

/* A refusal names the alternatives, and each feature that the CPU lacks. */
Test(choice, refusals_name_what_is_lacking)
{
    expect_refusal(QK_CPU_SSE42, "avx2", "auto",
                   "tier: expected auto or scalar, got \"avx2\": this CPU lacks avx avx2");
    expect_refusal(QK_CPU_HASWELL, "avx512", "auto",
                   "tier: expected auto, scalar or avx2, got \"avx512\": this CPU lacks avx512");
    expect_refusal(QK_CPU_HASWELL, "avx512vbmi", "auto",
                   "tier: expected auto, scalar, avx2 or avx512, got \"avx512vbmi\"");
    expect_refusal(QK_CPU_SSE42, "auto", "avx2",
                   "gemm: expected auto, blas or scalar, got \"avx2\": this CPU lacks avx avx2");
    expect_refusal(QK_CPU_CASCADELAKE, "auto", "vnni",
                   "gemm: expected auto, blas, scalar, avx2 or vnni_novbmi, got \"vnni\": this CPU "
                   "lacks avx512_vbmi");
    expect_refusal(QK_CPU_SKYLAKEX, "auto", "vnni",
                   "gemm: expected auto, blas, scalar or avx2, got \"vnni\": this CPU lacks "
                   "avx512_vnni avx512_vbmi");
    expect_refusal(
        QK_CPU_ICELAKE, "scalar", "amx",
        "gemm: expected auto, blas, scalar, avx2, vnni_novbmi or vnni, got \"amx\": this "
        "CPU lacks amx_int8");
}
#endif

Test(choice, names_win)
{
    const struct qk_profile profile = profile_of(&machines[MACHINE_COUNT - 2]);
    struct qk_choice choice = choose(&profile, "auto", "blas", false);
    cr_assert_null(choice.conv.main);
    cr_assert_null(choice.conv.depthwise);
    for (size_t i = 1; qk_gemm_name(i); i++) {
        const char *name = qk_gemm_name(i);
        choice = choose(&profile, "scalar", name, true);
        cr_assert_str_eq(choice.conv.main->name, name);
        cr_assert_eq(choice.conv.depthwise, choice.conv.main);
        cr_assert_str_eq(choice.tier, "scalar");
    }
}

/* OpenBLAS is loaded if it is named, and if it may be fastest. It is not loaded if integers are far
 * ahead, nor below the CPU's best tier, because the user asked for that tier's kernels. */
Test(choice, loads_openblas_where_it_may_win)
{
    for (size_t i = 0; i < MACHINE_COUNT; i++) {
        const struct qk_profile profile = profile_of(&machines[i]);
        const bool near =
            !(machines[i].cpu_flags & (QK_CPU_VNNI | QK_CPU_AVXVNNI | QK_CPU_DOTPROD));
        cr_expect_eq(choose(&profile, "auto", "auto", false).wants_blas, near, "%s",
                     machines[i].name);
        cr_expect(choose(&profile, "auto", "blas", false).wants_blas);
        cr_expect(!choose(&profile, "scalar", "auto", true).wants_blas);
        cr_expect(!choose(&profile, "auto", "scalar", true).wants_blas);
    }
}

/* Some properties of an ARM CPU are known from its implementer and part, if Linux reports no
 * caches. Nothing is known of other ARM CPUs. */
Test(choice, arm_cores_by_name)
{
    static const struct {
        uint32_t implementer, part;
        const char *name;
        size_t l1_bytes, l2_bytes;
    } cores[] = {
        {0x41, 0xd08, "Cortex-A72", 32 * KIB, 512 * KIB},
        {0x41, 0xd0c, "Neoverse N1", 64 * KIB, 512 * KIB},
        {0x41, 0xd40, "Neoverse V1", 64 * KIB, 1 * MIB},
        {0x41, 0xd49, "Neoverse N2", 64 * KIB, 512 * KIB},
        {0x41, 0xd4f, "Neoverse V2", 64 * KIB, 1 * MIB},
        {0x61, 0x000, "Apple silicon", 64 * KIB, 4 * MIB},
        {0x61, 0x032, "Apple silicon", 64 * KIB, 4 * MIB},
        {0x41, 0xfff, "", 32 * KIB, 256 * KIB},
        {0, 0, "", 32 * KIB, 256 * KIB},
    };
    for (size_t i = 0; i < sizeof(cores) / sizeof(cores[0]); i++) {
        struct qk_profile profile = {
            .cpu_flags = ARMV8, .family = cores[i].implementer, .model = cores[i].part};
        qk_profile_fill(&profile);
        cr_expect_str_eq(profile.name, cores[i].name, "%s", profile.name);
        cr_expect_eq(profile.l1_bytes, cores[i].l1_bytes, "%s", cores[i].name);
        cr_expect_eq(profile.l2_bytes, cores[i].l2_bytes, "%s", cores[i].name);
        struct qk_profile told = {.cpu_flags = ARMV8,
                                  .family = cores[i].implementer,
                                  .model = cores[i].part,
                                  .l1_bytes = 16 * KIB,
                                  .l2_bytes = 3 * MIB};
        qk_profile_fill(&told);
        cr_expect(told.l1_bytes == 16 * KIB && told.l2_bytes == 3 * MIB, "%s", cores[i].name);
    }
    struct qk_profile x86 = {.cpu_flags = QK_CPU_HASWELL, .family = 0x41, .model = 0xd0c};
    qk_profile_fill(&x86);
    cr_expect_str_eq(x86.name, "");
}

Test(choice, this_machine)
{
    struct qk_profile profile;
    struct qk_error error;
    cr_assert_eq(qk_profile_read(&profile, &error), QK_OK, "%s", error.text);
    cr_assert_eq(profile.cpu_flags, qk_cpu_flags());
    cr_assert_geq(profile.l1_bytes, 8 * KIB);
    cr_assert_leq(profile.l1_bytes, profile.l2_bytes);
    cr_assert_leq(profile.l2_bytes, profile.l3_bytes);
    cr_assert_leq(strlen(profile.name), sizeof(profile.name) - 1);
    cr_assert(!profile.measured);
}
