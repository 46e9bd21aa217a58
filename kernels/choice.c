#include "kernels/choice.h"

#include <stdio.h>
#include <string.h>

#include "kernels/conv/depthwise/depthwise.h"

/* ---- Speed that is expected -------------------------------------------------------------- */

/* Multiplications and additions of floats in a cycle, less what OpenBLAS leaves over. */
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

/* Of integers, with operands in registers and the first cache. */
static double integer_ops(const struct qk_profile *profile, enum qk_product product)
{
    const bool halves = profile->cpu_flags & QK_CPU_AMD && profile->family < 0x1a;
    switch (product) {
    case QK_PRODUCT_AVX2:
        return 2 * 20;
    case QK_PRODUCT_AVXVNNI:
        return 2 * 64;
    case QK_PRODUCT_VNNI:
        return 2 * (halves ? 64 : 128);
    case QK_PRODUCT_AMX:
        return 2 * 680;
    /* ARM's with two vector units, as sgemm's above: of Neoverse N1, and half of what V1, which has
     * four, does; by the model in tests/bench/RESULTS.md. */
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

static double expected_ops_a_ns(const struct qk_profile *profile, enum qk_product product)
{
    return profile->cycles_a_ns *
           (product == QK_PRODUCT_SGEMM ? sgemm_ops(profile) : integer_ops(profile, product));
}

double qk_expect_ops_a_ns(const struct qk_profile *profile, enum qk_product product)
{
    const double measured = profile->product_ops_a_ns[product];
    return measured > 0 ? measured : expected_ops_a_ns(profile, product);
}

/* How many times as fast as `b` a product is. What was measured is compared with nothing else: an
 * emulator is slower than all that is expected. */
static double times_as_fast(const struct qk_profile *profile, enum qk_product a, enum qk_product b)
{
    const double *measured = profile->product_ops_a_ns;
    if (measured[a] > 0 && measured[b] > 0)
        return measured[a] / measured[b];
    return expected_ops_a_ns(profile, a) / expected_ops_a_ns(profile, b);
}

/* ---- What runs --------------------------------------------------------------------------- */

#define ALL_FLAGS UINT32_MAX

/* From the slowest to the fastest. A tier runs where the CPU has all that it needs, and then hides
 * what it does not allow. The last one hides nothing: who names "avx512" gets all of AVX-512 that
 * the CPU has, with its VNNI, VBMI and AMX. */
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

/* The tiers, or the backends. */
struct list {
    const char *field;
    const char *(*name_at)(size_t index);
    uint32_t (*needs)(size_t index);
};

static const struct list tier_list = {"tier", qk_tier_name, tier_needs};
static const struct list gemm_list = {"gemm", qk_gemm_name, gemm_needs};

/* Prints the names of those that run with these flags: "auto, one, two or three". */
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

/* Finds what is called `name`; QK_UNAVAILABLE: nothing is, or the CPU lacks some of its needs. */
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

/* The backend of that name; NULL: sgemm. */
static enum qk_status find_backend(uint32_t cpu_flags, const char *name,
                                   const struct qk_conv_backend **backend, struct qk_error *error)
{
    size_t count;
    size_t index;
    const enum qk_status status = find(&gemm_list, cpu_flags, name, &index, error);
    *backend = status == QK_OK && index > 0 ? &qk_conv_backends(&count)[index - 1] : NULL;
    return status;
}

/* Of those that run with these flags: the scalar one always does. */
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

/* Floats are made of bytes before, and rounded more often behind: they must be faster by this. */
#define FLOATS_FASTER 1.25

/* What is only expected may be wrong by this. */
#define DOUBT 2.0

/* Where nothing is named. */
static void choose_products(const struct qk_profile *profile, bool may_load, bool blas,
                            struct qk_choice *choice)
{
    const struct qk_conv_backend *best = fastest_backend(profile, choice->cpu_flags);
    const double times = times_as_fast(profile, QK_PRODUCT_SGEMM, best->product);
    choice->wants_blas = may_load && times > 1 / DOUBT;
    choice->conv.dense = choice->wants_blas && blas && times > FLOATS_FASTER ? NULL : best;
    choice->conv.narrow = choice->conv.depthwise = best;
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
    const double terms_a_ns = qk_expect_ops_a_ns(profile, backend->product) / 2;
    const double terms = (double)(QK_IGEMM_VECTOR * backend->igemm->cell_k *
                                  (backend->igemm->whole_steps ? QK_IGEMM_STEP_SLABS : 1));
    return (struct qk_conv_costs){
        .product_cycles = terms / terms_a_ns * profile->cycles_a_ns,
        .slab_cycles = backend->slab_cycles,
        .terms_a_ns = terms_a_ns,
    };
}

/* What is made has half of a core's own cache, weights and x the other half. Not all of a large
 * one: units shall be small enough for other cores to have some. */
static void set_conv_sizes(const struct qk_profile *profile, struct qk_conv_tuning *conv)
{
    const size_t kib = 1024;
    const size_t half = profile->l2_bytes / 2;
    const bool vectors = profile->cpu_flags & (QK_CPU_AVX2 | QK_CPU_NEON);
    conv->cycles_a_ns = profile->cycles_a_ns;
    conv->pack_unit_ns = 50000;
    conv->unit_ns = 40000;
    conv->cells_bytes = clamp(half, 64 * kib, 512 * kib);
    conv->sums_bytes = clamp(half, 128 * kib, 1024 * kib);
    conv->slabs_most = clamp(profile->l2_bytes / 64, 4 * kib, 32 * kib);
    conv->dot_bytes = clamp(profile->l1_bytes / 4, 2 * kib, 8 * kib);
    conv->weights_a_cycle = 24;
    /* sgemm has blocks of its own; below this it has too few columns to be fast. */
    conv->sgemm_floats = clamp(half, 512 * kib, 1024 * kib) / sizeof(float);
    conv->sgemm_terms_a_ns = qk_expect_ops_a_ns(profile, QK_PRODUCT_SGEMM) / 2;
    conv->sgemm_unit_terms =
        clamp((size_t)(conv->sgemm_terms_a_ns * 1e6), (size_t)1 << 22, (size_t)1 << 26);
    conv->im2col_a_ns = vectors ? 4 : 0.5;
    conv->requantized_a_ns = vectors ? 3 : 0.2;
}

/* What is larger than the last cache does not stay in it, and goes past it. A larger cache than the
 * most here is seldom one's own: on a Xeon of 2023 that says 300 MiB, one thread writes 32 MiB at
 * 29 GB/s with plain stores and at 17 with streaming ones, and 64 MiB at 12 and at 26. */
static struct qk_walk_tuning walk_tuning_of(const struct qk_profile *profile)
{
    const size_t mib = 1024 * 1024;
    return (struct qk_walk_tuning){
        .stream_bytes = clamp(profile->l3_bytes, 4 * mib, 48 * mib),
        .unit_ns = 100000,
        .cycle_ns = 1 / profile->cycles_a_ns,
        .byte_ns = 0.5 / profile->copy_bytes_a_ns, /* one is read, one is written */
    };
}

/* ---- The choice -------------------------------------------------------------------------- */

enum qk_status qk_choose(const struct qk_profile *profile, const struct qk_wish *wish,
                         struct qk_choice *choice, struct qk_error *error)
{
    struct qk_conv_tuning *conv = &choice->conv;
    size_t tier;
    *choice = (struct qk_choice){0};
    enum qk_status status = choose_tier(profile->cpu_flags, wish->tier, &tier, error);
    if (status != QK_OK)
        return status;
    /* A tier that is named hides what is beyond it from the choice, not from who names a backend.
     * Where it hides a feature, it hides OpenBLAS, too, which would use that feature. */
    const bool named = strcmp(wish->tier, "auto") != 0;
    const uint32_t allowed = named ? tiers[tier].allows : ALL_FLAGS;
    const bool limited = profile->cpu_flags & ~allowed & ~(uint32_t)QK_CPU_AMD;
    choice->tier = tiers[tier].name;
    choice->cpu_flags = profile->cpu_flags & allowed;
    if (strcmp(wish->gemm, "auto") == 0) {
        choose_products(profile, !limited, wish->blas, choice);
    } else {
        status = find_backend(profile->cpu_flags, wish->gemm, &conv->dense, error);
        if (status != QK_OK)
            return status;
        conv->narrow = conv->depthwise = conv->dense;
        choice->wants_blas = !conv->dense;
    }
    if (conv->narrow && conv->narrow->narrow)
        conv->narrow = conv->narrow->narrow;
    conv->dense_costs = costs_of(profile, conv->dense);
    conv->narrow_costs = costs_of(profile, conv->narrow);
    set_conv_sizes(profile, conv);
    choice->walk = walk_tuning_of(profile);
    return QK_OK;
}
