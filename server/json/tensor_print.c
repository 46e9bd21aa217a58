#include "server/json/tensor.h"

#include <string.h>

#include "server/json/element.h"

/* Extends an element to 64 bits, with its sign if the type is signed. */
static int64_t widen(uint32_t bits, const struct qk_type_info *type)
{
    unsigned unused = 64u - type->bits;
    return type->kind == QK_KIND_SIGNED ? (int64_t)((uint64_t)bits << unused) >> unused
                                        : (int64_t)bits;
}

/* Returns whether an element is printed like an FP32. The other float types, of 8 bits and less,
 * are printed with all their digits. */
static bool is_printed_as_float(const struct qk_tensor *tensor)
{
    return tensor->type == QK_FP16 || tensor->type == QK_BF16 || tensor->type == QK_FP8E8M0;
}

static char *print_as_floats(char *out, const struct qk_tensor *tensor, size_t begin, size_t end)
{
    enum { BATCH = 64 };
    float values[BATCH];
    for (size_t index = begin; index < end;) {
        size_t count = 0;
        for (; count < BATCH && index < end; count++, index++)
            values[count] =
                qk_float_decode(tensor->type, qk_element_load(tensor->type, tensor->data, index));
        out = qd_print_floats(out, values, count);
    }
    return out;
}

static char *print_each(char *out, const struct qk_tensor *tensor, size_t begin, size_t end)
{
    const struct qk_type_info *type = qk_type_info(tensor->type);
    for (size_t index = begin; index < end; index++) {
        const uint32_t bits = qk_element_load(tensor->type, tensor->data, index);
        out = type->kind == QK_KIND_FLOAT ? qd_json_float_print(tensor->type, bits, out)
                                          : qd_print_int64(out, widen(bits, type));
        *out++ = ',';
    }
    return out;
}

static char *print_int64s(char *out, const struct qk_tensor *tensor, size_t begin, size_t end)
{
    const char *data = tensor->data;
    for (size_t index = begin; index < end; index++) {
        int64_t value;
        memcpy(&value, data + index * sizeof(value), sizeof(value));
        out = qd_print_int64(out, value);
        *out++ = ',';
    }
    return out;
}

static char *print_bools(char *out, const struct qk_tensor *tensor, size_t begin, size_t end)
{
    const char *data = tensor->data;
    for (size_t index = begin; index < end; index++) {
        const bool value = data[index] != 0;
        memcpy(out, value ? "true" : "false", 5);
        out += value ? 4 : 5;
        *out++ = ',';
    }
    return out;
}

char *qd_json_elements_print(char *out, const struct qk_tensor *tensor, size_t begin, size_t end)
{
    if (begin == end)
        return out;
    if (tensor->type == QK_FP32)
        out = qd_print_floats(out, (const float *)tensor->data + begin, end - begin);
    else if (is_printed_as_float(tensor))
        out = print_as_floats(out, tensor, begin, end);
    else if (tensor->type == QK_INT64)
        out = print_int64s(out, tensor, begin, end);
    else if (tensor->type == QK_BOOL)
        out = print_bools(out, tensor, begin, end);
    else
        out = print_each(out, tensor, begin, end);
    return end == tensor->count ? out - 1 : out;
}

void qd_json_tensor_print(struct qd_text *text, const struct qk_tensor *tensor)
{
    const size_t batch = QD_TEXT_RESERVE_MAX / QD_JSON_ELEMENT_BYTES_MAX;
    qd_text_string(text, "[");
    for (size_t index = 0; index < tensor->count;) {
        char *out = qd_text_reserve(text, QD_TEXT_RESERVE_MAX);
        if (out == NULL)
            return;
        const size_t left = tensor->count - index;
        const size_t stop = index + (left < batch ? left : batch);
        char *end = qd_json_elements_print(out, tensor, index, stop);
        qd_text_commit(text, (size_t)(end - out));
        index = stop;
    }
    qd_text_string(text, "]");
}
