#include "kernels/choice.h"

#include <stdio.h>
#include <string.h>

#include "kernels/conv/depthwise/depthwise.h"

/* ---- Speed that is expected -------------------------------------------------------------- */

/* Returns how many float multiplications and additions sgemm does per cycle: the CPU's peak less
 * the share that OpenBLAS does not reach. */
static double sgemm_ops(const struct qk_profile *profile)
{
    const uint32_t flags = profile->cpu_flags;
    const bool halves = flags & QK_CPU_AMD && profile->family < 0x1a; /* Zen 4's vectors */
    const double lanes = flags & QK_CPU_AVX512 && !halves     ? 16
                         : flags & QK_CPU_AVX2                ? 8
                         : flags & (QK_CPU_AVX | QK_CPU_NEON) ? 4
                                                              : 2;
    return 0.85 * 2 * 2 * lanes;
}

/* Returns how many integer multiplications and additions a product does per cycle, with its
 * operands in registers and the L1 cache. */
static double integer_ops(const struct qk_profile *profile, enum qk_product product)
{
    const bool halves = profile->cpu_flags & QK_CPU_AMD && profile->family < 0x1a;
    switch (product) {
    case QK_PRODUCT_AVX2:
        return 2 * 20;
    case QK_PRODUCT_AVX2_WORDS:
        return 2 * 16;
    case QK_PRODUCT_AVXVNNI:
        return 2 * 64;
    case QK_PRODUCT_VNNI:
        return 2 * (halves ? 64 : 128);
    case QK_PRODUCT_AMX:
        return 2 * 680;
    /* ARM products on two vector units, as sgemm above: exact for Neoverse N1, half of what V1 with
     * its four units does. From the model in tests/bench/RESULTS.md. */
    case QK_PRODUCT_NEON:
        return 2 * 7;
    case QK_PRODUCT_DOTPROD:
        return 2 * 30;
    case QK_PRODUCT_I8MM:
        return 2 * 54;
    default:
        return 2 * 0.8;
    }
}

static double expected_ops_per_ns(const struct qk_profile *profile, enum qk_product product)
{
    return profile->cycles_per_ns *
           (product == QK_PRODUCT_SGEMM ? sgemm_ops(profile) : integer_ops(profile, product));
}

/* Returns how many multiplications and additions one thread does per nanosecond with this product:
 * the measured speed if there is one, otherwise the expected speed. 0 if the machine lacks the
 * product. */
static double ops_per_ns(const struct qk_profile *profile, enum qk_product product)
{
    const double measured = profile->product_ops_per_ns[product];
    return measured > 0 ? measured : expected_ops_per_ns(profile, product);
}

/* Returns how many times as fast as `b` product `a` is. Measured speeds are compared with measured
 * ones only, because under an emulator everything is slower than expected. */
static double times_as_fast(const struct qk_profile *profile, enum qk_product a, enum qk_product b)
{
    const double *measured = profile->product_ops_per_ns;
    if (measured[a] > 0 && measured[b] > 0)
        return measured[a] / measured[b];
    return expected_ops_per_ns(profile, a) / expected_ops_per_ns(profile, b);
}

/* ---- What runs --------------------------------------------------------------------------- */

#define ALL_FLAGS UINT32_MAX

/* From the slowest to the fastest. A tier runs if the CPU has all features that it needs. It then
 * hides the features that it does not allow. The last tier hides nothing: "avx512" uses everything
 * that the CPU has, including VNNI, VBMI and AMX. */
static const struct tier {
    const char *name;
    uint32_t needs, allows; /* QK_CPU_* */
} tiers[] = {
    {"scalar", 0, 0},
#ifdef __x86_64__
    {"avx2", QK_CPU_HASWELL, QK_CPU_HASWELL},
    {"avx512", QK_CPU_SKYLAKEX, ALL_FLAGS},
#elif defined(__aarch64__)
    {"neon", QK_CPU_NEON, ALL_FLAGS},
#endif
};

#define TIER_COUNT (sizeof(tiers) / sizeof(tiers[0]))

const char *qk_tier_name(size_t index)
{
    return index < TIER_COUNT ? tiers[index].name : NULL;
}

static uint32_t tier_needs(size_t index)
{
    return tiers[index].needs;
}

const char *qk_gemm_name(size_t index)
{
    size_t count;
    const struct qk_conv_backend *backends = qk_conv_backends(&count);
    if (index == 0)
        return "blas";
    return index <= count ? backends[index - 1].name : NULL;
}

static uint32_t gemm_needs(size_t index)
{
    size_t count;
    return index == 0 ? 0 : qk_conv_backends(&count)[index - 1].cpu_flags;
}

/* A list of names to choose from: the tiers or the backends. */
struct list {
    const char *field;
    const char *(*name_at)(size_t index);
    uint32_t (*needs)(size_t index);
};

static const struct list tier_list = {"tier", qk_tier_name, tier_needs};
static const struct list gemm_list = {"gemm", qk_gemm_name, gemm_needs};

