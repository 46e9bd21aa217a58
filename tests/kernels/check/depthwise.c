/* Checks the depthwise kernels. A plan makes their jobs, as it does for requests, from weights,
 * biases and multipliers that are drawn here. The plan runs `on_job` in place of the kernel, which
 * calls both the scalar kernel and the checked one. Shapes are drawn by class, so that every
 * special case of a kernel has its share. */
#include <string.h>

#include "kernels/conv/algorithm.h"
#include "kernels/conv/backend.h"
#include "kernels/conv/depthwise/depthwise.h"
#include "kernels/conv/requantize.h"
#include "tests/kernels/check/check.h"

/* The numbers that may be drawn for an axis: [least, most]. */
struct range {
    size_t least, most;
};

struct class
{
    const char *function;
    struct range outer;  /* elements of x on the axis before rows; 1: there is no such axis */
    struct range height; /* rows of x */
    struct range width;
    struct range kernel; /* rows of the kernel */
    bool square;         /* the kernel is square, and both axes are alike otherwise */
    bool odd;            /* only odd kernel sizes */
    struct range stride, dilation;
    struct range groups;
    size_t timed_in, timed_kernel, timed_stride; /* of both axes; timed_in 0: rows of 1 by 2000 */
};

static const struct class classes[] = {
    /* Planes so small that one vector holds a plane, such as 7 by 7. */
    {"depthwise/small",
     {1, 2},
     {1, 9},
     {1, 9},
     {1, 7},
     false,
     false,
     {1, 3},
     {1, 2},
     {1, 40},
     7,
     3,
     1},
    /* Kernels of 5 and 7, which a wide kernel computes four rows at a time. */
    {"depthwise/four_rows",
     {1, 2},
     {6, 40},
     {9, 80},
     {5, 7},
     true,
     true,
     {1, 3},
     {1, 1},
     {1, 5},
     28,
     5,
     1},
    /* Planes about as large as a vector, where a single byte decides what may be loaded. */
    {"depthwise/64_bytes",
     {1, 1},
     {5, 9},
     {7, 12},
     {3, 7},
     true,
     true,
     {1, 2},
     {1, 1},
     {1, 3},
     8,
     5,
     1},
    {"depthwise/3x3",
     {1, 1},
     {2, 40},
     {2, 70},
     {3, 3},
     true,
     true,
     {1, 2},
     {1, 1},
     {1, 20},
     56,
     3,
     1},
    /* Strides and few columns: rows of x with their padding. */
    {"depthwise/strided",
     {1, 1},
     {3, 24},
     {3, 24},
     {2, 6},
     true,
     false,
     {2, 3},
     {1, 2},
     {1, 20},
     14,
     3,
     2},
    /* Rows that are too long for a unit, so units have parts of rows. */
    {"depthwise/wide",
     {1, 1},
     {1, 30},
     {60, 500},
     {1, 9},
     false,
     false,
     {1, 3},
     {1, 2},
     {1, 2},
     112,
     5,
     2},
    /* Long rows, of whose taps many read only padding above and below x. */
    {"depthwise/few_rows",
     {1, 1},
     {1, 6},
     {32, 140},
     {3, 7},
     true,
     true,
     {1, 2},
     {1, 2},
     {1, 20},
     0,
     5,
     1},
    {"depthwise/line",
     {1, 1},
     {1, 1},
     {1, 3000},
     {1, 40},
     false,
     false,
     {1, 4},
     {1, 3},
     {1, 3},
     0,
     9,
     1},
    {"depthwise/any",
     {1, 4},
     {1, 20},
     {1, 60},
     {1, 8},
     false,
     false,
     {1, 5},
     {1, 4},
     {1, 12},
     28,
     3,
     2},
};

struct subject {
    const struct class *class;
    const struct qk_depthwise *kernel;
};

struct convolution {
    struct qk_conv conv;
    struct qk_epilogue epilogue;
    struct qk_conv_backend backend;
    struct qk_conv_tuning tuning;
    struct qk_depthwise kernel; /* the checked kernel, except that its `run` is on_job */
    struct qk_conv_geometry geometry;
    size_t x_bytes;
    struct check_pair y;
};

