#define _GNU_SOURCE
#include "kernels/measure.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "kernels/conv/backend.h"

/* Everything is measured in turn, ROUNDS times, and the best round counts. What slows the machine
 * down for a moment then slows all of it, and hardly changes which product is faster. In a round,
 * a function runs for RUN_NS or a little more. A function that takes much longer, as under an
 * emulator, runs twice. */
#define ROUNDS 4
#define RUN_NS 40000.0
#define ONCE_NS 3e6
#define CALLS_MAX ((size_t)1 << 20)

/* A function whose speed is measured. */
struct timing {
    void (*run)(void *context);
    void *context;
    void *memory;                 /* that `run` uses, from malloc; or NULL */
    const struct qk_igemm *igemm; /* it is set up before calls and torn down after; or NULL */
    double amount;  /* what one call does: cycles, bytes, or multiplications and additions */
    double *per_ns; /* where its speed goes */
    double ns;      /* of one call, in the best round; DBL_MAX: none yet */
};

/* Returns the CPU time of this thread. Wall-clock time would include other threads on a busy
 * machine. */
static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* Calls the function as often as it fits into RUN_NS, as far as is known. The clock is not read
 * between calls: this is a system call that may take as long as a product. If the clock is so
 * coarse that it does not advance, there are twice as many calls, and so on. */
