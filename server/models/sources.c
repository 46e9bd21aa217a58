#define _GNU_SOURCE
#include "server/models/sources.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/json/reader.h"
#include "server/json/tree.h"
#include "server/memory/text.h"
#include "server/models/repository/folder.h"
#include "server/oip/inputs.h"
#include "server/telemetry/log.h"

enum {
    FILE_UNIT_BYTES = 256 << 10,
    TEXT_UNIT_CHARACTERS = 64 << 10,
    CONFIG_BYTES_MAX = 1 << 20,
    SHOWN_BYTES = sizeof(((struct qd_sources *)NULL)->shown),
};

void qd_sources_init(struct qd_sources *sources, const char *name,
                     const struct qd_repository *repository, struct qd_memory *memory)
{
    qd_arena_init(&sources->arena, memory);
    sources->arena.together = &sources->memory_bytes;
    qd_arena_init_beside(&sources->version_arena, &sources->arena);
    sources->version_arena.is_sparse = true; /* of a node, only qk_node_bytes are written */
    qd_arena_init_beside(&sources->file_arena, &sources->arena);
    sources->name = name;
    sources->repository = repository;
    sources->folder.fd = -1;
    sources->version_fd = -1;
    qd_model_config_init(&sources->config);
}

/* ---- Which of its files a version is made of ---------------------------------------------- */

#define REQUEST_NAME "request.json"

/* Prints the path of one of the version's files for errors; of the version if `path` is "". */
static void show(const struct qd_sources *sources, const char *path, char *text, size_t bytes)
{
    const struct qd_model_folder *folder = &sources->folder;
    const char *slash = *path == '\0' ? "" : "/";
    if (sources->from_repository && *folder->file != '\0')
        snprintf(text, bytes, "%.255s", *path == '\0' ? folder->file : path);
    else if (sources->from_repository && folder->is_flat)
        snprintf(text, bytes, "%.128s%s%.150s", sources->name, slash, path);
    else
        snprintf(text, bytes, "%.128s/%llu%s%.150s", sources->name,
                 (unsigned long long)sources->version, slash, path);
}

/* Returns the name of the version's ONNX file. If the configuration names a file, or the model is
 * one file, the version is made of that file only. Returns NULL if that file is request.json. */
static const char *onnx_name(const struct qd_sources *sources)
{
    const char *name = sources->config.file_name;
    if (sources->from_repository && *sources->folder.file != '\0')
        return sources->folder.file;
    if (name == NULL)
        return "model.onnx";
    return strcmp(name, REQUEST_NAME) == 0 ? NULL : name;
}

static const char *request_name(const struct qd_sources *sources)
{
    if (sources->from_repository && *sources->folder.file != '\0')
        return NULL;
    return sources->config.file_name == NULL || onnx_name(sources) == NULL ? REQUEST_NAME : NULL;
}

/* Refuses a version that has neither file, both files, or not the file that the configuration
 * names. */
static enum qd_status refuse_version(const struct qd_sources *sources, bool both,
                                     struct qd_error *error)
{
    char shown[SHOWN_BYTES];
    struct qd_missing_file found = {.onnx = ""};
    show(sources, "", shown, sizeof(shown));
    if (both)
        return qd_fail(error, QD_INVALID, "%s: expected model.onnx or request.json, got both",
                       shown);
    if (sources->from_repository && *sources->folder.file != '\0')
        return qd_fail(error, QD_INVALID, "%s: expected a file, got none", shown);
    if (sources->version_fd >= 0)
        qd_missing_file_read(&found, sources->version_fd);
    for (size_t i = 0; sources->version_fd < 0 && i < sources->file_count; i++)
        if (sources->files[i].version == sources->version)
            qd_missing_file_add(&found, sources->files[i].path);
    if (sources->config.file_name != NULL)
        return qd_fail(error, QD_INVALID, "%s: expected %s (default_model_filename), got %s", shown,
                       qd_show_string(sources->config.file_name).text,
                       qd_missing_file_text(&found));
    return qd_fail(error, QD_INVALID, "%s: expected model.onnx or request.json, got %s%s", shown,
                   qd_missing_file_text(&found),
                   *found.onnx == '\0' ? ""
                                       : "; the configuration's default_model_filename can name "
                                         "another ONNX file");
}

