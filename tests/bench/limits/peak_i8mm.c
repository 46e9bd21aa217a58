#include "kernels/cpu.h"
#include "tests/bench/limits/peak.h"

#ifdef __ARM_FEATURE_MATMUL_INT8

#include "tests/bench/limits/peak_neon.h"

static int32x4_t add(int32x4_t sum, int8x16_t x, int8x16_t y)
{
    return vmmlaq_s32(sum, x, y);
}

static void run_i8mm(void)
{
    run_products(add);
}

const struct bench_peak bench_peaks_i8mm[] = {{"i8mm", QK_CPU_I8MM, OPERATIONS(32), run_i8mm}, {0}};

#else

const struct bench_peak bench_peaks_i8mm[] = {{0}};

#endif
