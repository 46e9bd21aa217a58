/* Which web pages may ask: --cors-origin, as fetch.spec.whatwg.org has it. A browser asks before it
 * sends what a page could not send without it (OPTIONS), and keeps an answer from the page unless
 * the answer names the page's origin. Pure. */
#ifndef SERVER_HTTP_GUARD_CORS_H
#define SERVER_HTTP_GUARD_CORS_H

#include <stdbool.h>

#include "server/config/config.h"
#include "server/http/wire/head.h"
#include "server/work/request.h"

/* An OPTIONS, while there are origins: it comes without a token, and is answered without one. */
bool qd_cors_is_preflight(const struct qd_config *config, const struct qd_head *head);

/* Adds what any answer needs, also a refusal: nothing without --cors-origin. config is borrowed for
 * as long as the request is there. */
void qd_cors_add_headers(const struct qd_config *config, const struct qd_head *head,
                         struct qd_request *request);

/* The answer to a preflight for a path that has these methods: "GET, HEAD". */
enum qd_status qd_cors_answer(const char *methods, struct qd_request *request);

#endif
