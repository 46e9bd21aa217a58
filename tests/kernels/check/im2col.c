/* Checks the kernels that are used with sgemm, im2col and requantize. They are compared with
 * definitions in this file, because the tiers share their loops. */
#include <string.h>

#include "kernels/conv/requantize.h"
#include "kernels/conv/sgemm/im2col_kernels.h"
#include "tests/kernels/check/check.h"

/* ---- im2col ------------------------------------------------------------------------------ */

struct im2col_job {
    const struct qk_im2col_kernels *kernels;
    struct qk_im2col im2col;
    struct qk_conv_geometry geometry;
    struct check_pair matrix;
};

/* Returns the element that term k of a position reads. */
static float element_at(const struct qk_im2col *job, size_t k, size_t position)
{
    const struct qk_conv_axis *row = &job->geometry->axis[QK_AXIS_ROW];
    const struct qk_conv_axis *column = &job->geometry->axis[QK_AXIS_COLUMN];
    const size_t width = (size_t)column->out, height = (size_t)row->out;
    const size_t taps = (size_t)column->kernel, tap_rows = (size_t)row->kernel;
    const size_t tap = k % job->taps;
    const int64_t i = qk_conv_input_index(row, position / width % height, tap / taps % tap_rows);
    const int64_t j = qk_conv_input_index(column, position % width, tap % taps);
    size_t plane;
    if (!qk_conv_find_plane(job->geometry, position / width / height, tap / taps / tap_rows,
                            &plane) ||
        i < 0 || i >= row->in || j < 0 || j >= column->in)
        return job->fill;
    const uint8_t *channel = job->x + k / job->taps * job->geometry->channel_size;
    return (float)qk_widen_one(job->widen, channel[(int64_t)plane + i * column->in + j]);
}

static void im2col_expected(void *context)
{
    const struct im2col_job *job = context;
    const struct qk_im2col *im2col = &job->im2col;
    float *matrix = job->matrix.expected;
    for (size_t k = 0; k < im2col->k_count; k++)
        for (size_t i = 0; i < im2col->position_count; i++)
            matrix[k * im2col->row_stride + i] =
                element_at(im2col, im2col->k_begin + k, im2col->position_begin + i);
}

static void im2col_actual(void *context)
{
    struct im2col_job *job = context;
    job->im2col.matrix = job->matrix.actual;
    job->kernels->im2col(&job->im2col);
}

/* Chooses the geometry of one axis; `wide`: an axis of the plane. */
static void choose_axis(struct check *check, struct qk_conv_desc *desc, int axis, bool wide,
                        size_t *in)
{
    static const int64_t strides[] = {1, 1, 1, 2, 2, 3, 5};
    const bool timed = check_is_timed(check);
    desc->kernel[axis] = timed ? (wide ? 3 : 1) : (int64_t)check_between(check, 1, wide ? 4 : 2);
    desc->stride[axis] = timed ? 1 : strides[check_below(check, 7)];
    desc->dilation[axis] =
        timed || !check_chance(check, 4) ? 1 : (int64_t)check_between(check, 2, 4);
    desc->pad_begin[axis] = timed ? wide : (int64_t)check_below(check, 4);
    desc->pad_end[axis] = timed ? wide : (int64_t)check_below(check, 4);
    const int64_t reach = (desc->kernel[axis] - 1) * desc->dilation[axis] + 1;
    const int64_t least = reach - desc->pad_begin[axis] - desc->pad_end[axis];
    const size_t more = timed ? 54 : check_below(check, axis == QK_AXIS_COLUMN ? 80 : wide ? 9 : 3);
    *in = (size_t)(least > 1 ? least : 1) + (timed && !wide ? 0 : more);
}

