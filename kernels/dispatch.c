#include "kernels/dispatch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/conv/sgemm/im2col_kernels.h"
#include "kernels/cpu.h"

#define AVX2_FLAGS (QK_CPU_SSE42 | QK_CPU_AVX | QK_CPU_AVX2)
#define AVX512_FLAGS (AVX2_FLAGS | QK_CPU_AVX512 | QK_CPU_AVX512_ICELAKE)

/* From the slowest to the fastest. A tier runs where the CPU has all its flags, and hides what
 * is beyond them. */
static const struct {
    const char *name;
    uint32_t cpu_flags;
} tiers[] = {
    {"scalar", 0},
    {"avx2", AVX2_FLAGS},
    {"avx512", AVX512_FLAGS},
};

#define TIER_COUNT (sizeof(tiers) / sizeof(tiers[0]))

const char *qk_tier_name(size_t index)
{
    return index < TIER_COUNT ? tiers[index].name : NULL;
}

/* "auto, one, two or three". */
static void print_names(const char *(*name_at)(size_t index), char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "auto");
    for (size_t i = 0; name_at(i) && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", name_at(i + 1) ? ", " : " or ",
                                 name_at(i));
}

void qk_tier_names(char *text, size_t bytes)
{
    print_names(qk_tier_name, text, bytes);
}

/* The index of the tier of that name, or TIER_COUNT. */
static size_t find_tier(const char *name, uint32_t cpu_flags)
{
    size_t i = 0;
    if (strcmp(name, "auto") == 0) {
        for (i = TIER_COUNT - 1; tiers[i].cpu_flags & ~cpu_flags; i--)
            ;
        return i;
    }
    while (i < TIER_COUNT && strcmp(tiers[i].name, name) != 0)
        i++;
    return i;
}

const char *qk_gemm_name(size_t index)
{
    size_t count;
    const struct qk_conv_backend *backends = qk_conv_backends(&count);
    if (index == 0)
        return "blas";
    return index <= count ? backends[index - 1].name : NULL;
}

void qk_gemm_names(char *text, size_t bytes)
{
    print_names(qk_gemm_name, text, bytes);
}

/* What multiplies: the fastest that `cpu_flags` have, or the one of that name. */
static enum qk_status choose_gemm(const char *name, uint32_t cpu_flags,
                                  const struct qk_conv_backend **backend, struct qk_error *error)
{
    size_t count;
    const struct qk_conv_backend *backends = qk_conv_backends(&count);
    const bool fastest = strcmp(name, "auto") == 0;
    *backend = NULL;
    for (size_t i = count; i-- > 0;) {
        const bool runs = !(backends[i].cpu_flags & ~cpu_flags);
        const bool named = strcmp(name, backends[i].name) == 0;
        if (named && !runs)
            return qk_fail(error, QK_UNAVAILABLE, "gemm: this CPU lacks %s", name);
        if (named || (fastest && runs)) {
            *backend = &backends[i];
            return QK_OK;
        }
    }
    if (fastest || strcmp(name, "blas") == 0)
        return QK_OK;
    char names[64];
    qk_gemm_names(names, sizeof(names));
    return qk_fail(error, QK_UNAVAILABLE, "gemm: expected %s, got \"%s\"", names, name);
}

static void fill_table(struct qk_kernels *kernels)
{
    qk_dequantize_init_scalar(&kernels->dequantize);
    kernels->im2col = &qk_im2col_kernels__scalar;
#ifdef __x86_64__
    if (kernels->cpu_flags & QK_CPU_AVX2) {
        qk_dequantize_init_avx2(&kernels->dequantize);
        kernels->im2col = &qk_im2col_kernels__avx2;
    }
    if (kernels->cpu_flags & QK_CPU_AVX512_ICELAKE) {
        qk_dequantize_init_avx512(&kernels->dequantize);
        kernels->im2col = &qk_im2col_kernels__avx512;
    }
#endif
}

enum qk_status qk_kernels_create(const char *tier, const char *gemm, struct qk_kernels **kernels,
                                 struct qk_error *error)
{
    const uint32_t cpu_flags = qk_cpu_flags();
    const size_t index = find_tier(tier, cpu_flags);
    char names[64];
    qk_tier_names(names, sizeof(names));
    if (index == TIER_COUNT)
        return qk_fail(error, QK_UNAVAILABLE, "tier: expected %s, got \"%s\"", names, tier);
    if (tiers[index].cpu_flags & ~cpu_flags)
        return qk_fail(error, QK_UNAVAILABLE, "tier: this CPU lacks %s", tier);

    /* A tier below the CPU's best hides what is beyond it from the choice, not from who names a
     * backend. */
    const struct qk_conv_backend *conv;
    const bool limited = strcmp(gemm, "auto") == 0 && index != find_tier("auto", cpu_flags);
    enum qk_status status =
        choose_gemm(gemm, limited ? cpu_flags & tiers[index].cpu_flags : cpu_flags, &conv, error);
    if (status != QK_OK)
        return status;

    struct qk_kernels *made = calloc(1, sizeof(*made));
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for the kernel table");
    made->tier = tiers[index].name;
    made->cpu_flags = cpu_flags & tiers[index].cpu_flags;
    made->conv = conv;
    fill_table(made);
    /* OpenBLAS has tiers of its own: it gets the whole CPU. */
    status = qk_gemm_init(&made->gemm, cpu_flags, error);
    if (status != QK_OK) {
        free(made);
        return status;
    }
    *kernels = made;
    return QK_OK;
}

void qk_kernels_destroy(struct qk_kernels *kernels)
{
    if (kernels)
        qk_gemm_deinit(&kernels->gemm);
    free(kernels);
}

const char *qk_kernels_tier(const struct qk_kernels *kernels)
{
    return kernels->tier;
}

const char *qk_kernels_blas_core(const struct qk_kernels *kernels)
{
    return kernels->gemm.core;
}

const char *qk_kernels_gemm(const struct qk_kernels *kernels)
{
    return kernels->conv ? kernels->conv->name : "blas";
}
