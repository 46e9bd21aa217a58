/* Small files that the operator names: keys, tokens. */
#ifndef SERVER_BASE_FILE_H
#define SERVER_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "server/base/status.h"

struct qd_file {
    char *text; /* with a NUL behind it, which is not counted */
    size_t bytes;
    bool is_public; /* anybody on this host may read it */
};

/* The whole of a regular file of at most bytes_max. False: `error` says why, without its name.
 */
bool qd_file_read(const char *path, size_t bytes_max, struct qd_file *file, struct qd_error *error);

/* Returns what a file of this st_mode is, for an error: "a folder", "a device". */
const char *qd_file_kind(mode_t mode);

/* Nothing of it stays in memory. */
void qd_file_forget(struct qd_file *file);

#endif
