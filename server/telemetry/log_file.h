/* Lines for a file, or for standard error, written by a thread of its own: a full disk, or a pipe
 * that nobody reads, stops nobody but that thread. Between it and who puts lines is a buffer with a
 * bound; a line for which there is no room is dropped, and counted. A line is written 50 ms after
 * it was put, at most, where the file takes it, so that thousands are written at once. */
#ifndef SERVER_TELEMETRY_LOG_FILE_H
#define SERVER_TELEMETRY_LOG_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/status.h"
#include "server/telemetry/line.h"

struct qd_log_file;

/* path: appended to, and made with mode 0640 if it is not there; "-": standard error. Borrowed.
 * NULL: standard error, for the log itself (log.h). Its lines are written at once, and it says how
 * many were dropped as soon as somebody reads again. Returns NULL, and `error` says why. */
struct qd_log_file *qd_log_file_create(const char *path, struct qd_error *error);

/* Writes what there is, for a second at most, and ends the thread. Lines that are put later are
 * lost. Returns false if the file does not come back from a write: then the thread stays behind,
 * and with it all that it holds, until the process ends. */
bool qd_log_file_end(struct qd_log_file *file);

/* The same, and frees it. NULL is fine. */
void qd_log_file_destroy(struct qd_log_file *file);

/* One that has ended. Never waits for the file. */
void qd_log_file_put(struct qd_log_file *file, const struct qd_line *line);

/* Opens the path anew: what was there has been moved away. Where that fails, the log says so, and
 * the old file goes on. */
void qd_log_file_reopen(struct qd_log_file *file);

uint64_t qd_log_file_dropped(const struct qd_log_file *file);

#endif
