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

/* The numbers of the versions, and how others stand to them. */
static void list_versions(const struct qk_operator *op, char *text, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < op->version_count && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%u", i == 0 ? "" : ", ",
                                 op->versions[i].number);
    if (op->numbers == NULL && used < size)
        snprintf(text + used, size - used,
                 ", and those up to %u mean the newest one not above them", op->version_last);
    for (size_t i = 0; i < op->number_count && used < size; i++)
        used += (size_t)snprintf(
            text + used, size - used, "%s%u",
            i == 0 ? "; each of these means the newest one not above it: " : ", ", op->numbers[i]);
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
        return qd_fail(error, QD_NOT_FOUND, "unknown version %s of model %s; the versions are %s",
                       qd_show_string(version).text, (*op)->name, known);
    }
    return QD_OK;
}

enum qd_status qd_oip_refuse_type(const struct qk_call *call, size_t input, const char *field,
                                  const char *got, struct qd_error *error)
{
    char known[LIST_BYTES];
    size_t used = 0;
    uint32_t types = call->version->inputs[input].types;
    for (enum qk_type type = QK_NONE + 1; type < QK_TYPE_COUNT && used < sizeof(known); type++)
        if ((types & QK_BIT(type)) != 0)
            used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s",
                                     used == 0 ? "" : ", ", qk_type_info(type)->name);
    return qd_fail(error, QD_INVALID, "%s: version %u of %s takes %s, got %s", field,
                   call->version->number, call->op->name, known, got);
}
