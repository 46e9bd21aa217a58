#include "kernels/dequantize/dequantize.h"

#include <float.h>

#include "kernels/element/load.h"

_Static_assert(FLT_EVAL_METHOD == 0, "float operations round to float, each of them");

void qk_dequantize_u8__scalar(const void *x, size_t count, int32_t zero_point, float scale,
                              float *y)
{
    const uint8_t *in = x;
    for (size_t i = 0; i < count; i++)
        y[i] = qk_dequantize_one(in[i], zero_point, scale);
}

void qk_dequantize_s8__scalar(const void *x, size_t count, int32_t zero_point, float scale,
                              float *y)
{
    const int8_t *in = x;
    for (size_t i = 0; i < count; i++)
        y[i] = qk_dequantize_one(in[i], zero_point, scale);
}

void qk_dequantize_s32__scalar(const void *x, size_t count, int32_t zero_point, float scale,
                               float *y)
{
    for (size_t i = 0; i < count; i++)
        y[i] = qk_dequantize_one(qk_load_i32(x, i), zero_point, scale);
}

void qk_dequantize_init_scalar(struct qk_dequantize_kernels *kernels)
{
    kernels->name = "dequantize_scalar";
    kernels->u8 = qk_dequantize_u8__scalar;
    kernels->s8 = qk_dequantize_s8__scalar;
    kernels->s32 = qk_dequantize_s32__scalar;
}
