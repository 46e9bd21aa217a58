#include "kernels/cpu.h"

#ifdef __x86_64__

#include <cpuid.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

/* XCR0: which registers the operating system saves. Only to be read where CPUID says OSXSAVE. */
static uint64_t read_xcr0(void)
{
    uint32_t low;
    uint32_t high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* Linux enlarges what it saves of a thread only for a process that asks for it. */
static bool ask_for_tiles(void)
{
#ifdef __linux__
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return false;
#endif
}

static bool has(uint64_t word, uint64_t all)
{
    return (word & all) == all;
}

static bool has_avxvnni(void)
{
    uint32_t a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && has(a, 1 << 4);
}

uint32_t qk_cpu_flags(void)
{
    const uint64_t xcr0_ymm = 1 << 1 | 1 << 2;                     /* XMM, YMM */
    const uint64_t xcr0_zmm = xcr0_ymm | 1 << 5 | 1 << 6 | 1 << 7; /* k, both halves of ZMM */
    const uint64_t xcr0_tiles = 1 << 17 | 1 << 18;                 /* configuration, data */
    const uint32_t haswell_ebx = bit_BMI | bit_AVX2 | bit_BMI2;
    const uint32_t skylakex_ebx =
        bit_AVX512F | bit_AVX512DQ | bit_AVX512CD | bit_AVX512BW | bit_AVX512VL;
    const uint32_t icelake_ebx = skylakex_ebx | bit_AVX512IFMA;
    const uint32_t icelake_ecx =
        bit_AVX512VBMI | bit_AVX512VBMI2 | bit_AVX512VNNI | bit_AVX512BITALG | bit_AVX512VPOPCNTDQ;
    const uint32_t amx_edx = 1 << 24 | 1 << 25; /* tiles, int8 */
    uint32_t flags = 0;
    uint32_t a, b, c, d;

    if (!__get_cpuid(0, &a, &b, &c, &d))
        return 0;
    if (b == signature_AMD_ebx && c == signature_AMD_ecx && d == signature_AMD_edx)
        flags |= QK_CPU_AMD;

    if (!__get_cpuid(1, &a, &b, &c, &d))
        return flags;
    if (has(c, bit_SSE4_2))
        flags |= QK_CPU_SSE42;
    const uint64_t xcr0 = has(c, bit_OSXSAVE) ? read_xcr0() : 0;
    if (!has(c, bit_AVX) || !has(xcr0, xcr0_ymm))
        return flags;
    flags |= QK_CPU_AVX;

    const bool fma = has(c, bit_FMA | bit_F16C);
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !fma || !has(b, haswell_ebx))
        return flags;
    flags |= QK_CPU_AVX2;
    if (has_avxvnni())
        flags |= QK_CPU_AVXVNNI;
    if (!has(b, skylakex_ebx) || !has(xcr0, xcr0_zmm))
        return flags;
    flags |= QK_CPU_AVX512;
    if (!has(b, icelake_ebx) || !has(c, icelake_ecx))
        return flags;
    flags |= QK_CPU_AVX512_ICELAKE;
    if (has(d, amx_edx) && has(xcr0, xcr0_tiles) && ask_for_tiles())
        flags |= QK_CPU_AMX;
    return flags;
}

#else

uint32_t qk_cpu_flags(void)
{
    return 0;
}

#endif
