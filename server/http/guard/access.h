/* Decides which requests are admitted: checks bearer tokens, and says which web pages may send
 * requests (CORS). All functions but qd_access_create and qd_access_destroy may be called on any
 * thread. */
#pragma once

#include <stdbool.h>

#include "server/config/config.h"
#include "server/http/wire/head.h"
#include "server/work/request.h"

struct qd_access;

/* Reads config->token_file, if there is one. Returns NULL, with the reason in `error`, on failure.
 * `config` is borrowed. */
struct qd_access *qd_access_create(const struct qd_config *config, struct qd_error *error);
void qd_access_destroy(struct qd_access *access); /* NULL is fine */

/* Reads the file again, on one thread at a time. If it is invalid, the log says why, and the old
 * tokens stay in use. */
void qd_access_reload(struct qd_access *access);

/* Returns true if web pages of some origin may send requests. NULL is fine: no page may. */
bool qd_access_has_cors(const struct qd_access *access);

/* Checks a request whose head has arrived, before its body is read. Requests for health need no
 * token. Sets request->user and adds the headers that the answer needs. On failure, request->error
 * has the reason. */
enum qd_status qd_access_admit(struct qd_access *access, const struct qd_head *head,
                               struct qd_request *request);

/* ---- CORS ---------------------------------------------------------------------------------- */

/* --cors-origin says which web pages may send requests, by the rules of fetch.spec.whatwg.org. A
 * browser sends an OPTIONS request (a preflight) before a request that a page could not send
 * without CORS. It hides an answer from the page unless the answer names the page's origin, or all
 * origins. All three functions are pure.
 *
 * Returns true for an OPTIONS request if any origin is allowed. Browsers send preflights without a
 * token, so they are answered without one. */
bool qd_cors_is_preflight(const struct qd_config *config, const struct qd_head *head);

/* Adds the headers that every answer needs, including a refusal. Adds none without --cors-origin.
 * `config` is borrowed until the request ends. */
void qd_cors_add_headers(const struct qd_config *config, const struct qd_head *head,
                         struct qd_request *request);

/* Answers a preflight for a path that has these methods, such as "GET, HEAD". Returns QD_OK. */
enum qd_status qd_cors_answer(const char *methods, struct qd_request *request);
