/* Files below one folder. A path with "..", or one that begins with a slash, is refused, and so is
 * a link that leaves the folder, unless links may lead anywhere. Regular files only, so that a FIFO
 * stops nobody and no device is touched. */
#ifndef SERVER_MODELS_REPOSITORY_FOLDER_H
#define SERVER_MODELS_REPOSITORY_FOLDER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "server/base/status.h"

/* Where links may lead. */
enum qd_links {
    QD_LINKS_INSIDE,   /* to what is inside the folder */
    QD_LINKS_ANYWHERE, /* --allow-repository-links: who writes links there may read files here */
};

/* Opens a folder; `at` is a folder's descriptor, below which it lies. Close it with close. `shown`:
 * the path for errors. */
enum qd_status qd_folder_open(int at, const char *path, enum qd_links links, const char *shown,
                              int *fd, struct qd_error *error);

/* Opens a file for reading, at most bytes_max long. `about`: its size, times and inode. */
enum qd_status qd_folder_open_file(int folder, const char *path, enum qd_links links,
                                   const char *shown, uint64_t bytes_max, int *fd,
                                   struct stat *about, struct qd_error *error);

#endif
