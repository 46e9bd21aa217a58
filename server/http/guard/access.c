#include "server/http/guard/access.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "server/base/file.h"
#include "server/base/snapshots.h"
#include "server/http/guard/tokens.h"
#include "server/http/path.h"
#include "server/memory/text.h"
#include "server/telemetry/log.h"

struct qd_access {
    const struct qd_config *config;
    bool asks_tokens; /* false: there are no tokens, and all requests are admitted */
    struct qd_snapshots tokens;
};

/* ---- The file ----------------------------------------------------------------------------- */

static void log_tokens(const struct qd_access *access, const struct qd_tokens *tokens,
                       bool is_public)
{
    const char *path = access->config->token_file;
    qd_log(QD_LOG_INFO, "tokens are read", "file=\"%s\" count=%zu", qd_log_value(path).text,
           tokens->count);
    if (is_public)
        qd_log(QD_LOG_WARN, "everybody on this host may read the tokens", "file=\"%s\"",
               qd_log_value(path).text);
    if (tokens->short_count > 0) {
        qd_log(QD_LOG_WARN, "short tokens may be guessed", "file=\"%s\" shorter_than_%d=%zu",
               qd_log_value(path).text, QD_TOKEN_SHORT_BYTES, tokens->short_count);
    }
}

/* Returns NULL, with the reason in `error`, on failure. */
static struct qd_tokens *read_tokens(const struct qd_access *access, bool *is_public,
                                     struct qd_error *error)
{
    struct qd_file file;
    struct qd_error why;
    struct qd_tokens *tokens = NULL;
    bool is_read = qd_file_read(access->config->token_file, QD_TOKEN_FILE_BYTES_MAX, &file, &why);
    if (is_read)
        tokens = qd_tokens_create(file.text, file.bytes, &why);
    *is_public = file.is_public;
    if (tokens == NULL)
        qd_fail_startup(error, "--token-file %.256s: %s", access->config->token_file, why.text);
    if (is_read)
        qd_file_forget(&file);
    return tokens;
}

struct qd_access *qd_access_create(const struct qd_config *config, struct qd_error *error)
{
    struct qd_access *access = calloc(1, sizeof(*access));
    qd_fail_startup(error, "out of memory");
    if (access == NULL)
        return NULL;
    access->config = config;
    access->asks_tokens = config->token_file[0] != '\0';
    if (!access->asks_tokens)
        return access;
    bool is_public;
    struct qd_tokens *tokens = read_tokens(access, &is_public, error);
    if (tokens == NULL) {
        free(access);
        return NULL;
    }
    log_tokens(access, tokens, is_public);
    qd_snapshots_init(&access->tokens, tokens, free);
    return access;
}

void qd_access_destroy(struct qd_access *access)
{
    if (access == NULL)
        return;
    if (access->asks_tokens)
        qd_snapshots_deinit(&access->tokens);
    free(access);
}

void qd_access_reload(struct qd_access *access)
{
    struct qd_error error;
    if (!access->asks_tokens)
        return;
    bool is_public;
    struct qd_tokens *tokens = read_tokens(access, &is_public, &error);
    if (tokens != NULL && qd_snapshots_replace(&access->tokens, tokens)) {
        log_tokens(access, tokens, is_public);
        return;
    }
    if (tokens != NULL) {
        free(tokens);
        qd_fail_startup(&error,
                        "expected a free copy of the tokens, got %d that requests still use",
                        QD_SNAPSHOT_COUNT_MAX);
    }
    qd_log(QD_LOG_ERROR, "the tokens stay as they were", "error=\"%s\"",
           qd_log_value(error.text).text);
}

bool qd_access_has_cors(const struct qd_access *access)
{
    return access != NULL && access->config->cors_origin_count > 0;
}

/* ---- A request ---------------------------------------------------------------------------- */

/* Refuses a request, with the challenge that RFC 6750 requires. */
static enum qd_status refuse(struct qd_request *request, enum qd_status status,
                             const char *challenge, const char *what)
{
    qd_request_add_header(request, "WWW-Authenticate", challenge);
    return qd_fail(&request->error, status, "header Authorization: %s", what);
}

/* Copies the name of a token's user to `user`. Returns false if the token is unknown. Holds no lock
 * meanwhile, because hashing and comparing take longer than all other work for a small request. */
static bool find_user(struct qd_access *access, const char *token, size_t bytes,
                      char user[QD_USER_BYTES])
{
    struct qd_snapshot *tokens = qd_snapshots_take(&access->tokens);
    const char *name = qd_tokens_find(atomic_load(&tokens->object), token, bytes);
    if (name != NULL)
        snprintf(user, QD_USER_BYTES, "%s", name);
    qd_snapshots_give_back(&access->tokens, tokens);
    return name != NULL;
}

/* Returns the token in "Bearer TOKEN", without blanks after it, and sets *bytes to its length.
 * Returns NULL if the value has another form. */
static const char *bearer_token(const char *value, size_t *bytes)
{
    static const char scheme[] = "Bearer ";
    if (strncasecmp(value, scheme, strlen(scheme)) != 0)
        return NULL;
    const char *token = value + strlen(scheme);
    token += strspn(token, " ");
    *bytes = qd_trimmed_bytes(token, strlen(token));
    return *bytes > 0 ? token : NULL;
}

static enum qd_status check_token(struct qd_access *access, const struct qd_head *head,
                                  struct qd_request *request)
{
    if (head->authorization_count > 1) {
        return refuse(request, QD_INVALID, "Bearer realm=\"quantd\", error=\"invalid_request\"",
                      "expected at most one, got more");
    }
    size_t bytes;
    const char *token =
        head->authorization == NULL ? NULL : bearer_token(head->authorization, &bytes);
    if (token == NULL) {
        return refuse(request, QD_UNAUTHORIZED, "Bearer realm=\"quantd\"",
                      head->authorization == NULL ? "expected \"Bearer TOKEN\", got none"
                                                  : "expected \"Bearer TOKEN\", got another form");
    }
    if (!find_user(access, token, bytes, request->user)) {
        return refuse(request, QD_UNAUTHORIZED, "Bearer realm=\"quantd\", error=\"invalid_token\"",
                      "expected a token that this server knows, got another");
    }
    return QD_OK;
}

enum qd_status qd_access_admit(struct qd_access *access, const struct qd_head *head,
                               struct qd_request *request)
{
    qd_cors_add_headers(access->config, head, request);
    /* The console is served without a token: it has no secret, and asks its user for the token. */
    const bool is_console = access->config->console && strcmp(head->path, "/") == 0;
    if (!access->asks_tokens || qd_cors_is_preflight(access->config, head) ||
        qd_path_is_health(head->path) || is_console)
        return QD_OK;
    return check_token(access, head, request);
}
