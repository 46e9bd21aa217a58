/* A JSON text as a tree: what the reader (reader.h) makes, and the questions that decoders ask. */
#ifndef SERVER_JSON_TREE_H
#define SERVER_JSON_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "server/base/status.h"

enum qd_json_kind {
    QD_JSON_NULL,
    QD_JSON_FALSE,
    QD_JSON_TRUE,
    QD_JSON_NUMBER,
    QD_JSON_STRING,
    QD_JSON_ARRAY,
    QD_JSON_OBJECT,
    QD_JSON_DATA, /* not looked into */
};

/* A place in data where its conversion may begin: behind a comma. Their number is a multiple of
 * this, so that elements of less than a byte do not share one with those of another piece. */
struct qd_json_mark {
    const char *at;
    size_t commas; /* in the data before it */
};
#define QD_JSON_MARK_ELEMENTS 8

struct qd_json_data {
    size_t commas;     /* outside strings */
    size_t mark_first; /* among the reader's marks */
    size_t mark_count;
};

struct qd_json_value {
    enum qd_json_kind kind;
    const char *key; /* of an object's member, NULs behind it up to a multiple of 8; else NULL */
    const struct qd_json_value *next; /* in the array or object that it is in; NULL: the last */
    union {
        const struct qd_json_value *first; /* in an array or object; NULL: it is empty */
        const struct qd_json_data *data;   /* of data */
    };
    const char *text; /* a string, which a NUL ends; a number or data, as the JSON writes it */
    size_t bytes;     /* of it */
};

/* A key that is looked for, with NULs up to the end. */
struct qd_json_name {
    char text[24];
};

/* In words of eight bytes: keys are short, and most differ in the first one. */
static inline bool qd_json_key_is(const char *key, const struct qd_json_name *name)
{
    for (size_t i = 0; i < sizeof(name->text); i += 8) {
        if (memcmp(key + i, name->text + i, 8) != 0)
            return false;
        if (name->text[i + 7] == '\0')
            return true;
    }
    return false;
}

static inline bool qd_json_is_array(const struct qd_json_value *value)
{
    return value->kind == QD_JSON_ARRAY;
}

static inline bool qd_json_is_object(const struct qd_json_value *value)
{
    return value->kind == QD_JSON_OBJECT;
}

/* NULL: not a string */
static inline const char *qd_json_string(const struct qd_json_value *value)
{
    return value->kind == QD_JSON_STRING ? value->text : NULL;
}

bool qd_json_bool(const struct qd_json_value *value, bool *flag); /* false: not a boolean */

/* A number without fraction, up to 2^53, where doubles, with which many clients count, tell
 * neighbours apart. false: it is not. */
bool qd_json_whole(const struct qd_json_value *value, int64_t *number);

/* The same, or any int64, any uint64, that is written as an integer. */
bool qd_json_int64(const struct qd_json_value *value, int64_t *number);
bool qd_json_uint64(const struct qd_json_value *value, uint64_t *number);

/* What comes before a key in an error: "outputs[0].parameters.", or "parameters.". */
struct qd_json_path {
    const char *array; /* NULL: only the tail */
    size_t position;
    const char *tail;
};

/* The members of `object` that have these names: each NULL when absent or null. Twice is an error,
 * because readers differ on which one counts. Other members are nobody's. path NULL: the object is
 * the whole text. */
enum qd_status qd_json_fields(const struct qd_json_value *object, const struct qd_json_path *path,
                              const struct qd_json_name *names, size_t count,
                              const struct qd_json_value **values, struct qd_error *error);

/* The same of one, which may be of any length. */
enum qd_status qd_json_field(const struct qd_json_value *object, const struct qd_json_path *path,
                             const char *key, const struct qd_json_value **value,
                             struct qd_error *error);

/* A client's value or text for an error text: on one line, and not long. */
struct qd_shown {
    char text[64];
};
struct qd_shown qd_json_show(const struct qd_json_value *value); /* NULL: "none" */
struct qd_shown qd_show_string(const char *string);              /* with quotes */
struct qd_shown qd_show_bytes(const char *bytes, size_t count);  /* the same, NULs and all */
struct qd_shown qd_show_name(const char *name); /* without quotes, in "parameters.NAME: ..." */

#endif
