/* Checks the kernels around integer products: fill, requantize and transpose. */
#include <string.h>

#include "kernels/conv/igemm/slab_kernels.h"
#include "kernels/conv/requantize.h"
#include "kernels/gemm/igemm.h"
#include "tests/kernels/check/check.h"

enum { QUAD = QK_IGEMM_QUAD_BYTES, NR = QK_IGEMM_NR, VECTOR = QK_IGEMM_VECTOR, ROWS_MOST = 32 };

struct subject {
    const struct qk_slab_kernels *kernels;
    size_t quad_k;
};

/* ---- Fill -------------------------------------------------------------------------------- */

struct fill_job {
    const struct subject *subject;
    struct qk_slab_fill fill;
    struct qk_window windows[4];
    struct check_pair quads;
};

static void fill_expected(void *context)
{
    struct fill_job *job = context;
    job->fill.quads = job->quads.expected;
    qk_slab_fill_scalar(job->subject->quad_k, &job->fill);
}

static void fill_actual(void *context)
{
    struct fill_job *job = context;
    job->fill.quads = job->quads.actual;
    job->subject->kernels->fill(&job->fill);
}

static int64_t choose_stride(struct check *check)
{
    static const int64_t strides[] = {1, 1, 1, 1, 2, 2, 2, 3, 4, 5, 8, 33, INT64_C(1) << 33};
    return strides[check_below(check, sizeof(strides) / sizeof(strides[0]))];
}

/* Makes the plane end with the last element that the window reads, which is often the last of a
 * whole vector. */
static struct qk_window fit_plane(struct check *check, struct qk_window window)
{
    window.row_stride = (int64_t)check_between(check, 1, 2);
    window.column_stride = (int64_t)check_between(check, 1, 4);
    if (check_chance(check, 2))
        window.columns = 16 * check_between(check, 1, 20);
    window.row_first = (int64_t)check_below(check, 3) - 1;
    window.column_first = (int64_t)check_below(check, 5) - 2;
    const int64_t rows = window.row_first + (int64_t)(window.rows - 1) * window.row_stride + 1;
    const int64_t columns =
        window.column_first + (int64_t)(window.columns - 1) * window.column_stride + 1;
    window.in_rows = rows > 1 ? rows : 1;
    window.in_columns = columns > 1 ? columns : 1;
    return window;
}

/* Returns a window that lies inside or outside of its plane, or across any edge. */
static struct qk_window choose_window(struct check *check)
{
    const bool line = check_chance(check, 3);
    struct qk_window window = {
        .in_rows = (int64_t)check_between(check, 1, 20),
        .in_columns = (int64_t)check_between(check, 1, line ? 700 : 100),
        .row_stride = choose_stride(check),
        .column_stride = choose_stride(check),
        .rows = line ? 1 : check_between(check, 1, 9),
        .columns = check_chance(check, 3) ? check_between(check, 1, line ? 600 : 150)
                                          : 1 + check_index(check) % 140,
    };
    window.row_first = (int64_t)check_below(check, (size_t)window.in_rows + 4) - 3;
    window.column_first = check_chance(check, 2)
                              ? (int64_t)check_below(check, 9) - 6
                              : (int64_t)check_below(check, (size_t)window.in_columns + 4) - 3;
    return check_chance(check, 3) ? fit_plane(check, window) : window;
}

/* Returns a padded window of a 56 by 56 plane. */
static struct qk_window timed_window(void)
{
    return (struct qk_window){.in_rows = 56,
                              .in_columns = 56,
                              .row_first = -1,
                              .column_first = -1,
                              .row_stride = 1,
                              .column_stride = 1,
                              .rows = 58,
                              .columns = 58};
}

/* Chooses what the elements of a quad read. Quads of channels read the same window of several
 * planes. Quads of columns read several windows of one plane. Some quads read different windows of
 * several planes: no caller needs that, but the contract allows it. */
