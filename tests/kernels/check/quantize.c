/* Checks the kernels of quantization against the scalar one, for each type of y. */
#include <math.h>
#include <string.h>

#include "kernels/element/float.h"
#include "kernels/quantize/quantizer.h"
#include "tests/kernels/check/check.h"

struct subject {
    const struct qk_quantize_kernels *kernels;
    enum qk_type y_type;
    enum qk_type
        types; /* types of x, y_scale and the division; QK_NONE: any, or FP32 in timed cases */
};

struct job {
    const struct qk_quantize_kernels *kernels;
    struct qk_quantizer quantizer;
    struct qk_quantize_args args;
    struct check_pair y;
};

static void run_expected(void *context)
{
    struct job *job = context;
    job->args.span.y = job->y.expected;
    qk_quantize_scalar(&job->args);
}

static void run_actual(void *context)
{
    struct job *job = context;
    job->args.span.y = job->y.actual;
    job->kernels->run(&job->args);
    job->kernels->finish();
}

/* ---- Cases ------------------------------------------------------------------------------- */

/* Chooses types of x, scale and precision that an operator allows together. Since opset 23 the
 * scale's type is the precision. */
static void choose_types(struct check *check, struct job *job, const struct subject *subject)
{
    const enum qk_type y_type = subject->y_type;
    static const enum qk_type x_types[] = {QK_FP32, QK_FP16, QK_BF16, QK_INT32};
    static const enum qk_type precisions[] = {QK_FP32, QK_FP16, QK_BF16};
    enum qk_type x_type = x_types[check_below(check, 4)];
    enum qk_type scale_type = check_chance(check, 2) ? x_type : x_types[check_below(check, 4)];
    enum qk_type precision = check_chance(check, 4) ? precisions[check_below(check, 3)] : QK_NONE;
    if (precision == QK_NONE && scale_type != QK_INT32 && check_chance(check, 2))
        precision = scale_type;
    if (subject->types != QK_NONE || check_is_timed(check))
        x_type = scale_type = precision = subject->types != QK_NONE ? subject->types : QK_FP32;
    qk_quantizer_init(&job->quantizer, x_type, scale_type, y_type, precision,
                      check_chance(check, 2));
    job->args = (struct qk_quantize_args){
        .x_type = x_type,
        .y_type = y_type,
        .division = job->quantizer.division,
        .narrow = qk_type_info(y_type)->kind == QK_KIND_FLOAT ? &job->quantizer.narrow : NULL,
        .span = {.block = SIZE_MAX},
    };
}

/* Returns a count that fills whole bytes of y or, if y is streamed, whole lines and chunks. */
static size_t choose_count(struct check *check, const struct qk_span *span, unsigned bits)
{
    const size_t line = 512 / bits;
    const size_t unit = span->stream ? (line > QK_QUANTIZE_CHUNK ? line : QK_QUANTIZE_CHUNK)
                        : bits < 8   ? 8 / bits
                                     : 1;
    const size_t least = QK_QUANTIZE_CHUNK;
    const size_t count = check_chance(check, 6)   ? check_between(check, least, 2000)
                         : check_chance(check, 3) ? check_between(check, 1, 6) * least
                                                  : least + check_index(check) % 200;
    return (count + unit - 1) / unit * unit;
}

/* Returns how many parameters there are. */
static size_t choose_blocks(struct check *check, struct qk_span *span)
{
    static const size_t common[] = {SIZE_MAX, 1, 16, 32, 64, 128, 256, 48, 80, 192};
    span->block = check_chance(check, 3)
                      ? check_between(check, QK_BLOCK_MIN, 400)
                      : common[check_below(check, sizeof(common) / sizeof(common[0]))];
    if (span->block == SIZE_MAX)
        return 1;
    span->done = check_chance(check, 2) ? 0 : check_below(check, span->block);
    const size_t blocks = (span->done + span->count - 1) / span->block + 1;
    if (span->block == 1 || check_chance(check, 2))
        return blocks;
    span->period = check_between(check, 1, 5);
    span->p = check_below(check, span->period);
    return span->period;
}

