/* The moving kernels in plain C: the reference of all other tiers. */
#include <string.h>

#include "kernels/move/kernels.h"

#define KERNELS(bytes)                                                                         \
    static void strided_##bytes(void *y, const void *x, size_t count, int64_t x_stride)        \
    {                                                                                          \
        for (size_t i = 0; i < count; i++)                                                     \
            memcpy((char *)y + i * (bytes), (const char *)x + (int64_t)i * x_stride, bytes);   \
    }                                                                                          \
                                                                                               \
    static void gathered_##bytes(void *y, const void *x, size_t count, const int64_t *offsets) \
    {                                                                                          \
        for (size_t i = 0; i < count; i++)                                                     \
            memcpy((char *)y + i * (bytes), (const char *)x + offsets[i], bytes);              \
    }                                                                                          \
                                                                                               \
    static void transposed_##bytes(void *y, int64_t y_stride, const void *x, int64_t x_stride, \
                                   size_t rows, size_t columns)                                \
    {                                                                                          \
        for (size_t i = 0; i < rows; i++)                                                      \
            strided_##bytes((char *)y + (int64_t)i * y_stride, (const char *)x + i * (bytes),  \
                            columns, x_stride);                                                \
    }

KERNELS(1)
KERNELS(2)
KERNELS(4)
KERNELS(8)

void qk_move_init_scalar(struct qk_move_kernels *kernels)
{
    *kernels = (struct qk_move_kernels){
        .strided = {strided_1, strided_2, strided_4, strided_8},
        .gathered = {gathered_1, gathered_2, gathered_4, gathered_8},
        .transposed = {transposed_1, transposed_2, transposed_4, transposed_8},
    };
}