/* Sets `kind` and `shown` according to which of the two files exists, or refuses the version. */
static enum qd_status choose_kind(struct qd_sources *sources, bool has_onnx, bool has_request,
                                  struct qd_error *error)
{
    if (has_onnx == has_request)
        return refuse_version(sources, has_onnx, error);
    sources->kind = has_onnx ? QD_SOURCE_ONNX : QD_SOURCE_REQUEST;
    show(sources, has_request ? REQUEST_NAME : onnx_name(sources), sources->shown,
         sizeof(sources->shown));
    return QD_OK;
}

/* ---- A load call's body ------------------------------------------------------------------- */

/* The form of a file in a load call, for errors. */
#define CALL_FORM "{\"parameters\": {\"file:1/model.onnx\": \"...\"}}"

enum { FILE_COUNT_MAX = QD_SOURCES_VERSION_COUNT_MAX * QD_SOURCES_FILE_COUNT_MAX };

/* Reads a file's key, and where its text is: "file:1/model.onnx" is version 1, path "model.onnx".
 */
static enum qd_status read_file(struct qd_sources *sources, const struct qd_json_value *member,
                                struct qd_error *error)
{
    const char *key = member->key;
    if (member->kind != QD_JSON_DATA || *member->text != '"') {
        return qd_fail(error, QD_INVALID, "parameters.%s: expected a string, the file in base64",
                       qd_show_string(key).text);
    }
    struct qd_call_file file = {.text = sources->body + (member->text + 1 - sources->body),
                                .count = member->bytes - 2};
    if (sources->file_count == FILE_COUNT_MAX)
        return qd_fail(error, QD_INVALID, "parameters: expected at most %d files", FILE_COUNT_MAX);
    const char *slash = qd_scan_decimal(key + strlen("file:"), &file.version);
    if (slash == NULL || *slash != '/' || slash[1] == '\0' || file.version == 0) {
        return qd_fail(error, QD_INVALID,
                       "parameters.%s: expected file:VERSION/NAME, such as file:1/model.onnx, with "
                       "a version above 0",
                       qd_show_string(key).text);
    }
    for (size_t i = 0; i < sources->file_count; i++)
        if (sources->files[i].version == file.version &&
            strcmp(sources->files[i].path, slash + 1) == 0)
            return qd_fail(error, QD_INVALID, "parameters.%s: expected once, got twice",
                           qd_show_string(key).text);
    struct qd_call_file *files =
        qd_arena_extend(&sources->arena, sources->files, sources->file_count,
                        &sources->file_capacity, sizeof(*files));
    file.path = qd_arena_copy(&sources->arena, slash + 1);
    if (files == NULL || file.path == NULL)
        return qd_refuse_memory(&sources->arena, "the files' names", error);
    sources->files = files;
    files[sources->file_count++] = file;
    return QD_OK;
}

static enum qd_status read_call_config(struct qd_sources *sources,
                                       const struct qd_json_value *member, struct qd_error *error)
{
    const char *text = qd_json_string(member);
    if (text == NULL) {
        return qd_fail(error, QD_INVALID,
                       "parameters.config: expected a string, the model's configuration as "
                       "JSON, got %s",
                       qd_json_show(member).text);
    }
    if (sources->configured)
        return qd_fail(error, QD_INVALID, "parameters.config: expected once, got twice");
    sources->configured = true;
    return qd_model_config_read(text, strlen(text), true, "parameters.config", sources->name,
                                &sources->arena, &sources->config, error);
}

static enum qd_status read_parameters(struct qd_sources *sources,
                                      const struct qd_json_value *parameters,
                                      struct qd_error *error)
{
    if (!qd_json_is_object(parameters)) {
        return qd_fail(error, QD_INVALID, "parameters: expected an object, got %s",
                       qd_json_show(parameters).text);
    }
    enum qd_status status = QD_OK;
    const struct qd_json_value *member = parameters->first;
    for (; status == QD_OK && member != NULL; member = member->next) {
        const char *key = member->key;
        if (strncmp(key, "file:", 5) == 0)
            status = read_file(sources, member, error);
        else if (strcmp(key, "config") != 0)
            status = qd_fail(error, QD_INVALID,
                             "parameters: expected config or file:VERSION/NAME, as in " CALL_FORM
                             ", got %s",
                             qd_show_string(key).text);
        else if (member->kind != QD_JSON_NULL)
            status = read_call_config(sources, member, error);
    }
    return status;
}

