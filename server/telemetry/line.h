/* One line of a log, made field by field, as text (key=value key="value") or as a JSON object.
 *
 * Whatever the values are, a line is one line, and in JSON a valid object in valid UTF-8. In text,
 * a quote inside a value becomes a single one, and what is no UTF-8, or a control character, '?':
 * also one of Unicode's, such as CSI, a line's or paragraph's end, or a change of direction. */
#ifndef SERVER_TELEMETRY_LINE_H
#define SERVER_TELEMETRY_LINE_H

#include <stddef.h>
#include <stdint.h>

enum qd_line_format { QD_LINE_TEXT, QD_LINE_JSON };

/* With its end: so many bytes go into a pipe in one piece. */
#define QD_LINE_BYTES_MAX 4096

/* A field for which there is no more room is left out. */
struct qd_line {
    enum qd_line_format format;
    size_t count;
    char bytes[QD_LINE_BYTES_MAX];
};

/* With the time and `level` ("info"); `message` says what happened. */
void qd_line_begin(struct qd_line *line, enum qd_line_format format, const char *level,
                   const char *message);

/* Keys are ours: small letters, digits, underscores. At most bytes_max bytes of the value, as they
 * are printed. */
void qd_line_string(struct qd_line *line, const char *key, const char *value, size_t bytes_max);
void qd_line_number(struct qd_line *line, const char *key, uint64_t value);

/* The fields of a printed text, key=value key="value": in JSON, whole numbers are numbers. */
void qd_line_pairs(struct qd_line *line, const char *pairs);

/* No more is added. */
void qd_line_end(struct qd_line *line);

#endif
