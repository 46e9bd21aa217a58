#include "server/models/model_config.h"

#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "server/json/reader.h"
#include "server/json/tree.h"
#include "server/memory/arena.h"
#include "server/memory/text.h"
#include "server/models/prototext.h"
#include "server/telemetry/log.h"

enum { PATH_BYTES = 96, KEY_COUNT_MAX = 32 };

struct reader {
    const char *source;
    const char *model;
    struct qd_arena *arena;
    struct qd_model_config *config;
    struct qd_error *error;
    struct ignored *ignored; /* NULL: a key that is not known is refused */
};

/* The keys of a config.pbtxt that have no effect, as "a, b". */
struct ignored {
    char text[400];
};

/* One key of an object. `target` is the struct that the object fills in. */
struct key {
    const char *name;
    enum qd_status (*read)(const struct reader *reader, const char *path,
                           const struct qd_json_value *value, void *target);
};

/* Fails with a text such as "parameters.config: input[0].dims: expected an array of integers, got
 * 7". */
static enum qd_status expected(const struct reader *reader, const char *path, const char *what,
                               const struct qd_json_value *got)
{
    return qd_fail(reader->error, QD_INVALID, "%s: %s: expected %s, got %s", reader->source, path,
                   what, qd_json_show(got).text);
}

/* ---- Objects ------------------------------------------------------------------------------ */

/* Returns whether `given` is `name`, also in camel case: "maxBatchSize" is max_batch_size. */
static bool is_key(const char *given, const char *name)
{
    for (; *name != '\0'; name++, given++) {
        if (*name == '_' && *given != '_') {
            name++;
            if (!islower((unsigned char)*name) || *given != toupper((unsigned char)*name))
                return false;
        } else if (*given != *name) {
            return false;
        }
    }
    return *given == '\0';
}

static const struct key *find_key(const struct key *keys, const char *given)
{
    for (; keys->name != NULL; keys++)
        if (is_key(given, keys->name))
            return keys;
    return NULL;
}

/* Adds a key, once, as far as there is room. */
static void add_ignored(struct ignored *ignored, const char *key)
{
    const size_t used = strlen(ignored->text);
    const size_t bytes = strlen(key);
    const char *at = ignored->text;
    while ((at = strstr(at, key)) != NULL) {
        if ((at == ignored->text || at[-1] == ' ') && (at[bytes] == ',' || at[bytes] == '\0'))
            return;
        at++;
    }
    if (used + bytes + sizeof(", , ...") < sizeof(ignored->text))
        snprintf(ignored->text + used, sizeof(ignored->text) - used, "%s%s", used == 0 ? "" : ", ",
                 key);
    else if (used + sizeof(", ...") <= sizeof(ignored->text) &&
             strstr(ignored->text, "...") == NULL)
        strcpy(ignored->text + used, ", ...");
}

/* Reads each member of an object with the function of its key. `keys` end with a NULL name. */
static enum qd_status read_object(const struct reader *reader, const char *path,
                                  const struct qd_json_value *object, const struct key *keys,
                                  void *target)
{
    uint32_t seen = 0;
    if (!qd_json_is_object(object))
        return expected(reader, *path == '\0' ? "the configuration" : path, "an object", object);
    const struct qd_json_value *member = object->first;
    for (; member != NULL; member = member->next) {
        const struct key *key = find_key(keys, member->key);
        const char *dot = *path == '\0' ? "" : ".";
        if (key == NULL && reader->ignored != NULL) {
            add_ignored(reader->ignored, member->key);
            continue;
        }
        if (key == NULL) {
            return qd_fail(reader->error, QD_INVALID,
                           "%s: %s%s%s is no key of Triton's model "
                           "configuration, or one that is not known here",
                           reader->source, path, dot, qd_show_string(member->key).text);
        }
        char name[PATH_BYTES];
        snprintf(name, sizeof(name), "%s%s%s", path, dot, key->name);
        if ((seen >> (key - keys) & 1) != 0) {
            return qd_fail(reader->error, QD_INVALID, "%s: %s: expected once, got twice",
                           reader->source, name);
        }
        seen |= UINT32_C(1) << (key - keys);
        if (member->kind == QD_JSON_NULL)
            continue;
        enum qd_status status = key->read(reader, name, member, target);
        if (status != QD_OK)
            return status;
    }
    return QD_OK;
}

