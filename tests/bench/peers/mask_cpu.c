/* Shows a process an older CPU than the machine has, so that ONNX Runtime, OpenBLAS and libqk all
 * choose what they would choose there. run.py compiles this file as a shared library and loads it
 * with LD_PRELOAD; the variable MASK_CPU names the CPU.
 *
 * Linux can make CPUID raise SIGSEGV (ARCH_SET_CPUID), where the CPU supports that. The handler
 * executes the instruction in its place and clears the bits of what the older CPU lacks. Threads
 * inherit the setting; a program that exec starts does not, but it loads this library again.
 *
 * Limits: the handler can hide features, not emulate them, so the machine must have all that the
 * older CPU has. Clock, ports and real cache sizes stay those of the machine. glibc reads CPUID
 * before this library is loaded, so its memcpy is the machine's. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __x86_64__

#include <asm/prctl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

struct registers {
    uint32_t a, b, c, d;
};

/* A CPU as CPUID shows it. Features are the most that leaf 7 may show. The lists leave out features
 * that no library here checks. */
struct cpu {
    const char *name;
    uint32_t signature; /* leaf 1, EAX: family, model, stepping */
    uint32_t leaf7_b, leaf7_c, leaf7_d;
    uint32_t l1_kib, l1_ways, l2_kib, l2_ways;
};

/* Leaf 7, EBX. */
enum {
    FSGSBASE = 1 << 0,
    BMI1 = 1 << 3,
    AVX2 = 1 << 5,
    BMI2 = 1 << 8,
    ERMS = 1 << 9,
    AVX512F = 1 << 16,
    AVX512DQ = 1 << 17,
    ADX = 1 << 19,
    CLFLUSHOPT = 1 << 23,
    AVX512CD = 1 << 28,
    AVX512BW = 1 << 30
};
#define AVX512VL ((uint32_t)1 << 31)
#define HASWELL_B (FSGSBASE | BMI1 | AVX2 | BMI2 | ERMS)
#define SKYLAKEX_B \
    (HASWELL_B | AVX512F | AVX512DQ | ADX | CLFLUSHOPT | AVX512CD | (uint32_t)AVX512BW | AVX512VL)
/* Leaf 7, ECX. */
enum { VNNI = 1 << 11, ICELAKE_C = 1 << 1 | 1 << 6 | 1 << 8 | 1 << 9 | VNNI | 1 << 12 | 1 << 14 };
/* Leaf 7, EDX: what speculation needs; no AMX, no FP16. */
enum { NO_AMX = 1 << 10 | 1 << 26 | 1 << 27 | 1 << 29 };

static const struct cpu cpus[] = {
    {"haswell", 0x306c3, HASWELL_B, 0, NO_AMX, 32, 8, 256, 8},
    {"skylakex", 0x50654, SKYLAKEX_B, 0, NO_AMX, 32, 8, 1024, 16},
    {"cascadelake", 0x50657, SKYLAKEX_B, VNNI, NO_AMX, 32, 8, 1024, 16},
    {"icelake", 0x606a6, SKYLAKEX_B | 1 << 21 | 1 << 29, ICELAKE_C, NO_AMX, 48, 12, 1280, 20},
};

static const struct cpu *shown;

/* Sets whether CPUID raises SIGSEGV in this thread from now on. Returns false if the kernel cannot
 * do that. */
static int set_fault(int fault)
{
    return syscall(SYS_arch_prctl, ARCH_SET_CPUID, !fault) == 0;
}

static struct registers read_cpuid(uint32_t leaf, uint32_t subleaf)
{
    struct registers r = {.a = leaf, .c = subleaf};
    __asm__ volatile("cpuid" : "+a"(r.a), "=b"(r.b), "+c"(r.c), "=d"(r.d));
    return r;
}

/* Sets the size of a cache of leaf 4, with lines of 64 bytes. */
static void set_cache(struct registers *r, uint32_t kib, uint32_t ways)
{
    r->b = (ways - 1) << 22 | 63;
    r->c = kib * 1024 / 64 / ways - 1;
}

static void mask(uint32_t leaf, uint32_t subleaf, struct registers *r)
{
    enum { XSAVE_SUPERVISOR = 1, XFEATURES_AVX = 7, XFEATURES_AVX512 = 0xe7 };
    switch (leaf) {
    case 1:
        r->a = shown->signature;
        return;
    case 4:
        if ((r->a & 31) == 1 && (r->a >> 5 & 7) == 1)
            set_cache(r, shown->l1_kib, shown->l1_ways);
        else if ((r->a >> 5 & 7) == 2)
            set_cache(r, shown->l2_kib, shown->l2_ways);
        return;
    case 7:
        if (subleaf > 0) {
            *r = (struct registers){0};
            return;
        }
        r->a = 0;
        r->b &= shown->leaf7_b;
        r->c &= shown->leaf7_c;
        r->d &= shown->leaf7_d;
        return;
    case 0xd:
        if (subleaf == 0)
            r->a &= shown->leaf7_b & AVX512F ? XFEATURES_AVX512 : XFEATURES_AVX;
        return;
    case 0x1d: /* AMX tiles and their multiplication */
    case 0x1e:
    case 0x24: /* AVX10 */
        *r = (struct registers){0};
        return;
    default:
        return;
    }
}

static void on_segv(int number, siginfo_t *info, void *context)
{
    greg_t *at = ((ucontext_t *)context)->uc_mcontext.gregs;
    const uint8_t *code = (const uint8_t *)at[REG_RIP];
    if (info->si_code != SI_KERNEL || code[0] != 0x0f || code[1] != 0xa2) {
        signal(number, SIG_DFL); /* a real fault of the program: it recurs and ends the process */
        return;
    }
    const uint32_t leaf = (uint32_t)at[REG_RAX], subleaf = (uint32_t)at[REG_RCX];
    set_fault(0);
    struct registers r = read_cpuid(leaf, subleaf);
    set_fault(1);
    mask(leaf, subleaf, &r);
    at[REG_RAX] = r.a;
    at[REG_RBX] = r.b;
    at[REG_RCX] = r.c;
    at[REG_RDX] = r.d;
    at[REG_RIP] += 2;
}

__attribute__((noreturn)) static void refuse(const char *text)
{
    fprintf(stderr, "mask_cpu: %s\n", text);
    _exit(1);
}

__attribute__((constructor)) static void start(void)
{
    const char *name = getenv("MASK_CPU");
    if (!name)
        return;
    for (size_t i = 0; i < sizeof(cpus) / sizeof(cpus[0]); i++)
        if (strcmp(cpus[i].name, name) == 0)
            shown = &cpus[i];
    if (!shown)
        refuse("MASK_CPU: expected haswell, skylakex, cascadelake or icelake");
    const struct registers r = read_cpuid(7, 0);
    if (shown->leaf7_b & ~r.b & (AVX2 | AVX512F | AVX512VL) || shown->leaf7_c & ~r.c & ICELAKE_C)
        refuse("this CPU lacks features of the CPU in MASK_CPU");
    struct sigaction action = {.sa_sigaction = on_segv, .sa_flags = SA_SIGINFO | SA_NODEFER};
    if (sigaction(SIGSEGV, &action, NULL) != 0 || !set_fault(1))
        refuse("this machine cannot hide CPUID: its CPU or kernel lacks CPUID faulting "
               "(cpuid_fault in /proc/cpuinfo)");
}

#endif
