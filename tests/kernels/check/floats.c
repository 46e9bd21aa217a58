/* Checks the kernels of operators on FP32 against the scalar ones. */
#include "kernels/floats/kernels.h"

#include <math.h>
#include <string.h>

#include "tests/kernels/check/check.h"

struct subject {
    qk_float_unary_fn unary, unary_reference;
    qk_binary_fn binary, binary_reference;
    enum qk_binary_form form;
};

struct job {
    const struct subject *subject;
    float parameters[2];
    const uint8_t *x, *second;
    struct check_pair y;
    size_t count;
};

static void run_expected(void *context)
{
    struct job *job = context;
    if (job->subject->unary)
        job->subject->unary_reference(job->parameters, job->x, job->y.expected, job->count);
    else
        job->subject->binary_reference(NULL, job->x, job->second, job->y.expected, job->count);
}

static void run_actual(void *context)
{
    struct job *job = context;
    if (job->subject->unary)
        job->subject->unary(job->parameters, job->x, job->y.actual, job->count);
    else
        job->subject->binary(NULL, job->x, job->second, job->y.actual, job->count);
}

static const uint8_t *operand(struct check *check, const char *name, size_t count)
{
    uint8_t *x = check_buffer(check, name, CHECK_INPUT, count * sizeof(float), 1);
    for (size_t i = 0; i < count; i++) {
        const float ordinary = (float)check_below(check, 2000) / 100 - 10;
        const float value = check_is_timed(check) ? ordinary : check_float(check, ordinary);
        memcpy(x + i * sizeof(value), &value, sizeof(value));
    }
    return x;
}

/* Which NaN an operation gives is the CPU's choice. */
static void make_nans_equal(void *floats, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float value;
        memcpy(&value, (char *)floats + i * sizeof(value), sizeof(value));
        value = isnan(value) ? NAN : value;
        memcpy((char *)floats + i * sizeof(value), &value, sizeof(value));
    }
}

static void check_kernel(struct check *check, const void *kernel)
{
    const struct subject *subject = kernel;
    struct job job = {.subject = subject, .parameters = {0.25F, 0.75F}};
    job.count = check_is_timed(check)    ? 8192
                : check_chance(check, 4) ? check_between(check, 1, 2000)
                                         : 1 + check_index(check) % 100;
    if (check_chance(check, 2))
        job.parameters[0] = (float)check_between(check, 1, 50) / 10;
    job.x = operand(check, "x", subject->form == QK_BINARY_FIRST_REPEATS ? 1 : job.count);
    job.second = operand(check, "second", subject->form == QK_BINARY_NONE_REPEATS ? job.count : 1);
    if (subject->form == QK_BINARY_FIRST_REPEATS)
        job.second = operand(check, "second", job.count);
    job.y = check_outputs(check, "y", job.count * sizeof(float), 1);
    check_describe(check, "%zu elements, parameters %g and %g", job.count,
                   (double)job.parameters[0], (double)job.parameters[1]);
    if (!check_calls(check, run_expected, run_actual, &job, (double)job.count, "element"))
        return;
    make_nans_equal(job.y.expected, job.count);
    make_nans_equal(job.y.actual, job.count);
    check_same(check, &job.y, sizeof(float));
}

static void check_unary(struct check *check, const struct qk_float_kernels *kernels)
{
#define NAME(name, cost) [QK_FLOAT_##name] = "floats/" #name,
    static const char *const names[QK_FLOAT_UNARY_COUNT] = {QK_FLOAT_FUNCTIONS(NAME)};
#undef NAME
    for (size_t i = 0; i < QK_FLOAT_UNARY_COUNT; i++) {
        const struct subject subject = {.unary = kernels->unary[i],
                                        .unary_reference = qk_float_kernels__scalar.unary[i],
                                        .form = QK_BINARY_SECOND_REPEATS};
        check_run(check, &(struct check_subject){names[i], check_kernel, &subject, 300});
    }
}