static void choose_sources(struct check *check, struct fill_job *job)
{
    const size_t quad_k = job->subject->quad_k;
    const struct qk_window window = check_is_timed(check) ? timed_window() : choose_window(check);
    const bool columns = !check_is_timed(check) && check_chance(check, 2);
    const bool padding = !check_is_timed(check) && check_chance(check, 16);
    const bool together = check_chance(check, 2);
    const bool apart = check_chance(check, 3);
    const size_t plane_bytes = (size_t)(window.in_rows * window.in_columns);
    const size_t planes = columns && !check_chance(check, 8) ? 1 : check_between(check, 1, quad_k);
    const size_t slab_bytes = together ? planes * plane_bytes : plane_bytes;
    job->fill.slabs = check_is_timed(check)    ? 4
                      : check_chance(check, 2) ? 1
                                               : check_between(check, 2, 5);
    job->fill.plane_step = slab_bytes + (check_chance(check, 2) ? 0 : check_below(check, 99));
    /* Kernels may read x around the planes, but nothing before or behind x. */
    const size_t before = check_chance(check, 2) ? 0 : check_below(check, 99);
    const size_t source_step =
        together ? plane_bytes : (job->fill.slabs - 1) * job->fill.plane_step + plane_bytes;
    const size_t bytes = before + (planes - 1) * source_step +
                         (job->fill.slabs - 1) * job->fill.plane_step + plane_bytes +
                         (check_chance(check, 2) ? 0 : check_below(check, 99));
    uint8_t *x = check_buffer(check, "x", CHECK_INPUT, bytes, 1);
    check_fill_bytes(check, x, bytes);
    job->fill.x = x;
    job->fill.x_bytes = bytes;
    for (size_t k = 0; k < quad_k; k++) {
        const int64_t shift = (int64_t)k * (apart ? (int64_t)check_below(check, 7) - 3 : 1);
        job->windows[k] = window;
        if (columns)
            job->windows[k].column_first += shift;
        qk_window_fit(&job->windows[k]);
        job->fill.windows[k] = columns ? &job->windows[k] : &job->windows[0];
        job->fill.planes[k] = padding ? NULL : x + before + (k < planes ? k * source_step : 0);
    }
    if (!columns && check_chance(check, 2)) /* like the caller */
        qk_window_flatten(&job->windows[0]);
}

/* Returns a pitch. It may be less than the number of columns only if the shared columns are padding
 * on both sides of the rows. */
static size_t choose_pitch(struct check *check, const struct fill_job *job)
{
    const size_t columns = job->windows[0].columns;
    size_t shared = columns - 1;
    for (size_t k = 0; k < job->subject->quad_k; k++) {
        const struct qk_window_range inside = job->fill.windows[k]->inside_columns;
        const size_t behind = columns - inside.end;
        shared = inside.begin < shared ? inside.begin : shared;
        shared = behind < shared ? behind : shared;
    }
    if (check_is_timed(check))
        return columns - 1;
    if (shared > 0 && !check_chance(check, 4))
        return columns - check_between(check, 1, shared);
    return columns + (check_chance(check, 2) ? 0 : check_below(check, 20));
}

/* Makes the gaps after rows equal, because the kernel may write anything there. */
static void forget_gaps(const struct fill_job *job)
{
    const struct qk_window *window = &job->windows[0];
    for (size_t slab = 0; slab < job->fill.slabs; slab++)
        for (size_t row = 0; row + 1 < window->rows && window->pitch > window->columns; row++) {
            const size_t at =
                slab * job->fill.slab_bytes + (row * window->pitch + window->columns) * QUAD;
            memcpy((char *)job->quads.actual + at, (char *)job->quads.expected + at,
                   (window->pitch - window->columns) * QUAD);
        }
}

static void check_fill(struct check *check, const void *kernel)
{
    struct fill_job job = {.subject = kernel};
    const bool is_signed = check_chance(check, 2); /* x is signed; the quads are unsigned or not */
    job.fill.flip =
        job.subject->quad_k == 2 ? (is_signed ? 0x80 : 0) : check_chance(check, 2) * 0x80;
    uint8_t zero_point;
    check_fill_bytes(check, &zero_point, 1);
    job.fill.x_zero_point = is_signed ? (int8_t)zero_point : zero_point;
    choose_sources(check, &job);
    const size_t pitch = choose_pitch(check, &job);
    for (size_t k = 0; k < job.subject->quad_k; k++)
        job.windows[k].pitch = pitch;
    const struct qk_window *window = &job.windows[0];
    const size_t count = (window->rows - 1) * pitch + window->columns;
    const size_t slabs = job.fill.slabs;
    job.fill.slab_bytes = (count + (check_chance(check, 2) ? 0 : check_below(check, 40))) * QUAD;
    job.quads =
        check_outputs(check, "quads", (slabs - 1) * job.fill.slab_bytes + count * QUAD, QUAD);
    check_describe(
        check,
        "%zu slabs of %zu rows of %zu from %lld, %lld by strides %lld, %lld in a plane of %lld by "
        "%lld, pitch %zu, zero point %d",
        slabs, window->rows, window->columns, (long long)window->row_first,
        (long long)window->column_first, (long long)window->row_stride,
        (long long)window->column_stride, (long long)window->in_rows, (long long)window->in_columns,
        pitch, job.fill.x_zero_point);
    if (!check_calls(check, fill_expected, fill_actual, &job, (double)(slabs * count), "quad"))
        return;
    forget_gaps(&job);
    check_same(check, &job.quads, QUAD);
}

