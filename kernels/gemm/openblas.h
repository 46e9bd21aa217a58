/* OpenBLAS, loaded at start where it may be chosen (kernels/dispatch.c), after its environment is
 * set.
 *
 * Debian 12's OpenBLAS 0.3.21 does not know newer Intel CPUs and falls back to its Prescott kernels
 * there, silently, at a fifth of the speed. It reads OPENBLAS_CORETYPE only while it is being
 * loaded, before main() of a program that links it: so this file loads it with dlopen, after
 * choosing a core by CPUID that the CPU has. One BLAS thread a call: parallelism comes from the
 * caller's pool.
 *
 * Each call needs a buffer of 128 MiB of address space, of which little is ever touched. OpenBLAS
 * maps it when none is free, and where it cannot, it tries again for ever. So a buffer for each
 * thread is mapped at the start, where there still is an answer to that.
 */
#ifndef KERNELS_GEMM_OPENBLAS_H
#define KERNELS_GEMM_OPENBLAS_H

#include "kernels/qk.h"

/* C[m x n] = A[m x k] * B[k x n], all row-major with leading dimensions lda, ldb, ldc; beta is 0,
 * so C is written, never read. m, n and k are above 0. */
struct qk_sgemm_args {
    int m, n, k;
    const float *a;
    const float *b;
    float *c;
    int lda, ldb, ldc;
};

struct qk_openblas {
    void *library; /* dlopen handle; NULL: not loaded */
    void *sgemm;   /* cblas_sgemm */
    char core[32]; /* the core that OpenBLAS says it runs */
};

/* Sums of products of operands in [-128, 127] stay within 2^24 for this many terms, where every
 * integer has a float: 1024 * 128 * 128 = 2^24. In any order, so sgemm may add as it likes. */
#define QK_SGEMM_EXACT_K 1024

/* The core for a CPU, as OPENBLAS_CORETYPE names it; NULL: let OpenBLAS choose. `wanted` is the
 * user's own OPENBLAS_CORETYPE or NULL: kept if it is known to fit the CPU. A name that is not
 * known is replaced: OpenBLAS takes a default core for a name that it does not know, Prescott in
 * some versions, and in others one that needs AVX-512. */
const char *qk_openblas_core(uint32_t cpu_flags, const char *wanted);

/* Call before other threads start (setenv); so many may then multiply at once. QK_UNAVAILABLE: the
 * library is missing or not whole, or there is no address space for its buffers. */
enum qk_status qk_openblas_init(struct qk_openblas *openblas, uint32_t cpu_flags, size_t threads,
                                struct qk_error *error);
/* Also of one that is not loaded: all zeros. */
void qk_openblas_deinit(struct qk_openblas *openblas);

void qk_openblas_sgemm(const struct qk_openblas *openblas, const struct qk_sgemm_args *args);

#endif
