#include "server/base/log.h"

#include <poll.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES_MAX = 1024 };

static enum qd_log_level level_min = QD_LOG_INFO;

void qd_log_set_level(enum qd_log_level level)
{
    level_min = level;
}

static size_t print_head(char *line, enum qd_log_level level, const char *event)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    size_t count = strftime(line, LINE_BYTES_MAX, "ts=%Y-%m-%dT%H:%M:%S", &utc);
    int more = snprintf(line + count, LINE_BYTES_MAX - count, ".%03ldZ level=%s msg=\"%s\" ",
                        now.tv_nsec / 1000000, names[level], event);
    return count + (size_t)more;
}

void qd_log_list(enum qd_log_level level, const char *event, const char *format, va_list arguments)
{
    if (level < level_min)
        return;
    char line[LINE_BYTES_MAX];
    size_t count = print_head(line, level, event);
    int more = vsnprintf(line + count, sizeof(line) - count, format, arguments);
    count += more > 0 ? (size_t)more : 0;
    count = count < sizeof(line) - 1 ? count : sizeof(line) - 1;
    for (size_t i = 0; i < count; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
            line[i] = '?';
    if (line[count - 1] == ' ')
        count--;
    line[count++] = '\n';
    /* A pipe has room for a whole line, or is not ready. */
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&out, 1, 0) <= 0)
        return; /* nobody reads, and all who wait for the loop would wait for that */
    if (write(STDERR_FILENO, line, count) < 0)
        return; /* nobody is left to tell */
}

void qd_log(enum qd_log_level level, const char *event, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    qd_log_list(level, event, format, arguments);
    va_end(arguments);
}

struct qd_logged qd_log_value(const char *text)
{
    struct qd_logged value;
    snprintf(value.text, sizeof(value.text), "%s", text);
    for (char *c = value.text; *c != '\0'; c++)
        *c = *c == '"' ? '\'' : *c;
    return value;
}
