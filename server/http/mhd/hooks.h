/* Hooks into libmicrohttpd, and into what it calls: the only code that depends on how the library
 * works inside. README.md, in this folder, says why each hook exists and what happens without it.
 *
 * Calls of a function of another library go to the first definition that the loader finds, and the
 * program's definitions come before any library's. This folder therefore defines seven functions
 * again (QD_HOOK_LIST). Each definition passes on the calls that do not concern it.
 *
 * Nothing promises that the library calls these functions. qd_hooks_start tries it out. Where a
 * hook is not called as expected, connections are plain: the library reads and sends by itself, and
 * a connection ends after one answer.
 *
 * All functions without another comment run on the connection's loop's thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "server/http/wire/connection.h"
#include "server/http/wire/tls.h"

/* The hooks: name, group, function. The hooks of a group work together or not at all. */
#define QD_HOOK_LIST(X)                     \
    X(RECV, SOCKET, recv)                   \
    X(SEND, SOCKET, send)                   \
    X(SENDMSG, SOCKET, sendmsg)             \
    X(HANDSHAKE, TLS, gnutls_handshake)     \
    X(RECORD_RECV, TLS, gnutls_record_recv) \
    X(RECORD_SEND, TLS, gnutls_record_send) \
    X(BYE, TLS, gnutls_bye)

enum qd_hook {
#define X(name, group, function) QD_HOOK_##name,
    QD_HOOK_LIST(X)
#undef X
        QD_HOOK_COUNT
};

enum qd_hook_group {
    QD_HOOKS_SOCKET, /* connections without TLS */
    QD_HOOKS_TLS,
};

/* Tries out all hooks, those of TLS only if `tls` is not NULL, and logs a warning for each one that
 * is not called. Later calls do nothing. Must be called before any daemon runs. */
void qd_hooks_start(const struct qd_tls *tls);

/* Returns true if the trial has seen all hooks of the group. May be called on any thread. */
bool qd_hooks_work(enum qd_hook_group group);

/* Hooks a connection without TLS. A connection with TLS is hooked by qd_tls_begin. Returns false if
 * malloc failed. */
bool qd_io_hooks_add(struct qd_connection *connection);
void qd_io_hooks_remove(const struct qd_connection *connection);
bool qd_io_hooks_has(const struct qd_connection *connection);

/* Frees this thread's table. Call it after the last connection was removed. */
void qd_io_hooks_deinit(void);

enum {
    /* These are lower than any error of recv or GnuTLS. */
    QD_IO_HOOKS_LATER = -100001, /* there is nothing to read now */
    QD_IO_HOOKS_CLOSE = -100002, /* the connection is over */
};

/* Takes up to `count` bytes of the request's body, which the library offers. Returns how many were
 * taken, like qd_request_take_body. */
size_t qd_io_hooks_take_body(struct qd_connection *connection, const char *bytes, size_t count);

/* Calls `read` in place of the library, and returns what the library is to take for its result, or
 * one of the values above. If framing.c finds a fault in a request, the library gets no more bytes
 * of it. connection->all->on_fault answers that request once all requests before it have been
 * answered. */
ssize_t qd_io_hooks_read(struct qd_connection *connection,
                         ssize_t (*read)(void *source, void *bytes, size_t count), void *source,
                         void *bytes, size_t count);

/* ---- What the hooks need of the trial: trial.c -------------------------------------------- */

/* Returns the function that the loader finds after ours. */
void *qd_hook_next(enum qd_hook hook);

/* The same, with the type of our function. The cast goes by an integer, because ISO C has none from
 * void * to a function pointer. */
#define QD_HOOK_NEXT(hook, function) ((__typeof__(&(function)))(uintptr_t)qd_hook_next(hook))

/* Notes that the library has called the hook, if a trial runs on this thread. Returns true then. */
bool qd_trial_saw(enum qd_hook hook);
