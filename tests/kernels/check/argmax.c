/* Checks the kernels of ArgMax against the scalar ones. */
#include "kernels/argmax/argmax.h"
#include "tests/kernels/check/check.h"

struct subject {
    const struct qk_argmax_kernels *kernels;
    enum qk_argmax_kind kind;
    bool last;
};

struct job {
    const struct subject *subject;
    const void *x;
    size_t length, stride, columns;
    uint32_t flip;
    struct check_pair y;
};

static void run_row(const struct job *job, const struct qk_argmax_kernels *kernels, void *y)
{
    *(int64_t *)y =
        kernels->row[job->subject->kind][job->subject->last](job->x, job->length, job->flip);
}

static void expect_row(void *context)
{
    run_row(context, &qk_argmax_kernels__scalar, ((struct job *)context)->y.expected);
}

static void actual_row(void *context)
{
    const struct job *job = context;
    run_row(job, job->subject->kernels, job->y.actual);
}

static void run_columns(const struct job *job, const struct qk_argmax_kernels *kernels, void *y)
{
    kernels->columns[job->subject->kind][job->subject->last](job->x, job->length, job->stride,
                                                             job->columns, job->flip, y);
}

static void expect_columns(void *context)
{
    run_columns(context, &qk_argmax_kernels__scalar, ((struct job *)context)->y.expected);
}

static void actual_columns(void *context)
{
    const struct job *job = context;
    run_columns(job, job->subject->kernels, job->y.actual);
}

/* Draws x: ordinary numbers, or few different ones, so that some are equal. */
static const void *elements(struct check *check, enum qk_argmax_kind kind, size_t count)
{
    const size_t bytes = kind == QK_ARGMAX_BYTE ? 1 : 4;
    const bool few = check_chance(check, 2);
    uint8_t *x = check_buffer(check, "x", CHECK_INPUT, count * bytes, bytes);
    for (size_t i = 0; i < count; i++)
        if (kind == QK_ARGMAX_BYTE)
            x[i] = (uint8_t)check_below(check, few ? 3 : 256);
        else if (kind == QK_ARGMAX_WORD)
            ((int32_t *)(void *)x)[i] = few ? (int32_t)check_below(check, 3) : check_int32(check);
        else
            ((float *)(void *)x)[i] = few ? (float)check_below(check, 3) : check_float(check, 1);
    return x;
}

static uint32_t draw_flip(struct check *check, enum qk_argmax_kind kind)
{
    static const uint32_t flips[] = {0, 0x80, UINT32_MAX, 0x7f};
    return kind == QK_ARGMAX_BYTE   ? flips[check_below(check, 4)]
           : check_chance(check, 2) ? 0
           : kind == QK_ARGMAX_WORD ? UINT32_MAX
                                    : 0x80000000;
}

static void check_row(struct check *check, const void *kernel)
{
    struct job job = {.subject = kernel};
    job.length = check_is_timed(check)    ? 8192
                 : check_chance(check, 4) ? check_between(check, 1, 2000)
                                          : 1 + check_index(check) % 300;
    job.x = elements(check, job.subject->kind, job.length);
    job.flip = draw_flip(check, job.subject->kind);
    job.y = check_outputs(check, "y", sizeof(int64_t), sizeof(int64_t));
    check_describe(check, "%zu elements, flipped by %x", job.length, job.flip);
    if (check_calls(check, expect_row, actual_row, &job, (double)job.length, "element"))
        check_same(check, &job.y, sizeof(int64_t));
}

static void check_columns(struct check *check, const void *kernel)
{
    struct job job = {.subject = kernel};
    const bool timed = check_is_timed(check);
    job.length = timed                    ? 64
                 : check_chance(check, 8) ? check_between(check, 250, 600)
                                          : check_between(check, 1, 20);
    job.columns = timed                    ? 512
                  : check_chance(check, 9) ? QK_ARGMAX_COLUMNS_MAX
                                           : check_between(check, 1, 80);
    job.stride = job.columns + (timed || check_chance(check, 2) ? 0 : check_below(check, 9));
    job.x = elements(check, job.subject->kind, (job.length - 1) * job.stride + job.columns);
    job.flip = draw_flip(check, job.subject->kind);
    job.y = check_outputs(check, "y", job.columns * sizeof(int64_t), sizeof(int64_t));
    check_describe(check, "%zu rows of %zu elements, stride %zu, flipped by %x", job.length,
                   job.columns, job.stride, job.flip);
    if (check_calls(check, expect_columns, actual_columns, &job, (double)(job.length * job.columns),
                    "element"))
        check_same(check, &job.y, sizeof(int64_t));
}

static void check_kernels(struct check *check, const char *tier,
                          const struct qk_argmax_kernels *kernels)
{
    static const char *const names[QK_ARGMAX_KIND_COUNT][2][2] = {
        {{"argmax/row_byte_first", "argmax/row_byte_last"},
         {"argmax/columns_byte_first", "argmax/columns_byte_last"}},
        {{"argmax/row_word_first", "argmax/row_word_last"},
         {"argmax/columns_word_first", "argmax/columns_word_last"}},
        {{"argmax/row_float_first", "argmax/row_float_last"},
         {"argmax/columns_float_first", "argmax/columns_float_last"}}};
    if (!check_tier(check, tier, check_lacks(tier)))
        return;
    for (unsigned kind = 0; kind < QK_ARGMAX_KIND_COUNT; kind++)
        for (unsigned last = 0; last < 2; last++) {
            const struct subject subject = {kernels, kind, last};
            check_run(check,
                      &(struct check_subject){names[kind][0][last], check_row, &subject, 1000});
            check_run(check,
                      &(struct check_subject){names[kind][1][last], check_columns, &subject, 500});
        }
}

void check_argmax(struct check *check)
{
    check_kernels(check, "scalar", &qk_argmax_kernels__scalar);
#ifdef __x86_64__
    check_kernels(check, "avx2", &qk_argmax_kernels__avx2);
    check_kernels(check, "avx512bw", &qk_argmax_kernels__avx512bw);
#elif defined(__aarch64__)
    check_kernels(check, "neon", &qk_argmax_kernels__neon);
#endif
}