/* ---- Jobs -------------------------------------------------------------------------------- */

/* The arguments of on_job besides the job. */
static struct {
    struct check *check;
    const struct qk_depthwise *kernel;
    const struct check_pair *y;
    struct qk_depthwise_job job;
    bool alive; /* no job has faulted or been timed yet */
} running;

static void run_expected(void *context)
{
    struct qk_depthwise_job job = running.job;
    (void)context;
    job.y = (uint8_t *)running.y->expected + (job.y - (uint8_t *)running.y->actual);
    qk_depthwise_u8s8_1x1__scalar.run[QK_EPILOGUE_BYTES](&job);
}

static void run_actual(void *context)
{
    (void)context;
    running.kernel->run[QK_EPILOGUE_BYTES](&running.job);
}

static void on_job(const struct qk_depthwise_job *job)
{
    const double outputs = (double)(job->channels * job->multiplicity * job->rows * job->columns);
    if (!running.alive)
        return;
    running.job = *job;
    running.alive = check_calls(running.check, run_expected, run_actual, NULL,
                                outputs * (double)job->depth, "product");
    /* Compares all of y now, because a later job would overwrite bytes that this one may have
     * written too far. */
    if (running.alive)
        check_same(running.check, running.y, 1);
}

/* ---- Shapes ------------------------------------------------------------------------------ */

static int64_t draw(struct check *check, struct range range)
{
    return (int64_t)check_between(check, range.least, range.most);
}

/* Draws a dilation beyond what a vector or a byte can count, and pads by which y has one position
 * for each position of x, except for strides, and one of the taps reads x. */
static void draw_far(struct check *check, int axis, struct qk_conv_desc *desc)
{
    desc->dilation[axis] = (int64_t)32 << check_below(check, 4);
    const int64_t before = (int64_t)check_below(check, (size_t)desc->kernel[axis]);
    desc->pad_begin[axis] = before * desc->dilation[axis];
    desc->pad_end[axis] = (desc->kernel[axis] - 1 - before) * desc->dilation[axis];
}

static void draw_axis(struct check *check, const struct class *class, struct range in, int axis,
                      struct qk_conv_desc *desc, size_t *size)
{
    const int64_t kernel = draw(check, class->kernel);
    desc->kernel[axis] = class->odd ? kernel | 1 : kernel;
    desc->stride[axis] = draw(check, class->stride);
    desc->dilation[axis] = draw(check, class->dilation);
    *size = (size_t)draw(check, in);
    const int64_t reach = (desc->kernel[axis] - 1) * desc->dilation[axis] + 1;
    const bool same = check_chance(check, 2);
    desc->pad_begin[axis] = same ? reach / 2 : (int64_t)check_below(check, (size_t)reach + 1);
    desc->pad_end[axis] = same ? (reach - 1) / 2 : (int64_t)check_below(check, (size_t)reach + 1);
    const int64_t lacking = reach - (int64_t)*size - desc->pad_begin[axis] - desc->pad_end[axis];
    if (lacking > 0) /* at least one window must fit */
        desc->pad_end[axis] += lacking;
    if (check_chance(check, 50)) /* positions that read only padding */
        (check_chance(check, 2) ? desc->pad_begin : desc->pad_end)[axis] +=
            (int64_t)check_below(check, 150);
    if (in.most < 10 && check_chance(check, 8)) /* in small planes */
        draw_far(check, axis, desc);
}

static void copy_axis(struct qk_conv_desc *desc, int from, int to)
{
    desc->kernel[to] = desc->kernel[from];
    desc->stride[to] = desc->stride[from];
    desc->dilation[to] = desc->dilation[from];
    desc->pad_begin[to] = desc->pad_begin[from];
    desc->pad_end[to] = desc->pad_end[from];
}

