/* Files below one folder, and never outside of it: a path with "..", or a link that leaves the
 * folder, is refused. Regular files only, so that a FIFO stops nobody. */
#ifndef SERVER_MODELS_FOLDER_H
#define SERVER_MODELS_FOLDER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "server/base/status.h"

/* Opens a folder; `at` is a folder's descriptor, below which it lies. Close it with close. `shown`:
 * the path for errors. */
enum qd_status qd_folder_open(int at, const char *path, const char *shown, int *fd,
                              struct qd_error *error);

/* Opens a file for reading, at most bytes_max long. `about`: its size, times and inode. */
enum qd_status qd_folder_open_file(int folder, const char *path, const char *shown,
                                   uint64_t bytes_max, int *fd, struct stat *about,
                                   struct qd_error *error);

#endif
