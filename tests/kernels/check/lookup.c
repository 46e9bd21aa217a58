/* Checks the lookup kernels against the scalar one. */
#include "kernels/lookup/lookup.h"
#include "tests/kernels/check/check.h"

struct job {
    qk_lookup_fn kernel;
    const struct qk_lookup_table *table;
    const uint8_t *x;
    struct check_pair y;
    bool stream;
};

static void run_expected(void *context)
{
    struct job *job = context;
    qk_lookup_kernel__scalar.run(job->table, job->x, job->y.expected, job->y.bytes, job->stream);
}

static void run_actual(void *context)
{
    struct job *job = context;
    job->kernel(job->table, job->x, job->y.actual, job->y.bytes, job->stream);
}

static void check_kernel(struct check *check, const void *kernel)
{
    struct job job = {.kernel = ((const struct qk_lookup_kernel *)kernel)->run};
    const bool timed = check_is_timed(check);
    const size_t count = timed                    ? 8192
                         : check_chance(check, 4) ? check_between(check, 1, 2000)
                                                  : 1 + check_index(check) % 300;
    uint8_t *table = check_buffer(check, "table", CHECK_INPUT, QK_LOOKUP_ENTRIES, 64);
    uint8_t *x = check_buffer(check, "x", CHECK_INPUT, count, 1);
    for (size_t i = 0; i < QK_LOOKUP_ENTRIES; i++)
        table[i] = (uint8_t)check_random(check);
    for (size_t i = 0; i < count; i++)
        x[i] = (uint8_t)check_random(check);
    job.table = (const struct qk_lookup_table *)table;
    job.x = x;
    job.stream = !timed && check_chance(check, 4);
    job.y = check_outputs(check, "y", count, job.stream ? 64 : 1);
    check_describe(check, "%zu elements%s", count, job.stream ? ", streamed" : "");
    if (check_calls(check, run_expected, run_actual, &job, (double)count, "element"))
        check_same(check, &job.y, 1);
}

static void check_tier_of(struct check *check, const char *tier,
                          const struct qk_lookup_kernel *kernel)
{
    if (check_tier(check, tier, check_lacks(tier)))
        check_run(check, &(struct check_subject){"lookup/lookup", check_kernel, kernel, 2000});
}

void check_lookup(struct check *check)
{
    check_tier_of(check, "scalar", &qk_lookup_kernel__scalar);
#ifdef __x86_64__
    check_tier_of(check, "avx2", &qk_lookup_kernel__avx2);
    check_tier_of(check, "avx2", &qk_lookup_kernel__avx2_blends);
    check_tier_of(check, "avx512bw", &qk_lookup_kernel__avx512bw);
    check_tier_of(check, "avx512vbmi", &qk_lookup_kernel__avx512vbmi);
#elif defined(__aarch64__)
    check_tier_of(check, "neon", &qk_lookup_kernel__neon);
#endif
}
