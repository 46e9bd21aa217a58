/* The affine core that every dequantizer lowers to: y = (x - zero_point) * scale, one rounding per
 * written operation, never fused (facts: ONNX DequantizeLinear, onnx/reference/ops and ONNX
 * Runtime's quantize_linear.cc agree on d = x - zp modulo 2^32, y = fl32(fl32(d) * scale)). */
#ifndef KERNELS_DEQUANTIZE_DEQUANTIZE_H
#define KERNELS_DEQUANTIZE_DEQUANTIZE_H

#include "kernels/qk.h"

/* The reference for one element; the kernels are loops of it. */
static inline float qk_dequantize_one(int32_t x, int32_t zero_point, float scale)
{
    return (float)(int32_t)((uint32_t)x - (uint32_t)zero_point) * scale;
}

/* y[i] = fl32(fl32(x[i] - zero_point) * scale) for i < count; the subtraction wraps modulo 2^32.
 * x: `count` elements of the kernel's type, any alignment. y: FP32, 4-byte aligned. They must not
 * overlap. */
typedef void (*qk_dequantize_fn)(const void *x, size_t count, int32_t zero_point, float scale,
                                 float *y);

struct qk_dequantize_kernels {
    const char *name; /* of the tier that fills the table: "dequantize_avx2" */
    qk_dequantize_fn u8;
    qk_dequantize_fn s8;
    qk_dequantize_fn s32;
};

/* The scalar kernels: the reference, and the ends of the other tiers' loops. */
void qk_dequantize_u8__scalar(const void *x, size_t count, int32_t zero_point, float scale,
                              float *y);
void qk_dequantize_s8__scalar(const void *x, size_t count, int32_t zero_point, float scale,
                              float *y);
void qk_dequantize_s32__scalar(const void *x, size_t count, int32_t zero_point, float scale,
                               float *y);

/* Each fills the slots that its tier has. */
void qk_dequantize_init_scalar(struct qk_dequantize_kernels *kernels);
void qk_dequantize_init_avx2(struct qk_dequantize_kernels *kernels);

#endif
