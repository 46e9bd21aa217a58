/* TLS: the certificate and the key that the operator names. Only tls.c knows that it is GnuTLS's.
 * Sessions begin and end on any thread; all else is for one thread at a time. */
#ifndef SERVER_HTTP_WIRE_TLS_H
#define SERVER_HTTP_WIRE_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "server/config/config.h"

/* TLS 1.2 and 1.3, with forward secrecy and authenticated encryption only. */
#define QD_TLS_PRIORITIES \
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-RSA:-AES-128-CBC:-AES-256-CBC:-SHA1"

#define QD_TLS_FILE_BYTES_MAX (1u << 20)
struct qd_tls;
struct qd_connection;
struct qd_tls_identity; /* a certificate and its key, as they were read once */

/* Reads config->tls_cert and tls_key. NULL: `error` says why. config is borrowed. */
struct qd_tls *qd_tls_create(const struct qd_config *config, struct qd_error *error);
void qd_tls_destroy(struct qd_tls *tls); /* NULL is fine */

/* Reads both anew. If they are bad the log says why, and all stays as it was. */
void qd_tls_reload(struct qd_tls *tls);

/* Their texts, in PEM: libmicrohttpd wants them when it starts. Then they may be forgotten. */
const char *qd_tls_cert_text(const struct qd_tls *tls);
const char *qd_tls_key_text(const struct qd_tls *tls);
void qd_tls_forget_texts(struct qd_tls *tls);

/* A session begins, before its handshake: it gets the newest identity, and holds it until it has
 * ended. What is read from it is the connection's. `session` is a gnutls_session_t. */
struct qd_tls_identity *qd_tls_begin(struct qd_tls *tls, void *session,
                                     struct qd_connection *connection);
void qd_tls_end(struct qd_tls_identity *identity); /* NULL is fine */

/* Past libmicrohttpd, and only before its connection is closed. */
enum qd_tls_sent {
    QD_TLS_SENT, /* all of it is on its way */
    QD_TLS_KEPT, /* the socket is full, and GnuTLS keeps the record that had to wait: until it has
                  * gone, GnuTLS takes nothing else. Of several records, some may have gone. */
    QD_TLS_LOST, /* the session is over */
};
enum qd_tls_sent qd_tls_send(void *session, const void *bytes, size_t count)
    __attribute__((warn_unused_result));

/* Returns how many decrypted bytes the session holds that nobody has read. */
size_t qd_tls_decrypted_bytes(void *session);

/* As a client, of ourselves: whom it talks to is not checked. Handshake, question, answer, until
 * the server closes or there is no more room. The answer's bytes; -1: `error` says why. */
ssize_t qd_tls_ask(int fd, const char *question, char *answer, size_t room, struct qd_error *error);

#endif
