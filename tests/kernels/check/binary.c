/* Checks the kernels of binary operators against the scalar ones. */
#include "kernels/binary/binary.h"
#include "tests/kernels/check/check.h"

struct subject {
    qk_binary_fn kernel;
    qk_binary_fn reference;
    bool multiplies;
    enum qk_binary_form form;
    qk_binary_rows_fn rows, rows_reference; /* NULL: the subject is the first two */
};

struct job {
    const struct subject *subject;
    struct qk_binary_args args;
    const uint8_t *first, *second;
    size_t rows; /* of `count` elements each */
    size_t count;
    struct check_pair y;
};

static void run_expected(void *context)
{
    struct job *job = context;
    if (job->subject->rows)
        job->subject->rows_reference(&job->args, job->first, job->second, job->y.expected,
                                     job->count, job->rows);
    else
        job->subject->reference(&job->args, job->first, job->second, job->y.expected, job->count);
}

static void run_actual(void *context)
{
    struct job *job = context;
    if (job->subject->rows)
        job->subject->rows(&job->args, job->first, job->second, job->y.actual, job->count,
                           job->rows);
    else
        job->subject->kernel(&job->args, job->first, job->second, job->y.actual, job->count);
}

static const uint8_t *operand(struct check *check, const char *name, size_t count)
{
    uint8_t *codes = check_buffer(check, name, CHECK_INPUT, count, 1);
    for (size_t i = 0; i < count; i++)
        codes[i] = (uint8_t)check_random(check);
    if (check_chance(check, 4))
        check_fill_bytes(check, codes, count);
    return codes;
}

/* Draws a constant of Mul's zero points, or a factor. Ordinary factors are multiples of 1/16, so
 * that there are ties. */
static float constant(struct check *check, bool is_zero)
{
    const float integer = (float)check_below(check, 256) - (check_chance(check, 2) ? 128.0F : 0.0F);
    return is_zero || check_is_timed(check) ? integer
           : check_chance(check, 2)         ? integer / 16
                                            : check_float(check, 0.37F);
}

static void check_kernel(struct check *check, const void *kernel)
{
    const struct subject *subject = kernel;
    struct job job = {.subject = subject, .rows = 1};
    size_t count = check_is_timed(check)    ? 8192
                   : check_chance(check, 4) ? check_between(check, 1, 2000)
                                            : 1 + check_index(check) % 300;
    job.args = (struct qk_binary_args){
        constant(check, subject->multiplies), constant(check, subject->multiplies),
        subject->multiplies ? constant(check, false) : 1, constant(check, subject->multiplies),
        !check_is_timed(check) && check_chance(check, 4)};
    if (subject->rows) {
        job.rows = check_is_timed(check) ? 128 : check_between(check, 1, 5);
        count = check_is_timed(check) ? 64 : 1 + count % 150;
    }
    job.count = count;
    job.first =
        operand(check, "first", subject->form == QK_BINARY_FIRST_REPEATS ? 1 : job.rows * count);
    job.second =
        operand(check, "second", subject->form == QK_BINARY_SECOND_REPEATS ? job.rows : count);
    job.y = check_outputs(check, "y", job.rows * count, 1);
    check_describe(check, "%zu x %zu elements%s, constants %g, %g, %g, %g", job.rows, count,
                   job.args.stream ? ", streamed" : "", (double)job.args.first,
                   (double)job.args.second, (double)job.args.scale, (double)job.args.offset);
    if (check_calls(check, run_expected, run_actual, &job, (double)(job.rows * count), "element"))
        check_same(check, &job.y, 1);
}

static void check_kernels(struct check *check, const char *tier,
                          const struct qk_binary_kernels *kernels)
{
    static const char *const names[2][2][QK_BINARY_FORM_COUNT] = {
        {{"binary/add_u8", "binary/add_u8_first", "binary/add_u8_second"},
         {"binary/add_s8", "binary/add_s8_first", "binary/add_s8_second"}},
        {{"binary/mul_u8", "binary/mul_u8_first", "binary/mul_u8_second"},
         {"binary/mul_s8", "binary/mul_s8_first", "binary/mul_s8_second"}}};
    const struct qk_binary_kernels *scalar = &qk_binary_kernels__scalar;
    if (!check_tier(check, tier, check_lacks(tier)))
        return;
    for (size_t is_signed = 0; is_signed < 2; is_signed++) {
        const struct subject rows = {.multiplies = true,
                                     .form = QK_BINARY_SECOND_REPEATS,
                                     .rows = kernels->multiply_rows[is_signed],
                                     .rows_reference = scalar->multiply_rows[is_signed]};
        check_run(check,
                  &(struct check_subject){is_signed ? "binary/mul_s8_rows" : "binary/mul_u8_rows",
                                          check_kernel, &rows, 1000});
        for (enum qk_binary_form form = 0; form < QK_BINARY_FORM_COUNT; form++) {
            const struct subject add = {.kernel = kernels->add[is_signed][form],
                                        .reference = scalar->add[is_signed][form],
                                        .form = form};
            const struct subject multiply = {.kernel = kernels->multiply[is_signed][form],
                                             .reference = scalar->multiply[is_signed][form],
                                             .multiplies = true,
                                             .form = form};
            check_run(check,
                      &(struct check_subject){names[0][is_signed][form], check_kernel, &add, 1000});
            check_run(check, &(struct check_subject){names[1][is_signed][form], check_kernel,
                                                     &multiply, 1000});
        }
    }
}

void check_binary(struct check *check)
{
    check_kernels(check, "scalar", &qk_binary_kernels__scalar);
#ifdef __x86_64__
    check_kernels(check, "avx2", &qk_binary_kernels__avx2);
    check_kernels(check, "avx512bw", &qk_binary_kernels__avx512bw);
#elif defined(__aarch64__)
    check_kernels(check, "neon", &qk_binary_kernels__neon);
#endif
}
