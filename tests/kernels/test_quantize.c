/* The quantize kernels: scalar against the oracle, every tier against scalar. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "kernels/dispatch.h"
#include "kernels/quantize/quantize.h"
#include "tests/support/guarded.h"
#include "tests/support/kernels/dequantize_oracle.h"
#include "tests/support/kernels/qk_test.h"
#include "tests/support/kernels/quantize_oracle.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

enum { COUNT_MAX = 700 };

/* ---- One call ------------------------------------------------------------------------------ */

/* The operands of a call, besides its args. */
struct bed {
    struct quantize_rule rule;
    struct qk_narrow narrow;
    struct qk_quantize_args args;
    size_t parameters;
    void *x;
    uint32_t *scales;
    uint32_t *zeros;
};

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Returns a scale in the format of the division, rounded to any type that the division allows. */
static uint32_t random_scale(uint64_t *random, const struct bed *bed)
{
    const enum qk_type scale_type = bed->rule.scale_type;
    const uint32_t bits = quantize_random_scale(random, scale_type);
    if (scale_type == QK_INT32)
        return bits;
    const float value = scale_type == QK_FP32 ? float_of(bits) : qk_float_decode(scale_type, bits);
    uint32_t word;
    memcpy(&word, &value, sizeof(word));
    return word;
}

static uint32_t random_zero(uint64_t *random, enum qk_type type)
{
    uint8_t bytes[4];
    const bool is_float = qk_type_info(type)->kind == QK_KIND_FLOAT;
    dequantize_random_elements(random, type, bytes, 1);
    const float as_float = (float)dequantize_value(type, bytes, 0);
    const int32_t as_integer = is_float ? 0 : (int32_t)dequantize_element(type, bytes, 0);
    uint32_t word;
    memcpy(&word, is_float ? (const void *)&as_float : &as_integer, sizeof(word));
    return word;
}

static void random_rule(uint64_t *random, size_t n, struct quantize_rule *rule)
{
    rule->y_type = quantize_y_type(n % 13);
    rule->x_type = quantize_x_type(qk_test_random_below(random, 4));
    rule->scale_type = quantize_scale_type(qk_test_random_below(random, 5));
    rule->saturates = qk_test_random_below(random, 2);
    rule->precision = QK_NONE;
    rule->version = qk_test_random_below(random, 2) ? 25 : 21;
    if (n % 3 == 0) { /* the common blocks, for which loops may have fast paths */
        rule->x_type = n % 2 ? QK_FP32 : QK_FP16;
        rule->scale_type = rule->x_type;
    }
}

static enum qk_division division_of(const struct quantize_rule *rule)
{
    switch (quantize_precision(rule)) {
    case QK_FP32:
        return QK_DIVISION_FP32;
    case QK_FP16:
        return QK_DIVISION_FP16;
    case QK_BF16:
        return QK_DIVISION_BF16;
    default:
        return rule->scale_type == QK_INT32 ? QK_DIVISION_FP64_INTEGER : QK_DIVISION_FP64;
    }
}

/* Makes blocks that need not begin with x or with the first parameters. */
static void make_blocks(uint64_t *random, size_t block, struct bed *bed)
{
    struct qk_span *span = &bed->args.span;
    span->block = block == 0 ? SIZE_MAX : block;
    span->done = block ? qk_test_random_below(random, block) : 0;
    const size_t touched = span->count ? (span->done + span->count - 1) / span->block + 1 : 0;
    span->period =
        qk_test_random_below(random, 2) ? 1 + qk_test_random_below(random, touched + 2) : 0;
    span->p = span->period ? qk_test_random_below(random, span->period) : 0;
    bed->parameters = span->period ? span->period : touched;
}

