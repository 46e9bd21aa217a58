/* Preloaded into a server. Its sockets are full exactly when an interim answer is sent. They take
 * as many bytes of the answer as FULL_SOCKET says. If FULL_AT_END is set, sockets with TLS are also
 * full when close_notify is sent, unless their buffer has at least that many bytes.
 * Over TLS 1.3 this file recognises both by the sizes of their records, which no other record
 * has. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum {
    INTERIM_BYTES = 25,
    RECORD_BYTES = 5 + INTERIM_BYTES + 1 + 16,
    END_BYTES = 5 + 2 + 1 + 16, /* an alert, close_notify */
};

static _Thread_local int once_fd = -1; /* took nothing; will take all next time */

static size_t taken(void)
{
    const char *text = getenv("FULL_SOCKET");
    return text == NULL ? 0 : (size_t)atoi(text);
}

/* Returns true if the current interim answer is to be refused as a whole. */
static int is_refused(int fd)
{
    const int refused = taken() == 0 && once_fd != fd;
    once_fd = refused ? fd : -1;
    errno = EAGAIN;
    return refused;
}

/* Returns true if close_notify is to be refused. */
static int is_full_at_end(int fd)
{
    int bytes = 0;
    socklen_t size = sizeof(bytes);
    const int known = getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, &size) == 0;
    errno = EAGAIN;
    return getenv("FULL_AT_END") != NULL && known && bytes < atoi(getenv("FULL_AT_END"));
}

ssize_t send(int fd, const void *bytes, size_t count, int flags)
{
    ssize_t (*next)(int, const void *, size_t, int) =
        (ssize_t(*)(int, const void *, size_t, int))dlsym(RTLD_NEXT, "send");
    const int is_interim = count == INTERIM_BYTES && memcmp(bytes, "HTTP/1.1 100 ", 13) == 0;
    if (is_interim && is_refused(fd))
        return -1;
    return next(fd, bytes, is_interim && taken() > 0 ? taken() : count, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    ssize_t (*next)(int, const struct msghdr *, int) =
        (ssize_t(*)(int, const struct msghdr *, int))dlsym(RTLD_NEXT, "sendmsg");
    size_t count = 0;
    for (size_t i = 0; i < message->msg_iovlen; i++)
        count += message->msg_iov[i].iov_len;
    const int is_interim = count == RECORD_BYTES && message->msg_iovlen == 1;
    if ((is_interim && is_refused(fd)) || (count == END_BYTES && is_full_at_end(fd)))
        return -1;
    if (!is_interim || taken() == 0)
        return next(fd, message, flags);
    struct iovec part = {message->msg_iov[0].iov_base, taken()};
    struct msghdr some = *message;
    some.msg_iov = &part;
    return next(fd, &some, flags);
}
