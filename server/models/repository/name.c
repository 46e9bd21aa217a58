#include "server/models/repository/name.h"

#include <string.h>

#include "kernels/qk.h"
#include "server/json/tree.h"
#include "server/memory/text.h"

static bool begins_as_operator(const char *name)
{
    size_t count;
    const struct qk_operator *const *ops = qk_operators(&count);
    for (size_t i = 0; i < count; i++) {
        const char *dot = strchr(ops[i]->name, '.');
        if (dot != NULL && strncmp(name, ops[i]->name, (size_t)(dot - ops[i]->name) + 1) == 0)
            return true;
    }
    return false;
}

enum qd_status qd_model_check_name(const char *name, struct qd_error *error)
{
    const size_t bytes = strlen(name);
    bool valid = bytes > 0 && bytes <= QD_MODEL_NAME_BYTES_MAX && strcmp(name, ".") != 0 &&
                 strcmp(name, "..") != 0 && strpbrk(name, "\"\\/") == NULL;
    for (size_t at = 0; at < bytes && valid;) {
        const size_t length = qd_utf8_length(name + at, bytes - at);
        valid = length > 0 && !qd_is_control(qd_utf8_decode(name + at, length));
        at += length;
    }
    if (!valid) {
        return qd_fail(error, QD_INVALID,
                       "the model's name: expected 1 to %d bytes of UTF-8 without slashes, "
                       "backslashes, quotes and control characters, got %s",
                       QD_MODEL_NAME_BYTES_MAX, qd_show_string(name).text);
    }
    if (strcmp(name, "stats") == 0) {
        return qd_fail(error, QD_INVALID,
                       "the model's name: expected another than \"stats\", which the path of all "
                       "models' statistics has");
    }
    if (begins_as_operator(name)) {
        return qd_fail(error, QD_INVALID,
                       "the model's name: expected one that does not begin as those of the "
                       "operators do, got %s",
                       qd_show_string(name).text);
    }
    return QD_OK;
}