static void bed_init(struct bed *bed, uint64_t *random, size_t n, size_t block, size_t count)
{
    memset(bed, 0, sizeof(*bed));
    random_rule(random, n, &bed->rule);
    const struct quantize_rule *rule = &bed->rule;
    const bool is_float = qk_type_info(rule->y_type)->kind == QK_KIND_FLOAT;
    const size_t x_bytes = qk_type_info(rule->x_type)->bits / 8;
    const size_t first = qk_test_random_below(random, 3);
    bed->args = (struct qk_quantize_args){
        .x_type = rule->x_type,
        .y_type = rule->y_type,
        .division = division_of(rule),
        .narrow = is_float ? &bed->narrow : NULL,
        .span = {.x_first = first, .count = count, .stream = qk_test_random_below(random, 2)}};
    if (is_float)
        qk_narrow_init(&bed->narrow, rule->y_type, rule->saturates,
                       quantize_is_onnxruntime(rule) ? QK_NARROW_AS_ONNXRUNTIME
                                                     : QK_NARROW_AS_REFERENCE);
    make_blocks(random, block, bed);
    bed->x = guarded_alloc((first + count) * x_bytes, 1);
    for (size_t i = 0; i < first + count; i++) {
        const uint32_t bits = quantize_random_x(random, rule->x_type);
        memcpy((char *)bed->x + i * x_bytes, &bits, x_bytes);
    }
    bed->scales = guarded_alloc(4 * bed->parameters, 4);
    for (size_t i = 0; i < bed->parameters; i++)
        bed->scales[i] = random_scale(random, bed);
    bed->args.span.x = bed->x;
    bed->args.span.scales = bed->scales;
    const bool is_float8 = is_float && rule->y_type != QK_FP4E2M1;
    if (is_float8 || qk_test_random_below(random, 2))
        return;
    bed->zeros = guarded_alloc(4 * bed->parameters, 4);
    for (size_t i = 0; i < bed->parameters; i++)
        bed->zeros[i] = random_zero(random, rule->y_type);
    bed->args.span.zeros = bed->zeros;
}

static void bed_deinit(struct bed *bed)
{
    guarded_free(bed->x);
    guarded_free(bed->scales);
    if (bed->zeros)
        guarded_free(bed->zeros);
}

/* ---- Scalar against the oracle ------------------------------------------------------------- */

static uint32_t expected(const struct bed *bed, size_t i)
{
    const struct qk_span *span = &bed->args.span;
    const size_t q = span->p + (span->done + i) / span->block;
    const size_t p = span->period ? q % span->period : q;
    const double scale = bed->rule.scale_type == QK_INT32 ? (double)(int32_t)bed->scales[p]
                                                          : (double)float_of(bed->scales[p]);
    const bool is_float = bed->args.narrow != NULL;
    const double zero = !bed->zeros ? 0
                        : is_float  ? (double)float_of(bed->zeros[p])
                                    : (double)(int32_t)bed->zeros[p];
    const unsigned bits = qk_type_info(bed->rule.y_type)->bits;
    return quantize_expected(&bed->rule,
                             dequantize_value(bed->rule.x_type, bed->x, span->x_first + i), scale,
                             bed->zeros ? &zero : NULL) &
           ((1U << bits) - 1);
}

static const size_t blocks[] = {0, 1, 2, 7, 16, 17, 32, 36, 63, 64, 65, 100, 128, 300};

Test(quantize, scalar_is_what_the_oracle_says)
{
    uint64_t random = 11;
    for (size_t n = 0; n < 6000; n++) {
        struct bed bed;
        uint8_t y[2 * 100 + 8] = {0};
        const size_t first = qk_test_random_below(&random, 5);
        bed_init(&bed, &random, n, blocks[n % COUNT_OF(blocks)], qk_test_random_below(&random, 90));
        bed.args.span.y = y;
        bed.args.span.y_first = first;
        qk_quantize_scalar(&bed.args);
        for (size_t i = 0; i < bed.args.span.count; i++)
            cr_assert_eq(
                qk_element_load(bed.rule.y_type, y, first + i), expected(&bed, i),
                "%s / %s to %s%s: %#x, element %zu of %zu, is %#x and not %#x",
                qk_type_info(bed.rule.x_type)->name, qk_type_info(bed.rule.scale_type)->name,
                qk_type_info(bed.rule.y_type)->name, bed.rule.saturates ? "" : ", not saturating",
                qk_element_load(bed.rule.x_type, bed.x, bed.args.span.x_first + i), i,
                bed.args.span.count, qk_element_load(bed.rule.y_type, y, first + i),
                expected(&bed, i));
        bed_deinit(&bed);
    }
}

/* ---- Precisions that an attribute asks for ------------------------------------------------- */

