/* Lines on standard error, also if nothing reads them. */
#define _GNU_SOURCE
#include "server/telemetry/log.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static int pipe_ends[2];

static void setup(void)
{
    cr_assert_eq(pipe(pipe_ends), 0);
    cr_assert_geq(dup2(pipe_ends[1], STDERR_FILENO), 0);
}

static void teardown(void)
{
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

TestSuite(log, .init = setup, .fini = teardown);

Test(log, one_line_without_control_characters)
{
    char line[200] = "";
    qd_log(QD_LOG_DEBUG, "dropped", "%s", "");
    qd_log(QD_LOG_INFO, "event", "text=\"%s\"", "a\nb\033c");
    cr_assert_gt(read(pipe_ends[0], line, sizeof(line) - 1), 0);
    cr_assert_not_null(strstr(line, " level=info msg=\"event\" text=\"a?b?c\"\n"), "%s", line);
    cr_assert_eq(line[strlen(line) - 1], '\n');
}

Test(log, each_level_by_itself)
{
    char lines[1000] = "";
    qd_log_enable(QD_LOG_INFO, false);
    qd_log_enable(QD_LOG_DEBUG, true);
    qd_log(QD_LOG_INFO, "info", "%s", "");
    qd_log(QD_LOG_DEBUG, "debug", "%s", "");
    cr_assert_not(qd_log_enabled(QD_LOG_INFO));
    qd_log_set_level(QD_LOG_WARN);
    qd_log(QD_LOG_DEBUG, "debug again", "%s", "");
    qd_log(QD_LOG_ERROR, "error", "%s", "");
    cr_assert_gt(read(pipe_ends[0], lines, sizeof(lines) - 1), 0);
    cr_assert_null(strstr(lines, "\"info\""));
    cr_assert_not_null(strstr(lines, "level=debug msg=\"debug\"\n"));
    cr_assert_null(strstr(lines, "again"));
    cr_assert_not_null(strstr(lines, "level=error msg=\"error\"\n"));
}

Test(log, json)
{
    char line[1000] = "";
    qd_log_set_format(QD_LINE_JSON);
    qd_log(QD_LOG_WARN, "event", "text=\"%s\" count=%d", "a\nb", 3);
    cr_assert_gt(read(pipe_ends[0], line, sizeof(line) - 1), 0);
    cr_assert_not_null(
        strstr(line, "\"level\":\"warn\",\"msg\":\"event\",\"text\":\"a\\u000ab\",\"count\":3}\n"),
        "%s", line);
}

/* The value cannot end its quotes, and readers of logfmt and of JSON get it back. */
Test(log, a_value_with_quotes)
{
    static const char *const wanted[] = {" why=\"{\\\"a\\\": \\\\\" count=3\n",
                                         ",\"why\":\"{\\\"a\\\": \\\\\",\"count\":3}\n"};
    for (int format = QD_LINE_TEXT; format <= QD_LINE_JSON; format++) {
        char line[1000] = "";
        qd_log_set_format((enum qd_line_format)format);
        qd_log(QD_LOG_WARN, "event", "why=\"%s\" count=%d", qd_log_value("{\"a\": \\").text, 3);
        cr_assert_gt(read(pipe_ends[0], line, sizeof(line) - 1), 0);
        cr_assert_not_null(strstr(line, wanted[format]), "%s", line);
    }
}

/* The server continues. */
Test(log, a_reader_that_stands_still_stops_nothing)
{
    char all[4096];
    char last = 0;
    ssize_t count = 0, got;
    for (int i = 0; i < 10000; i++)
        qd_log(QD_LOG_INFO, "event", "number=%d", i);
    cr_assert_eq(fcntl(pipe_ends[0], F_SETFL, O_NONBLOCK), 0);
    while ((got = read(pipe_ends[0], all, sizeof(all))) > 0) {
        count += got;
        last = all[got - 1];
    }
    cr_assert_gt(count, 4096);
    cr_assert_gt(qd_log_dropped(), 1000);
    cr_assert_eq(last, '\n');
    qd_log(QD_LOG_INFO, "again", "%s", "");
    got = read(pipe_ends[0], all, sizeof(all));
    cr_assert_gt(got, 0);
    cr_assert_not_null(memmem(all, (size_t)got, "msg=\"again\"", 11));
}
