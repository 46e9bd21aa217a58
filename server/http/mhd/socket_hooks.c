#define _GNU_SOURCE
#undef _FORTIFY_SOURCE /* with it, recv is inline and cannot be defined */
#include "server/http/mhd/hooks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "server/http/wire/direct_response.h"

/* The connections without TLS, by descriptor. Each loop's thread has its own table. Other threads
 * also may call recv, but have no table. */
static _Thread_local struct qd_connection **hooked;
static _Thread_local size_t hooked_count;

bool qd_io_hooks_add(struct qd_connection *connection)
{
    const size_t index = (size_t)connection->socket.fd;
    if (index >= hooked_count) {
        const size_t count = index * 2 + 64;
        struct qd_connection **more = realloc(hooked, count * sizeof(struct qd_connection *));
        if (more == NULL)
            return false;
        memset(more + hooked_count, 0, (count - hooked_count) * sizeof(*more));
        hooked = more;
        hooked_count = count;
    }
    hooked[index] = connection;
    return true;
}

void qd_io_hooks_remove(const struct qd_connection *connection)
{
    if ((size_t)connection->socket.fd < hooked_count)
        hooked[connection->socket.fd] = NULL;
}

bool qd_io_hooks_has(const struct qd_connection *connection)
{
    return (size_t)connection->socket.fd < hooked_count &&
           hooked[connection->socket.fd] == connection;
}

void qd_io_hooks_deinit(void)
{
    free(hooked);
    hooked = NULL;
    hooked_count = 0;
}

/* Handles a fault, and returns the result of qd_io_hooks_read. `others` is how many bytes of this
 * call belong to earlier requests, which have to be answered first. */
static ssize_t on_fault(struct qd_connection *connection, size_t others)
{
    if (connection->framing.done_count == connection->done_count) {
        connection->all->on_fault(connection);
        return QD_IO_HOOKS_CLOSE;
    }
    return others > 0 ? (ssize_t)others : QD_IO_HOOKS_LATER;
}

/* ---- Bodies in their place ---------------------------------------------------------------- */

/* Returns where more of the body may be read to, and sets *room to how many bytes. Returns NULL if
 * the library has to read the bytes itself. That is so for the body of a later request, and for
 * this body until all its bytes that the library has read are taken, because they come first. It is
 * also so over TLS: there the library reads on only if GnuTLS says that there is more. */
static char *find_place(const struct qd_connection *connection, size_t *room)
{
    const struct qd_framing *framing = &connection->framing;
    struct qd_request *request = connection->request;
    if (connection->state != QD_CONNECTION_BODY || connection->tls.handshake_done ||
        !qd_framing_is_in_body(framing) || framing->done_count != connection->done_count)
        return NULL;
    const uint64_t ours = request->body.count + connection->io.placed_bytes;
    if (framing->body_bytes - framing->left_bytes != ours)
        return NULL;
    const size_t there = qd_request_body_room(request, connection->io.placed_bytes);
    if (there == 0)
        return NULL;
    *room = there;
    return request->body.bytes + ours;
}

/* Returns how many of the untold bytes the library is told of now, at most `count`. These bytes are
 * then no longer untold. */
static size_t tell(struct qd_connection *connection, size_t count)
{
    const size_t told = connection->io.untold_bytes < count ? connection->io.untold_bytes : count;
    connection->io.untold_bytes -= told;
    return told;
}

size_t qd_io_hooks_take_body(struct qd_connection *connection, const char *bytes, size_t count)
{
    struct qd_request *request = connection->request;
    const uint64_t bytes_max = connection->all->config->max_body_bytes;
    const size_t placed = connection->io.placed_bytes < count ? connection->io.placed_bytes : count;
    if (placed > 0) {
        connection->io.placed_bytes -= placed;
        qd_request_take_body(request, request->body.bytes + request->body.count, placed, bytes_max);
    }
    if (placed == count)
        return count;
    return placed + qd_request_take_body(request, bytes + placed, count - placed, bytes_max);
}

/* ---- What the library reads --------------------------------------------------------------- */

