/* Checks the kernels around matrix products against the scalar ones, which share their loops. */
#include <string.h>

#include "kernels/conv/requantize.h"
#include "kernels/matmul/kernels.h"
#include "tests/kernels/check/check.h"

static const struct qk_matmul_kernels *const scalar = &qk_matmul_kernels__scalar;

static int32_t *integers(struct check *check, const char *name, size_t count)
{
    int32_t *made = check_buffer(check, name, CHECK_INPUT, count * sizeof(*made), 4);
    for (size_t i = 0; i < count; i++)
        made[i] = check_int32(check);
    return made;
}

/* ---- Fill -------------------------------------------------------------------------------- */

struct fill_job {
    const struct qk_matmul_kernels *kernels;
    struct qk_matmul_fill fill;
    struct check_pair to, sums;
};

static void fill_expected(void *context)
{
    struct fill_job *job = context;
    job->fill.to = job->to.expected;
    job->fill.sums = job->sums.expected;
    scalar->fill(&job->fill);
}

static void fill_actual(void *context)
{
    struct fill_job *job = context;
    job->fill.to = job->to.actual;
    job->fill.sums = job->sums.actual;
    job->kernels->fill(&job->fill);
}

static void check_fill(struct check *check, const void *kernels)
{
    struct fill_job job = {.kernels = kernels};
    struct qk_matmul_fill *fill = &job.fill;
    const bool timed = check_is_timed(check);
    const bool by_items = check_chance(check, 2);          /* items, not terms, are neighbours */
    const bool together = timed || check_chance(check, 2); /* quads of items are neighbours */
    fill->terms = timed ? 256 : check_between(check, 1, 70);
    fill->items = timed ? 32 : check_between(check, 1, 50);
    const size_t gap = check_below(check, 5);
    fill->term_stride = by_items ? fill->items + gap : 1;
    fill->item_stride = by_items ? 1 : fill->terms + gap;
    fill->flip = check_chance(check, 2) ? 0x80 : 0;
    fill->is_signed = check_chance(check, 2);
    const size_t slabs = (fill->terms + 3) / 4;
    fill->pairs = !timed && together && check_chance(check, 3);
    fill->to_item = !together ? 64 * ((slabs + 15) / 16) : fill->pairs ? 8 : 4;
    fill->to_slab = !together ? 4 : fill->items * 4 + 64 * check_below(check, 2);
    const size_t bytes =
        (fill->terms - 1) * fill->term_stride + (fill->items - 1) * fill->item_stride + 1;
    uint8_t *from = check_buffer(check, "from", CHECK_INPUT, bytes, 1);
    check_fill_bytes(check, from, bytes);
    fill->from = from;
    job.to = check_outputs(check, "to",
                           together ? (slabs + 1) * fill->to_slab : fill->items * fill->to_item, 4);
    job.sums = check_outputs(check, "sums", fill->items * sizeof(int32_t), 4);
    memset(job.to.expected, 0, job.to.bytes);
    memset(job.to.actual, 0, job.to.bytes);
    memset(job.sums.expected, 7, job.sums.bytes);
    memset(job.sums.actual, 7, job.sums.bytes);
    check_describe(check, "%zu terms %zu apart, %zu items %zu apart, quads %zu and %zu apart%s",
                   fill->terms, fill->term_stride, fill->items, fill->item_stride, fill->to_slab,
                   fill->to_item, fill->pairs ? ", pairs" : "");
    if (!check_calls(check, fill_expected, fill_actual, &job, (double)(fill->terms * fill->items),
                     "byte"))
        return;
    check_same(check, &job.to, 1);
    check_same(check, &job.sums, sizeof(int32_t));
}

/* ---- Columns ----------------------------------------------------------------------------- */

struct columns_job {
    const struct qk_matmul_kernels *kernels;
    struct qk_matmul_columns_from from;
    size_t count;
    struct check_pair to;
};

/* Returns the three arrays of `count` columns, which lie one after the other. */
static struct qk_matmul_columns arrays(void *data, size_t count)
{
    int32_t *made = data;
    return (struct qk_matmul_columns){made, made + count, (float *)(void *)(made + 2 * count)};
}

static void columns_expected(void *context)
{
    struct columns_job *job = context;
    const struct qk_matmul_columns to = arrays(job->to.expected, job->count);
    scalar->columns(&job->from, job->count, &to);
}

