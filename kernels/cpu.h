/* What this CPU and its operating system can run (CPUID and XCR0). */
#ifndef KERNELS_CPU_H
#define KERNELS_CPU_H

#include <stdint.h>

enum qk_cpu_flag {
    QK_CPU_SSE42 = 1 << 0,
    QK_CPU_AVX = 1 << 1,            /* and the system saves YMM */
    QK_CPU_AVX2 = 1 << 2,           /* with FMA, F16C and BMI: Haswell's set */
    QK_CPU_AVX512 = 1 << 3,         /* F CD BW DQ VL, and the system saves ZMM: Skylake-X's set */
    QK_CPU_AVX512_ICELAKE = 1 << 4, /* and IFMA VBMI VBMI2 VNNI BITALG VPOPCNTDQ: Ice Lake's */
    QK_CPU_AMD = 1 << 5,            /* vendor AuthenticAMD: OpenBLAS has cores of its own for it */
    QK_CPU_AMX = 1 << 6,    /* AVX512_ICELAKE, and int8 tiles, which the system has let us use */
    QK_CPU_AVXVNNI = 1 << 7 /* AVX2, and its form of VNNI's instructions */
};

/* The QK_CPU_* of this machine; 0 where it is not an x86-64. */
uint32_t qk_cpu_flags(void);

#endif
