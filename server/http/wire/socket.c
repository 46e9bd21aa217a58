#define _GNU_SOURCE
#include "server/http/wire/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/sockios.h>
#include <linux/tcp.h> /* glibc's own struct tcp_info ends before the counts */
#include <netdb.h>
#include <netinet/in.h>
#include <pwd.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/base/limits.h"
#include "server/memory/text.h"

enum { LOCK_TRIES = 500, LOCK_PAUSE_NS = 10000000 };

static int open_socket(int family)
{
    return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

/* Returns the reason for an error number, in the user's terms if the system's text is too short. */
static const char *reason(bool is_unix, int error)
{
    static const struct {
        bool is_unix;
        int error;
        const char *text;
    } reasons[] = {
        {true, EADDRINUSE, "another process listens on it"},
        {true, EEXIST, "there is a file of that name, and it is no socket"},
        {true, ENOENT, "its directory does not exist"},
        {true, EWOULDBLOCK, "another process holds a lock on its directory"},
        {true, EACCES, "no right to make it, or to replace what is there"},
        {true, EPERM, "no right to give it that owner (--unix-owner)"},
        {false, EADDRINUSE,
         "Address already in use: another process listens there; --listen takes another port"},
        {false, EACCES, "no right to listen on so low a port (CAP_NET_BIND_SERVICE gives it)"},
        {false, EADDRNOTAVAIL, "this host has no such address"},
    };
    for (size_t i = 0; i < sizeof(reasons) / sizeof(*reasons); i++)
        if (reasons[i].is_unix == is_unix && reasons[i].error == error)
            return reasons[i].text;
    return strerror(error);
}

/* Closes the listener and fails with the reason that errno gives. */
static bool close_and_fail(struct qd_socket *listener, const char *address, bool is_unix,
                           struct qd_error *error)
{
    const char *why = reason(is_unix, errno);
    if (listener->fd >= 0)
        close(listener->fd);
    return qd_fail_startup(error, "cannot listen on %s: %s", address, why);
}

/* ---- Unix --------------------------------------------------------------------------------- */

/* Locks the directory of a Unix socket. Between bind and listen, a socket looks like a stale one
 * that another process would remove, so only one process at a time may be between the two calls.
 * The lock ends with the process, however the process ends. Returns the lock, a descriptor to
 * close. Returns -1 with EWOULDBLOCK in errno if another process keeps the lock. Returns -1 with
 * another errno if we may not read the directory; the caller then goes on without a lock. */
static int lock_directory(const char *path)
{
    char directory[QD_UNIX_PATH_BYTES + 1];
    const char *slash = strrchr(path, '/');
    snprintf(directory, sizeof(directory), "%.*s/.", slash == NULL ? 1 : (int)(slash - path),
             slash == NULL ? "." : path);
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    const struct timespec pause = {.tv_nsec = LOCK_PAUSE_NS};
    for (unsigned i = 0; i < LOCK_TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return fd;
        nanosleep(&pause, NULL);
    }
    close(fd);
    errno = EWOULDBLOCK;
    return -1;
}

/* Removes a socket file that a process left behind, which refuses connections. Returns false, with
 * the reason in errno, if it cannot be removed. */
static bool remove_stale(const struct sockaddr_un *name)
{
    struct stat file;
    if (lstat(name->sun_path, &file) != 0)
        return false;
    errno = EEXIST;
    if (!S_ISSOCK(file.st_mode))
        return false;
    int fd = open_socket(AF_UNIX);
    if (fd < 0)
        return false;
    int error = connect(fd, (const struct sockaddr *)name, sizeof(*name)) != 0 ? errno : EADDRINUSE;
    close(fd);
    errno = error == EAGAIN ? EADDRINUSE : error; /* EAGAIN: a listener's queue is full */
    return error == ECONNREFUSED && unlink(name->sun_path) == 0;
}

/* The address for bind, and the file's mode and owner. */
struct unix_name {
    const struct sockaddr_un *address;
    mode_t mode;
    uid_t user; /* (uid_t)-1: unchanged */
    gid_t group;
};

/* Binds with a umask that gives the file its mode from its first moment on. */
static bool bind_unix(int fd, const struct unix_name *name)
{
    const struct sockaddr *any = (const struct sockaddr *)name->address;
    mode_t before = umask(~name->mode & 0777);
    bool bound = bind(fd, any, sizeof(*name->address)) == 0 ||
                 (errno == EADDRINUSE && remove_stale(name->address) &&
                  bind(fd, any, sizeof(*name->address)) == 0);
    int error = errno;
    umask(before);
    errno = error;
    return bound;
}

/* Sets the owner of the socket at the path, and sets *file. Does not follow a link at the path. */
static bool set_owner(const struct unix_name *name, struct stat *file)
{
    int fd = open(name->address->sun_path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    bool found = fd >= 0 && fstat(fd, file) == 0;
    if (found && !S_ISSOCK(file->st_mode))
        errno = EEXIST;
    bool set = found && S_ISSOCK(file->st_mode) &&
               ((name->user == (uid_t)-1 && name->group == (gid_t)-1) ||
                fchownat(fd, "", name->user, name->group, AT_EMPTY_PATH) == 0);
    int error = errno;
    if (fd >= 0)
        close(fd);
    errno = error;
    return set;
}

static bool listen_locked(struct qd_socket *listener, const char *address,
                          const struct unix_name *name, int backlog, struct qd_error *error)
{
    const char *path = name->address->sun_path;
    listener->fd = open_socket(AF_UNIX);
    if (listener->fd < 0 || !bind_unix(listener->fd, name))
        return close_and_fail(listener, address, true, error);
    struct stat file;
    strcpy(listener->unix_path, path);
    listener->is_local = true;
    if (!set_owner(name, &file) || listen(listener->fd, backlog) != 0) {
        close_and_fail(listener, address, true, error);
        unlink(path);
        return false;
    }
    listener->unix_device = file.st_dev;
    listener->unix_inode = file.st_ino;
    listener->unix_made = file.st_mtim;
    snprintf(listener->name, sizeof(listener->name), "%s", address);
    return true;
}

/* Finds the number of a user or a group by its name. Takes a number as it is. */
static bool find_id(const char *text, size_t bytes, bool is_group, unsigned *id)
{
    char name[64];
    if (bytes == 0 || bytes >= sizeof(name))
        return false;
    memcpy(name, text, bytes);
    name[bytes] = '\0';
    if (strspn(name, "0123456789") == bytes) {
        uint64_t number;
        const bool fits =
            qd_read_decimal(name, &number) && number < UINT_MAX; /* UINT_MAX: unchanged */
        *id = (unsigned)number;
        return fits;
    }
    const struct passwd *user = is_group ? NULL : getpwnam(name);
    const struct group *group = is_group ? getgrnam(name) : NULL;
    *id = user != NULL ? user->pw_uid : group != NULL ? group->gr_gid : 0;
    return user != NULL || group != NULL;
}

static bool find_owner(const char *owner, struct unix_name *name, struct qd_error *error)
{
    size_t user_bytes = strcspn(owner, ":");
    const char *group = owner[user_bytes] == ':' ? owner + user_bytes + 1 : NULL;
    name->user = (uid_t)-1;
    name->group = (gid_t)-1;
    if ((user_bytes > 0 && !find_id(owner, user_bytes, false, &name->user)) ||
        (group != NULL && !find_id(group, strlen(group), true, &name->group))) {
        return qd_fail_startup(
            error,
            "--unix-owner: expected USER, USER:GROUP or :GROUP that this system knows, "
            "or numbers, got \"%.100s\"",
            owner);
    }
    return true;
}

static bool listen_unix(struct qd_socket *listener, const char *address,
                        const struct sockaddr_un *path, const struct qd_socket_settings *settings,
                        struct qd_error *error)
{
    struct unix_name name = {.address = path, .mode = settings->unix_mode};
    if (!find_owner(settings->unix_owner, &name, error))
        return false;
    int lock = lock_directory(path->sun_path);
    if (lock < 0 && errno == EWOULDBLOCK)
        return close_and_fail(listener, address, true, error);
    bool listens = listen_locked(listener, address, &name, settings->backlog, error);
    if (lock >= 0)
        close(lock);
    return listens;
}

void qd_socket_unlink(const struct qd_socket *listener)
{
    struct stat file;
    if (listener->unix_path[0] != '\0' && lstat(listener->unix_path, &file) == 0 &&
        file.st_dev == listener->unix_device && file.st_ino == listener->unix_inode &&
        file.st_mtim.tv_sec == listener->unix_made.tv_sec &&
        file.st_mtim.tv_nsec == listener->unix_made.tv_nsec)
        unlink(listener->unix_path);
}

/* ---- TCP ---------------------------------------------------------------------------------- */

static bool is_loopback(const struct sockaddr_storage *name)
{
    if (name->ss_family == AF_INET) {
        const struct sockaddr_in *ipv4 = (const struct sockaddr_in *)name;
        return ntohl(ipv4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    }
    const struct sockaddr_in6 *ipv6 = (const struct sockaddr_in6 *)name;
    return IN6_IS_ADDR_LOOPBACK(&ipv6->sin6_addr);
}

static void name_tcp(struct qd_socket *listener, bool is_https)
{
    struct sockaddr_storage name;
    socklen_t name_bytes = sizeof(name);
    char host[64] = "?";
    char port[8] = "?";
    getsockname(listener->fd, (struct sockaddr *)&name, &name_bytes);
    listener->is_local = is_loopback(&name);
    getnameinfo((struct sockaddr *)&name, name_bytes, host, sizeof(host), port, sizeof(port),
                NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(listener->name, sizeof(listener->name),
             name.ss_family == AF_INET6 ? "http%s://[%s]:%s" : "http%s://%s:%s",
             is_https ? "s" : "", host, port);
}

static bool set_option(int fd, int level, int option)
{
    const int on = 1;
    return setsockopt(fd, level, option, &on, sizeof(on)) == 0;
}

/* Returns a new socket that is not bound yet, or -1 with the reason in errno. */
static int open_tcp(int family)
{
    const int fd = open_socket(family);
    if (fd >= 0 && set_option(fd, SOL_SOCKET, SO_REUSEADDR) &&
        (family != AF_INET6 || set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY)))
        return fd;
    const int error = errno;
    if (fd >= 0)
        close(fd);
    errno = error;
    return -1;
}

/* Listens on a TCP address. SO_REUSEPORT is set only after the bind. The bind therefore fails if
 * another process has the address, even if that is another quantd that shares the address among its
 * own sockets. */
static bool listen_tcp(struct qd_socket *listener, const char *address,
                       const struct sockaddr_storage *name, socklen_t name_bytes,
                       const struct qd_socket_settings *settings, struct qd_error *error)
{
    listener->fd = open_tcp(name->ss_family);
    const bool listens =
        listener->fd >= 0 && bind(listener->fd, (const struct sockaddr *)name, name_bytes) == 0 &&
        (!settings->is_shared || set_option(listener->fd, SOL_SOCKET, SO_REUSEPORT)) &&
        listen(listener->fd, settings->backlog) == 0;
    if (!listens)
        return close_and_fail(listener, address, false, error);
    name_tcp(listener, settings->is_https);
    return true;
}

/* Sets the size on the accepted socket, because a Unix socket does not inherit it from the
 * listening one. */
bool qd_socket_bound_send(int fd)
{
    int family = AF_UNSPEC;
    socklen_t family_bytes = sizeof(family);
    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &family_bytes);
    qd_socket_set_send_bytes(fd, family == AF_UNIX ? QD_UNIX_SEND_BYTES : QD_TCP_SEND_BYTES);
    return family == AF_UNIX;
}

void qd_socket_set_send_bytes(int fd, int bytes)
{
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
}

uint64_t qd_socket_unread(int fd)
{
    int bytes = 0;
    ioctl(fd, SIOCOUTQ, &bytes);
    return (uint64_t)bytes;
}

bool qd_socket_acknowledged(int fd, uint64_t *count)
{
    struct tcp_info info;
    socklen_t bytes = sizeof(info);
    const bool told = getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 &&
                      bytes >= offsetof(struct tcp_info, tcpi_bytes_acked) + sizeof(*count);
    *count = told ? info.tcpi_bytes_acked : 0;
    return told;
}

bool qd_socket_listen(struct qd_socket *listener, const char *address,
                      const struct qd_socket_settings *settings, struct qd_error *error)
{
    *listener = (struct qd_socket){.fd = -1};
    struct sockaddr_storage name;
    socklen_t name_bytes;
    struct qd_error why;
    if (!qd_address_resolve(address, &name, &name_bytes, &why))
        return qd_fail_startup(error, "cannot listen on %s: %s", address, why.text);
    if (name.ss_family == AF_UNIX)
        return listen_unix(listener, address, (const struct sockaddr_un *)&name, settings, error);
    return listen_tcp(listener, address, &name, name_bytes, settings, error);
}

bool qd_socket_join(struct qd_socket *listener, const struct qd_socket *first, int backlog,
                    struct qd_error *error)
{
    struct sockaddr_storage name;
    socklen_t name_bytes = sizeof(name);
    const bool is_unix = first->unix_path[0] != '\0';
    *listener = *first;
    if (is_unix) {
        listener->fd = fcntl(first->fd, F_DUPFD_CLOEXEC, 0);
        return listener->fd >= 0 || close_and_fail(listener, first->name, is_unix, error);
    }
    const bool named = getsockname(first->fd, (struct sockaddr *)&name, &name_bytes) == 0;
    listener->fd = named ? open_tcp(name.ss_family) : -1;
    return (listener->fd >= 0 && set_option(listener->fd, SOL_SOCKET, SO_REUSEPORT) &&
            bind(listener->fd, (struct sockaddr *)&name, name_bytes) == 0 &&
            listen(listener->fd, backlog) == 0) ||
           close_and_fail(listener, first->name, is_unix, error);
}