static void columns_actual(void *context)
{
    struct columns_job *job = context;
    const struct qk_matmul_columns to = arrays(job->to.actual, job->count);
    job->kernels->columns(&job->from, job->count, &to);
}

static void check_columns(struct check *check, const void *kernels)
{
    struct columns_job job = {.kernels = kernels};
    struct qk_matmul_columns_from *from = &job.from;
    const size_t n = job.count =
        check_is_timed(check) ? QK_IGEMM_MR_MAX : check_between(check, 1, QK_IGEMM_MR_MAX);
    from->sums = integers(check, "sums", n);
    from->zero_point_each = check_chance(check, 2);
    from->zero_point_signed = check_chance(check, 2);
    uint8_t *zero_point =
        check_buffer(check, "zero_point", CHECK_INPUT, from->zero_point_each ? n : 1, 1);
    check_fill_bytes(check, zero_point, from->zero_point_each ? n : 1);
    from->zero_point = check_chance(check, 4) ? NULL : zero_point;
    from->zero_point_moved = check_chance(check, 2) ? 128 : 0;
    from->a_offset = (int32_t)check_below(check, 256) - 128;
    from->k = check_below(check, 100000);
    from->scale_each = check_chance(check, 2);
    const size_t scales = from->scale_each ? n : 1;
    float *scale = check_buffer(check, "scale", CHECK_INPUT, scales * sizeof(*scale), 4);
    for (size_t i = 0; i < scales; i++)
        scale[i] = check_float(check, 0.013F);
    from->scale = check_chance(check, 6) ? NULL : (const uint8_t *)scale;
    from->a_scale = check_float(check, 0.02F);
    from->y_scale = check_float(check, 0.5F);
    from->divides = check_chance(check, 2);
    from->c_column = check_below(check, 2);
    const int32_t *c = integers(check, "c", from->c_column ? n : 1);
    from->c = check_chance(check, 3) ? NULL : (const uint8_t *)c;
    job.to = check_outputs(check, "to", 3 * n * sizeof(int32_t), 4);
    check_describe(check, "%zu columns", n);
    if (!check_calls(check, columns_expected, columns_actual, &job, (double)n, "column"))
        return;
    float *expected = arrays(job.to.expected, n).multiplier;
    float *actual = arrays(job.to.actual, n).multiplier;
    for (size_t i = 0; i < n; i++) /* which of two NaNs is left to the compiler */
        if (expected[i] != expected[i] && actual[i] != actual[i])
            actual[i] = expected[i] = 0;
    check_same(check, &job.to, sizeof(int32_t));
}

/* ---- Finish ------------------------------------------------------------------------------ */

struct finish_job {
    const struct qk_matmul_kernels *kernels;
    struct qk_matmul_tile tile;
    struct check_pair y;
};

static void finish_expected(void *context)
{
    struct finish_job *job = context;
    job->tile.y = job->y.expected;
    scalar->finish(&job->tile);
}

static void finish_actual(void *context)
{
    struct finish_job *job = context;
    job->tile.y = job->y.actual;
    job->kernels->finish(&job->tile);
}

static void check_finish(struct check *check, const void *kernels)
{
    struct finish_job job = {.kernels = kernels};
    struct qk_matmul_tile *tile = &job.tile;
    const bool timed = check_is_timed(check);
    tile->kind = timed ? QK_MATMUL_BYTES : (enum qk_matmul_kind)check_below(check, 3);
    tile->rows = timed ? 14 : check_between(check, 1, 9);
    tile->columns = timed || check_chance(check, 3) ? QK_IGEMM_MR_MAX : check_between(check, 1, 99);
    tile->sums_stride = tile->columns + check_below(check, 3);
    tile->sums = integers(check, "sums", tile->rows * tile->sums_stride);
    tile->row_sums = integers(check, "row_sums", tile->rows);
    tile->of_columns =
        arrays(check_buffer(check, "columns", CHECK_INPUT, 3 * tile->columns * sizeof(int32_t), 4),
               tile->columns);
    for (size_t i = 0; i < tile->columns; i++) {
        tile->of_columns.zero_point[i] = (int32_t)check_below(check, 256) - 128;
        tile->of_columns.bias[i] = check_int32(check);
        tile->of_columns.multiplier[i] = timed ? 1e-7F : check_float(check, 1e-7F);
    }
    tile->c_column = check_below(check, 2);
    tile->c_row = tile->c_column ? tile->columns : 1;
    const int32_t *c = integers(check, "c", tile->rows * tile->c_row);
    tile->c = timed || check_chance(check, 2) ? NULL : (const uint8_t *)c;
    const uint8_t zero_point = (uint8_t)check_random(check);
    tile->requantize = check_chance(check, 2) ? qk_requantize_for(QK_INT8, (int8_t)zero_point)
                                              : qk_requantize_for(QK_UINT8, zero_point);
    const size_t size = tile->kind == QK_MATMUL_BYTES ? 1 : sizeof(int32_t);
    tile->y_stride = (tile->columns + check_below(check, 4)) * size;
    job.y =
        check_outputs(check, "y", (tile->rows - 1) * tile->y_stride + tile->columns * size, size);
    memset(job.y.expected, 0, job.y.bytes);
    memset(job.y.actual, 0, job.y.bytes);
    check_describe(check, "kind %d, %zu rows, %zu columns", (int)tile->kind, tile->rows,
                   tile->columns);
    if (!check_calls(check, finish_expected, finish_actual, &job,
                     (double)(tile->rows * tile->columns), "sum"))
        return;
    float *expected = job.y.expected;
    float *actual = job.y.actual;
    for (size_t i = 0; tile->kind == QK_MATMUL_FLOAT && i < job.y.bytes / sizeof(float); i++)
        if (expected[i] != expected[i] && actual[i] != actual[i])
            actual[i] = expected[i] = 0;
    check_same(check, &job.y, size);
}

