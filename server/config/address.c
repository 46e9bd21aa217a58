#define _GNU_SOURCE
#include "server/config/address.h"

#include <arpa/inet.h>
#include <assert.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "server/memory/text.h"

static_assert(sizeof(((struct sockaddr_un *)0)->sun_path) == QD_UNIX_PATH_BYTES, "as Linux has it");

enum { HOST_BYTES = 256 };

/* Returns the path of a Unix socket's address, or NULL for any other address. */
static const char *unix_path(const char *address)
{
    return strncmp(address, "unix:", strlen("unix:")) == 0 ? address + strlen("unix:") : NULL;
}

/* Returns whether a path may be used. @NAME is refused, because other programs write abstract
 * sockets so. A file of that name is ./@NAME. */
static bool valid_path(const char *path)
{
    return *path != '\0' && *path != '@' && strlen(path) < QD_UNIX_PATH_BYTES;
}

/* Cuts "[::1]:80" or "127.0.0.1:80" into host and port. */
static bool split(const char *address, char host[HOST_BYTES], const char **port)
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
        return false; /* IPv6 without brackets is ambiguous */
    }
    size_t bytes = (size_t)(end - begin);
    if (bytes == 0 || bytes >= HOST_BYTES)
        return false;
    memcpy(host, begin, bytes);
    host[bytes] = '\0';
    *port = colon + 1;
    uint64_t number;
    return qd_read_decimal(*port, &number) && number <= 65535;
}

bool qd_address_valid(const char *address)
{
    char host[HOST_BYTES];
    const char *port;
    const char *path = unix_path(address);
    return path != NULL ? valid_path(path) : split(address, host, &port);
}

bool qd_address_resolve(const char *address, struct sockaddr_storage *name, socklen_t *name_bytes,
                        struct qd_error *error)
{
    char host[HOST_BYTES];
    const char *port;
    const char *path = unix_path(address);
    *name = (struct sockaddr_storage){.ss_family = AF_UNIX};
    *name_bytes = sizeof(struct sockaddr_un);
    if (path != NULL && valid_path(path)) {
        strcpy(((struct sockaddr_un *)name)->sun_path, path);
        return true;
    }
    if (path != NULL || !split(address, host, &port)) {
        return qd_fail_startup(
            error, "expected ADDR:PORT, [ADDR6]:PORT or unix:PATH, the path of at most %d bytes",
            QD_UNIX_PATH_BYTES - 1);
    }
    struct addrinfo hints = {.ai_flags = AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    int result = getaddrinfo(host, port, &hints, &found);
    if (result != 0)
        return qd_fail_startup(error, "%s", gai_strerror(result));
    memcpy(name, found->ai_addr, found->ai_addrlen);
    *name_bytes = found->ai_addrlen;
    freeaddrinfo(found);
    return true;
}

static void print_octets(const unsigned char octets[4], unsigned port, char *at)
{
    for (unsigned i = 0; i < 4; i++) {
        at = qd_print_decimal(octets[i], at);
        *at++ = i < 3 ? '.' : ':';
    }
    *qd_print_decimal(port, at) = '\0';
}

void qd_address_print(const struct sockaddr *name, char text[QD_ADDRESS_TEXT_BYTES])
{
    char host[INET6_ADDRSTRLEN];
    struct sockaddr_in in4;
    struct sockaddr_in6 in6;
    if (name->sa_family == AF_INET) {
        memcpy(&in4, name, sizeof(in4));
        print_octets((const unsigned char *)&in4.sin_addr, ntohs(in4.sin_port), text);
    } else if (name->sa_family == AF_INET6) {
        memcpy(&in6, name, sizeof(in6));
        const unsigned port = ntohs(in6.sin6_port);
        if (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr))
            print_octets(in6.sin6_addr.s6_addr + 12, port, text);
        else if (inet_ntop(AF_INET6, &in6.sin6_addr, host, sizeof(host)) != NULL)
            snprintf(text, QD_ADDRESS_TEXT_BYTES, "[%s]:%u", host, port);
    } else {
        snprintf(text, QD_ADDRESS_TEXT_BYTES, "unix");
    }
}
