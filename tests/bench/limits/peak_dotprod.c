#include "kernels/cpu.h"
#include "tests/bench/limits/peak.h"

#ifdef __ARM_FEATURE_DOTPROD

#include "tests/bench/limits/peak_neon.h"

static int32x4_t add(int32x4_t sum, int8x16_t x, int8x16_t y)
{
    return vdotq_s32(sum, x, y);
}

static void run_dotprod(void)
{
    run_products(add);
}

const struct bench_peak bench_peaks_dotprod[] = {
    {"dotprod", QK_CPU_DOTPROD, OPERATIONS(16), run_dotprod}, {0}};

#else

const struct bench_peak bench_peaks_dotprod[] = {{0}};

#endif