/* ---- Values ------------------------------------------------------------------------------- */

/* Reads a number, or a string that is a number. */
static bool read_integer(const struct qd_json_value *value, int64_t *number)
{
    const char *text = qd_json_string(value);
    if (text == NULL)
        return qd_json_whole(value, number);
    bool negative = *text == '-';
    uint64_t magnitude;
    if (!qd_read_decimal(text + negative, &magnitude) || magnitude > INT64_MAX)
        return false;
    *number = negative ? -(int64_t)magnitude : (int64_t)magnitude;
    return true;
}

static enum qd_status read_count(const struct reader *reader, const char *path,
                                 const struct qd_json_value *value, void *target)
{
    int64_t number;
    if (!read_integer(value, &number) || number < 0)
        return expected(reader, path, "an integer >= 0", value);
    *(uint64_t *)target = (uint64_t)number;
    return QD_OK;
}

/* Accepts a key that only concerns the placement of work, its speed, or reports about it. */
static enum qd_status ignore(const struct reader *reader, const char *path,
                             const struct qd_json_value *value, void *target)
{
    (void)value;
    (void)target;
    const char *dot = strrchr(path, '.');
    if (reader->ignored != NULL)
        add_ignored(reader->ignored, dot == NULL ? path : dot + 1);
    qd_log(QD_LOG_DEBUG, "model configuration: has no effect here", "model=\"%s\" key=%s",
           reader->model, path);
    return QD_OK;
}

static bool is_empty(const struct qd_json_value *value)
{
    const char *text = qd_json_string(value);
    if (text != NULL)
        return *text == '\0';
    return (qd_json_is_array(value) || qd_json_is_object(value)) && value->first == NULL;
}

/* Refuses a key that would change results, or that names a part which this server does not have. */
static enum qd_status refuse(const struct reader *reader, const char *path,
                             const struct qd_json_value *value, void *target)
{
    (void)target;
    return qd_fail(reader->error, QD_INVALID,
                   "%s: %s: expected no such key, got %s; this server does not support it",
                   reader->source, path, qd_json_show(value).text);
}

static enum qd_status refuse_filled(const struct reader *reader, const char *path,
                                    const struct qd_json_value *value, void *target)
{
    return is_empty(value) ? QD_OK : refuse(reader, path, value, target);
}

static enum qd_status refuse_true(const struct reader *reader, const char *path,
                                  const struct qd_json_value *value, void *target)
{
    bool flag;
    if (!qd_json_bool(value, &flag))
        return expected(reader, path, "true or false", value);
    return flag ? refuse(reader, path, value, target) : QD_OK;
}

static enum qd_status read_one_of(const struct reader *reader, const char *path,
                                  const struct qd_json_value *value, const char *const *names)
{
    const char *text = qd_json_string(value);
    char known[160] = "";
    size_t used = 0;
    for (size_t i = 0; names[i] != NULL; i++) {
        if (text != NULL && strcmp(text, names[i]) == 0)
            return QD_OK;
        if (used < sizeof(known))
            used += (size_t)snprintf(known + used, sizeof(known) - used, "%s\"%s\"",
                                     i == 0 ? "" : " or ", names[i]);
    }
    return expected(reader, path, known, value);
}

/* ---- Name, platform, backend, instances --------------------------------------------------- */

static enum qd_status read_name(const struct reader *reader, const char *path,
                                const struct qd_json_value *value, void *target)
{
    (void)target;
    const char *name = qd_json_string(value);
    if (name == NULL || (*name != '\0' && strcmp(name, reader->model) != 0))
        return expected(reader, path, qd_show_string(reader->model).text, value);
    return QD_OK;
}