/* ---- Requantize -------------------------------------------------------------------------- */

struct tile_job {
    const struct subject *subject;
    struct qk_epilogue epilogue;
    struct qk_epilogue_tile tile;
    struct qk_tile_segment segments[3];
    struct check_pair y;
};

static void tile_expected(void *context)
{
    struct tile_job *job = context;
    job->tile.y = job->y.expected;
    qk_requantize_tile_scalar(&job->tile);
}

static void tile_actual(void *context)
{
    struct tile_job *job = context;
    job->tile.y = job->y.actual;
    job->subject->kernels->epilogues[QK_EPILOGUE_BYTES](&job->tile);
}

/* Computes the sums of a tile and stores them, or their bytes, anywhere: every kind of epilogue,
 * and channels that are last. */
static void any_expected(void *context)
{
    const struct tile_job *job = context;
    const struct qk_epilogue_tile *tile = &job->tile;
    const size_t bytes = job->epilogue.y_bytes;
    for (size_t row = 0; row < tile->rows; row++)
        for (size_t i = 0; i < tile->segment_count; i++) {
            size_t at = tile->segments[i].offset * tile->position_stride + row * tile->y_stride;
            for (size_t p = 0; p < NR; p++) {
                if (!(tile->segments[i].keep >> p & 1))
                    continue;
                uint32_t sum =
                    (uint32_t)tile->bias[row] +
                    (uint32_t)(tile->row_count > 0 ? tile->sums[p * tile->row_count + row]
                                                   : tile->sums[row * NR + p]);
                if (tile->w_zero_point)
                    sum -= (uint32_t)tile->w_zero_point[row] * (uint32_t)tile->column_sums[p];
                const uint8_t byte = qk_requantize_one(job->epilogue.requantize, (int32_t)sum,
                                                       tile->multiplier[row]);
                if (job->epilogue.kind == QK_EPILOGUE_INT32)
                    memcpy((uint8_t *)job->y.expected + at * bytes, &sum, sizeof(sum));
                else
                    memcpy((uint8_t *)job->y.expected + at, &byte, 1);
                at += tile->position_stride;
            }
        }
}

static void any_actual(void *context)
{
    struct tile_job *job = context;
    job->tile.y = job->y.actual;
    job->subject->kernels->any_epilogue(&job->tile);
}

/* Chooses which padded positions [begin, end) of a tile to keep: all, rows with gaps between them,
 * or any. */
static uint64_t choose_keep(struct check *check, size_t begin, size_t end, bool one)
{
    const size_t columns = check_between(check, 1, 40);
    const size_t pitch = columns + check_below(check, 6);
    const size_t kind = check_below(check, 3);
    const size_t sole = check_between(check, begin, end - 1);
    uint64_t keep = 0;
    for (size_t i = begin; i < end; i++)
        if (one ? i == sole
                : kind == 0 || (kind == 1 ? (i - begin) % pitch < columns : check_chance(check, 2)))
            keep |= UINT64_C(1) << i;
    return keep ? keep : UINT64_C(1) << begin;
}

/* Cuts the padded positions into segments, one for each image. Returns how many bytes of y they
 * need. */
static size_t choose_segments(struct check *check, struct tile_job *job)
{
    struct qk_epilogue_tile *tile = &job->tile;
    const size_t places = tile->positions;
    const bool timed = check_is_timed(check);
    const bool one = !timed && check_chance(check, 5);
    const size_t row_bytes = one ? 1 : NR + check_below(check, 50);
    const size_t image = tile->rows * row_bytes + check_below(check, 9);
    size_t begin = 0, end = 0;
    tile->segments = job->segments;
    tile->segment_count = timed ? 1 : check_between(check, 1, places < 3 ? places : 3);
    tile->y_stride = row_bytes;
    for (size_t i = 0; i < tile->segment_count; i++) {
        const size_t left = tile->segment_count - i;
        const size_t most = places - left + 1;
        const size_t last = left == 1 ? places : check_between(check, begin + 1, most);
        const uint64_t keep =
            timed ? UINT64_MAX >> (NR - places) : choose_keep(check, begin, last, one);
        job->segments[i] = (struct qk_tile_segment){keep, i * image};
        end = i * image + (tile->rows - 1) * row_bytes + (size_t)__builtin_popcountll(keep);
        begin = last;
    }
    return end;
}

