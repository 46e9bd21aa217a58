#include "server/models/model_config.h"

#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "server/json/reader.h"
#include "server/json/tree.h"
#include "server/memory/text.h"
#include "server/models/prototext.h"
#include "server/telemetry/log.h"

enum { PATH_BYTES = 96, KEY_COUNT_MAX = 32, IGNORED_BYTES = 400 };

struct reader {
    const char *source;
    const char *model;
    struct qd_arena *arena;
    struct qd_error *error;
    char *ignored; /* the keys of a config.pbtxt that have no effect, as "a, b", in IGNORED_BYTES;
                      NULL: a key that is not known is refused */
};

/* A value, and where to. */
struct field {
    const struct reader *reader;
    const char *path; /* "" for the whole configuration */
    const struct qd_json_value *value;
    void *target;             /* what the value fills in */
    size_t *count;            /* of a list that the value fills in; NULL: its key has none */
    const char *const *names; /* of its key */
    int64_t least;            /* likewise */
};

/* One key of an object. */
struct key {
    const char *name;
    enum qd_status (*read)(const struct field *field);
    bool in_text;             /* of the keys at the top, config.pbtxt's other ones are ignored */
    size_t offset;            /* of the target, in what the object fills in */
    size_t count_offset;      /* likewise, of the list's count; 0: none */
    const char *const *names; /* what read_one_of takes; NULL at the end */
    int64_t least;            /* what read_at_least takes */
};

/* Fails with a text such as "parameters.config: input[0].dims: expected an array of integers, got
 * 7". */
#define FAIL(field, format, ...)                                                            \
    qd_fail((field)->reader->error, QD_INVALID, "%s: %s: " format, (field)->reader->source, \
            (field)->path, __VA_ARGS__)

static enum qd_status expected(const struct field *field, const char *what,
                               const struct qd_json_value *got)
{
    return FAIL(field, "expected %s, got %s", what, qd_json_show(got).text);
}

