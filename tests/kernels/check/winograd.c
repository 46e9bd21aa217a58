/* Checks the transforms of Winograd's convolution against those in plain C. */
#include "kernels/conv/winograd/winograd.h"

#include <string.h>

#include "tests/kernels/check/check.h"

enum { NR = QK_IGEMM_NR, POINTS = QK_WINOGRAD_POINTS, LANES = QK_WINOGRAD_LANES };

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
    for (size_t point = 0; point < POINTS; point++)
        memset(quads + point * job->x.point_bytes + tiles * QK_IGEMM_QUAD_BYTES, 0,
               (LANES - 1) * QK_IGEMM_QUAD_BYTES);
}

static void x_expected(void *context)
{
    struct x_job *job = context;
    job->x.quads = job->quads.expected;
    qk_winograd_x_scalar(&job->x);
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
    struct qk_winograd_x *x = &job.x;
    choose_block(check, &x->tile_rows, &x->tile_columns);
    x->row_bytes = QK_WINOGRAD_PITCH(x->tile_columns) + 2 + check_below(check, 40);
    x->flip = check_chance(check, 2) ? 0x80 : 0;
    x->x_zero_point = check_chance(check, 3) ? 0 : (int32_t)check_below(check, 256);
    const size_t tiles = x->tile_rows * x->tile_columns;
    x->point_bytes = (tiles + LANES - 1 + check_below(check, 20)) * QK_IGEMM_QUAD_BYTES;
    const size_t bytes =
        (2 * x->tile_rows + 1) * x->row_bytes + QK_WINOGRAD_PITCH(x->tile_columns) + 2;
    for (size_t channel = 0; channel < 2; channel++) {
        uint8_t *made = check_buffer(check, "x", CHECK_INPUT, bytes, 1);
        check_fill_bytes(check, made, bytes);
        x->x[channel] = made;
    }
    const size_t all = (POINTS - 1) * x->point_bytes + (tiles + LANES - 1) * QK_IGEMM_QUAD_BYTES;
    job.quads = check_outputs(check, "quads", all, QK_IGEMM_QUAD_BYTES);
    check_describe(check, "%zu x %zu tiles, flip %#x, zero point %d", x->tile_rows, x->tile_columns,
                   x->flip, (int)x->x_zero_point);
    if (check_calls(check, x_expected, x_actual, &job, (double)tiles * 2, "tile"))
        check_same(check, &job.quads, sizeof(int16_t));
}

/* ---- Weights ----------------------------------------------------------------------------- */

struct weights_job {
    const struct qk_winograd *kernels;
    const int8_t *weights;
    size_t count;
    struct check_pair to;
};

static void weights_expected(void *context)
{
    struct weights_job *job = context;
    qk_winograd_weights_scalar(job->weights, job->count, job->to.expected);
}

static void weights_actual(void *context)
{
    struct weights_job *job = context;
    job->kernels->transform_weights(job->weights, job->count, job->to.actual);
}

static void check_weights(struct check *check, const void *kernel)
{
    struct weights_job job = {.kernels = kernel};
    job.count = check_is_timed(check) ? 384 : 32 * check_between(check, 1, 20);
    uint8_t *weights = check_buffer(check, "weights", CHECK_INPUT, job.count * QK_WINOGRAD_TAPS, 1);
    check_fill_bytes(check, weights, job.count * QK_WINOGRAD_TAPS);
    job.weights = (const int8_t *)weights;
    job.to = check_outputs(check, "to", job.count * POINTS * sizeof(int16_t), 64);
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
    const size_t pitch = QK_WINOGRAD_PITCH(job->sums.tile_columns);
    for (size_t at = 0; at < 2 * job->sums.tile_rows * pitch; at++)
        for (size_t row = 0; row < job->sums.rows && at % pitch >= 2 * job->sums.tile_columns;
             row++)
            sums[(at / NR * job->sums.mr + row) * NR + at % NR] = 0;
}

static void sums_expected(void *context)
{
    struct sums_job *job = context;
    job->sums.sums = job->to.expected;
    qk_winograd_sums_scalar(&job->sums);
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
    const size_t count = POINTS * sums->mr * NR + LANES - 1;
    int32_t *products =
        check_buffer(check, "products", CHECK_INPUT, count * sizeof(int32_t), sizeof(int32_t));
    for (size_t i = 0; i < count; i++)
        products[i] = check_int32(check);
    sums->products = products;
    const size_t positions = 2 * sums->tile_rows * QK_WINOGRAD_PITCH(sums->tile_columns);
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
    check_run(check, &(struct check_subject){"winograd/x", check_x, &qk_winograd__avx2, 6000});
    check_run(check,
              &(struct check_subject){"winograd/weights", check_weights, &qk_winograd__avx2, 2000});
    check_run(check,
              &(struct check_subject){"winograd/sums", check_sums, &qk_winograd__avx2, 4000});
#else
    (void)check;
#endif
}
