/* Checks the kernels of dequantization against the scalar ones: each code to each type, and the
 * kernels `repeat` and `widen`. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/dequantize/dequantize.h"
#include "kernels/element/float.h"
#include "tests/kernels/check/check.h"

/* What a code reads. The types of a lookup table are in the order of enum qk_type; other codes have
 * no types. */
static const struct code {
    const char *function;
    const char *all; /* name of the subject that goes through all codes; NULL: there are too many */
    unsigned bits;
    float magic;           /* magic number of zero points that are floats */
    int32_t least, most;   /* range of zero points that are floats; 0, 0: there are none */
    bool integer_zeros;    /* zero points are integers of 32 bits instead */
    enum qk_type types[4]; /* types of the lookup table */
} codes[QK_CODE_COUNT] = {
    [QK_CODE_U8] = {"dequantize/u8", "dequantize/u8_all", 8, QK_MAGIC_U8, 0, 255, false, {0}},
    [QK_CODE_S8] = {"dequantize/s8", "dequantize/s8_all", 8, QK_MAGIC_S8, -128, 127, false, {0}},
    [QK_CODE_U16] =
        {"dequantize/u16", "dequantize/u16_all", 16, QK_MAGIC_U16, 0, 65535, false, {0}},
    [QK_CODE_S16] =
        {"dequantize/s16", "dequantize/s16_all", 16, QK_MAGIC_S16, -32768, 32767, false, {0}},
    [QK_CODE_BITS2] =
        {"dequantize/bits2", "dequantize/bits2_all", 2, 0, -2, 3, false, {QK_UINT2, QK_INT2}},
    [QK_CODE_BITS4] = {"dequantize/bits4",
                       "dequantize/bits4_all",
                       4,
                       0,
                       -8,
                       15,
                       false,
                       {QK_UINT4, QK_INT4, QK_FP4E2M1}},
    [QK_CODE_FLOAT8] = {"dequantize/float8",
                        "dequantize/float8_all",
                        8,
                        0,
                        0,
                        0,
                        false,
                        {QK_FP8E4M3FN, QK_FP8E4M3FNUZ, QK_FP8E5M2, QK_FP8E5M2FNUZ}},
    [QK_CODE_S32] = {"dequantize/s32", NULL, 32, 0, -65536, 65536, false, {0}},
    [QK_CODE_S32_RECAST] = {"dequantize/s32_recast", NULL, 32, 0, -65536, 65536, false, {0}},
    [QK_CODE_S32_WRAPPED] = {"dequantize/s32_wrapped", NULL, 32, 0, 0, 0, true, {0}},
    [QK_CODE_S32_EXACT] = {"dequantize/s32_exact", NULL, 32, 0, 0, 0, true, {0}},
    [QK_CODE_U32_EXACT] = {"dequantize/u32_exact", NULL, 32, 0, 0, 0, true, {0}},
};

struct subject {
    const struct qk_dequantize_kernels *kernels;
    enum qk_code code;
};

struct job {
    const struct qk_dequantize_kernels *kernels;
    struct qk_dequantize_args args;
    struct check_pair y;
};

/* ---- Cases ------------------------------------------------------------------------------- */

static size_t y_bytes(const struct qk_dequantize_args *args)
{
    return args->y_type == QK_FP32 ? 4 : 2;
}

/* Returns the length of a block. A long call often has one block, for which a kernel may have a
 * fast path. */
static size_t choose_block(struct check *check, size_t count)
{
    static const size_t common[] = {SIZE_MAX, 1, 16, 32, 64, 128, 256, 48, 80, 192};
    if (count >= 8 * QK_DEQUANTIZE_CHUNK && check_chance(check, 2))
        return SIZE_MAX;
    if (check_chance(check, 3))
        return check_between(check, QK_BLOCK_MIN, 400);
    return common[check_below(check, sizeof(common) / sizeof(common[0]))];
}

/* Returns any count from the least on, more often a short one, so that all tails of all vectors
 * occur. */
static size_t choose_count(struct check *check, const struct qk_dequantize_args *args,
                           unsigned bits)
{
    const size_t unit = args->span.stream ? 64 / y_bytes(args) : bits < 8 ? 8 / bits : 1;
    const size_t least = QK_DEQUANTIZE_CHUNK;
    const size_t count = check_chance(check, 6)   ? check_between(check, least, 2500)
                         : check_chance(check, 3) ? check_between(check, 1, 6) * least
                                                  : least + check_index(check) % 200;
    return (count + unit - 1) / unit * unit;
}

