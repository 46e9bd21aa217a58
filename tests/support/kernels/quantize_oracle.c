#include "tests/support/kernels/quantize_oracle.h"

#include <math.h>
#include <string.h>

#include "tests/support/kernels/dequantize_oracle.h"
#include "tests/support/kernels/qk_test.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* ---- Which rules hold --------------------------------------------------------------------- */

enum qk_type quantize_precision(const struct quantize_rule *rule)
{
    const enum qk_type scale = rule->scale_type;
    if (rule->precision != QK_NONE)
        return rule->precision;
    if (rule->version >= 23 && (scale == QK_FP32 || scale == QK_FP16 || scale == QK_BF16))
        return scale;
    if (rule->x_type == QK_INT32 || scale == QK_INT32)
        return QK_NONE;
    return rule->x_type == QK_BF16 && scale == QK_BF16 ? QK_BF16 : QK_FP32;
}

bool quantize_is_onnxruntime(const struct quantize_rule *rule)
{
    const bool has_x = rule->x_type == QK_FP32 || rule->x_type == QK_FP16;
    const bool has_scale = rule->scale_type == QK_FP32 || rule->scale_type == QK_FP16;
    return has_x && has_scale && rule->precision != QK_BF16 && rule->y_type != QK_FP4E2M1;
}

static double quotient(const struct quantize_rule *rule, double x, double scale)
{
    const enum qk_type type = quantize_precision(rule);
    if (type == QK_NONE)
        return x / scale;
    if (type == QK_BF16) /* NumPy converts integers to floats first */
        x = dequantize_rounded(QK_FP32, x);
    return dequantize_rounded(type, dequantize_rounded(type, x) / dequantize_rounded(type, scale));
}

/* ---- Integers ------------------------------------------------------------------------------ */

static uint32_t to_integer(const struct quantize_rule *rule, double value, const double *zero)
{
    const struct qk_type_info *info = qk_type_info(rule->y_type);
    const double sum = nearbyint(value) + (zero ? *zero : 0);
    if (isnan(sum))
        return (uint32_t)info->min;
    return (uint32_t)(int32_t)fmin(fmax(sum, (double)info->min), (double)info->max);
}

/* ---- Floats -------------------------------------------------------------------------------- */

static double value_of(enum qk_type type, uint8_t code)
{
    return dequantize_value(type, &code, 0);
}

/* Returns the code of the nearest number that is not negative, the even one at a tie, or one more
 * than the largest code. */
static uint32_t nearest(enum qk_type type, double value, uint32_t largest)
{
    uint32_t code = 0; /* the last code that is not above the value, found by bisection */
    for (uint32_t step = 64; step > 0; step /= 2)
        if (code + step <= largest && value_of(type, (uint8_t)(code + step)) <= value)
            code += step;
    const double here = value_of(type, (uint8_t)code);
    const double next = code < largest ? value_of(type, (uint8_t)(code + 1))
                                       : 2 * here - value_of(type, (uint8_t)(code - 1));
    const double middle = (here + next) / 2;
    return value < middle || (value == middle && code % 2 == 0) ? code : code + 1;
}

static uint32_t float8_magnitude(const struct quantize_rule *rule, double value)
{
    const bool runtime = quantize_is_onnxruntime(rule);
    const bool is_e4m3fn = rule->y_type == QK_FP8E4M3FN;
    const bool is_e5m2 = rule->y_type == QK_FP8E5M2;
    const uint32_t largest = is_e4m3fn ? 0x7e : is_e5m2 ? 0x7b : 0x7f;
    if (isnan(value))
        return is_e4m3fn ? 0x7f : is_e5m2 ? (runtime ? 0x7f : 0x7e) : 0x80;
    if (runtime && !rule->saturates && is_e4m3fn && value >= 480 && value < 496)
        return largest;
    if (runtime && !rule->saturates && is_e5m2 && value >= 61440 && value < 65536)
        return 0x7f;
    const uint32_t code = nearest(rule->y_type, value, largest);
    if (code <= largest)
        return code;
    return rule->saturates ? largest : is_e4m3fn ? 0x7f : is_e5m2 ? 0x7c : 0x80;
}

