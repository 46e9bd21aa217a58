#include "kernels/dispatch.h"

#include <stdlib.h>

#include "kernels/conv/sgemm/im2col_kernels.h"
#include "kernels/matmul/kernels.h"
#include "kernels/measure.h"

static void fill_table(struct qk_kernels *kernels)
{
    qk_dequantize_init_scalar(&kernels->dequantize);
    qk_quantize_init_scalar(&kernels->quantize);
    kernels->argmax = &qk_argmax_kernels__scalar;
    kernels->binary = &qk_binary_kernels__scalar;
    kernels->floats = &qk_float_kernels__scalar;
    kernels->cast = &qk_cast_kernels__scalar;
    qk_pool_init_scalar(&kernels->pool);
    kernels->lookup = &qk_lookup_kernel__scalar;
    qk_move_init_scalar(&kernels->move);
    kernels->im2col = &qk_im2col_kernels__scalar;
    kernels->matmul = &qk_matmul_kernels__scalar;
#ifdef __x86_64__
    if (kernels->choice.cpu_flags & QK_CPU_AVX2) {
        qk_dequantize_init_avx2(&kernels->dequantize);
        qk_quantize_init_avx2(&kernels->quantize);
        kernels->argmax = &qk_argmax_kernels__avx2;
        kernels->binary = &qk_binary_kernels__avx2;
        kernels->floats = &qk_float_kernels__avx2;
        kernels->cast = &qk_cast_kernels__avx2;
        qk_pool_init_avx2(&kernels->pool);
        kernels->lookup = kernels->profile.cpu_flags & QK_CPU_AMD ? &qk_lookup_kernel__avx2_blends
                                                                  : &qk_lookup_kernel__avx2;
        qk_move_init_avx2(&kernels->move);
        kernels->im2col = &qk_im2col_kernels__avx2;
        kernels->matmul = &qk_matmul_kernels__avx2;
    }
    if (kernels->choice.cpu_flags & QK_CPU_AVX512) {
        qk_dequantize_init_avx512bw(&kernels->dequantize);
        qk_quantize_init_avx512(&kernels->quantize);
        kernels->argmax = &qk_argmax_kernels__avx512bw;
        kernels->binary = &qk_binary_kernels__avx512bw;
        kernels->floats = &qk_float_kernels__avx512bw;
        kernels->cast = &qk_cast_kernels__avx512bw;
        qk_pool_init_avx512bw(&kernels->pool);
        kernels->lookup = &qk_lookup_kernel__avx512bw;
        qk_move_init_avx512(&kernels->move);
        kernels->im2col = &qk_im2col_kernels__avx512bw;
        kernels->matmul = &qk_matmul_kernels__avx512bw;
    }
    if (kernels->choice.cpu_flags & QK_CPU_VBMI) {
        qk_dequantize_init_avx512(&kernels->dequantize);
        kernels->lookup = &qk_lookup_kernel__avx512vbmi;
    }
#elif defined(__aarch64__)
    if (kernels->choice.cpu_flags & QK_CPU_NEON) {
        qk_dequantize_init_neon(&kernels->dequantize);
        qk_quantize_init_neon(&kernels->quantize);
        kernels->argmax = &qk_argmax_kernels__neon;
        kernels->binary = &qk_binary_kernels__neon;
        kernels->floats = &qk_float_kernels__neon;
        kernels->cast = &qk_cast_kernels__neon;
        kernels->matmul = &qk_matmul_kernels__neon;
        qk_pool_init_neon(&kernels->pool);
        kernels->lookup = &qk_lookup_kernel__neon;
        qk_move_init_neon(&kernels->move);
    }
    if (kernels->choice.cpu_flags & QK_CPU_FP16)
        qk_dequantize_init_fp16(&kernels->dequantize);
    if (kernels->choice.cpu_flags & QK_CPU_SVE)
        qk_dequantize_init_sve(&kernels->dequantize);
#endif
}

/* Fills the profile and the choice, and loads OpenBLAS if it may be chosen. A missing OpenBLAS, or
 * too little address space for it, is an error only if the caller named it. */
static enum qk_status choose(struct qk_kernels *kernels, struct qk_kernel_options *options,
                             bool measure, size_t threads, struct qk_error *error)
{
    struct qk_profile *profile = &kernels->profile;
    struct qk_choice *choice = &kernels->choice;
    enum qk_status status = qk_profile_read(profile, error);
    if (status == QK_OK)
        status = qk_choose(profile, options, choice, error);
    if (status == QK_OK && choice->wants_blas) {
        /* OpenBLAS chooses its own kernels, so it sees all features of the CPU. */
        const bool named = !choice->conv.small_tile;
        struct qk_error missing;
        status = qk_openblas_init(&kernels->openblas, profile->cpu_flags, threads,
                                  named ? error : &missing);
        options->blas = status == QK_OK;
        status = named ? status : QK_OK;
    }
    if (status != QK_OK)
        return status;
    if (measure)
        qk_profile_measure(profile, options->blas ? &kernels->openblas : NULL);
    status = qk_choose(profile, options, choice, error);
    if (choice->conv.main)
        qk_openblas_deinit(&kernels->openblas);
    return status;
}

enum qk_status qk_kernels_create(const char *tier, const char *gemm, bool measure, size_t threads,
                                 struct qk_kernels **kernels, struct qk_error *error)
{
    struct qk_kernel_options options = {.tier = tier, .gemm = gemm, .threads = threads};
    struct qk_kernels *made = calloc(1, sizeof(*made));
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for the kernel table");
    const enum qk_status status = choose(made, &options, measure, threads, error);
    if (status != QK_OK) {
        qk_kernels_destroy(made);
        return status;
    }
    fill_table(made);
    *kernels = made;
    return QK_OK;
}

void qk_kernels_destroy(struct qk_kernels *kernels)
{
    if (kernels)
        qk_openblas_deinit(&kernels->openblas);
    free(kernels);
}

const char *qk_kernels_tier(const struct qk_kernels *kernels)
{
    return kernels->choice.tier;
}

const char *qk_kernels_mask(const struct qk_kernels *kernels)
{
    return kernels->profile.mask ? kernels->profile.mask->name : "none";
}

const char *qk_kernels_blas_core(const struct qk_kernels *kernels)
{
    return kernels->openblas.library ? kernels->openblas.core : "none";
}

const char *qk_kernels_gemm(const struct qk_kernels *kernels)
{
    return kernels->choice.conv.main ? kernels->choice.conv.main->name : "blas";
}
