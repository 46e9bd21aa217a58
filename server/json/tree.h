/* The tree that the reader (reader.h) makes of a JSON text, and functions that read values from it.
 */
#pragma once

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
    QD_JSON_DATA, /* a tensor's numbers or a model's file, as text that is converted later
                     (reader.h) */
};

/* A position in data, after a comma, at which a thread may begin to convert. The number of commas
 * before it is a multiple of QD_JSON_MARK_ELEMENTS, so that elements smaller than a byte never
 * share a byte with another piece. */
struct qd_json_mark {
    const char *at;
    size_t commas; /* in the data before the mark */
};
#define QD_JSON_MARK_ELEMENTS 8

struct qd_json_data {
    size_t commas;     /* commas outside strings */
    size_t mark_first; /* index among the reader's marks */
    size_t mark_count;
};

struct qd_json_value {
    enum qd_json_kind kind;
    const char *key; /* the key of an object's member, padded with NULs to a multiple of 8;
                        otherwise NULL */
    const struct qd_json_value
        *next; /* the next value of the same array or object; NULL for the last */
    union {
        const struct qd_json_value
            *first; /* the first value of an array or object; NULL if it is empty */
        const struct qd_json_data *data; /* of a QD_JSON_DATA */
    };
    const char *text; /* a decoded string with a NUL; or a number or data as it is written */
    size_t bytes;     /* the length of `text` */
};

/* A key to compare with, padded with NULs. */
struct qd_json_name {
    char text[24];
};

/* Compares eight bytes at a time: keys are short, and most differ in the first eight. */
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

/* Returns the text, or NULL if the value is not a string. */
static inline const char *qd_json_string(const struct qd_json_value *value)
{
    return value->kind == QD_JSON_STRING ? value->text : NULL;
}

bool qd_json_bool(const struct qd_json_value *value,
                  bool *flag); /* returns false if the value is not a boolean */

/* Reads a whole number whose magnitude is below 2^53, such as 100, 1e2 or 100.0. Many clients use
 * doubles, which are exact in this range. Returns false if the value is not such a number. */
bool qd_json_whole(const struct qd_json_value *value, int64_t *number);

/* Like qd_json_whole, but also takes any int64 or uint64 that is written as an integer. */
bool qd_json_int64(const struct qd_json_value *value, int64_t *number);
bool qd_json_uint64(const struct qd_json_value *value, uint64_t *number);

/* The path that an error prints before a key: "outputs[0].parameters." or "parameters.". */
struct qd_json_path {
    const char *array; /* NULL if the path is only the tail */
    size_t position;
    const char *tail;
};

/* Finds the members of `object` with these names. A member that is absent or null becomes NULL. A
 * member that is there twice is an error, because parsers differ on which one counts. Other members
 * are ignored. `path` is NULL if the object is the whole text. */
enum qd_status qd_json_fields(const struct qd_json_value *object, const struct qd_json_path *path,
                              const struct qd_json_name *names, size_t count,
                              const struct qd_json_value **values, struct qd_error *error);

/* Like qd_json_fields, for one key of at most 23 bytes. */
enum qd_status qd_json_field(const struct qd_json_value *object, const struct qd_json_path *path,
                             const char *key, const struct qd_json_value **value,
                             struct qd_error *error);

/* Fails with "PATH KEY: expected WHAT, got VALUE". */
enum qd_status qd_json_expected(const struct qd_json_path *path, const char *key, const char *what,
                                const struct qd_json_value *value, struct qd_error *error);

/* What a member of an object has to be, and the type of the variable that takes it. */
enum qd_json_takes {
    QD_JSON_TAKES_BOOL,     /* bool */
    QD_JSON_TAKES_COUNT,    /* uint64_t: an integer in [0, 2^53) */
    QD_JSON_TAKES_POSITIVE, /* likewise, in [1, 2^53) */
    QD_JSON_TAKES_STRING,   /* const char * */
    QD_JSON_TAKES_OBJECT,   /* const struct qd_json_value * */
    QD_JSON_TAKES_ANY,      /* likewise */
    QD_JSON_NEEDED = 8,     /* added to one of these: the member must be there */
};

struct qd_json_member {
    const char *key;
    unsigned takes; /* an enum qd_json_takes */
    void *to;       /* keeps its value if the member is absent or null */
};

/* Reads members of an object, each as qd_json_field finds it. Refuses a member that is something
 * else. */
enum qd_status qd_json_read_members(const struct qd_json_value *object,
                                    const struct qd_json_path *path,
                                    const struct qd_json_member *members, size_t count,
                                    struct qd_error *error);

/* A client's value or text as it is printed in an error: on one line, and cut if it is long. */
struct qd_shown {
    char text[64];
};
struct qd_shown qd_json_show(const struct qd_json_value *value); /* NULL gives "none" */
struct qd_shown qd_show_string(const char *string);              /* in quotes */
struct qd_shown qd_show_bytes(const char *bytes, size_t count);  /* in quotes; may contain NULs */
struct qd_shown qd_show_name(const char *name); /* without quotes, for "parameters.NAME: ..." */
