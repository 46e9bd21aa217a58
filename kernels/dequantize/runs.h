/* Goes through a span by runs, for the ARM tiers above NEON. A run is the consecutive elements that
 * share their parameters. Only for dequantize_fp16.c and dequantize_sve.c, which take most kernels
 * from NEON and add a few. They define RUN_MIN and `struct code` before they include this file.
 * `struct code` has x_bytes and y_bytes, the sizes of an element of x and of y, and `magic`, the
 * number that reading adds to x. Its other members are the tier's own. */
#pragma once

/* Nothing here compiles without a tier's file around it. */
#ifdef RUN_MIN

#define INLINE static inline __attribute__((always_inline))

typedef void take_run_fn(const uint8_t *x, char *y, size_t count, float zero, float scale,
                         const struct code code);

/* Returns whether to go through a span by runs. Setting up a run takes more time than runs of less
 * than RUN_MIN elements save. */
INLINE bool has_runs(const struct qk_dequantize_args *args)
{
    return args->span.block >= RUN_MIN && !args->span.offsets;
}

/* Calls `take` for each run of the span. */
INLINE void take_runs(const struct qk_dequantize_args *args, const struct code code,
                      take_run_fn *take)
{
    const struct qk_span *span = &args->span;
    const float *scales = span->scales, *zeros = span->zeros;
    size_t left = span->block - span->done;
    for (size_t i = 0, p = span->p, run; i < span->count; i += run, left = span->block) {
        run = left < span->count - i ? left : span->count - i;
        take((const uint8_t *)span->x + i * code.x_bytes, (char *)span->y + i * code.y_bytes, run,
             zeros ? zeros[p] : code.magic, scales[p], code);
        p = p + 1 == span->period ? 0 : p + 1;
    }
}

#endif
