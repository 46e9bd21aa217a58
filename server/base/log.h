/* One line an event, on standard error: ts=… level=info msg="listening" address=127.0.0.1:8000
 *
 * Safe on any thread once the level is set. Control characters in a line become '?', so that nobody
 * writes lines of their own; a line longer than 1 KiB is cut, and one that would have to wait for
 * whoever reads is dropped. */
#ifndef SERVER_BASE_LOG_H
#define SERVER_BASE_LOG_H

#include <stdarg.h>

enum qd_log_level { QD_LOG_DEBUG, QD_LOG_INFO, QD_LOG_WARN, QD_LOG_ERROR };

/* What is below `level` is dropped. Before other threads start. */
void qd_log_set_level(enum qd_log_level level);

/* `format` makes the key=value pairs; "" for none. */
void qd_log(enum qd_log_level level, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void qd_log_list(enum qd_log_level level, const char *event, const char *format, va_list arguments)
    __attribute__((format(printf, 3, 0)));

/* A text to stand between quotes, where the next one would end it: its own are single ones. */
struct qd_logged {
    char text[512];
};
struct qd_logged qd_log_value(const char *text);

#endif
