#define _GNU_SOURCE
#include "server/http/wire/tls.h"

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/base/file.h"
#include "server/telemetry/log.h"

struct qd_tls_identity {
    gnutls_certificate_credentials_t credentials;
    atomic_uint hold_count;
};

struct qd_tls {
    const struct qd_config *config;
    pthread_mutex_t lock; /* protects `newest` */
    struct qd_tls_identity *newest;
    struct qd_file cert;
    struct qd_file key;
};

/* ---- Certificate and key ------------------------------------------------------------------ */

static bool read_file(const char *flag, const char *path, struct qd_file *file,
                      struct qd_error *error)
{
    struct qd_error why;
    return qd_file_read(path, QD_TLS_FILE_BYTES_MAX, file, &why) ||
           qd_fail_startup(error, "%s %.256s: %s", flag, path, why.text);
}

static gnutls_datum_t datum(const struct qd_file *file)
{
    return (gnutls_datum_t){(unsigned char *)file->text, (unsigned)file->bytes};
}

/* Reads the expiry of the first certificate of a chain, and so checks that it is a certificate.
 * Returns GnuTLS's result. */
static int read_expiry(const struct qd_file *cert, time_t *until)
{
    gnutls_x509_crt_t parsed;
    gnutls_datum_t text = datum(cert);
    int result = gnutls_x509_crt_init(&parsed);
    if (result < 0)
        return result;
    result = gnutls_x509_crt_import(parsed, &text, GNUTLS_X509_FMT_PEM);
    *until = result < 0 ? 0 : gnutls_x509_crt_get_expiration_time(parsed);
    gnutls_x509_crt_deinit(parsed);
    return result;
}

static void log_identity(const struct qd_tls *tls, time_t until)
{
    const struct qd_logged path = qd_log_value(tls->config->tls_cert);
    struct tm utc;
    char text[32];
    strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&until, &utc));
    qd_log(QD_LOG_INFO, "the certificate is read", "file=\"%s\" until=%s", path.text, text);
    if (until <= time(NULL))
        qd_log(QD_LOG_WARN, "the certificate has expired", "file=\"%s\" until=%s", path.text, text);
    if (tls->key.is_public) {
        qd_log(QD_LOG_WARN, "everybody on this host may read the key", "file=\"%s\"",
               qd_log_value(tls->config->tls_key).text);
    }
}

/* Returns false. */
static bool refuse_cert(const struct qd_tls *tls, int result, struct qd_error *error)
{
    return qd_fail_startup(error, "--tls-cert %.256s: %s", tls->config->tls_cert,
                           gnutls_strerror(result));
}

/* Makes an identity of both files, and replaces the newest one with it. GnuTLS also checks that
 * certificate and key belong together. The expiry is read first, because GnuTLS 3.7 leaks memory if
 * it makes credentials of a text that is no certificate. */
static bool make_identity(struct qd_tls *tls, struct qd_error *error)
{
    time_t until;
    int result = read_expiry(&tls->cert, &until);
    if (result < 0)
        return refuse_cert(tls, result, error);
    struct qd_tls_identity *identity = calloc(1, sizeof(*identity));
    result = GNUTLS_E_MEMORY_ERROR;
    if (identity != NULL)
        result = gnutls_certificate_allocate_credentials(&identity->credentials);
    if (result < 0) {
        free(identity);
        return refuse_cert(tls, result, error);
    }
    atomic_init(&identity->hold_count, 1);
    gnutls_datum_t cert = datum(&tls->cert);
    gnutls_datum_t key = datum(&tls->key);
    result = gnutls_certificate_set_x509_key_mem2(identity->credentials, &cert, &key,
                                                  GNUTLS_X509_FMT_PEM, NULL, 0);
    if (result < 0) {
        qd_tls_end(identity);
        return qd_fail_startup(error, "--tls-cert %.160s, --tls-key %.160s: %s",
                               tls->config->tls_cert, tls->config->tls_key,
                               gnutls_strerror(result));
    }
    pthread_mutex_lock(&tls->lock);
    struct qd_tls_identity *before = tls->newest;
    tls->newest = identity;
    pthread_mutex_unlock(&tls->lock);
    qd_tls_end(before);
    log_identity(tls, until);
    return true;
}

static bool read_both(struct qd_tls *tls, struct qd_error *error)
{
    const struct qd_config *config = tls->config;
    return read_file("--tls-cert", config->tls_cert, &tls->cert, error) &&
           read_file("--tls-key", config->tls_key, &tls->key, error) && make_identity(tls, error);
}

struct qd_tls *qd_tls_create(const struct qd_config *config, struct qd_error *error)
{
    struct qd_tls *tls = calloc(1, sizeof(*tls));
    qd_fail_startup(error, "out of memory");
    if (tls == NULL)
        return NULL;
    tls->config = config;
    pthread_mutex_init(&tls->lock, NULL);
    if (read_both(tls, error))
        return tls;
    qd_tls_destroy(tls);
    return NULL;
}

