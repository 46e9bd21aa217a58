#define _GNU_SOURCE
#include "server/http/last_word.h"

#include <stdio.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#include "server/http/tls.h"

enum { HEAD_BYTES = 512, PARTS_MAX = 8 };

static size_t print_head(char text[HEAD_BYTES], const struct qd_answer *answer, const char *reason)
{
    char date[64];
    char retry[40] = "";
    struct tm parts;
    time_t now = time(NULL);
    gmtime_r(&now, &parts);
    strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", &parts);
    if (answer->retry_after_s > 0)
        snprintf(retry, sizeof(retry), "Retry-After: %u\r\n", answer->retry_after_s);
    int count =
        snprintf(text, HEAD_BYTES,
                 "HTTP/1.1 %u %s\r\nDate: %s\r\nConnection: close\r\nContent-Type: %s\r\n"
                 "Content-Length: %zu\r\n%s\r\n",
                 answer->http_status, reason, date, answer->content_type, answer->bytes, retry);
    return (size_t)count;
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

bool qd_last_word(int fd, void *session, const struct qd_answer *answer, const char *reason,
                  bool is_head)
{
    char head[HEAD_BYTES];
    struct iovec parts[1 + PARTS_MAX];
    size_t count = 1;
    size_t bytes = print_head(head, answer, reason);
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