static enum qd_status read_tree(struct qd_sources *sources, const struct qd_json_value *tree,
                                struct qd_error *error)
{
    const struct qd_json_value *inputs, *parameters, *model_name;
    if (!qd_json_is_object(tree)) {
        return qd_fail(error, QD_INVALID, "the body: expected a JSON object, or nothing, got %s",
                       qd_json_show(tree).text);
    }
    if (qd_json_field(tree, NULL, "inputs", &inputs, error) != QD_OK ||
        qd_json_field(tree, NULL, "parameters", &parameters, error) != QD_OK ||
        qd_json_field(tree, NULL, "model_name", &model_name, error) != QD_OK)
        return error->status;
    sources->is_request = inputs != NULL || model_name != NULL;
    if (sources->is_request)
        return QD_OK;
    for (const struct qd_json_value *each = tree->first; each != NULL; each = each->next)
        if (each->kind != QD_JSON_NULL &&
            (strncmp(each->key, "file:", 5) == 0 || strcmp(each->key, "config") == 0))
            return qd_fail(error, QD_INVALID, "%s: expected it inside parameters: " CALL_FORM,
                           qd_show_string(each->key).text);
    return parameters == NULL ? QD_OK : read_parameters(sources, parameters, error);
}

/* Sets json_bytes, the length of the JSON at the start of the body. */
static enum qd_status find_json(struct qd_sources *sources, struct qd_error *error)
{
    if (sources->json_bytes_header == NULL)
        sources->json_bytes = sources->body_bytes;
    else if (sources->json_bytes == 0 || sources->json_bytes > sources->body_bytes)
        return qd_fail(error, QD_INVALID,
                       QD_OIP_JSON_BYTES_HEADER
                       ": expected decimal digits in the range [1, %zu], the bytes of the body, "
                       "got %s",
                       sources->body_bytes, qd_show_string(sources->json_bytes_header).text);
    return QD_OK;
}

static enum qd_status read_body(struct qd_sources *sources, struct qd_error *error)
{
    if (qd_trimmed_bytes(sources->body, sources->body_bytes) == 0)
        return QD_OK;
    if (find_json(sources, error) != QD_OK)
        return error->status;
    const struct qd_json_value *tree;
    const enum qd_status status =
        qd_json_read(sources->body, sources->json_bytes, &sources->arena, &tree, error);
    /* A file that is not where it belongs is JSON that is too large, or is no JSON. */
    if (status == QD_TOO_LARGE ||
        (status == QD_INVALID && sources->body[strspn(sources->body, " \t\r\n")] != '{')) {
        const struct qd_error inner = *error;
        return qd_fail(error, status, "%.200s; a file comes as base64 in JSON: " CALL_FORM,
                       inner.text);
    }
    if (status != QD_OK || read_tree(sources, tree, error) != QD_OK)
        return error->status;
    if (!sources->is_request && sources->json_bytes < sources->body_bytes) {
        return qd_fail(error, QD_INVALID,
                       "the body: expected its end after the JSON, got %zu bytes more",
                       sources->body_bytes - sources->json_bytes);
    }
    return QD_OK;
}

/* ---- A model's folder --------------------------------------------------------------------- */

static void close_version(struct qd_sources *sources)
{
    for (size_t i = 0; i < sources->opened_count; i++)
        close(sources->opened[i].fd);
    sources->opened_count = 0;
    if (sources->version_fd >= 0)
        close(sources->version_fd);
    sources->version_fd = -1;
}

void qd_sources_close(struct qd_sources *sources)
{
    close_version(sources);
    qd_model_folder_close(&sources->folder);
    qd_arena_deinit(&sources->file_arena);
    qd_arena_deinit(&sources->version_arena);
    qd_arena_deinit(&sources->arena);
}

/* Reads NAME/config.json, which has the same form as a load call's parameters.config, or
 * NAME/config.pbtxt. */
