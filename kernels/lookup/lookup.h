/* The core of operators that make each element of y of one element of x, both of 8 bits: y =
 * table[x]. The operator computes the table once. A kernel then looks up many elements at a time.
 */
#pragma once

#include "kernels/elementwise/traversal.h"
#include "kernels/qk.h"

#define QK_LOOKUP_ENTRIES 256
#define QK_LOOKUP_LINE 64 /* the bytes of a line of a cache */

/* The bits of y for each element of x, whose bits are the index. */
struct qk_lookup_table {
    _Alignas(64) uint8_t entries[QK_LOOKUP_ENTRIES];
};

/* Computes `count` elements of y, which does not overlap x. With `stream`, y is aligned to 64
 * bytes, and whole lines are written past the caches. */
typedef void (*qk_lookup_fn)(const struct qk_lookup_table *table, const uint8_t *x, uint8_t *y,
                             size_t count, bool stream);

struct qk_lookup_kernel {
    const char *name;
    qk_lookup_fn run;
    double element_cycles; /* a rough guess: cycles for one element that is in a cache */
    /* A thread calls `finish` after runs with `stream`, before other threads read y. Waiting once
     * for many runs costs less than waiting after each. NULL: there is nothing to wait for. */
    void (*finish)(void);
};

extern const struct qk_lookup_kernel qk_lookup_kernel__scalar;
extern const struct qk_lookup_kernel qk_lookup_kernel__avx2;
extern const struct qk_lookup_kernel qk_lookup_kernel__avx2_blends; /* faster on AMD's CPUs */
extern const struct qk_lookup_kernel qk_lookup_kernel__avx512bw;
extern const struct qk_lookup_kernel qk_lookup_kernel__avx512vbmi;
extern const struct qk_lookup_kernel qk_lookup_kernel__neon;

/* How many bytes ahead kernels prefetch x with `stream`. The CPU's own prefetching stops at the end
 * of a page. */
#define QK_LOOKUP_PREFETCH_BYTES 4096

/* A kernel first reads the table into registers. For runs shorter than this, that would take longer
 * than the run. */
#define QK_LOOKUP_SHORT 16

/* Computes a run of any length: by the kernel, unless the run is short. */
static inline void qk_lookup_run(qk_lookup_fn run, const struct qk_lookup_table *table,
                                 const uint8_t *x, uint8_t *y, size_t count)
{
    if (count >= QK_LOOKUP_SHORT) {
        run(table, x, y, count, false);
        return;
    }
    for (size_t i = 0; i < count; i++)
        y[i] = table->entries[x[i]];
}

/* Like qk_lookup_run, but writes whole lines of y past the caches. The kernel's `finish` must
 * follow. */
static inline void qk_lookup_stream(qk_lookup_fn run, const struct qk_lookup_table *table,
                                    const uint8_t *x, uint8_t *y, size_t count)
{
    const size_t gap = (QK_LOOKUP_LINE - (uintptr_t)y % QK_LOOKUP_LINE) % QK_LOOKUP_LINE;
    const size_t before = gap < count ? gap : count;
    qk_lookup_run(run, table, x, y, before);
    if (before < count)
        run(table, x + before, y + before, count - before, true);
}

/* Fills the plan's first output, and its units, kernel, run and state. The output has y_type and
 * the shape of x, which is the operator's first input. The table must outlive the plan. Returns
 * QK_NO_MEMORY if `memory` has run out. */
enum qk_status qk_lookup_plan(const struct qk_lookup_table *table,
                              const struct qk_lookup_kernel *kernel,
                              const struct qk_elementwise_tuning *tuning, const struct qk_tensor *x,
                              enum qk_type y_type, struct qk_memory memory, struct qk_plan *plan,
                              struct qk_error *error);

/* A table for each index of one axis of Y, which network/tables.c calls the channels. */
struct qk_lookup_channels {
    const struct qk_lookup_table *tables; /* [count]; they must outlive the plan */
    size_t count;
    uint32_t inner_rank; /* the number of axes behind this axis */
};

/* Like qk_lookup_plan, for y = tables[channel of y][x]. The axis of x has `count` elements, or 1 or
 * none, and y then repeats x for each channel. The rank of y is at least inner_rank + 1. Returns
 * QK_INVALID if the axis of x has another length, or if y is too large. */
enum qk_status qk_lookup_plan_channels(const struct qk_lookup_channels *channels,
                                       const struct qk_lookup_kernel *kernel,
                                       const struct qk_elementwise_tuning *tuning,
                                       const struct qk_tensor *x, enum qk_type y_type,
                                       struct qk_memory memory, struct qk_plan *plan,
                                       struct qk_error *error);
