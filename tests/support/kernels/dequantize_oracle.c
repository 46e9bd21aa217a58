#include "tests/support/kernels/dequantize_oracle.h"

#include <math.h>
#include <string.h>

#include "tests/support/kernels/qk_test.h"

/* ---- Elements ---------------------------------------------------------------------------- */

/* The parameters of each type, stated again, independently of the kernels. */
static const struct {
    unsigned bits;
    bool is_signed;
    int exponent_bits; /* 0: an integer */
    int mantissa_bits;
    int bias;
} formats[QK_TYPE_COUNT] = {
    [QK_UINT8] = {.bits = 8},
    [QK_INT8] = {.bits = 8, .is_signed = true},
    [QK_UINT16] = {.bits = 16},
    [QK_INT16] = {.bits = 16, .is_signed = true},
    [QK_UINT32] = {.bits = 32},
    [QK_INT32] = {.bits = 32, .is_signed = true},
    [QK_UINT4] = {.bits = 4},
    [QK_INT4] = {.bits = 4, .is_signed = true},
    [QK_UINT2] = {.bits = 2},
    [QK_INT2] = {.bits = 2, .is_signed = true},
    [QK_FP32] = {32, true, 8, 23, 127},
    [QK_FP16] = {16, true, 5, 10, 15},
    [QK_BF16] = {16, true, 8, 7, 127},
    [QK_FP4E2M1] = {4, true, 2, 1, 1},
    [QK_FP8E4M3FN] = {8, true, 4, 3, 7},
    [QK_FP8E4M3FNUZ] = {8, true, 4, 3, 8},
    [QK_FP8E5M2] = {8, true, 5, 2, 15},
    [QK_FP8E5M2FNUZ] = {8, true, 5, 2, 16},
    [QK_FP8E8M0] = {8, false, 8, 0, 127},
};

size_t dequantize_bytes(enum qk_type type, size_t count)
{
    return (count * formats[type].bits + 7) / 8;
}

/* Reads an element bit by bit. */
static uint64_t code_of(enum qk_type type, const uint8_t *data, size_t index)
{
    uint64_t code = 0;
    for (unsigned i = 0; i < formats[type].bits; i++) {
        const size_t bit = index * formats[type].bits + i;
        code |= (uint64_t)(data[bit / 8] >> bit % 8 & 1) << i;
    }
    return code;
}

int64_t dequantize_element(enum qk_type type, const uint8_t *data, size_t index)
{
    const int64_t code = (int64_t)code_of(type, data, index);
    const int64_t limit = INT64_C(1) << formats[type].bits;
    return formats[type].is_signed && code >= limit / 2 ? code - limit : code;
}

static double float_value(enum qk_type type, uint64_t code)
{
    const int mantissa_bits = formats[type].mantissa_bits;
    const int exponent_bits = formats[type].exponent_bits;
    const bool negative = formats[type].is_signed && code >> (formats[type].bits - 1);
    const double sign = negative ? -1.0 : 1.0;
    const uint64_t magnitude = negative ? code - (UINT64_C(1) << (formats[type].bits - 1)) : code;
    const int exponent = (int)(magnitude >> mantissa_bits);
    const double mantissa = (double)(magnitude % (UINT64_C(1) << mantissa_bits));
    const bool ieee = type == QK_FP32 || type == QK_FP16 || type == QK_BF16 || type == QK_FP8E5M2;
    if (ieee && exponent == (1 << exponent_bits) - 1)
        return mantissa == 0 ? sign * (double)INFINITY : copysign((double)NAN, sign);
    if ((type == QK_FP8E4M3FNUZ || type == QK_FP8E5M2FNUZ) && code == 0x80)
        return (double)NAN;
    if ((type == QK_FP8E4M3FN && magnitude == 0x7f) || (type == QK_FP8E8M0 && code == 0xff))
        return (double)NAN;
    if (exponent == 0 && type != QK_FP8E8M0)
        return sign * ldexp(mantissa, 1 - formats[type].bias - mantissa_bits);
    return sign * ldexp(1 + ldexp(mantissa, -mantissa_bits), exponent - formats[type].bias);
}

double dequantize_value(enum qk_type type, const uint8_t *data, size_t index)
{
    if (formats[type].exponent_bits == 0)
        return (double)dequantize_element(type, data, index);
    return float_value(type, code_of(type, data, index));
}

