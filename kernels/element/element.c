/* Element types: their names and sizes, and single elements of tensors. */
#include "kernels/qk.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are read as they lie");

static const struct qk_type_info types[QK_TYPE_COUNT] = {
    [QK_UINT8] = {"UINT8", QK_KIND_UNSIGNED, 8, 2, 0, UINT8_MAX},
    [QK_INT8] = {"INT8", QK_KIND_SIGNED, 8, 3, INT8_MIN, INT8_MAX},
    [QK_UINT16] = {"UINT16", QK_KIND_UNSIGNED, 16, 4, 0, UINT16_MAX},
    [QK_INT16] = {"INT16", QK_KIND_SIGNED, 16, 5, INT16_MIN, INT16_MAX},
    [QK_UINT32] = {"UINT32", QK_KIND_UNSIGNED, 32, 12, 0, UINT32_MAX},
    [QK_INT32] = {"INT32", QK_KIND_SIGNED, 32, 6, INT32_MIN, INT32_MAX},
    [QK_FP16] = {"FP16", QK_KIND_FLOAT, 16, 10, 0, 0},
    [QK_BF16] = {"BF16", QK_KIND_FLOAT, 16, 16, 0, 0},
    [QK_FP32] = {"FP32", QK_KIND_FLOAT, 32, 1, 0, 0},
    [QK_UINT4] = {"UINT4", QK_KIND_UNSIGNED, 4, 21, 0, 15},
    [QK_INT4] = {"INT4", QK_KIND_SIGNED, 4, 22, -8, 7},
    [QK_UINT2] = {"UINT2", QK_KIND_UNSIGNED, 2, 25, 0, 3},
    [QK_INT2] = {"INT2", QK_KIND_SIGNED, 2, 26, -2, 1},
    [QK_FP4E2M1] = {"FP4E2M1", QK_KIND_FLOAT, 4, 23, 0, 0},
    [QK_FP8E4M3FN] = {"FP8E4M3FN", QK_KIND_FLOAT, 8, 17, 0, 0},
    [QK_FP8E4M3FNUZ] = {"FP8E4M3FNUZ", QK_KIND_FLOAT, 8, 18, 0, 0},
    [QK_FP8E5M2] = {"FP8E5M2", QK_KIND_FLOAT, 8, 19, 0, 0},
    [QK_FP8E5M2FNUZ] = {"FP8E5M2FNUZ", QK_KIND_FLOAT, 8, 20, 0, 0},
    [QK_FP8E8M0] = {"FP8E8M0", QK_KIND_FLOAT, 8, 24, 0, 0},
    [QK_INT64] = {"INT64", QK_KIND_SIGNED, 64, 7, INT64_MIN, INT64_MAX},
    [QK_BOOL] = {"BOOL", QK_KIND_UNSIGNED, 8, 9, 0, 1},
};

const struct qk_type_info *qk_type_info(enum qk_type type)
{
    return &types[type];
}

enum qk_type qk_type_by_name(const char *name)
{
    for (enum qk_type type = QK_NONE + 1; type < QK_TYPE_COUNT; type++)
        if (types[type].name[0] == name[0] && strcmp(types[type].name, name) == 0)
            return type;
    return QK_NONE;
}

bool qk_type_bytes(enum qk_type type, size_t count, size_t *bytes)
{
    /* Eight elements are always whole bytes; what is left over is rounded up. */
    size_t bits = types[type].bits;
    size_t whole;
    size_t rest = (count % 8 * bits + 7) / 8;
    return !__builtin_mul_overflow(count / 8, bits, &whole) &&
           !__builtin_add_overflow(whole, rest, bytes);
}

uint32_t qk_element_load(enum qk_type type, const void *data, size_t index)
{
    const uint8_t *bytes = data;
    const unsigned bits = types[type].bits;
    if (bits < 8) {
        const unsigned per_byte = 8 / bits;
        return (uint32_t)bytes[index / per_byte] >> index % per_byte * bits & ((1U << bits) - 1);
    }
    uint32_t value = 0;
    memcpy(&value, bytes + index * (bits / 8), bits / 8);
    return value;
}
