#define _GNU_SOURCE
#include "server/http/last_word.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include "server/http/answer_head.h"
#include "server/http/tls.h"

enum { PARTS_MAX = 8 };

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
    char head[QD_ANSWER_HEAD_BYTES];
    struct iovec parts[1 + PARTS_MAX];
    size_t count = 1;
    const char *end = qd_answer_print_head(request, reason, head);
    if (end == NULL)
        return false;
    size_t bytes = (size_t)(end - head);
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