void qd_tls_destroy(struct qd_tls *tls)
{
    if (tls == NULL)
        return;
    qd_tls_forget_texts(tls);
    qd_tls_end(tls->newest);
    pthread_mutex_destroy(&tls->lock);
    free(tls);
}

void qd_tls_reload(struct qd_tls *tls)
{
    struct qd_error error;
    if (!read_both(tls, &error))
        qd_log(QD_LOG_ERROR, "the certificate stays as it was", "error=\"%s\"",
               qd_log_value(error.text).text);
    qd_tls_forget_texts(tls);
}

const char *qd_tls_cert_text(const struct qd_tls *tls)
{
    return tls->cert.text;
}

const char *qd_tls_key_text(const struct qd_tls *tls)
{
    return tls->key.text;
}

void qd_tls_forget_texts(struct qd_tls *tls)
{
    qd_file_forget(&tls->cert);
    qd_file_forget(&tls->key);
}

/* ---- Sessions ----------------------------------------------------------------------------- */

struct qd_tls_identity *qd_tls_begin(struct qd_tls *tls, void *session,
                                     struct qd_connection *connection)
{
    gnutls_session_t own = session;
    gnutls_db_set_ptr(own, connection);
    pthread_mutex_lock(&tls->lock);
    struct qd_tls_identity *identity = tls->newest;
    atomic_fetch_add(&identity->hold_count, 1);
    pthread_mutex_unlock(&tls->lock);
    if (gnutls_credentials_set(own, GNUTLS_CRD_CERTIFICATE, identity->credentials) >= 0)
        return identity;
    qd_tls_end(identity);
    return NULL; /* the session keeps the credentials that libmicrohttpd gave it */
}

void qd_tls_end(struct qd_tls_identity *identity)
{
    if (identity == NULL || atomic_fetch_sub(&identity->hold_count, 1) > 1)
        return;
    gnutls_certificate_free_credentials(identity->credentials);
    free(identity);
}

enum qd_tls_sent qd_tls_send(void *session, const void *bytes, size_t count)
{
    const char *at = bytes;
    while (count > 0) {
        const ssize_t sent = gnutls_record_send(session, at, count);
        if (sent == GNUTLS_E_AGAIN || sent == GNUTLS_E_INTERRUPTED)
            return QD_TLS_KEPT;
        if (sent <= 0)
            return QD_TLS_LOST;
        at += sent;
        count -= (size_t)sent;
    }
    return QD_TLS_SENT;
}

void qd_tls_end_sending(void *session)
{
    gnutls_bye(session, GNUTLS_SHUT_WR);
}

size_t qd_tls_decrypted_bytes(void *session)
{
    return gnutls_record_check_pending(session);
}

/* ---- A client ----------------------------------------------------------------------------- */

/* Sends the question and reads the answer. Returns the answer's length, or a negative result of
 * GnuTLS. */
static ssize_t exchange(gnutls_session_t session, const char *question, char *answer, size_t room)
{
    ssize_t result;
    do {
        result = gnutls_handshake(session);
    } while (result < 0 && gnutls_error_is_fatal((int)result) == 0);
    if (result < 0)
        return result;
    size_t count = 0;
    do { /* the same bytes again, if a signal interrupted the call */
        result = gnutls_record_send(session, question, strlen(question));
    } while (result < 0 && gnutls_error_is_fatal((int)result) == 0);
    while (result >= 0 && count < room) {
        result = gnutls_record_recv(session, answer + count, room - count);
        if (result == 0)
            break;
        if (result < 0 && gnutls_error_is_fatal((int)result) == 0)
            result = 0;
        count += (size_t)(result > 0 ? result : 0);
    }
    return count > 0 || result >= 0 ? (ssize_t)count : result;
}

ssize_t qd_tls_ask(int fd, const char *question, char *answer, size_t room, struct qd_error *error)
{
    gnutls_certificate_credentials_t credentials = NULL;
    gnutls_session_t session = NULL;
    ssize_t result = gnutls_certificate_allocate_credentials(&credentials);
    if (result >= 0)
        result = gnutls_init(&session, GNUTLS_CLIENT | GNUTLS_NO_SIGNAL);
    if (result >= 0)
        result = gnutls_priority_set_direct(session, QD_TLS_PRIORITIES, NULL);
    if (result >= 0)
        result = gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, credentials);
    if (result >= 0) {
        gnutls_transport_set_int(session, fd);
        result = exchange(session, question, answer, room);
    }
    if (result < 0)
        qd_fail_startup(error, "%s", gnutls_strerror((int)result));
    if (session != NULL)
        gnutls_deinit(session);
    if (credentials != NULL)
        gnutls_certificate_free_credentials(credentials);
    return result < 0 ? -1 : result;
}