/* ---- Transpose --------------------------------------------------------------------------- */

struct transpose_job {
    const struct qk_matmul_kernels *kernels;
    const int32_t *from;
    size_t rows, positions;
    struct check_pair to;
};

static void transpose_expected(void *context)
{
    struct transpose_job *job = context;
    int32_t *to = job->to.expected;
    for (size_t position = 0; position < job->positions; position++)
        for (size_t row = 0; row < job->rows; row++)
            to[position * QK_IGEMM_MR_MAX + row] = job->from[row * QK_IGEMM_NR + position];
}

static void transpose_actual(void *context)
{
    struct transpose_job *job = context;
    job->kernels->transpose(job->from, job->rows, job->positions, job->to.actual);
}

static void check_transpose(struct check *check, const void *kernels)
{
    const bool timed = check_is_timed(check);
    struct transpose_job job = {.kernels = kernels};
    job.rows = timed ? QK_IGEMM_MR_MAX : check_between(check, 1, QK_IGEMM_MR_MAX);
    job.positions = timed ? QK_IGEMM_NR : check_between(check, 1, QK_IGEMM_NR);
    job.from = integers(check, "from", job.rows * QK_IGEMM_NR);
    const size_t room = (job.positions + 3) / 4 * 4 * QK_IGEMM_MR_MAX;
    job.to = check_outputs(check, "to", room * sizeof(int32_t), 4);
    memset(job.to.expected, 0, job.to.bytes);
    memset(job.to.actual, 0, job.to.bytes);
    check_describe(check, "%zu rows, %zu positions", job.rows, job.positions);
    if (!check_calls(check, transpose_expected, transpose_actual, &job,
                     (double)(job.rows * job.positions), "sum"))
        return;
    /* Positions beyond the last one are not compared. */
    const size_t used = job.positions * QK_IGEMM_MR_MAX;
    memset((int32_t *)job.to.actual + used, 0, (room - used) * sizeof(int32_t));
    check_same(check, &job.to, sizeof(int32_t));
}

static void check_kernels(struct check *check, const char *tier,
                          const struct qk_matmul_kernels *kernels)
{
    if (!check_tier(check, tier, check_lacks(tier)))
        return;
    check_run(check, &(struct check_subject){"matmul/fill", check_fill, kernels, 3000});
    check_run(check, &(struct check_subject){"matmul/columns", check_columns, kernels, 2000});
    check_run(check, &(struct check_subject){"matmul/finish", check_finish, kernels, 3000});
    check_run(check, &(struct check_subject){"matmul/transpose", check_transpose, kernels, 1000});
}

void check_matmul(struct check *check)
{
    check_kernels(check, "scalar", &qk_matmul_kernels__scalar);
#ifdef __x86_64__
    check_kernels(check, "avx2", &qk_matmul_kernels__avx2);
    check_kernels(check, "avx512bw", &qk_matmul_kernels__avx512bw);
#elif defined(__aarch64__)
    check_kernels(check, "neon", &qk_matmul_kernels__neon);
#endif
}