static enum qd_status read_config(struct qd_sources *sources, struct qd_error *error)
{
    const bool is_json = sources->folder.has_config;
    const char *file = is_json ? "config.json" : "config.pbtxt";
    char shown[192];
    struct qd_part text;
    snprintf(shown, sizeof(shown), "%.128s/%s", sources->name, file);
    if (qd_folder_read_file(sources->folder.fd, file, sources->folder.links, shown,
                            CONFIG_BYTES_MAX, &sources->arena, &text, error) != QD_OK)
        return error->status;
    return qd_model_config_read(text.bytes, text.count, is_json, shown, sources->name,
                                &sources->arena, &sources->config, error);
}

/* Logs which files could be meant as well, but are ignored. */
static void log_ignored(const struct qd_sources *sources)
{
    const struct qd_model_folder *folder = &sources->folder;
    if (folder->hides_file)
        qd_log(QD_LOG_WARN, "a file of the repository is ignored, because a folder has its name",
               "model=\"%s\" file=\"%s.onnx\"", sources->name, sources->name);
    if (folder->has_pbtxt && folder->has_config)
        qd_log(QD_LOG_WARN, "config.pbtxt is not read, because there is a config.json",
               "model=\"%s\"", sources->name);
    if (folder->has_model && !folder->is_flat && folder->version_count > 0)
        qd_log(QD_LOG_WARN, "a model beside folders of versions is ignored", "model=\"%s\"",
               sources->name);
}

static enum qd_status open_folder(struct qd_sources *sources, struct qd_error *error)
{
    if (sources->repository == NULL) {
        return qd_fail(error, QD_NOT_FOUND,
                       "%.128s: expected a file in the call, as base64 in JSON: " CALL_FORM
                       ", or a repository to load it from (--model-repository), got neither",
                       sources->name);
    }
    enum qd_status status =
        qd_model_folder_open(sources->repository, sources->name, sources->marks_folder,
                             &sources->arena, &sources->folder, error);
    if (status == QD_NOT_FOUND)
        return qd_fail(error, QD_NOT_FOUND,
                       "%.128s: expected a folder of this name in the repository, or %.128s.onnx, "
                       "got neither%s",
                       sources->name, sources->name,
                       sources->body_bytes > 0 ? "; a file comes as base64 in JSON: " CALL_FORM
                                               : "");
    if (status != QD_OK)
        return status;
    sources->from_repository = true;
    log_ignored(sources);
    const bool has_any = sources->folder.has_config || sources->folder.has_pbtxt;
    return has_any && !sources->configured ? read_config(sources, error) : QD_OK;
}

/* ---- Versions ----------------------------------------------------------------------------- */

static enum qd_status choose_versions(struct qd_sources *sources, const uint64_t *versions,
                                      size_t count, struct qd_error *error)
{
    uint64_t missing = qd_model_config_misses(&sources->config, versions, count);
    if (missing != 0) {
        return qd_fail(error, QD_INVALID,
                       "%.128s: version_policy: expected versions that the model has, got %llu",
                       sources->name, (unsigned long long)missing);
    }
    for (size_t i = 0; i < count; i++) {
        if (!qd_model_config_wants(&sources->config, versions, count, i))
            continue;
        if (sources->version_count == QD_SOURCES_VERSION_COUNT_MAX) {
            return qd_fail(error, QD_INVALID, "%.128s: expected at most %d versions to load",
                           sources->name, QD_SOURCES_VERSION_COUNT_MAX);
        }
        sources->versions[sources->version_count++] = versions[i];
    }
    if (sources->version_count == 0 && sources->folder.has_model && count == 0)
        return qd_fail(error, QD_INVALID,
                       "%.128s: expected a model's folder, got a version's; if --model-repository "
                       "is the folder of one model, give its parent folder",
                       sources->name);
    if (sources->version_count == 0)
        return qd_fail(error, QD_INVALID,
                       "%.128s: expected a version, got none: a folder such as %.128s/1, whose "
                       "name is a number above 0 without zeros before it, with model.onnx or "
                       "request.json in it%s",
                       sources->name, sources->name,
                       sources->folder.has_folders
                           ? "; if it is a repository itself or holds one, give that to "
                             "--model-repository"
                           : "");
    return QD_OK;
}

