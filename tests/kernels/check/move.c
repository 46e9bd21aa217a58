/* The kernels of the moving core (kernels/move/kernels.h), for elements of each size. */
#include "kernels/move/kernels.h"

#include <stdio.h>

#include "tests/kernels/check/check.h"

/* A kernel of a tier beside the scalar one. */
struct subject {
    const struct qk_move_kernels *kernels;
    unsigned size; /* log2 of the bytes of an element */
};

struct job {
    const struct qk_move_kernels *kernels;
    const struct qk_move_kernels *reference;
    unsigned size;
    struct check_pair y;
    const char *x;
    size_t count;
    int64_t x_stride;
    const int64_t *offsets;
    size_t rows;
    int64_t y_stride;
};

static struct qk_move_kernels scalar_kernels(void)
{
    struct qk_move_kernels kernels;
    qk_move_init_scalar(&kernels);
    return kernels;
}

/* ---- Strides ----------------------------------------------------------------------------- */

static void run_strided(const struct job *job, const struct qk_move_kernels *kernels, void *y)
{
    kernels->strided[job->size](y, job->x, job->count, job->x_stride);
}

static void expect_strided(void *context)
{
    run_strided(context, ((struct job *)context)->reference, ((struct job *)context)->y.expected);
}

static void actual_strided(void *context)
{
    run_strided(context, ((struct job *)context)->kernels, ((struct job *)context)->y.actual);
}

/* The strides that kernels know, and others, in elements; or any number of bytes. */
static void check_strided(struct check *check, const void *kernel)
{
    static const int strides[] = {0, 1, -1, 2, 3, 4, -2, 5};
    const struct subject *subject = kernel;
    const struct qk_move_kernels reference = scalar_kernels();
    const size_t bytes = (size_t)1 << subject->size;
    const bool timed = check_is_timed(check);
    struct job job = {subject->kernels, &reference, .size = subject->size};
    job.count = timed ? 4096 : check_between(check, 1, 200);
    job.x_stride = timed ? (int64_t)(2 * bytes) : strides[check_below(check, 8)] * (int64_t)bytes;
    if (!timed && check_chance(check, 6))
        job.x_stride = (int64_t)check_below(check, 60) - 30;
    const size_t reach =
        (job.count - 1) * (size_t)(job.x_stride < 0 ? -job.x_stride : job.x_stride);
    char *x = check_buffer(check, "x", CHECK_INPUT, reach + bytes, 1);
    job.x = job.x_stride < 0 ? x + reach : x;
    job.y = check_outputs(check, "y", job.count * bytes, 1);
    check_describe(check, "%zu elements of %zu bytes, stride %lld bytes", job.count, bytes,
                   (long long)job.x_stride);
    if (check_calls(check, expect_strided, actual_strided, &job, (double)job.count, "element"))
        check_same(check, &job.y, bytes);
}

/* ---- Tables ------------------------------------------------------------------------------ */

static void run_gathered(const struct job *job, const struct qk_move_kernels *kernels, void *y)
{
    kernels->gathered[job->size](y, job->x, job->count, job->offsets);
}

static void expect_gathered(void *context)
{
    run_gathered(context, ((struct job *)context)->reference, ((struct job *)context)->y.expected);
}

static void actual_gathered(void *context)
{
    run_gathered(context, ((struct job *)context)->kernels, ((struct job *)context)->y.actual);
}

