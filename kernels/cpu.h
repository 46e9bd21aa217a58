/* The profile of the machine: which instructions its CPU and operating system support, how large
 * its caches are, and how fast it computes.
 *
 * The profile is read once, at start. Features and caches come from CPUID or, on ARM, from Linux.
 * Speeds come from a short measurement (kernels/measure.h). From the profile, kernels/choice.h
 * chooses which kernels run and how their work is cut. No other file has a number that belongs to
 * one machine. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/qk.h"

/* CPU features. Features that kernels only use together share a flag. A kernel requires the flags
 * of the instructions that it uses, and no more. Gathers have no flag, although they are slow on
 * many CPUs: a kernel gathers only what it would otherwise load element by element. */
enum qk_cpu_flag {
    QK_CPU_SSE42 = 1 << 0,
    QK_CPU_AVX = 1 << 1,    /* and the system saves YMM */
    QK_CPU_AVX2 = 1 << 2,   /* with FMA, F16C and BMI: Haswell's set */
    QK_CPU_AVX512 = 1 << 3, /* F CD BW DQ VL, and the system saves ZMM: Skylake-X's set */
    QK_CPU_VNNI = 1 << 4,   /* AVX512, and the ZMM form of VNNI: Cascade Lake's set */
    QK_CPU_VBMI = 1 << 5,   /* VNNI, and VBMI and VBMI2, which permute bytes: Ice Lake's set */
    QK_CPU_AMX = 1 << 6, /* VBMI, and AMX tiles of int8, which the system must let a process use */
    QK_CPU_AVXVNNI = 1 << 7,  /* AVX2, and the YMM form of VNNI */
    QK_CPU_AMD = 1 << 8,      /* vendor AuthenticAMD: OpenBLAS has cores of its own for it */
    QK_CPU_NEON = 1 << 9,     /* Armv8's Advanced SIMD, with FMA and half precision as a format */
    QK_CPU_DOTPROD = 1 << 10, /* NEON, and SDOT and UDOT */
    QK_CPU_I8MM = 1 << 11,    /* DOTPROD, and SMMLA, UMMLA, USMMLA and USDOT */
    QK_CPU_FP16 = 1 << 12,    /* NEON, and arithmetic in half precision */
    QK_CPU_BF16 = 1 << 13,    /* NEON, and its conversions to bfloat16 */
    QK_CPU_SVE = 1 << 14      /* FP16, and SVE of any length with its conversions to bfloat16 */
};

/* The features of whole machines: short names for the sets that kernels need. */
enum qk_cpu_set {
    QK_CPU_HASWELL = QK_CPU_SSE42 | QK_CPU_AVX | QK_CPU_AVX2,
    QK_CPU_SKYLAKEX = QK_CPU_HASWELL | QK_CPU_AVX512,
    QK_CPU_CASCADELAKE = QK_CPU_SKYLAKEX | QK_CPU_VNNI,
    QK_CPU_ICELAKE = QK_CPU_CASCADELAKE | QK_CPU_VBMI,
    QK_CPU_SAPPHIRERAPIDS = QK_CPU_ICELAKE | QK_CPU_AVXVNNI | QK_CPU_AMX
};

/* The matrix products that convolutions use. The first is OpenBLAS's sgemm. */
enum qk_product {
    QK_PRODUCT_SGEMM,
    QK_PRODUCT_SCALAR,
    QK_PRODUCT_AVX2,
    QK_PRODUCT_AVX2_WORDS,
    QK_PRODUCT_AVXVNNI,
    QK_PRODUCT_VNNI,
    QK_PRODUCT_AMX,
    QK_PRODUCT_NEON,
    QK_PRODUCT_DOTPROD,
    QK_PRODUCT_I8MM,
    QK_PRODUCT_COUNT
};

/* A machine that QK_CPU can name. */
struct qk_machine {
    const char *name; /* as the variable QK_CPU names it */
    uint32_t cpu_flags, family, model;
};

struct qk_profile {
    char name[49]; /* as CPUID reports it; "" if it reports none, and for ARM's unknown parts */
    const struct qk_machine *mask; /* the machine that QK_CPU names; its flags, family and model are
                                      in the members below; NULL: none */
    uint32_t cpu_flags;
    uint32_t family, model; /* on ARM, the implementer and the part number */
    /* Sizes of the data caches that one core uses, in bytes, never 0. The L3 cache may be shared
     * with other cores and other virtual machines, so no choice may need all of it. */
    size_t l1_bytes, l2_bytes, l3_bytes;
    /* Speeds, never 0: measured if `measured` is true, otherwise typical values. */
    bool measured;
    double cycles_per_ns;
    double copy_bytes_per_ns; /* of one thread, beyond its own caches */
    /* Multiplications and additions that one thread does per nanosecond. 0: not measured, or the
     * machine lacks the product. */
    double product_ops_per_ns[QK_PRODUCT_COUNT];
};

/* Reads the profile of this machine, except for the measured speeds. Fails if qk_cpu_mask fails. */
enum qk_status qk_profile_read(struct qk_profile *profile, struct qk_error *error);

/* Replaces missing and implausible values by typical ones: a hypervisor may report any cache size.
 * For qk_profile_read and tests. */
void qk_profile_fill(struct qk_profile *profile);

/* Returns the QK_CPU_* that kernels may use: the features of this machine or, if QK_CPU names a
 * machine, of that one. Returns 0 if this is neither an x86-64 nor an AArch64, or if qk_cpu_mask
 * fails. */
uint32_t qk_cpu_flags(void);

/* Prints the names of these features with spaces between them. Cuts the text off if it does not fit
 * in `bytes`; QK_CPU_FLAGS_BYTES are always enough. */
void qk_cpu_print_flags(uint32_t cpu_flags, char *text, size_t bytes);
#define QK_CPU_FLAGS_BYTES 256

/* ---- Playing another machine ------------------------------------------------------------- */

/* The environment variable QK_CPU makes this machine look like one with fewer features, so that one
 * machine can test what runs on many. All code asks qk_cpu_flags() for features, and therefore sees
 * the masked machine: choice, measurement, description, OpenBLAS's core, tests and bench. Caches
 * and speed stay this machine's. If QK_CPU is not set or empty, nothing is masked. */
#define QK_CPU_VARIABLE "QK_CPU"

/* Returns the machines that QK_CPU can name; none on an AArch64, where an emulator plays them. */
const struct qk_machine *qk_machines(size_t *count);

/* Returns the features of `machine` that this CPU lacks, as QK_CPU_*. 0 means that this CPU can
 * play the machine. QK_CPU does not matter here. The vendor is not a feature: any CPU can play
 * AMD's. */
uint32_t qk_machine_lacks(const struct qk_machine *machine);

/* Sets *mask to the machine that QK_CPU names, or to NULL if QK_CPU is not set or empty. Fails with
 * QK_UNAVAILABLE if no machine has this name, or if this CPU cannot play that machine. */
enum qk_status qk_cpu_mask(const struct qk_machine **mask, struct qk_error *error);
