#include <stdio.h>

#include "server/json_number.h"
#include "server/json_tree.h"
#include "server/oip_decode.h"

enum { LIST_BYTES = 320 };

static void list_models(char *text, size_t size)
{
    size_t count;
    size_t used = 0;
    const struct qk_operator *const *ops = qk_operators(&count);
    for (size_t i = 0; i < count && used < size; i++) {
        used +=
            (size_t)snprintf(text + used, size - used, "%s%s", i == 0 ? "" : ", ", ops[i]->name);
    }
}

static void list_versions(const struct qk_operator *op, char *text, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < op->version_count && used < size; i++) {
        used += (size_t)snprintf(text + used, size - used, "%s%u", i == 0 ? "" : ", ",
                                 op->versions[i].number);
    }
}

enum qd_status qd_oip_find_model(const char *model, const char *version,
                                 const struct qk_operator **op, const struct qk_version **row,
                                 struct qd_error *error)
{
    char known[LIST_BYTES];
    *op = qk_operator_by_name(model);
    if (*op == NULL) {
        list_models(known, sizeof(known));
        return qd_fail(error, QD_NOT_FOUND, "unknown model %s; the models are %s",
                       qd_show_string(model).text, known);
    }
    if (version == NULL) {
        *row = &(*op)->versions[(*op)->version_count - 1];
        return QD_OK;
    }
    uint64_t number;
    *row = qd_read_decimal(version, &number) ? qk_operator_version(*op, number) : NULL;
    if (*row == NULL) {
        list_versions(*op, known, sizeof(known));
        return qd_fail(error, QD_NOT_FOUND,
                       "unknown version %s of model %s; the versions are %s, and those up to %u "
                       "mean the newest one not above them",
                       qd_show_string(version).text, (*op)->name, known, (*op)->version_last);
    }
    return QD_OK;
}
