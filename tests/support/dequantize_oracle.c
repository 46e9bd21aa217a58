#include "tests/support/dequantize_oracle.h"

#include "tests/support/qk_test.h"

#include <math.h>
#include <string.h>

size_t dequantize_element_bytes(enum qk_type type)
{
    return type == QK_INT32 ? 4 : 1;
}

int64_t dequantize_element(enum qk_type type, const uint8_t *data, size_t index)
{
    int32_t wide;
    if (type == QK_UINT8)
        return data[index];
    if (type == QK_INT8)
        return data[index] < 128 ? data[index] : data[index] - 256;
    memcpy(&wide, data + 4 * index, sizeof(wide));
    return wide;
}

float dequantize_expected(int64_t x, int64_t zero_point, float scale)
{
    int64_t difference = x - zero_point;
    if (difference > INT32_MAX)
        difference -= INT64_C(1) << 32;
    if (difference < INT32_MIN)
        difference += INT64_C(1) << 32;
    float rounded = (float)(double)difference;
    return (float)((double)rounded * (double)scale);
}

bool dequantize_same(float a, float b)
{
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof(a)) == 0;
}

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

void dequantize_random_elements(uint64_t *random, enum qk_type type, uint8_t *data, size_t bytes)
{
    static const uint32_t extremes[][2] = {[QK_UINT8] = {0, 0xffffffff},
                                           [QK_INT8] = {0x80808080, 0x7f7f7f7f},
                                           [QK_INT32] = {0x80000000, 0x7fffffff}};
    size_t kind = qk_test_random_below(random, 4);
    for (size_t i = 0; i < bytes; i++) {
        uint64_t bits =
            kind < 2 ? extremes[type][kind] >> 8 * (i % 4) : qk_test_random(random) >> 40;
        data[i] = (uint8_t)bits;
    }
}
