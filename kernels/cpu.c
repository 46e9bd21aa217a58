#include "kernels/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __x86_64__

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- Features ---------------------------------------------------------------------------- */

/* Returns XCR0, which says which registers the operating system saves. Only valid if CPUID reports
 * OSXSAVE. */
static uint64_t read_xcr0(void)
{
    uint32_t low;
    uint32_t high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* Asks Linux to save AMX tiles. Linux saves them only for processes that ask, because they enlarge
 * the state of every thread. */
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

static uint32_t read_flags(void)
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

/* Reads the data caches that a CPUID leaf lists: Intel's leaf 4, or AMD's leaf of the same form.
 * Returns false if it lists none. */
static bool read_caches(struct qk_profile *profile, uint32_t leaf)
{
    enum { NONE, DATA, INSTRUCTIONS, LEVELS = 4 };
    size_t *const sizes[LEVELS] = {NULL, &profile->l1_bytes, &profile->l2_bytes,
                                   &profile->l3_bytes};
    bool any = false;
    for (uint32_t i = 0; i < 16; i++) { /* a bound, because the end mark may be missing */
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

static void read_identity(struct qk_profile *profile)
{
    uint32_t a, b, c, d;
    const uint32_t topology_ecx = 1 << 22; /* AMD's leaf of caches exists */
    read_name(profile);
    read_family(profile);
    if (!read_caches(profile, 4) && __get_cpuid(0x80000001, &a, &b, &c, &d) && has(c, topology_ecx))
        read_caches(profile, 0x8000001d);
}

#elif defined(__aarch64__)

#include <asm/hwcap.h>
#include <sys/auxv.h>

/* ---- Features ---------------------------------------------------------------------------- */

/* Reads the features. If the cores differ, Linux reports what all of them have. */
static uint32_t read_flags(void)
{
    const unsigned long caps = getauxval(AT_HWCAP);
    const unsigned long caps2 = getauxval(AT_HWCAP2);
    uint32_t flags = QK_CPU_NEON; /* programs of this ABI have it */
    if (caps & HWCAP_ASIMDHP)
        flags |= QK_CPU_FP16;
    if (caps2 & HWCAP2_BF16)
        flags |= QK_CPU_BF16;
    if (caps & HWCAP_ASIMDDP)
        flags |= QK_CPU_DOTPROD;
    if (caps & HWCAP_ASIMDDP && caps2 & HWCAP2_I8MM)
        flags |= QK_CPU_I8MM;
    if (caps & HWCAP_SVE && caps & HWCAP_ASIMDHP && caps2 & HWCAP2_SVEBF16)
        flags |= QK_CPU_SVE;
    return flags;
}

/* ---- Name and caches --------------------------------------------------------------------- */

/* Returns MIDR_EL1 of the current core. Linux emulates the read. Returns 0 if it does not. */
static uint64_t read_midr(void)
{
    uint64_t midr = 0;
    if (getauxval(AT_HWCAP) & HWCAP_CPUID)
        __asm__("mrs %0, midr_el1" : "=r"(midr));
    return midr;
}

/* Reads a file of a cache in /sys. Returns false if there is no such cache, or no /sys. */
static bool read_cache(unsigned index, const char *file, const char *format, void *value)
{
    char path[80];
    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%u/%s", index, file);
    FILE *opened = fopen(path, "re");
    if (!opened)
        return false;
    const bool read = fscanf(opened, format, value) == 1;
    fclose(opened);
    return read;
}

/* Reads the caches from /sys, because programs may not read the cache registers. */
static void read_caches(struct qk_profile *profile)
{
    size_t *const sizes[] = {&profile->l1_bytes, &profile->l2_bytes, &profile->l3_bytes};
    unsigned level;
    size_t kib;
    char type;
    for (unsigned i = 0; i < 8 && read_cache(i, "level", "%u", &level); i++)
        if (level >= 1 && level <= 3 && read_cache(i, "type", "%c", &type) && type != 'I' &&
            read_cache(i, "size", "%zuK", &kib) && kib < SIZE_MAX / 1024)
            *sizes[level - 1] = kib * 1024;
}

static void read_identity(struct qk_profile *profile)
{
    const uint64_t midr = read_midr();
    profile->family = midr >> 24 & 255;
    profile->model = midr >> 4 & 4095;
    read_caches(profile);
}

#else

static uint32_t read_flags(void)
{
    return 0;
}

static void read_identity(struct qk_profile *profile)
{
    (void)profile;
}

#endif

/* ---- What is not known ------------------------------------------------------------------- */

#define ANY_PART UINT32_MAX

/* The ARM cores by name. A core reports only numbers, and virtual machines often report no caches,
 * so the table has the smallest caches that machines with this core have. */
static const struct part {
    uint32_t implementer, part;
    const char *name;
    size_t l1_kib, l2_kib;
} parts[] = {
    {0x41, 0xd03, "Cortex-A53", 32, 256},        {0x41, 0xd05, "Cortex-A55", 32, 128},
    {0x41, 0xd07, "Cortex-A57", 32, 512},        {0x41, 0xd08, "Cortex-A72", 32, 512},
    {0x41, 0xd0b, "Cortex-A76", 64, 256},        {0x41, 0xd0c, "Neoverse N1", 64, 512},
    {0x41, 0xd40, "Neoverse V1", 64, 1024},      {0x41, 0xd49, "Neoverse N2", 64, 512},
    {0x41, 0xd4f, "Neoverse V2", 64, 1024},      {0x46, 0x001, "A64FX", 64, 8192},
    {0x61, ANY_PART, "Apple silicon", 64, 4096}, {0xc0, 0xac3, "AmpereOne", 64, 2048},
};

static void fill_arm(struct qk_profile *profile)
{
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (parts[i].implementer != profile->family ||
            (parts[i].part != profile->model && parts[i].part != ANY_PART))
            continue;
        snprintf(profile->name, sizeof(profile->name), "%s", parts[i].name);
        profile->l1_bytes = profile->l1_bytes ? profile->l1_bytes : parts[i].l1_kib * 1024;
        profile->l2_bytes = profile->l2_bytes ? profile->l2_bytes : parts[i].l2_kib * 1024;
        return;
    }
}

static size_t sane(size_t bytes, size_t least, size_t most, size_t usual)
{
    return bytes >= least && bytes <= most ? bytes : usual;
}

void qk_profile_fill(struct qk_profile *profile)
{
    const size_t kib = 1024;
    const size_t mib = 1024 * kib;
    const bool sunny_cove = profile->cpu_flags & QK_CPU_VBMI && !(profile->cpu_flags & QK_CPU_AMD);
    if (profile->cpu_flags & QK_CPU_NEON)
        fill_arm(profile);
    profile->l1_bytes = sane(profile->l1_bytes, 8 * kib, 1 * mib, (sunny_cove ? 48 : 32) * kib);
    profile->l2_bytes = sane(profile->l2_bytes, 128 * kib, 64 * mib,
                             profile->cpu_flags & QK_CPU_AVX512 ? 1 * mib : 256 * kib);
    profile->l3_bytes = sane(profile->l3_bytes, profile->l2_bytes, SIZE_MAX, 8 * mib);
    if (profile->l3_bytes < profile->l2_bytes) /* the typical size, or there is no third cache */
        profile->l3_bytes = profile->l2_bytes;
    if (!(profile->cycles_per_ns > 0))
        profile->cycles_per_ns = 3;
    if (!(profile->copy_bytes_per_ns > 0))
        profile->copy_bytes_per_ns = 10;
}

/* ---- Masks ------------------------------------------------------------------------------- */

static const struct qk_machine machines[] = {
    {"haswell", QK_CPU_HASWELL, 6, 63},
    {"zen2", QK_CPU_HASWELL | QK_CPU_AMD, 0x17, 49},
    {"skylakex", QK_CPU_SKYLAKEX, 6, 85},
    {"cascadelake", QK_CPU_CASCADELAKE, 6, 85},
    {"icelake", QK_CPU_ICELAKE, 6, 106},
    {"zen4", QK_CPU_ICELAKE | QK_CPU_AMD, 0x19, 17},
    {"sapphirerapids", QK_CPU_SAPPHIRERAPIDS, 6, 143},
};

const struct qk_machine *qk_machines(size_t *count)
{
#ifdef __x86_64__
    *count = sizeof(machines) / sizeof(machines[0]);
#else
    *count = 0;
#endif
    return machines;
}

uint32_t qk_machine_lacks(const struct qk_machine *machine)
{
    return machine->cpu_flags & ~read_flags() & ~(uint32_t)QK_CPU_AMD;
}

/* Fails with the names of the machines that this CPU can play, and what it lacks for the one that
 * QK_CPU names, if that is a machine. */
static enum qk_status refuse_mask(const char *name, uint32_t lacks, struct qk_error *error)
{
    char names[128] = "";
    char features[QK_CPU_FLAGS_BYTES];
    size_t count;
    size_t used = 0;
    const struct qk_machine *all = qk_machines(&count);
    for (size_t i = 0; i < count; i++)
        if (qk_machine_lacks(&all[i]) == 0 && used < sizeof(names))
            used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
                                     used > 0 ? ", " : "one of ", all[i].name);
    qk_cpu_print_flags(lacks, features, sizeof(features));
    return qk_fail(error, QK_UNAVAILABLE,
                   QK_CPU_VARIABLE ": expected %s, which this CPU can play, got \"%.40s\"%s%s",
                   used > 0 ? names : "nothing", name, lacks ? ": this CPU lacks " : "", features);
}

/* QK_CPU is the only setting that kernels/ reads from the environment, beside OpenBLAS's own. A
 * parameter would have to pass through every caller, test and tool. A caller that forgot it would
 * run unmasked and not notice. */
enum qk_status qk_cpu_mask(const struct qk_machine **mask, struct qk_error *error)
{
    const char *name = getenv(QK_CPU_VARIABLE);
    size_t count;
    const struct qk_machine *all = qk_machines(&count);
    *mask = NULL;
    if (!name || !*name)
        return QK_OK;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(all[i].name, name) != 0)
            continue;
        const uint32_t lacks = qk_machine_lacks(&all[i]);
        *mask = lacks ? NULL : &all[i];
        return lacks ? refuse_mask(name, lacks, error) : QK_OK;
    }
    return refuse_mask(name, 0, error);
}

