/* Finds and reads the files that name the classes of a model's outputs, and sets up the build with
 * them: a part of sources.h. */
#include <stdio.h>
#include <string.h>

#include "server/models/sources.h"
#include "server/oip/labels.h"

/* Reads labels from a file below a folder. Fails with QD_NOT_FOUND if there is no such file. */
static enum qd_status read_file(struct qd_sources *sources, int folder, const char *path,
                                const char *shown, const struct qd_labels **labels,
                                struct qd_error *error)
{
    struct qd_part text;
    return qd_folder_read_file(folder, path, sources->folder.links, shown, QD_LABELS_BYTES_MAX,
                               &sources->version_arena, &text, error) == QD_OK
               ? qd_labels_read(text.bytes, text.count, shown, &sources->version_arena, labels,
                                error)
               : error->status;
}

/* Reads labels from a file of a load call. Fails with QD_NOT_FOUND if the call has no such file. */
static enum qd_status read_call_file(struct qd_sources *sources, const char *path,
                                     const struct qd_labels **labels, struct qd_error *error)
{
    const struct qd_call_file *file = qd_sources_call_file(sources, path);
    char shown[200];
    snprintf(shown, sizeof(shown), "file:%llu/%.150s", (unsigned long long)sources->version, path);
    if (file != NULL)
        return qd_labels_read(file->text, file->count, shown, &sources->version_arena, labels,
                              error);
    return qd_fail(error, QD_NOT_FOUND, "%s: expected a file, got none", shown);
}

/* Reads the labels that a label_filename names. */
static enum qd_status read_named(struct qd_sources *sources, const char *path,
                                 const struct qd_labels **labels, struct qd_error *error)
{
    char shown[320];
    enum qd_status status;
    const bool is_file = *sources->folder.file != '\0';
    snprintf(shown, sizeof(shown), "%.128s%s%.150s", is_file ? "" : sources->name,
             is_file ? "" : "/", path);
    if (sources->from_repository)
        status = read_file(sources, sources->folder.fd, path, shown, labels, error);
    else if (!sources->is_request)
        status = read_call_file(sources, path, labels, error);
    else
        status = qd_fail(error, QD_INVALID, "label_filename: expected none, got %.150s", path);
    if (status == QD_NOT_FOUND) /* the model exists, so this is no 404 */
        return error->status = QD_INVALID;
    return status;
}

/* Reads the labels beside the model, if there are any. */
static enum qd_status read_beside(struct qd_sources *sources, const struct qd_labels **labels,
                                  struct qd_error *error)
{
    const struct qd_model_folder *folder = &sources->folder;
    const bool is_file = *folder->file != '\0';
    char own[QD_LABEL_FILE_BYTES_MAX], shown[320];
    struct qd_error none;
    enum qd_status status = QD_NOT_FOUND;
    if (sources->is_request)
        return QD_OK;
    if (!sources->from_repository) {
        status = read_call_file(sources, QD_LABEL_FILE, labels, &none);
    } else if (is_file) {
        qd_model_folder_label_file(folder, own);
        status = read_file(sources, folder->fd, own, own, labels, &none);
        if (status == QD_NOT_FOUND && folder->is_given)
            status = read_file(sources, folder->fd, QD_LABEL_FILE, QD_LABEL_FILE, labels, &none);
    } else {
        snprintf(shown, sizeof(shown), "%.128s/%llu/" QD_LABEL_FILE, sources->name,
                 (unsigned long long)sources->version);
        if (!folder->is_flat)
            status = read_file(sources, sources->version_fd, QD_LABEL_FILE, shown, labels, &none);
        snprintf(shown, sizeof(shown), "%.128s/" QD_LABEL_FILE, sources->name);
        if (status == QD_NOT_FOUND)
            status = read_file(sources, folder->fd, QD_LABEL_FILE, shown, labels, &none);
    }
    if (status == QD_OK || status == QD_NOT_FOUND)
        return QD_OK;
    *error = none;
    return status;
}

static enum qd_status read_labels(struct qd_sources *sources, struct qd_build *build,
                                  struct qd_error *error)
{
    const struct qd_model_config *config = &sources->config;
    const struct qd_labels **named =
        qd_arena_calloc(&sources->version_arena, config->output_count, sizeof(*named));
    if (named == NULL)
        return qd_refuse_memory(&sources->version_arena, "the labels", error);
    for (size_t i = 0; i < config->output_count; i++) {
        const char *path = config->outputs[i].label_file;
        if (path == NULL)
            continue;
        for (size_t k = 0; k < i && named[i] == NULL; k++)
            if (named[k] != NULL && strcmp(config->outputs[k].label_file, path) == 0)
                named[i] = named[k];
        const enum qd_status status =
            named[i] != NULL ? QD_OK : read_named(sources, path, &named[i], error);
        if (status != QD_OK)
            return status;
    }
    build->output_labels = named;
    build->labels = NULL;
    return read_beside(sources, &build->labels, error);
}

enum qd_status qd_sources_set_build(struct qd_sources *sources, const struct qk_kernels *kernels,
                                    struct qd_build_work *work, struct qd_build *build,
                                    struct qd_error *error)
{
    *work = (struct qd_build_work){.tried_nodes = 0};
    *build = (struct qd_build){
        .work = work,
        .kernels = kernels,
        .name = sources->name,
        .version = sources->version,
        .config = &sources->config,
        .scratch = &sources->version_arena,
        .memory = sources->arena.memory,
        .lists_nodes = true,
    };
    return read_labels(sources, build, error);
}
