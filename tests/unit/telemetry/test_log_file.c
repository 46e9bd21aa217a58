/* Lines that a thread writes, and files that cannot be written. */
#define _GNU_SOURCE
#include "server/telemetry/log_file.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/quantd-log-file-XXXXXX";
static char path[64];
static char moved[64];

static void setup(void)
{
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/log", folder);
    snprintf(moved, sizeof(moved), "%s/log.1", folder);
}

static void teardown(void)
{
    unlink(path);
    unlink(moved);
    rmdir(folder);
}

TestSuite(log_file, .init = setup, .fini = teardown);

static struct qd_log_file *create(const char *where)
{
    struct qd_error error;
    struct qd_log_file *file = qd_log_file_create(where, &error);
    cr_assert_not_null(file, "%s", error.text);
    return file;
}

static void put(struct qd_log_file *file, uint64_t number)
{
    struct qd_line line;
    qd_line_begin(&line, QD_LINE_TEXT, "info", "event");
    qd_line_number(&line, "number", number);
    qd_line_end(&line);
    qd_log_file_put(file, &line);
}

/* Returns how many lines the file has. Asserts that each is complete and in order. */
static uint64_t count_lines(FILE *file, uint64_t *next)
{
    char line[200];
    uint64_t count = 0;
    while (fgets(line, sizeof(line), file) != NULL) {
        unsigned long long number;
        const char *field = strstr(line, " level=info msg=\"event\" number=");
        cr_assert_not_null(field, "%s", line);
        cr_assert_eq(sscanf(strrchr(line, '='), "=%llu\n", &number), 1);
        cr_assert_geq(number, *next);
        *next = number + 1;
        count++;
    }
    fclose(file);
    return count;
}

Test(log_file, all_lines_are_there_at_the_end)
{
    enum { COUNT = 20000 };
    struct qd_log_file *file = create(path);
    for (uint64_t i = 0; i < COUNT; i++) {
        put(file, i);
        if (i % 5000 == 0)
            usleep(60000);
    }
    const uint64_t dropped = qd_log_file_dropped(file);
    qd_log_file_destroy(file);
    uint64_t next = 0;
    cr_assert_eq(count_lines(fopen(path, "r"), &next), COUNT - dropped);
    cr_assert_lt(dropped, COUNT / 2);
}

Test(log_file, a_moved_file_is_made_anew)
{
    struct qd_log_file *file = create(path);
    put(file, 0);
    put(file, 1);
    while (access(path, F_OK) != 0)
        usleep(1000);
    cr_assert_eq(rename(path, moved), 0);
    qd_log_file_reopen(file);
    while (access(path, F_OK) != 0)
        usleep(1000);
    put(file, 2);
    qd_log_file_destroy(file);
    uint64_t next = 0;
    cr_assert_eq(count_lines(fopen(moved, "r"), &next), 2);
    cr_assert_eq(count_lines(fopen(path, "r"), &next), 1);
}

Test(log_file, a_full_disk_takes_nothing)
{
    struct qd_log_file *file = create("/dev/full");
    put(file, 0);
    put(file, 1);
    while (qd_log_file_dropped(file) < 2)
        usleep(1000);
    qd_log_file_destroy(file);
}

/* Neither adding a line nor the end waits for the reader, who comes only afterwards. */
Test(log_file, a_pipe_that_nobody_reads)
{
    cr_assert_eq(mkfifo(path, 0600), 0);
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    struct qd_log_file *file = create(path);
    uint64_t count = 0;
    while (qd_log_file_dropped(file) == 0)
        put(file, count++);
    cr_assert_gt(count, 10000);
    qd_log_file_destroy(file);
    uint64_t next = 0;
    cr_assert_eq(fcntl(reader, F_SETFL, 0), 0);
    cr_assert_gt(count_lines(fdopen(reader, "r"), &next), 100);
}

Test(log_file, files_that_cannot_be)
{
    struct qd_error error;
    cr_assert_null(qd_log_file_create("/nowhere/log", &error));
    cr_assert_not_null(strstr(error.text, "/nowhere/log"), "%s", error.text);
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_assert_null(qd_log_file_create(path, &error), "a pipe without a reader");
    cr_assert_null(qd_log_file_create(folder, &error));
    qd_log_file_destroy(NULL);
}
