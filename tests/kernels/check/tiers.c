#include "tests/kernels/check/check.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu.h"

/* The tiers by the suffixes of source files, which say what the files are compiled for. */
static const struct {
    const char *tier;
    uint32_t flags;
    const char *name;
} needs[] = {
    {"scalar", 0, ""},
    {"avx2", QK_CPU_AVX2, "AVX2, FMA, F16C or BMI"},
    {"avxvnni", QK_CPU_AVX2 | QK_CPU_AVXVNNI, "AVX-VNNI"},
    {"avx512bw", QK_CPU_AVX512, "AVX-512 as Skylake-X has it"},
    {"avx512vnni", QK_CPU_VNNI, "AVX-512 with VNNI"},
    {"avx512vbmi", QK_CPU_VBMI, "AVX-512 with VNNI and VBMI"},
    {"amx", QK_CPU_AMX, "AMX"},
    {"neon", QK_CPU_NEON, "NEON"},
    {"dotprod", QK_CPU_DOTPROD, "dot products of bytes"},
    {"i8mm", QK_CPU_I8MM, "matrix products of bytes"},
    {"fp16", QK_CPU_FP16, "arithmetic in half precision"},
    {"sve", QK_CPU_SVE, "SVE with its conversions to bfloat16"},
};

const char *check_lacks(const char *tier)
{
    const uint32_t flags = qk_cpu_flags();
    for (size_t i = 0; i < sizeof(needs) / sizeof(needs[0]); i++)
        if (strcmp(needs[i].tier, tier) == 0)
            return needs[i].flags & ~flags ? needs[i].name : NULL;
    abort(); /* the tier is not in the list */
}
