#define _GNU_SOURCE
#include <gnutls/gnutls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <sys/socket.h>

#include "server/http/mhd/hooks.h"
#include "server/http/wire/direct_response.h"

#define NEXT_HANDSHAKE QD_HOOK_NEXT(QD_HOOK_HANDSHAKE, gnutls_handshake)
#define NEXT_RECV QD_HOOK_NEXT(QD_HOOK_RECORD_RECV, gnutls_record_recv)
#define NEXT_BYE QD_HOOK_NEXT(QD_HOOK_BYE, gnutls_bye)
#define NEXT_SEND QD_HOOK_NEXT(QD_HOOK_RECORD_SEND, gnutls_record_send)

static ssize_t read_session(void *session, void *bytes, size_t count)
{
    return NEXT_RECV(session, bytes, count);
}

/* Returns false for sessions of our own (tls.c), which have no pointer set. */
static bool is_hooked(gnutls_session_t session)
{
    return gnutls_session_get_ptr(session) != NULL && qd_hooks_work(QD_HOOKS_TLS);
}

/* Makes the kernel acknowledge the client's last bytes at once. In TLS 1.3 the client sends the
 * last message of the handshake, and we send nothing that could carry the acknowledgement. The
 * kernel would wait 40 ms for such bytes. The client's system meanwhile holds back the first
 * request, unless the client has set TCP_NODELAY. */
static void acknowledge(gnutls_session_t session)
{
    const int on = 1;
    setsockopt(gnutls_transport_get_int(session), IPPROTO_TCP, TCP_QUICKACK, &on, sizeof(on));
}

/* Lets the library's call succeed at once. The handshake is done in the library's first read. */
__attribute__((visibility("default"))) int gnutls_handshake(gnutls_session_t session)
{
    return qd_trial_saw(QD_HOOK_HANDSHAKE) || is_hooked(session) ? GNUTLS_E_SUCCESS
                                                                 : NEXT_HANDSHAKE(session);
}

__attribute__((visibility("default"))) ssize_t gnutls_record_recv(gnutls_session_t session,
                                                                  void *bytes, size_t count)
{
    if (qd_trial_saw(QD_HOOK_RECORD_RECV)) {
        const ssize_t result = recv(gnutls_transport_get_int(session), bytes, count, MSG_DONTWAIT);
        return result >= 0 ? result : GNUTLS_E_AGAIN;
    }
    if (!is_hooked(session))
        return NEXT_RECV(session, bytes, count);
    struct qd_connection *connection = gnutls_db_get_ptr(session);
    if (connection == NULL)
        return GNUTLS_E_PULL_ERROR; /* malloc failed when the connection was opened */
    if (!connection->tls.handshake_done) {
        int result = NEXT_HANDSHAKE(session);
        if (result < 0)
            return result;
        connection->tls.handshake_done = true;
        acknowledge(session);
    }
    ssize_t result = qd_io_hooks_read(connection, read_session, session, bytes, count);
    if (result == QD_IO_HOOKS_LATER)
        return GNUTLS_E_AGAIN;
    return result == QD_IO_HOOKS_CLOSE ? GNUTLS_E_PULL_ERROR : result;
}

/* Sends the library's bytes. If the socket is full, GnuTLS keeps the record that it has made. The
 * next call, whatever its bytes are, sends that record instead of them and returns the record's
 * size. That is right for a caller that repeats the same bytes, as the library does. A record with
 * our interim answer has to be sent first. A call with NULL sends only the kept record. */
__attribute__((visibility("default"))) ssize_t gnutls_record_send(gnutls_session_t session,
                                                                  const void *bytes, size_t count)
{
    if (qd_trial_saw(QD_HOOK_RECORD_SEND))
        return (ssize_t)count;
    struct qd_connection *connection = is_hooked(session) ? gnutls_db_get_ptr(session) : NULL;
    if (connection == NULL)
        return NEXT_SEND(session, bytes, count);
    if (connection->state == QD_CONNECTION_CLOSING)
        return GNUTLS_E_PUSH_ERROR; /* if the socket is full, gnutls_bye has not ended our side */
    if (connection->io.interim_left > 0) {
        const ssize_t result = NEXT_SEND(session, NULL, 0);
        if (result < 0)
            return result;
        connection->io.interim_left = 0;
    }
    const ssize_t result = NEXT_SEND(session, bytes, count);
    if (connection->state == QD_CONNECTION_BODY && count <= QD_INTERIM_BYTES)
        connection->io.continue_left =
            result == GNUTLS_E_AGAIN || result == GNUTLS_E_INTERRUPTED ? (uint8_t)count : 0;
    return result;
}

/* Sends close_notify, without which a client cannot know whether the server or an attacker has
 * ended the connection. If the socket is full, the library would leave it out. */
__attribute__((visibility("default"))) int gnutls_bye(gnutls_session_t session,
                                                      gnutls_close_request_t how)
{
    if (qd_trial_saw(QD_HOOK_BYE))
        return GNUTLS_E_SUCCESS;
    const int result = NEXT_BYE(session, how);
    struct qd_connection *connection = is_hooked(session) ? gnutls_db_get_ptr(session) : NULL;
    if (result != GNUTLS_E_AGAIN || connection == NULL)
        return result;
    qd_connection_make_room(connection);
    return NEXT_BYE(session, how);
}
