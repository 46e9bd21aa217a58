#include "server/telemetry/log.h"

#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "server/telemetry/log_file.h"

#define BIT(level) (1u << (level))

static atomic_uint enabled_levels = BIT(QD_LOG_INFO) | BIT(QD_LOG_WARN) | BIT(QD_LOG_ERROR);
static atomic_uint line_format = QD_LINE_TEXT;
static atomic_ullong verbosity; /* while QD_LOG_DEBUG is enabled */
static atomic_ullong dropped;   /* not counting those that log_file dropped */
/* NULL: the calling thread writes the line. Never freed, because another thread may be putting a
 * line at the end. */
static _Atomic(struct qd_log_file *) log_file;
static atomic_bool has_stopped;

void qd_log_set_level(enum qd_log_level level)
{
    for (enum qd_log_level each = QD_LOG_DEBUG; each <= QD_LOG_ERROR; each++)
        qd_log_enable(each, each >= level);
}

void qd_log_enable(enum qd_log_level level, bool enabled)
{
    if (enabled)
        atomic_fetch_or(&enabled_levels, BIT(level));
    else
        atomic_fetch_and(&enabled_levels, ~BIT(level));
}

bool qd_log_enabled(enum qd_log_level level)
{
    return (atomic_load_explicit(&enabled_levels, memory_order_relaxed) & BIT(level)) != 0;
}

void qd_log_set_verbosity(uint64_t wanted)
{
    atomic_store(&verbosity, wanted);
    qd_log_enable(QD_LOG_DEBUG, wanted > 0);
}

uint64_t qd_log_verbosity(void)
{
    const uint64_t wanted = atomic_load(&verbosity);
    return !qd_log_enabled(QD_LOG_DEBUG) ? 0 : wanted > 0 ? wanted : 1;
}

void qd_log_set_format(enum qd_line_format format)
{
    atomic_store(&line_format, format);
}

uint64_t qd_log_dropped(void)
{
    const struct qd_log_file *file = atomic_load(&log_file);
    return atomic_load(&dropped) + (file == NULL ? 0 : qd_log_file_dropped(file));
}

void qd_log_begin(struct qd_line *line, enum qd_log_level level, const char *event)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};
    enum qd_line_format format = atomic_load_explicit(&line_format, memory_order_relaxed);
    qd_line_begin(line, format, names[level], event);
}

bool qd_log_start(struct qd_error *error)
{
    struct qd_log_file *started = qd_log_file_create(NULL, error);
    atomic_store(&log_file, started);
    return started != NULL;
}

void qd_log_stop(void)
{
    struct qd_log_file *file = atomic_load(&log_file);
    if (file != NULL && !atomic_exchange(&has_stopped, true))
        qd_log_file_end(file);
}

/* Writes a line on the calling thread, before the log's thread has started and after it has ended,
 * when no other thread logs. */
static void write_directly(const struct qd_line *line)
{
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&out, 1, 0) <= 0 || write(STDERR_FILENO, line->bytes, line->count) < 0)
        atomic_fetch_add(&dropped, 1);
}

void qd_log_write(const struct qd_line *line)
{
    struct qd_log_file *file = atomic_load_explicit(&log_file, memory_order_acquire);
    if (file != NULL && !atomic_load_explicit(&has_stopped, memory_order_relaxed))
        qd_log_file_put(file, line);
    else
        write_directly(line);
}

void qd_log(enum qd_log_level level, const char *event, const char *format, ...)
{
    char pairs[QD_LINE_BYTES_MAX];
    struct qd_line line;
    if (!qd_log_enabled(level))
        return;
    va_list arguments;
    va_start(arguments, format);
    if (vsnprintf(pairs, sizeof(pairs), format, arguments) < 0)
        *pairs = '\0';
    va_end(arguments);
    qd_log_begin(&line, level, event);
    qd_line_pairs(&line, pairs);
    qd_line_end(&line);
    qd_log_write(&line);
}

struct qd_logged qd_log_value(const char *text)
{
    struct qd_logged value;
    size_t count = 0;
    for (; *text != '\0' && count < sizeof(value.text) - 2; text++) {
        if (*text == '"' || *text == '\\')
            value.text[count++] = '\\';
        value.text[count++] = *text;
    }
    value.text[count] = '\0';
    return value;
}
