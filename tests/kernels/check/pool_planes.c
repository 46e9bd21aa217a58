/* Checks the kernels of planes, which pool many windows in a call, against the scalar ones. */
#include <string.h>

#include "kernels/pool/planes.h"
#include "tests/kernels/check/check.h"

enum function { MAX_PLANES, AVERAGE_PLANES, SUM_PLANES };

struct subject {
    const struct qk_pool_kernels *kernels, *reference;
    enum function function;
    size_t is_signed;
};

struct job {
    struct subject subject;
    struct qk_pool_planes planes;
    struct qk_pool_average average;
    struct qk_pool_band band;
    size_t size; /* of a plane, for sums */
    uint8_t *scratch;
    struct check_pair y;
};

static void run(struct job *job, const struct qk_pool_kernels *kernels, void *y)
{
    struct qk_pool_band band = job->band;
    band.y = y;
    if (job->subject.function == MAX_PLANES)
        kernels->max_planes[job->subject.is_signed](&job->planes, &band, job->scratch);
    else if (job->subject.function == AVERAGE_PLANES)
        kernels->average_planes(&job->planes, &job->average, &band, (float *)job->scratch);
    else
        kernels->sum_planes(band.x, band.x_bytes, band.count, job->size, job->average.flip, y);
}

static void run_expected(void *context)
{
    struct job *job = context;
    run(job, job->subject.reference, job->y.expected);
}

static void run_actual(void *context)
{
    struct job *job = context;
    run(job, job->subject.kernels, job->y.actual);
}

static void set_out(struct check *check, struct qk_pool_axis *axis)
{
    const int64_t left =
        axis->in + (axis->pad > 0 ? 2 : 1) * axis->pad - (axis->kernel - 1) * axis->dilation - 1;
    axis->out = left < 0 ? 1 : left / axis->stride + 1;
    if (!check_is_timed(check) && check_chance(check, 8)) /* ceil_mode, or SAME pads */
        axis->out++;
}

/* Makes an axis whose kernel and stride go through all small numbers, case by case. */
static struct qk_pool_axis make_axis(struct check *check, size_t kernel, size_t stride)
{
    const bool timed = check_is_timed(check);
    struct qk_pool_axis axis = {
        .in = timed ? 32 : (int64_t)check_between(check, 1, check_chance(check, 4) ? 150 : 40),
        .kernel = timed ? 3 : (int64_t)kernel + 1,
        .stride = timed ? 1 : (int64_t)stride + 1,
        .dilation = timed || !check_chance(check, 8) ? 1 : (int64_t)check_between(check, 1, 4),
    };
    if (!timed && check_chance(check, 20))
        axis.kernel = (int64_t)check_between(check, 1, QK_POOL_KERNEL_MAX);
    if (!timed && check_chance(check, 20))
        axis.stride = (int64_t)check_between(check, 1, QK_POOL_STRIDE_MAX);
    if (axis.kernel > 1)
        axis.pad = timed ? 1 : (int64_t)check_below(check, (size_t)axis.kernel);
    if (!timed && check_chance(check, 20)) /* SAME pads may skip elements */
        axis.pad = -(int64_t)check_below(check, (size_t)axis.in);
    set_out(check, &axis);
    return axis;
}

/* Gives the axis a window that is common in networks. */
static void set_common(struct check *check, struct qk_pool_axis *axis, size_t number)
{
    static const int64_t windows[][3] = {{2, 2, 0}, {3, 1, 1}, {3, 2, 1}, {3, 2, 0}, {3, 1, 0}};
    const int64_t *window = windows[number % (sizeof(windows) / sizeof(windows[0]))];
    axis->kernel = window[0];
    axis->stride = window[1];
    axis->pad = window[2];
    axis->dilation = 1;
    set_out(check, axis);
}

static const float *find_scales(struct check *check)
{
    static const float scales[][2] = {
        {0.02F, 0.03F},
        {0.02F, 0.02F},
        {1, 1},
        {0.0078125F, 0.0625F},
        {0x1p-30F, 1},
        {1000.0F, 0.0011F},
        {0.3F, 0x1p30F},
        {0x1.fffffep-3F, 0x1.fffffep-5F},
        {0.05F, 0.07F},
        {0x1p-30F, 0x1p-30F},
        {0x1p30F, 0x1p10F},
    };
    return scales[check_below(check, sizeof(scales) / sizeof(scales[0]))];
}

static void make_average(struct check *check, struct job *job)
{
    const float *scales = find_scales(check);
    const bool flips = check_chance(check, 2);
    const float y_scale = scales[1] * (check_chance(check, 2) ? 1.1F : 1);
    job->average = (struct qk_pool_average){
        .flip = flips ? 0x80 : 0,
        .x_zero = (int32_t)check_below(check, 256),
        .x_scale = scales[0] * (check_chance(check, 2) ? 1.001F : 1),
        .y_scale = y_scale > 0x1p30F ? 0x1p30F : y_scale,
        .y_zero = (float)check_below(check, 256) - (flips ? 128.0F : 0.0F),
        .y_min = flips ? -128.0F : 0.0F,
        .y_max = flips ? 127.0F : 255.0F,
    };
    job->average.y_reciprocal = 1 / job->average.y_scale;
}

static void make_band(struct check *check, struct job *job, size_t size)
{
    const bool timed = check_is_timed(check);
    struct qk_pool_band *band = &job->band;
    const size_t bytes = band->count * size;
    band->x_bytes = bytes + (timed || check_chance(check, 2) ? 0 : check_below(check, 100));
    band->x_before = timed || check_chance(check, 2) ? 0 : check_below(check, 100);
    uint8_t *x = check_buffer(check, "x", CHECK_INPUT, band->x_before + band->x_bytes, 1);
    check_fill_bytes(check, x, band->x_before + band->x_bytes);
    band->x = x + band->x_before;
}

