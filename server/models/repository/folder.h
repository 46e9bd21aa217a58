/* Opens files below one folder. Refuses a path that begins with a slash or leaves the folder by
 * "..". Refuses a link that leaves the folder, unless links may lead anywhere. Opens only regular
 * files, so that a FIFO cannot block a thread and no device is touched. */
#ifndef SERVER_MODELS_REPOSITORY_FOLDER_H
#define SERVER_MODELS_REPOSITORY_FOLDER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "server/base/status.h"

/* Where symbolic links may lead. */
enum qd_links {
    QD_LINKS_INSIDE, /* only to places inside the folder */
    /* --allow-repository-links: anybody who can create links in the repository can make the server
     * read any file that it may read. */
    QD_LINKS_ANYWHERE,
};

/* Opens a folder below the folder with the descriptor `at`. The caller closes *fd. `shown` is the
 * path for errors. */
enum qd_status qd_folder_open(int at, const char *path, enum qd_links links, const char *shown,
                              int *fd, struct qd_error *error);

/* Opens a file of at most bytes_max bytes for reading. `flag` sets this bound: " (--name)", or ""
 * if it is fixed. Sets *about to the file's size, times and inode. The caller closes *fd. */
enum qd_status qd_folder_open_file(int folder, const char *path, enum qd_links links,
                                   const char *shown, uint64_t bytes_max, const char *flag, int *fd,
                                   struct stat *about, struct qd_error *error);

/* Reads `count` bytes of an open file. Fails with QD_UNAVAILABLE, also if the file ends earlier
 * because it was cut short after it was opened. */
enum qd_status qd_folder_read(int fd, uint64_t offset, char *bytes, size_t count, const char *shown,
                              struct qd_error *error);

#endif
