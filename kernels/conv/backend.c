#include "kernels/conv/backend.h"

#include "kernels/conv/depthwise/depthwise.h"
#include "kernels/conv/winograd/winograd.h"
#include "kernels/cpu.h"

enum {
    SCALAR,
#ifdef __x86_64__
    AVX2,
    AVXVNNI,
    VNNI_NOVBMI,
    VNNI,
    AMX,
#elif defined(__aarch64__)
    NEON,
    DOTPROD,
    I8MM,
#endif
    COUNT
};

#ifdef __x86_64__
static const struct qk_conv_backend avx2_words = {
    .name = "avx2",
    .kernel = "conv_avx2",
    .matmul_kernel = "matmul_avx2",
    .cpu_flags = QK_CPU_HASWELL,
    .igemm = &qk_igemm_s16s16_6x16__avx2,
    .slabs = &qk_slab_kernels_s16x2__avx2,
    .depthwise = &qk_depthwise_s16s16_1x32__avx2,
    .winograd = qk_winograd__avx2,
    .product = QK_PRODUCT_AVX2_WORDS,
    .slab_cycles = 25,
};

static const struct qk_conv_backend avx2_small_m = {
    .name = "avx2",
    .kernel = "conv_avx2",
    .matmul_kernel = "matmul_avx2",
    .cpu_flags = QK_CPU_HASWELL,
    .igemm = &qk_igemm_u8s8_6x16__avx2,
    .words = &avx2_words,
    .few_terms = 32,
    .few_terms_of_taps = 144,
    .wide_share_most = 0.08,
    .slabs = &qk_slab_kernels_u8x4__avx2,
    .depthwise = &qk_depthwise_s16s16_1x32__avx2,
    .winograd = qk_winograd__avx2,
    .product = QK_PRODUCT_AVX2,
    .slab_cycles = 50,
};

static const struct qk_conv_backend vnni_small_m = {
    .name = "vnni",
    .kernel = "conv_vnni",
    .matmul_kernel = "matmul_vnni",
    .cpu_flags = QK_CPU_ICELAKE,
    .igemm = &qk_igemm_u8s8_6x64__avx512vnni,
    .slabs = &qk_slab_kernels_u8x4__avx512vbmi,
    .depthwise = &qk_depthwise_u8s8_1x64__avx512vbmi,
    .product = QK_PRODUCT_VNNI,
    .slab_cycles = 12,
};

static const struct qk_conv_backend vnni_novbmi_small_m = {
    .name = "vnni_novbmi",
    .kernel = "conv_vnni_novbmi",
    .matmul_kernel = "matmul_vnni_novbmi",
    .cpu_flags = QK_CPU_CASCADELAKE,
    .igemm = &qk_igemm_u8s8_6x64__avx512vnni,
    .slabs = &qk_slab_kernels_u8x4__avx512bw,
    .depthwise = &qk_depthwise_u8s8_1x64__avx512vnni,
    .product = QK_PRODUCT_VNNI,
    .slab_cycles = 12,
};
#endif

