#include "server/http/api/handlers.h"

#include <inttypes.h>
#include <string.h>

#include "server/json/tree.h"
#include "server/telemetry/log.h"

enum { SWITCH_COUNT = 3 };

static const enum qd_log_level levels[SWITCH_COUNT] = {QD_LOG_INFO, QD_LOG_WARN, QD_LOG_ERROR};

/* What a call says. */
struct change {
    bool switches[SWITCH_COUNT]; /* of `levels` */
    uint64_t verbosity;
    const struct qd_json_value *format; /* NULL: not set */
    const struct qd_json_value *file;
};

void qd_print_logging(const struct qd_request_context *context, struct qd_text *text)
{
    const char *log_format = atomic_load(&context->server->log_format);
    qd_text_format(text,
                   "{\"log_file\":\"\",\"log_info\":%s,\"log_warning\":%s,\"log_error\":%s,"
                   "\"log_verbose_level\":%" PRIu64 ",\"log_format\":\"%s\"}",
                   qd_log_enabled(QD_LOG_INFO) ? "true" : "false",
                   qd_log_enabled(QD_LOG_WARN) ? "true" : "false",
                   qd_log_enabled(QD_LOG_ERROR) ? "true" : "false", qd_log_verbosity(),
                   log_format == NULL ? "default" : log_format);
}

/* ---- Changing ----------------------------------------------------------------------------- */

static enum qd_status check_keys(const struct qd_json_value *tree,
                                 const struct qd_json_member *known, size_t count,
                                 struct qd_error *error)
{
    for (const struct qd_json_value *member = tree->first; member != NULL; member = member->next) {
        size_t i = 0;
        while (i < count && strcmp(member->key, known[i].key) != 0)
            i++;
        if (i == count) {
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

static enum qd_status read_change(const struct qd_json_value *tree, struct change *change,
                                  struct qd_error *error)
{
    enum { KEY_COUNT = 6 };
    const struct qd_json_member members[KEY_COUNT] = {
        {"log_info", QD_JSON_TAKES_BOOL, &change->switches[0]},
        {"log_warning", QD_JSON_TAKES_BOOL, &change->switches[1]},
        {"log_error", QD_JSON_TAKES_BOOL, &change->switches[2]},
        {"log_verbose_level", QD_JSON_TAKES_COUNT, &change->verbosity},
        {"log_format", QD_JSON_TAKES_ANY, &change->format},
        {"log_file", QD_JSON_TAKES_ANY, &change->file},
    };
    if (check_keys(tree, members, KEY_COUNT, error) != QD_OK ||
        qd_json_read_members(tree, NULL, members, KEY_COUNT, error) != QD_OK)
        return error->status;
    const char *file = change->file == NULL ? "" : qd_json_string(change->file);
    if (file == NULL || *file != '\0') {
        return qd_fail(error, QD_NOT_IMPLEMENTED,
                       "log_file: the log goes to standard error; calls cannot change that");
    }
    if (change->format != NULL && find_format(change->format) == NULL)
        return qd_json_expected(NULL, "log_format", "default, ISO8601 or json", change->format,
                                error);
    return QD_OK;
}

/* Changes only what differs from `before`, because another loop may be changing the rest. */
static void apply(const struct change *change, const struct change *before,
                  struct qd_server *server)
{
    for (size_t i = 0; i < SWITCH_COUNT; i++)
        if (change->switches[i] != before->switches[i])
            qd_log_enable(levels[i], change->switches[i]);
    if (change->verbosity != before->verbosity)
        qd_log_set_verbosity(change->verbosity);
    if (change->format != NULL) {
        const char *name = find_format(change->format);
        atomic_store(&server->log_format, name);
        qd_log_set_format(strcmp(name, "default") == 0 ? server->log_format_initial
                          : strcmp(name, "json") == 0  ? QD_LINE_JSON
                                                       : QD_LINE_TEXT);
    }
}

bool qd_end_logging(void *context, struct qd_request *request)
{
    struct qd_server *server = context;
    struct change before = {.verbosity = qd_log_verbosity()};
    const struct qd_json_value *tree;
    for (size_t i = 0; i < SWITCH_COUNT; i++)
        before.switches[i] = qd_log_enabled(levels[i]);
    struct change change = before;
    enum qd_status status = qd_context_read_body(request, &tree);
    if (status == QD_OK && tree != NULL) {
        status = read_change(tree, &change, &request->error);
        if (status == QD_OK) {
            qd_log(QD_LOG_INFO, "a call changes what is logged", "user=\"%s\"",
                   qd_log_value(request->user).text);
            apply(&change, &before, server);
        }
    }
    if (status == QD_OK) {
        struct qd_text text;
        qd_text_init(&text, &request->arena);
        qd_print_logging(&(struct qd_request_context){.server = server}, &text);
        qd_context_answer_text(request, &text);
    }
    return true;
}
