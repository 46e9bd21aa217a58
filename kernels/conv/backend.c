#include "kernels/conv/backend.h"

#include "kernels/conv/depthwise.h"
#include "kernels/cpu.h"

#ifdef __x86_64__

enum { AVX2, AVXVNNI, VNNI, AMX, COUNT };

static const struct qk_conv_backend backends[COUNT] = {
    [AVX2] =
        {
            .name = "avx2",
            .kernel = "conv_avx2",
            .cpu_flags = QK_CPU_SSE42 | QK_CPU_AVX | QK_CPU_AVX2,
            .gemm = &qk_igemm_avx2,
            .vector = &qk_conv_vector_avx2,
            .depthwise = &qk_depthwise_avx2,
            .cycles = 1.6,
            .slab_cycles = 25,
        },
    [AVXVNNI] =
        {
            .name = "avxvnni",
            .kernel = "conv_avxvnni",
            .cpu_flags = QK_CPU_SSE42 | QK_CPU_AVX | QK_CPU_AVX2 | QK_CPU_AVXVNNI,
            .gemm = &qk_igemm_avxvnni,
            .vector = &qk_conv_vector_avx2_bytes,
            .depthwise = &qk_depthwise_avxvnni,
            .cycles = 1,
            .slab_cycles = 50,
        },
    [VNNI] =
        {
            .name = "vnni",
            .kernel = "conv_vnni",
            .cpu_flags = QK_CPU_AVX512_ICELAKE,
            .gemm = &qk_igemm_vnni,
            .vector = &qk_conv_vector_avx512,
            .depthwise = &qk_depthwise_vnni,
            .cycles = 0.5,
            .slab_cycles = 12,
        },
    [AMX] =
        {
            .name = "amx",
            .kernel = "conv_amx",
            .cpu_flags = QK_CPU_AMX,
            .gemm = &qk_igemm_amx,
            .narrow = &backends[VNNI],
            .vector = &qk_conv_vector_avx512,
            .depthwise = &qk_depthwise_vnni,
            .cycles = 1.5,
            .slab_cycles = 12,
        },
};

const struct qk_conv_backend *qk_conv_backends(size_t *count)
{
    *count = COUNT;
    return backends;
}

#else

const struct qk_conv_backend *qk_conv_backends(size_t *count)
{
    *count = 0;
    return NULL;
}

#endif