static const struct qk_conv_backend backends[COUNT] = {
    [SCALAR] =
        {
            .name = "scalar",
            .kernel = "conv_scalar",
            .matmul_kernel = "matmul_scalar",
            .igemm = &qk_igemm_u8s8_8x16__scalar,
            .slabs = &qk_slab_kernels_u8x4__scalar,
            .depthwise = &qk_depthwise_u8s8_1x1__scalar,
            .product = QK_PRODUCT_SCALAR,
            .slab_cycles = 300,
        },
#ifdef __x86_64__
    [AVX2] =
        {
            .name = "avx2",
            .kernel = "conv_avx2",
            .matmul_kernel = "matmul_avx2",
            .cpu_flags = QK_CPU_HASWELL,
            .igemm = &qk_igemm_u8s8_16x14__avx2,
            .matrices = &qk_igemm_u8s8_16x12__avx2,
            .small_m = &avx2_small_m,
            .small_m_speed = 0.9,
            .small_m_speed_of_large = 0.9,
            .small_m_speed_of_taps = 0.9,
            .tile_slabs = 3,
            .wide_share_most = 0.2,
            .slabs = &qk_slab_kernels_u8x4__avx2,
            .depthwise = &qk_depthwise_s16s16_1x32__avx2,
            .winograd = qk_winograd__avx2,
            .product = QK_PRODUCT_AVX2,
            .slab_cycles = 50,
        },
    [AVXVNNI] =
        {
            .name = "avxvnni",
            .kernel = "conv_avxvnni",
            .matmul_kernel = "matmul_avxvnni",
            .cpu_flags = QK_CPU_HASWELL | QK_CPU_AVXVNNI,
            .igemm = &qk_igemm_u8s8_6x16__avxvnni,
            .slabs = &qk_slab_kernels_u8x4__avx2,
            .depthwise = &qk_depthwise_u8s8_1x32__avxvnni,
            .winograd = qk_winograd__avxvnni,
            .product = QK_PRODUCT_AVXVNNI,
            .slab_cycles = 50,
        },
    [VNNI_NOVBMI] =
        {
            .name = "vnni_novbmi",
            .kernel = "conv_vnni_novbmi",
            .matmul_kernel = "matmul_vnni_novbmi",
            .cpu_flags = QK_CPU_CASCADELAKE,
            .igemm = &qk_igemm_u8s8_32x14__avx512vnni,
            .winograd = qk_winograd__avx512vnni,
            .small_m = &vnni_novbmi_small_m,
            .small_m_speed = 0.7,
            .small_m_speed_of_large = 0.7,
            .small_m_speed_of_taps = 0.7,
            .tile_slabs = 8,
            .slabs = &qk_slab_kernels_u8x4__avx512bw,
            .depthwise = &qk_depthwise_u8s8_1x64__avx512vnni,
            .product = QK_PRODUCT_VNNI,
            .slab_cycles = 12,
        },
    [VNNI] =
        {
            .name = "vnni",
            .kernel = "conv_vnni",
            .matmul_kernel = "matmul_vnni",
            .cpu_flags = QK_CPU_ICELAKE,
            .igemm = &qk_igemm_u8s8_32x14__avx512vnni,
            .winograd = qk_winograd__avx512vnni,
            .small_m = &vnni_small_m,
            .small_m_speed = 0.81,
            .small_m_speed_of_large = 0.9,
            .small_m_speed_of_taps = 0.75,
            .tile_slabs = 8,
            .slabs = &qk_slab_kernels_u8x4__avx512vbmi,
            .depthwise = &qk_depthwise_u8s8_1x64__avx512vbmi,
            .product = QK_PRODUCT_VNNI,
            .slab_cycles = 12,
        },
    [AMX] =
        {
            .name = "amx",
            .kernel = "conv_amx",
            .matmul_kernel = "matmul_amx",
            .cpu_flags = QK_CPU_ICELAKE | QK_CPU_AMX,
            .igemm = &qk_igemm_u8s8_32x32__amx,
            .small_tile = &backends[VNNI],
            .slabs = &qk_slab_kernels_u8x4__avx512vbmi,
            .depthwise = &qk_depthwise_u8s8_1x64__avx512vbmi,
            .product = QK_PRODUCT_AMX,
            .slab_cycles = 12,
        },
#elif defined(__aarch64__)
    /* slab_cycles are twice the cycles that the model in tests/bench/RESULTS.md has for 16 quads:
     * 8.2 on a Neoverse N1, 3.7 on a V1, and 4.2 on a V2. For AVX-512 they are twice the model's
     * cycles, too. */
    [NEON] =
        {
            .name = "neon",
            .kernel = "conv_neon",
            .matmul_kernel = "matmul_neon",
            .cpu_flags = QK_CPU_NEON,
            .igemm = &qk_igemm_s8s8_6x8__neon,
            .slabs = &qk_slab_kernels_u8x4__neon,
            .depthwise = &qk_depthwise_s8s8_1x32__neon,
            .product = QK_PRODUCT_NEON,
            .slab_cycles = 16,
        },
    [DOTPROD] =
        {
            .name = "dotprod",
            .kernel = "conv_dotprod",
            .matmul_kernel = "matmul_dotprod",
            .cpu_flags = QK_CPU_NEON | QK_CPU_DOTPROD,
            .igemm = &qk_igemm_s8s8_6x16__dotprod,
            .slabs = &qk_slab_kernels_u8x4__neon,
            .depthwise = &qk_depthwise_s8s8_1x32__dotprod,
            .product = QK_PRODUCT_DOTPROD,
            .slab_cycles = 16,
        },
    [I8MM] =
        {
            .name = "i8mm",
            .kernel = "conv_i8mm",
            .matmul_kernel = "matmul_i8mm",
            .cpu_flags = QK_CPU_NEON | QK_CPU_DOTPROD | QK_CPU_I8MM,
            .igemm = &qk_igemm_s8s8_12x8__i8mm,
            .slabs = &qk_slab_kernels_u8x4__neon,
            .depthwise = &qk_depthwise_s8s8_1x32__dotprod,
            .product = QK_PRODUCT_I8MM,
            .slab_cycles = 8,
        },
#endif
};

const struct qk_conv_backend *qk_conv_backends(size_t *count)
{
    *count = COUNT;
    return backends;
}
