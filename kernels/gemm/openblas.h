/* Loads OpenBLAS and calls its sgemm, for sgemm convolutions. kernels/dispatch.c loads it at start
 * if it may be chosen, after setting its environment.
 *
 * Debian 12's OpenBLAS 0.3.21 does not know newer Intel CPUs. On them it silently falls back to its
 * Prescott kernels, at a fifth of the speed. OpenBLAS reads OPENBLAS_CORETYPE only while it is
 * being loaded, which is before main() in a program that links it. This file therefore first
 * chooses, by CPUID, a core that the CPU has, and then loads OpenBLAS with dlopen. Each call uses
 * one BLAS thread, because the caller's pool runs calls in parallel.
 *
 * Each call needs a buffer of 128 MiB of address space, of which little is ever touched. OpenBLAS
 * maps a buffer if none is free, and retries forever if it cannot. A buffer for each thread is
 * therefore mapped at start, when a failure can still be reported. */
#pragma once

#include "kernels/qk.h"

/* The arguments of C[m x n] = A[m x k] * B[k x n]. All matrices are row-major, with leading
 * dimensions lda, ldb and ldc. beta is 0, so C is written and never read. m, n and k are above 0.
 */
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

/* The number of terms up to which sums of products of operands in [-128, 127] stay within 2^24,
 * where floats hold every integer: 1024 * 128 * 128 = 2^24. This holds for any order of additions,
 * so sgemm may add in any order. */
#define QK_SGEMM_EXACT_K 1024

/* Returns the OpenBLAS core for a CPU (its set of kernels), as OPENBLAS_CORETYPE names it, or NULL
 * to let OpenBLAS choose. `wanted` is the user's own OPENBLAS_CORETYPE or NULL. It is kept if it is
 * known to fit the CPU. A name that is not known is replaced, because OpenBLAS then takes a default
 * core: Prescott in some versions, and in others one that needs AVX-512. */
const char *qk_openblas_core(uint32_t cpu_flags, const char *wanted);

/* Loads OpenBLAS for `threads` threads that multiply at the same time. Must be called before other
 * threads start, because it calls setenv. Fails with QK_UNAVAILABLE if the library is missing or
 * incomplete, if it has fewer buffers than `threads`, or if there is no address space for them, and
 * with QK_NO_MEMORY. */
enum qk_status qk_openblas_init(struct qk_openblas *openblas, uint32_t cpu_flags, size_t threads,
                                struct qk_error *error);
/* Unloads OpenBLAS. A struct of zeros, which is not loaded, is allowed, too. */
void qk_openblas_deinit(struct qk_openblas *openblas);

/* Computes the product. Any thread may call this, but no more threads at the same time than
 * qk_openblas_init was told. */
void qk_openblas_sgemm(const struct qk_openblas *openblas, const struct qk_sgemm_args *args);