/* Sets the blocks of parameters. Returns how many parameters there are. */
static size_t choose_blocks(struct check *check, struct qk_span *span)
{
    span->block = choose_block(check, span->count);
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

/* Makes scales or offsets. If y has 16 bits, NaNs are canonical. Scales of all magnitudes take
 * results of float8s to both ends of FP16. */
static float *make_floats(struct check *check, const char *name, size_t count, enum qk_type y_type)
{
    float *values =
        check_buffer(check, name, CHECK_INPUT, count * sizeof(*values), sizeof(*values));
    static const float special[] = {0, -0.0F, INFINITY, -INFINITY, NAN, 0x1p-149F};
    const bool ordinary = check_chance(check, 2), extreme = check_chance(check, 8);
    const float power = ldexpf(1, check_chance(check, 2) ? (int)check_below(check, 28) - 18 : 0);
    for (size_t i = 0; i < count; i++) {
        const float plain = 0.03125F * (float)(1 + check_below(check, 77)) * power;
        values[i] = extreme    ? special[check_below(check, sizeof(special) / sizeof(special[0]))]
                    : ordinary ? plain
                               : check_float(check, plain);
        if (isnan(values[i]) && y_type != QK_FP32)
            values[i] = copysignf(NAN, values[i]);
    }
    return values;
}

static void *make_zeros(struct check *check, const struct code *code, size_t count)
{
    int32_t *integers = check_buffer(check, "zeros", CHECK_INPUT, count * sizeof(*integers), 4);
    for (size_t i = 0; i < count; i++) {
        const int32_t range = code->most - code->least;
        int32_t zero = check_int32(check);
        if (!code->integer_zeros) {
            zero = check_chance(check, 3)
                       ? (check_chance(check, 2) ? code->least : code->most)
                       : code->least + (int32_t)check_below(check, (size_t)range + 1);
            const float value = (float)zero + code->magic;
            memcpy(&zero, &value, sizeof(zero));
        }
        integers[i] = zero;
    }
    return integers;
}

static const void *make_x(struct check *check, const struct code *code, size_t count)
{
    const size_t bytes = count * code->bits / 8;
    uint8_t *x = check_buffer(check, "x", CHECK_INPUT, bytes, 1);
    check_fill_bytes(check, x, bytes);
    for (size_t i = 0; code->bits == 32 && i < bytes; i += sizeof(int32_t)) {
        const int32_t value = check_int32(check);
        memcpy(x + i, &value, sizeof(value));
    }
    return x;
}

/* Returns the type of the table, or QK_NONE. */
static enum qk_type make_table(struct check *check, const struct code *code,
                               struct qk_dequantize_args *args)
{
    size_t count = 0;
    while (count < 4 && code->types[count] != QK_NONE)
        count++;
    if (count == 0)
        return QK_NONE;
    const enum qk_type type = code->types[check_below(check, count)];
    struct qk_code_table *table =
        check_buffer(check, "table", CHECK_INPUT, sizeof(*table), sizeof(float));
    qk_code_table_init(table, type);
    args->table = table;
    return type;
}

static void make_job(struct check *check, const struct subject *subject, struct job *job)
{
    static const enum qk_type y_types[] = {QK_FP32, QK_FP16, QK_BF16};
    const struct code *code = &codes[subject->code];
    const bool timed = check_is_timed(check);
    struct qk_dequantize_args *args = &job->args;
    struct qk_span *span = &args->span;
    *job = (struct job){.kernels = subject->kernels,
                        .args = {.code = subject->code, .span = {.block = SIZE_MAX}}};
    args->y_type = timed ? QK_FP32 : y_types[check_below(check, 3)];
    span->stream = !timed && check_chance(check, 4);
    span->count = timed ? 8192 : choose_count(check, args, code->bits);
    const size_t blocks = timed ? 1 : choose_blocks(check, span);
    const enum qk_type type = make_table(check, code, args);
    span->x = make_x(check, code, span->count);
    span->scales = make_floats(check, "scales", blocks, args->y_type);
    if (!timed && check_chance(check, 3))
        span->offsets = make_floats(check, "offsets", blocks, args->y_type);
    const bool is_float = type != QK_NONE && qk_type_info(type)->kind == QK_KIND_FLOAT;
    if (!is_float && !check_chance(check, 3))
        span->zeros = make_zeros(check, code, blocks);
    job->y =
        check_outputs(check, "y", span->count * y_bytes(args), span->stream ? 64 : y_bytes(args));
    check_describe(check, "%zu elements to %s, block %zd, done %zu, period %zu, first %zu%s%s%s",
                   span->count, qk_type_info(args->y_type)->name, span->block, span->done,
                   span->period, span->p, span->zeros ? ", zeros" : "",
                   span->offsets ? ", offsets" : "", span->stream ? ", streamed" : "");
}

/* ---- Results ----------------------------------------------------------------------------- */

static void run_expected(void *context)
{
    struct job *job = context;
    job->args.span.y = job->y.expected;
    qk_dequantize_scalar(&job->args);
}

static void run_actual(void *context)
{
    struct job *job = context;
    job->args.span.y = job->y.actual;
    job->kernels->run[job->args.code](&job->args);
    job->kernels->finish();
}

static float y_value(enum qk_type type, const void *y, size_t i)
{
    return qk_float_decode(type, qk_element_load(type, y, i));
}

/* Returns how many NaNs element i is computed from. */
static int count_nans(const struct qk_dequantize_args *args, size_t i)
{
    const float one = 1;
    size_t block = (args->span.done + i) / args->span.block;
    if (args->span.period)
        block = (args->span.p + block) % args->span.period;
    float difference;
    struct qk_dequantize_args alone = *args;
    alone.y_type = QK_FP32;
    alone.span = (struct qk_span){
        .x = args->span.x,
        .y = &difference,
        .x_first = i,
        .count = 1,
        .block = SIZE_MAX,
        .scales = &one,
        .zeros = args->span.zeros ? (const uint32_t *)args->span.zeros + block : NULL,
    };
    qk_dequantize_scalar(&alone);
    const float scale = ((const float *)args->span.scales)[block];
    const float *offsets = args->span.offsets;
    const int made = isnan(difference * scale) && !isnan(difference) && !isnan(scale);
    return (isnan(difference) != 0) + (isnan(scale) != 0) + made +
           (offsets && isnan(offsets[block]));
}

/* Accepts the sign and payload of either operand if an element is computed from two NaNs. */
static void forgive_nans(struct job *job)
{
    const struct qk_dequantize_args *args = &job->args;
    const size_t bytes = y_bytes(args);
    char *actual = job->y.actual, *expected = job->y.expected;
    for (size_t i = 0; i < args->span.count; i++)
        if (memcmp(actual + i * bytes, expected + i * bytes, bytes) != 0 &&
            isnan(y_value(args->y_type, actual, i)) && isnan(y_value(args->y_type, expected, i)) &&
            count_nans(args, i) > 1)
            memcpy(actual + i * bytes, expected + i * bytes, bytes);
}

static void check_code(struct check *check, const void *kernel)
{
    struct job job;
    make_job(check, kernel, &job);
    if (!check_calls(check, run_expected, run_actual, &job, (double)job.args.span.count, "element"))
        return;
    forgive_nans(&job);
    check_same(check, &job.y, y_bytes(&job.args));
}

/* ---- All codes ------------------------------------------------------------------------------ */

/* Scales at the limits of arithmetic, so that no extreme number and no sign is left to chance. A
 * kernel may use a lookup table from 2^-100 to 2^100 (kernels/dequantize/bounded.h). */
static const float scales_of_all[] = {
    1,         -1,       0.1F,          -3.3e-5F,     0,         -0.0F,         INFINITY,
    -INFINITY, NAN,      0x1p-149F,     -0x1.8p-130F, 0x1p-126F, 0x1.fffp-101F, 0x1p-100F,
    0x1.fp99F, 0x1p100F, 0x1.8p120F,    FLT_MAX,      -FLT_MAX,  0x1.01p-9F,    0x1.03p0F,
    65520.0F,  0x1p-24F, 0x1.ffffp-14F,
};

#define SCALES_OF_ALL (sizeof(scales_of_all) / sizeof(scales_of_all[0]))

/* Makes an x with every code, or every byte of codes, at least once. More elements follow, so that
 * the counts go through all tails. */
static void make_all(struct check *check, const struct subject *subject, struct job *job)
{
    static const enum qk_type y_types[] = {QK_FP32, QK_FP16, QK_BF16};
    const struct code *code = &codes[subject->code];
    const size_t index = check_index(check);
    struct qk_dequantize_args *args = &job->args;
    struct qk_span *span = &args->span;
    *job = (struct job){.kernels = subject->kernels,
                        .args = {.code = subject->code, .span = {.block = SIZE_MAX}}};
    args->y_type = y_types[index % 3];
    const size_t units = code->bits == 16 ? 65536 : 256; /* values of a byte or longer element */
    const size_t per_unit = code->bits < 8 ? 8 / code->bits : 1;
    const size_t count = units + index / 3 % (QK_DEQUANTIZE_CHUNK + 1);
    span->count = count * per_unit;
    make_table(check, code, args);
    const size_t bytes = code->bits == 16 ? 2 : 1;
    uint8_t *x = check_buffer(check, "x", CHECK_INPUT, count * bytes, 1);
    for (size_t i = 0; i < count; i++) {
        const uint16_t value = (uint16_t)(i + index);
        memcpy(x + i * bytes, &value, bytes); /* little-endian */
    }
    span->x = x;
    float *scale = check_buffer(check, "scales", CHECK_INPUT, sizeof(*scale), sizeof(*scale));
    *scale = scales_of_all[index / 3 % SCALES_OF_ALL];
    span->scales = scale;
    job->y = check_outputs(check, "y", span->count * y_bytes(args), y_bytes(args));
    check_describe(check, "all codes and %zu more to %s, scale %a", span->count - units * per_unit,
                   qk_type_info(args->y_type)->name, (double)*scale);
}

static void check_all(struct check *check, const void *kernel)
{
    struct job job;
    make_all(check, kernel, &job);
    if (!check_calls(check, run_expected, run_actual, &job, (double)job.args.span.count, "element"))
        return;
    forgive_nans(&job);
    check_same(check, &job.y, y_bytes(&job.args));
}

/* ---- Repeat ------------------------------------------------------------------------------ */

struct repeat_job {
    const struct qk_dequantize_kernels *kernels, *reference;
    const uint32_t *from;
    size_t count, stride, block, done;
    struct check_pair to;
};

static void repeat_expected(void *context)
{
    struct repeat_job *job = context;
    job->reference->repeat(job->to.expected, job->count, job->from, job->stride, job->block,
                           job->done);
}

static void repeat_actual(void *context)
{
    struct repeat_job *job = context;
    job->kernels->repeat(job->to.actual, job->count, job->from, job->stride, job->block, job->done);
}

static void check_repeat(struct check *check, const void *kernel)
{
    const struct subject *subject = kernel;
    const bool timed = check_is_timed(check);
    struct qk_dequantize_kernels reference;
    qk_dequantize_init_scalar(&reference);
    struct repeat_job job = {.kernels = subject->kernels, .reference = &reference};
    job.count = timed ? 2048 : check_index(check) % 150 + 1;
    job.block = timed ? 32 : check_between(check, 1, 70);
    if (!timed && check_chance(check, 8))
        job.block = SIZE_MAX; /* one parameter for all elements, as with a stride of 0 */
    job.done = check_below(check, job.block);
    job.stride = check_below(check, 4);
    const size_t blocks = (job.done + job.count - 1) / job.block;
    job.from = check_buffer(check, "from", CHECK_INPUT, (blocks * job.stride + 1) * 4, 4);
    job.to = check_outputs(check, "to", (job.count + QK_REPEAT_SLACK - 1) * 4, 4);
    check_describe(check, "%zu words, stride %zu, block %zu, done %zu", job.count, job.stride,
                   job.block, job.done);
    if (!check_calls(check, repeat_expected, repeat_actual, &job, (double)job.count, "word"))
        return;
    job.to.bytes = job.count * 4; /* the kernel may write anything after these */
    check_same(check, &job.to, 4);
}

/* ---- Widen ------------------------------------------------------------------------------- */

struct widen_job {
    const struct qk_dequantize_kernels *kernels;
    enum qk_type type;
    const void *from;
    size_t count;
    struct check_pair to;
};

static void widen_expected(void *context)
{
    struct widen_job *job = context;
    qk_widen_scalar(job->to.expected, job->type, job->from, job->count);
}

static void widen_actual(void *context)
{
    struct widen_job *job = context;
    job->kernels->widen(job->to.actual, job->type, job->from, job->count);
}

/* Makes all NaNs quiet, because kernels may do so. */
static void quieten(float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (isnan(values[i])) {
            uint32_t bits;
            memcpy(&bits, &values[i], sizeof(bits));
            bits |= 0x00400000;
            memcpy(&values[i], &bits, sizeof(bits));
        }
}

static void check_widen(struct check *check, const void *kernel)
{
    static const enum qk_type types[] = {QK_FP16, QK_BF16, QK_FP8E8M0};
    const struct subject *subject = kernel;
    struct widen_job job = {.kernels = subject->kernels, .type = types[check_below(check, 3)]};
    if (check_is_timed(check))
        job.type = QK_FP16;
    job.count = check_is_timed(check) ? 4096 : check_index(check) % 100;
    const size_t bytes = job.count * qk_type_info(job.type)->bits / 8;
    uint8_t *from = check_buffer(check, "from", CHECK_INPUT, bytes, 1);
    check_fill_bytes(check, from, bytes);
    job.from = from;
    job.to = check_outputs(check, "to", job.count * sizeof(float), sizeof(float));
    check_describe(check, "%zu elements of %s", job.count, qk_type_info(job.type)->name);
    if (!check_calls(check, widen_expected, widen_actual, &job, (double)job.count, "element"))
        return;
    quieten(job.to.expected, job.count);
    quieten(job.to.actual, job.count);
    check_same(check, &job.to, sizeof(float));
}

/* ---- Tiers ------------------------------------------------------------------------------- */

typedef void init_fn(struct qk_dequantize_kernels *kernels);

/* Checks the codes for which a tier has other kernels than the tier below it, if there is one. */
static void check_codes(struct check *check, const struct qk_dequantize_kernels *kernels,
                        const struct qk_dequantize_kernels *below)
{
    for (enum qk_code code = 0; code < QK_CODE_COUNT; code++) {
        const struct subject subject = {kernels, code};
        if (!below || kernels->run[code] != below->run[code])
            check_run(check,
                      &(struct check_subject){codes[code].function, check_code, &subject, 4000});
        if (codes[code].all && (!below || kernels->run[code] != below->run[code]))
            check_run(check, &(struct check_subject){codes[code].all, check_all, &subject,
                                                     codes[code].bits == 16 ? 144 : 1200});
    }
}

/* Checks a tier that has all kernels of its own. */
static void check_kernels(struct check *check, const char *tier, init_fn *init)
{
    struct qk_dequantize_kernels kernels;
    if (!check_tier(check, tier, check_lacks(tier)))
        return;
    init(&kernels);
    check_codes(check, &kernels, NULL);
    const struct subject subject = {.kernels = &kernels};
    check_run(check, &(struct check_subject){"dequantize/repeat", check_repeat, &subject, 3000});
    check_run(check, &(struct check_subject){"dequantize/widen", check_widen, &subject, 3000});
}

/* Checks a tier that adds a few kernels to the tier below. */
static void check_more(struct check *check, const char *tier, init_fn *init, init_fn *init_below)
{
    struct qk_dequantize_kernels kernels, below;
    if (!check_tier(check, tier, check_lacks(tier)))
        return;
    init_below(&below);
    init_below(&kernels);
    init(&kernels);
    check_codes(check, &kernels, &below);
}

void check_dequantize(struct check *check)
{
    check_kernels(check, "scalar", qk_dequantize_init_scalar);
#ifdef __x86_64__
    check_kernels(check, "avx2", qk_dequantize_init_avx2);
    check_kernels(check, "avx512bw", qk_dequantize_init_avx512bw);
    check_more(check, "avx512vbmi", qk_dequantize_init_avx512, qk_dequantize_init_avx512bw);
#elif defined(__aarch64__)
    check_kernels(check, "neon", qk_dequantize_init_neon);
    check_more(check, "fp16", qk_dequantize_init_fp16, qk_dequantize_init_neon);
    check_more(check, "sve", qk_dequantize_init_sve, qk_dequantize_init_neon);
#endif
}
