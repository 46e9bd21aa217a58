/* Floats of all sizes: decoding is exact, encoding rounds once, both in integers. */
#include "kernels/element/float.h"

/* What the codes with an exponent of all ones mean in a format. */
enum specials {
    SPECIALS_NONE, /* nothing: all codes are numbers */
    SPECIALS_IEEE, /* infinities and NaNs, as IEEE 754 has them */
    SPECIALS_FN,   /* the code of all ones is NaN, there are no infinities */
    SPECIALS_FNUZ  /* the code of minus zero is the one NaN, there are no infinities */
};

/* A sign bit, then exponent and mantissa. */
struct format {
    unsigned exponent_bits;
    unsigned mantissa_bits;
    int bias;
    enum specials specials;
};

static const struct format formats[QK_TYPE_COUNT] = {
    [QK_FP16] = {5, 10, 15, SPECIALS_IEEE},   [QK_FP4E2M1] = {2, 1, 1, SPECIALS_NONE},
    [QK_FP8E4M3FN] = {4, 3, 7, SPECIALS_FN},  [QK_FP8E4M3FNUZ] = {4, 3, 8, SPECIALS_FNUZ},
    [QK_FP8E5M2] = {5, 2, 15, SPECIALS_IEEE}, [QK_FP8E5M2FNUZ] = {5, 2, 16, SPECIALS_FNUZ},
};

#define FP32_QUIET_NAN 0x7fc00000U
#define FP32_INFINITY 0x7f800000U
#define FP32_BIAS 127
#define FP32_MANTISSA_BITS 23

static bool is_nan(const struct format *format, bool negative, uint32_t exponent, uint32_t mantissa)
{
    const uint32_t exponent_ones = (1U << format->exponent_bits) - 1;
    const uint32_t mantissa_ones = (1U << format->mantissa_bits) - 1;
    switch (format->specials) {
    case SPECIALS_IEEE:
        return exponent == exponent_ones && mantissa != 0;
    case SPECIALS_FN:
        return exponent == exponent_ones && mantissa == mantissa_ones;
    case SPECIALS_FNUZ:
        return negative && exponent == 0 && mantissa == 0;
    default:
        return false;
    }
}

/* The bits of the float without its sign. */
static uint32_t decode_magnitude(const struct format *format, uint32_t exponent, uint32_t mantissa)
{
    const unsigned shift = FP32_MANTISSA_BITS - format->mantissa_bits;
    if (format->specials == SPECIALS_IEEE && exponent == (1U << format->exponent_bits) - 1)
        return FP32_INFINITY;
    if (exponent > 0)
        return (exponent + (uint32_t)(FP32_BIAS - format->bias)) << FP32_MANTISSA_BITS |
               mantissa << shift;
    /* A subnormal is a multiple of 2^(1 - bias - mantissa_bits), which is a normal float. */
    const int step = 1 - format->bias - (int)format->mantissa_bits;
    const float value =
        (float)mantissa * qk_float_of_bits((uint32_t)(step + FP32_BIAS) << FP32_MANTISSA_BITS);
    return qk_bits_of_float(value);
}

static uint32_t decode_bits(enum qk_type type, uint32_t bits)
{
    const struct format *format = &formats[type];
    const unsigned width = format->exponent_bits + format->mantissa_bits;
    const bool negative = bits >> width & 1;
    const uint32_t sign = (uint32_t)negative << 31;
    const uint32_t mantissa = bits & ((1U << format->mantissa_bits) - 1);
    const uint32_t exponent = bits >> format->mantissa_bits & ((1U << format->exponent_bits) - 1);
    if (!is_nan(format, negative, exponent, mantissa))
        return sign | decode_magnitude(format, exponent, mantissa);
    if (type == QK_FP16) /* the payload stays */
        return sign | FP32_INFINITY | mantissa << (FP32_MANTISSA_BITS - format->mantissa_bits);
    return sign | FP32_QUIET_NAN;
}

float qk_float_decode(enum qk_type type, uint32_t bits)
{
    switch (type) {
    case QK_FP32:
        return qk_float_of_bits(bits);
    case QK_BF16: /* the upper half of an FP32 */
        return qk_float_of_bits(bits << 16);
    case QK_FP8E8M0: /* 2^(code-127), without a sign; 2^-127 is a subnormal float */
        if (bits == 0xff)
            return qk_float_of_bits(FP32_QUIET_NAN);
        return qk_float_of_bits(bits == 0 ? 0x00400000 : bits << FP32_MANTISSA_BITS);
    default:
        return qk_float_of_bits(decode_bits(type, bits));
    }
}

uint16_t qk_fp16_round(float value)
{
    return qk_fp16_round_inline(value);
}

uint16_t qk_bf16_round(float value)
{
    return qk_bf16_round_inline(value);
}
