#define _GNU_SOURCE
#include "kernels/measure.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "kernels/conv/backend.h"
#include "kernels/conv/winograd/winograd.h"

/* Each measurement is the best of RUNS runs of at least RUN_NS. A function that takes much longer,
 * as under an emulator, runs once. */
#define RUNS 4
#define RUN_NS 20000.0
#define ONCE_NS 3e6

/* Returns the CPU time of this thread. Wall-clock time would include other threads on a busy
 * machine. */
static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* Returns how many ns one call of `run` takes. The result is never 0, although a coarse clock may
 * not advance during a call. The first call warms caches and vector units and is not counted. */
static double best_ns(void (*run)(void *context), void *context)
{
    const double start = now_ns();
    run(context);
    const double first = now_ns() - start;
    double best = first > 0 ? first : DBL_MAX;
    for (int i = 0; i < RUNS && first < ONCE_NS; i++) {
        const double begin = now_ns();
        double passed = 0;
        size_t count = 0;
        while (passed < RUN_NS) {
            run(context);
            count++;
            passed = now_ns() - begin;
        }
        const double one = passed / (double)count;
        best = one < best ? one : best;
    }
    return best;
}

/* ---- Clock ------------------------------------------------------------------------------- */

enum { CHAIN = 4096 };

/* A chain of exclusive ors. Each needs the result of the one before it, so each takes one cycle. */
static void run_chain(void *context)
{
    uint64_t *sum = context;
    uint64_t x = *sum;
    for (int i = 0; i < CHAIN / 8; i++) {
#pragma GCC unroll 8
        for (uint64_t k = 1; k <= 8; k++) {
            x ^= k;
            __asm__ volatile("" : "+r"(x));
        }
    }
    *sum = x;
}

static void measure_clock(struct qk_profile *profile)
{
    uint64_t sum = 0;
    const double ns = best_ns(run_chain, &sum);
    const double cycles_per_ns = CHAIN / ns;
    if (cycles_per_ns > 0.1 && cycles_per_ns < 10)
        profile->cycles_per_ns = cycles_per_ns;
}

/* ---- Integers ---------------------------------------------------------------------------- */

/* One full tile over STEPS steps of the most slabs. All operands fit into the L1 cache. */
enum { STEPS = 8, SLAB_BYTES = (QK_IGEMM_NR + QK_IGEMM_VECTOR) * QK_IGEMM_QUAD_BYTES };

struct product {
    const struct qk_igemm *igemm;
    struct qk_igemm_args args;
};

static void run_product(void *context)
{
    const struct product *product = context;
    product->igemm->multiply(&product->args);
}

/* Returns multiplications and additions per nanosecond, or 0 if there is no memory. */
static double measure_product(const struct qk_igemm *igemm)
{
    struct qk_igemm_step steps[STEPS];
    const size_t step_bytes = qk_igemm_step_bytes(igemm, QK_IGEMM_STEP_SLABS, igemm->mr);
    const size_t quads_bytes = (size_t)QK_IGEMM_STEP_SLABS * SLAB_BYTES;
    const size_t weights_bytes = (STEPS * step_bytes + QK_IGEMM_SLACK + 63) / 64 * 64;
    const size_t sums_bytes = qk_igemm_tile_sums(igemm) * sizeof(int32_t);
    uint8_t *memory = aligned_alloc(64, quads_bytes + weights_bytes + sums_bytes);
    if (!memory)
        return 0;
    memset(memory, 1, quads_bytes + weights_bytes + sums_bytes);
    for (size_t i = 0; i < STEPS; i++)
        steps[i] = (struct qk_igemm_step){.offset = 0, .slabs = QK_IGEMM_STEP_SLABS};
    static const struct qk_igemm_wide none_wide[STEPS] = {0};
    struct product product = {
        .igemm = igemm,
        .args = {.quads = memory,
                 .slab_bytes = SLAB_BYTES,
                 .steps = steps,
                 .step_count = STEPS,
                 .weights = memory + quads_bytes,
                 .step_bytes = step_bytes,
                 .wide = none_wide,
                 .wide_weights = memory,
                 .rows = igemm->mr,
                 .vectors = igemm->nr / QK_IGEMM_VECTOR,
                 .positions = igemm->nr,
                 .sums = (int32_t *)(void *)(memory + quads_bytes + weights_bytes)},
    };
    if (igemm->set_up)
        igemm->set_up(QK_IGEMM_STEP_SLABS);
    const double ns = best_ns(run_product, &product);
    if (igemm->tear_down)
        igemm->tear_down();
    free(memory);
    return 2.0 * (double)(igemm->mr * igemm->nr * STEPS * QK_IGEMM_STEP_SLABS * igemm->quad_k) / ns;
}

