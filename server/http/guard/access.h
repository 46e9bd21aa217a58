/* Who may come in: bearer tokens, and which web pages may ask (CORS). On any thread, but for its
 * making and its end. */
#ifndef SERVER_HTTP_GUARD_ACCESS_H
#define SERVER_HTTP_GUARD_ACCESS_H

#include <stdbool.h>

#include "server/config/config.h"
#include "server/http/wire/head.h"
#include "server/work/request.h"

struct qd_access;

/* Reads config->token_file, if there is one. NULL: `error` says why. config is borrowed. */
struct qd_access *qd_access_create(const struct qd_config *config, struct qd_error *error);
void qd_access_destroy(struct qd_access *access); /* NULL is fine */

/* Reads the file anew. Of a bad one the log says what is wrong, and the tokens stay as they were.
 */
void qd_access_reload(struct qd_access *access);

/* Web pages may ask. NULL: none may. */
bool qd_access_has_cors(const struct qd_access *access);

/* A request's head came, and nothing of its body is read. Health is for all who ask. Fills
 * request->user and what its answer's headers need; a failure is in request->error. */
enum qd_status qd_access_admit(struct qd_access *access, const struct qd_head *head,
                               struct qd_request *request);

#endif
