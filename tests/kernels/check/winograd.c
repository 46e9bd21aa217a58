/* Checks the transforms of Winograd's convolution against those in plain C. */
#include "kernels/conv/winograd/winograd.h"

#include <string.h>

#include "tests/kernels/check/check.h"

enum { NR = QK_IGEMM_NR, LANES = QK_WINOGRAD_LANES };

/* Chooses a block of at most QK_IGEMM_NR tiles. */
static void choose_block(struct check *check, size_t *rows, size_t *columns)
{
    *columns = check_is_timed(check) ? 28 : 1 + check_index(check) % NR;
    *rows = check_is_timed(check) ? 2 : check_between(check, 1, NR / *columns);
}

/* ---- x ----------------------------------------------------------------------------------- */

struct x_job {
    const struct qk_winograd *kernels;
    struct qk_winograd_x x;
    struct check_pair quads;
};

/* The kernel may write beyond the last quad of a point, so only the quads of tiles are compared:
 * both get the same bytes there. */
static void settle_quads(const struct x_job *job, uint8_t *quads)
{
    const size_t tiles = job->x.tile_rows * job->x.tile_columns;
    for (size_t point = 0; point < job->kernels->points; point++)
        memset(quads + point * job->x.point_bytes + tiles * QK_IGEMM_QUAD_BYTES, 0,
               (LANES - 1) * QK_IGEMM_QUAD_BYTES);
}

static void x_expected(void *context)
{
    struct x_job *job = context;
    job->x.quads = job->quads.expected;
    qk_winograd_x_scalar(job->kernels->n, &job->x);
    settle_quads(job, job->quads.expected);
}

static void x_actual(void *context)
{
    struct x_job *job = context;
    job->x.quads = job->quads.actual;
    job->kernels->transform_x(&job->x);
    settle_quads(job, job->quads.actual);
}

static void check_x(struct check *check, const void *kernel)
{
    struct x_job job = {.kernels = kernel};
    const size_t n = job.kernels->n;
    struct qk_winograd_x *x = &job.x;
    choose_block(check, &x->tile_rows, &x->tile_columns);
    const size_t columns = QK_WINOGRAD_PITCH(n, x->tile_columns) + (n == 2 ? 2 : 4);
    x->row_bytes = columns + check_below(check, 40);
    x->flip = check_chance(check, 2) ? 0x80 : 0;
    const size_t tiles = x->tile_rows * x->tile_columns;
    x->point_bytes = (tiles + LANES - 1 + check_below(check, 20)) * QK_IGEMM_QUAD_BYTES;
    const size_t bytes = (n * x->tile_rows + 1) * x->row_bytes + columns;
    for (size_t channel = 0; channel < 2; channel++) {
        uint8_t *made = check_buffer(check, "x", CHECK_INPUT, bytes, 1);
        check_fill_bytes(check, made, bytes);
        x->x[channel] = made;
    }
    const size_t all =
        (job.kernels->points - 1) * x->point_bytes + (tiles + LANES - 1) * QK_IGEMM_QUAD_BYTES;
    job.quads = check_outputs(check, "quads", all, QK_IGEMM_QUAD_BYTES);
    check_describe(check, "%zu x %zu tiles, flip %#x", x->tile_rows, x->tile_columns, x->flip);
    if (check_calls(check, x_expected, x_actual, &job, (double)tiles * 2, "tile"))
        check_same(check, &job.quads, sizeof(int16_t));
}

/* ---- Weights ----------------------------------------------------------------------------- */

struct weights_job {
    const struct qk_winograd *kernels;
    const int8_t *weights;
    size_t count, stride;
    struct check_pair to;
};

static void weights_expected(void *context)
{
    struct weights_job *job = context;
    qk_winograd_weights_scalar(job->kernels->n, job->weights, job->count, job->to.expected,
                               job->stride);
}

static void weights_actual(void *context)
{
    struct weights_job *job = context;
    job->kernels->transform_weights(job->weights, job->count, job->to.actual, job->stride);
}