/* ---- sgemm ------------------------------------------------------------------------------- */

/* Large enough that OpenBLAS is near its peak. */
enum { SGEMM_M = 128, SGEMM_N = 256, SGEMM_K = 256 };

struct sgemm {
    const struct qk_openblas *openblas;
    struct qk_sgemm_args args;
};

static void run_sgemm(void *context)
{
    const struct sgemm *sgemm = context;
    qk_openblas_sgemm(sgemm->openblas, &sgemm->args);
}

static void measure_sgemm(struct qk_profile *profile, const struct qk_openblas *openblas)
{
    const size_t a = SGEMM_M * SGEMM_K;
    const size_t b = SGEMM_K * SGEMM_N;
    const size_t c = SGEMM_M * SGEMM_N;
    float *memory = calloc(a + b + c, sizeof(*memory));
    if (!memory)
        return;
    struct sgemm sgemm = {
        .openblas = openblas,
        .args = {.m = SGEMM_M,
                 .n = SGEMM_N,
                 .k = SGEMM_K,
                 .a = memory,
                 .b = memory + a,
                 .c = memory + a + b,
                 .lda = SGEMM_K,
                 .ldb = SGEMM_N,
                 .ldc = SGEMM_N},
    };
    profile->product_ops_per_ns[QK_PRODUCT_SGEMM] =
        2.0 * SGEMM_M * SGEMM_N * SGEMM_K / best_ns(run_sgemm, &sgemm);
    free(memory);
}

/* ---- All of them ------------------------------------------------------------------------- */

/* Measures the fastest product first, even if the time is over, because sgemm's speed means nothing
 * without it. */
static void measure_products(struct qk_profile *profile, const struct qk_openblas *openblas,
                             double end_ns)
{
    size_t count;
    const struct qk_conv_backend *backends = qk_conv_backends(&count);
    bool any = false;
    for (size_t i = count; i-- > 0 && (!any || now_ns() < end_ns);) {
        double *ops = &profile->product_ops_per_ns[backends[i].product];
        if (backends[i].cpu_flags & ~profile->cpu_flags || *ops > 0)
            continue;
        *ops = measure_product(backends[i].igemm);
        if (backends[i].winograd)
            profile->product_ops_per_ns[QK_PRODUCT_AVX2_WORDS] =
                measure_product(backends[i].winograd->igemm);
        if (openblas && !any)
            measure_sgemm(profile, openblas);
        any = true;
    }
}

/* ---- Memory ------------------------------------------------------------------------------ */

#define COPY_BYTES ((size_t)4 << 20)
#define HUGE_PAGE_BYTES ((size_t)2 << 20)

static void run_copy(void *context)
{
    char *memory = context;
    memcpy(memory + COPY_BYTES, memory, COPY_BYTES);
    __asm__ volatile("" : : "r"(memory) : "memory");
}

static void measure_copy(struct qk_profile *profile)
{
    char *memory = aligned_alloc(HUGE_PAGE_BYTES, 2 * COPY_BYTES);
    if (!memory)
        return;
#ifdef MADV_HUGEPAGE
    madvise(memory, 2 * COPY_BYTES, MADV_HUGEPAGE); /* the system gives small pages more slowly */
#endif
    memset(memory, 1, 2 * COPY_BYTES); /* so that both halves have their pages */
    profile->copy_bytes_per_ns = (double)COPY_BYTES / best_ns(run_copy, memory);
    free(memory);
}

void qk_profile_measure(struct qk_profile *profile, const struct qk_openblas *openblas)
{
    const double end_ns = now_ns() + QK_MEASURE_NS;
    measure_clock(profile);
    measure_copy(profile);
    measure_products(profile, openblas, end_ns);
    profile->measured = true;
}