static void draw_desc(struct check *check, const struct class *class, struct qk_conv_desc *desc,
                      size_t in[3])
{
    const int first = QK_CONV_SPATIAL_MAX - 3;
    const struct range one = {1, 1};
    *desc = (struct qk_conv_desc){.spatial_rank = 3, .group_channels = 1};
    for (int i = 0; i < QK_CONV_SPATIAL_MAX; i++)
        desc->kernel[i] = desc->stride[i] = desc->dilation[i] = 1;
    draw_axis(check, class, class->width, first + 2, desc, &in[2]);
    struct class rows = *class;
    if (class->height.most == 1)
        rows.kernel = one;
    draw_axis(check, &rows, class->height, first + 1, desc, &in[1]);
    if (class->square &&
        in[1] + (size_t)(desc->pad_begin[first + 2] + desc->pad_end[first + 2]) >=
            (size_t)((desc->kernel[first + 2] - 1) * desc->dilation[first + 2] + 1)) {
        copy_axis(desc, first + 2, first + 1);
        if (check_chance(check, 8))
            desc->stride[first + 1] = draw(check, class->stride);
    }
    struct class outer = *class;
    outer.kernel = (struct range){1, class->outer.most > 2 ? 3 : class->outer.most};
    outer.stride = outer.dilation = class->outer.most > 2 ? (struct range){1, 2} : one;
    in[0] = 1;
    if (class->outer.most > 1 && check_chance(check, 2))
        draw_axis(check, &outer, class->outer, first, desc, &in[0]);
    desc->group = (size_t)draw(check, class->groups);
    desc->out_channels = desc->group * (check_chance(check, 3) ? check_between(check, 2, 4) : 1);
}

static void timed_desc(const struct class *class, struct qk_conv_desc *desc, size_t in[3])
{
    const int first = QK_CONV_SPATIAL_MAX - 3;
    *desc = (struct qk_conv_desc){
        .spatial_rank = 3, .group_channels = 1, .group = 64, .out_channels = 64};
    for (int i = 0; i < QK_CONV_SPATIAL_MAX; i++)
        desc->kernel[i] = desc->stride[i] = desc->dilation[i] = 1;
    for (int i = 1; i < 3; i++) {
        const bool line = class->timed_in == 0;
        in[i] = line ? (i == 1 ? 1 : 2000) : class->timed_in;
        desc->kernel[first + i] = line && i == 1 ? 1 : (int64_t) class->timed_kernel;
        desc->stride[first + i] = (int64_t) class->timed_stride;
        desc->pad_begin[first + i] = desc->pad_end[first + i] = desc->kernel[first + i] / 2;
    }
    in[0] = 1;
}

/* ---- Operands ---------------------------------------------------------------------------- */

/* Draws extreme parameters of the output, but often such that results fall between the ends of the
 * range. */
static void draw_output(struct check *check, size_t depth, bool extreme, int32_t *bias,
                        float *multiplier)
{
    const float scale = 4.0F / (float)(depth * 128);
    *bias = extreme ? check_int32(check)
                    : (int32_t)check_below(check, 128 * 255 * depth) - (int32_t)(64 * 255 * depth);
    const float ordinary = scale * 0.03125F * (float)(1 + check_below(check, 64));
    *multiplier = check_float(check, check_chance(check, 8) ? 0.5F : ordinary);
}

static void draw_weights(struct check *check, struct convolution *to)
{
    struct qk_conv *conv = &to->conv;
    const size_t outputs = conv->desc.out_channels, count = outputs * conv->depth;
    uint8_t *weights = check_buffer(check, "weights", CHECK_INPUT, count + QK_DEPTHWISE_BYTES, 1);
    int32_t *zero_points = check_buffer(check, "w_zero_point", CHECK_INPUT, outputs * 4, 4);
    int32_t *bias = check_buffer(check, "bias", CHECK_INPUT, outputs * 4, 4);
    float *multiplier = check_buffer(check, "multiplier", CHECK_INPUT, outputs * 4, 4);
    const bool centred = !check_is_timed(check) && check_chance(check, 3);
    const bool extreme = check_chance(check, 4);
    check_fill_bytes(check, weights, count);
    bool any = false;
    for (size_t m = 0; m < outputs; m++) {
        uint8_t byte;
        check_fill_bytes(check, &byte, 1);
        zero_points[m] = centred ? (int8_t)byte : 0;
        any = any || zero_points[m] != 0;
        draw_output(check, conv->depth, extreme, &bias[m], &multiplier[m]);
    }
    conv->depthwise = (struct qk_conv_depthwise){weights, zero_points, any};
    conv->bias = bias;
    conv->multiplier = multiplier;
    to->epilogue.multiplier = multiplier;
}

