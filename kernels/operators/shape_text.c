#include "kernels/operators/shape_text.h"

#include <stdio.h>

const char *qk_shape_text(const struct qk_tensor *tensor, struct qk_shape_text *buffer)
{
    /* A dimension is printed only where the longest one and the dots still fit behind it. */
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
