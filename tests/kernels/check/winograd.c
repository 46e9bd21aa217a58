/* Checks the transforms of Winograd's convolution against those in plain C. */
#include "kernels/conv/winograd/plan.h"

#include <string.h>

#include "kernels/sizes.h"

#include "tests/kernels/check/check.h"

enum { NR = QK_IGEMM_NR, LANES = QK_WINOGRAD_LANES };

/* Chooses a block of at most `most` tiles. */
static void choose_block(struct check *check, size_t most, size_t *rows, size_t *columns)
{
    *columns = check_is_timed(check) ? qk_size_min(28, most / 2) : 1 + check_index(check) % most;
    *rows = check_is_timed(check) ? 2 : check_between(check, 1, most / *columns);
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
    choose_block(check, NR, &x->tile_rows, &x->tile_columns);
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

struct row_job {
    const struct qk_winograd *kernels;
    const uint8_t *weights;
    size_t count;
    uint8_t flip;
    struct qk_winograd_row expected, actual;
};

static void row_expected(void *context)
{
    struct row_job *job = context;
    job->expected = qk_winograd_row_scalar(job->weights, job->count, job->flip);
}

static void row_actual(void *context)
{
    struct row_job *job = context;
    job->actual = job->kernels->add_row(job->weights, job->count, job->flip);
}

static void check_row(struct check *check, const void *kernel)
{
    struct row_job job = {.kernels = kernel};
    job.count = check_is_timed(check) ? 576 : check_between(check, 1, 600);
    job.flip = check_chance(check, 2) ? 0x80 : 0;
    uint8_t *weights = check_buffer(check, "weights", CHECK_INPUT, job.count, 1);
    check_fill_bytes(check, weights, job.count);
    job.weights = weights;
    check_describe(check, "%zu weights, flip %#x", job.count, job.flip);
    if (check_calls(check, row_expected, row_actual, &job, (double)job.count, "weight"))
        check_that(check,
                   job.actual.sum == job.expected.sum && job.actual.size == job.expected.size,
                   "expected %d and %u, got %d and %u", job.expected.sum, job.expected.size,
                   job.actual.sum, job.actual.size);
}

/* ---- Sums -------------------------------------------------------------------------------- */

struct sums_job {
    const struct qk_winograd *kernels;
    struct qk_winograd_sums sums;
    struct check_pair to;
};

/* Rows that the panel lacks, and padding between rows of y, may have any sums. */
static void settle_sums(const struct sums_job *job, int32_t *sums)
{
    const size_t n = job->kernels->n, mr = job->kernels->igemm->mr;
    const size_t pitch = qk_winograd_pitch(job->kernels, job->sums.tile_columns);
    const bool by_position = job->kernels->igemm->by_position;
    for (size_t at = 0; at < n * job->sums.tile_rows * pitch; at++)
        for (size_t row = 0; row < mr; row++)
            if (row >= job->sums.rows || at % pitch >= n * job->sums.tile_columns)
                sums[by_position ? at * mr + row : (at / NR * mr + row) * NR + at % NR] = 0;
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
    const struct qk_igemm *igemm = job.kernels->igemm;
    const size_t nr = qk_winograd_nr(job.kernels), n = job.kernels->n;
    choose_block(check, nr, &sums->tile_rows, &sums->tile_columns);
    sums->igemm = igemm;
    sums->rows = check_is_timed(check) ? igemm->mr : check_between(check, 1, igemm->mr);
    const size_t count =
        job.kernels->points * igemm->mr * nr + (igemm->by_position ? 0 : LANES - 1);
    int32_t *products =
        check_buffer(check, "products", CHECK_INPUT, count * sizeof(int32_t), sizeof(int32_t));
    for (size_t i = 0; i < count; i++)
        products[i] = check_int32(check);
    sums->products = products;
    size_t positions = n * sums->tile_rows * qk_winograd_pitch(job.kernels, sums->tile_columns);
    if (!igemm->by_position) /* whole tiles */
        positions = qk_divide_up(positions, NR) * NR;
    job.to = check_outputs(check, "sums", positions * igemm->mr * sizeof(int32_t), sizeof(int32_t));
    check_describe(check, "%zu rows of %zu x %zu tiles", sums->rows, sums->tile_rows,
                   sums->tile_columns);
    if (check_calls(check, sums_expected, sums_actual, &job,
                    (double)(sums->rows * sums->tile_rows * sums->tile_columns), "tile"))
        check_same(check, &job.to, sizeof(int32_t));
}

/* ---- Tiers ------------------------------------------------------------------------------- */

static void check_sizes(struct check *check, const char *tier, const struct qk_winograd *kernels)
{
    static const char *const names[QK_WINOGRAD_SIZES][3] = {
        {"winograd/x_2", "winograd/weights_2", "winograd/sums_2"},
        {"winograd/x_4", "winograd/weights_4", "winograd/sums_4"},
    };
    if (!check_tier(check, tier, check_lacks(tier)))
        return;
    check_run(check, &(struct check_subject){"winograd/row", check_row, kernels, 2000});
    for (size_t i = 0; i < QK_WINOGRAD_SIZES && kernels[i].n > 0; i++) {
        const char *const *name = names[kernels[i].n == 4];
        check_run(check, &(struct check_subject){name[0], check_x, &kernels[i], 6000});
        check_run(check, &(struct check_subject){name[1], check_weights, &kernels[i], 2000});
        check_run(check, &(struct check_subject){name[2], check_sums, &kernels[i], 4000});
    }
}

void check_winograd(struct check *check)
{
    (void)check_sizes;
#ifdef __x86_64__
    check_sizes(check, "avx2", qk_winograd__avx2);
    check_sizes(check, "avx512vnni", qk_winograd__avx512vnni);
#else
    (void)check;
#endif
}