/* Makes scratch memory that holds what another call has left there, aligned as a run's is. */
static uint8_t *make_scratch(struct check *check, size_t bytes)
{
    uint8_t *scratch = check_scratch(check, bytes + 64);
    scratch += (64 - (uintptr_t)scratch % 64) % 64;
    memset(scratch, 0xFF, bytes); /* NaN */
    return scratch;
}

static void check_windows(struct check *check, struct job *job)
{
    const bool timed = check_is_timed(check);
    const size_t index = check_index(check);
    struct qk_pool_geometry geometry = {
        .axis = {{.in = 1, .out = 1, .kernel = 1, .stride = 1, .dilation = 1},
                 make_axis(check, index % 7, index / 49 % 3),
                 make_axis(check, index / 7 % 7, index / 147 % 3)},
        .groups = 1,
        .inner = 1,
    };
    const struct qk_pool_axis *row = &geometry.axis[1];
    const struct qk_pool_axis *column = &geometry.axis[2];
    const size_t common = check_below(check, 5);
    if (!timed && check_chance(check, 3))
        for (int i = 1; i <= 2; i++)
            set_common(check, &geometry.axis[i], common + (check_chance(check, 8) ? 1 : 0));
    struct qk_pool_planes *planes = &job->planes;
    struct qk_pool_band *band = &job->band;
    const bool fits = qk_pool_planes_init(planes, &geometry, job->subject.function != MAX_PLANES);
    check_that(check,
               fits || column->pad < -QK_POOL_REACH_MAX || row->pad < -QK_POOL_REACH_MAX ||
                   row->kernel > 7 || row->dilation > 1,
               "refused as planes");
    if (!fits)
        return;
    if (check_chance(check, 3))
        planes->divisor = (float)(row->kernel * column->kernel);
    band->count = timed ? 16 : check_between(check, 1, check_chance(check, 8) ? 40 : 4);
    band->end = planes->band;
    if (planes->band < (size_t)row->out || (!timed && check_chance(check, 4))) {
        band->count = 1;
        band->begin = check_below(check, (size_t)row->out);
        band->end = check_between(check, band->begin + 1, (size_t)row->out);
        if (band->end - band->begin > planes->band)
            band->end = band->begin + planes->band;
    }
    make_band(check, job, (size_t)row->in * (size_t)column->in);
    job->scratch = make_scratch(check, planes->scratch);
    job->y =
        check_outputs(check, "y", band->count * (band->end - band->begin) * (size_t)column->out, 1);
    check_describe(check,
                   "%zu planes, rows %zu to %zu; in %dx%d, kernel %dx%d, stride %dx%d, dilation "
                   "%dx%d, pad %dx%d, divisor %g, scales %a %a, flip %d",
                   band->count, band->begin, band->end, (int)row->in, (int)column->in,
                   (int)row->kernel, (int)column->kernel, (int)row->stride, (int)column->stride,
                   (int)row->dilation, (int)column->dilation, (int)row->pad, (int)column->pad,
                   (double)planes->divisor, (double)job->average.x_scale,
                   (double)job->average.y_scale, job->average.flip);
}

static void check_sums(struct check *check, struct job *job)
{
    const bool timed = check_is_timed(check);
    job->size = timed ? 1024 : check_between(check, 1, check_chance(check, 2) ? 300 : 70);
    job->band.count = timed ? 64 : check_between(check, 1, 20);
    make_band(check, job, job->size);
    job->y = check_outputs(check, "sums", job->band.count * 4, 4);
    check_describe(check, "%zu planes of %zu bytes, flip %d", job->band.count, job->size,
                   job->average.flip);
}

static void check_function(struct check *check, const void *kernel)
{
    struct job job = {.subject = *(const struct subject *)kernel};
    const bool sums = job.subject.function == SUM_PLANES;
    make_average(check, &job);
    if (sums)
        check_sums(check, &job);
    else
        check_windows(check, &job);
    if (!job.y.expected)
        return;
    const double count = sums ? (double)(job.band.count * job.size) : (double)job.y.bytes;
    if (check_calls(check, run_expected, run_actual, &job, count, "element"))
        check_same(check, &job.y, sums ? 4 : 1);
}

static void check_kernels(struct check *check, const char *tier,
                          void (*init)(struct qk_pool_kernels *kernels))
{
    static const struct {
        const char *name;
        enum function function;
        size_t is_signed;
    } functions[] = {
        {"pool/max_planes_u8", MAX_PLANES, 0},
        {"pool/max_planes_s8", MAX_PLANES, 1},
        {"pool/average_planes", AVERAGE_PLANES, 0},
        {"pool/sum_planes", SUM_PLANES, 0},
    };
    struct qk_pool_kernels kernels;
    struct qk_pool_kernels reference;
    if (!check_tier(check, tier, check_lacks(tier)))
        return;
    qk_pool_init_scalar(&reference);
    init(&kernels);
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        const struct subject subject = {&kernels, &reference, functions[i].function,
                                        functions[i].is_signed};
        check_run(check,
                  &(struct check_subject){functions[i].name, check_function, &subject, 2000});
    }
}

void check_pool_planes(struct check *check)
{
    check_kernels(check, "scalar", qk_pool_init_scalar);
#ifdef __x86_64__
    check_kernels(check, "avx2", qk_pool_init_avx2);
    check_kernels(check, "avx512bw", qk_pool_init_avx512bw);
#elif defined(__aarch64__)
    check_kernels(check, "neon", qk_pool_init_neon);
#endif
}
