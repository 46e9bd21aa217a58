/* Elements, roundings and dequantization by other ways than kernels/ goes, and random operands. */
#ifndef TESTS_SUPPORT_KERNELS_DEQUANTIZE_ORACLE_H
#define TESTS_SUPPORT_KERNELS_DEQUANTIZE_ORACLE_H

#include "kernels/qk.h"

/* Bytes of `count` packed elements. */
size_t dequantize_bytes(enum qk_type type, size_t count);

/* Element `index` of unaligned `data`, of an integer type. */
int64_t dequantize_element(enum qk_type type, const uint8_t *data, size_t index);

/* The same, of any type: a double holds them all. */
double dequantize_value(enum qk_type type, const uint8_t *data, size_t index);

/* (x - zero_point) * scale: the difference brought into range in 64 bits, and a double, in which
 * the product of two floats is exact, rounded once. */
float dequantize_expected(int64_t x, int64_t zero_point, float scale);

/* The product of two FP32s, one of them a double. */
float dequantize_product(double value, float scale);

/* The nearest value of FP32, FP16 or BF16, the even one of two. */
double dequantize_rounded(enum qk_type type, double value);

/* The same bits, or both NaN. */
bool dequantize_same(float a, float b);

/* Whether element `index` of `y`, of type FP32, FP16 or BF16, is `expected`, rounded to it. A NaN
 * of FP16 or BF16 is a canonical one. */
bool dequantize_is(enum qk_type type, const void *y, size_t index, float expected);

/* Any bits at all, half of the time those of a special value: zeros, subnormals, infinities, NaN.
 */
float dequantize_random_scale(uint64_t *random);

int32_t dequantize_random_zero_point(uint64_t *random, enum qk_type type);

/* Random elements, or all as small or as large as the type has. */
void dequantize_random_elements(uint64_t *random, enum qk_type type, uint8_t *data, size_t count);

/* Writes the first `period` of some bytes again and again behind them. */
void dequantize_repeat(uint8_t *data, size_t period, size_t bytes);

#endif