/* Chooses sums of some magnitude, and a multiplier that turns them into bytes, often with ties. */
static void choose_row(struct check *check, int32_t *sums, size_t count, size_t step, int32_t *bias,
                       float *multiplier)
{
    const unsigned shift = (unsigned)check_below(check, 32);
    const bool extreme = check_chance(check, 4);
    for (size_t i = 0; i < count; i++)
        sums[i * step] =
            extreme ? check_int32(check) : (int32_t)(uint32_t)check_random(check) >> shift;
    *bias = extreme ? check_int32(check) : (int32_t)(uint32_t)check_random(check) >> shift;
    const float halves = 0.5F * (float)(1 + check_below(check, 4));
    const float scale = (float)(1U << shift) * 0x1p-24F;
    *multiplier = check_float(check, check_chance(check, 2) ? halves : halves * scale);
}

static void choose_requantize(struct check *check, struct qk_requantize *requantize)
{
    uint8_t zero_point;
    check_fill_bytes(check, &zero_point, 1);
    *requantize = check_chance(check, 2) ? qk_requantize_for(QK_INT8, (int8_t)zero_point)
                                         : qk_requantize_for(QK_UINT8, zero_point);
}

/* For `any_epilogue`: chooses the kind of y, and often that channels are last. Returns how many
 * bytes of y the tile needs if `elements` are enough otherwise. */
static size_t choose_any(struct check *check, struct tile_job *job, size_t elements)
{
    struct qk_epilogue_tile *tile = &job->tile;
    const bool sums = check_chance(check, 2);
    job->epilogue.kind = sums ? QK_EPILOGUE_INT32 : QK_EPILOGUE_BYTES;
    job->epilogue.y_bytes = sums ? sizeof(int32_t) : 1;
    tile->position_stride = 1;
    if (check_chance(check, 3))
        return elements * job->epilogue.y_bytes;
    size_t positions = 0;
    tile->y_stride = 1;
    tile->position_stride = tile->rows + check_below(check, 5);
    for (size_t i = 0; i < tile->segment_count; i++) {
        job->segments[i].offset = positions + check_below(check, 3);
        positions = job->segments[i].offset + (size_t)__builtin_popcountll(job->segments[i].keep);
    }
    return positions * tile->position_stride * job->epilogue.y_bytes;
}

/* Checks a tile. Tiles are stored row by row or, if `row_count` is not 0, position by position.
 * `any`: checks `any_epilogue`. */
