/* A folder of models, as Triton has it: NAME/VERSION/model.onnx, or NAME/VERSION/request.json and
 * request.bin. Versions are folders whose names are numbers above 0, without zeros before them.
 *
 * Unless links may lead anywhere, nothing outside of a model's own folder is ever opened; the
 * repository may hold links to models' folders, but only to such inside itself. Calls block, so
 * they are for workers. */
#ifndef SERVER_MODELS_REPOSITORY_REPOSITORY_H
#define SERVER_MODELS_REPOSITORY_REPOSITORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/status.h"
#include "server/memory/arena.h"
#include "server/models/repository/folder.h"

#define QD_REPOSITORY_MODEL_COUNT_MAX 4096
#define QD_REPOSITORY_VERSION_COUNT_MAX 4096 /* of one model */

struct qd_repository;

/* NULL: no such folder, and the error says so. The path is copied. */
struct qd_repository *qd_repository_open(const char *path, enum qd_links links,
                                         struct qd_error *error);
void qd_repository_close(struct qd_repository *repository); /* NULL is fine */

/* The names of models, sorted, in the arena. What cannot be one is passed over: files, names with a
 * dot before them, the lost+found of a file system's root; and others that a model may not have,
 * which is logged. A link that leads nowhere is in the list: qd_model_folder_open says what is
 * wrong with it. */
enum qd_status qd_repository_list(const struct qd_repository *repository, struct qd_arena *arena,
                                  const char ***names, size_t *count, struct qd_error *error);

/* One model's folder, as it is now. */
struct qd_model_folder {
    int fd;
    enum qd_links links;
    uint64_t *versions; /* ascending, in the arena */
    size_t version_count;
    bool has_config; /* config.json */
    bool has_pbtxt;  /* config.pbtxt, which is not read */
    bool has_model;  /* what belongs into a version's folder */
    /* Of names, sizes, times and inodes of all files in it and in the folders of its versions: of
     * what a model is made of, so that it changes when one of them does. 0: nobody asked for it. */
    uint64_t fingerprint;
};

/* QD_NOT_FOUND: the repository has no such folder. Any other failure may pass. `marks`: its
 * fingerprint is wanted, for which the versions' folders are read too. */
enum qd_status qd_model_folder_open(const struct qd_repository *repository, const char *name,
                                    bool marks, struct qd_arena *arena,
                                    struct qd_model_folder *folder, struct qd_error *error);
void qd_model_folder_close(struct qd_model_folder *folder);

#endif
