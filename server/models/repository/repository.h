/* Where models lie: in a folder, and in files that the command line names one by one.
 *
 * The folder has Triton's layout: NAME/VERSION/model.onnx, or NAME/VERSION/request.json and
 * request.bin. The name of a version's folder is a number above 0, without leading zeros. Two
 * shorter forms are version 1 of a model: NAME/model.onnx (or request.json), if NAME has no
 * versions and is not a number itself, and NAME.onnx, if there is no folder NAME. A file that the
 * command line names hides a model of that name in the folder. The names of a model's classes lie
 * in NAME/VERSION/labels.txt or NAME/labels.txt, or beside NAME.onnx in NAME.labels.txt. For a file
 * that the command line names, they may also lie in labels.txt beside it.
 *
 * With QD_LINKS_INSIDE, a model may read only files inside its own folder. That folder may be a
 * link, but only to a place inside the repository. The folder of NAME.onnx is the repository. With
 * QD_LINKS_ANYWHERE, links may lead anywhere. A file that the command line names may be a link to
 * any place, but its external data follows the rule.
 * All calls block, so they are for workers. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/status.h"
#include "server/memory/arena.h"
#include "server/models/repository/folder.h"

#define QD_REPOSITORY_MODEL_COUNT_MAX 4096
#define QD_REPOSITORY_VERSION_COUNT_MAX 4096 /* versions of one model */
#define QD_REPOSITORY_GIVEN_COUNT_MAX 256    /* as many as --load-model */

/* Returns QD_OK if a loaded model may have this name. It must be UTF-8, not be "." or "..", and not
 * begin as the operators' names do. It must not contain slashes, backslashes, quotes or control
 * characters, including Unicode's, so that logs and metrics can print it unchanged. It must not be
 * "stats", because GET /v2/models/stats is about all models. Pure. */
#define QD_MODEL_NAME_BYTES_MAX 128
enum qd_status qd_model_check_name(const char *name, struct qd_error *error);

struct qd_repository;

/* Opens a repository. Copies the path, which is NULL if there is no folder. Returns NULL, with the
 * reason in `error`, if the folder cannot be opened or malloc failed. */
struct qd_repository *qd_repository_open(const char *path, enum qd_links links,
                                         struct qd_error *error);
void qd_repository_close(struct qd_repository *repository); /* NULL is fine */

/* Returns whether the folder's own name was a version when it was opened. Does not block. */
bool qd_repository_is_named_as_version(const struct qd_repository *repository);

/* Adds files: FILE or NAME=FILE, with commas between several. Without a name, the model has the
 * file's name without ".onnx". A text before the first '=' is a name if it has no slash. Does not
 * look whether the files exist. */
enum qd_status qd_repository_give(struct qd_repository *repository, const char *files,
                                  struct qd_error *error);
/* Returns where FILE begins in FILE or NAME=FILE. */
const char *qd_repository_given_file(const char *text);
/* Puts the folder of the file `path` before an error that begins with the file's own name. For the
 * operator's eyes, as in the log: clients must not see the folder. */
void qd_repository_show_folder(const char *path, struct qd_error *error);
/* Returns the path of the file of this name that qd_repository_give added, or NULL. Clients must
 * not see its folder, so errors begin with the file's own name. */
const char *qd_repository_given_path(const struct qd_repository *repository, const char *name);

/* Lists the names of the models, sorted, in the arena. Skips entries that cannot be models: other
 * files than NAME.onnx, names that begin with a dot, the lost+found of a file system's root. Skips
 * and logs entries whose name no model may have. A broken link is listed, and qd_model_folder_open
 * then says what is wrong with it. */
enum qd_status qd_repository_list(const struct qd_repository *repository, struct qd_arena *arena,
                                  const char ***names, size_t *count, struct qd_error *error);

/* The folder of one model, as it was when it was opened. */
struct qd_model_folder {
    int fd;
    enum qd_links links;
    char file[NAME_MAX + 1]; /* the model is this file in the folder; "": it is the folder */
    bool is_given;           /* the command line names the file */
    bool is_flat;            /* version 1 lies in the folder itself */
    bool hides_file;         /* NAME.onnx lies beside the folder NAME, and is ignored */
    uint64_t *versions;      /* ascending, in the arena */
    size_t version_count;
    bool has_config;  /* config.json */
    bool has_pbtxt;   /* config.pbtxt */
    bool has_model;   /* a file that belongs into a version's folder */
    bool has_folders; /* folders that are no versions */
    /* A hash of the names, sizes, times and inodes of all files in this folder and in the folders
     * of its versions. The model is made of these files, so the fingerprint changes when one of
     * them does. For a model of one file, FILE, the hash is of FILE, of FILE.data and FILE_data,
     * which are the usual names of external data, and of its labels. 0 if not computed. */
    uint64_t fingerprint;
};

/* Opens the folder of a model. The caller closes it. Fails with QD_NOT_FOUND if the repository has
 * no such folder or file. Any other failure may be temporary. If `marks` is true, also reads the
 * versions' folders and computes the fingerprint. */
enum qd_status qd_model_folder_open(const struct qd_repository *repository, const char *name,
                                    bool marks, struct qd_arena *arena,
                                    struct qd_model_folder *folder, struct qd_error *error);
void qd_model_folder_close(struct qd_model_folder *folder);

/* Sorts versions, the lowest first. */
void qd_versions_sort(uint64_t *versions, size_t count);

/* The file in a model's folder that names its classes. */
#define QD_LABEL_FILE "labels.txt"
/* Prints the name of such a file for a model of one file: FILE without its ".onnx", and with
 * ".labels.txt". */
#define QD_LABEL_FILE_BYTES_MAX (NAME_MAX + sizeof(".labels.txt"))
void qd_model_folder_label_file(const struct qd_model_folder *folder,
                                char name[QD_LABEL_FILE_BYTES_MAX]);