static enum qd_status refuse_memory(const struct field *field)
{
    return qd_refuse_memory(field->reader->arena, "the model configuration", field->reader->error);
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
static void add_ignored(char *ignored, const char *key)
{
    const size_t bytes = strlen(key);
    for (const char *at = ignored; (at = strstr(at, key)) != NULL; at++)
        if ((at == ignored || at[-1] == ' ') && (at[bytes] == ',' || at[bytes] == '\0'))
            return;
    qd_list_name(ignored, IGNORED_BYTES, key);
}

/* Reads the value of a key. */
static enum qd_status read_member(const struct field *object, const struct key *key,
                                  const char *path, const struct qd_json_value *value)
{
    char *target = object->target;
    const struct field field = {
        .reader = object->reader,
        .path = path,
        .value = value,
        .target = target == NULL ? NULL : target + key->offset,
        .count = key->count_offset == 0 ? NULL : (size_t *)(void *)(target + key->count_offset),
        .names = key->names,
        .least = key->least,
    };
    return value->kind == QD_JSON_NULL ? QD_OK : key->read(&field);
}

/* Reads each member of an object with the function of its key. `keys` end with a NULL name. */
static enum qd_status read_object(const struct field *object, const struct key *keys)
{
    const struct reader *reader = object->reader;
    uint32_t seen = 0;
    if (!qd_json_is_object(object->value)) {
        struct field named = *object;
        named.path = *object->path == '\0' ? "the configuration" : object->path;
        return expected(&named, "an object", object->value);
    }
    const struct qd_json_value *member = object->value->first;
    for (; member != NULL; member = member->next) {
        const struct key *key = find_key(keys, member->key);
        const char *dot = *object->path == '\0' ? "" : ".";
        if (reader->ignored != NULL && (key == NULL || (*object->path == '\0' && !key->in_text))) {
            add_ignored(reader->ignored, member->key);
            continue;
        }
        if (key == NULL) {
            return qd_fail(reader->error, QD_INVALID,
                           "%s: %s%s%s is no key of Triton's model "
                           "configuration, or one that is not known here",
                           reader->source, object->path, dot, qd_show_string(member->key).text);
        }
        char path[PATH_BYTES];
        snprintf(path, sizeof(path), "%s%s%s", object->path, dot, key->name);
        if ((seen >> (key - keys) & 1) != 0) {
            return qd_fail(reader->error, QD_INVALID, "%s: %s: expected once, got twice",
                           reader->source, path);
        }
        seen |= UINT32_C(1) << (key - keys);
        if (read_member(object, key, path, member) != QD_OK)
            return reader->error->status;
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

static enum qd_status read_at_least(const struct field *field)
{
    int64_t number;
    if (!read_integer(field->value, &number) || number < field->least)
        return FAIL(field, "expected an integer >= %" PRId64 ", got %s", field->least,
                    qd_json_show(field->value).text);
    *(uint64_t *)field->target = (uint64_t)number;
    return QD_OK;
}

/* Accepts a key that only concerns the placement of work, its speed, or reports about it. */
static enum qd_status ignore(const struct field *field)
{
    const char *dot = strrchr(field->path, '.');
    if (field->reader->ignored != NULL)
        add_ignored(field->reader->ignored, dot == NULL ? field->path : dot + 1);
    qd_log(QD_LOG_DEBUG, "model configuration: has no effect here", "model=\"%s\" key=%s",
           field->reader->model, field->path);
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
static enum qd_status refuse(const struct field *field)
{
    return FAIL(field, "expected no such key, got %s; this server does not support it",
                qd_json_show(field->value).text);
}

static enum qd_status refuse_filled(const struct field *field)
{
    return is_empty(field->value) ? QD_OK : refuse(field);
}

static enum qd_status refuse_true(const struct field *field)
{
    bool flag;
    if (!qd_json_bool(field->value, &flag))
        return expected(field, "true or false", field->value);
    return flag ? refuse(field) : QD_OK;
}

static enum qd_status read_one_of(const struct field *field)
{
    const char *text = qd_json_string(field->value);
    char known[160] = "";
    size_t used = 0;
    for (size_t i = 0; field->names[i] != NULL; i++) {
        if (text != NULL && strcmp(text, field->names[i]) == 0)
            return QD_OK;
        if (used < sizeof(known))
            used += (size_t)snprintf(known + used, sizeof(known) - used, "%s\"%s\"",
                                     i == 0 ? "" : " or ", field->names[i]);
    }
    return expected(field, known, field->value);
}

/* Copies a string into the arena. */
static enum qd_status copy(const struct field *field, const char *string, const char **made)
{
    *made = qd_arena_copy(field->reader->arena, string);
    return *made != NULL ? QD_OK : refuse_memory(field);
}

static enum qd_status read_string(const struct field *field)
{
    const char *string = qd_json_string(field->value);
    return string == NULL ? expected(field, "a string", field->value)
                          : copy(field, string, field->target);
}

/* Reads each object of an array with `keys`, into `size` bytes of *items. *items is allocated in
 * the arena, or NULL if `size` is 0. */
static enum qd_status read_array(const struct field *field, const struct key *keys, size_t size,
                                 size_t *count, char **items)
{
    if (!qd_json_is_array(field->value))
        return expected(field, "an array", field->value);
    *count = 0;
    for (const struct qd_json_value *item = field->value->first; item != NULL; item = item->next)
        ++*count;
    *items = size == 0 ? NULL : qd_arena_calloc(field->reader->arena, *count, size);
    if (size > 0 && *items == NULL)
        return refuse_memory(field);
    size_t index = 0;
    for (const struct qd_json_value *item = field->value->first; item != NULL; item = item->next) {
        char path[PATH_BYTES];
        snprintf(path, sizeof(path), "%s[%zu]", field->path, index);
        const struct field object = {.reader = field->reader,
                                     .path = path,
                                     .value = item,
                                     .target = size == 0 ? NULL : *items + index * size};
        enum qd_status status = read_object(&object, keys);
        if (status != QD_OK)
            return status;
        index++;
    }
    return QD_OK;
}

/* ---- Names, instances --------------------------------------------------------------------- */

static const char *const backends[] = {"onnxruntime", "quantd", "", NULL};
static const char *const platforms[] = {
    "onnxruntime_onnx", "onnx_onnxv1", "onnxruntime", "quantd", "", NULL};
static const char *const kinds[] = {"KIND_CPU", "KIND_AUTO", NULL};

static enum qd_status read_name(const struct field *field)
{
    const char *model = field->reader->model;
    const char *name = qd_json_string(field->value);
    if (name == NULL || (*name != '\0' && strcmp(name, model) != 0))
        return expected(field, qd_show_string(model).text, field->value);
    return QD_OK;
}

/* Reads a name that can only be an entry of the version's own folder. */
static enum qd_status read_file_name(const struct field *field)
{
    const char *name = qd_json_string(field->value);
    if (name == NULL || strlen(name) > NAME_MAX || strchr(name, '/') != NULL ||
        strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return expected(field,
                        "the name of a file in the version's folder, such as "
                        "\"model_quantized.onnx\", of at most 255 bytes and without '/'",
                        field->value);
    return *name == '\0' ? QD_OK : copy(field, name, field->target);
}

static enum qd_status read_instances(const struct field *field)
{
    static const struct key keys[] = {
        {.name = "name", .read = ignore},
        {.name = "kind", .read = read_one_of, .names = kinds},
        {.name = "count", .read = ignore},
        {.name = "gpus", .read = refuse_filled},
        {.name = "rate_limiter", .read = ignore},
        {.name = "profile", .read = refuse_filled},
        {.name = "passive", .read = refuse_true},
        {.name = "secondary_devices", .read = refuse_filled},
        {.name = "host_policy", .read = ignore},
        {.name = NULL},
    };
    size_t count;
    char *items;
    return read_array(field, keys, 0, &count, &items);
}

/* ---- Versions ----------------------------------------------------------------------------- */

#define AT(field) offsetof(struct qd_model_config, field)
#define LIST(list, count) .offset = AT(list), .count_offset = AT(count)
#define AT_PORT(field) offsetof(struct qd_config_port, field)

static enum qd_status read_latest(const struct field *field)
{
    static const struct key keys[] = {
        {.name = "num_versions", .read = read_at_least, .offset = AT(latest_count), .least = 1},
        {.name = NULL}};
    ((struct qd_model_config *)field->target)->policy = QD_POLICY_LATEST;
    return read_object(field, keys);
}

static enum qd_status read_all(const struct field *field)
{
    static const struct key keys[] = {{.name = NULL}};
    ((struct qd_model_config *)field->target)->policy = QD_POLICY_ALL;
    return read_object(field, keys);
}

static enum qd_status read_versions(const struct field *field)
{
    struct qd_model_config *config = field->target;
    const struct qd_json_value *list = field->value;
    config->version_count = 0;
    if (!qd_json_is_array(list))
        return expected(field, "an array of version numbers", list);
    if (list->first == NULL)
        return expected(field, "a version", NULL);
    for (const struct qd_json_value *item = list->first; item != NULL; item = item->next) {
        int64_t number;
        if (config->version_count == QD_CONFIG_VERSION_COUNT_MAX)
            return FAIL(field, "expected at most %d versions, got more",
                        QD_CONFIG_VERSION_COUNT_MAX);
        if (!read_integer(item, &number) || number <= 0)
            return expected(field, "integers > 0", item);
        config->versions[config->version_count++] = (uint64_t)number;
    }
    return QD_OK;
}

static enum qd_status read_specific(const struct field *field)
{
    static const struct key keys[] = {{.name = "versions", .read = read_versions}, {.name = NULL}};
    struct qd_model_config *config = field->target;
    config->policy = QD_POLICY_SPECIFIC;
    enum qd_status status = read_object(field, keys);
    if (status == QD_OK && config->version_count == 0)
        return expected(field, "versions in it", field->value);
    return status;
}

static enum qd_status read_policy(const struct field *field)
{
    static const struct key keys[] = {{.name = "latest", .read = read_latest},
                                      {.name = "all", .read = read_all},
                                      {.name = "specific", .read = read_specific},
                                      {.name = NULL}};
    const struct qd_json_value *value = field->value;
    const struct qd_json_value *first = qd_json_is_object(value) ? value->first : NULL;
    if (first != NULL && first->next != NULL)
        return expected(field, "one of latest, all and specific", value);
    return read_object(field, keys);
}

/* ---- Inputs and outputs ------------------------------------------------------------------- */

static enum qd_status read_data_type(const struct field *field)
{
    const char *name = qd_json_string(field->value);
    enum qk_type type = QK_NONE;
    if (name != NULL && strncmp(name, "TYPE_", 5) == 0)
        type = qk_type_by_name(name + 5);
    if (type == QK_NONE)
        return expected(field, "a datatype such as TYPE_UINT8 that operators here take",
                        field->value);
    *(enum qk_type *)field->target = type;
    return QD_OK;
}

static enum qd_status read_dims(const struct field *field)
{
    struct qd_config_port *port = field->target;
    if (!qd_json_is_array(field->value))
        return expected(field, "an array of integers", field->value);
    port->shaped = true;
    port->rank = 0;
    for (const struct qd_json_value *item = field->value->first; item != NULL; item = item->next) {
        int64_t dim;
        if (port->rank == QK_RANK_MAX - 1)
            return FAIL(field, "expected at most %d dimensions, got more", QK_RANK_MAX - 1);
        if (!read_integer(item, &dim) || dim < QD_DIM_FREE)
            return expected(field, "integers >= 0, or -1 where any will do", item);
        port->dims[port->rank++] = dim;
    }
    return QD_OK;
}

/* Reads the path of a file in the model's folder. Opening it refuses a path that leaves the folder.
 */
static enum qd_status read_label_file(const struct field *field)
{
    const char *name = qd_json_string(field->value);
    if (name == NULL || strlen(name) > NAME_MAX)
        return expected(field, "the name of a file in the model's folder, of at most 255 bytes",
                        field->value);
    return *name == '\0' ? QD_OK : copy(field, name, field->target);
}

static enum qd_status read_ports(const struct field *field)
{
    static const struct key keys[] = {
        {.name = "name", .read = read_string, .offset = AT_PORT(name)},
        {.name = "data_type", .read = read_data_type, .offset = AT_PORT(type)},
        {.name = "dims", .read = read_dims},
        {.name = "format", .read = ignore},
        {.name = "label_filename", .read = read_label_file, .offset = AT_PORT(label_file)},
        {.name = "reshape", .read = refuse},
        {.name = "optional", .read = refuse_true},
        {.name = "is_shape_tensor", .read = refuse_true},
        {.name = "allow_ragged_batch", .read = refuse_true},
        {.name = "is_non_linear_format_io", .read = refuse_true},
        {.name = NULL},
    };
    const struct qd_config_port **ports = field->target;
    char *items;
    enum qd_status status = read_array(field, keys, sizeof(**ports), field->count, &items);
    *ports = *field->count == 0 ? NULL : (const void *)items;
    for (size_t i = 0; status == QD_OK && i < *field->count; i++)
        if ((*ports)[i].name == NULL)
            status = qd_fail(field->reader->error, QD_INVALID,
                             "%s: %s[%zu].name: expected a string, got none", field->reader->source,
                             field->path, i);
    return status;
}

/* ---- Where to cut -------------------------------------------------------------------------- */

/* Reads a list of names of values in an ONNX file. */
static enum qd_status read_names(const struct field *field)
{
    const struct qd_json_value *list = field->value;
    const char **made =
        qd_arena_alloc(field->reader->arena, QK_GRAPH_PORT_COUNT_MAX * sizeof(*made));
    if (made == NULL)
        return refuse_memory(field);
    if (!qd_json_is_array(list) || list->first == NULL)
        return expected(field, "an array of names of values in the ONNX file", list);
    *(const char *const **)field->target = made;
    *field->count = 0;
    for (const struct qd_json_value *item = list->first; item != NULL; item = item->next) {
        char path[PATH_BYTES];
        struct field entry = *field;
        snprintf(path, sizeof(path), "%s[%zu]", field->path, *field->count);
        entry.path = path;
        const char *name = qd_json_string(item);
        if (*field->count == QK_GRAPH_PORT_COUNT_MAX)
            return FAIL(field, "expected at most %d names, got more", QK_GRAPH_PORT_COUNT_MAX);
        if (name == NULL || *name == '\0')
            return expected(&entry, "the name of a value in the ONNX file", item);
        for (size_t i = 0; i < *field->count; i++)
            if (strcmp(made[i], name) == 0)
                return FAIL(&entry, "expected each name once, got %s twice",
                            qd_show_string(name).text);
        if (copy(field, name, &made[*field->count]) != QD_OK)
            return field->reader->error->status;
        ++*field->count;
    }
    return QD_OK;
}

/* ---- The configuration -------------------------------------------------------------------- */

static enum qd_status read_transaction(const struct field *field)
{
    static const struct key keys[] = {{.name = "decoupled", .read = refuse_true}, {.name = NULL}};
    return read_object(field, keys);
}

/* The fields of Triton's ModelConfig, and two of our own: inputs and outputs. */
static const struct key config_keys[] = {
    {.name = "name", .read = read_name},
    {.name = "platform", .read = read_one_of, .names = platforms},
    {.name = "backend", .read = read_one_of, .names = backends},
    {.name = "runtime", .read = refuse_filled},
    {.name = "version_policy", .read = read_policy, .in_text = true},
    {.name = "max_batch_size", .read = read_at_least, .in_text = true, .offset = AT(batch_max)},
    {.name = "input", .read = read_ports, .in_text = true, LIST(inputs, input_count)},
    {.name = "output", .read = read_ports, .in_text = true, LIST(outputs, output_count)},
    {.name = "inputs", .read = read_names, LIST(cut.inputs, cut.input_count)},
    {.name = "outputs", .read = read_names, LIST(cut.outputs, cut.output_count)},
    {.name = "batch_input", .read = refuse_filled},
    {.name = "batch_output", .read = refuse_filled},
    {.name = "optimization", .read = ignore},
    {.name = "dynamic_batching", .read = ignore}, /* does not change answers */
    {.name = "sequence_batching", .read = refuse},
    {.name = "ensemble_scheduling", .read = refuse},
    {.name = "instance_group", .read = read_instances},
    {.name = "default_model_filename",
     .read = read_file_name,
     .in_text = true,
     .offset = AT(file_name)},
    {.name = "cc_model_filenames", .read = refuse_filled},
    {.name = "metric_tags", .read = ignore},
    {.name = "parameters", .read = ignore},
    {.name = "model_warmup", .read = ignore},
    {.name = "model_operations", .read = refuse_filled},
    {.name = "model_transaction_policy", .read = read_transaction},
    {.name = "model_repository_agents", .read = refuse_filled},
    {.name = "response_cache", .read = ignore},
    {.name = "model_metrics", .read = ignore},
    {.name = NULL},
};
_Static_assert(sizeof(config_keys) / sizeof(*config_keys) <= KEY_COUNT_MAX, "one bit for each");

void qd_model_config_init(struct qd_model_config *config)
{
    *config = (struct qd_model_config){.policy = QD_POLICY_LATEST, .latest_count = 1};
}

enum qd_status qd_model_config_read(const char *text, size_t bytes, bool is_json,
                                    const char *source, const char *name, struct qd_arena *arena,
                                    struct qd_model_config *config, struct qd_error *error)
{
    static const char *const repeated[] = {"input", "output", "dims", "versions", NULL};
    char ignored[IGNORED_BYTES] = "";
    const struct reader reader = {source, name, arena, error, is_json ? NULL : ignored};
    struct field whole = {.reader = &reader, .path = "", .target = config};
    qd_model_config_init(config);
    enum qd_status status =
        is_json ? qd_json_read(text, bytes, arena, &whole.value, error)
                : qd_prototext_read(text, bytes, repeated, arena, &whole.value, error);
    if (status != QD_OK) {
        const struct qd_error inner = *error;
        return qd_fail(error, status, "%s: %.400s", source, inner.text);
    }
    status = read_object(&whole, config_keys);
    if (status == QD_OK && *ignored != '\0')
        qd_log(QD_LOG_WARN, "config.pbtxt: these keys have no effect", "model=\"%s\" keys=\"%s\"",
               name, ignored);
    return status;
}

/* ---- Versions ----------------------------------------------------------------------------- */

static bool is_in(const uint64_t *versions, size_t count, uint64_t version)
{
    for (size_t i = 0; i < count; i++)
        if (versions[i] == version)
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
        return is_in(config->versions, config->version_count, versions[index]);
    default:
        return true;
    }
}

uint64_t qd_model_config_misses(const struct qd_model_config *config, const uint64_t *versions,
                                size_t version_count)
{
    for (size_t i = 0; config->policy == QD_POLICY_SPECIFIC && i < config->version_count; i++)
        if (!is_in(versions, version_count, config->versions[i]))
            return config->versions[i];
    return 0;
}

const char *qd_model_config_print_policy(const struct qd_model_config *config,
                                         struct qd_arena *arena)
{
    enum { FRAME_BYTES = 64, NUMBER_BYTES = 24 };
    const size_t count = config->policy == QD_POLICY_SPECIFIC ? config->version_count : 0;
    const size_t size = FRAME_BYTES + count * NUMBER_BYTES;
    char *text = qd_arena_alloc(arena, size);
    size_t used = 0;
    if (text == NULL)
        return NULL;
    if (config->policy == QD_POLICY_ALL)
        snprintf(text, size, "{\"all\":{}}");
    else if (config->policy == QD_POLICY_LATEST)
        snprintf(text, size, "{\"latest\":{\"num_versions\":%" PRIu64 "}}", config->latest_count);
    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRIu64 "%s",
                                 i == 0 ? "{\"specific\":{\"versions\":[" : ",",
                                 config->versions[i], i + 1 == count ? "]}}" : "");
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
    qd_print_integers(port->dims, port->rank, shape, sizeof(shape));
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
        qd_print_integers(ports[i].dims, ports[i].rank, shape, sizeof(shape));
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