/* Sets the geometry of some channels of x. Returns how many bytes x has. */
static size_t choose_geometry(struct check *check, struct im2col_job *job, size_t channels)
{
    struct qk_conv_desc desc = {.spatial_rank = 3, .out_channels = 1, .group = 1};
    struct qk_tensor x = {.type = QK_UINT8, .rank = 5, .dims = {1, channels}};
    struct qk_error error;
    desc.group_channels = channels;
    for (int i = 0; i < QK_CONV_SPATIAL_MAX; i++)
        desc.kernel[i] = desc.stride[i] = desc.dilation[i] = 1;
    for (int i = 0; i < 3; i++)
        choose_axis(check, &desc, QK_CONV_SPATIAL_MAX - 3 + i, i > 0, &x.dims[2 + i]);
    /* Taps read the whole plane, shifted, so its rows can be joined to one line. */
    if (!check_is_timed(check) && check_chance(check, 3))
        for (int i = QK_AXIS_ROW; i <= QK_AXIS_COLUMN; i++) {
            desc.kernel[i] = 3;
            desc.stride[i] = desc.dilation[i] = desc.pad_begin[i] = desc.pad_end[i] = 1;
        }
    qk_tensor_set_count(&x);
    if (qk_conv_geometry_init(&job->geometry, &desc, &x, &error) != QK_OK)
        check_that(check, false, "the geometry is refused: %s", error.text);
    qk_conv_geometry_squeeze(&job->geometry, 1);
    job->im2col.geometry = &job->geometry;
    job->im2col.taps = 1;
    for (int i = 0; i < QK_CONV_SPATIAL_MAX; i++)
        job->im2col.taps *= (size_t)desc.kernel[i];
    return x.count;
}

static void check_im2col(struct check *check, const void *kernel)
{
    const bool timed = check_is_timed(check);
    struct im2col_job job = {.kernels = kernel};
    struct qk_im2col *im2col = &job.im2col;
    const size_t channels = timed ? 16 : check_between(check, 1, 4);
    const size_t bytes = choose_geometry(check, &job, channels);
    const size_t first = check_below(check, timed ? 1 : channels);
    const bool is_signed = check_chance(check, 2);
    im2col->widen = qk_widen_from(is_signed ? QK_INT8 : QK_UINT8, is_signed ? 0 : 128);
    im2col->fill = (float)((int)check_below(check, 256) - 128);
    const size_t terms = (channels - first) * im2col->taps, positions = job.geometry.positions;
    im2col->k_begin = timed ? 0 : check_below(check, terms);
    im2col->k_count = timed ? terms : check_between(check, 1, terms - im2col->k_begin);
    im2col->position_begin = timed || check_chance(check, 3) ? 0 : check_below(check, positions);
    im2col->position_count = timed || check_chance(check, 3)
                                 ? positions - im2col->position_begin
                                 : check_between(check, 1, positions - im2col->position_begin);
    im2col->row_stride =
        (im2col->position_count + 15) / 16 * 16 + QK_IM2COL_SLACK + 16 * check_below(check, 2);
    uint8_t *x = check_buffer(check, "x", CHECK_INPUT, bytes, 1);
    check_fill_bytes(check, x, bytes);
    im2col->x = x + first * job.geometry.channel_size;
    im2col->x_end = x + bytes;
    const size_t count = im2col->k_count * im2col->row_stride;
    job.matrix = check_outputs(check, "matrix", count * sizeof(float), 64);
    const struct qk_conv_axis *row = &job.geometry.axis[QK_AXIS_ROW];
    const struct qk_conv_axis *column = &job.geometry.axis[QK_AXIS_COLUMN];
    check_describe(check,
                   "%lld by %lld, %lld by %lld taps, strides %lld, %lld, pads %lld, %lld, terms "
                   "%zu+%zu, positions %zu+%zu",
                   (long long)row->in, (long long)column->in, (long long)row->kernel,
                   (long long)column->kernel, (long long)row->stride, (long long)column->stride,
                   (long long)row->pad, (long long)column->pad, im2col->k_begin, im2col->k_count,
                   im2col->position_begin, im2col->position_count);
    const double elements = (double)(im2col->k_count * im2col->position_count);
    if (!check_calls(check, im2col_expected, im2col_actual, &job, elements, "element"))
        return;
    float *expected = job.matrix.expected;
    const float *actual = job.matrix.actual;
    for (size_t i = 0; i < count; i++) /* the kernel may write anything after a row */
        if (i % im2col->row_stride >= im2col->position_count)
            memcpy(&expected[i], &actual[i], sizeof(float));
    check_same(check, &job.matrix, sizeof(float));
}

/* ---- Requantize -------------------------------------------------------------------------- */

struct requantize_job {
    const struct qk_im2col_kernels *kernels;
    struct qk_epilogue epilogue;
    struct qk_epilogue_floats tile;
    struct check_pair y;
};

