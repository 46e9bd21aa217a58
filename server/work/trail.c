#include "server/work/trail.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MORE_BYTES = sizeof(" ...") };

struct qd_trail *qd_trail_create(void)
{
    struct qd_trail *trail = malloc(sizeof(*trail));
    if (trail != NULL) {
        trail->method[0] = trail->path[0] = trail->id[0] = trail->inputs[0] = '\0';
        trail->tracestate = NULL;
    }
    return trail;
}

void qd_trail_destroy(struct qd_trail *trail)
{
    if (trail != NULL)
        free(trail->tracestate);
    free(trail);
}

void qd_trail_copy(char *to, size_t bytes, const char *from)
{
    const size_t count = strnlen(from, bytes - 1);
    memcpy(to, from, count);
    to[count] = '\0';
}

/* A text with a bound; once something did not fit, nothing more does. */
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

void qd_trail_note_call(struct qd_trail *trail, const struct qd_oip_asked *asked)
{
    if (asked->id != NULL)
        qd_trail_copy(trail->id, sizeof(trail->id), asked->id);
    if (asked->signature == NULL || asked->inputs == NULL)
        return;
    struct list list = {trail->inputs, 0, sizeof(trail->inputs) - MORE_BYTES, false};
    for (size_t i = 0; i < asked->signature->input_count && !list.full; i++)
        if (asked->inputs[i].type != QK_NONE)
            put_input(&list, asked->signature->inputs[i].name, &asked->inputs[i]);
    if (list.full) {
        memcpy(list.bytes + list.count, " ...", MORE_BYTES - 1);
        list.count += MORE_BYTES - 1;
    }
    trail->inputs[list.count] = '\0';
}
