/* Opens files below one folder. Refuses a path that begins with a slash or leaves the folder by
 * "..". Refuses a link that leaves the folder, unless links may lead anywhere. Opens only regular
 * files, so that a FIFO cannot block a thread and no device is touched. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "server/base/status.h"
#include "server/memory/text.h"

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

/* Reads a whole file of at most bytes_max bytes, a bound that no flag sets, into the arena. */
enum qd_status qd_folder_read_file(int folder, const char *path, enum qd_links links,
                                   const char *shown, uint64_t bytes_max, struct qd_arena *arena,
                                   struct qd_part *file, struct qd_error *error);

/* ---- What lies where a model's file was expected, for an error text ------------------------ */

/* As many names as fit: the ONNX files, and all other files. Initialize it with zeros. */
struct qd_missing_file {
    char onnx[120];
    char others[120];
};

/* Returns whether the name is that of an ONNX file, such as "model_int8.onnx". */
bool qd_missing_file_is_onnx(const char *name);

/* Returns the length of a name without ".onnx" at its end. */
size_t qd_missing_file_stem(const char *name);

void qd_missing_file_add(struct qd_missing_file *missing, const char *name);

/* Adds the names in the folder with this descriptor, except names that begin with a dot. Looks at
 * 1,000 entries at most. */
void qd_missing_file_read(struct qd_missing_file *missing, int folder);

/* Returns the names of the ONNX files, as "\"a.onnx\", \"b.onnx\"". Returns all other names if
 * there are no ONNX files, and "nothing" if there are no names. */
const char *qd_missing_file_text(const struct qd_missing_file *missing);