static float rounded(enum qk_division division, float value)
{
    if (division == QK_DIVISION_FP16)
        return qk_float_decode(QK_FP16, qk_fp16_round(value));
    if (division == QK_DIVISION_BF16)
        return qk_float_decode(QK_BF16, qk_bf16_round(value));
    return value;
}

static const void *make_scales(struct check *check, enum qk_division division, size_t count,
                               float ordinary)
{
    uint32_t *scales = check_buffer(check, "scales", CHECK_INPUT, count * 4, 4);
    const bool plain = check_chance(check, 3) || check_is_timed(check);
    const bool divisors = check_chance(check, 2); /* all scales are different and ordinary */
    for (size_t i = 0; i < count; i++) {
        const float other = divisors
                                ? ordinary * (0.5F + (float)check_below(check, 1U << 24) * 0x1p-20F)
                                : check_float(check, ordinary);
        const float value = rounded(division, plain ? ordinary : other);
        int32_t integer = check_int32(check);
        if (division == QK_DIVISION_FP64_INTEGER && plain)
            integer = (int32_t)check_between(check, 1, 100);
        if (division == QK_DIVISION_FP64_INTEGER)
            memcpy(&scales[i], &integer, 4);
        else
            memcpy(&scales[i], &value, 4);
    }
    return scales;
}

/* Makes the reciprocals that a plan computes if all scales are divisors. */
static const void *make_reciprocals(struct check *check, const struct qk_quantize_args *args,
                                    size_t count)
{
    const float *scales = args->span.scales;
    if (!qk_quantize_has_products(args->x_type, args->division))
        return NULL;
    for (size_t i = 0; i < count; i++)
        if (!qk_is_divisor(scales[i]))
            return NULL;
    float *reciprocals = check_buffer(check, "offsets", CHECK_INPUT, count * 4, 4);
    for (size_t i = 0; i < count; i++)
        reciprocals[i] = 1 / scales[i];
    return reciprocals;
}

/* Makes zero points: integers in the range of y, or values of a float4. */
static const void *make_zeros(struct check *check, const struct qk_type_info *y, size_t count)
{
    uint32_t *zeros = check_buffer(check, "zeros", CHECK_INPUT, count * 4, 4);
    for (size_t i = 0; i < count; i++) {
        const size_t range = (size_t)(y->max - y->min) + 1;
        const size_t at = check_chance(check, 3) ? (check_chance(check, 2) ? 0 : range - 1)
                                                 : check_below(check, range);
        const int32_t integer = (int32_t)(y->min + (int64_t)at);
        const float value = qk_float_decode(QK_FP4E2M1, (uint32_t)check_below(check, 16));
        if (y->kind == QK_KIND_FLOAT)
            memcpy(&zeros[i], &value, 4);
        else
            memcpy(&zeros[i], &integer, 4);
    }
    return zeros;
}

/* Makes x from multiples and halves of the most frequent scales, so that there are ties, and from
 * extremes. */
static const void *make_x(struct check *check, enum qk_type type, size_t count, float scale)
{
    const size_t bytes = count * qk_type_info(type)->bits / 8;
    const unsigned magnitude = (unsigned)check_below(check, 18);
    uint8_t *x = check_buffer(check, "x", CHECK_INPUT, bytes, 1);
    const bool timed = check_is_timed(check); /* no subnormal numbers, because these are slow */
    if (check_chance(check, 4))
        check_fill_bytes(check, x, bytes);
    for (size_t i = 0; i < count; i++) {
        const int steps = (int)check_below(check, 2U << magnitude) - (1 << magnitude);
        const float step = (float)steps * 0.5F * scale;
        const float value = timed ? step : check_float(check, step);
        const int32_t integer = check_int32(check);
        const uint16_t half = type == QK_FP16 ? qk_fp16_round(value) : qk_bf16_round(value);
        if (type == QK_FP32)
            memcpy(x + i * 4, &value, 4);
        else if (type == QK_INT32)
            memcpy(x + i * 4, &integer, 4);
        else if (timed || !check_chance(check, 8)) /* any bits */
            memcpy(x + i * 2, &half, 2);
    }
    return x;
}

