/* Chooses for qk_kernels_create, from the profile of a machine, which kernels compute what, how
 * work is cut into units, and what units should cost. The choice is a pure function of the profile,
 * so any machine can test the choice for any other. Private to kernels/. */
#pragma once

#include "kernels/conv/backend.h"
#include "kernels/cpu.h"
#include "kernels/dequantize/dequantize.h"
#include "kernels/qk.h"

/* What the caller of qk_kernels_create asks for. */
struct qk_kernel_options {
    const char *tier; /* "auto" or the name of a tier (qk_tier_name) */
    const char *gemm; /* "auto" or the name of a backend (qk_gemm_name) */
    bool blas;        /* OpenBLAS is loaded, and may be chosen for "auto" */
    size_t threads;   /* how many threads may run at once, at least 1 */
};

struct qk_choice {
    const char *tier;
    uint32_t cpu_flags; /* features that kernels may use, QK_CPU_* */
    /* True if the caller names OpenBLAS, or if sgemm may be fast enough that loading and measuring
     * it is worth the time. */
    bool wants_blas;
    struct qk_conv_tuning conv;
    /* The backend whose products multiply matrices, and how many terms it computes in a
     * nanosecond. With OpenBLAS these are integers, too. */
    const struct qk_conv_backend *matmul;
    double matmul_terms_per_ns;
    struct qk_elementwise_tuning elementwise;
};

/* Makes the choice for a machine with this profile. Fails with QK_UNAVAILABLE if `options` names an
 * unknown tier or backend, or one that the machine lacks. */
enum qk_status qk_choose(const struct qk_profile *profile, const struct qk_kernel_options *options,
                         struct qk_choice *choice, struct qk_error *error);
