#define _GNU_SOURCE
#include "server/http/wire/direct_response.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include "server/http/wire/answer_head.h"
#include "server/http/wire/tls.h"

enum { PARTS_MAX = 8 };

void qd_direct_response_interim(struct qd_connection *connection, void *session)
{
    if (session != NULL) {
        if (qd_tls_send(session, QD_INTERIM, QD_INTERIM_BYTES) == QD_TLS_KEPT)
            connection->io.interim_left = QD_INTERIM_BYTES;
        return; /* if the session is over, the next send fails, too */
    }
    const ssize_t sent =
        send(connection->socket.fd, QD_INTERIM, QD_INTERIM_BYTES, MSG_NOSIGNAL | MSG_DONTWAIT);
    /* If the socket took nothing, earlier bytes are still on their way, and a closed socket answers
     * those with a reset, too. */
    if (sent > 0)
        connection->io.interim_left = (uint8_t)(QD_INTERIM_BYTES - (size_t)sent);
}

static bool send_over_tls(void *session, const struct iovec *parts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (qd_tls_send(session, parts[i].iov_base, parts[i].iov_len) != QD_TLS_SENT)
            return false;
    return true;
}

/* Has the kernel or GnuTLS refuse what the library would send after a direct response. */
static void end_sending(const struct qd_connection *connection, void *session)
{
    if (session != NULL)
        qd_tls_end_sending(session);
    else
        shutdown(connection->socket.fd, SHUT_WR);
}

bool qd_direct_response(struct qd_connection *connection, void *session, const char *reason)
{
    const struct qd_request *request = connection->request;
    const struct qd_answer *answer = &request->answer;
    char head[QD_ANSWER_HEAD_BYTES];
    struct iovec parts[1 + PARTS_MAX];
    size_t count = 1;
    const char *end = qd_answer_print_head(request, reason, head);
    if (end == NULL) {
        end_sending(connection, session);
        return false;
    }
    size_t bytes = (size_t)(end - head);
    parts[0] = (struct iovec){head, bytes};
    for (size_t i = 0; i < answer->part_count && i < PARTS_MAX && !connection->current.is_head;
         i++) {
        parts[count++] =
            (struct iovec){(void *)(size_t)answer->parts[i].bytes, answer->parts[i].count};
        bytes += answer->parts[i].count;
    }
    connection->io.interim_left += connection->io.continue_left; /* one of the two is 0 */
    connection->io.continue_left = 0;
    if (session != NULL) {
        const bool is_sent = send_over_tls(session, parts, count);
        end_sending(connection, session);
        return is_sent;
    }
    const struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
    const ssize_t sent = sendmsg(connection->socket.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    end_sending(connection, session);
    return sent == (ssize_t)bytes;
}
