#include "tests/bench/limits/peak.h"

#include <string.h>

#include "kernels/cpu.h"

const struct bench_peak *bench_peak_find(const char *name)
{
    static const struct bench_peak *const lists[] = {
        bench_peaks_amx,  bench_peaks_vnni,    bench_peaks_avxvnni, bench_peaks_avx2,
        bench_peaks_i8mm, bench_peaks_dotprod, bench_peaks_neon};
    const uint32_t cpu_flags = qk_cpu_flags();
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        for (const struct bench_peak *peak = lists[i]; peak->name; peak++)
            if (strcmp(peak->name, name) == 0 && !(peak->cpu_flags & ~cpu_flags))
                return peak;
    return NULL;
}