/* ---- Arithmetic -------------------------------------------------------------------------- */

float dequantize_expected(int64_t x, int64_t zero_point, float scale)
{
    int64_t difference = x - zero_point;
    if (difference > INT32_MAX)
        difference -= INT64_C(1) << 32;
    if (difference < INT32_MIN)
        difference += INT64_C(1) << 32;
    return dequantize_product((double)(float)(double)difference, scale);
}

float dequantize_product(double value, float scale)
{
    return (float)(value * (double)scale);
}

bool dequantize_same(float a, float b)
{
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof(a)) == 0;
}

/* Divides the value into steps of the type. rint() takes the nearest whole step, the even one at a
 * tie. */
double dequantize_rounded(enum qk_type type, double value)
{
    const int precision = formats[type].mantissa_bits + 1;
    int exponent;
    if (isnan(value) || isinf(value) || value == 0)
        return value;
    frexp(value, &exponent);
    const int least = 2 - formats[type].bias - precision;
    const int step = exponent - precision > least ? exponent - precision : least;
    const double result = ldexp(rint(ldexp(value, -step)), step);
    const double limit = ldexp(1, formats[type].bias + 1);
    return fabs(result) >= limit ? copysign((double)INFINITY, value) : result;
}

bool dequantize_is(enum qk_type type, const void *y, size_t index, float expected)
{
    const uint64_t code = code_of(type, y, index);
    if (isnan(expected)) {
        const uint64_t magnitude = code % (UINT64_C(1) << (formats[type].bits - 1));
        return type == QK_FP32   ? isnan(float_value(type, code))
               : type == QK_FP16 ? magnitude == 0x7e00
                                 : magnitude == 0x7fc0;
    }
    const double got = float_value(type, code);
    const double wanted = dequantize_rounded(type, (double)expected);
    return memcmp(&got, &wanted, sizeof(got)) == 0;
}

/* ---- Random operands --------------------------------------------------------------------- */

static float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

float dequantize_random_scale(uint64_t *random)
{
    static const uint32_t special[] = {0x00000000, 0x80000000, 0x00000001, 0x807fffff, 0x00800000,
                                       0x7f7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001,
                                       0x7fa00001, 0x3f800000, 0xbf800000, 0x3dcccccd};
    if (qk_test_random_below(random, 2))
        return float_of_bits(
            special[qk_test_random_below(random, sizeof(special) / sizeof(special[0]))]);
    return float_of_bits((uint32_t)(qk_test_random(random) >> 32));
}

int32_t dequantize_random_zero_point(uint64_t *random, enum qk_type type)
{
    uint32_t bits = (uint32_t)(qk_test_random(random) >> 32);
    if (type == QK_UINT8)
        return (int32_t)(bits & 0xff);
    if (type == QK_INT8)
        return (int32_t)(bits & 0xff) - 128;
    if (bits % 4 == 0)
        return bits & 4 ? INT32_MIN : INT32_MAX;
    return (int32_t)bits;
}

void dequantize_repeat(uint8_t *data, size_t period, size_t bytes)
{
    for (size_t i = period; i < bytes; i += period)
        memcpy(data + i, data, bytes - i < period ? bytes - i : period);
}

void dequantize_random_elements(uint64_t *random, enum qk_type type, uint8_t *data, size_t count)
{
    /* Making random numbers takes longer than a kernel, so large tensors repeat theirs. The period
     * is a prime, so that a vector does not get the same elements again. */
    enum { PERIOD = 1000003 };
    const size_t kind = qk_test_random_below(random, 4);
    const uint32_t smallest = formats[type].is_signed ? UINT32_C(1) << (formats[type].bits - 1) : 0;
    const uint32_t extreme = kind == 0 ? smallest : ~smallest;
    const size_t bytes = dequantize_bytes(type, count); /* also random pad bits */
    for (size_t i = 0; i < bytes && i < PERIOD; i++)
        data[i] = (uint8_t)(qk_test_random(random) >> 40);
    dequantize_repeat(data, PERIOD, bytes);
    for (size_t i = 0; kind < 2 && i < count; i++)
        qk_test_store(type, data, i, extreme);
}
