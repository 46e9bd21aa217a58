#include "server/json_tensor.h"

#include <math.h>
#include <string.h>

#include "server/json_number.h"

static int64_t load_integer(const char *at, const struct qk_type_info *type)
{
    uint64_t value = 0;
    memcpy(&value, at, type->bits / 8u);
    unsigned unused = 64u - type->bits;
    return type->kind == QK_KIND_SIGNED ? (int64_t)(value << unused) >> unused : (int64_t)value;
}

static char *print_element(char *out, const char *at, const struct qk_type_info *type)
{
    if (type->kind != QK_KIND_FLOAT)
        return qd_print_int64(out, load_integer(at, type));
    float value;
    memcpy(&value, at, sizeof(value));
    if (isfinite(value))
        return qd_print_float(out, value);
    const char *word = isnan(value) ? "\"NaN\"" : value < 0 ? "\"-Infinity\"" : "\"Infinity\"";
    size_t count = strlen(word);
    memcpy(out, word, count);
    return out + count;
}

void qd_json_tensor_print(struct qd_text *text, const struct qk_tensor *tensor)
{
    const struct qk_type_info *type = qk_type_info(tensor->type);
    const char *data = tensor->data;
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
            at = print_element(at, data + index * (type->bits / 8u), type);
        }
        qd_text_commit(text, (size_t)(at - out));
    }
    qd_text_string(text, "]");
}