static void check_gathered(struct check *check, const void *kernel)
{
    const struct subject *subject = kernel;
    const struct qk_move_kernels reference = scalar_kernels();
    const size_t bytes = (size_t)1 << subject->size;
    struct job job = {subject->kernels, &reference, .size = subject->size};
    job.count = check_is_timed(check) ? 4096 : check_between(check, 1, 100);
    const size_t x_bytes = bytes + check_below(check, 1000);
    int64_t *offsets =
        check_buffer(check, "offsets", CHECK_INPUT, job.count * sizeof(*offsets), sizeof(*offsets));
    for (size_t i = 0; i < job.count; i++)
        offsets[i] = (int64_t)check_below(check, x_bytes - bytes + 1);
    job.offsets = offsets;
    job.x = check_buffer(check, "x", CHECK_INPUT, x_bytes, 1);
    job.y = check_outputs(check, "y", job.count * bytes, 1);
    check_describe(check, "%zu elements of %zu bytes", job.count, bytes);
    if (check_calls(check, expect_gathered, actual_gathered, &job, (double)job.count, "element"))
        check_same(check, &job.y, bytes);
}

/* ---- Transposes -------------------------------------------------------------------------- */

static void run_transposed(const struct job *job, const struct qk_move_kernels *kernels, void *y)
{
    kernels->transposed[job->size](y, job->y_stride, job->x, job->x_stride, job->rows, job->count);
}

static void expect_transposed(void *context)
{
    run_transposed(context, ((struct job *)context)->reference,
                   ((struct job *)context)->y.expected);
}

static void actual_transposed(void *context)
{
    run_transposed(context, ((struct job *)context)->kernels, ((struct job *)context)->y.actual);
}

static void check_transposed(struct check *check, const void *kernel)
{
    const struct subject *subject = kernel;
    const struct qk_move_kernels reference = scalar_kernels();
    const size_t bytes = (size_t)1 << subject->size;
    const bool timed = check_is_timed(check);
    struct job job = {subject->kernels, &reference, .size = subject->size};
    job.rows = timed ? 64 : check_between(check, 1, 50);
    job.count = timed ? 64 : check_between(check, 1, check_chance(check, 2) ? 5 : 50);
    const size_t y_gap = timed || check_chance(check, 2) ? 0 : check_below(check, 9);
    const size_t x_gap = timed || check_chance(check, 2) ? 0 : check_below(check, 9);
    job.y_stride = (int64_t)(job.count * bytes + y_gap);
    job.x_stride = (int64_t)(job.rows * bytes + x_gap);
    job.x = check_buffer(check, "x", CHECK_INPUT,
                         (job.count - 1) * (size_t)job.x_stride + job.rows * bytes, 1);
    job.y = check_outputs(check, "y", (job.rows - 1) * (size_t)job.y_stride + job.count * bytes, 1);
    check_describe(check, "%zu rows, %zu columns of %zu bytes, gaps %zu and %zu", job.rows,
                   job.count, bytes, y_gap, x_gap);
    if (check_calls(check, expect_transposed, actual_transposed, &job,
                    (double)(job.rows * job.count), "element"))
        check_same(check, &job.y, bytes);
}

/* ---- Tiers ------------------------------------------------------------------------------- */

static void check_kernels(struct check *check, const char *tier,
                          void (*init)(struct qk_move_kernels *kernels))
{
    static const struct {
        const char *name;
        check_body_fn *body;
    } families[] = {{"move/strided", check_strided},
                    {"move/gathered", check_gathered},
                    {"move/transposed", check_transposed}};
    struct qk_move_kernels kernels;
    if (!check_tier(check, tier, check_lacks(tier)))
        return;
    init(&kernels);
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
        for (unsigned size = 0; size < QK_MOVE_SIZES; size++) {
            const struct subject subject = {&kernels, size};
            char name[32];
            snprintf(name, sizeof(name), "%s_%u", families[i].name, 1U << size);
            check_run(check, &(struct check_subject){name, families[i].body, &subject, 1000});
        }
}

void check_move(struct check *check)
{
    check_kernels(check, "scalar", qk_move_init_scalar);
#ifdef __x86_64__
    check_kernels(check, "avx2", qk_move_init_avx2);
    check_kernels(check, "avx512bw", qk_move_init_avx512);
#elif defined(__aarch64__)
    check_kernels(check, "neon", qk_move_init_neon);
#endif
}
