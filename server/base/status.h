/* Errors of the server: a status, which decides the HTTP code, and a text for the client or the
 * operator. */
#pragma once

#include <stdbool.h>

/*    name, HTTP code */
#define QD_STATUS_LIST(X)        \
    X(OK, 200)                   \
    X(INVALID, 400)              \
    X(UNAUTHORIZED, 401)         \
    X(NOT_FOUND, 404)            \
    X(METHOD_NOT_ALLOWED, 405)   \
    X(TOO_SLOW, 408)             \
    X(TOO_LARGE, 413)            \
    X(LINE_TOO_LONG, 414)        \
    X(UNSUPPORTED_ENCODING, 415) \
    X(HEAD_TOO_LARGE, 431)       \
    X(INTERNAL, 500)             \
    X(NOT_IMPLEMENTED, 501)      \
    X(UNAVAILABLE, 503)          \
    X(OTHER_VERSION, 505)        \
    X(NOT_OFFERED,               \
      503) /* this server was started without the feature, so trying again is useless */

enum qd_status {
#define X(name, http) QD_##name,
    QD_STATUS_LIST(X)
#undef X
};

unsigned qd_status_http(enum qd_status status);

/* name, label `reason` in /metrics: why a request was refused */
#define QD_REASON_LIST(X)                                                                          \
    X(OTHER, "other")                     /* the status says everything */                         \
    X(MEMORY, "memory")                   /* --max-inflight-bytes */                               \
    X(MODEL_MEMORY, "model_memory")       /* --max-model-bytes */                                  \
    X(QUEUE, "queue")                     /* --max-queue, also for loads */                        \
    X(CONNECTIONS, "connections")         /* --max-connections */                                  \
    X(TIMEOUT, "timeout")                 /* the request's own timeout parameter */                \
    X(COMPUTE_TIMEOUT, "compute_timeout") /* --compute-timeout */                                  \
    X(SLOW_SENDER, "slow_sender")         /* --min-rate and --receive-timeout */                   \
    X(SLOW_READER, "slow_reader")         /* --min-rate; the connection is cut without an error */ \
    X(SHUTDOWN, "shutdown")

enum qd_reason {
#define X(name, text) QD_REASON_##name,
    QD_REASON_LIST(X)
#undef X
        QD_REASON_COUNT
};

/* An error. Its text is formatted in the struct itself, so that reporting an error never needs
 * memory. The text may contain bytes from the client. The JSON printer escapes them. */
struct qd_error {
    enum qd_status status;
    enum qd_reason reason;
    char text[512];
};

/* Fills `error`, and returns `status`. */
enum qd_status qd_fail_for(struct qd_error *error, enum qd_reason reason, enum qd_status status,
                           const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Calls qd_fail_for with the reason OTHER: qd_fail(error, status, format, ...). */
#define qd_fail(error, ...) qd_fail_for(error, QD_REASON_OTHER, __VA_ARGS__)

/* Like qd_fail, for a flag, file or address that cannot be used, before any request exists. Returns
 * false. */
bool qd_fail_startup(struct qd_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