uint32_t qk_cpu_flags(void)
{
    const struct qk_machine *mask;
    struct qk_error error;
    if (qk_cpu_mask(&mask, &error) != QK_OK)
        return 0; /* a caller that ignores the error gets no features instead of all of them */
    return mask ? mask->cpu_flags : read_flags();
}

void qk_cpu_print_flags(uint32_t cpu_flags, char *text, size_t bytes)
{
    static const struct {
        uint32_t flag;
        const char *name;
    } names[] = {
        {QK_CPU_SSE42, "sse4.2"},     {QK_CPU_AVX, "avx"},       {QK_CPU_AVX2, "avx2"},
        {QK_CPU_AVXVNNI, "avx_vnni"}, {QK_CPU_AVX512, "avx512"}, {QK_CPU_VNNI, "avx512_vnni"},
        {QK_CPU_VBMI, "avx512_vbmi"}, {QK_CPU_AMX, "amx_int8"},  {QK_CPU_NEON, "neon"},
        {QK_CPU_DOTPROD, "dotprod"},  {QK_CPU_I8MM, "i8mm"},     {QK_CPU_FP16, "fp16"},
        {QK_CPU_BF16, "bf16"},        {QK_CPU_SVE, "sve"},
    };
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && used < bytes; i++)
        if (cpu_flags & names[i].flag)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used > 0 ? " " : "",
                                     names[i].name);
}

enum qk_status qk_profile_read(struct qk_profile *profile, struct qk_error *error)
{
    *profile = (struct qk_profile){0};
    const enum qk_status status = qk_cpu_mask(&profile->mask, error);
    if (status != QK_OK)
        return status;
    read_identity(profile);
    profile->cpu_flags = qk_cpu_flags();
    if (profile->mask) {
        profile->family = profile->mask->family;
        profile->model = profile->mask->model;
    }
    qk_profile_fill(profile);
    return QK_OK;
}