static void check_pairs(struct check *check, const struct qk_float_kernels *kernels)
{
#define FORMS(name)                                                       \
    {                                                                     \
        "floats/" name, "floats/" name "_first", "floats/" name "_second" \
    }
    static const char *const names[QK_FLOAT_BINARY_COUNT][QK_BINARY_FORM_COUNT] = {
        [QK_FLOAT_ADD] = FORMS("add"),     [QK_FLOAT_SUB] = FORMS("sub"),
        [QK_FLOAT_MUL] = FORMS("mul"),     [QK_FLOAT_DIV] = FORMS("div"),
        [QK_FLOAT_MIN] = FORMS("min"),     [QK_FLOAT_MAX] = FORMS("max"),
        [QK_FLOAT_PRELU] = FORMS("prelu"), [QK_FLOAT_POW] = FORMS("pow")};
    const struct qk_float_kernels *scalar = &qk_float_kernels__scalar;
    for (size_t i = 0; i < QK_FLOAT_BINARY_COUNT; i++)
        for (enum qk_binary_form form = 0; form < QK_BINARY_FORM_COUNT; form++) {
            const struct subject subject = {.binary = kernels->binary[i][form],
                                            .binary_reference = scalar->binary[i][form],
                                            .form = form};
            check_run(check, &(struct check_subject){names[i][form], check_kernel, &subject, 200});
        }
}

/* ---- Folds ------------------------------------------------------------------------------- */

struct fold_job {
    qk_float_fold_fn fold, reference;
    const uint8_t *from;
    size_t taps, tap_stride, stride, count;
    struct check_pair to;
};

static void fold_expected(void *context)
{
    struct fold_job *job = context;
    job->reference(job->to.expected, job->from, job->taps, job->tap_stride, job->stride,
                   job->count);
}

static void fold_actual(void *context)
{
    struct fold_job *job = context;
    job->fold(job->to.actual, job->from, job->taps, job->tap_stride, job->stride, job->count);
}

static void check_fold(struct check *check, const void *subject)
{
    const qk_float_fold_fn *folds = subject;
    const bool timed = check_is_timed(check);
    struct fold_job job = {.fold = folds[0], .reference = folds[1]};
    job.stride = timed ? 2 : check_between(check, 1, 4);
    job.count = timed ? 256 : check_between(check, 1, 150);
    job.taps = timed ? 3 : check_below(check, 4);
    job.tap_stride = timed ? 1 : check_below(check, 40);
    job.from = operand(check, "from", job.taps * job.tap_stride + (job.count - 1) * job.stride + 1);
    const size_t bytes = job.count * sizeof(float);
    job.to = check_outputs(check, "to", bytes, sizeof(float));
    const uint8_t *to = operand(check, "to before", job.count);
    memcpy(job.to.expected, to, bytes);
    memcpy(job.to.actual, to, bytes);
    check_describe(check, "%zu elements, stride %zu, %zu taps", job.count, job.stride, job.taps);
    if (!check_calls(check, fold_expected, fold_actual, &job, (double)job.count, "element"))
        return;
    make_nans_equal(job.to.expected, job.count);
    make_nans_equal(job.to.actual, job.count);
    check_same(check, &job.to, sizeof(float));
}

static void check_folds(struct check *check, const struct qk_float_kernels *kernels)
{
    static const char *const names[QK_FLOAT_FOLD_COUNT] = {
        [QK_FLOAT_FOLD_COPY] = "floats/fold_copy",
        [QK_FLOAT_FOLD_ADD] = "floats/fold_add",
        [QK_FLOAT_FOLD_MAX_VECTOR] = "floats/fold_max_vector",
        [QK_FLOAT_FOLD_MAX_SCALAR] = "floats/fold_max_scalar"};
    for (size_t i = 0; i < QK_FLOAT_FOLD_COUNT; i++) {
        const qk_float_fold_fn folds[] = {kernels->fold[i], qk_float_kernels__scalar.fold[i]};
        check_run(check, &(struct check_subject){names[i], check_fold, folds, 300});
    }
}

/* ---- Weighted means ---------------------------------------------------------------------- */

struct mix_job {
    qk_float_mix_fn mix;
    struct qk_float_corners corners;
    struct check_pair y;
    size_t count;
};

static void mix_expected(void *context)
{
    struct mix_job *job = context;
    qk_float_kernels__scalar.mix(&job->corners, job->y.expected, job->count);
}

static void mix_actual(void *context)
{
    struct mix_job *job = context;
    job->mix(&job->corners, job->y.actual, job->count);
}

