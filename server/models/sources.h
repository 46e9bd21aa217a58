/* Gets the bytes of a model's versions, from its folder in the repository or from the body of a
 * load call. One worker takes these steps in this order:
 *
 *   qd_sources_open          finds the files or the body, and chooses which versions to load
 *   for each version:
 *     qd_sources_find        opens its files, and counts the units of fetching them
 *     qd_sources_fetch       fetches units; the only step that several threads may run at once
 *     qd_sources_take        hands over the bytes
 *     qd_sources_set_build   sets up the build, with the names of the outputs' classes
 *     (Parsing an ONNX file finds its external data. These are fetched as before, and
 *     qd_sources_check then fails if a file could not be read or has changed.)
 *   qd_sources_close */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "server/base/status.h"
#include "server/memory/arena.h"
#include "server/models/base64.h"
#include "server/models/build.h"
#include "server/models/cut_hint.h"
#include "server/models/model_config.h"
#include "server/models/repository/repository.h"

#define QD_SOURCES_VERSION_COUNT_MAX 64 /* versions loaded at once under one name */
#define QD_SOURCES_FILE_COUNT_MAX 64    /* files of one version */

/* The time of one unit of fetching: 256 KiB of a file that lies in the page cache, read into memory
 * that was used before; or 64 Ki characters of base64. */
#define QD_FETCH_FILE_UNIT_NS UINT64_C(20000)
#define QD_FETCH_TEXT_UNIT_NS UINT64_C(60000)

/* An open file. */
struct qd_source_file {
    const char *path; /* relative to its version's folder */
    int fd;
    struct stat about; /* when it was opened; qd_sources_check compares */
};

/* A range of a file that is to be read. */
struct qd_reading {
    const struct qd_source_file *file;
    uint64_t offset;
    uint64_t bytes;
    char *to;
    size_t unit_begin; /* the first of the units that read it */
};

/* A file in a load call: parameters."file:VERSION/PATH". */
struct qd_call_file {
    uint64_t version;
    const char *path;
    char *text; /* the base64 between the quotes; after decoding, the file's bytes */
    size_t count;
};

struct qd_sources {
    /* The load's memory. qd_sources_find empties version_arena and file_arena. */
    size_t memory_bytes; /* of these arenas, and of the models that are made */
    struct qd_arena arena;
    struct qd_arena version_arena; /* of the version that is being made */
    struct qd_arena file_arena;    /* of the version's own files, until nothing points there */

    /* Borrowed. */
    const char *name;
    const struct qd_repository *repository; /* NULL if there is none */
    bool marks_folder;                      /* compute the folder's fingerprint */
    char *body; /* a load call's body; its base64 is decoded in place; NULL if there is none */
    size_t body_bytes;
    const char *json_bytes_header; /* as in qd_oip_message; json_bytes has its value then */

    /* Set by qd_sources_open. */
    struct qd_model_config config;
    bool configured; /* the call brings a configuration, so the folder's is not read */
    uint64_t versions[QD_SOURCES_VERSION_COUNT_MAX]; /* ascending */
    size_t version_count;
    bool from_repository; /* `folder` is open */
    struct qd_model_folder folder;
    bool is_request; /* the body is a request whose JSON has json_bytes bytes */
    size_t json_bytes;
    struct qd_call_file *files; /* NULL if the body has no files */
    size_t file_count;
    size_t file_capacity;

    /* The current version, set by qd_sources_find. */
    uint64_t version;
    char shown[320]; /* "NAME/VERSION/model.onnx" or, without versions, "NAME/model.onnx" or
                        "NAME.onnx", for errors; "" if the body is a request */
    enum qd_source_kind kind;
    int version_fd;
    struct qd_source_file opened[QD_SOURCES_FILE_COUNT_MAX];
    size_t opened_count;
    struct qd_call_file *main_file; /* for a load call with files */
    struct qd_call_file *blob_file; /* a request's binary tensors; NULL if there are none */
    char *bytes; /* for a folder: the version's file, or request.json followed by request.bin */
    size_t byte_count;
    size_t json_file_bytes;

    /* What is to be fetched for the current version. */
    size_t unit_count;
    bool in_order; /* one thread must fetch the units, from the first to the last */
    struct qd_reading *readings;
    size_t reading_count;
    size_t reading_capacity;
    size_t decoding; /* index into `files`; file_count if all are decoded */
    struct qd_base64 decoder;
    atomic_bool failed;
    struct qd_error fetch_error; /* the error of the first thread that failed */
};

/* Prepares the sources of a model of this name. Their arenas take their memory from `memory`. The
 * caller closes them even if a later step fails. The error texts of these functions name the file.
 */
void qd_sources_init(struct qd_sources *sources, const char *name,
                     const struct qd_repository *repository, struct qd_memory *memory);
enum qd_status qd_sources_open(struct qd_sources *sources, struct qd_error *error);
enum qd_status qd_sources_find(struct qd_sources *sources, size_t index, struct qd_error *error);
void qd_sources_fetch(struct qd_sources *sources, size_t begin, size_t end);
enum qd_status qd_sources_take(struct qd_sources *sources, struct qd_source *source,
                               struct qd_error *error);
enum qd_status qd_sources_check(struct qd_sources *sources, struct qd_error *error);
/* Sets up the build of the current version, in its arena, and *work. Reads labels for the build:
 * for each output of the configuration those that its label_filename names, and for the other
 * outputs those that lie beside the model, if there are any. */
enum qd_status qd_sources_set_build(struct qd_sources *sources, const struct qk_kernels *kernels,
                                    struct qd_build_work *work, struct qd_build *build,
                                    struct qd_error *error);
/* Completes the error of a later step, such as qd_build_read: puts the file's name before its text,
 * and appends the hints, which may be NULL, as far as they fit. Returns error->status. */
enum qd_status qd_sources_fail(const struct qd_sources *sources, const struct qd_cut_hints *hints,
                               struct qd_error *error);
/* Closes the files, and frees the arenas. May be called more than once. */
void qd_sources_close(struct qd_sources *sources);

/* Finds a file of the current version in the load call. Returns NULL if there is none or if `path`
 * is NULL. */
struct qd_call_file *qd_sources_call_file(const struct qd_sources *sources, const char *path);
