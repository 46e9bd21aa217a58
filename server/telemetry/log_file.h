/* Writes lines to a file or to standard error, on a thread of its own: a full disk, or a pipe that
 * nobody reads, stops only that thread. Callers put lines into a buffer (QD_LOG_FILE_BYTES_MAX). A
 * line that does not fit is dropped and counted. The thread writes at most 50 ms after a line was
 * put, so that thousands of lines are written at once. */
#ifndef SERVER_TELEMETRY_LOG_FILE_H
#define SERVER_TELEMETRY_LOG_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/status.h"
#include "server/telemetry/line.h"

struct qd_log_file;

/* `path` is borrowed. The file is appended to, and created with mode 0640 if it does not exist; "-"
 * is standard error. A NULL path is standard error for the log itself (log.h): its lines are
 * written at once, and once somebody reads again, it reports how many lines were dropped. Returns
 * NULL on failure, with the reason in `error`. */
struct qd_log_file *qd_log_file_create(const char *path, struct qd_error *error);

/* Writes the lines that wait, for a second at most, and ends the thread. Lines that are put later
 * are lost. Returns false if a write to the file does not return: then the thread and its memory
 * stay until the process ends. */
bool qd_log_file_end(struct qd_log_file *file);

/* Like qd_log_file_end, and frees the file. NULL is fine. */
void qd_log_file_destroy(struct qd_log_file *file);

/* Puts a line that has ended into the buffer. Never waits for the file. */
void qd_log_file_put(struct qd_log_file *file, const struct qd_line *line);

/* Reopens the path, after the old file has been moved away. If that fails, the log says so, and the
 * old file stays in use. */
void qd_log_file_reopen(struct qd_log_file *file);

uint64_t qd_log_file_dropped(const struct qd_log_file *file);

#endif