static const float *floats(struct check *check, const char *name, size_t count)
{
    uint8_t *to = check_buffer(check, name, CHECK_INPUT, count * sizeof(float), sizeof(float));
    memcpy(to, operand(check, name, count), count * sizeof(float));
    return (const float *)to;
}

static void check_mix(struct check *check, const void *subject)
{
    struct mix_job job = {.mix = *(const qk_float_mix_fn *)subject};
    struct qk_float_corners *corners = &job.corners;
    job.count = check_is_timed(check) ? 256 : check_between(check, 1, 300);
    corners->x11 = floats(check, "x11", job.count);
    corners->x21 = floats(check, "x21", job.count);
    corners->x12 = floats(check, "x12", job.count);
    corners->x22 = floats(check, "x22", job.count);
    corners->dx1 = floats(check, "dx1", job.count);
    corners->dx2 = floats(check, "dx2", job.count);
    corners->dy1 = (float)check_below(check, 100) / 100;
    corners->dy2 = 1 - corners->dy1;
    job.y = check_outputs(check, "y", job.count * sizeof(float), sizeof(float));
    check_describe(check, "%zu elements, dy1 %g", job.count, (double)corners->dy1);
    if (!check_calls(check, mix_expected, mix_actual, &job, (double)job.count, "element"))
        return;
    make_nans_equal(job.y.expected, job.count);
    make_nans_equal(job.y.actual, job.count);
    check_same(check, &job.y, sizeof(float));
}

/* ---- Shares of a sum --------------------------------------------------------------------- */

struct shares_job {
    qk_float_shares_fn quantize, reference;
    struct qk_float_shares shares;
    const float *x, *sums;
    struct check_pair codes;
    size_t count;
};

static void shares_expected(void *context)
{
    struct shares_job *job = context;
    job->reference(&job->shares, job->x, job->sums, job->codes.expected, job->count);
}

static void shares_actual(void *context)
{
    struct shares_job *job = context;
    job->quantize(&job->shares, job->x, job->sums, job->codes.actual, job->count);
}

static void check_shares(struct check *check, const void *subject)
{
    const qk_float_shares_fn *functions = subject;
    struct shares_job job = {.quantize = functions[0], .reference = functions[1]};
    job.count = check_is_timed(check) ? 256 : check_between(check, 1, 300);
    job.x = floats(check, "x", job.count);
    job.sums = floats(check, "sums", job.count);
    job.shares.factor = (double)check_below(check, 400);
    job.shares.low = check_chance(check, 2) ? INT8_MIN : 0;
    job.shares.zero = job.shares.low + (int32_t)check_below(check, 256);
    job.codes = check_outputs(check, "codes", job.count, 1);
    check_describe(check, "%zu elements, factor %g, low %d, zero %d", job.count, job.shares.factor,
                   job.shares.low, job.shares.zero);
    if (check_calls(check, shares_expected, shares_actual, &job, (double)job.count, "element"))
        check_same(check, &job.codes, 1);
}

static void check_all_shares(struct check *check, const struct qk_float_kernels *kernels)
{
    const struct qk_float_kernels *scalar = &qk_float_kernels__scalar;
    const qk_float_shares_fn of_each[] = {kernels->quantize_shares, scalar->quantize_shares};
    const qk_float_shares_fn of_one[] = {kernels->quantize_shares_of_one,
                                         scalar->quantize_shares_of_one};
    check_run(check, &(struct check_subject){"floats/shares", check_shares, of_each, 300});
    check_run(check, &(struct check_subject){"floats/shares_of_one", check_shares, of_one, 300});
}

static void check_tier_of(struct check *check, const char *tier,
                          const struct qk_float_kernels *kernels)
{
    if (!check_tier(check, tier, check_lacks(tier)))
        return;
    check_unary(check, kernels);
    check_pairs(check, kernels);
    check_folds(check, kernels);
    check_run(check, &(struct check_subject){"floats/mix", check_mix, &kernels->mix, 300});
    check_all_shares(check, kernels);
}

void check_floats(struct check *check)
{
    check_tier_of(check, "scalar", &qk_float_kernels__scalar);
#ifdef __x86_64__
    check_tier_of(check, "avx2", &qk_float_kernels__avx2);
    check_tier_of(check, "avx512bw", &qk_float_kernels__avx512bw);
#elif defined(__aarch64__)
    check_tier_of(check, "neon", &qk_float_kernels__neon);
#endif
}
