/* One line of a log, made field by field, as text (key=value key="value") or as a JSON object.
 *
 * Whatever the values contain, the result is a single line, and in JSON a valid object in UTF-8. A
 * backslash stands before double quotes and backslashes in values. In text, bytes that are not
 * UTF-8 become '?'. Control characters also become '?', including Unicode's: CSI, separators of
 * lines and paragraphs, and changes of direction. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum qd_line_format { QD_LINE_TEXT, QD_LINE_JSON };

/* The length of a line with its newline. A pipe takes this many bytes atomically. */
#define QD_LINE_BYTES_MAX 4096

/* A line while it is made. A field that does not fit is left out. */
struct qd_line {
    enum qd_line_format format;
    size_t count;
    char bytes[QD_LINE_BYTES_MAX];
};

/* Begins a line with the time, `level` ("info") and `message`, which says what happened. */
void qd_line_begin(struct qd_line *line, enum qd_line_format format, const char *level,
                   const char *message);

/* Adds a field. `key` consists of small letters, digits and underscores. At most bytes_max bytes of
 * the value, as printed, are added. */
void qd_line_string(struct qd_line *line, const char *key, const char *value, size_t bytes_max);
void qd_line_number(struct qd_line *line, const char *key, uint64_t value);

/* Adds the fields of a text such as key=value key="value". Values in quotes are escaped already. In
 * JSON, integers become numbers. */
void qd_line_pairs(struct qd_line *line, const char *pairs);

/* Ends the line. No field may follow. */
void qd_line_end(struct qd_line *line);
