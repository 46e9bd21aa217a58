/* The small tree of an envelope's JSON, by cJSON, behind the questions that the decoder asks.
 * Strings live as long as the tree. */
#ifndef SERVER_JSON_TREE_H
#define SERVER_JSON_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/status.h"

struct cJSON;

/* text: an envelope's, so valid JSON. NULL: malloc failed. Free it with qd_json_free. */
struct cJSON *qd_json_parse(const char *text, size_t bytes);
void qd_json_free(struct cJSON *tree);

bool qd_json_is_null(const struct cJSON *value);
bool qd_json_is_array(const struct cJSON *value);
bool qd_json_is_object(const struct cJSON *value);
const char *qd_json_string(const struct cJSON *value);    /* NULL: not a string */
bool qd_json_bool(const struct cJSON *value, bool *flag); /* false: not a boolean */

/* A number without fraction, up to 2^53, where doubles tell neighbours apart. false: it is not. */
bool qd_json_whole(const struct cJSON *value, int64_t *number);

/* The members of an array or object; NULL: none, or no more. */
const struct cJSON *qd_json_first(const struct cJSON *container);
const struct cJSON *qd_json_next(const struct cJSON *value);
const char *qd_json_key(const struct cJSON *value); /* of an object's member */

/* The member `key` of `object`: NULL when absent or null. Twice is an error, because readers differ
 * on which one counts. `path` ("inputs[0].") stands before the key in the error. */
enum qd_status qd_json_field(const struct cJSON *object, const char *path, const char *key,
                             const struct cJSON **value, struct qd_error *error);

/* "outputs[0].parameters." */
struct qd_json_path {
    char text[96];
};
struct qd_json_path qd_json_path(const char *array, size_t position, const char *tail);

/* A client's value or text for an error text: on one line, and not long. */
struct qd_shown {
    char text[64];
};
struct qd_shown qd_json_show(const struct cJSON *value);
struct qd_shown qd_show_string(const char *string);             /* with quotes */
struct qd_shown qd_show_bytes(const char *bytes, size_t count); /* the same, NULs and all */

#endif