ssize_t qd_io_hooks_read(struct qd_connection *connection,
                         ssize_t (*read)(void *source, void *bytes, size_t count), void *source,
                         void *bytes, size_t count)
{
    struct qd_framing *framing = &connection->framing;
    if (connection->state == QD_CONNECTION_CLOSING)
        return QD_IO_HOOKS_CLOSE;
    if (framing->fault != QD_FAULT_NONE)
        return QD_IO_HOOKS_LATER;
    size_t kept = tell(connection, count);
    size_t others = 0; /* bytes of the requests before the last one */
    bool drained = false;
    /* If bytes were removed from a full buffer, or if a place is full, there may be more to read,
     * and the library would not know. So we read on until the socket has no more. */
    while (kept == 0 || (kept < count && !drained)) {
        size_t room = count - kept;
        size_t begun = SIZE_MAX;
        char *place = find_place(connection, &room);
        char *to = place != NULL ? place : (char *)bytes + kept;
        const ssize_t result = read(source, to, room);
        connection->io.library_read_end =
            connection->io.library_read_end || (result == 0 && kept == 0);
        if (result <= 0)
            return kept > 0 ? (ssize_t)kept : result;
        const size_t left = qd_framing_read(framing, to, (size_t)result, &begun);
        others = begun != SIZE_MAX ? kept + begun : others;
        if (framing->fault != QD_FAULT_NONE)
            return on_fault(connection, others);
        drained = (size_t)result < room;
        if (place != NULL) {
            connection->io.placed_bytes += left;
            connection->io.untold_bytes += left;
            kept += tell(connection, count - kept);
        } else {
            kept += left;
        }
    }
    return (ssize_t)kept;
}

/* ---- The socket --------------------------------------------------------------------------- */

#define NEXT_RECV QD_HOOK_NEXT(QD_HOOK_RECV, recv)
#define NEXT_SEND QD_HOOK_NEXT(QD_HOOK_SEND, send)
#define NEXT_SENDMSG QD_HOOK_NEXT(QD_HOOK_SENDMSG, sendmsg)

static struct qd_connection *hooked_at(int fd)
{
    return (size_t)fd < hooked_count ? hooked[fd] : NULL;
}

static ssize_t read_socket(void *connection, void *bytes, size_t count)
{
    return NEXT_RECV(((struct qd_connection *)connection)->socket.fd, bytes, count, 0);
}

/* All calls of recv in the process come here, not only the library's. */
__attribute__((visibility("default"))) ssize_t recv(int fd, void *bytes, size_t count, int flags)
{
    struct qd_connection *connection = hooked_at(fd);
    if (connection == NULL || flags != 0) {
        if (flags == 0)
            qd_trial_saw(QD_HOOK_RECV);
        return NEXT_RECV(fd, bytes, count, flags);
    }
    ssize_t result = qd_io_hooks_read(connection, read_socket, connection, bytes, count);
    if (result == QD_IO_HOOKS_LATER || result == QD_IO_HOOKS_CLOSE) {
        errno = result == QD_IO_HOOKS_LATER ? EAGAIN : ECONNRESET;
        return -1;
    }
    return result;
}

/* Sends the rest of our interim answer. Returns true if nothing of it is left. Otherwise errno has
 * the reason. */
static bool send_interim(struct qd_connection *connection)
{
    const size_t left = connection->io.interim_left;
    if (left == 0)
        return true;
    const ssize_t sent = NEXT_SEND(connection->socket.fd, &QD_INTERIM[QD_INTERIM_BYTES - left],
                                   left, MSG_NOSIGNAL | MSG_DONTWAIT | MSG_MORE);
    if (sent < 0)
        return false;
    connection->io.interim_left = (uint8_t)(left - (size_t)sent);
    errno = EAGAIN;
    return connection->io.interim_left == 0;
}

/* Sends the library's bytes. In BODY the library sends nothing except its own interim answer. */
static ssize_t send_for_library(struct qd_connection *connection, const void *bytes, size_t count,
                                int flags)
{
    const ssize_t sent = NEXT_SEND(connection->socket.fd, bytes, count, flags);
    if (connection->state == QD_CONNECTION_BODY && sent >= 0 && count <= QD_INTERIM_BYTES)
        connection->io.continue_left = (uint8_t)(count - (size_t)sent);
    return sent;
}

__attribute__((visibility("default"))) ssize_t sendmsg(int fd, const struct msghdr *message,
                                                       int flags)
{
    struct qd_connection *connection = hooked_at(fd);
    if (connection == NULL)
        qd_trial_saw(QD_HOOK_SENDMSG);
    else if (!send_interim(connection))
        return -1;
    return NEXT_SENDMSG(fd, message, flags);
}

__attribute__((visibility("default"))) ssize_t send(int fd, const void *bytes, size_t count,
                                                    int flags)
{
    struct qd_connection *connection = hooked_at(fd);
    if (connection == NULL) {
        qd_trial_saw(QD_HOOK_SEND);
        return NEXT_SEND(fd, bytes, count, flags);
    }
    if (!send_interim(connection))
        return -1;
    struct qd_part *outgoing = &connection->io.outgoing;
    if (outgoing->count == 0)
        return send_for_library(connection, bytes, count, flags);
    const ssize_t sent = NEXT_SEND(fd, outgoing->bytes, outgoing->count, flags & ~MSG_MORE);
    if (sent < 0)
        return sent;
    *outgoing =
        (struct qd_part){(const char *)outgoing->bytes + sent, outgoing->count - (size_t)sent};
    if (outgoing->count == 0)
        return (ssize_t)count;
    errno = EAGAIN;
    return -1;
}