static uint32_t to_float8(const struct quantize_rule *rule, double value)
{
    const bool is_fnuz = rule->y_type == QK_FP8E4M3FNUZ || rule->y_type == QK_FP8E5M2FNUZ;
    const uint32_t code = float8_magnitude(rule, fabs(value));
    if (is_fnuz && (code == 0 || code == 0x80))
        return code;
    return signbit(value) ? code + 0x80 : code;
}

static uint32_t to_float4(double value)
{
    if (isnan(value))
        return signbit(value) ? 0 : 8;
    const uint32_t code = nearest(QK_FP4E2M1, fabs(value), 7);
    return (code > 7 ? 7 : code) + (signbit(value) ? 8 : 0);
}

uint32_t quantize_expected(const struct quantize_rule *rule, double x, double scale,
                           const double *zero)
{
    const double value = quotient(rule, x, scale);
    if (qk_type_info(rule->y_type)->kind != QK_KIND_FLOAT)
        return to_integer(rule, value, zero);
    if (rule->y_type != QK_FP4E2M1)
        return to_float8(rule, dequantize_rounded(QK_FP32, value));
    return to_float4(dequantize_rounded(QK_FP32, zero ? value + *zero : value));
}

/* ---- Random operands ----------------------------------------------------------------------- */

enum qk_type quantize_x_type(size_t i)
{
    static const enum qk_type types[] = {QK_FP32, QK_FP16, QK_BF16, QK_INT32};
    return i < COUNT_OF(types) ? types[i] : QK_NONE;
}

enum qk_type quantize_scale_type(size_t i)
{
    return i == 4 ? QK_FP8E8M0 : quantize_x_type(i);
}

enum qk_type quantize_y_type(size_t i)
{
    static const enum qk_type types[] = {
        QK_UINT8, QK_INT8,    QK_UINT16,    QK_INT16,       QK_UINT4,   QK_INT4,       QK_UINT2,
        QK_INT2,  QK_FP4E2M1, QK_FP8E4M3FN, QK_FP8E4M3FNUZ, QK_FP8E5M2, QK_FP8E5M2FNUZ};
    return i < COUNT_OF(types) ? types[i] : QK_NONE;
}

static uint32_t bits_of(enum qk_type type, float value)
{
    uint32_t bits;
    if (type == QK_FP16)
        return qk_fp16_round(value);
    if (type == QK_BF16)
        return qk_bf16_round(value);
    if (type == QK_INT32)
        return (uint32_t)(int32_t)value;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

uint32_t quantize_random_x(uint64_t *random, enum qk_type type)
{
    const size_t kind = qk_test_random_below(random, 8);
    const uint32_t any = (uint32_t)(qk_test_random(random) >> 32);
    if (kind == 0) /* anything */
        return type == QK_FP32 || type == QK_INT32 ? any : any & 0xffff;
    if (kind == 1) { /* a special value */
        const float special = dequantize_random_scale(random);
        return type == QK_INT32 ? (any & 1 ? UINT32_C(1) << 31 : INT32_MAX)
                                : bits_of(type, special);
    }
    if (kind < 4) /* ties, with scales that are powers of two */
        return bits_of(type, ((float)qk_test_random_below(random, 1200) - 600) / 2);
    return bits_of(type, ((float)(any >> 8) - 0x1p23F) * 0x1p-14F); /* within 512 */
}

uint32_t quantize_random_scale(uint64_t *random, enum qk_type type)
{
    const size_t kind = qk_test_random_below(random, 8);
    if (type == QK_FP8E8M0)
        return kind < 2 ? (uint32_t)qk_test_random_below(random, 256) : 124 + (uint32_t)kind;
    if (kind == 0)
        return quantize_random_x(random, type);
    const float value = kind < 4    ? ldexpf(1, (int)kind - 2)
                        : kind == 4 ? -0.75F
                                    : 0.1F + (float)qk_test_random_below(random, 1000) / 500;
    return type == QK_INT32 ? (uint32_t)kind : bits_of(type, value);
}