Test(quantize, quotients_are_rounded_to_the_precision)
{
    static const enum qk_type types[] = {QK_FP32, QK_FP16, QK_BF16};
    static const enum qk_division divisions[] = {QK_DIVISION_FP32, QK_DIVISION_FP16,
                                                 QK_DIVISION_BF16};
    uint64_t random = 12;
    for (size_t n = 0; n < 60000; n++) {
        const enum qk_type x_type = quantize_x_type(n % 4);
        const size_t k = n / 4 % 3;
        const struct quantize_rule rule = {x_type, QK_FP32, QK_INT16, types[k], true, 25};
        const uint32_t x = quantize_random_x(&random, x_type);
        const uint32_t scale = quantize_random_scale(&random, QK_FP32);
        const float rounded = (float)dequantize_rounded(types[k], (double)float_of(scale));
        int16_t y;
        qk_quantize_scalar(&(struct qk_quantize_args){
            .x_type = x_type,
            .y_type = QK_INT16,
            .division = divisions[k],
            .span = {.x = &x, .y = &y, .count = 1, .block = SIZE_MAX, .scales = &rounded}});
        const uint32_t wanted = quantize_expected(
            &rule, dequantize_value(x_type, (const uint8_t *)&x, 0), (double)float_of(scale), NULL);
        cr_assert_eq(y, (int16_t)wanted, "%s %#x / %#x in %s is %d, not %d",
                     qk_type_info(x_type)->name, x, scale, qk_type_info(types[k])->name, y,
                     (int16_t)wanted);
    }
}

/* ---- Every tier against scalar ------------------------------------------------------------- */

/* Checks that in the first and last byte of y, the bits before y do not change and the bits after y
 * become 0. */
static void check_run(const struct qk_quantize_kernels *kernels, const struct bed *bed,
                      const uint8_t *wanted, size_t first, size_t lead)
{
    const unsigned bits = qk_type_info(bed->rule.y_type)->bits;
    const size_t y_bytes = ((first + bed->args.span.count) * bits + 7) / 8;
    uint8_t *y = guarded_alloc(lead + y_bytes, 64);
    struct qk_quantize_args args = bed->args;
    memset(y, 0xa5, lead + y_bytes);
    args.span.y = y + lead;
    args.span.y_first = first;
    qk_quantize(kernels, &args);
    for (size_t i = 0; i < lead; i++)
        cr_assert_eq(y[i], 0xa5, "%s: written before y", kernels->name);
    for (size_t i = 0; i < y_bytes; i++)
        cr_assert_eq(y[lead + i], wanted[i],
                     "%s: %s / %s to %s, blocks of %zu (%zu, %zu), first %zu, y + %zu%s: byte %zu "
                     "of %zu is %#x and not %#x",
                     kernels->name, qk_type_info(bed->rule.x_type)->name,
                     qk_type_info(bed->rule.scale_type)->name, qk_type_info(bed->rule.y_type)->name,
                     args.span.block, args.span.done, args.span.period, first, lead,
                     args.span.stream ? ", streamed" : "", i, y_bytes, y[lead + i], wanted[i]);
    guarded_free(y);
}

static void check_tier(const char *tier)
{
    struct qk_kernels *kernels = qk_test_kernels(tier);
    uint64_t random = 13;
    static uint8_t wanted[2 * COUNT_MAX + 64];
    if (!kernels)
        return;
    for (size_t n = 0; n < 20000; n++) {
        struct bed bed;
        if (!qk_test_runs(n))
            continue;
        const size_t first = n % 2 ? qk_test_random_below(&random, 5) : 0;
        bed_init(&bed, &random, n, blocks[qk_test_random_below(&random, COUNT_OF(blocks))],
                 qk_test_random_below(&random, COUNT_MAX));
        memset(wanted, 0xa5, sizeof(wanted));
        struct qk_quantize_args args = bed.args;
        args.span.y = wanted;
        args.span.y_first = first;
        qk_quantize_scalar(&args);
        const size_t y_bytes = qk_type_info(bed.rule.y_type)->bits == 16 ? 2 : 1;
        check_run(&kernels->quantize, &bed, wanted, first,
                  qk_test_random_below(&random, 65) / y_bytes * y_bytes);
        bed_deinit(&bed);
    }
    qk_kernels_destroy(kernels);
}

Test(quantize, scalar_kernels)
{
    check_tier("scalar");
}

#ifdef __x86_64__
Test(quantize, avx2_kernels)
{
    check_tier("avx2");
}

Test(quantize, avx512_kernels)
{
    check_tier("avx512");
}
#elif defined(__aarch64__)
Test(quantize, neon_kernels)
{
    check_tier("neon");
}
#endif

/* ---- Quotients next to ties ---------------------------------------------------------------- */

enum { TIES = 128 };

/* Returns a scale, sometimes at the limits of those for which kernels may divide in other ways. */
static float random_divisor(uint64_t *random, size_t n)
{
    const float mantissa = 1 + (float)qk_test_random_below(random, 1 << 23) * 0x1p-23F;
    const int exponent = n % 4 ? 0 : (int)qk_test_random_below(random, 140) - 70;
    return ldexpf(n % 7 ? mantissa : 2 - 0x1p-23F, exponent);
}

