#include "kernels/element/words.h"

#include <string.h>

/* A loop for each width that memory is read in. `data` has no alignment. */
#define DEFINE_LOAD(name, type)                                                      \
    static void name(const uint8_t *data, size_t first, size_t stride, size_t count, \
                     int32_t *words)                                                 \
    {                                                                                \
        const uint8_t *at = data + first * sizeof(type);                             \
        for (size_t i = 0; i < count; i++) {                                         \
            type value;                                                              \
            memcpy(&value, at + i * stride * sizeof(type), sizeof(type));            \
            words[i] = value;                                                        \
        }                                                                            \
    }

DEFINE_LOAD(load_u8, uint8_t)
DEFINE_LOAD(load_s8, int8_t)
DEFINE_LOAD(load_u16, uint16_t)
DEFINE_LOAD(load_s16, int16_t)
DEFINE_LOAD(load_32, int32_t)

/* `bits` divides 8; `sign` is the value of the sign bit, 0 for unsigned. */
static inline void load_packed(const uint8_t *data, size_t first, size_t stride, size_t count,
                               unsigned bits, int32_t sign, int32_t *words)
{
    const size_t per_byte = 8 / bits;
    const int32_t mask = (1 << bits) - 1;
    for (size_t i = 0; i < count; i++) {
        const size_t index = first + i * stride;
        const int32_t value = data[index / per_byte] >> index % per_byte * bits & mask;
        words[i] = (value ^ sign) - sign;
    }
}

void qk_load_words(enum qk_type type, const void *data, size_t first, size_t stride, size_t count,
                   int32_t *words)
{
    const struct qk_type_info *info = qk_type_info(type);
    const bool is_signed = info->kind == QK_KIND_SIGNED;
    switch (info->bits) {
    case 2:
        load_packed(data, first, stride, count, 2, is_signed ? 2 : 0, words);
        break;
    case 4:
        load_packed(data, first, stride, count, 4, is_signed ? 8 : 0, words);
        break;
    case 8:
        (is_signed ? load_s8 : load_u8)(data, first, stride, count, words);
        break;
    case 16:
        (is_signed ? load_s16 : load_u16)(data, first, stride, count, words);
        break;
    default:
        load_32(data, first, stride, count, words);
    }
}