static void draw_types(struct check *check, struct qk_conv *conv, struct qk_epilogue *epilogue)
{
    uint8_t bytes[2];
    check_fill_bytes(check, &bytes[0], 1);
    check_fill_bytes(check, &bytes[1], 1);
    conv->x_type = check_chance(check, 2) ? QK_INT8 : QK_UINT8;
    conv->x_zero_point = conv->x_type == QK_INT8 ? (int8_t)bytes[0] : bytes[0];
    *epilogue =
        (struct qk_epilogue){.y_type = check_chance(check, 2) ? QK_INT8 : QK_UINT8, .y_bytes = 1};
    epilogue->requantize = qk_requantize_for(
        epilogue->y_type, epilogue->y_type == QK_INT8 ? (int8_t)bytes[1] : bytes[1]);
}

/* ---- A convolution ----------------------------------------------------------------------- */

static void *alloc(void *context, size_t bytes)
{
    void *begin = check_buffer(context, "memory", CHECK_INPUT, bytes, 64);
    check_forget(begin, bytes);
    return begin;
}

/* Draws convolutions until the kernel supports one. */
static void draw_convolution(struct check *check, const struct subject *subject,
                             struct convolution *to, struct qk_tensor *x)
{
    struct qk_conv *conv = &to->conv;
    struct qk_error error;
    do {
        size_t in[3];
        if (check_is_timed(check))
            timed_desc(subject->class, &conv->desc, in);
        else
            draw_desc(check, subject->class, &conv->desc, in);
        const size_t images = check_chance(check, 4) ? 2 : 1;
        *x = (struct qk_tensor){.rank = 5, .dims = {images, conv->desc.group, in[0], in[1], in[2]}};
        qk_tensor_set_count(x);
        conv->depth = 1;
        for (int i = 0; i < QK_CONV_SPATIAL_MAX; i++)
            conv->depth *= (size_t)conv->desc.kernel[i];
    } while (!qk_conv_is_depthwise(conv) ||
             qk_conv_geometry_init(&to->geometry, &conv->desc, x, &error) != QK_OK);
    draw_types(check, conv, &to->epilogue);
    x->type = conv->x_type;
}

static void describe(struct check *check, const struct convolution *of, const struct qk_tensor *x)
{
    const struct qk_conv_desc *desc = &of->conv.desc;
    const int r = QK_AXIS_ROW, c = QK_AXIS_COLUMN;
    check_describe(
        check,
        "[%zu, %zu, %zu, %zu, %zu] to %zu channels, kernel %lld %lld %lld, strides %lld "
        "%lld, dilations %lld %lld, pads %lld %lld, %lld %lld%s",
        x->dims[0], x->dims[1], x->dims[2], x->dims[3], x->dims[4], desc->out_channels,
        (long long)desc->kernel[r - 1], (long long)desc->kernel[r], (long long)desc->kernel[c],
        (long long)desc->stride[r], (long long)desc->stride[c], (long long)desc->dilation[r],
        (long long)desc->dilation[c], (long long)desc->pad_begin[r], (long long)desc->pad_begin[c],
        (long long)desc->pad_end[r], (long long)desc->pad_end[c],
        of->conv.depthwise.any_zero_point ? ", zero points" : "");
}