/* Prints the names of the entries that run with these flags: "auto, one, two or three". */
static void print_names(const struct list *list, uint32_t cpu_flags, char *text, size_t bytes)
{
    size_t last = SIZE_MAX;
    for (size_t i = 0; list->name_at(i); i++)
        if (!(list->needs(i) & ~cpu_flags))
            last = i;
    size_t used = (size_t)snprintf(text, bytes, "auto");
    for (size_t i = 0; list->name_at(i) && used < bytes; i++)
        if (!(list->needs(i) & ~cpu_flags))
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", i < last ? ", " : " or ",
                                     list->name_at(i));
}

void qk_tier_names(char *text, size_t bytes)
{
    print_names(&tier_list, ALL_FLAGS, text, bytes);
}

void qk_gemm_names(char *text, size_t bytes)
{
    print_names(&gemm_list, ALL_FLAGS, text, bytes);
}

/* Finds the entry with this name. Fails with QK_UNAVAILABLE if there is none, or if the CPU lacks a
 * feature that it needs. */
static enum qk_status find(const struct list *list, uint32_t cpu_flags, const char *name,
                           size_t *index, struct qk_error *error)
{
    char names[QK_NAMES_BYTES];
    char features[QK_CPU_FLAGS_BYTES];
    for (*index = 0; list->name_at(*index) && strcmp(list->name_at(*index), name) != 0; ++*index)
        ;
    if (!list->name_at(*index)) {
        print_names(list, ALL_FLAGS, names, sizeof(names));
        return qk_fail(error, QK_UNAVAILABLE, "%s: expected %s, got \"%s\"", list->field, names,
                       name);
    }
    const uint32_t lacks = list->needs(*index) & ~cpu_flags;
    if (!lacks)
        return QK_OK;
    print_names(list, cpu_flags, names, sizeof(names));
    qk_cpu_print_flags(lacks, features, sizeof(features));
    return qk_fail(error, QK_UNAVAILABLE, "%s: expected %s, got \"%s\": this CPU lacks %s",
                   list->field, names, name, features);
}

static enum qk_status choose_tier(uint32_t cpu_flags, const char *name, size_t *index,
                                  struct qk_error *error)
{
    if (strcmp(name, "auto") != 0)
        return find(&tier_list, cpu_flags, name, index, error);
    *index = TIER_COUNT - 1;
    while (tiers[*index].needs & ~cpu_flags)
        --*index;
    return QK_OK;
}

/* Finds the backend with this name. *backend is NULL for "blas". */
static enum qk_status find_backend(uint32_t cpu_flags, const char *name,
                                   const struct qk_conv_backend **backend, struct qk_error *error)
{
    size_t count;
    size_t index;
    const enum qk_status status = find(&gemm_list, cpu_flags, name, &index, error);
    *backend = status == QK_OK && index > 0 ? &qk_conv_backends(&count)[index - 1] : NULL;
    return status;
}

/* Returns the fastest backend that runs with these flags. The scalar backend always runs. */
static const struct qk_conv_backend *fastest_backend(const struct qk_profile *profile,
                                                     uint32_t cpu_flags)
{
    size_t count;
    const struct qk_conv_backend *backends = qk_conv_backends(&count);
    const struct qk_conv_backend *best = &backends[0];
    for (size_t i = 1; i < count; i++)
        if (!(backends[i].cpu_flags & ~cpu_flags) &&
            times_as_fast(profile, backends[i].product, best->product) >= 1)
            best = &backends[i];
    return best;
}

/* sgemm must be this many times as fast as the integer product to be chosen, because its operands
 * are converted to floats first and its sums need more rounding after. */
#define FLOATS_FASTER 1.25

/* Speeds that were not measured may be wrong by this factor. */
#define DOUBT 2.0

/* Chooses the products of convolutions for --gemm auto. */
static void choose_products(const struct qk_profile *profile, bool may_load, bool blas,
                            struct qk_choice *choice)
{
    const struct qk_conv_backend *best = fastest_backend(profile, choice->cpu_flags);
    const double times = times_as_fast(profile, QK_PRODUCT_SGEMM, best->product);
    choice->wants_blas = may_load && times > 1 / DOUBT;
    choice->conv.main = choice->wants_blas && blas && times > FLOATS_FASTER ? NULL : best;
    choice->conv.small_tile = choice->conv.depthwise = best;
}

/* ---- How it is cut, and what it costs ---------------------------------------------------- */

static size_t clamp(size_t value, size_t least, size_t most)
{
    return value < least ? least : value > most ? most : value;
}

static struct qk_conv_costs costs_of(const struct qk_profile *profile,
                                     const struct qk_conv_backend *backend)
{
    if (!backend)
        return (struct qk_conv_costs){0};
    const double terms_per_ns = ops_per_ns(profile, backend->product) / 2;
    const double terms = (double)(QK_IGEMM_VECTOR * backend->igemm->quad_k *
                                  (backend->igemm->whole_steps ? QK_IGEMM_STEP_SLABS : 1));
    return (struct qk_conv_costs){
        .product_cycles = terms / terms_per_ns * profile->cycles_per_ns,
        .slab_cycles = backend->slab_cycles,
        .terms_per_ns = terms_per_ns,
    };
}

