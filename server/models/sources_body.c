#include <string.h>

#include "server/json/reader.h"
#include "server/memory/arena.h"
#include "server/memory/text.h"
#include "server/models/sources.h"
#include "server/oip/inputs.h"

enum { FILE_COUNT_MAX = QD_SOURCES_VERSION_COUNT_MAX * QD_SOURCES_FILE_COUNT_MAX };

/* A load call's body, while it is read. */
struct body {
    struct qd_sources *sources;
    size_t file_capacity;
    struct qd_error *error;
};

/* "file:1/model.onnx": version 1, path "model.onnx". */
static enum qd_status read_file_name(struct body *body, const char *key, struct qd_call_file *file)
{
    const char *text = key + strlen("file:");
    size_t digits = strspn(text, "0123456789");
    char number[24];
    uint64_t version = 0;
    if (digits > 0 && digits < sizeof(number) && text[digits] == '/') {
        memcpy(number, text, digits);
        number[digits] = '\0';
        if (!qd_read_decimal(number, &version))
            version = 0;
    }
    const char *path = text + digits + 1;
    if (version == 0 || *path == '\0') {
        return qd_fail(body->error, QD_INVALID,
                       "parameters.%s: expected file:VERSION/NAME, such as "
                       "file:1/model.onnx, with a version above 0",
                       qd_show_string(key).text);
    }
    char *copy = qd_arena_alloc(body->sources->arena, strlen(path) + 1);
    if (copy == NULL)
        return qd_refuse_memory(body->sources->arena, "the files' names", body->error);
    file->version = version;
    file->path = strcpy(copy, path);
    return QD_OK;
}

/* Room for one more. NULL: the error says why. */
static struct qd_call_file *add_file(struct body *body)
{
    struct qd_sources *sources = body->sources;
    if (sources->file_count == FILE_COUNT_MAX) {
        qd_fail(body->error, QD_INVALID, "parameters: expected at most %d files", FILE_COUNT_MAX);
        return NULL;
    }
    if (sources->file_count == body->file_capacity) {
        size_t capacity = body->file_capacity == 0 ? 4 : body->file_capacity * 2;
        size_t size = sizeof(*sources->files);
        struct qd_call_file *files = qd_arena_grow(sources->arena, sources->files,
                                                   body->file_capacity * size, capacity * size);
        if (files == NULL) {
            qd_refuse_memory(sources->arena, "the files' names", body->error);
            return NULL;
        }
        sources->files = files;
        body->file_capacity = capacity;
    }
    return &sources->files[sources->file_count++];
}

static enum qd_status read_file(struct body *body, const struct qd_json_value *member)
{
    struct qd_sources *sources = body->sources;
    const char *key = member->key;
    if (member->kind != QD_JSON_DATA || *member->text != '"') {
        return qd_fail(body->error, QD_INVALID,
                       "parameters.%s: expected a string, the file in "
                       "base64",
                       qd_show_string(key).text);
    }
    struct qd_call_file *file = add_file(body);
    if (file == NULL)
        return body->error->status;
    file->text = sources->body + (member->text + 1 - sources->body);
    file->count = member->bytes - 2;
    enum qd_status status = read_file_name(body, key, file);
    for (size_t i = 0; status == QD_OK && i + 1 < sources->file_count; i++) {
        const struct qd_call_file *other = &sources->files[i];
        if (other->version == file->version && strcmp(other->path, file->path) == 0) {
            status = qd_fail(body->error, QD_INVALID, "parameters.%s: expected once, got twice",
                             qd_show_string(key).text);
        }
    }
    return status;
}