/* Collects the versions of a load call's files, each once, and chooses from them. */
static enum qd_status choose_of_files(struct qd_sources *sources, struct qd_error *error)
{
    uint64_t *versions = qd_arena_calloc(&sources->arena, sources->file_count, sizeof(*versions));
    if (versions == NULL)
        return qd_refuse_memory(&sources->arena, "the model's versions", error);
    for (size_t i = 0; i < sources->file_count; i++)
        versions[i] = sources->files[i].version;
    qd_versions_sort(versions, sources->file_count);
    size_t count = 1;
    for (size_t i = 1; i < sources->file_count; i++)
        if (versions[i] != versions[count - 1])
            versions[count++] = versions[i];
    return choose_versions(sources, versions, count, error);
}

enum qd_status qd_sources_open(struct qd_sources *sources, struct qd_error *error)
{
    static const uint64_t first = 1;
    enum qd_status status = QD_OK;
    if (sources->body != NULL)
        status = read_body(sources, error);
    if (status != QD_OK)
        return status;
    if (sources->is_request)
        return choose_versions(sources, &first, 1, error);
    if (sources->file_count > 0)
        return choose_of_files(sources, error);
    status = open_folder(sources, error);
    return status == QD_OK ? choose_versions(sources, sources->folder.versions,
                                             sources->folder.version_count, error)
                           : status;
}

/* ---- The files of a version --------------------------------------------------------------- */

/* Adds a range of a file to what is to be fetched. */
static enum qd_status add_reading(struct qd_sources *sources, const struct qd_source_file *file,
                                  uint64_t offset, uint64_t bytes, char *to, struct qd_error *error)
{
    struct qd_reading *readings =
        qd_arena_extend(&sources->version_arena, sources->readings, sources->reading_count,
                        &sources->reading_capacity, sizeof(*readings));
    if (readings == NULL)
        return qd_refuse_memory(&sources->version_arena, "what is to be read", error);
    sources->readings = readings;
    readings[sources->reading_count++] =
        (struct qd_reading){file, offset, bytes, to, sources->unit_count};
    sources->unit_count += (size_t)((bytes + FILE_UNIT_BYTES - 1) / FILE_UNIT_BYTES);
    return QD_OK;
}

/* Opens a file of the version's folder, unless it is open already. */
static enum qd_status open_file(struct qd_sources *sources, const char *path,
                                struct qd_source_file **file, struct qd_error *error)
{
    for (size_t i = 0; i < sources->opened_count; i++) {
        *file = &sources->opened[i];
        if (strcmp((*file)->path, path) == 0)
            return QD_OK;
    }
    char shown[SHOWN_BYTES];
    show(sources, path, shown, sizeof(shown));
    if (sources->opened_count == QD_SOURCES_FILE_COUNT_MAX) {
        return qd_fail(error, QD_INVALID, "%s: expected at most %d files", shown,
                       QD_SOURCES_FILE_COUNT_MAX);
    }
    const char *copy = qd_arena_copy(&sources->version_arena, path);
    if (copy == NULL)
        return qd_refuse_memory(&sources->version_arena, shown, error);
    struct qd_source_file *opened = &sources->opened[sources->opened_count];
    const struct qd_model_folder *folder = &sources->folder;
    const bool is_given = folder->is_given && strcmp(path, folder->file) == 0;
    enum qd_status status =
        qd_folder_open_file(sources->version_fd, path, is_given ? QD_LINKS_ANYWHERE : folder->links,
                            shown, qd_memory_max(sources->arena.memory), " (--max-model-bytes)",
                            &opened->fd, &opened->about, error);
    if (status != QD_OK)
        return status;
    opened->path = copy;
    sources->opened_count++;
    *file = opened;
    return QD_OK;
}

/* Opens a file that may be absent. Sets *file to NULL if there is no such file or if `path` is
 * NULL. */
static enum qd_status try_file(struct qd_sources *sources, const char *path,
                               struct qd_source_file **file, struct qd_error *error)
{
    struct qd_error own;
    enum qd_status status = path == NULL ? QD_NOT_FOUND : open_file(sources, path, file, &own);
    if (status == QD_OK)
        return status;
    *file = NULL;
    if (status == QD_NOT_FOUND)
        return QD_OK;
    *error = own;
    return status;
}

