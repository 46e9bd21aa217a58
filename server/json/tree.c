#include "server/json/tree.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "server/base/text.h"

struct cJSON *qd_json_parse(const char *text, size_t bytes)
{
    return cJSON_ParseWithLength(text, bytes);
}

void qd_json_free(struct cJSON *tree)
{
    cJSON_Delete(tree);
}

bool qd_json_is_null(const struct cJSON *value)
{
    return cJSON_IsNull(value);
}

bool qd_json_is_array(const struct cJSON *value)
{
    return cJSON_IsArray(value);
}

bool qd_json_is_object(const struct cJSON *value)
{
    return cJSON_IsObject(value);
}

const char *qd_json_string(const struct cJSON *value)
{
    return cJSON_IsString(value) ? value->valuestring : NULL;
}

bool qd_json_bool(const struct cJSON *value, bool *flag)
{
    *flag = cJSON_IsTrue(value);
    return cJSON_IsBool(value);
}

bool qd_json_whole(const struct cJSON *value, int64_t *number)
{
    const double exact_end = 9007199254740992.0; /* 2^53: 2^53 + 1 would look the same */
    if (!cJSON_IsNumber(value) || fabs(value->valuedouble) >= exact_end ||
        floor(value->valuedouble) < value->valuedouble)
        return false;
    *number = (int64_t)value->valuedouble;
    return true;
}

const struct cJSON *qd_json_first(const struct cJSON *container)
{
    return container->child;
}

const struct cJSON *qd_json_next(const struct cJSON *value)
{
    return value->next;
}

const char *qd_json_key(const struct cJSON *value)
{
    return value->string;
}

enum qd_status qd_json_field(const struct cJSON *object, const char *path, const char *key,
                             const struct cJSON **value, struct qd_error *error)
{
    const struct cJSON *found = NULL;
    for (const struct cJSON *member = object->child; member != NULL; member = member->next) {
        if (strcmp(member->string, key) != 0)
            continue;
        if (found != NULL)
            return qd_fail(error, QD_INVALID, "%s%s: expected once, got twice", path, key);
        found = member;
    }
    *value = found == NULL || cJSON_IsNull(found) ? NULL : found;
    return QD_OK;
}

struct qd_json_path qd_json_path(const char *array, size_t position, const char *tail)
{
    struct qd_json_path path;
    snprintf(path.text, sizeof(path.text), "%s[%zu]%s", array, position, tail);
    return path;
}

struct qd_shown qd_show_string(const char *string)
{
    return qd_show_bytes(string, strlen(string));
}

struct qd_shown qd_show_bytes(const char *bytes, size_t count)
{
    enum { KEPT = sizeof(struct qd_shown) - sizeof("\"...\"") };
    struct qd_shown shown;
    size_t used = 0;
    shown.text[used++] = '"';
    for (size_t at = 0; at < count;) {
        size_t length = qd_utf8_length(bytes + at, count - at);
        bool plain = length > 1 || (length == 1 && bytes[at] >= ' ' && bytes[at] != 0x7f);
        length = length == 0 ? 1 : length;
        if (used + length > KEPT) {
            memcpy(shown.text + used, "...", 3);
            used += 3;
            break;
        }
        memcpy(shown.text + used, plain ? bytes + at : "?", plain ? length : 1);
        used += length;
        at += length;
    }
    memcpy(shown.text + used, "\"", 2);
    return shown;
}

struct qd_shown qd_json_show(const struct cJSON *value)
{
    struct qd_shown shown;
    if (cJSON_IsString(value))
        return qd_show_string(value->valuestring);
    if (cJSON_IsNumber(value)) {
        snprintf(shown.text, sizeof(shown.text), "%.17g", value->valuedouble);
        return shown;
    }
    const char *what = cJSON_IsArray(value)    ? "an array"
                       : cJSON_IsObject(value) ? "an object"
                       : cJSON_IsTrue(value)   ? "true"
                       : cJSON_IsFalse(value)  ? "false"
                                               : "null";
    snprintf(shown.text, sizeof(shown.text), "%s", what);
    return shown;
}