static void check_type(struct check *check, const void *kernel)
{
    const struct subject *subject = kernel;
    const struct qk_type_info *y = qk_type_info(subject->y_type);
    const bool timed = check_is_timed(check);
    struct job job = {.kernels = subject->kernels};
    choose_types(check, &job, subject);
    struct qk_quantize_args *args = &job.args;
    struct qk_span *span = &args->span;
    span->stream = !timed && check_chance(check, 4);
    span->count = timed ? 8192 : choose_count(check, span, y->bits);
    const size_t blocks = timed ? 1 : choose_blocks(check, span);
    const float scale = check_chance(check, 2) ? 0.25F : 0.0117F;
    const bool is_float8 = y->kind == QK_KIND_FLOAT && y->bits == 8;
    span->scales = make_scales(check, args->division, blocks, scale);
    span->x = make_x(check, args->x_type, span->count, rounded(args->division, scale));
    if (!is_float8 && !check_chance(check, 3))
        span->zeros = make_zeros(check, y, blocks);
    if (check_chance(check, 2))
        span->offsets = make_reciprocals(check, args, blocks);
    job.y = check_outputs(check, "y", span->count * y->bits / 8,
                          span->stream    ? 64
                          : y->bits == 16 ? 2
                                          : 1);
    check_describe(check,
                   "%zu elements of %s, division %d, block %zd, done %zu, period %zu, "
                   "first %zu%s%s%s",
                   span->count, qk_type_info(args->x_type)->name, (int)args->division, span->block,
                   span->done, span->period, span->p, span->zeros ? ", zeros" : "",
                   span->offsets ? ", reciprocals" : "", span->stream ? ", streamed" : "");
    if (check_calls(check, run_expected, run_actual, &job, (double)span->count, "element"))
        check_same(check, &job.y, y->bits == 16 ? 2 : 1);
}

/* ---- Tiers ------------------------------------------------------------------------------- */

static void check_kernels(struct check *check, const char *tier,
                          void (*init)(struct qk_quantize_kernels *kernels))
{
    static const struct {
        enum qk_type type;
        const char *function;
        enum qk_type types;
    } types[] = {
        {QK_UINT8, "quantize/uint8", QK_NONE},
        {QK_INT8, "quantize/int8", QK_NONE},
        {QK_UINT16, "quantize/uint16", QK_NONE},
        {QK_INT16, "quantize/int16", QK_NONE},
        {QK_UINT4, "quantize/uint4", QK_NONE},
        {QK_INT4, "quantize/int4", QK_NONE},
        {QK_UINT2, "quantize/uint2", QK_NONE},
        {QK_INT2, "quantize/int2", QK_NONE},
        {QK_FP4E2M1, "quantize/fp4e2m1", QK_NONE},
        {QK_FP8E4M3FN, "quantize/fp8e4m3fn", QK_NONE},
        {QK_FP8E4M3FNUZ, "quantize/e4m3fnuz", QK_NONE},
        {QK_FP8E5M2, "quantize/fp8e5m2", QK_NONE},
        {QK_FP8E5M2FNUZ, "quantize/e5m2fnuz", QK_NONE},
        {QK_UINT8, "quantize/fp16_uint8", QK_FP16},
        {QK_INT16, "quantize/fp16_int16", QK_FP16},
        {QK_INT4, "quantize/fp16_int4", QK_FP16},
        {QK_FP8E4M3FN, "quantize/fp16_e4m3fn", QK_FP16},
        {QK_UINT8, "quantize/bf16_uint8", QK_BF16},
    };
    struct qk_quantize_kernels kernels;
    if (!check_tier(check, tier, check_lacks(tier)))
        return;
    init(&kernels);
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        const struct subject subject = {&kernels, types[i].type, types[i].types};
        check_run(check, &(struct check_subject){types[i].function, check_type, &subject, 3000});
    }
}

void check_quantize(struct check *check)
{
    check_kernels(check, "scalar", qk_quantize_init_scalar);
#ifdef __x86_64__
    check_kernels(check, "avx2", qk_quantize_init_avx2);
    check_kernels(check, "avx512bw", qk_quantize_init_avx512);
#elif defined(__aarch64__)
    check_kernels(check, "neon", qk_quantize_init_neon);
#endif
}
