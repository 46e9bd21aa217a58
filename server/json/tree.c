#include "server/json/tree.h"

#include <assert.h>
#include <stdio.h>

#include "server/json/number.h"
#include "server/memory/text.h"

bool qd_json_bool(const struct qd_json_value *value, bool *flag)
{
    *flag = value->kind == QD_JSON_TRUE;
    return *flag || value->kind == QD_JSON_FALSE;
}

static bool read_number(const struct qd_json_value *value, struct qd_json_number *number)
{
    return value->kind == QD_JSON_NUMBER &&
           qd_json_number_scan(value->text, value->text + value->bytes, number) != NULL;
}

#define WHOLE_END (UINT64_C(1) << 53)

static bool read_any_whole(const struct qd_json_value *value, int64_t *whole)
{
    struct qd_json_number number;
    if (!read_number(value, &number) || number.more)
        return false;
    uint64_t magnitude = number.mantissa;
    int64_t exponent = magnitude == 0 ? 0 : number.exponent;
    for (; exponent < 0 && magnitude % 10 == 0; exponent++)
        magnitude /= 10;
    for (; exponent > 0 && magnitude < WHOLE_END; exponent--)
        magnitude *= 10;
    if (exponent != 0 || magnitude >= WHOLE_END)
        return false;
    *whole = number.negative ? -(int64_t)magnitude : (int64_t)magnitude;
    return true;
}

bool qd_json_whole(const struct qd_json_value *value, int64_t *whole)
{
    const char *end = value->text + value->bytes;
    uint64_t digits;
    if (value->kind != QD_JSON_NUMBER || qd_json_digits_read(value->text, end, &digits) != end)
        return read_any_whole(value, whole);
    *whole = (int64_t)digits;
    return digits < WHOLE_END;
}

bool qd_json_int64(const struct qd_json_value *value, int64_t *whole)
{
    struct qd_json_number number;
    return (read_number(value, &number) && qd_json_number_to_int64(&number, whole)) ||
           qd_json_whole(value, whole);
}

bool qd_json_uint64(const struct qd_json_value *value, uint64_t *whole)
{
    struct qd_json_number number;
    if (read_number(value, &number) && qd_json_number_to_uint64(&number, whole))
        return true;
    int64_t small;
    if (!qd_json_whole(value, &small) || small < 0)
        return false;
    *whole = (uint64_t)small;
    return true;
}

static enum qd_status refuse(const struct qd_json_path *path, const char *key, const char *what,
                             const char *got, struct qd_error *error)
{
    const char *tail = path == NULL ? "" : path->tail;
    if (path != NULL && path->array != NULL)
        return qd_fail(error, QD_INVALID, "%s[%zu]%s%s: expected %s, got %s", path->array,
                       path->position, tail, key, what, got);
    return qd_fail(error, QD_INVALID, "%s%s: expected %s, got %s", tail, key, what, got);
}

enum qd_status qd_json_expected(const struct qd_json_path *path, const char *key, const char *what,
                                const struct qd_json_value *value, struct qd_error *error)
{
    return refuse(path, key, what, qd_json_show(value).text, error);
}

/* Returns the index of the key's name, or `count` if the key has none of these names. */
static size_t find_name(const char *key, const struct qd_json_name *names, size_t count)
{
    size_t i = 0;
    while (i < count && !qd_json_key_is(key, &names[i]))
        i++;
    return i;
}

enum qd_status qd_json_fields(const struct qd_json_value *object, const struct qd_json_path *path,
                              const struct qd_json_name *names, size_t count,
                              const struct qd_json_value **values, struct qd_error *error)
{
    bool has_null = false;
    size_t next = 0;
    for (size_t i = 0; i < count; i++)
        values[i] = NULL;
    for (const struct qd_json_value *member = object->first; member != NULL;
         member = member->next) {
        /* Members usually come in the order of the names. */
        size_t i = next;
        if (i == count || !qd_json_key_is(member->key, &names[i]))
            i = find_name(member->key, names, count);
        if (i == count)
            continue;
        next = i + 1;
        if (values[i] != NULL)
            return refuse(path, names[i].text, "once", "twice", error);
        values[i] = member;
        has_null |= member->kind == QD_JSON_NULL;
    }
    for (size_t i = 0; has_null && i < count; i++)
        if (values[i] != NULL && values[i]->kind == QD_JSON_NULL)
            values[i] = NULL;
    return QD_OK;
}

