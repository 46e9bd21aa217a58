#include "kernels/qk.h"

#include <string.h>

static const struct qk_type_info types[QK_TYPE_COUNT] = {
    [QK_UINT8] = {"UINT8", QK_KIND_UNSIGNED, 8, 2, 0, UINT8_MAX},
    [QK_INT8] = {"INT8", QK_KIND_SIGNED, 8, 3, INT8_MIN, INT8_MAX},
    [QK_INT32] = {"INT32", QK_KIND_SIGNED, 32, 6, INT32_MIN, INT32_MAX},
    [QK_FP32] = {"FP32", QK_KIND_FLOAT, 32, 1, 0, 0},
};

const struct qk_type_info *qk_type_info(enum qk_type type)
{
    return &types[type];
}

enum qk_type qk_type_by_name(const char *name)
{
    for (enum qk_type type = QK_NONE + 1; type < QK_TYPE_COUNT; type++) {
        if (strcmp(types[type].name, name) == 0)
            return type;
    }
    return QK_NONE;
}

bool qk_type_bytes(enum qk_type type, size_t count, size_t *bytes)
{
    /* Eight elements are always whole bytes; what is left over is rounded up. */
    size_t bits = types[type].bits;
    size_t whole;
    size_t rest = (count % 8 * bits + 7) / 8;
    return qk_mul_size(count / 8, bits, &whole) && !__builtin_add_overflow(whole, rest, bytes);
}
