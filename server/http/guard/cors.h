/* Says which web pages may send requests: --cors-origin, by the rules of fetch.spec.whatwg.org. A
 * browser sends an OPTIONS request (a preflight) before a request that a page could not send
 * without CORS. It hides an answer from the page unless the answer names the page's origin, or all
 * origins. Pure. */
#ifndef SERVER_HTTP_GUARD_CORS_H
#define SERVER_HTTP_GUARD_CORS_H

#include <stdbool.h>

#include "server/config/config.h"
#include "server/http/wire/head.h"
#include "server/work/request.h"

/* Returns true for an OPTIONS request if any origin is allowed. Browsers send preflights without a
 * token, so they are answered without one. */
bool qd_cors_is_preflight(const struct qd_config *config, const struct qd_head *head);

/* Adds the headers that every answer needs, including a refusal. Adds none without --cors-origin.
 * `config` is borrowed until the request ends. */
void qd_cors_add_headers(const struct qd_config *config, const struct qd_head *head,
                         struct qd_request *request);

/* Answers a preflight for a path that has these methods, such as "GET, HEAD". Returns QD_OK. */
enum qd_status qd_cors_answer(const char *methods, struct qd_request *request);

#endif