static void time_calls(struct timing *timing)
{
    const struct qk_igemm *igemm = timing->igemm;
    size_t calls = timing->ns < RUN_NS ? (size_t)(RUN_NS / timing->ns) : 1;
    double passed = 0;
    if (igemm && igemm->set_up)
        igemm->set_up(QK_IGEMM_STEP_SLABS);
    for (; passed <= 0 && calls <= CALLS_MAX; calls *= 2) {
        const double start = now_ns();
        for (size_t i = 0; i < calls; i++)
            timing->run(timing->context);
        passed = now_ns() - start;
        if (passed > 0 && passed / (double)calls < timing->ns)
            timing->ns = passed / (double)calls;
    }
    if (igemm && igemm->tear_down)
        igemm->tear_down();
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

/* ---- Integers ---------------------------------------------------------------------------- */

/* One full tile over STEPS steps of the most slabs. All operands fit into the L1 cache. */
enum { STEPS = 8, SLAB_BYTES = (QK_IGEMM_NR + QK_IGEMM_VECTOR) * QK_IGEMM_QUAD_BYTES };

struct product {
    const struct qk_igemm *igemm;
    struct qk_igemm_step steps[STEPS];
    struct qk_igemm_args args;
};

static void run_product(void *context)
{
    const struct product *product = context;
    product->igemm->multiply(&product->args);
}

/* Returns the product's memory, or NULL if there is none. */
static void *make_product(struct product *product, const struct qk_igemm *igemm)
{
    static const struct qk_igemm_wide none_wide[STEPS] = {0};
    const size_t step_bytes = qk_igemm_step_bytes(igemm, QK_IGEMM_STEP_SLABS, igemm->mr);
    const size_t quads_bytes = (size_t)QK_IGEMM_STEP_SLABS * SLAB_BYTES;
    const size_t weights_bytes = (STEPS * step_bytes + QK_IGEMM_SLACK + 63) / 64 * 64;
    const size_t sums_bytes = qk_igemm_tile_sums(igemm) * sizeof(int32_t);
    uint8_t *memory = aligned_alloc(64, quads_bytes + weights_bytes + sums_bytes);
    if (!memory)
        return NULL;
    memset(memory, 1, quads_bytes + weights_bytes + sums_bytes);
    for (size_t i = 0; i < STEPS; i++)
        product->steps[i] = (struct qk_igemm_step){.offset = 0, .slabs = QK_IGEMM_STEP_SLABS};
    product->igemm = igemm;
    product->args =
        (struct qk_igemm_args){.quads = memory,
                               .slab_bytes = SLAB_BYTES,
                               .steps = product->steps,
                               .step_count = STEPS,
                               .weights = memory + quads_bytes,
                               .step_bytes = step_bytes,
                               .wide = none_wide,
                               .wide_weights = memory,
                               .rows = igemm->mr,
                               .vectors = igemm->nr / QK_IGEMM_VECTOR,
                               .positions = igemm->nr,
                               .sums = (int32_t *)(void *)(memory + quads_bytes + weights_bytes)};
    return memory;
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

/* Returns sgemm's memory, or NULL if there is none. */
static void *make_sgemm(struct sgemm *sgemm, const struct qk_openblas *openblas)
{
    const size_t a = SGEMM_M * SGEMM_K;
    const size_t b = SGEMM_K * SGEMM_N;
    const size_t c = SGEMM_M * SGEMM_N;
    float *memory = calloc(a + b + c, sizeof(*memory));
    if (!memory)
        return NULL;
    sgemm->openblas = openblas;
    sgemm->args = (struct qk_sgemm_args){.m = SGEMM_M,
                                         .n = SGEMM_N,
                                         .k = SGEMM_K,
                                         .a = memory,
                                         .b = memory + a,
                                         .c = memory + a + b,
                                         .lda = SGEMM_K,
                                         .ldb = SGEMM_N,
                                         .ldc = SGEMM_N};
    return memory;
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

/* Returns the copy's memory, or NULL if there is none. */
static void *make_copy(void)
{
    char *memory = aligned_alloc(HUGE_PAGE_BYTES, 2 * COPY_BYTES);
    if (!memory)
        return NULL;
#ifdef MADV_HUGEPAGE
    madvise(memory, 2 * COPY_BYTES, MADV_HUGEPAGE); /* the system gives small pages more slowly */
#endif
    memset(memory, 1, 2 * COPY_BYTES); /* so that both halves have their pages */
    return memory;
}

/* ---- All of them ------------------------------------------------------------------------- */

struct all {
    uint64_t chain;
    struct sgemm sgemm;
    struct product products[QK_PRODUCT_COUNT];
    struct timing timings[2 + QK_PRODUCT_COUNT]; /* the clock, the copy, and products with sgemm */
    size_t products_used, count;
    size_t musts; /* so many are measured even if the time is over */
};

static void add(struct all *all, struct timing timing)
{
    timing.ns = DBL_MAX;
    if (timing.context)
        all->timings[all->count++] = timing;
}

static void add_product(struct all *all, const struct qk_igemm *igemm, double *per_ns)
{
    struct product *product = &all->products[all->products_used++];
    void *memory = make_product(product, igemm);
    add(all, (struct timing){.run = run_product,
                             .context = memory ? product : NULL,
                             .memory = memory,
                             .igemm = igemm,
                             .amount = 2.0 * (double)(igemm->mr * igemm->nr * igemm->quad_k) *
                                       STEPS * QK_IGEMM_STEP_SLABS,
                             .per_ns = per_ns});
}

static void add_sgemm(struct all *all, const struct qk_openblas *openblas, double *per_ns)
{
    void *memory = make_sgemm(&all->sgemm, openblas);
    add(all, (struct timing){.run = run_sgemm,
                             .context = memory ? &all->sgemm : NULL,
                             .memory = memory,
                             .amount = 2.0 * SGEMM_M * SGEMM_N * SGEMM_K,
                             .per_ns = per_ns});
}

/* Adds the fastest product, then sgemm, whose speed means nothing without it, then the others. */
static void add_products(struct all *all, struct qk_profile *profile,
                         const struct qk_openblas *openblas)
{
    size_t count;
    const struct qk_conv_backend *backends = qk_conv_backends(&count);
    double *per_ns = profile->product_ops_per_ns;
    bool added[QK_PRODUCT_COUNT] = {false};
    for (size_t i = count; i-- > 0;) {
        const enum qk_product product = backends[i].product;
        if (backends[i].cpu_flags & ~profile->cpu_flags || added[product])
            continue;
        added[product] = true;
        add_product(all, backends[i].igemm, &per_ns[product]);
        if (!all->musts) {
            if (openblas)
                add_sgemm(all, openblas, &per_ns[QK_PRODUCT_SGEMM]);
            all->musts = all->count;
        }
        const struct qk_conv_backend *small_m = backends[i].small_m;
        const struct qk_conv_backend *words = small_m ? small_m->words : NULL;
        if (words && !added[words->product]) {
            added[words->product] = true;
            add_product(all, words->igemm, &per_ns[words->product]);
        }
    }
}

/* The first call warms caches and vector units. It is slow, or a coarse clock happens to advance
 * during it, so it hardly ever counts. */
static void time_all(struct all *all)
{
    const double end_ns = now_ns() + QK_MEASURE_NS;
    for (size_t i = 0; i < all->count && (i < all->musts || now_ns() < end_ns); i++) {
        time_calls(&all->timings[i]);
        time_calls(&all->timings[i]);
    }
    for (size_t round = 0; round < ROUNDS && now_ns() < end_ns; round++)
        for (size_t i = 0; i < all->count; i++)
            if (all->timings[i].ns < ONCE_NS)
                time_calls(&all->timings[i]);
}

void qk_profile_measure(struct qk_profile *profile, const struct qk_openblas *openblas)
{
    struct all all = {0};
    double cycles_per_ns = 0;
    void *copy = make_copy();
    add(&all,
        (struct timing){
            .run = run_chain, .context = &all.chain, .amount = CHAIN, .per_ns = &cycles_per_ns});
    add(&all, (struct timing){.run = run_copy,
                              .context = copy,
                              .memory = copy,
                              .amount = COPY_BYTES,
                              .per_ns = &profile->copy_bytes_per_ns});
    add_products(&all, profile, openblas);
    time_all(&all);
    for (size_t i = 0; i < all.count; i++) {
        const struct timing *timing = &all.timings[i];
        if (timing->ns < DBL_MAX)
            *timing->per_ns = timing->amount / timing->ns;
        free(timing->memory);
    }
    if (cycles_per_ns > 0.1 && cycles_per_ns < 10)
        profile->cycles_per_ns = cycles_per_ns;
    profile->measured = true;
}
