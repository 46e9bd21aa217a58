/* Keeps libmicrohttpd from waiting busily for TLS handshakes. When a handshake has to wait for the
 * peer's next bytes, the library (0.9.75) still takes the socket for readable. It runs again and
 * again until the bytes come, or until the deadline. A read that has to wait is handled correctly,
 * however. We therefore let the library's call of gnutls_handshake succeed at once, and do the
 * handshake in its first read.
 *
 * The library's calls reach us as they do in error_hook.c: they go to the first definition that the
 * loader finds, which is the program's. Sessions of our own (tls.c) have no pointer set, and are
 * left alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <gnutls/gnutls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

#include "server/http/wire/io_hooks.h"

static int (*real_handshake)(gnutls_session_t session);
static ssize_t (*real_recv)(gnutls_session_t session, void *bytes, size_t count);
static ssize_t (*real_send)(gnutls_session_t session, const void *bytes, size_t count);

__attribute__((constructor)) static void find(void)
{
    void *handshake = dlsym(RTLD_NEXT, "gnutls_handshake");
    void *recv = dlsym(RTLD_NEXT, "gnutls_record_recv");
    void *send = dlsym(RTLD_NEXT, "gnutls_record_send");
    memcpy(&real_send, &send, sizeof(send));
    memcpy(&real_handshake, &handshake, sizeof(handshake)); /* ISO C has no such cast */
    memcpy(&real_recv, &recv, sizeof(recv));
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

__attribute__((visibility("default"))) int gnutls_handshake(gnutls_session_t session)
{
    return gnutls_session_get_ptr(session) == NULL ? real_handshake(session) : GNUTLS_E_SUCCESS;
}

static ssize_t read_session(void *session, void *bytes, size_t count)
{
    return real_recv(session, bytes, count);
}

__attribute__((visibility("default"))) ssize_t gnutls_record_recv(gnutls_session_t session,
                                                                  void *bytes, size_t count)
{
    if (gnutls_session_get_ptr(session) == NULL)
        return real_recv(session, bytes, count);
    struct qd_connection *connection = gnutls_db_get_ptr(session);
    if (connection == NULL)
        return GNUTLS_E_PULL_ERROR; /* malloc failed when the connection was opened */
    if (!connection->tls.handshake_done) {
        int result = real_handshake(session);
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
    struct qd_connection *connection =
        gnutls_session_get_ptr(session) == NULL ? NULL : gnutls_db_get_ptr(session);
    if (connection == NULL)
        return real_send(session, bytes, count);
    if (connection->state == QD_CONNECTION_CLOSING)
        return GNUTLS_E_PUSH_ERROR; /* the direct response has been sent: the library may add
                                       nothing */
    if (connection->io.interim_left > 0) {
        const ssize_t result = real_send(session, NULL, 0);
        if (result < 0)
            return result;
        connection->io.interim_left = 0;
    }
    const ssize_t result = real_send(session, bytes, count);
    if (connection->state == QD_CONNECTION_BODY && count <= QD_INTERIM_BYTES)
        connection->io.continue_left =
            result == GNUTLS_E_AGAIN || result == GNUTLS_E_INTERRUPTED ? (uint8_t)count : 0;
    return result;
}
