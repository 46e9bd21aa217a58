/* The limits of whatever multiplies: loops that do nothing else, from registers, on one thread.
 *
 *   fma       floats, by the widest FMA
 *   madd      16-bit words, by AVX2: VPMADDWD and the addition that it needs
 *   avxvnni   bytes, by VPDPBUSD on 256 bits
 *   vnni      bytes, by AVX-512's VPDPBUSD
 *   amx       bytes, by tiles, which come from the L1 cache: there are too few to keep them
 *   neon      bytes, by SMULL and SADALP, the addition that it needs
 *   dotprod   bytes, by SDOT
 *   i8mm      bytes, by SMMLA */
#ifndef TESTS_BENCH_LIMITS_PEAK_H
#define TESTS_BENCH_LIMITS_PEAK_H

#include <stddef.h>
#include <stdint.h>

enum { BENCH_PEAK_ROUNDS = 4096 };

struct bench_peak {
    const char *name;
    uint32_t cpu_flags; /* QK_CPU_* that it needs */
    size_t operations;  /* of one call; a product and its addition are two */
    void (*run)(void);
};

/* A list that a `name` of NULL ends; empty where the machine is of another kind. */
extern const struct bench_peak bench_peaks_avx2[], bench_peaks_avxvnni[], bench_peaks_vnni[],
    bench_peaks_amx[], bench_peaks_neon[], bench_peaks_dotprod[], bench_peaks_i8mm[];

/* The one of that name that this CPU has, of "fma" the widest; NULL: none. */
const struct bench_peak *bench_peak_find(const char *name);

#endif
