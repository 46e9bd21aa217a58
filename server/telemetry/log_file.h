/* Writes lines to a file or to standard error, on a thread of its own: a full disk, or a pipe that
 * nobody reads, stops only that thread. Callers put lines into a buffer (QD_LOG_FILE_BYTES_MAX). A
 * line that does not fit is dropped and counted. The thread writes a line at most 50 ms after it
 * was put into the buffer, so that one write can contain thousands of lines. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "server/base/status.h"
#include "server/telemetry/line.h"

struct qd_log_file;

/* Opens the file and starts the thread. `path` is borrowed. The file is appended to, and created
 * with mode 0640 if it does not exist; "-" is standard error. NULL is standard error as the log
 * uses it (log.h): lines are written at once, and after lines were dropped, the next successful
 * write reports how many. Returns NULL on failure, with the reason in `error`. */
struct qd_log_file *qd_log_file_create(const char *path, struct qd_error *error);

/* Ends the thread. Before that, the thread writes the lines that wait, for at most a second. Lines
 * that are put later are lost. Returns false if the thread is still blocked in a write to the file.
 * The thread and its memory then stay until the process ends. */
bool qd_log_file_end(struct qd_log_file *file);

/* Like qd_log_file_end, and frees the file. NULL is fine. */
void qd_log_file_destroy(struct qd_log_file *file);

/* Puts a line that has ended into the buffer. Never waits for the file. */
void qd_log_file_put(struct qd_log_file *file, const struct qd_line *line);

/* Reopens the path, after the old file has been moved away. If that fails, the log says so, and the
 * old file stays in use. */
void qd_log_file_reopen(struct qd_log_file *file);

uint64_t qd_log_file_dropped(const struct qd_log_file *file);
