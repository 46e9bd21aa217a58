/* What follows from the profile of a machine: which kernels compute what, how their work is cut,
 * and what it should cost. A pure function of a profile, so that any machine's choice can be tested
 * on any other. Private to kernels/. */
#ifndef KERNELS_CHOICE_H
#define KERNELS_CHOICE_H

#include "kernels/conv/backend.h"
#include "kernels/cpu.h"
#include "kernels/dequantize/dequantize.h"
#include "kernels/qk.h"

/* What somebody who starts the kernels wants. */
struct qk_wish {
    const char *tier; /* "auto" or a name of the tiers */
    const char *gemm; /* "auto" or a name of what multiplies */
    bool blas;        /* OpenBLAS is there, and may be chosen where nothing is named */
};

struct qk_choice {
    const char *tier;
    uint32_t cpu_flags; /* that the kernels may use */
    /* OpenBLAS is named; or it comes so near to the integers that it is worth loading, to be
     * measured. */
    bool wants_blas;
    struct qk_conv_tuning conv;
    struct qk_walk_tuning walk;
};

/* QK_UNAVAILABLE: the wish names something that there is not, or that the machine lacks. */
enum qk_status qk_choose(const struct qk_profile *profile, const struct qk_wish *wish,
                         struct qk_choice *choice, struct qk_error *error);

/* Operations in a nanosecond of that product on that machine, as measured, or else as expected; 0:
 * the machine lacks it. */
double qk_expect_ops_a_ns(const struct qk_profile *profile, enum qk_product product);

#endif