static enum qd_status read_backend(const struct reader *reader, const char *path,
                                   const struct qd_json_value *value, void *target)
{
    static const char *const names[] = {"onnxruntime", "quantd", "", NULL};
    (void)target;
    return read_one_of(reader, path, value, names);
}

static enum qd_status read_platform(const struct reader *reader, const char *path,
                                    const struct qd_json_value *value, void *target)
{
    static const char *const names[] = {
        "onnxruntime_onnx", "onnx_onnxv1", "onnxruntime", "quantd", "", NULL};
    (void)target;
    return read_one_of(reader, path, value, names);
}

/* Copies a string into the arena. */
static enum qd_status copy(const struct reader *reader, const char *string, const char **made)
{
    *made = qd_arena_copy(reader->arena, string);
    return *made != NULL
               ? QD_OK
               : qd_refuse_memory(reader->arena, "the model configuration", reader->error);
}

/* Returns whether the name can only be an entry of the version's own folder. */
static bool is_file_name(const char *name)
{
    return name != NULL && strlen(name) <= NAME_MAX && strchr(name, '/') == NULL &&
           strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static enum qd_status read_file_name(const struct reader *reader, const char *path,
                                     const struct qd_json_value *value, void *target)
{
    struct qd_model_config *config = target;
    const char *name = qd_json_string(value);
    if (!is_file_name(name))
        return expected(reader, path,
                        "the name of a file in the version's folder, such as "
                        "\"model_quantized.onnx\", of at most 255 bytes and without '/'",
                        value);
    return *name == '\0' ? QD_OK : copy(reader, name, &config->file_name);
}

static enum qd_status read_kind(const struct reader *reader, const char *path,
                                const struct qd_json_value *value, void *target)
{
    static const char *const names[] = {"KIND_CPU", "KIND_AUTO", NULL};
    (void)target;
    return read_one_of(reader, path, value, names);
}

/* Reads each object of an array with `keys`, into `size` bytes of *items. *items is allocated in
 * the arena, or NULL if `size` is 0. */
static enum qd_status read_array(const struct reader *reader, const char *path,
                                 const struct qd_json_value *array, const struct key *keys,
                                 size_t size, size_t *count, char **items)
{
    if (!qd_json_is_array(array))
        return expected(reader, path, "an array", array);
    *count = 0;
    for (const struct qd_json_value *item = array->first; item != NULL; item = item->next)
        ++*count;
    *items = size == 0 ? NULL : qd_arena_calloc(reader->arena, *count, size);
    if (size > 0 && *items == NULL)
        return qd_refuse_memory(reader->arena, "the model configuration", reader->error);
    size_t index = 0;
    for (const struct qd_json_value *item = array->first; item != NULL; item = item->next) {
        char name[PATH_BYTES];
        snprintf(name, sizeof(name), "%s[%zu]", path, index);
        void *target = size == 0 ? NULL : *items + index * size;
        enum qd_status status = read_object(reader, name, item, keys, target);
        if (status != QD_OK)
            return status;
        index++;
    }
    return QD_OK;
}

static enum qd_status read_instances(const struct reader *reader, const char *path,
                                     const struct qd_json_value *value, void *target)
{
    static const struct key keys[] = {
        {"name", ignore},         {"kind", read_kind},
        {"count", ignore},        {"gpus", refuse_filled},
        {"rate_limiter", ignore}, {"profile", refuse_filled},
        {"passive", refuse_true}, {"secondary_devices", refuse_filled},
        {"host_policy", ignore},  {NULL, NULL},
    };
    size_t count;
    char *items;
    (void)target;
    return read_array(reader, path, value, keys, 0, &count, &items);
}

/* ---- Versions ----------------------------------------------------------------------------- */

static enum qd_status read_latest_count(const struct reader *reader, const char *path,
                                        const struct qd_json_value *value, void *target)
{
    struct qd_model_config *config = target;
    enum qd_status status = read_count(reader, path, value, &config->latest_count);
    if (status == QD_OK && config->latest_count == 0)
        return expected(reader, path, "an integer >= 1", value);
    return status;
}

static enum qd_status read_latest(const struct reader *reader, const char *path,
                                  const struct qd_json_value *value, void *target)
{
    static const struct key keys[] = {{"num_versions", read_latest_count}, {NULL, NULL}};
    ((struct qd_model_config *)target)->policy = QD_POLICY_LATEST;
    return read_object(reader, path, value, keys, target);
}

static enum qd_status read_all(const struct reader *reader, const char *path,
                               const struct qd_json_value *value, void *target)
{
    static const struct key keys[] = {{NULL, NULL}};
    ((struct qd_model_config *)target)->policy = QD_POLICY_ALL;
    return read_object(reader, path, value, keys, target);
}

static enum qd_status read_versions(const struct reader *reader, const char *path,
                                    const struct qd_json_value *value, void *target)
{
    struct qd_model_config *config = target;
    config->version_count = 0;
    if (!qd_json_is_array(value))
        return expected(reader, path, "an array of version numbers", value);
    if (value->first == NULL)
        return qd_fail(reader->error, QD_INVALID, "%s: %s: expected a version, got none",
                       reader->source, path);
    for (const struct qd_json_value *item = value->first; item != NULL; item = item->next) {
        int64_t number;
        if (config->version_count == QD_CONFIG_VERSION_COUNT_MAX) {
            return qd_fail(reader->error, QD_INVALID, "%s: %s: expected at most %d versions",
                           reader->source, path, QD_CONFIG_VERSION_COUNT_MAX);
        }
        if (!read_integer(item, &number) || number <= 0)
            return expected(reader, path, "integers > 0", item);
        config->versions[config->version_count++] = (uint64_t)number;
    }
    return QD_OK;
}

static enum qd_status read_specific(const struct reader *reader, const char *path,
                                    const struct qd_json_value *value, void *target)
{
    static const struct key keys[] = {{"versions", read_versions}, {NULL, NULL}};
    struct qd_model_config *config = target;
    config->policy = QD_POLICY_SPECIFIC;
    enum qd_status status = read_object(reader, path, value, keys, target);
    if (status == QD_OK && config->version_count == 0)
        return expected(reader, path, "versions in it", value);
    return status;
}

static enum qd_status read_policy(const struct reader *reader, const char *path,
                                  const struct qd_json_value *value, void *target)
{
    static const struct key keys[] = {
        {"latest", read_latest}, {"all", read_all}, {"specific", read_specific}, {NULL, NULL}};
    const struct qd_json_value *first = qd_json_is_object(value) ? value->first : NULL;
    if (first != NULL && first->next != NULL)
        return expected(reader, path, "one of latest, all and specific", value);
    return read_object(reader, path, value, keys, target);
}

/* ---- Inputs and outputs ------------------------------------------------------------------- */

static enum qd_status read_port_name(const struct reader *reader, const char *path,
                                     const struct qd_json_value *value, void *target)
{
    const char *name = qd_json_string(value);
    if (name == NULL)
        return expected(reader, path, "a string", value);
    return copy(reader, name, &((struct qd_config_port *)target)->name);
}

static enum qd_status read_data_type(const struct reader *reader, const char *path,
                                     const struct qd_json_value *value, void *target)
{
    const char *name = qd_json_string(value);
    enum qk_type type = QK_NONE;
    if (name != NULL && strncmp(name, "TYPE_", 5) == 0)
        type = qk_type_by_name(name + 5);
    if (type == QK_NONE)
        return expected(reader, path, "a datatype such as TYPE_UINT8 that operators here take",
                        value);
    ((struct qd_config_port *)target)->type = type;
    return QD_OK;
}

static enum qd_status read_dims(const struct reader *reader, const char *path,
                                const struct qd_json_value *value, void *target)
{
    struct qd_config_port *port = target;
    if (!qd_json_is_array(value))
        return expected(reader, path, "an array of integers", value);
    port->shaped = true;
    port->rank = 0;
    for (const struct qd_json_value *item = value->first; item != NULL; item = item->next) {
        int64_t dim;
        if (port->rank == QK_RANK_MAX - 1) {
            return qd_fail(reader->error, QD_INVALID, "%s: %s: expected at most %d dimensions",
                           reader->source, path, QK_RANK_MAX - 1);
        }
        if (!read_integer(item, &dim) || dim < QD_DIM_FREE)
            return expected(reader, path, "integers >= 0, or -1 where any will do", item);
        port->dims[port->rank++] = dim;
    }
    return QD_OK;
}

/* Reads the path of a file in the model's folder. Opening it refuses a path that leaves the folder.
 */
static enum qd_status read_label_file(const struct reader *reader, const char *path,
                                      const struct qd_json_value *value, void *target)
{
    struct qd_config_port *port = target;
    const char *name = qd_json_string(value);
    if (name == NULL || strlen(name) > NAME_MAX)
        return expected(reader, path,
                        "the name of a file in the model's folder, of at most 255 bytes", value);
    port->label_file = NULL;
    return *name == '\0' ? QD_OK : copy(reader, name, &port->label_file);
}

static enum qd_status read_ports(const struct reader *reader, const char *path,
                                 const struct qd_json_value *value,
                                 const struct qd_config_port **ports, size_t *count)
{
    static const struct key keys[] = {
        {"name", read_port_name},
        {"data_type", read_data_type},
        {"dims", read_dims},
        {"format", ignore},
        {"label_filename", read_label_file},
        {"reshape", refuse},
        {"optional", refuse_true},
        {"is_shape_tensor", refuse_true},
        {"allow_ragged_batch", refuse_true},
        {"is_non_linear_format_io", refuse_true},
        {NULL, NULL},
    };
    char *items;
    enum qd_status status = read_array(reader, path, value, keys, sizeof(**ports), count, &items);
    *ports = *count == 0 ? NULL : (const void *)items;
    for (size_t i = 0; status == QD_OK && i < *count; i++) {
        if ((*ports)[i].name == NULL) {
            status = qd_fail(reader->error, QD_INVALID,
                             "%s: %s[%zu].name: expected a string, got "
                             "none",
                             reader->source, path, i);
        }
    }
    return status;
}

static enum qd_status read_inputs(const struct reader *reader, const char *path,
                                  const struct qd_json_value *value, void *target)
{
    struct qd_model_config *config = target;
    return read_ports(reader, path, value, &config->inputs, &config->input_count);
}

static enum qd_status read_outputs(const struct reader *reader, const char *path,
                                   const struct qd_json_value *value, void *target)
{
    struct qd_model_config *config = target;
    return read_ports(reader, path, value, &config->outputs, &config->output_count);
}

/* ---- Where to cut -------------------------------------------------------------------------- */

/* Reads a list of names of values in an ONNX file. */
static enum qd_status read_names(const struct reader *reader, const char *path,
                                 const struct qd_json_value *value, const char *const **names,
                                 size_t *count)
{
    const char **made = qd_arena_alloc(reader->arena, QK_GRAPH_PORT_COUNT_MAX * sizeof(*made));
    if (made == NULL)
        return qd_refuse_memory(reader->arena, "the model configuration", reader->error);
    if (!qd_json_is_array(value) || value->first == NULL)
        return expected(reader, path, "an array of names of values in the ONNX file", value);
    *names = made;
    *count = 0;
    for (const struct qd_json_value *item = value->first; item != NULL; item = item->next) {
        char field[PATH_BYTES];
        snprintf(field, sizeof(field), "%s[%zu]", path, *count);
        const char *name = qd_json_string(item);
        if (*count == QK_GRAPH_PORT_COUNT_MAX)
            return qd_fail(reader->error, QD_INVALID, "%s: %s: expected at most %d names, got more",
                           reader->source, path, QK_GRAPH_PORT_COUNT_MAX);
        if (name == NULL || *name == '\0')
            return expected(reader, field, "the name of a value in the ONNX file", item);
        for (size_t i = 0; i < *count; i++)
            if (strcmp(made[i], name) == 0)
                return qd_fail(reader->error, QD_INVALID,
                               "%s: %s: expected each name once, got %s twice", reader->source,
                               field, qd_show_string(name).text);
        if (copy(reader, name, &made[*count]) != QD_OK)
            return reader->error->status;
        ++*count;
    }
    return QD_OK;
}

static enum qd_status read_cut_inputs(const struct reader *reader, const char *path,
                                      const struct qd_json_value *value, void *target)
{
    struct qd_onnx_cut *cut = &((struct qd_model_config *)target)->cut;
    return read_names(reader, path, value, &cut->inputs, &cut->input_count);
}

static enum qd_status read_cut_outputs(const struct reader *reader, const char *path,
                                       const struct qd_json_value *value, void *target)
{
    struct qd_onnx_cut *cut = &((struct qd_model_config *)target)->cut;
    return read_names(reader, path, value, &cut->outputs, &cut->output_count);
}

/* ---- The configuration -------------------------------------------------------------------- */

static enum qd_status read_batch_max(const struct reader *reader, const char *path,
                                     const struct qd_json_value *value, void *target)
{
    return read_count(reader, path, value, &((struct qd_model_config *)target)->batch_max);
}

static enum qd_status read_transaction(const struct reader *reader, const char *path,
                                       const struct qd_json_value *value, void *target)
{
    static const struct key keys[] = {{"decoupled", refuse_true}, {NULL, NULL}};
    return read_object(reader, path, value, keys, target);
}

/* The fields of Triton's ModelConfig, and two of our own: inputs and outputs. */
static const struct key config_keys[] = {
    {"name", read_name},
    {"platform", read_platform},
    {"backend", read_backend},
    {"runtime", refuse_filled},
    {"version_policy", read_policy},
    {"max_batch_size", read_batch_max},
    {"input", read_inputs},
    {"output", read_outputs},
    {"inputs", read_cut_inputs},
    {"outputs", read_cut_outputs},
    {"batch_input", refuse_filled},
    {"batch_output", refuse_filled},
    {"optimization", ignore},
    {"dynamic_batching", ignore}, /* does not change answers */
    {"sequence_batching", refuse},
    {"ensemble_scheduling", refuse},
    {"instance_group", read_instances},
    {"default_model_filename", read_file_name},
    {"cc_model_filenames", refuse_filled},
    {"metric_tags", ignore},
    {"parameters", ignore},
    {"model_warmup", ignore},
    {"model_operations", refuse_filled},
    {"model_transaction_policy", read_transaction},
    {"model_repository_agents", refuse_filled},
    {"response_cache", ignore},
    {"model_metrics", ignore},
    {NULL, NULL},
};
_Static_assert(sizeof(config_keys) / sizeof(*config_keys) <= KEY_COUNT_MAX, "one bit for each");

/* Puts the file's name before an error. */
static enum qd_status fail_in(const char *source, struct qd_error *error)
{
    const struct qd_error inner = *error;
    return qd_fail(error, inner.status, "%s: %.400s", source, inner.text);
}

void qd_model_config_init(struct qd_model_config *config)
{
    *config = (struct qd_model_config){.policy = QD_POLICY_LATEST, .latest_count = 1};
}

enum qd_status qd_model_config_read(const char *json, size_t bytes, const char *source,
                                    const char *name, struct qd_arena *arena,
                                    struct qd_model_config *config, struct qd_error *error)
{
    const struct reader reader = {source, name, arena, config, error, NULL};
    const struct qd_json_value *tree;
    qd_model_config_init(config);
    return qd_json_read(json, bytes, arena, &tree, error) == QD_OK
               ? read_object(&reader, "", tree, config_keys, config)
               : fail_in(source, error);
}

enum qd_status qd_model_config_read_pbtxt(const char *text, size_t bytes, const char *source,
                                          const char *name, struct qd_arena *arena,
                                          struct qd_model_config *config, struct qd_error *error)
{
    static const char *const repeated[] = {"input", "output", "dims", "versions", NULL};
    static const struct key keys[] = {
        {"version_policy", read_policy},
        {"max_batch_size", read_batch_max},
        {"input", read_inputs},
        {"output", read_outputs},
        {"default_model_filename", read_file_name},
        {NULL, NULL},
    };
    struct ignored ignored = {""};
    const struct reader reader = {source, name, arena, config, error, &ignored};
    const struct qd_json_value *tree;
    qd_model_config_init(config);
    if (qd_prototext_read(text, bytes, repeated, arena, &tree, error) != QD_OK)
        return fail_in(source, error);
    const enum qd_status status = read_object(&reader, "", tree, keys, config);
    if (status == QD_OK && *ignored.text != '\0')
        qd_log(QD_LOG_WARN, "config.pbtxt: these keys have no effect", "model=\"%s\" keys=\"%s\"",
               name, ignored.text);
    return status;
}

/* ---- Versions ----------------------------------------------------------------------------- */

static bool is_named(const struct qd_model_config *config, uint64_t version)
{
    for (size_t i = 0; i < config->version_count; i++)
        if (config->versions[i] == version)
            return true;
    return false;
}

bool qd_model_config_wants(const struct qd_model_config *config, const uint64_t *versions,
                           size_t version_count, size_t index)
{
    switch (config->policy) {
    case QD_POLICY_LATEST:
        return version_count - index <= config->latest_count;
    case QD_POLICY_SPECIFIC:
        return is_named(config, versions[index]);
    default:
        return true;
    }
}

uint64_t qd_model_config_misses(const struct qd_model_config *config, const uint64_t *versions,
                                size_t version_count)
{
    for (size_t i = 0; config->policy == QD_POLICY_SPECIFIC && i < config->version_count; i++) {
        size_t at = 0;
        while (at < version_count && versions[at] != config->versions[i])
            at++;
        if (at == version_count)
            return config->versions[i];
    }
    return 0;
}

const char *qd_model_config_print_policy(const struct qd_model_config *config,
                                         struct qd_arena *arena)
{
    enum { FRAME_BYTES = 64, NUMBER_BYTES = 24 };
    const bool specific = config->policy == QD_POLICY_SPECIFIC;
    const size_t size = FRAME_BYTES + (specific ? config->version_count * NUMBER_BYTES : 0);
    char *text = qd_arena_alloc(arena, size);
    if (text == NULL)
        return NULL;
    if (config->policy == QD_POLICY_ALL)
        snprintf(text, size, "{\"all\":{}}");
    else if (!specific)
        snprintf(text, size, "{\"latest\":{\"num_versions\":%" PRIu64 "}}", config->latest_count);
    if (!specific)
        return text;
    size_t used = (size_t)snprintf(text, size, "{\"specific\":{\"versions\":[");
    for (size_t i = 0; i < config->version_count; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRIu64, i == 0 ? "" : ",",
                                 config->versions[i]);
    snprintf(text + used, size - used, "]}}");
    return text;
}

/* ---- Inputs and outputs ------------------------------------------------------------------- */

enum qd_status qd_model_config_refuse_type(const char *name, uint32_t types, enum qk_type type,
                                           struct qd_error *error)
{
    char known[160];
    qk_print_types(types, known, sizeof(known));
    return qd_fail(error, QD_INVALID,
                   "the configuration's input %s: data_type: expected %s, got TYPE_%s",
                   qd_show_string(name).text, known, qk_type_info(type)->name);
}

static enum qd_status apply_dims(const struct qd_config_port *wanted, const char *kind,
                                 uint64_t batch_max, struct qd_port *port, struct qd_error *error)
{
    uint32_t first = batch_max > 0 ? 1 : 0;
    if (!port->shaped) { /* the model says nothing, so the configuration decides */
        port->shaped = true;
        port->rank = wanted->rank + first;
        port->dims[0] = QD_DIM_FREE;
        memcpy(&port->dims[first], wanted->dims, wanted->rank * sizeof(*wanted->dims));
        return QD_OK;
    }
    char shape[160];
    qd_port_print_shape(port, shape, sizeof(shape));
    if (port->rank != wanted->rank + first) {
        return qd_fail(error, QD_INVALID,
                       "the configuration's %s %s: expected %u dimensions%s, for the "
                       "model's %s, got %u",
                       kind, qd_show_string(port->name).text, port->rank - first,
                       first == 1 ? " after the batch's" : "", shape, wanted->rank);
    }
    for (uint32_t i = 0; i < wanted->rank; i++) {
        int64_t *dim = &port->dims[i + first];
        if (*dim != QD_DIM_FREE && *dim != wanted->dims[i]) {
            return qd_fail(error, QD_INVALID,
                           "the configuration's %s %s: dims[%u]: expected %lld, as the "
                           "model has it, got %lld",
                           kind, qd_show_string(port->name).text, i, (long long)*dim,
                           (long long)wanted->dims[i]);
        }
        *dim = wanted->dims[i];
    }
    return QD_OK;
}

static enum qd_status apply_port(const struct qd_config_port *wanted, const char *kind,
                                 uint64_t batch_max, struct qd_port *ports, size_t count,
                                 uint64_t *seen, struct qd_error *error)
{
    size_t i = 0;
    while (i < count && strcmp(ports[i].name, wanted->name) != 0)
        i++;
    if (i == count) {
        return qd_fail(error, QD_INVALID,
                       "the configuration's %s: expected the name of one of the model's, got %s",
                       kind, qd_show_string(wanted->name).text);
    }
    if ((*seen >> i & 1) != 0) {
        return qd_fail(error, QD_INVALID, "the configuration's %s %s: expected once, got twice",
                       kind, qd_show_string(wanted->name).text);
    }
    *seen |= UINT64_C(1) << i;
    if (wanted->type != QK_NONE && ports[i].types != QK_BIT(wanted->type)) {
        enum qk_type type = (enum qk_type)__builtin_ctz(ports[i].types);
        return qd_fail(error, QD_INVALID,
                       "the configuration's %s %s: data_type: expected TYPE_%s, as the "
                       "model has it, got TYPE_%s",
                       kind, qd_show_string(wanted->name).text, qk_type_info(type)->name,
                       qk_type_info(wanted->type)->name);
    }
    return wanted->shaped ? apply_dims(wanted, kind, batch_max, &ports[i], error) : QD_OK;
}

/* Refuses a batch if a port's first dimension is not free. */
static enum qd_status check_batch(const struct qd_port *ports, size_t count, const char *kind,
                                  struct qd_error *error)
{
    for (size_t i = 0; i < count; i++) {
        char shape[160];
        qd_port_print_shape(&ports[i], shape, sizeof(shape));
        if (ports[i].shaped && (ports[i].rank == 0 || ports[i].dims[0] != QD_DIM_FREE)) {
            return qd_fail(error, QD_INVALID,
                           "the configuration's max_batch_size: expected 0, as the first dimension "
                           "of the %s %s, %s, is not free",
                           kind, qd_show_string(ports[i].name).text, shape);
        }
    }
    return QD_OK;
}

enum qd_status qd_model_config_apply(const struct qd_model_config *config, struct qd_port *inputs,
                                     size_t input_count, struct qd_port *outputs,
                                     size_t output_count, struct qd_error *error)
{
    uint64_t seen[2] = {0, 0};
    enum qd_status status = QD_OK;
    if (config->batch_max > 0) {
        status = check_batch(inputs, input_count, "input", error);
        if (status == QD_OK)
            status = check_batch(outputs, output_count, "output", error);
    }
    for (size_t i = 0; status == QD_OK && i < config->input_count; i++)
        status = apply_port(&config->inputs[i], "input", config->batch_max, inputs, input_count,
                            &seen[0], error);
    for (size_t i = 0; status == QD_OK && i < config->output_count; i++)
        status = apply_port(&config->outputs[i], "output", config->batch_max, outputs, output_count,
                            &seen[1], error);
    if (status == QD_OK && config->input_count > 0 && config->input_count != input_count) {
        return qd_fail(error, QD_INVALID,
                       "the configuration's input: expected all %zu inputs of "
                       "the model, or none, got %zu",
                       input_count, config->input_count);
    }
    return status;
}
