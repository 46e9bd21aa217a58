#include "server/work/request.h"

#include <string.h>

#include "server/memory/text.h"

static const char more[] = " ...";

void qd_log_record_copy(char *to, size_t bytes, const char *from)
{
    const size_t count = strnlen(from, bytes - 1);
    memcpy(to, from, count);
    to[count] = '\0';
}

static void put_input(struct qd_text *text, const char *name, const struct qk_tensor *tensor)
{
    qd_text_string(text, text->bytes > 0 ? " " : "");
    qd_text_string(text, name);
    qd_text_string(text, ":");
    qd_text_string(text, qk_type_info(tensor->type)->name);
    qd_text_string(text, "[");
    for (uint32_t i = 0; i < tensor->rank; i++) {
        qd_text_string(text, i > 0 ? "," : "");
        qd_text_decimal(text, tensor->dims[i]);
    }
    qd_text_string(text, "]");
}

void qd_log_record_note_call(struct qd_log_record *record, const struct qd_oip_asked *asked)
{
    if (asked->id != NULL)
        qd_log_record_copy(record->id, sizeof(record->id), asked->id);
    if (asked->signature == NULL || asked->inputs == NULL)
        return;
    struct qd_text text;
    size_t count = 0; /* of the inputs that fit */
    qd_text_init_in(&text, record->inputs, sizeof(record->inputs) - sizeof(more));
    for (size_t i = 0; i < asked->signature->input_count && !text.failed; i++) {
        if (asked->inputs[i].type != QK_NONE)
            put_input(&text, asked->signature->inputs[i].name, &asked->inputs[i]);
        count = text.failed ? count : text.bytes;
    }
    strcpy(record->inputs + count, text.failed ? more : "");
}
