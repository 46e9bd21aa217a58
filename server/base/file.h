/* Reads small files that the operator names, such as keys and tokens. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "server/base/status.h"

struct qd_file {
    char *text; /* followed by a NUL, which `bytes` does not count */
    size_t bytes;
    bool is_public; /* every user of this host may read the file */
};

/* Reads a whole regular file of at most bytes_max bytes. Returns false on failure; `error` then
 * gives the reason, without the file's name. */
bool qd_file_read(const char *path, size_t bytes_max, struct qd_file *file, struct qd_error *error);

/* Names the kind of file that has this st_mode, for an error text: "a folder", "a device". */
const char *qd_file_kind(mode_t mode);

/* Clears and frees the text, so that no secret stays in memory. */
void qd_file_forget(struct qd_file *file);
