/* Loads of single elements from tensors, whose data has no alignment. Private to kernels/. */
#ifndef KERNELS_ELEMENT_LOAD_H
#define KERNELS_ELEMENT_LOAD_H

#include "kernels/qk.h"

#include <string.h>

/* Tensors are little-endian and are read as they are. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a little-endian host");

static inline float qk_load_f32(const void *data, size_t index)
{
    float value;
    memcpy(&value, (const char *)data + index * sizeof(value), sizeof(value));
    return value;
}

static inline int32_t qk_load_i32(const void *data, size_t index)
{
    int32_t value;
    memcpy(&value, (const char *)data + index * sizeof(value), sizeof(value));
    return value;
}

/* An element of an integer type, widened. */
static inline int32_t qk_load_integer(enum qk_type type, const void *data, size_t index)
{
    switch (type) {
    case QK_UINT8:
        return ((const uint8_t *)data)[index];
    case QK_INT8:
        return ((const int8_t *)data)[index];
    default:
        return qk_load_i32(data, index);
    }
}

#endif
