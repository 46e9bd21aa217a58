/* The oracle of the tests of dequantizers: it computes elements, rounding and dequantization in
 * other ways than kernels/. Also makes random operands. */
#pragma once

#include "kernels/qk.h"

/* Returns the size of `count` packed elements in bytes. */
size_t dequantize_bytes(enum qk_type type, size_t count);

/* Returns element `index` of unaligned `data`, of an integer type. */
int64_t dequantize_element(enum qk_type type, const uint8_t *data, size_t index);

/* Returns element `index`, of any type. A double holds every value exactly. */
double dequantize_value(enum qk_type type, const uint8_t *data, size_t index);

/* Returns (x - zero_point) * scale as DequantizeLinear defines it. The difference wraps to an
 * int32, which is computed with 64 bits. The product of two floats is exact in a double, and is
 * rounded once. */
float dequantize_expected(int64_t x, int64_t zero_point, float scale);

/* Returns the product of two FP32s, rounded once. `value` is an FP32 that is passed as a double. */
float dequantize_product(double value, float scale);

/* Returns the nearest value of FP32, FP16 or BF16, the even one at a tie. */
double dequantize_rounded(enum qk_type type, double value);

/* Returns true if the bits are the same, or both are NaN. */
bool dequantize_same(float a, float b);

/* Returns true if element `index` of `y`, of type FP32, FP16 or BF16, is `expected`, rounded to
 * that type. A NaN of FP16 or BF16 must be the canonical one. */
bool dequantize_is(enum qk_type type, const void *y, size_t index, float expected);

/* Returns a float of random bits or, half of the time, a special value: a zero, a subnormal, an
 * infinity or a NaN. */
float dequantize_random_scale(uint64_t *random);

int32_t dequantize_random_zero_point(uint64_t *random, enum qk_type type);

/* Fills in random elements, or only the smallest or the largest value of the type. */
void dequantize_random_elements(uint64_t *random, enum qk_type type, uint8_t *data, size_t count);

/* Overwrites `data`, which has `bytes` bytes, by copies of its first `period` bytes. */
void dequantize_repeat(uint8_t *data, size_t period, size_t bytes);
