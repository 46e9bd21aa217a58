#include "kernels/operators/shape_text.h"

#include <stdio.h>

const char *qk_shape_text(const struct qk_tensor *tensor, struct qk_shape_text *buffer)
{
    /* Stops early enough that one more dimension of any length, and the dots, always fit. */
    const size_t room = sizeof(",18446744073709551615,...]");
    size_t used = 0;
    buffer->text[used++] = '[';
    for (uint32_t i = 0; i < tensor->rank; i++) {
        size_t left = sizeof(buffer->text) - used;
        if (left < room) {
            used += (size_t)snprintf(buffer->text + used, left, ",...");
            break;
        }
        used += (size_t)snprintf(buffer->text + used, left, "%s%zu", i ? "," : "", tensor->dims[i]);
    }
    buffer->text[used] = ']';
    buffer->text[used + 1] = '\0';
    return buffer->text;
}

void qk_print_types(uint32_t set, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (enum qk_type type = QK_NONE + 1; type < QK_TYPE_COUNT; type++) {
        if (!(set & QK_BIT(type)))
            continue;
        int length =
            snprintf(text + used, size - used, "%s%s", used ? ", " : "", qk_type_info(type)->name);
        if (length < 0 || (size_t)length >= size - used)
            return;
        used += (size_t)length;
    }
}