/* Sets the sizes of the buffers and units of convolutions. Slabs and sums get half of a core's own
 * cache (L2), weights and x share the other half. The sizes have upper bounds so that a large cache
 * still leaves units for other cores. */
static void set_conv_sizes(const struct qk_profile *profile, struct qk_conv_tuning *conv)
{
    const size_t kib = 1024;
    const size_t half = profile->l2_bytes / 2;
    const bool vectors = profile->cpu_flags & (QK_CPU_AVX2 | QK_CPU_NEON);
    conv->cycles_per_ns = profile->cycles_per_ns;
    conv->pack_unit_ns = 50000;
    conv->unit_ns = 40000;
    conv->quads_bytes = clamp(half, 64 * kib, 512 * kib);
    conv->sums_bytes = clamp(half, 128 * kib, 1024 * kib);
    conv->slabs_most = clamp(profile->l2_bytes / 64, 4 * kib, 32 * kib);
    conv->dot_bytes = clamp(profile->l1_bytes / 4, 2 * kib, 8 * kib);
    conv->weights_per_cycle = 24;
    /* OpenBLAS cuts its operands itself. With fewer floats than the lower bound it has too few
     * columns to be fast. */
    conv->sgemm_floats = clamp(half, 512 * kib, 1024 * kib) / sizeof(float);
    conv->sgemm_terms_per_ns = ops_per_ns(profile, QK_PRODUCT_SGEMM) / 2;
    conv->sgemm_unit_terms =
        clamp((size_t)(conv->sgemm_terms_per_ns * 1e6), (size_t)1 << 22, (size_t)1 << 26);
    conv->im2col_per_ns = vectors ? 4 : 0.5;
    conv->requantized_per_ns = vectors ? 3 : 0.2;
}

/* Outputs that are larger than the last cache are stored past it. The upper bound is there because
 * a larger cache is usually shared with others: on a Xeon of 2023 that reports 300 MiB, one thread
 * writes 32 MiB at 29 GB/s with plain stores and at 17 with streaming stores, but 64 MiB at 12 and
 * at 26. */
static struct qk_elementwise_tuning elementwise_tuning_of(const struct qk_profile *profile)
{
    const size_t mib = 1024 * 1024;
    return (struct qk_elementwise_tuning){
        .stream_bytes = clamp(profile->l3_bytes, 4 * mib, 48 * mib),
        .unit_ns = 5000,
        .cycle_ns = 1 / profile->cycles_per_ns,
        .byte_ns = 0.5 / profile->copy_bytes_per_ns, /* a copy reads one byte and writes one */
    };
}

/* ---- The choice -------------------------------------------------------------------------- */

enum qk_status qk_choose(const struct qk_profile *profile, const struct qk_kernel_options *options,
                         struct qk_choice *choice, struct qk_error *error)
{
    struct qk_conv_tuning *conv = &choice->conv;
    size_t tier;
    *choice = (struct qk_choice){0};
    enum qk_status status = choose_tier(profile->cpu_flags, options->tier, &tier, error);
    if (status != QK_OK)
        return status;
    /* A named tier hides the features beyond it from the automatic choice, but not from a caller
     * who names a backend. If it hides a feature, it also hides OpenBLAS, which would use that
     * feature. */
    const bool named = strcmp(options->tier, "auto") != 0;
    const uint32_t allowed = named ? tiers[tier].allows : ALL_FLAGS;
    const bool limited = profile->cpu_flags & ~allowed & ~(uint32_t)QK_CPU_AMD;
    choice->tier = tiers[tier].name;
    choice->cpu_flags = profile->cpu_flags & allowed;
    if (strcmp(options->gemm, "auto") == 0) {
        choose_products(profile, !limited, options->blas, choice);
    } else {
        status = find_backend(profile->cpu_flags, options->gemm, &conv->main, error);
        if (status != QK_OK)
            return status;
        conv->small_tile = conv->depthwise = conv->main;
        choice->wants_blas = !conv->main;
    }
    if (conv->small_tile && conv->small_tile->small_tile)
        conv->small_tile = conv->small_tile->small_tile;
    conv->main_costs = costs_of(profile, conv->main);
    conv->small_tile_costs = costs_of(profile, conv->small_tile);
    if (conv->small_tile && conv->small_tile->small_m)
        conv->words_costs = costs_of(profile, conv->small_tile->small_m->words);
    /* VPDPWSSD multiplies half as many terms as VPDPBUSD in the same time. */
    if (conv->small_tile && (conv->small_tile->product == QK_PRODUCT_VNNI ||
                             conv->small_tile->product == QK_PRODUCT_AVXVNNI)) {
        conv->words_costs = conv->small_tile_costs;
        conv->words_costs.terms_per_ns /= 2;
    }
    choice->matmul = conv->main ? conv->main : fastest_backend(profile, choice->cpu_flags);
    choice->matmul_terms_per_ns = costs_of(profile, choice->matmul).terms_per_ns;
    set_conv_sizes(profile, conv);
    conv->threads = options->threads;
    choice->elementwise = elementwise_tuning_of(profile);
    return QK_OK;
}