static void check_jobs(struct check *check, const void *kernel)
{
    const struct subject *subject = kernel;
    struct convolution of = {.kernel = *subject->kernel};
    struct qk_tensor x;
    struct qk_plan plan = {0};
    of.kernel.run[QK_EPILOGUE_BYTES] = on_job;
    of.backend.depthwise = &of.kernel;
    of.conv.backend = &of.backend;
    of.conv.tuning = &of.tuning;
    of.tuning.cycles_per_ns = 3;
    of.conv.algorithm = &qk_conv_algorithm_depthwise;
    draw_convolution(check, subject, &of, &x);
    draw_weights(check, &of);
    uint8_t *data = check_buffer(check, "x", CHECK_INPUT, x.count, 1);
    check_fill_bytes(check, data, x.count);
    plan.outputs[0].count = of.geometry.images * of.conv.desc.out_channels * of.geometry.positions;
    of.tuning.unit_ns = check_chance(check, 3) ? 1000 : 100000; /* also units of few channels */
    of.y = check_outputs(check, "y", plan.outputs[0].count, 1);
    describe(check, &of, &x);
    const struct qk_conv_plan_args args = {
        .conv = &of.conv, .epilogue = &of.epilogue, .geometry = &of.geometry};
    if (!of.conv.algorithm->plan(&args, (struct qk_memory){alloc, check}, &plan)) {
        check_that(check, false, "there is no plan");
        return;
    }
    void *workspace = check_buffer(check, "workspace", CHECK_OUTPUT, plan.workspace_bytes, 64);
    const void *const inputs[QK_INPUT_COUNT_MAX] = {data};
    void *const outputs[QK_OUTPUT_COUNT_MAX] = {of.y.actual};
    running.check = check;
    running.kernel = subject->kernel;
    running.y = &of.y;
    running.alive = true;
    /* As all of y is compared after each unit, many units of a large y would take minutes. */
    const size_t most = 4000000000 / (plan.outputs[0].count + 1) + 1;
    plan.run(&plan, inputs, outputs, workspace, 0, plan.unit_count < most ? plan.unit_count : most);
}

/* ---- Sums -------------------------------------------------------------------------------- */

struct sum_job {
    const struct qk_depthwise *kernel;
    const uint8_t *weights;
    size_t channels, depth;
    struct check_pair sums;
};

static void sum_expected(void *context)
{
    const struct sum_job *job = context;
    qk_depthwise_u8s8_1x1__scalar.sum(job->weights, job->channels, job->depth, job->sums.expected);
}

static void sum_actual(void *context)
{
    const struct sum_job *job = context;
    job->kernel->sum(job->weights, job->channels, job->depth, job->sums.actual);
}

static void check_sum(struct check *check, const void *kernel)
{
    const struct subject *subject = kernel;
    const bool timed = check_is_timed(check);
    struct sum_job job = {.kernel = subject->kernel};
    job.channels = timed ? 256 : check_between(check, 1, 40);
    job.depth = timed                     ? 9
                : check_chance(check, 32) ? check_between(check, 141, 3000)
                                          : check_index(check) % 140 + 1;
    const size_t count = job.channels * job.depth;
    uint8_t *weights = check_buffer(check, "weights", CHECK_INPUT, count + QK_DEPTHWISE_BYTES, 1);
    check_fill_bytes(check, weights, count);
    job.weights = weights;
    job.sums = check_outputs(check, "sums", job.channels * sizeof(int32_t), sizeof(int32_t));
    check_describe(check, "%zu channels of %zu weights", job.channels, job.depth);
    if (check_calls(check, sum_expected, sum_actual, &job, (double)count, "weight"))
        check_same(check, &job.sums, sizeof(int32_t));
}

/* ---- Tiers ------------------------------------------------------------------------------- */

static void check_kernel(struct check *check, const char *tier, const struct qk_depthwise *kernel)
{
    if (!check_tier(check, tier, check_lacks(tier)))
        return;
    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
        const struct subject subject = {&classes[i], kernel};
        check_run(check, &(struct check_subject){classes[i].function, check_jobs, &subject, 2000});
    }
    const struct subject subject = {.kernel = kernel};
    check_run(check, &(struct check_subject){"depthwise/sum", check_sum, &subject, 3000});
}

void check_depthwise(struct check *check)
{
    check_kernel(check, "scalar", &qk_depthwise_u8s8_1x1__scalar);
#ifdef __x86_64__
    check_kernel(check, "avx2", &qk_depthwise_s16s16_1x32__avx2);
    check_kernel(check, "avxvnni", &qk_depthwise_u8s8_1x32__avxvnni);
    check_kernel(check, "avx512vnni", &qk_depthwise_u8s8_1x64__avx512vnni);
    check_kernel(check, "avx512vbmi", &qk_depthwise_u8s8_1x64__avx512vbmi);
#endif
#ifdef __aarch64__
    check_kernel(check, "neon", &qk_depthwise_s8s8_1x32__neon);
    check_kernel(check, "dotprod", &qk_depthwise_s8s8_1x32__dotprod);
#endif
}
