#include "server/http/guard/access.h"

#include <string.h>

/* For how many seconds a browser may cache the answer to a preflight. Chromium's own bound is two
 * hours. */
#define MAX_AGE_S "7200"

bool qd_cors_is_preflight(const struct qd_config *config, const struct qd_head *head)
{
    return config->cors_origin_count > 0 && strcmp(head->method, "OPTIONS") == 0;
}

/* Returns the origin that the answer allows: the request's, or "*" for all. NULL: the request's
 * origin is not allowed. */
static const char *allowed_origin(const struct qd_config *config, const char *origin)
{
    const char *allowed = NULL;
    for (size_t i = 0; i < config->cors_origin_count; i++) {
        if (strcmp(config->cors_origins[i], "*") == 0)
            return "*";
        if (origin != NULL && strcmp(config->cors_origins[i], origin) == 0)
            allowed = config->cors_origins[i];
    }
    return allowed;
}

void qd_cors_add_headers(const struct qd_config *config, const struct qd_head *head,
                         struct qd_request *request)
{
    if (config->cors_origin_count == 0)
        return;
    const char *allowed = allowed_origin(config, head->origin);
    if (allowed == NULL || strcmp(allowed, "*") != 0)
        qd_request_add_header(request, "Vary", "Origin"); /* or caches would mix origins up */
    if (allowed == NULL || head->origin == NULL)
        return;
    qd_request_add_header(request, "Access-Control-Allow-Origin", allowed);
    if (!qd_cors_is_preflight(config, head)) {
        qd_request_add_header(
            request, "Access-Control-Expose-Headers",
            "Inference-Header-Content-Length, Server-Timing, Retry-After, traceresponse");
        return;
    }
    qd_request_add_header(
        request, "Access-Control-Allow-Headers",
        "Authorization, Content-Encoding, Content-Type, Inference-Header-Content-Length, "
        "traceparent, tracestate");
    qd_request_add_header(request, "Access-Control-Max-Age", MAX_AGE_S);
}

enum qd_status qd_cors_answer(const char *methods, struct qd_request *request)
{
    request->answer = (struct qd_answer){.http_status = 204, .allow = methods};
    for (size_t i = 0; i < request->header_count; i++)
        if (strcmp(request->headers[i].name, "Access-Control-Allow-Origin") == 0) {
            qd_request_add_header(request, "Access-Control-Allow-Methods", methods);
            break;
        }
    return QD_OK;
}