/* Returns an x whose quotient is as near to a tie as a float can be. */
static float near_tie(uint64_t *random, size_t reach, float scale, float direction)
{
    const float tie = (float)qk_test_random_below(random, 2 * reach) + 0.5F;
    float x = (tie - (float)reach) * scale;
    for (size_t k = qk_test_random_below(random, 4); k > 0; k--)
        x = nextafterf(x, direction);
    return x;
}

/* Checks one scale for all elements, one for each block of 32, and one for each element, with its
 * reciprocal. */
static void check_ties(const char *tier)
{
    static const size_t tie_blocks[] = {SIZE_MAX, SIZE_MAX, 32, 1};
    struct qk_kernels *kernels = qk_test_kernels(tier);
    uint64_t random = 15;
    if (!kernels)
        return;
    for (size_t n = 0; n < 40000; n++) {
        float x[TIES], scales[TIES], reciprocals[TIES];
        int16_t y[TIES];
        const size_t block = tie_blocks[n / 3 % COUNT_OF(tie_blocks)];
        bool divisors = true;
        for (size_t i = 0; i < TIES; i++) {
            scales[i] = random_divisor(&random, n);
            reciprocals[i] = 1 / scales[i];
            divisors = divisors && qk_is_divisor(scales[i]);
        }
        for (size_t i = 0; i < TIES; i++)
            x[i] = near_tie(&random, n % 3 ? 256 : 32768, scales[i / block],
                            i % 2 ? INFINITY : -INFINITY);
        qk_quantize(&kernels->quantize,
                    &(struct qk_quantize_args){.x_type = QK_FP32,
                                               .y_type = QK_INT16,
                                               .span = {.x = x,
                                                        .y = y,
                                                        .count = TIES,
                                                        .block = block,
                                                        .scales = scales,
                                                        .offsets = divisors ? reciprocals : NULL}});
        for (size_t i = 0; i < TIES; i++) {
            const float scale = scales[i / block], quotient = nearbyintf(x[i] / scale);
            cr_assert_eq(y[i], (int)fminf(fmaxf(quotient, INT16_MIN), INT16_MAX),
                         "%s, blocks of %zd: %a / %a = %a is %d", tier, block, (double)x[i],
                         (double)scale, (double)(x[i] / scale), y[i]);
        }
    }
    qk_kernels_destroy(kernels);
}

Test(quantize, ties_are_those_of_a_true_division)
{
    for (size_t i = 0; qk_tier_name(i); i++)
        check_ties(qk_tier_name(i));
}

/* ---- All quotients of FP16 ----------------------------------------------------------------- */

/* Checks the quotients of all significands of 11 bits, with one scale for all elements or one for
 * each. Exponents are such that each quotient is an integer from 1024 on. */
static void check_fp16(const char *tier, bool each)
{
    enum { COUNT = 1024 };
    struct qk_kernels *kernels = qk_test_kernels(tier);
    uint16_t x[COUNT];
    float scales[COUNT], reciprocals[COUNT];
    int16_t y[COUNT];
    if (!kernels)
        return;
    for (unsigned i = 0; i < COUNT; i++)
        x[i] = (uint16_t)(0x6800 + i); /* 2048 to 4094 */
    for (unsigned s = 0; s < COUNT; s++) {
        for (unsigned i = 0; i < COUNT; i++) {
            scales[i] = 1 + (float)((s + (each ? i : 0)) % COUNT) / COUNT;
            reciprocals[i] = 1 / scales[i];
        }
        qk_quantize(&kernels->quantize,
                    &(struct qk_quantize_args){.x_type = QK_FP16,
                                               .y_type = QK_INT16,
                                               .division = QK_DIVISION_FP16,
                                               .span = {.x = x,
                                                        .y = y,
                                                        .count = COUNT,
                                                        .block = each ? 1 : SIZE_MAX,
                                                        .scales = scales,
                                                        .offsets = each ? reciprocals : NULL}});
        for (unsigned i = 0; i < COUNT; i++) {
            const double quotient = (2048 + 2 * (double)i) / (double)scales[i];
            const double unit = quotient < 2048 ? 1 : 2;
            cr_assert_eq(y[i], (int)(nearbyint(quotient / unit) * unit), "%s: %#x / %a is %d", tier,
                         x[i], (double)scales[i], y[i]);
        }
    }
    qk_kernels_destroy(kernels);
}

Test(quantize, all_quotients_of_fp16_are_rounded_once)
{
    for (size_t i = 0; qk_tier_name(i); i++) {
        check_fp16(qk_tier_name(i), false);
        check_fp16(qk_tier_name(i), true);
    }
}

/* ---- What is streamed ---------------------------------------------------------------------- */

