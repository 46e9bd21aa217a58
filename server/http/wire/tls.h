/* Sets up TLS with the operator's certificate and key. Only tls.c and mhd/tls_hooks.c include
 * GnuTLS. qd_tls_begin and qd_tls_end may be called on any thread. All other functions are for one
 * thread at a time. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "server/config/config.h"

/* TLS 1.2 and 1.3, with forward secrecy and authenticated encryption only. */
#define QD_TLS_PRIORITIES \
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-RSA:-AES-128-CBC:-AES-256-CBC:-SHA1"

#define QD_TLS_FILE_BYTES_MAX (1u << 20)
struct qd_tls;
struct qd_connection;
struct qd_tls_identity; /* a certificate and its key, as read at one time */

/* Reads config->tls_cert and config->tls_key. Returns NULL, with the reason in `error`, on failure.
 * `config` is borrowed. */
struct qd_tls *qd_tls_create(const struct qd_config *config, struct qd_error *error);
void qd_tls_destroy(struct qd_tls *tls); /* NULL is fine */

/* Reads both files again. If one is invalid, the log says why, and the old identity stays. */
void qd_tls_reload(struct qd_tls *tls);

/* Return the texts of both files, in PEM. libmicrohttpd needs them when it starts.
 * qd_tls_forget_texts may clear them afterwards. */
const char *qd_tls_cert_text(const struct qd_tls *tls);
const char *qd_tls_key_text(const struct qd_tls *tls);
void qd_tls_forget_texts(struct qd_tls *tls);

/* Gives a session the newest identity before its handshake, and the hooks its connection
 * (mhd/hooks.h).
 * `session` is a gnutls_session_t. The caller passes the returned identity to qd_tls_end once the
 * session has ended. Returns NULL if GnuTLS refuses the identity; the session then keeps the one
 * that libmicrohttpd gave it. */
struct qd_tls_identity *qd_tls_begin(struct qd_tls *tls, void *session,
                                     struct qd_connection *connection);
void qd_tls_end(struct qd_tls_identity *identity); /* NULL is fine */

/* Sends bytes past libmicrohttpd. The library must not have closed the connection yet. */
enum qd_tls_sent {
    QD_TLS_SENT, /* all bytes have been sent */
    QD_TLS_KEPT, /* the socket is full, and GnuTLS keeps the record that has to wait. GnuTLS takes
                    no other bytes until this record has been sent. Earlier records of the same call
                    have been sent. */
    QD_TLS_LOST, /* the session is over */
};
enum qd_tls_sent qd_tls_send(void *session, const void *bytes, size_t count)
    __attribute__((warn_unused_result));

/* Tells the client that no more bytes come, if the socket has room for that. */
void qd_tls_end_sending(void *session);

/* Returns how many decrypted bytes the session holds that have not been read. */
size_t qd_tls_decrypted_bytes(void *session);

/* Acts as a client of this server itself, so it does not check the server's certificate. Does the
 * handshake, sends the question, and reads the answer until the server closes or `room` is full.
 * Returns the length of the answer, or -1 with the reason in `error`. */
ssize_t qd_tls_ask(int fd, const char *question, char *answer, size_t room, struct qd_error *error);