static enum qd_status find_in_folder(struct qd_sources *sources, struct qd_error *error)
{
    struct qd_source_file *onnx = NULL, *request = NULL, *blobs = NULL;
    char path[32] = ".";
    if (!sources->folder.is_flat)
        snprintf(path, sizeof(path), "%llu", (unsigned long long)sources->version);
    show(sources, "", sources->shown, sizeof(sources->shown));
    if (qd_folder_open(sources->folder.fd, path, sources->folder.links, sources->shown,
                       &sources->version_fd, error) != QD_OK ||
        try_file(sources, onnx_name(sources), &onnx, error) != QD_OK ||
        try_file(sources, request_name(sources), &request, error) != QD_OK ||
        choose_kind(sources, onnx != NULL, request != NULL, error) != QD_OK ||
        (request != NULL && try_file(sources, "request.bin", &blobs, error) != QD_OK))
        return error->status;
    const struct qd_source_file *file = onnx != NULL ? onnx : request;
    sources->json_file_bytes = (size_t)file->about.st_size;
    sources->byte_count =
        sources->json_file_bytes + (blobs == NULL ? 0 : (size_t)blobs->about.st_size);
    sources->bytes = qd_arena_alloc(&sources->file_arena, sources->byte_count);
    if (sources->bytes == NULL)
        return qd_refuse_memory(&sources->file_arena, sources->shown, error);
    if (add_reading(sources, file, 0, sources->json_file_bytes, sources->bytes, error) != QD_OK)
        return error->status;
    return blobs == NULL ? QD_OK
                         : add_reading(sources, blobs, 0, (uint64_t)blobs->about.st_size,
                                       sources->bytes + sources->json_file_bytes, error);
}

struct qd_call_file *qd_sources_call_file(const struct qd_sources *sources, const char *path)
{
    for (size_t i = 0; path != NULL && i < sources->file_count; i++) {
        struct qd_call_file *file = &sources->files[i];
        if (file->version == sources->version && strcmp(file->path, path) == 0)
            return file;
    }
    return NULL;
}

static enum qd_status find_in_call(struct qd_sources *sources, struct qd_error *error)
{
    struct qd_call_file *onnx = qd_sources_call_file(sources, onnx_name(sources));
    struct qd_call_file *request = qd_sources_call_file(sources, request_name(sources));
    if (choose_kind(sources, onnx != NULL, request != NULL, error) != QD_OK)
        return error->status;
    sources->main_file = onnx != NULL ? onnx : request;
    sources->blob_file = request != NULL ? qd_sources_call_file(sources, "request.bin") : NULL;
    sources->decoding = 0;
    for (size_t i = 0; i < sources->file_count; i++)
        if (sources->files[i].version == sources->version)
            sources->unit_count += sources->files[i].count / TEXT_UNIT_CHARACTERS + 1;
    return QD_OK;
}

enum qd_status qd_sources_find(struct qd_sources *sources, size_t index, struct qd_error *error)
{
    close_version(sources);
    sources->readings = NULL;
    sources->reading_count = sources->reading_capacity = sources->unit_count = 0;
    qd_arena_deinit(&sources->version_arena);
    qd_arena_deinit(&sources->file_arena);
    sources->version = sources->versions[index];
    sources->in_order = !sources->from_repository;
    atomic_store(&sources->failed, false);
    if (sources->from_repository)
        return find_in_folder(sources, error);
    if (!sources->is_request)
        return find_in_call(sources, error);
    sources->kind = QD_SOURCE_REQUEST;
    sources->shown[0] = '\0';
    return QD_OK;
}

/* ---- Fetching ----------------------------------------------------------------------------- */

static const struct qd_reading *reading_of(const struct qd_sources *sources, size_t unit)
{
    size_t begin = 0, end = sources->reading_count;
    while (end - begin > 1) {
        size_t middle = begin + (end - begin) / 2;
        if (sources->readings[middle].unit_begin <= unit)
            begin = middle;
        else
            end = middle;
    }
    return &sources->readings[begin];
}

