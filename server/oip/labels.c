#include "server/oip/labels.h"

#include <string.h>

#include "server/memory/text.h"

/* Refuses a line that may not be a label. `number` begins at 1. */
static enum qd_status check_line(const char *line, size_t bytes, const char *source, size_t number,
                                 struct qd_error *error)
{
    if (bytes > QD_LABEL_BYTES_MAX)
        return qd_fail(error, QD_INVALID, "%.200s: line %zu: expected at most %u bytes, got %zu",
                       source, number, QD_LABEL_BYTES_MAX, bytes);
    for (size_t at = 0; at < bytes;) {
        const size_t length = qd_utf8_length(line + at, bytes - at);
        if (length == 0)
            return qd_fail(error, QD_INVALID, "%.200s: line %zu: expected UTF-8, got byte 0x%02x",
                           source, number, (unsigned char)line[at]);
        const uint32_t point = qd_utf8_decode(line + at, length);
        if (point != '\t' && qd_is_control(point))
            return qd_fail(error, QD_INVALID,
                           "%.200s: line %zu: expected no control characters but tabs, got U+%04X",
                           source, number, point);
        at += length;
    }
    return QD_OK;
}

/* Counts the lines. An end of a line at the text's end begins no other line. */
static size_t count_lines(const char *text, size_t bytes)
{
    size_t count = bytes > 0 && text[bytes - 1] != '\n';
    for (size_t i = 0; i < bytes; i++)
        count += text[i] == '\n';
    return count;
}

enum qd_status qd_labels_read(const char *text, size_t bytes, const char *source,
                              struct qd_arena *arena, const struct qd_labels **labels,
                              struct qd_error *error)
{
    static const char mark[] = {'\xef', '\xbb', '\xbf'};
    if (bytes > QD_LABELS_BYTES_MAX)
        return qd_fail(error, QD_TOO_LARGE, "%.200s: expected at most %u bytes, got %zu", source,
                       QD_LABELS_BYTES_MAX, bytes);
    if (bytes >= sizeof(mark) && memcmp(text, mark, sizeof(mark)) == 0) {
        text += sizeof(mark);
        bytes -= sizeof(mark);
    }
    const size_t count = count_lines(text, bytes);
    if (count > QD_LABELS_COUNT_MAX)
        return qd_fail(error, QD_TOO_LARGE, "%.200s: expected at most %u lines, got %zu", source,
                       QD_LABELS_COUNT_MAX, count);
    struct qd_labels *made =
        qd_arena_alloc(arena, sizeof(*made) + (count + 1) * sizeof(*made->begins) + bytes + 1);
    if (made == NULL)
        return qd_refuse_memory(arena, source, error);
    char *copy = (char *)(made->begins + count + 1);
    size_t used = 0;
    const char *at = text;
    for (size_t i = 0; i < count; i++) {
        const size_t left = bytes - (size_t)(at - text);
        const char *end = memchr(at, '\n', left);
        size_t length = end == NULL ? left : (size_t)(end - at);
        const size_t step = length + 1;
        if (length > 0 && at[length - 1] == '\r')
            length--;
        if (check_line(at, length, source, i + 1, error) != QD_OK)
            return error->status;
        made->begins[i] = (uint32_t)used;
        memcpy(copy + used, at, length);
        used += length;
        copy[used++] = '\0';
        at += step;
    }
    made->begins[count] = (uint32_t)used;
    made->count = count;
    *labels = made;
    return QD_OK;
}

const struct qd_labels *qd_labels_copy(const struct qd_labels *labels, struct qd_arena *arena)
{
    const size_t bytes = sizeof(*labels) + (labels->count + 1) * sizeof(*labels->begins) +
                         labels->begins[labels->count];
    void *made = qd_arena_alloc(arena, bytes);
    return made == NULL ? NULL : memcpy(made, labels, bytes);
}

const char *qd_labels_find(const struct qd_labels *labels, size_t index, size_t *bytes)
{
    if (labels == NULL || index >= labels->count)
        return NULL;
    *bytes = labels->begins[index + 1] - labels->begins[index] - 1;
    const char *text = (const char *)(labels->begins + labels->count + 1);
    return *bytes == 0 ? NULL : text + labels->begins[index];
}
