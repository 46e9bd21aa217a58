/* Where the bytes of a model's versions come from: its folder in the repository, or the body of a
 * load call. Steps, in this order, on one worker:
 *
 *   qd_sources_open     what there is, and which versions the configuration wants
 *   for each version:
 *     qd_sources_find   opens its files, and says how many units fetching them has
 *     qd_sources_fetch  all units; the only step that several threads may take at once
 *     qd_sources_take   what came
 *     (while an ONNX file is parsed, its external data are found; they are fetched as before, and
 *     qd_sources_check sees that all came)
 *   qd_sources_close */
#ifndef SERVER_MODELS_SOURCES_H
#define SERVER_MODELS_SOURCES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "server/base/status.h"
#include "server/memory/arena.h"
#include "server/models/base64.h"
#include "server/models/build.h"
#include "server/models/model_config.h"
#include "server/models/repository/repository.h"

#define QD_SOURCES_VERSION_COUNT_MAX 64 /* loaded at once under one name */
#define QD_SOURCES_FILE_COUNT_MAX 64    /* of one version */

/* Costs of a unit of fetching: 256 KiB of a file that lies in the page cache, into memory that was
 * used before; or 64 Ki characters of base64. */
#define QD_FETCH_FILE_UNIT_NS UINT64_C(20000)
#define QD_FETCH_TEXT_UNIT_NS UINT64_C(60000)

/* An open file. */
struct qd_source_file {
    const char *path; /* below its version's folder */
    int fd;
    struct stat about;
};

/* Bytes of a file that are wanted. */
struct qd_reading {
    const struct qd_source_file *file;
    uint64_t offset;
    uint64_t bytes;
    char *to;
    size_t unit_begin;
};

/* A file in a load call: parameters."file:VERSION/PATH". */
struct qd_call_file {
    uint64_t version;
    const char *path;
    char *text; /* base64, between its quotes; then what it stood for */
    size_t count;
};

struct qd_sources {
    /* Borrowed. */
    const char *name;
    const struct qd_repository *repository; /* NULL: there is none */
    bool marks_folder;                      /* its fingerprint is wanted */
    struct qd_arena *arena;                 /* for as long as the load */
    struct qd_arena *version_arena;         /* these two are emptied by qd_sources_find */
    struct qd_arena *file_arena;            /* for the version's own files */
    char *body; /* of a load call; its base64 is decoded in place. NULL: there is none */
    size_t body_bytes;
    const char *json_bytes_header; /* as in qd_oip_message */

    /* qd_sources_open's. */
    struct qd_model_config config;
    bool configured; /* by the call: the folder's config.json does not count */
    uint64_t versions[QD_SOURCES_VERSION_COUNT_MAX]; /* ascending */
    size_t version_count;
    bool from_repository; /* then `folder` is open */
    struct qd_model_folder folder;
    bool is_request; /* the body is one, and its JSON has so many bytes */
    size_t json_bytes;
    struct qd_call_file *files; /* NULL: the body has none */
    size_t file_count;

    /* The version that qd_sources_find was told. */
    uint64_t version;
    char shown[320]; /* "NAME/VERSION/model.onnx", for errors; "": a request as body */
    enum qd_source_kind kind;
    int version_fd;
    struct qd_source_file opened[QD_SOURCES_FILE_COUNT_MAX];
    size_t opened_count;
    struct qd_call_file *main_file; /* of a call */
    struct qd_call_file *blob_file; /* a request's binary tensors; NULL: none */
    char *bytes;                    /* of a folder */
    size_t byte_count;
    size_t json_file_bytes;

    /* What is to be fetched. */
    size_t unit_count;
    bool in_order; /* by one thread, from the first to the last */
    struct qd_reading *readings;
    size_t reading_count;
    size_t reading_capacity;
    size_t decoding; /* in `files`; file_count: all are decoded */
    bool decoding_begun;
    struct qd_base64 decoder;
    atomic_flag failed_first;
    atomic_bool failed;
    struct qd_error fetch_error; /* of whoever failed first */
};

/* Sets it up: close it, whatever happens. The error's text names the file. */
void qd_sources_init(struct qd_sources *sources);
enum qd_status qd_sources_open(struct qd_sources *sources, struct qd_error *error);
enum qd_status qd_sources_find(struct qd_sources *sources, size_t index, struct qd_error *error);
void qd_sources_fetch(struct qd_sources *sources, size_t begin, size_t end);
enum qd_status qd_sources_take(struct qd_sources *sources, struct qd_source *source,
                               struct qd_error *error);
enum qd_status qd_sources_check(struct qd_sources *sources, struct qd_error *error);
void qd_sources_close(struct qd_sources *sources);

#endif
