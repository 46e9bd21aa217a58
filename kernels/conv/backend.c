#include "kernels/conv/backend.h"

#include "kernels/cpu.h"

#ifdef __x86_64__

static const struct qk_conv_backend backends[] = {
    {"vnni", "conv_vnni", QK_CPU_VNNI, &qk_igemm_vnni, &qk_conv_vector_avx512, 0.5},
    {"amx", "conv_amx", QK_CPU_AMX, &qk_igemm_amx, &qk_conv_vector_avx512, 1.5},
};

const struct qk_conv_backend *qk_conv_backends(size_t *count)
{
    *count = sizeof(backends) / sizeof(backends[0]);
    return backends;
}

#else

const struct qk_conv_backend *qk_conv_backends(size_t *count)
{
    *count = 0;
    return NULL;
}

#endif
