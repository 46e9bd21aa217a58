/* Opens the sockets that listen, for TCP and Unix, non-blocking and closed on exec, and tells what
 * the kernel knows of the sockets that they accept. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "server/base/status.h"
#include "server/config/address.h"

#define QD_LISTENER_NAME_BYTES 300

struct qd_socket {
    int fd;
    char name[QD_LISTENER_NAME_BYTES];  /* for people: "http://127.0.0.1:8000",
                                           "unix:/run/quantd.sock" */
    bool is_local;                      /* only this host can reach it */
    char unix_path[QD_UNIX_PATH_BYTES]; /* "": TCP */
    dev_t unix_device; /* device, inode and time identify the file, because an inode number may be
                          used again */
    ino_t unix_inode;
    struct timespec unix_made;
};

struct qd_socket_settings {
    int backlog;
    bool is_https;          /* TCP listeners use TLS, and their names begin with https */
    mode_t unix_mode;       /* the mode of a Unix socket's file */
    const char *unix_owner; /* its owner: USER, USER:GROUP or :GROUP, names or numbers; "": ours */
    bool is_shared;         /* qd_socket_join will be called for this socket */
};

/* Binds and listens. `address` is ADDR:PORT, [ADDR6]:PORT or unix:PATH. A Unix socket's file has
 * its mode and owner before a client can connect. It replaces a socket file on which no process
 * listens. Returns false, with the reason in `error`, on failure. Sets the umask meanwhile, so no
 * other thread may create files. */
bool qd_socket_listen(struct qd_socket *listener, const char *address,
                      const struct qd_socket_settings *settings, struct qd_error *error);

/* Opens another descriptor for the same address, for another loop. `first` was opened with
 * is_shared.
 *
 * The kernel gives each TCP connection to one of these sockets for good, by a hash of addresses and
 * ports. The descriptors of a Unix socket share one queue, and the first loop to accept takes a
 * connection from it.
 *
 * A second quantd cannot listen on the address, because a socket can be the first only if no other
 * socket is bound to it. (A program of the same user could join if it asks for SO_REUSEPORT,
 * socket(7), before its bind.)
 *
 * Returns false, with the reason in `error`, on failure. */
bool qd_socket_join(struct qd_socket *listener, const struct qd_socket *first, int backlog,
                    struct qd_error *error);

/* Bounds how many bytes the kernel keeps for a peer that does not read. Returns true if the
 * connection is a Unix socket's. */
bool qd_socket_bound_send(int fd);

/* Sets SO_SNDBUF. Linux doubles the number. */
void qd_socket_set_send_bytes(int fd, int bytes);

/* Returns how many bytes a Unix socket's peer has not read yet, including the kernel's overhead, or
 * how many bytes a TCP peer has not acknowledged. */
uint64_t qd_socket_unread(int fd);

/* Sets *count to how many bytes the peer of a TCP connection has acknowledged so far. Returns false
 * if the connection is not TCP, or if a system that imitates Linux does not tell, such as QEMU's
 * user-mode emulation. */
bool qd_socket_acknowledged(int fd, uint64_t *count);

/* Removes the Unix socket's file, if the file at the path is still this socket's. After that nobody
 * can connect. */
void qd_socket_unlink(const struct qd_socket *listener);
