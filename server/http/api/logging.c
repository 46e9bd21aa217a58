#include "server/http/api/handlers.h"

#include <inttypes.h>
#include <string.h>

#include "server/json/tree.h"
#include "server/telemetry/log.h"

static const struct {
    const char *key;
    enum qd_log_level level;
} switches[] = {
    {"log_info", QD_LOG_INFO},
    {"log_warning", QD_LOG_WARN},
    {"log_error", QD_LOG_ERROR},
};

enum { SWITCH_COUNT = sizeof(switches) / sizeof(*switches) };

static const char verbose_key[] = "log_verbose_level";
static const char format_key[] = "log_format";
static const char file_key[] = "log_file";

/* The values that a call sets; NULL: not set. */
struct change {
    const struct qd_json_value *switches[SWITCH_COUNT];
    const struct qd_json_value *verbose;
    const struct qd_json_value *format;
};

static enum qd_status answer(const struct qd_server *server, struct qd_request *request)
{
    const char *log_format = atomic_load(&server->log_format);
    struct qd_text text;
    qd_text_init(&text, &request->arena);
    qd_text_string(&text, "{\"log_file\":\"\"");
    for (size_t i = 0; i < SWITCH_COUNT; i++) {
        qd_text_format(&text, ",\"%s\":%s", switches[i].key,
                       qd_log_enabled(switches[i].level) ? "true" : "false");
    }
    qd_text_format(&text, ",\"%s\":%" PRIu64 ",\"%s\":\"%s\"}", verbose_key, qd_log_verbosity(),
                   format_key, log_format == NULL ? "default" : log_format);
    return qd_context_answer_text(request, &text);
}

enum qd_status qd_answer_logging(const struct qd_request_context *context)
{
    return answer(context->server, context->request);
}

/* ---- Changing ----------------------------------------------------------------------------- */

static bool is_known(const char *key)
{
    for (size_t i = 0; i < SWITCH_COUNT; i++)
        if (strcmp(key, switches[i].key) == 0)
            return true;
    return strcmp(key, verbose_key) == 0 || strcmp(key, format_key) == 0 ||
           strcmp(key, file_key) == 0;
}

static enum qd_status check_keys(const struct qd_json_value *tree, struct qd_error *error)
{
    const struct qd_json_value *member = tree->first;
    for (; member != NULL; member = member->next) {
        if (!is_known(member->key)) {
            return qd_fail(
                error, QD_INVALID,
                "the body: expected log_info, log_warning, log_error, log_verbose_level, "
                "log_format or log_file, got %s",
                qd_show_string(member->key).text);
        }
    }
    return QD_OK;
}

static const char *const formats[] = {"default", "ISO8601", "json"};

/* Returns the entry of `formats` that the value names, or NULL. */
static const char *find_format(const struct qd_json_value *value)
{
    const char *text = qd_json_string(value);
    for (size_t i = 0; text != NULL && i < sizeof(formats) / sizeof(*formats); i++)
        if (strcmp(text, formats[i]) == 0)
            return formats[i];
    return NULL;
}

static enum qd_status check_values(const struct change *change, struct qd_error *error)
{
    int64_t level;
    bool flag;
    for (size_t i = 0; i < SWITCH_COUNT; i++) {
        if (change->switches[i] != NULL && !qd_json_bool(change->switches[i], &flag)) {
            return qd_fail(error, QD_INVALID, "%s: expected true or false, got %s", switches[i].key,
                           qd_json_show(change->switches[i]).text);
        }
    }
    if (change->verbose != NULL && (!qd_json_whole(change->verbose, &level) || level < 0)) {
        return qd_fail(error, QD_INVALID, "%s: expected an integer in [0, 2^53), got %s",
                       verbose_key, qd_json_show(change->verbose).text);
    }
    if (change->format != NULL && find_format(change->format) == NULL) {
        return qd_fail(error, QD_INVALID, "%s: expected default, ISO8601 or json, got %s",
                       format_key, qd_json_show(change->format).text);
    }
    return QD_OK;
}

static enum qd_status read_change(const struct qd_json_value *tree, struct change *change,
                                  struct qd_error *error)
{
    const struct qd_json_value *file;
    enum qd_status status = check_keys(tree, error);
    for (size_t i = 0; status == QD_OK && i < SWITCH_COUNT; i++)
        status = qd_json_field(tree, NULL, switches[i].key, &change->switches[i], error);
    if (status == QD_OK)
        status = qd_json_field(tree, NULL, verbose_key, &change->verbose, error);
    if (status == QD_OK)
        status = qd_json_field(tree, NULL, format_key, &change->format, error);
    if (status == QD_OK)
        status = qd_json_field(tree, NULL, file_key, &file, error);
    if (status == QD_OK && file != NULL &&
        (qd_json_string(file) == NULL || *qd_json_string(file) != '\0')) {
        return qd_fail(error, QD_NOT_IMPLEMENTED,
                       "%s: the log goes to standard error; calls cannot change that", file_key);
    }
    return status == QD_OK ? check_values(change, error) : status;
}

static void apply(const struct change *change, struct qd_server *server)
{
    int64_t level;
    bool flag;
    for (size_t i = 0; i < SWITCH_COUNT; i++)
        if (change->switches[i] != NULL && qd_json_bool(change->switches[i], &flag))
            qd_log_enable(switches[i].level, flag);
    if (change->verbose != NULL && qd_json_whole(change->verbose, &level))
        qd_log_set_verbosity((uint64_t)level);
    if (change->format != NULL) {
        const char *name = find_format(change->format);
        atomic_store(&server->log_format, name);
        qd_log_set_format(strcmp(name, "default") == 0 ? server->log_format_initial
                          : strcmp(name, "json") == 0  ? QD_LINE_JSON
                                                       : QD_LINE_TEXT);
    }
}

static bool end_logging(void *context, struct qd_request *request)
{
    struct qd_server *server = context;
    struct change change = {.verbose = NULL};
    const struct qd_json_value *tree;
    enum qd_status status = qd_context_read_body(request, &tree);
    if (status == QD_OK && tree != NULL) {
        status = read_change(tree, &change, &request->error);
        if (status == QD_OK) {
            qd_log(QD_LOG_INFO, "a call changes what is logged", "user=\"%s\"",
                   qd_log_value(request->user).text);
            apply(&change, server);
        }
    }
    if (status == QD_OK)
        status = answer(server, request);
    if (status == QD_OK)
        qd_request_advance(request, QD_REPLYING);
    else
        qd_request_refuse(request);
    return true;
}

enum qd_status qd_begin_logging(const struct qd_request_context *context)
{
    if (qd_context_check_encoding(context) != QD_OK)
        return context->request->error.status;
    context->request->end = end_logging;
    return qd_context_reserve_small(context);
}