static void check_tile(struct check *check, const void *kernel, size_t row_count, bool any)
{
    const bool timed = check_is_timed(check);
    struct tile_job job = {.subject = kernel};
    struct qk_epilogue_tile *tile = &job.tile;
    const size_t index = check_index(check);
    const size_t vectors = timed ? NR / VECTOR : index % (NR / VECTOR) + 1;
    const bool wide = (any || job.subject->kernels->takes_64_positions) && index % 2;
    tile->row_count = row_count;
    tile->rows = timed ? (row_count > 0 ? row_count : 6) : index / 4 % ROWS_MOST + 1;
    tile->positions = row_count == 0 ? vectors * VECTOR
                      : timed        ? 14
                                     : index / 2 % (wide ? QK_IGEMM_NR : VECTOR) + 1;
    tile->epilogue = &job.epilogue;
    choose_requantize(check, &job.epilogue.requantize);
    const size_t rows = tile->rows;
    const size_t fours = (tile->positions + 3) / 4 * 4;
    const size_t count = row_count > 0 ? fours : NR;
    int32_t *sums = check_buffer(check, "sums", CHECK_INPUT,
                                 row_count > 0 ? fours * row_count * 4 : rows * NR * 4, 4);
    int32_t *bias = check_buffer(check, "bias", CHECK_INPUT, rows * 4, 4);
    float *multiplier = check_buffer(check, "multiplier", CHECK_INPUT, rows * 4, 4);
    for (size_t row = 0; row < rows; row++)
        choose_row(check, sums + row * (row_count > 0 ? 1 : NR), count,
                   row_count > 0 ? row_count : 1, &bias[row], &multiplier[row]);
    /* One multiplier may take sums out of the range of integers; the others do not. */
    const size_t sole = check_below(check, rows);
    for (size_t row = 0, few = !timed && check_chance(check, 4); few && row < rows; row++)
        multiplier[row] = row == sole ? 0x1p12F : 0x1p-9F;
    if (!timed && check_chance(check, 2)) {
        int32_t *zero_points = check_buffer(check, "w_zero_point", CHECK_INPUT, rows * 4, 4);
        int32_t *column_sums = check_buffer(check, "column_sums", CHECK_INPUT, count * 4, 4);
        for (size_t row = 0; row < rows; row++)
            zero_points[row] = check_chance(check, 3) ? 0 : (int32_t)check_below(check, 511) - 255;
        for (size_t i = 0; i < count; i++)
            column_sums[i] = check_int32(check);
        tile->w_zero_point = zero_points;
        tile->column_sums = column_sums;
    }
    tile->sums = sums;
    tile->bias = bias;
    tile->multiplier = multiplier;
    size_t bytes = choose_segments(check, &job);
    if (any)
        bytes = choose_any(check, &job, bytes);
    job.y = check_outputs(check, "y", bytes, any ? 4 : 1);
    check_describe(check, "%zu rows, %zu positions, %zu segments, first %#llx, stride %zu, %s, %s",
                   rows, tile->positions, tile->segment_count,
                   (unsigned long long)tile->segments[0].keep, tile->y_stride,
                   job.epilogue.requantize.is_signed ? "INT8" : "UINT8",
                   tile->w_zero_point ? "zero points" : "none");
    if (check_calls(check, any ? any_expected : tile_expected, any ? any_actual : tile_actual, &job,
                    (double)(rows * tile->positions), any ? "sum" : "byte"))
        check_same(check, &job.y, 1);
}

static void check_requantize(struct check *check, const void *kernel)
{
    check_tile(check, kernel, 0, false);
}

static void check_requantize_positions(struct check *check, const void *kernel)
{
    check_tile(check, kernel, ROWS_MOST, false);
}

static void check_any(struct check *check, const void *kernel)
{
    check_tile(check, kernel, 0, true);
}

static void check_any_positions(struct check *check, const void *kernel)
{
    check_tile(check, kernel, ROWS_MOST, true);
}

/* ---- Transpose --------------------------------------------------------------------------- */

struct transpose_job {
    const struct subject *subject;
    struct qk_transpose transpose;
    struct check_pair to, sums;
};

static void transpose_expected(void *context)
{
    struct transpose_job *job = context;
    job->transpose.to = job->to.expected;
    job->transpose.sums = job->sums.expected;
    qk_transpose_scalar(&job->transpose);
}

static void transpose_actual(void *context)
{
    struct transpose_job *job = context;
    job->transpose.to = job->to.actual;
    job->transpose.sums = job->sums.actual;
    job->subject->kernels->transpose(&job->transpose);
}

/* Also checks the kernels for layouts with pairs of quads. */
static bool check_pairs(const struct qk_slab_kernels *kernels)
{
#ifdef __aarch64__
    if (kernels == &qk_slab_kernels_u8x4__neon)
        return true;
#endif
    return kernels == &qk_slab_kernels_u8x4__scalar;
}

