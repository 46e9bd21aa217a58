#define _GNU_SOURCE
#include "server/socket.h"

#include <errno.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static bool complain(char *complaint, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Returns false. */
static bool complain(char *complaint, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(complaint, QD_SOCKET_COMPLAINT_BYTES, format, arguments);
    va_end(arguments);
    return false;
}

static int open_socket(int family)
{
    return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static bool close_and_complain(struct qd_socket *listener, const char *address, const char *what,
                               char *complaint)
{
    int error = errno;
    close(listener->fd);
    return complain(complaint, "cannot %s %s: %s", what, address, strerror(error));
}

/* ---- Unix --------------------------------------------------------------------------------- */

/* A socket file that a process left behind: connecting to it is refused. */
static bool is_stale(const struct sockaddr_un *name)
{
    struct stat file;
    if (lstat(name->sun_path, &file) != 0 || !S_ISSOCK(file.st_mode))
        return false;
    int fd = open_socket(AF_UNIX);
    bool refused = fd >= 0 && connect(fd, (const struct sockaddr *)name, sizeof(*name)) != 0 &&
                   errno == ECONNREFUSED;
    if (fd >= 0)
        close(fd);
    return refused;
}

static bool bind_unix(int fd, const struct sockaddr_un *name)
{
    if (bind(fd, (const struct sockaddr *)name, sizeof(*name)) == 0)
        return true;
    if (errno != EADDRINUSE)
        return false;
    if (!is_stale(name) || unlink(name->sun_path) != 0) {
        errno = EADDRINUSE;
        return false;
    }
    return bind(fd, (const struct sockaddr *)name, sizeof(*name)) == 0;
}

static bool listen_unix(struct qd_socket *listener, const char *address, int backlog,
                        char *complaint)
{
    const char *path = address + strlen("unix:");
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    size_t bytes = strlen(path);
    if (bytes == 0 || bytes >= sizeof(name.sun_path)) {
        return complain(complaint,
                        "cannot listen on %s: expected a path of 1 to %zu bytes, got %zu", address,
                        sizeof(name.sun_path) - 1, bytes);
    }
    memcpy(name.sun_path, path, bytes + 1);
    listener->fd = open_socket(AF_UNIX);
    if (listener->fd < 0)
        return complain(complaint, "cannot listen on %s: %s", address, strerror(errno));
    if (!bind_unix(listener->fd, &name))
        return close_and_complain(listener, address, "listen on", complaint);
    struct stat file;
    memcpy(listener->unix_path, path, bytes + 1);
    /* Its mode first: nobody can connect before listen. */
    if (chmod(path, 0660) != 0 || stat(path, &file) != 0 || listen(listener->fd, backlog) != 0) {
        close_and_complain(listener, address, "listen on", complaint);
        unlink(path);
        return false;
    }
    listener->unix_device = file.st_dev;
    listener->unix_inode = file.st_ino;
    listener->unix_made = file.st_mtim;
    snprintf(listener->name, sizeof(listener->name), "%s", address);
    return true;
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

/* Cuts "[::1]:80" or "127.0.0.1:80" into host and port. */
static bool split_address(const char *address, char host[256], const char **port)
{
    const char *colon = strrchr(address, ':');
    if (colon == NULL || colon == address || colon[1] == '\0')
        return false;
    const char *begin = address;
    const char *end = colon;
    if (*begin == '[' && end[-1] == ']') {
        begin++;
        end--;
    } else if (memchr(begin, ':', (size_t)(end - begin)) != NULL) {
        return false; /* IPv6 without brackets: which colon is which? */
    }
    size_t bytes = (size_t)(end - begin);
    if (bytes == 0 || bytes >= 256)
        return false;
    memcpy(host, begin, bytes);
    host[bytes] = '\0';
    *port = colon + 1;
    size_t digits = strspn(*port, "0123456789");
    return (*port)[digits] == '\0' && digits <= 5 && atoi(*port) <= 65535;
}

static void name_tcp(struct qd_socket *listener)
{
    struct sockaddr_storage name;
    socklen_t name_bytes = sizeof(name);
    char host[64] = "?";
    char port[8] = "?";
    getsockname(listener->fd, (struct sockaddr *)&name, &name_bytes);
    getnameinfo((struct sockaddr *)&name, name_bytes, host, sizeof(host), port, sizeof(port),
                NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(listener->name, sizeof(listener->name),
             name.ss_family == AF_INET6 ? "http://[%s]:%s" : "http://%s:%s", host, port);
}

static bool listen_tcp(struct qd_socket *listener, const char *address, int backlog,
                       char *complaint)
{
    char host[256];
    const char *port;
    if (!split_address(address, host, &port)) {
        return complain(complaint,
                        "cannot listen on %s: expected ADDR:PORT, [ADDR6]:PORT or unix:PATH",
                        address);
    }
    struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    int result = getaddrinfo(host, port, &hints, &found);
    if (result != 0)
        return complain(complaint, "cannot listen on %s: %s", address, gai_strerror(result));
    listener->fd = open_socket(found->ai_family);
    int on = 1;
    bool bound = listener->fd >= 0 &&
                 setsockopt(listener->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
                 (found->ai_family != AF_INET6 ||
                  setsockopt(listener->fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) == 0) &&
                 bind(listener->fd, found->ai_addr, found->ai_addrlen) == 0 &&
                 listen(listener->fd, backlog) == 0;
    freeaddrinfo(found);
    if (!bound)
        return close_and_complain(listener, address, "listen on", complaint);
    name_tcp(listener);
    return true;
}

bool qd_socket_listen(struct qd_socket *listener, const char *address, int backlog,
                      char complaint[QD_SOCKET_COMPLAINT_BYTES])
{
    *listener = (struct qd_socket){.fd = -1};
    return strncmp(address, "unix:", strlen("unix:")) == 0
               ? listen_unix(listener, address, backlog, complaint)
               : listen_tcp(listener, address, backlog, complaint);
}
