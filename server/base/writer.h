/* Lines for a file, or for standard error, written by a thread of its own: a full disk, or a pipe
 * that nobody reads, stops nobody but that thread. Between it and who puts lines is a buffer with a
 * bound; a line for which there is no room is dropped, and counted. A line is written 50 ms after
 * it was put, at most, where the file takes it, so that thousands are written at once. */
#ifndef SERVER_BASE_WRITER_H
#define SERVER_BASE_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "server/base/line.h"

struct qd_writer;

#define QD_WRITER_COMPLAINT_BYTES 512

/* path: appended to, and made with mode 0640 if it is not there; "-": standard error. Borrowed.
 * NULL: `complaint` says why. */
struct qd_writer *qd_writer_create(const char *path, char complaint[QD_WRITER_COMPLAINT_BYTES]);

/* Writes what there is, for a second at most. NULL is fine. */
void qd_writer_destroy(struct qd_writer *writer);

/* One that has ended. Never waits for the file. */
void qd_writer_put(struct qd_writer *writer, const struct qd_line *line);

/* Opens the path anew: what was there has been moved away. Where that fails, the log says so, and
 * the old file goes on. */
void qd_writer_reopen(struct qd_writer *writer);

uint64_t qd_writer_dropped(const struct qd_writer *writer);

#endif