static struct qk_span streamed; /* the span of the last call of a tier's kernel */

static void note(const struct qk_quantize_args *args)
{
    streamed = args->span;
}

Test(quantize, streams_are_whole_lines_and_chunks)
{
    const struct qk_quantize_kernels kernels = {.name = "note", .run = note};
    static uint8_t y[4096] __attribute__((aligned(64)));
    uint64_t random = 14;
    for (size_t n = 0; n < 1000; n++) {
        struct bed bed;
        bed_init(&bed, &random, n, 100, COUNT_MAX);
        const unsigned bits = qk_type_info(bed.rule.y_type)->bits;
        bed.args.span.stream = true;
        bed.args.span.y = y + (bits == 16 ? 2 : 1) * qk_test_random_below(&random, 32);
        qk_quantize(&kernels, &bed.args);
        cr_assert_gt(streamed.count, 0);
        cr_assert_eq((uintptr_t)streamed.y % 64, 0);
        cr_assert_eq(streamed.count * bits / 8 % 64, 0);
        cr_assert_eq(streamed.count % QK_QUANTIZE_CHUNK, 0);
        bed_deinit(&bed);
    }
}

/* ---- All codes of narrow floats ------------------------------------------------------------ */

/* Floats at which rounding may change, and both neighbours of each, with every rounding. */
Test(quantize, narrow_floats_are_what_the_oracle_says)
{
    for (size_t n = 0; n < 5 * 4; n++) {
        const enum qk_type type = quantize_y_type(8 + n % 5);
        const bool runtime = n / 5 % 2 && type != QK_FP4E2M1;
        const struct quantize_rule rule = {
            QK_FP32, runtime ? QK_FP32 : QK_BF16, type, QK_NONE, n / 10, 21};
        struct qk_narrow narrow;
        qk_narrow_init(&narrow, type, rule.saturates,
                       runtime ? QK_NARROW_AS_ONNXRUNTIME : QK_NARROW_AS_REFERENCE);
        for (uint64_t bits = 0; bits <= UINT32_MAX; bits += bits % 0x20000 == 1 ? 0x1fffe : 1) {
            const float value = float_of((uint32_t)bits);
            const uint32_t got = qk_narrow(&narrow, value);
            const uint32_t wanted = quantize_expected(&rule, (double)value, 1, NULL);
            cr_assert_eq(got, wanted, "%#llx to %s is %#x, not %#x", (unsigned long long)bits,
                         qk_type_info(type)->name, got, wanted);
        }
    }
}

/* ---- Quotients by products ----------------------------------------------------------------- */

/* The quotient of two significands of 24 bits and the midpoint of two floats, m of 25 bits and odd,
 * differ by c / scale halves of a last place, where c = m * scale - x * 2^shift. One corrected
 * product is off by less than 6 of these halves. Whether it rounds like the division can therefore
 * be tested with |c| < 8. There m is c / scale modulo 2^shift. */
static void check_near_ties(uint32_t scale, int64_t c, unsigned shift, size_t *count)
{
    const unsigned zeros = (unsigned)__builtin_ctz(scale);
    const uint64_t odd = scale >> zeros, step = UINT64_C(1) << (shift - zeros);
    uint64_t inverse = odd;
    for (unsigned i = 0; i < 5; i++)
        inverse *= 2 - odd * inverse;
    const uint64_t first = inverse * (uint64_t)(c >> zeros);
    for (uint64_t m = (1u << 24) + ((first - (1u << 24)) & (step - 1)); m < 1u << 25; m += step) {
        const uint64_t x = (m * scale - (uint64_t)c) >> shift;
        if (m % 2 == 0 || x < 1u << 23 || x >= 1u << 24)
            continue;
        const float reciprocal = 1 / (float)scale, q = (float)x * reciprocal;
        const float product = fmaf(-fmaf(q, (float)scale, -(float)x), reciprocal, q);
        if (product != (float)x / (float)scale)
            cr_assert_fail("%llu / %u", (unsigned long long)x, scale);
        ++*count;
    }
}

Test(quantize, one_correction_of_a_product_is_the_division)
{
    size_t count = 0;
    for (uint32_t scale = 1u << 23; scale < 1u << 24; scale++)
        for (int64_t c = -7; c <= 7; c++) {
            if (c == 0 || __builtin_ctz(scale) != __builtin_ctz((unsigned)(c < 0 ? -c : c)))
                continue; /* because m is odd and x * 2^shift is even */
            check_near_ties(scale, c, 24, &count);
            check_near_ties(scale, c, 25, &count);
        }
    cr_assert_gt(count, 20000000);
}
