/* Loads single elements of tensors, whose data may have any alignment. Private to kernels/. */
#pragma once

#include <string.h>

#include "kernels/qk.h"

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

/* Returns an element of an integer type, widened to 64 bits. */
static inline int64_t qk_load_integer(enum qk_type type, const void *data, size_t index)
{
    int64_t wide;
    if (type == QK_INT64) {
        memcpy(&wide, (const char *)data + index * sizeof(wide), sizeof(wide));
        return wide;
    }
    const struct qk_type_info *info = qk_type_info(type);
    const uint32_t bits = qk_element_load(type, data, index);
    const int64_t sign = info->kind == QK_KIND_SIGNED ? INT64_C(1) << (info->bits - 1) : 0;
    return ((int64_t)bits ^ sign) - sign;
}
