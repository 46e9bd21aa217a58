/* DequantizeLinear by other ways than kernels/ goes, and random operands for it. */
#ifndef TESTS_SUPPORT_DEQUANTIZE_ORACLE_H
#define TESTS_SUPPORT_DEQUANTIZE_ORACLE_H

#include "kernels/qk.h"

/* Bytes of one element: UINT8, INT8 or INT32. */
size_t dequantize_element_bytes(enum qk_type type);

/* Element `index` of unaligned `data`. */
int64_t dequantize_element(enum qk_type type, const uint8_t *data, size_t index);

/* (x - zero_point) * scale: the difference brought into range in 64 bits, and a double, in which
 * the product of two floats is exact, rounded once. */
float dequantize_expected(int64_t x, int64_t zero_point, float scale);

/* The same bits, or both NaN. */
bool dequantize_same(float a, float b);

/* Any bits at all, half of the time those of a special value: zeros, subnormals, infinities, NaN.
 */
float dequantize_random_scale(uint64_t *random);

int32_t dequantize_random_zero_point(uint64_t *random, enum qk_type type);

/* Random elements, or all as small or as large as the type has. */
void dequantize_random_elements(uint64_t *random, enum qk_type type, uint8_t *data, size_t bytes);

#endif