static enum qd_status fetch_file_unit(const struct qd_sources *sources, size_t unit,
                                      struct qd_error *error)
{
    const struct qd_reading *reading = reading_of(sources, unit);
    uint64_t at = (uint64_t)(unit - reading->unit_begin) * FILE_UNIT_BYTES;
    uint64_t left = reading->bytes - at;
    size_t count = left < FILE_UNIT_BYTES ? (size_t)left : FILE_UNIT_BYTES;
    char shown[SHOWN_BYTES];
    show(sources, reading->file->path, shown, sizeof(shown));
    return qd_folder_read(reading->file->fd, reading->offset + at, reading->to + at, count, shown,
                          error);
}

/* Decodes the next characters of a file. Ends the file if they are its last ones. */
static enum qd_status decode_unit(struct qd_sources *sources, struct qd_call_file *file,
                                  struct qd_error *error)
{
    if (sources->decoder.begin != file->text) /* it still belongs to another file */
        qd_base64_init(&sources->decoder, file->text, file->count, file->text);
    enum qd_status status = qd_base64_step(&sources->decoder, TEXT_UNIT_CHARACTERS, error);
    if (status != QD_OK || !qd_base64_at_end(&sources->decoder))
        return status;
    status = qd_base64_finish(&sources->decoder, error);
    file->count = (size_t)(sources->decoder.out - file->text);
    sources->decoding++;
    return status;
}

static enum qd_status fetch_text_unit(struct qd_sources *sources, struct qd_error *error)
{
    while (sources->decoding < sources->file_count &&
           sources->files[sources->decoding].version != sources->version)
        sources->decoding++;
    if (sources->decoding == sources->file_count)
        return QD_OK;
    struct qd_call_file *file = &sources->files[sources->decoding];
    struct qd_error why;
    return decode_unit(sources, file, &why) == QD_OK
               ? QD_OK
               : qd_fail(error, why.status, "parameters.\"file:%llu/%.100s\": %.300s",
                         (unsigned long long)file->version, file->path, why.text);
}

void qd_sources_fetch(struct qd_sources *sources, size_t begin, size_t end)
{
    for (size_t unit = begin; unit < end && !atomic_load(&sources->failed); unit++) {
        struct qd_error error;
        const enum qd_status status = sources->from_repository
                                          ? fetch_file_unit(sources, unit, &error)
                                          : fetch_text_unit(sources, &error);
        if (status != QD_OK && !atomic_exchange(&sources->failed, true))
            sources->fetch_error = error; /* of the first thread that fails; read after all units */
    }
}

/* Returns whether a file has changed since it was opened. Its bytes may then be a mixture of two
 * contents. */
static bool has_changed(const struct qd_source_file *file)
{
    struct stat now;
    const struct stat *then = &file->about;
    return fstat(file->fd, &now) != 0 || now.st_size != then->st_size ||
           now.st_mtim.tv_sec != then->st_mtim.tv_sec ||
           now.st_mtim.tv_nsec != then->st_mtim.tv_nsec;
}

enum qd_status qd_sources_check(struct qd_sources *sources, struct qd_error *error)
{
    if (atomic_load(&sources->failed)) {
        *error = sources->fetch_error;
        return error->status;
    }
    for (size_t i = 0; sources->reading_count > 0 && i < sources->opened_count; i++) {
        if (has_changed(&sources->opened[i])) {
            char shown[SHOWN_BYTES];
            show(sources, sources->opened[i].path, shown, sizeof(shown));
            return qd_fail(error, QD_UNAVAILABLE, "%s: it changed while it was read", shown);
        }
    }
    sources->reading_count = sources->unit_count = 0;
    return QD_OK;
}

/* ---- The fetched bytes -------------------------------------------------------------------- */

