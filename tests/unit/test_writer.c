/* Lines that a thread writes, and files that take none. */
#define _GNU_SOURCE
#include "server/base/writer.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/base/clock.h"

static char folder[] = "/tmp/quantd-writer-XXXXXX";
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

TestSuite(writer, .init = setup, .fini = teardown, .timeout = 30);

static struct qd_writer *create(const char *where)
{
    char complaint[QD_WRITER_COMPLAINT_BYTES];
    struct qd_writer *writer = qd_writer_create(where, complaint);
    cr_assert_not_null(writer, "%s", complaint);
    return writer;
}

static void put(struct qd_writer *writer, uint64_t number)
{
    struct qd_line line;
    qd_line_begin(&line, QD_LINE_TEXT, "info", "event");
    qd_line_number(&line, "number", number);
    qd_line_end(&line);
    qd_writer_put(writer, &line);
}

/* How many lines it has, each whole and in their order. */
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

Test(writer, all_lines_are_there_at_the_end)
{
    enum { COUNT = 20000 };
    struct qd_writer *writer = create(path);
    for (uint64_t i = 0; i < COUNT; i++) {
        put(writer, i);
        if (i % 5000 == 0)
            usleep(60000);
    }
    const uint64_t dropped = qd_writer_dropped(writer);
    qd_writer_destroy(writer);
    uint64_t next = 0;
    cr_assert_eq(count_lines(fopen(path, "r"), &next), COUNT - dropped);
    cr_assert_lt(dropped, COUNT / 2);
}

Test(writer, a_moved_file_is_made_anew)
{
    struct qd_writer *writer = create(path);
    put(writer, 0);
    put(writer, 1);
    while (access(path, F_OK) != 0)
        usleep(1000);
    cr_assert_eq(rename(path, moved), 0);
    qd_writer_reopen(writer);
    while (access(path, F_OK) != 0)
        usleep(1000);
    put(writer, 2);
    qd_writer_destroy(writer);
    uint64_t next = 0;
    cr_assert_eq(count_lines(fopen(moved, "r"), &next), 2);
    cr_assert_eq(count_lines(fopen(path, "r"), &next), 1);
}

Test(writer, a_full_disk_takes_nothing)
{
    struct qd_writer *writer = create("/dev/full");
    put(writer, 0);
    put(writer, 1);
    while (qd_writer_dropped(writer) < 2)
        usleep(1000);
    qd_writer_destroy(writer);
}

/* Putting does not wait, and neither does the end, for long. */
Test(writer, a_pipe_that_nobody_reads)
{
    cr_assert_eq(mkfifo(path, 0600), 0);
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    struct qd_writer *writer = create(path);
    const uint64_t begin_ns = qd_clock_ns();
    uint64_t count = 0;
    while (qd_writer_dropped(writer) == 0)
        put(writer, count++);
    cr_assert_gt(count, 10000);
    cr_assert_lt(qd_clock_ns() - begin_ns, 5 * QD_NS_PER_S);
    const uint64_t end_ns = qd_clock_ns();
    qd_writer_destroy(writer);
    cr_assert_lt(qd_clock_ns() - end_ns, 5 * QD_NS_PER_S);
    uint64_t next = 0;
    cr_assert_eq(fcntl(reader, F_SETFL, 0), 0);
    cr_assert_gt(count_lines(fdopen(reader, "r"), &next), 100);
}

Test(writer, files_that_cannot_be)
{
    char complaint[QD_WRITER_COMPLAINT_BYTES];
    cr_assert_null(qd_writer_create("/nowhere/log", complaint));
    cr_assert_not_null(strstr(complaint, "/nowhere/log"), "%s", complaint);
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_assert_null(qd_writer_create(path, complaint), "a pipe without a reader");
    cr_assert_null(qd_writer_create(folder, complaint));
    qd_writer_destroy(NULL);
}