enum qd_status qd_json_field(const struct qd_json_value *object, const struct qd_json_path *path,
                             const char *key, const struct qd_json_value **value,
                             struct qd_error *error)
{
    struct qd_json_name name = {""};
    assert(strlen(key) < sizeof(name.text));
    strcpy(name.text, key);
    return qd_json_fields(object, path, &name, 1, value, error);
}

/* Returns false if the value is something else. NULL is nothing. */
static bool take_member(const struct qd_json_member *member, const struct qd_json_value *value)
{
    int64_t number;
    if (value == NULL)
        return false;
    switch (member->takes % QD_JSON_NEEDED) {
    case QD_JSON_TAKES_BOOL:
        return qd_json_bool(value, member->to);
    case QD_JSON_TAKES_COUNT:
    case QD_JSON_TAKES_POSITIVE:
        if (!qd_json_whole(value, &number) ||
            number < (member->takes % QD_JSON_NEEDED == QD_JSON_TAKES_POSITIVE))
            return false;
        *(uint64_t *)member->to = (uint64_t)number;
        return true;
    case QD_JSON_TAKES_STRING:
        *(const char **)member->to = qd_json_string(value);
        return qd_json_string(value) != NULL;
    default:
        *(const struct qd_json_value **)member->to = value;
        return member->takes % QD_JSON_NEEDED == QD_JSON_TAKES_ANY || qd_json_is_object(value);
    }
}

enum qd_status qd_json_read_members(const struct qd_json_value *object,
                                    const struct qd_json_path *path,
                                    const struct qd_json_member *members, size_t count,
                                    struct qd_error *error)
{
    static const char *const wanted[] = {"true or false",
                                         "an integer in [0, 2^53)",
                                         "an integer in [1, 2^53)",
                                         "a string",
                                         "an object",
                                         "a value"};
    enum qd_status status = QD_OK;
    for (size_t i = 0; i < count && status == QD_OK; i++) {
        const unsigned takes = members[i].takes;
        const struct qd_json_value *value;
        status = qd_json_field(object, path, members[i].key, &value, error);
        if (status == QD_OK && (value != NULL || takes >= QD_JSON_NEEDED) &&
            !take_member(&members[i], value))
            status = qd_json_expected(path, members[i].key, wanted[takes % QD_JSON_NEEDED], value,
                                      error);
    }
    return status;
}

/* Shows bytes with `quote` before and behind them. It may be "". */
static struct qd_shown show(const char *bytes, size_t count, const char *quote)
{
    enum { KEPT = sizeof(struct qd_shown) - sizeof("\"...\"") };
    struct qd_shown shown;
    size_t used = strlen(quote);
    memcpy(shown.text, quote, used);
    for (size_t at = 0; at < count;) {
        const size_t length = qd_utf8_length(bytes + at, count - at);
        const bool plain = length > 0 && !qd_is_control(qd_utf8_decode(bytes + at, length));
        const size_t room = plain ? length : 1;
        if (used + room > KEPT) {
            memcpy(shown.text + used, "...", 3);
            used += 3;
            break;
        }
        memcpy(shown.text + used, plain ? bytes + at : "?", room);
        used += room;
        at += length == 0 ? 1 : length;
    }
    memcpy(shown.text + used, quote, strlen(quote) + 1);
    return shown;
}

struct qd_shown qd_show_bytes(const char *bytes, size_t count)
{
    return show(bytes, count, "\"");
}

struct qd_shown qd_show_string(const char *string)
{
    return show(string, strlen(string), "\"");
}

struct qd_shown qd_show_name(const char *name)
{
    return show(name, strlen(name), "");
}

struct qd_shown qd_json_show(const struct qd_json_value *value)
{
    enum { KEPT = 40 };
    static const char *const words[] = {"null", "false",    "true",      "",
                                        "",     "an array", "an object", "data"};
    struct qd_shown shown = {"none"};
    if (value == NULL)
        return shown;
    if (value->kind == QD_JSON_STRING)
        return qd_show_string(value->text);
    if (value->kind == QD_JSON_NUMBER)
        snprintf(shown.text, sizeof(shown.text), "%.*s%s",
                 (int)(value->bytes < KEPT ? value->bytes : KEPT), value->text,
                 value->bytes > KEPT ? "..." : "");
    else
        snprintf(shown.text, sizeof(shown.text), "%s", words[value->kind]);
    return shown;
}
