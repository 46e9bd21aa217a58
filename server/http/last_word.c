#define _GNU_SOURCE
#include "server/http/last_word.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#include "server/http/tls.h"

enum { HEAD_BYTES = 2048, PARTS_MAX = 8 };

static size_t append(char text[HEAD_BYTES], size_t count, const char *name, const char *value)
{
    int more = snprintf(text + count, HEAD_BYTES - count, "%s: %s\r\n", name, value);
    return more > 0 && (size_t)more < HEAD_BYTES - count ? count + (size_t)more : count;
}

static size_t print_head(char text[HEAD_BYTES], const struct qd_request *request,
                         const char *reason)
{
    const struct qd_answer *answer = &request->answer;
    char value[64];
    struct tm parts;
    time_t now = time(NULL);
    gmtime_r(&now, &parts);
    size_t count =
        (size_t)snprintf(text, HEAD_BYTES, "HTTP/1.1 %u %.80s\r\n", answer->http_status, reason);
    strftime(value, sizeof(value), "%a, %d %b %Y %H:%M:%S GMT", &parts);
    count = append(text, count, "Date", value);
    count = append(text, count, "Connection", "close");
    count = append(text, count, "Content-Type", answer->content_type);
    snprintf(value, sizeof(value), "%zu", answer->bytes);
    count = append(text, count, "Content-Length", value);
    if (request->server_timing[0] != '\0')
        count = append(text, count, "Server-Timing", request->server_timing);
    if (answer->allow != NULL)
        count = append(text, count, "Allow", answer->allow);
    snprintf(value, sizeof(value), "%u", answer->retry_after_s);
    if (answer->retry_after_s > 0)
        count = append(text, count, "Retry-After", value);
    for (size_t i = 0; i < request->header_count; i++)
        count = append(text, count, request->headers[i].name, request->headers[i].value);
    memcpy(text + count, "\r\n", 2);
    return count + 2;
}

void qd_last_word_interim(int fd, void *session)
{
    static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";
    const size_t count = sizeof(interim) - 1;
    if (session != NULL)
        qd_tls_send(session, interim, count);
    else
        send(fd, interim, count, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static bool send_over_tls(void *session, const struct iovec *parts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!qd_tls_send(session, parts[i].iov_base, parts[i].iov_len))
            return false;
    return true;
}

bool qd_last_word(int fd, void *session, const struct qd_request *request, const char *reason,
                  bool is_head)
{
    const struct qd_answer *answer = &request->answer;
    char head[HEAD_BYTES + 2];
    struct iovec parts[1 + PARTS_MAX];
    size_t count = 1;
    size_t bytes = print_head(head, request, reason);
    parts[0] = (struct iovec){head, bytes};
    for (size_t i = 0; i < answer->part_count && i < PARTS_MAX && !is_head; i++) {
        parts[count++] =
            (struct iovec){(void *)(size_t)answer->parts[i].bytes, answer->parts[i].count};
        bytes += answer->parts[i].count;
    }
    if (session != NULL)
        return send_over_tls(session, parts, count);
    const struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
    return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)bytes;
}
