/* The log: one line for each event, on standard error, as ts=… level=info msg="listening"
 * address=127.0.0.1:8000 or as a JSON object (line.h).
 *
 * All functions may be called on any thread. Lines longer than 4 KiB are cut. A thread of the log
 * writes the lines (log_file.h), so that callers never wait for the reader of standard error. If
 * the buffer is full, lines are dropped and counted, and a later line says how many. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "server/base/status.h"
#include "server/telemetry/line.h"

enum qd_log_level { QD_LOG_DEBUG, QD_LOG_INFO, QD_LOG_WARN, QD_LOG_ERROR };

/* Starts the log's thread. Before that, the calling thread writes each line itself. Returns false,
 * with the reason in `error`, if the thread cannot be started. */
bool qd_log_start(struct qd_error *error);

/* Ends the log's thread. Before that, the thread writes the lines that wait, for at most a second.
 */
void qd_log_stop(void);

/* Enables `level` and all levels above it, and disables the levels below it. */
void qd_log_set_level(enum qd_log_level level);

/* Enables or disables one level. */
void qd_log_enable(enum qd_log_level level, bool enabled);
bool qd_log_enabled(enum qd_log_level level);

/* Triton's verbosity. 0 disables QD_LOG_DEBUG, any other number enables it. */
void qd_log_set_verbosity(uint64_t verbosity);
uint64_t qd_log_verbosity(void);

void qd_log_set_format(enum qd_line_format format);

/* Logs an event. `format` and its arguments make the key=value pairs; "" for none. */
void qd_log(enum qd_log_level level, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The two halves of qd_log: qd_log_begin begins a line, qd_log_write writes one that has ended. */
void qd_log_begin(struct qd_line *line, enum qd_log_level level, const char *event);
void qd_log_write(const struct qd_line *line);

/* Returns how many lines were dropped. */
uint64_t qd_log_dropped(void);

/* A text to print between double quotes. A backslash stands before those in it. */
struct qd_logged {
    char text[1024];
};
struct qd_logged qd_log_value(const char *text);
