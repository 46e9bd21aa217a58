#include "server/base/limits.h"
#include "server/http/mhd/hooks.h"
#include "server/http/mhd/trial.h"

/* libmicrohttpd's own calls come here, instead of to its own function. Our code never calls this
 * definition. */
__attribute__((visibility("default"))) enum MHD_Result
MHD_queue_response(struct MHD_Connection *connection, unsigned http_status,
                   struct MHD_Response *response)
{
    if (qd_trial_saw(QD_HOOK_QUEUE_RESPONSE))
        return MHD_NO;
    enum MHD_Result result;
    return qd_hook_on_error(connection, http_status, &result)
               ? result
               : qd_error_hook_queue(connection, http_status, response);
}

enum MHD_Result qd_error_hook_queue(struct MHD_Connection *connection, unsigned http_status,
                                    struct MHD_Response *response)
{
    const union {
        void *symbol;
        enum MHD_Result (*queue)(struct MHD_Connection *connection, unsigned http_status,
                                 struct MHD_Response *response);
    } next = {qd_hook_next(QD_HOOK_QUEUE_RESPONSE)};
    return next.symbol == NULL ? MHD_NO : next.queue(connection, http_status, response);
}

void qd_error_hook_explain(unsigned http_status, bool in_head, bool in_body, struct qd_error *error)
{
    switch (http_status) {
    case MHD_HTTP_CONTENT_TOO_LARGE:
        qd_fail(error, QD_TOO_LARGE, "the body: expected a size of at most 64 bits, got more");
        break;
    case MHD_HTTP_URI_TOO_LONG:
        qd_fail(error, QD_LINE_TOO_LONG,
                "the first line: expected a target of at most %u bytes, got more",
                QD_HEAD_BYTES_MAX);
        break;
    case MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE:
        qd_fail(
            error, QD_HEAD_TOO_LARGE,
            "the head: expected at most %u bytes, %u more for each field and cookie and cookies "
            "three times, got more",
            QD_HEAD_BYTES_MAX, QD_HEAD_FIELD_BYTES);
        break;
    case MHD_HTTP_HTTP_VERSION_NOT_SUPPORTED:
        qd_fail(error, QD_OTHER_VERSION, "the first line: expected HTTP/1.x, got another version");
        break;
    default:
        qd_fail(error, QD_INVALID, "%s",
                in_body   ? "the body: expected chunks as RFC 9112 has them, got something else"
                : in_head ? "the head: expected NAME: VALUE in each line, got one without a colon"
                          : "the first line: expected METHOD TARGET HTTP/1.1, got something else");
    }
}

bool qd_error_hook_would_repeat(struct MHD_Connection *connection, bool in_body)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    return MHD_get_version()[0] == '0' && !in_body && info != NULL && info->header_size > 0;
}
