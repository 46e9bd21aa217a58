#include "server/json/tensor.h"

#include <math.h>
#include <string.h>

#include "server/json/element.h"
#include "server/json/number.h"

/* Two's complement of fewer bits than 64. */
static int64_t widen(uint32_t bits, const struct qk_type_info *type)
{
    unsigned unused = 64u - type->bits;
    return type->kind == QK_KIND_SIGNED ? (int64_t)((uint64_t)bits << unused) >> unused
                                        : (int64_t)bits;
}

static char *print_element(char *out, const struct qk_tensor *tensor,
                           const struct qk_type_info *type, size_t index)
{
    float value;
    if (tensor->type == QK_FP32) { /* most outputs are: the short way */
        memcpy(&value, (const char *)tensor->data + index * sizeof(value), sizeof(value));
        if (isfinite(value))
            return qd_print_float(out, value);
    }
    uint32_t bits = qk_element_load(tensor->type, tensor->data, index);
    return type->kind == QK_KIND_FLOAT ? qd_json_float_print(tensor->type, bits, out)
                                       : qd_print_int64(out, widen(bits, type));
}

void qd_json_tensor_print(struct qd_text *text, const struct qk_tensor *tensor)
{
    const struct qk_type_info *type = qk_type_info(tensor->type);
    size_t batch = QD_TEXT_RESERVE_MAX / (QD_PRINT_BYTES_MAX + 1);
    qd_text_string(text, "[");
    for (size_t index = 0; index < tensor->count;) {
        char *out = qd_text_reserve(text, QD_TEXT_RESERVE_MAX);
        if (out == NULL)
            return;
        char *at = out;
        size_t left = tensor->count - index;
        for (size_t stop = index + (left < batch ? left : batch); index < stop; index++) {
            if (index > 0)
                *at++ = ',';
            at = print_element(at, tensor, type, index);
        }
        qd_text_commit(text, (size_t)(at - out));
    }
    qd_text_string(text, "]");
}