static void check_weights(struct check *check, const void *kernel)
{
    struct weights_job job = {.kernels = kernel};
    job.count = check_is_timed(check) ? 384 : 32 * check_between(check, 1, 20);
    job.stride = job.count + 32 * check_below(check, 3);
    uint8_t *weights = check_buffer(check, "weights", CHECK_INPUT, job.count * QK_WINOGRAD_TAPS, 1);
    check_fill_bytes(check, weights, job.count * QK_WINOGRAD_TAPS);
    job.weights = (const int8_t *)weights;
    job.to = check_outputs(check, "to", job.stride * job.kernels->points * sizeof(int16_t), 64);
    check_describe(check, "%zu weights of each tap", job.count);
    if (check_calls(check, weights_expected, weights_actual, &job, (double)job.count, "kernel"))
        check_same(check, &job.to, sizeof(int16_t));
}

/* ---- Sums -------------------------------------------------------------------------------- */

struct sums_job {
    const struct qk_winograd *kernels;
    struct qk_winograd_sums sums;
    struct check_pair to;
};

/* Padding between rows may have any sums. */
static void settle_sums(const struct sums_job *job, int32_t *sums)
{
    const size_t n = job->kernels->n;
    const size_t pitch = QK_WINOGRAD_PITCH(n, job->sums.tile_columns);
    for (size_t at = 0; at < n * job->sums.tile_rows * pitch; at++)
        for (size_t row = 0; row < job->sums.rows && at % pitch >= n * job->sums.tile_columns;
             row++)
            sums[(at / NR * job->sums.mr + row) * NR + at % NR] = 0;
}

static void sums_expected(void *context)
{
    struct sums_job *job = context;
    job->sums.sums = job->to.expected;
    qk_winograd_sums_scalar(job->kernels->n, &job->sums);
    settle_sums(job, job->to.expected);
}

static void sums_actual(void *context)
{
    struct sums_job *job = context;
    job->sums.sums = job->to.actual;
    job->kernels->transform_sums(&job->sums);
    settle_sums(job, job->to.actual);
}

static void check_sums(struct check *check, const void *kernel)
{
    struct sums_job job = {.kernels = kernel};
    struct qk_winograd_sums *sums = &job.sums;
    choose_block(check, &sums->tile_rows, &sums->tile_columns);
    sums->mr = job.kernels->igemm->mr;
    sums->rows = check_is_timed(check) ? sums->mr : check_between(check, 1, sums->mr);
    const size_t count = job.kernels->points * sums->mr * NR + LANES - 1;
    int32_t *products =
        check_buffer(check, "products", CHECK_INPUT, count * sizeof(int32_t), sizeof(int32_t));
    for (size_t i = 0; i < count; i++)
        products[i] = check_int32(check);
    sums->products = products;
    const size_t n = job.kernels->n;
    const size_t positions = n * sums->tile_rows * QK_WINOGRAD_PITCH(n, sums->tile_columns);
    const size_t tiles = (positions + NR - 1) / NR;
    job.to = check_outputs(check, "sums", tiles * sums->mr * NR * sizeof(int32_t), sizeof(int32_t));
    check_describe(check, "%zu rows of %zu x %zu tiles", sums->rows, sums->tile_rows,
                   sums->tile_columns);
    if (check_calls(check, sums_expected, sums_actual, &job,
                    (double)(sums->rows * sums->tile_rows * sums->tile_columns), "tile"))
        check_same(check, &job.to, sizeof(int32_t));
}

/* ---- Tiers ------------------------------------------------------------------------------- */

void check_winograd(struct check *check)
{
    (void)check_sums;
    (void)check_weights;
    (void)check_x;
#ifdef __x86_64__
    if (!check_tier(check, "avx2", check_lacks("avx2")))
        return;
    static const char *const names[QK_WINOGRAD_SIZES][3] = {
        {"winograd/x_2", "winograd/weights_2", "winograd/sums_2"},
        {"winograd/x_4", "winograd/weights_4", "winograd/sums_4"},
    };
    for (size_t i = 0; i < QK_WINOGRAD_SIZES; i++) {
        const struct qk_winograd *kernels = &qk_winograd__avx2[i];
        check_run(check, &(struct check_subject){names[i][0], check_x, kernels, 6000});
        check_run(check, &(struct check_subject){names[i][1], check_weights, kernels, 2000});
        check_run(check, &(struct check_subject){names[i][2], check_sums, kernels, 4000});
    }
#else
    (void)check;
#endif
}