/* Finds an ONNX file's external data in its folder. *data will hold them once they are fetched. */
static enum qd_status external_of_folder(void *context, const char *location, uint64_t offset,
                                         uint64_t length, struct qd_arena *arena, const void **data,
                                         struct qd_error *error)
{
    struct qd_sources *sources = context;
    struct qd_source_file *file;
    enum qd_status status = open_file(sources, location, &file, error);
    if (status != QD_OK)
        return error->status = status == QD_NOT_FOUND ? QD_INVALID : status;
    uint64_t size = (uint64_t)file->about.st_size;
    if (offset > size || length > size - offset) {
        char head[512]; /* large enough for a whole Git LFS pointer and the like */
        const size_t count = size < sizeof(head) ? (size_t)size : sizeof(head);
        const char *name = qd_folder_read(file->fd, 0, head, count, location, error) == QD_OK
                               ? qd_foreign_name(head, count)
                               : NULL;
        return qd_fail(error, QD_INVALID,
                       "external data \"%.150s\": expected at least %llu bytes from %llu on, the "
                       "file has %llu%s%s",
                       location, (unsigned long long)length, (unsigned long long)offset,
                       (unsigned long long)size, name == NULL ? "" : ", and is ",
                       name == NULL ? "" : name);
    }
    char *to = qd_arena_alloc(arena, (size_t)length);
    if (to == NULL)
        return qd_refuse_memory(arena, "external data", error);
    *data = to;
    return add_reading(sources, file, offset, length, to, error);
}

/* Like external_of_folder, for a file that came with a load call. */
static enum qd_status external_of_call(void *context, const char *location, uint64_t offset,
                                       uint64_t length, struct qd_arena *arena, const void **data,
                                       struct qd_error *error)
{
    const struct qd_sources *sources = context;
    const struct qd_call_file *file = qd_sources_call_file(sources, location);
    (void)arena;
    if (file == NULL) {
        return qd_fail(error, QD_INVALID,
                       "external data \"%.150s\": expected \"file:%llu/%.150s\" in the load "
                       "call, got none",
                       location, (unsigned long long)sources->version, location);
    }
    if (offset > file->count || length > file->count - offset) {
        return qd_fail(error, QD_INVALID,
                       "external data \"%.150s\": expected at least %llu bytes from %llu on, the "
                       "file has %zu",
                       location, (unsigned long long)length, (unsigned long long)offset,
                       file->count);
    }
    *data = file->text + offset;
    return QD_OK;
}

/* Joins a request's two files into one block of memory. */
static enum qd_status join_request(struct qd_sources *sources, struct qd_source *source,
                                   struct qd_error *error)
{
    const struct qd_call_file *json = sources->main_file, *blobs = sources->blob_file;
    char *joined = qd_arena_alloc(&sources->version_arena, json->count + blobs->count);
    if (joined == NULL)
        return qd_refuse_memory(&sources->version_arena, sources->shown, error);
    memcpy(joined, json->text, json->count);
    memcpy(joined + json->count, blobs->text, blobs->count);
    source->content.bytes = joined;
    source->content.count = json->count + blobs->count;
    return QD_OK;
}

enum qd_status qd_sources_take(struct qd_sources *sources, struct qd_source *source,
                               struct qd_error *error)
{
    enum qd_status status = qd_sources_check(sources, error);
    *source = (struct qd_source){
        .kind = sources->kind, .content = {.context = sources}, .is_file = !sources->is_request};
    if (status != QD_OK)
        return status;
    if (sources->from_repository) {
        source->content.bytes = sources->bytes;
        source->content.count = sources->byte_count;
        source->content.external = external_of_folder;
        source->json_bytes = sources->json_file_bytes;
    } else if (sources->is_request) {
        source->content.bytes = sources->body;
        source->content.count = sources->body_bytes;
        source->json_bytes = sources->json_bytes;
    } else {
        source->content.bytes = sources->main_file->text;
        source->content.count = source->json_bytes = sources->main_file->count;
        source->content.external = external_of_call;
        if (sources->blob_file != NULL)
            status = join_request(sources, source, error);
    }
    return status;
}

enum qd_status qd_sources_fail(const struct qd_sources *sources, const struct qd_cut_hints *hints,
                               struct qd_error *error)
{
    enum { FILE_BYTES_MAX = 180 }; /* of the file's name, to leave room for the text */
    const char *file = sources->shown;
    const size_t file_bytes = strnlen(file, FILE_BYTES_MAX) + sizeof(": ");
    if (hints != NULL)
        qd_cut_hints_print(hints, sizeof(error->text) - file_bytes, error);
    const struct qd_error inner = *error;
    return *file == '\0'
               ? inner.status
               : qd_fail(error, inner.status, "%.*s: %s", FILE_BYTES_MAX, file, inner.text);
}
