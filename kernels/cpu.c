#include "kernels/cpu.h"

#include <string.h>

#ifdef __x86_64__

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- Features ---------------------------------------------------------------------------- */

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
    const uint32_t vbmi_ecx = bit_AVX512VBMI | bit_AVX512VBMI2;
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
    if (!has(c, bit_AVX512VNNI))
        return flags;
    flags |= QK_CPU_VNNI;
    if (!has(c, vbmi_ecx))
        return flags;
    flags |= QK_CPU_VBMI;
    if (has(d, amx_edx) && has(xcr0, xcr0_tiles) && ask_for_tiles())
        flags |= QK_CPU_AMX;
    return flags;
}

/* ---- Name and caches --------------------------------------------------------------------- */

static void read_name(struct qk_profile *profile)
{
    uint32_t words[12];
    for (uint32_t i = 0; i < 3; i++)
        if (!__get_cpuid(0x80000002 + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2],
                         &words[4 * i + 3]))
            return;
    memcpy(profile->name, words, sizeof(words));
}

static void read_family(struct qk_profile *profile)
{
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return;
    profile->family = a >> 8 & 15;
    profile->model = a >> 4 & 15;
    if (profile->family == 6 || profile->family == 15)
        profile->model |= (a >> 16 & 15) << 4;
    if (profile->family == 15)
        profile->family += a >> 20 & 255;
}

/* The data caches that a leaf lists: Intel's 4, or AMD's of the same form. False: it lists none. */
static bool read_caches(struct qk_profile *profile, uint32_t leaf)
{
    enum { NONE, DATA, INSTRUCTIONS, LEVELS = 4 };
    size_t *const sizes[LEVELS] = {NULL, &profile->l1_bytes, &profile->l2_bytes,
                                   &profile->l3_bytes};
    bool any = false;
    for (uint32_t i = 0; i < 16; i++) { /* the end may be missing, too */
        uint32_t a, b, c, d;
        if (!__get_cpuid_count(leaf, i, &a, &b, &c, &d) || (a & 31) == NONE)
            break;
        const uint32_t level = a >> 5 & 7;
        any = true;
        if ((a & 31) != INSTRUCTIONS && level > 0 && level < LEVELS)
            *sizes[level] = (size_t)((b >> 22) + 1) * ((b >> 12 & 1023) + 1) * ((b & 4095) + 1) *
                            ((size_t)c + 1);
    }
    return any;
}

static void read_cpuid(struct qk_profile *profile)
{
    uint32_t a, b, c, d;
    const uint32_t topology_ecx = 1 << 22; /* AMD's leaf of caches is there */
    read_name(profile);
    read_family(profile);
    if (!read_caches(profile, 4) && __get_cpuid(0x80000001, &a, &b, &c, &d) && has(c, topology_ecx))
        read_caches(profile, 0x8000001d);
}

#else

uint32_t qk_cpu_flags(void)
{
    return 0;
}

static void read_cpuid(struct qk_profile *profile)
{
    (void)profile;
}

#endif

/* ---- What is not known ------------------------------------------------------------------- */

static size_t sane(size_t bytes, size_t least, size_t most, size_t usual)
{
    return bytes >= least && bytes <= most ? bytes : usual;
}

void qk_profile_fill(struct qk_profile *profile)
{
    const size_t kib = 1024;
    const size_t mib = 1024 * kib;
    const bool sunny_cove = profile->cpu_flags & QK_CPU_VBMI && !(profile->cpu_flags & QK_CPU_AMD);
    profile->l1_bytes = sane(profile->l1_bytes, 8 * kib, 1 * mib, (sunny_cove ? 48 : 32) * kib);
    profile->l2_bytes = sane(profile->l2_bytes, 128 * kib, 64 * mib,
                             profile->cpu_flags & QK_CPU_AVX512 ? 1 * mib : 256 * kib);
    profile->l3_bytes = sane(profile->l3_bytes, profile->l2_bytes, SIZE_MAX, 8 * mib);
    if (profile->l3_bytes < profile->l2_bytes) /* as usual as they are, or there is none */
        profile->l3_bytes = profile->l2_bytes;
    if (!(profile->cycles_a_ns > 0))
        profile->cycles_a_ns = 3;
    if (!(profile->copy_bytes_a_ns > 0))
        profile->copy_bytes_a_ns = 10;
}

void qk_profile_read(struct qk_profile *profile)
{
    *profile = (struct qk_profile){.cpu_flags = qk_cpu_flags()};
    read_cpuid(profile);
    qk_profile_fill(profile);
}
