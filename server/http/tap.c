#define _GNU_SOURCE
#undef _FORTIFY_SOURCE /* with it recv is inline, and nobody may define it */
#include "server/http/tap.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* By descriptor, of connections without TLS, on each loop's thread its own. Other threads, which
 * may call recv, too, have none. */
static _Thread_local struct qd_connection **tapped;
static _Thread_local size_t tapped_count;

bool qd_tap_add(struct qd_connection *connection)
{
    const size_t index = (size_t)connection->fd;
    if (index >= tapped_count) {
        const size_t count = index * 2 + 64;
        struct qd_connection **more = realloc(tapped, count * sizeof(struct qd_connection *));
        if (more == NULL)
            return false;
        memset(more + tapped_count, 0, (count - tapped_count) * sizeof(*more));
        tapped = more;
        tapped_count = count;
    }
    tapped[index] = connection;
    return true;
}

void qd_tap_remove(const struct qd_connection *connection)
{
    if ((size_t)connection->fd < tapped_count)
        tapped[connection->fd] = NULL;
}

void qd_tap_deinit(void)
{
    free(tapped);
    tapped = NULL;
    tapped_count = 0;
}

/* `others`: bytes of this call for requests that have to be answered first. */
static ssize_t on_fault(struct qd_connection *connection, size_t others)
{
    if (connection->framing.done_count == connection->done_count) {
        connection->all->on_fault(connection);
        return QD_TAP_CLOSE;
    }
    return others > 0 ? (ssize_t)others : QD_TAP_LATER;
}

ssize_t qd_tap_read(struct qd_connection *connection,
                    ssize_t (*read)(void *source, void *bytes, size_t count), void *source,
                    void *bytes, size_t count)
{
    struct qd_framing *framing = &connection->framing;
    size_t kept = 0;
    size_t others = 0; /* of the requests before the last */
    if (connection->state == QD_CONNECTION_CUT)
        return QD_TAP_CLOSE;
    if (framing->fault != QD_FAULT_NONE)
        return QD_TAP_LATER;
    /* Where some was taken out of a whole buffer there may be more to read, which the library would
     * not know. */
    for (;;) {
        const size_t wanted = count - kept;
        size_t begun = SIZE_MAX;
        ssize_t result = read(source, (char *)bytes + kept, wanted);
        if (result <= 0)
            return kept > 0 ? (ssize_t)kept : result;
        const size_t left = qd_framing_read(framing, (char *)bytes + kept, (size_t)result, &begun);
        others = begun != SIZE_MAX ? kept + begun : others;
        if (framing->fault != QD_FAULT_NONE)
            return on_fault(connection, others);
        kept += left;
        if (kept == count || (kept > 0 && (size_t)result < wanted))
            return (ssize_t)kept;
    }
}

/* ---- The socket --------------------------------------------------------------------------- */

typedef ssize_t receive(int fd, void *bytes, size_t count, int flags);

/* Looked up by whoever comes first: some library's start may do so before our own. */
static receive *library_recv(void)
{
    static _Atomic(receive *) found;
    receive *known = atomic_load_explicit(&found, memory_order_relaxed);
    if (known == NULL) {
        void *symbol = dlsym(RTLD_NEXT, "recv");
        memcpy(&known, &symbol, sizeof(symbol)); /* ISO C has no such cast */
        atomic_store_explicit(&found, known, memory_order_relaxed);
    }
    return known;
}

static ssize_t read_socket(void *connection, void *bytes, size_t count)
{
    return library_recv()(((struct qd_connection *)connection)->fd, bytes, count, 0);
}

/* The library's calls come here, and everybody else's. */
__attribute__((visibility("default"))) ssize_t recv(int fd, void *bytes, size_t count, int flags)
{
    struct qd_connection *connection = (size_t)fd < tapped_count ? tapped[fd] : NULL;
    if (connection == NULL || flags != 0)
        return library_recv()(fd, bytes, count, flags);
    ssize_t result = qd_tap_read(connection, read_socket, connection, bytes, count);
    if (result == QD_TAP_LATER || result == QD_TAP_CLOSE) {
        errno = result == QD_TAP_LATER ? EAGAIN : ECONNRESET;
        return -1;
    }
    return result;
}
