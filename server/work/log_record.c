#include "server/work/log_record.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MORE_BYTES = sizeof(" ...") };

struct qd_log_record *qd_log_record_create(void)
{
    struct qd_log_record *record = malloc(sizeof(*record));
    if (record != NULL) {
        record->method[0] = record->path[0] = record->id[0] = record->inputs[0] = '\0';
        record->tracestate = NULL;
    }
    return record;
}

void qd_log_record_destroy(struct qd_log_record *record)
{
    if (record != NULL)
        free(record->tracestate);
    free(record);
}

void qd_log_record_copy(char *to, size_t bytes, const char *from)
{
    const size_t count = strnlen(from, bytes - 1);
    memcpy(to, from, count);
    to[count] = '\0';
}

/* A text with a bound. After something did not fit, nothing is added any more. */
struct list {
    char *bytes;
    size_t count;
    size_t room;
    bool full;
};

static void put(struct list *list, const char *bytes, size_t count)
{
    list->full |= count > list->room - list->count;
    if (!list->full) {
        memcpy(list->bytes + list->count, bytes, count);
        list->count += count;
    }
}

static void put_number(struct list *list, size_t number)
{
    char digits[20];
    size_t at = sizeof(digits);
    do
        digits[--at] = (char)('0' + number % 10);
    while ((number /= 10) != 0);
    put(list, digits + at, sizeof(digits) - at);
}

static void put_input(struct list *list, const char *name, const struct qk_tensor *tensor)
{
    const char *type = qk_type_info(tensor->type)->name;
    const size_t before = list->count;
    put(list, " ", before > 0);
    put(list, name, strlen(name));
    put(list, ":", 1);
    put(list, type, strlen(type));
    put(list, "[", 1);
    for (uint32_t i = 0; i < tensor->rank; i++) {
        put(list, ",", i > 0);
        put_number(list, tensor->dims[i]);
    }
    put(list, "]", 1);
    if (list->full)
        list->count = before;
}

void qd_log_record_note_call(struct qd_log_record *record, const struct qd_oip_asked *asked)
{
    if (asked->id != NULL)
        qd_log_record_copy(record->id, sizeof(record->id), asked->id);
    if (asked->signature == NULL || asked->inputs == NULL)
        return;
    struct list list = {record->inputs, 0, sizeof(record->inputs) - MORE_BYTES, false};
    for (size_t i = 0; i < asked->signature->input_count && !list.full; i++)
        if (asked->inputs[i].type != QK_NONE)
            put_input(&list, asked->signature->inputs[i].name, &asked->inputs[i]);
    if (list.full) {
        memcpy(list.bytes + list.count, " ...", MORE_BYTES - 1);
        list.count += MORE_BYTES - 1;
    }
    record->inputs[list.count] = '\0';
}
