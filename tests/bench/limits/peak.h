/* The limits of code that multiplies: loops that only multiply, from registers, on one thread.
 *
 *   fma       floats, by the widest FMA
 *   madd      16-bit words, by AVX2: VPMADDWD and its addition
 *   avxvnni   bytes, by VPDPBUSD on 256 bits
 *   vnni      bytes, by AVX-512's VPDPBUSD
 *   amx       bytes, by tiles, which are loaded from the L1 cache: there are too few to keep them
 *   neon      bytes, by SMULL and its addition, SADALP
 *   dotprod   bytes, by SDOT
 *   i8mm      bytes, by SMMLA */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { BENCH_PEAK_ROUNDS = 4096 };

struct bench_peak {
    const char *name;
    uint32_t cpu_flags; /* the QK_CPU_* flags that the loop needs */
    size_t operations;  /* operations in one call; a product and its addition count as two */
    void (*run)(void);
};

/* Lists that end with a `name` of NULL. A list is empty if it was compiled for another
 * architecture. */
extern const struct bench_peak bench_peaks_avx2[], bench_peaks_avxvnni[], bench_peaks_vnni[],
    bench_peaks_amx[], bench_peaks_neon[], bench_peaks_dotprod[], bench_peaks_i8mm[];

/* Returns the loop of that name that this CPU can run, for "fma" the widest. Returns NULL if there
 * is none. */
const struct bench_peak *bench_peak_find(const char *name);
