/* Listening sockets: TCP and Unix. Non-blocking, closed on exec. */
#ifndef SERVER_HTTP_WIRE_SOCKET_H
#define SERVER_HTTP_WIRE_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "server/config/address.h"
#include "server/telemetry/gauges.h"

struct qd_socket {
    int fd;
    char name[QD_LISTENER_NAME_BYTES];  /* for people: "http://127.0.0.1:8000",
                                           "unix:/run/quantd.sock" */
    bool is_local;                      /* only this host reaches it */
    char unix_path[QD_UNIX_PATH_BYTES]; /* "": TCP */
    dev_t unix_device; /* of the file, to know it again: an inode number may be used anew */
    ino_t unix_inode;
    struct timespec unix_made;
};

struct qd_socket_settings {
    int backlog;
    bool is_https;          /* over TCP, as its name says */
    mode_t unix_mode;       /* of a Unix socket's file, and its owner: */
    const char *unix_owner; /* USER, USER:GROUP or :GROUP, names or numbers; "": as we are */
    bool is_shared;         /* qd_socket_join will follow */
};

/* Binds and listens. address: ADDR:PORT, [ADDR6]:PORT or unix:PATH. A Unix socket's file has its
 * mode and owner before anybody can connect, and replaces a socket file on which nobody listens.
 * False: `error` says why. Sets the umask meanwhile: no other thread makes files. */
bool qd_socket_listen(struct qd_socket *listener, const char *address,
                      const struct qd_socket_settings *settings, struct qd_error *error);

/* Another descriptor for the same address, for another loop; `first` was opened with is_shared. Of
 * TCP connections the kernel gives each to one of them for good, by a hash of addresses and ports;
 * of a Unix socket all have the same queue, and whoever comes first takes from it. A second quantd
 * cannot listen there: to be the first, a socket has to be alone on its address. (A program of the
 * same user could join that asks for SO_REUSEPORT, socket(7), before its bind.) */
bool qd_socket_join(struct qd_socket *listener, const struct qd_socket *first, int backlog,
                    struct qd_error *error);

/* Bounds what the kernel keeps for a connection's peer that does not read. True: it is a Unix
 * socket. */
bool qd_socket_bound_send(int fd);

/* SO_SNDBUF; Linux doubles the number. */
void qd_socket_set_send_bytes(int fd, int bytes);

/* What a Unix socket's peer has not read yet, with what the kernel needs for it; or what TCP's has
 * not acknowledged. */
uint64_t qd_socket_unread(int fd);

/* How many bytes the other end of a TCP connection has acknowledged so far. False: it is none, or a
 * system that stands in for Linux does not tell, as QEMU's emulated one does not. */
bool qd_socket_acknowledged(int fd, uint64_t *count);

/* Removes the Unix socket's file, if it is still its own: nobody new can connect. */
void qd_socket_unlink(const struct qd_socket *listener);

#endif