static void requantize_expected(void *context)
{
    const struct requantize_job *job = context;
    const struct qk_epilogue_floats *tile = &job->tile;
    uint8_t *y = job->y.expected;
    for (size_t row = 0; row < tile->rows; row++)
        for (size_t column = 0; column < tile->columns; column++) {
            const size_t at = row * tile->stride + column;
            const int32_t carried = tile->carried ? tile->carried[at] : 0;
            const uint32_t sum =
                (uint32_t)(int32_t)tile->sums[at] + (uint32_t)carried + (uint32_t)tile->bias[row];
            y[row * tile->y_stride + column] =
                qk_requantize_one(job->epilogue.requantize, (int32_t)sum, tile->multiplier[row]);
        }
}

static void requantize_actual(void *context)
{
    struct requantize_job *job = context;
    job->tile.y = job->y.actual;
    job->kernels->epilogues[QK_EPILOGUE_BYTES](&job->tile);
}

static void check_requantize(struct check *check, const void *kernel)
{
    const bool timed = check_is_timed(check);
    struct requantize_job job = {.kernels = kernel};
    struct qk_epilogue_floats *tile = &job.tile;
    uint8_t zero_point;
    check_fill_bytes(check, &zero_point, 1);
    const bool y_signed = check_chance(check, 2);
    job.epilogue.requantize = y_signed ? qk_requantize_for(QK_INT8, (int8_t)zero_point)
                                       : qk_requantize_for(QK_UINT8, zero_point);
    tile->epilogue = &job.epilogue;
    tile->rows = timed ? 8 : check_between(check, 1, 5);
    tile->columns = timed ? 256 : check_index(check) % 200 + 1;
    tile->stride = tile->columns + check_below(check, 20);
    tile->y_stride = tile->columns + check_below(check, 20);
    const size_t count = (tile->rows - 1) * tile->stride + tile->columns;
    float *sums = check_buffer(check, "sums", CHECK_INPUT, count * 4, 4);
    int32_t *carried = check_buffer(check, "carried", CHECK_INPUT, count * 4, 4);
    int32_t *bias = check_buffer(check, "bias", CHECK_INPUT, tile->rows * 4, 4);
    float *multiplier = check_buffer(check, "multiplier", CHECK_INPUT, tile->rows * 4, 4);
    const unsigned shift = (unsigned)check_below(check, 25);
    const bool extreme = check_chance(check, 3);
    for (size_t i = 0; i < count; i++) {
        const int32_t sum =
            (int32_t)check_below(check, (1U << 25 >> shift) + 1) - (1 << 24 >> shift);
        sums[i] = (float)sum;
        carried[i] = extreme ? check_int32(check) : check_int32(check) >> (7 + shift) % 32;
    }
    for (size_t row = 0; row < tile->rows; row++) {
        const float halves = 0.5F * (float)(1 + check_below(check, 4));
        const float scale = (float)(1U << shift) * 0x1p-17F;
        multiplier[row] = check_float(check, check_chance(check, 2) ? halves : halves * scale);
        bias[row] = extreme ? check_int32(check) : check_int32(check) >> (7 + shift) % 32;
    }
    tile->sums = sums;
    tile->carried = check_chance(check, 2) ? carried : NULL;
    tile->bias = bias;
    tile->multiplier = multiplier;
    job.y = check_outputs(check, "y", (tile->rows - 1) * tile->y_stride + tile->columns, 1);
    check_describe(check, "%zu rows of %zu columns, to %s, zero point %d%s", tile->rows,
                   tile->columns, y_signed ? "INT8" : "UINT8", job.epilogue.requantize.zero_point,
                   tile->carried ? ", carried" : "");
    if (check_calls(check, requantize_expected, requantize_actual, &job,
                    (double)(tile->rows * tile->columns), "byte"))
        check_same(check, &job.y, 1);
}

/* ---- Tiers ------------------------------------------------------------------------------- */

static void check_kernels(struct check *check, const char *tier,
                          const struct qk_im2col_kernels *kernels)
{
    if (!check_tier(check, tier, check_lacks(tier)))
        return;
    check_run(check, &(struct check_subject){"sgemm/im2col", check_im2col, kernels, 6000});
    check_run(check, &(struct check_subject){"sgemm/requantize", check_requantize, kernels, 6000});
}

void check_sgemm(struct check *check)
{
    check_kernels(check, "scalar", &qk_im2col_kernels__scalar);
#ifdef __x86_64__
    check_kernels(check, "avx2", &qk_im2col_kernels__avx2);
    check_kernels(check, "avx512bw", &qk_im2col_kernels__avx512bw);
#endif
}
