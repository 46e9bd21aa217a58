/* Which of its files a version is made of. */
#include <stdio.h>
#include <string.h>

#include "server/json/tree.h"
#include "server/models/repository/found.h"
#include "server/models/sources.h"

#define REQUEST_NAME "request.json"

const char *qd_sources_onnx_name(const struct qd_sources *sources)
{
    const char *name = sources->config.file_name;
    if (name == NULL)
        return "model.onnx";
    return strcmp(name, REQUEST_NAME) == 0 ? NULL : name;
}

const char *qd_sources_request_name(const struct qd_sources *sources)
{
    return sources->config.file_name == NULL || qd_sources_onnx_name(sources) == NULL ? REQUEST_NAME
                                                                                      : NULL;
}

/* The version has neither file, or both; or not the one that the configuration names. */
static enum qd_status refuse_version(const struct qd_sources *sources, bool both,
                                     struct qd_error *error)
{
    const unsigned long long version = sources->version;
    struct qd_found found = {.onnx = ""};
    if (both)
        return qd_fail(error, QD_INVALID,
                       "%.128s/%llu: expected model.onnx or request.json, got both", sources->name,
                       version);
    if (sources->version_fd >= 0)
        qd_found_read(&found, sources->version_fd);
    for (size_t i = 0; sources->version_fd < 0 && i < sources->file_count; i++)
        if (sources->files[i].version == sources->version)
            qd_found_add(&found, sources->files[i].path);
    if (sources->config.file_name != NULL)
        return qd_fail(error, QD_INVALID,
                       "%.128s/%llu: expected %s (default_model_filename), got %s", sources->name,
                       version, qd_show_string(sources->config.file_name).text,
                       qd_found_text(&found));
    return qd_fail(error, QD_INVALID, "%.128s/%llu: expected model.onnx or request.json, got %s%s",
                   sources->name, version, qd_found_text(&found),
                   *found.onnx == '\0' ? ""
                                       : "; the configuration's default_model_filename can name "
                                         "another ONNX file");
}

enum qd_status qd_sources_choose_kind(struct qd_sources *sources, bool has_onnx, bool has_request,
                                      struct qd_error *error)
{
    if (has_onnx == has_request)
        return refuse_version(sources, has_onnx, error);
    sources->kind = has_onnx ? QD_SOURCE_ONNX : QD_SOURCE_REQUEST;
    const char *name = has_request ? REQUEST_NAME : qd_sources_onnx_name(sources);
    snprintf(sources->shown, sizeof(sources->shown), "%.128s/%llu/%.150s", sources->name,
             (unsigned long long)sources->version, name);
    return QD_OK;
}
