#include "server/http/wire/answer_head.h"

#include <string.h>
#include <time.h>

#include "server/memory/text.h"

/* Returns "Wed, 25 Nov 2026 23:48:26 GMT". Formats it again only when the second has changed. */
static const char *date_text(void)
{
    static _Thread_local time_t second;
    static _Thread_local char text[32];
    const time_t now = time(NULL);
    struct tm parts;
    if (now != second || text[0] == '\0') {
        second = now;
        gmtime_r(&now, &parts);
        strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &parts);
    }
    return text;
}

/* Puts a header, but none if the number is 0. */
static bool put_number(qd_put_header *put, void *context, const char *name, uint64_t number)
{
    char text[QD_DECIMAL_BYTES_MAX + 1];
    *qd_print_decimal(number, text) = '\0';
    return number == 0 || put(context, name, text);
}

/* Puts a header, but none if there is no text. */
static bool put_text(qd_put_header *put, void *context, const char *name, const char *text)
{
    return text == NULL || text[0] == '\0' || put(context, name, text);
}

bool qd_answer_put_headers(const struct qd_request *request, qd_put_header *put, void *context)
{
    const struct qd_answer *answer = &request->answer;
    bool fine = put(context, "Date", date_text()) &&
                put_text(put, context, "Connection", answer->close ? "close" : NULL) &&
                put_text(put, context, "Keep-Alive", answer->keep_alive) &&
                put_text(put, context, "Content-Type", answer->content_type) &&
                put_number(put, context, "Inference-Header-Content-Length", answer->json_bytes) &&
                put_text(put, context, "Allow", answer->allow) &&
                put_number(put, context, "Retry-After", answer->retry_after_s) &&
                put_text(put, context, "Content-Encoding", answer->coding) &&
                put_text(put, context, "Server-Timing", request->server_timing);
    for (size_t i = 0; i < request->header_count && fine; i++)
        fine = put(context, request->headers[i].name, request->headers[i].value);
    return fine;
}

/* ---- As text ------------------------------------------------------------------------------ */

struct room {
    char *at;
    char *end;
};

static void append(struct room *room, const char *text, size_t bytes)
{
    memcpy(room->at, text, bytes);
    room->at += bytes;
}

static bool print_header(void *context, const char *name, const char *value)
{
    struct room *room = context;
    const size_t name_bytes = strlen(name);
    const size_t value_bytes = strlen(value);
    const size_t left = (size_t)(room->end - room->at);
    if (name_bytes > left || value_bytes > left || name_bytes + value_bytes + 4 > left)
        return false;
    append(room, name, name_bytes);
    append(room, ": ", 2);
    append(room, value, value_bytes);
    append(room, "\r\n", 2);
    return true;
}

char *qd_answer_print_head(const struct qd_request *request, const char *reason, char *text)
{
    static const char version[] = "HTTP/1.1 ";
    static const char persistent[] = "Connection: Keep-Alive\r\n";
    const size_t reason_bytes = strnlen(reason, 80);
    struct room room = {text, text + QD_ANSWER_HEAD_BYTES - 2};
    char length[QD_DECIMAL_BYTES_MAX + 1];
    append(&room, version, sizeof(version) - 1);
    room.at = qd_print_decimal(request->answer.http_status, room.at);
    append(&room, " ", 1);
    append(&room, reason, reason_bytes);
    append(&room, "\r\n", 2);
    if (request->answer.keep_alive != NULL)
        append(&room, persistent, sizeof(persistent) - 1);
    *qd_print_decimal(request->answer.bytes, length) = '\0';
    if (!qd_answer_put_headers(request, print_header, &room) ||
        !print_header(&room, "Content-Length", length))
        return NULL;
    append(&room, "\r\n", 2);
    return room.at;
}
