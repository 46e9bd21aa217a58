/* One line an event, on standard error: ts=… level=info msg="listening" address=127.0.0.1:8000
 * or the same as a JSON object (line.h).
 *
 * Safe on any thread, also what changes what is logged. A line longer than 4 KiB is cut. A thread
 * of the log's own writes the lines (log_file.h), so that nobody waits for whoever reads them.
 * Lines for which there is no room until then are dropped and counted, and a later line says how
 * many. */
#ifndef SERVER_TELEMETRY_LOG_H
#define SERVER_TELEMETRY_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "server/base/status.h"
#include "server/telemetry/line.h"

enum qd_log_level { QD_LOG_DEBUG, QD_LOG_INFO, QD_LOG_WARN, QD_LOG_ERROR };

/* Starts the thread. Until then, whoever logs a line writes it. Returns false, and `error` says
 * why, if it cannot. */
bool qd_log_start(struct qd_error *error);

/* Writes what there is, for a second at most, and ends the thread. */
void qd_log_stop(void);

/* What is below `level` is dropped, and what is not is logged. */
void qd_log_set_level(enum qd_log_level level);

/* The same for one level alone. */
void qd_log_enable(enum qd_log_level level, bool enabled);
bool qd_log_enabled(enum qd_log_level level);

/* How much a log of everything has; 0 leaves QD_LOG_DEBUG out. There is one kind of it so far. */
void qd_log_set_verbosity(uint64_t verbosity);
uint64_t qd_log_verbosity(void);

void qd_log_set_format(enum qd_line_format format);

/* `format` makes the key=value pairs; "" for none. */
void qd_log(enum qd_log_level level, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Begins a line as qd_log does, and writes one that has ended. */
void qd_log_begin(struct qd_line *line, enum qd_log_level level, const char *event);
void qd_log_write(const struct qd_line *line);

/* Lines that nobody has got. */
uint64_t qd_log_dropped(void);

/* A text to stand between quotes, where the next one would end it: its own are single ones. */
struct qd_logged {
    char text[512];
};
struct qd_logged qd_log_value(const char *text);

#endif
