#include "kernels/dispatch.h"

#include <stdlib.h>

#include "kernels/conv/sgemm/im2col_kernels.h"

static void fill_table(struct qk_kernels *kernels)
{
    qk_dequantize_init_scalar(&kernels->dequantize);
    qk_quantize_init_scalar(&kernels->quantize);
    kernels->im2col = &qk_im2col_kernels__scalar;
#ifdef __x86_64__
    if (kernels->choice.cpu_flags & QK_CPU_AVX2) {
        qk_dequantize_init_avx2(&kernels->dequantize);
        qk_quantize_init_avx2(&kernels->quantize);
        kernels->im2col = &qk_im2col_kernels__avx2;
    }
    if (kernels->choice.cpu_flags & QK_CPU_AVX512) {
        qk_quantize_init_avx512(&kernels->quantize);
        kernels->im2col = &qk_im2col_kernels__avx512bw;
    }
    if (kernels->choice.cpu_flags & QK_CPU_VBMI)
        qk_dequantize_init_avx512(&kernels->dequantize);
#endif
}

enum qk_status qk_kernels_create(const char *tier, const char *gemm, struct qk_kernels **kernels,
                                 struct qk_error *error)
{
    struct qk_profile profile;
    struct qk_choice choice;
    const struct qk_wish wish = {.tier = tier, .gemm = gemm, .blas = true};
    qk_profile_read(&profile);
    enum qk_status status = qk_choose(&profile, &wish, &choice, error);
    if (status != QK_OK)
        return status;

    struct qk_kernels *made = calloc(1, sizeof(*made));
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for the kernel table");
    made->profile = profile;
    made->choice = choice;
    fill_table(made);
    made->dequantize.tuning = choice.dequantize;
    /* OpenBLAS has tiers of its own: it gets the whole CPU. */
    status = qk_gemm_init(&made->gemm, profile.cpu_flags, error);
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
    return kernels->choice.tier;
}

const char *qk_kernels_blas_core(const struct qk_kernels *kernels)
{
    return kernels->gemm.core;
}

const char *qk_kernels_gemm(const struct qk_kernels *kernels)
{
    return kernels->choice.conv.dense ? kernels->choice.conv.dense->name : "blas";
}