static enum qd_status read_config(struct body *body, const struct qd_json_value *member)
{
    struct qd_sources *sources = body->sources;
    const char *text = qd_json_string(member);
    if (text == NULL) {
        return qd_fail(body->error, QD_INVALID,
                       "parameters.config: expected a string, the model's "
                       "configuration as JSON, got %s",
                       qd_json_show(member).text);
    }
    if (sources->configured)
        return qd_fail(body->error, QD_INVALID, "parameters.config: expected once, got twice");
    sources->configured = true;
    return qd_model_config_read(text, strlen(text), "parameters.config", sources->name,
                                sources->arena, &sources->config, body->error);
}

static enum qd_status read_parameters(struct body *body, const struct qd_json_value *parameters)
{
    if (!qd_json_is_object(parameters)) {
        return qd_fail(body->error, QD_INVALID, "parameters: expected an object, got %s",
                       qd_json_show(parameters).text);
    }
    enum qd_status status = QD_OK;
    const struct qd_json_value *member = parameters->first;
    for (; status == QD_OK && member != NULL; member = member->next) {
        const char *key = member->key;
        if (strncmp(key, "file:", 5) == 0)
            status = read_file(body, member);
        else if (strcmp(key, "config") != 0)
            status = qd_fail(body->error, QD_INVALID,
                             "parameters: expected config or file:VERSION/NAME, got %s",
                             qd_show_string(key).text);
        else if (member->kind != QD_JSON_NULL)
            status = read_config(body, member);
    }
    return status;
}

static enum qd_status read_tree(struct body *body, const struct qd_json_value *tree)
{
    const struct qd_json_value *inputs, *parameters, *model_name;
    if (!qd_json_is_object(tree)) {
        return qd_fail(body->error, QD_INVALID,
                       "the body: expected a JSON object, or nothing, got "
                       "%s",
                       qd_json_show(tree).text);
    }
    enum qd_status status = qd_json_field(tree, NULL, "inputs", &inputs, body->error);
    if (status == QD_OK)
        status = qd_json_field(tree, NULL, "parameters", &parameters, body->error);
    if (status == QD_OK)
        status = qd_json_field(tree, NULL, "model_name", &model_name, body->error);
    if (status != QD_OK)
        return status;
    body->sources->is_request = inputs != NULL || model_name != NULL;
    if (body->sources->is_request || parameters == NULL)
        return QD_OK;
    return read_parameters(body, parameters);
}

/* How much of the body is JSON. */
static enum qd_status find_json(struct body *body)
{
    struct qd_sources *sources = body->sources;
    uint64_t count = sources->body_bytes;
    if (sources->json_bytes_header != NULL &&
        (!qd_read_decimal(sources->json_bytes_header, &count) || count == 0 ||
         count > sources->body_bytes)) {
        return qd_fail(body->error, QD_INVALID,
                       QD_OIP_JSON_BYTES_HEADER
                       ": expected decimal digits in the range [1, %zu], the bytes of the body, "
                       "got %s",
                       sources->body_bytes, qd_show_string(sources->json_bytes_header).text);
    }
    sources->json_bytes = (size_t)count;
    return QD_OK;
}

static bool is_blank(const struct qd_sources *sources)
{
    size_t bytes = sources->body_bytes;
    while (bytes > 0 && memchr(" \t\r\n", sources->body[bytes - 1], 4) != NULL)
        bytes--;
    return bytes == 0;
}

enum qd_status qd_sources_read_body(struct qd_sources *sources, struct qd_error *error)
{
    struct body body = {.sources = sources, .error = error};
    if (is_blank(sources))
        return QD_OK;
    enum qd_status status = find_json(&body);
    const struct qd_json_value *tree;
    if (status == QD_OK)
        status = qd_json_read(sources->body, sources->json_bytes, sources->arena, &tree, error);
    if (status == QD_OK)
        status = read_tree(&body, tree);
    if (status == QD_OK && !sources->is_request && sources->json_bytes < sources->body_bytes) {
        return qd_fail(error, QD_INVALID,
                       "the body: expected its end after the JSON, got %zu bytes more",
                       sources->body_bytes - sources->json_bytes);
    }
    return status;
}