static void check_transpose(struct check *check, const void *kernel)
{
    const bool timed = check_is_timed(check);
    struct transpose_job job = {.subject = kernel};
    struct qk_transpose *transpose = &job.transpose;
    transpose->rows = timed ? 16 : check_between(check, 1, ROWS_MOST);
    transpose->k_blocks = timed ? 2 : check_between(check, 1, 3);
    transpose->channels = timed ? 64 : check_index(check) % QK_TRANSPOSE_CHANNELS + 1;
    transpose->taps = timed                    ? 9
                      : check_chance(check, 3) ? check_between(check, 1, QK_TRANSPOSE_TAPS)
                                               : check_between(check, 1, 9);
    transpose->flip = check_chance(check, 2) ? 0x80 : 0;
    const size_t row_bytes = transpose->k_blocks * transpose->channels * transpose->taps;
    transpose->from_row_stride = row_bytes + (check_chance(check, 2) ? 0 : check_below(check, 99));
    const bool together = check_chance(check, 2); /* the quads of a row are adjacent */
    const size_t rows = transpose->rows + check_below(check, 3);
    const size_t least = (transpose->channels + 3) / 4;
    transpose->quads = together || timed ? 16 : check_between(check, least, 16);
    transpose->pairs = !together && check_pairs(job.subject->kernels) && check_chance(check, 2);
    transpose->quads += transpose->pairs ? transpose->quads % 2 : 0;
    transpose->to_row_stride = together           ? QK_TRANSPOSE_CHANNELS
                               : transpose->pairs ? 2 * QUAD
                                                  : QUAD;
    transpose->to_quad_stride = together ? QUAD : (rows + 1) * QUAD;
    transpose->to_tap_stride =
        together ? rows * QK_TRANSPOSE_CHANNELS : transpose->quads * transpose->to_quad_stride;
    const size_t from_bytes = (transpose->rows - 1) * transpose->from_row_stride + row_bytes;
    uint8_t *from = check_buffer(check, "from", CHECK_INPUT, from_bytes, 1);
    check_fill_bytes(check, from, from_bytes);
    transpose->from = from;
    const size_t steps = transpose->k_blocks * transpose->taps;
    const size_t to_bytes = (steps - 1) * transpose->to_tap_stride +
                            (transpose->rows - 1) * transpose->to_row_stride +
                            qk_transpose_quad_at(transpose, transpose->quads - 1) + QUAD;
    job.to = check_outputs(check, "to", to_bytes, together ? 64 : QUAD);
    job.sums = check_outputs(check, "sums", transpose->rows * sizeof(int32_t), sizeof(int32_t));
    check_describe(check, "%zu rows of %zu blocks of %zu channels of %zu taps, flip %#x",
                   transpose->rows, transpose->k_blocks, transpose->channels, transpose->taps,
                   transpose->flip);
    if (!check_calls(check, transpose_expected, transpose_actual, &job,
                     (double)(transpose->rows * row_bytes), "byte"))
        return;
    check_same(check, &job.to, 1);
    check_same(check, &job.sums, sizeof(int32_t));
}

/* ---- Tiers ------------------------------------------------------------------------------- */

/* Also checks the kernels for tiles by position. */
static bool check_by_position(const struct qk_slab_kernels *kernels)
{
#ifdef __x86_64__
    return kernels == &qk_slab_kernels_u8x4__avx512bw ||
           kernels == &qk_slab_kernels_u8x4__avx512vbmi || kernels == &qk_slab_kernels_u8x4__avx2;
#else
    (void)kernels;
    return false;
#endif
}

static void check_kernels(struct check *check, const char *tier,
                          const struct qk_slab_kernels *kernels, size_t quad_k)
{
    const struct subject subject = {kernels, quad_k};
    const bool words = quad_k == 2;
    if (!check_tier(check, tier, check_lacks(tier)))
        return;
    check_run(check, &(struct check_subject){words ? "slabs/fill_words" : "slabs/fill_bytes",
                                             check_fill, &subject, 12000});
    if (kernels->epilogues[QK_EPILOGUE_BYTES])
        check_run(check,
                  &(struct check_subject){"slabs/requantize", check_requantize, &subject, 8000});
    if (check_by_position(kernels))
        check_run(check, &(struct check_subject){"slabs/requantize_positions",
                                                 check_requantize_positions, &subject, 8000});
    check_run(check, &(struct check_subject){"slabs/any", check_any, &subject, 4000});
    check_run(check,
              &(struct check_subject){"slabs/any_positions", check_any_positions, &subject, 4000});
    if (kernels->transpose)
        check_run(check,
                  &(struct check_subject){"slabs/transpose", check_transpose, &subject, 4000});
}

void check_slabs(struct check *check)
{
    check_kernels(check, "scalar", &qk_slab_kernels_u8x4__scalar, 4);
#ifdef __x86_64__
    check_kernels(check, "avx2", &qk_slab_kernels_s16x2__avx2, 2);
    check_kernels(check, "avx2", &qk_slab_kernels_u8x4__avx2, 4);
    check_kernels(check, "avx512bw", &qk_slab_kernels_u8x4__avx512bw, 4);
    check_kernels(check, "avx512vbmi", &qk_slab_kernels_u8x4__avx512vbmi, 4);
#endif
#ifdef __aarch64__
    check_kernels(check, "neon", &qk_slab_kernels_u8x4__neon, 4);
#endif
}
