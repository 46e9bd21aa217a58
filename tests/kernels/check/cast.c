/* Checks the kernels of Cast against the scalar ones. */
#include <string.h>

#include "kernels/cast/cast.h"
#include "tests/kernels/check/check.h"

struct subject {
    const struct qk_cast_kernels *kernels;
    enum qk_cast_from from;
};

struct job {
    qk_cast_fn reference, kernel;
    const void *x;
    size_t count;
    struct check_pair y;
};

static void run_expected(void *context)
{
    struct job *job = context;
    job->reference(job->x, job->y.expected, job->count);
}

static void run_actual(void *context)
{
    struct job *job = context;
    job->kernel(job->x, job->y.actual, job->count);
}

/* Fills x. A third of the floats are near the limits of integers. */
static void fill(struct check *check, enum qk_cast_from from, void *x, size_t count)
{
    static const float limits[] = {128, 256, 32768, 65520, 65536, 0x1p31F, 0x1p32F, 0x1p63F};
    float *floats = x;
    for (size_t i = 0; from == QK_CAST_FROM_FP32 && i < count; i++) {
        const float limit = limits[check_below(check, sizeof(limits) / sizeof(limits[0]))];
        floats[i] =
            check_chance(check, 3) ? check_float(check, 1) * limit : check_float(check, 300);
    }
    if (from == QK_CAST_FROM_FP32)
        return;
    for (size_t i = 0; i < count; i++)
        ((uint8_t *)x)[i] = (uint8_t)check_random(check);
}

static void check_kernel(struct check *check, const void *kernel)
{
    static const size_t x_bytes[] = {1, 1, 2, 2, 4, 8, 2, 4};
    static const size_t y_bytes[] = {1, 2, 4, 8, 1, 2, 4};
    const struct subject *subject = kernel;
    const enum qk_cast_to to =
        check_is_timed(check) ? QK_CAST_TO_FP32 : (enum qk_cast_to)(check_index(check) % 7);
    const size_t count = check_is_timed(check)    ? 8192
                         : check_chance(check, 4) ? check_between(check, 1, 2000)
                                                  : 1 + check_index(check) / 7 % 100;
    const size_t bytes = count * x_bytes[subject->from];
    void *x = check_buffer(check, "x", CHECK_INPUT, bytes, 1);
    struct job job = {qk_cast_kernels__scalar.run[subject->from][to],
                      subject->kernels->run[subject->from][to], x, count,
                      check_outputs(check, "y", count * y_bytes[to], 1)};
    void *aligned = check_scratch(check, bytes + sizeof(float));
    fill(check, subject->from, aligned, subject->from == QK_CAST_FROM_FP32 ? count : bytes);
    memcpy(x, aligned, bytes);
    check_describe(check, "%zu elements to type %d", count, (int)to);
    if (check_calls(check, run_expected, run_actual, &job, (double)count, "element"))
        check_same(check, &job.y, y_bytes[to]);
}

static void check_kernels(struct check *check, const char *tier,
                          const struct qk_cast_kernels *kernels)
{
    static const char *const names[QK_CAST_FROM_COUNT] = {
        "cast/from_uint8", "cast/from_int8",  "cast/from_uint16", "cast/from_int16",
        "cast/from_int32", "cast/from_int64", "cast/from_fp16",   "cast/from_fp32"};
    if (!check_tier(check, tier, check_lacks(tier)))
        return;
    for (unsigned i = 0; i < QK_CAST_FROM_COUNT; i++) {
        const struct subject subject = {kernels, i};
        check_run(check, &(struct check_subject){names[i], check_kernel, &subject, 1400});
    }
}

void check_cast(struct check *check)
{
    check_kernels(check, "scalar", &qk_cast_kernels__scalar);
#ifdef __x86_64__
    check_kernels(check, "avx2", &qk_cast_kernels__avx2);
    check_kernels(check, "avx512bw", &qk_cast_kernels__avx512bw);
#elif defined(__aarch64__)
    check_kernels(check, "neon", &qk_cast_kernels__neon);
#endif
}
