#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "server/models/repository/folder.h"

/* The test's folder, with another one next to it. */
static char base[64];
static int folder;
static struct qd_error error;

static void write_file(const char *path, const char *text)
{
    int fd = openat(folder, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static void setup(void)
{
    char inside[80];
    snprintf(base, sizeof(base), "/tmp/quantd-folder-XXXXXX");
    cr_assert_not_null(mkdtemp(base));
    snprintf(inside, sizeof(inside), "%s/inside", base);
    cr_assert_eq(mkdir(inside, 0700), 0);
    folder = open(inside, O_RDONLY | O_DIRECTORY);
    cr_assert_eq(mkdirat(folder, "../outside", 0700), 0);
    cr_assert_eq(mkdirat(folder, "deep", 0700), 0);
    write_file("../outside/secret", "secret");
    write_file("file", "12345");
    write_file("deep/file", "12345");
    cr_assert_eq(symlinkat("deep/file", folder, "link"), 0);
    cr_assert_eq(symlinkat("../outside/secret", folder, "escape"), 0);
    cr_assert_eq(symlinkat("../outside", folder, "way_out"), 0);
    cr_assert_eq(symlinkat("/etc", folder, "root"), 0);
    cr_assert_eq(symlinkat("loop", folder, "loop"), 0);
    cr_assert_eq(symlinkat("/proc/self/fd/0", folder, "magic"), 0);
    cr_assert_eq(symlinkat("nothing", folder, "dangling"), 0);
    cr_assert_eq(symlinkat("fifo", folder, "to_fifo"), 0);
    cr_assert_eq(symlinkat("/dev/null", folder, "device"), 0);
    cr_assert_eq(mkfifoat(folder, "fifo", 0600), 0);
    cr_assert_eq(mknodat(folder, "socket", S_IFSOCK | 0600, 0), 0);
}

static void teardown(void)
{
    char command[96];
    close(folder);
    snprintf(command, sizeof(command), "rm -r %s", base);
    cr_assert_eq(system(command), 0);
}

TestSuite(folder, .init = setup, .fini = teardown);

static enum qd_links links = QD_LINKS_INSIDE;

static enum qd_status open_file(const char *path, struct stat *about)
{
    int fd = -1;
    enum qd_status status =
        qd_folder_open_file(folder, path, links, path, 5, " (--limit)", &fd, about, &error);
    if (status == QD_OK)
        close(fd);
    return status;
}

/* If a system lacks openat2, as QEMU 7.2 does, the same files are refused with other texts, and all
 * links are refused as well. */
static bool has_openat2(void)
{
    return syscall(SYS_openat2, folder, "", NULL, 0) >= 0 || errno != ENOSYS;
}

Test(folder, opens_what_is_inside)
{
    static const char *const paths[] = {"file", "deep/file", "./deep/./file", "link"};
    const size_t count = sizeof(paths) / sizeof(*paths) - (has_openat2() ? 0 : 1);
    for (size_t i = 0; i < count; i++) {
        struct stat about;
        cr_assert_eq(open_file(paths[i], &about), QD_OK, "%s: %s", paths[i], error.text);
        cr_assert_eq(about.st_size, 5);
    }
    int fd;
    cr_assert_eq(qd_folder_open(folder, "deep", QD_LINKS_INSIDE, "deep", &fd, &error), QD_OK, "%s",
                 error.text);
    close(fd);
}

Test(folder, refuses_what_is_not)
{
    static const struct {
        const char *path;
        enum qd_status status;
        const char *text;
    } cases[] = {
        {"nothing", QD_NOT_FOUND, "expected a file, got none"},
        {"escape", QD_INVALID, "the path or a link leaves it"},
        {"way_out/secret", QD_INVALID, "the path or a link leaves it"},
        {"root/passwd", QD_INVALID, "the path or a link leaves it"},
        {"../outside/secret", QD_INVALID, "the path or a link leaves it"},
        {"deep/../../outside/secret", QD_INVALID, "the path or a link leaves it"},
        {"/etc/passwd", QD_INVALID, "the path or a link leaves it"},
        {"loop", QD_INVALID, "loop: expected a file, got a loop of links"},
        {"magic", QD_INVALID, "the path or a link leaves it"},
        {"escape", QD_INVALID, "leaves it (--allow-repository-links on follows links)"},
        {"dangling", QD_INVALID, "expected a file, got a link to nothing"},
        {"file/file", QD_INVALID, "got something else"},
        {"socket", QD_INVALID, "expected a regular file, got a socket"},
        {"fifo", QD_INVALID, "expected a regular file, got a FIFO"},
        {"deep", QD_INVALID, "expected a regular file, got a folder"},
        {"", QD_NOT_FOUND, "expected a file, got none"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct stat about;
        const enum qd_status status = open_file(cases[i].path, &about);
        cr_assert_neq(status, QD_OK, "%s", cases[i].path);
        if (!has_openat2())
            continue;
        cr_assert_eq(status, cases[i].status, "%s", cases[i].path);
        cr_assert_not_null(strstr(error.text, cases[i].text), "%s: %s", cases[i].path, error.text);
    }
}

Test(folder, refuses_large_files_by_their_size)
{
    struct stat about;
    int fd = openat(folder, "huge", O_WRONLY | O_CREAT, 0600);
    cr_assert_eq(ftruncate(fd, (off_t)1 << 40), 0);
    close(fd);
    cr_assert_eq(open_file("huge", &about), QD_TOO_LARGE);
    cr_assert_not_null(strstr(error.text, "at most 5 bytes (--limit), got 1099511627776"), "%s",
                       error.text);
}

Test(folder, folders_are_held_to_the_same)
{
    static const char *const paths[] = {"..", "way_out", "root", "file", "/", "nothing", "loop"};
    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
        int fd;
        cr_assert_neq(qd_folder_open(folder, paths[i], QD_LINKS_INSIDE, paths[i], &fd, &error),
                      QD_OK, "%s", paths[i]);
    }
}

Test(folder, links_may_lead_anywhere)
{
    /* The last one needs openat2. */
    static const char *const good[] = {"file", "deep/file",     "./deep/./file", "deep//file",
                                       "link", "way_out//blob", "hash",          "deep/../file"};
    const size_t good_count = sizeof(good) / sizeof(*good) - (has_openat2() ? 0 : 1);
    static const struct {
        const char *path;
        enum qd_status status;
        const char *text;
    } bad[] = {
        {"nothing", QD_NOT_FOUND, "expected a file, got none"},
        {"../outside/secret", QD_INVALID, "the path or a link leaves it"},
        {"deep/../../outside/secret", QD_INVALID, "the path or a link leaves it"},
        {"way_out/../outside/blob", QD_INVALID, "the path or a link leaves it"},
        {"/etc/passwd", QD_INVALID, "the path or a link leaves it"},
        {"//etc/passwd", QD_INVALID, "the path or a link leaves it"},
        {"file/", QD_INVALID, "got something else"},
        {"loop", QD_INVALID, "loop: expected a file, got a loop of links"},
        {"dangling", QD_INVALID, "got a link to nothing"},
        {"escape", QD_TOO_LARGE, "at most 5 bytes"},
        {"way_out/secret", QD_TOO_LARGE, "at most 5 bytes"},
        {"socket", QD_INVALID, "expected a regular file, got a socket"},
        {"fifo", QD_INVALID, "expected a regular file, got a FIFO"},
        {"to_fifo", QD_INVALID, "expected a regular file, got a FIFO"},
        {"device", QD_INVALID, "expected a regular file, got a device"},
        {"deep", QD_INVALID, "expected a regular file, got a folder"},
        {"", QD_NOT_FOUND, "expected a file, got none"},
    };
    struct stat about;
    links = QD_LINKS_ANYWHERE;
    write_file("../outside/blob", "12345");
    cr_assert_eq(symlinkat("way_out/blob", folder, "hash"), 0);
    for (size_t i = 0; i < good_count; i++) {
        cr_assert_eq(open_file(good[i], &about), QD_OK, "%s: %s", good[i], error.text);
        cr_assert_eq(about.st_size, 5);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        cr_assert_eq(open_file(bad[i].path, &about), bad[i].status, "%s", bad[i].path);
        cr_assert_not_null(strstr(error.text, bad[i].text), "%s: %s", bad[i].path, error.text);
    }
    if (has_openat2()) { /* otherwise the link is followed, and the result depends on what 0 is */
        cr_assert_eq(open_file("magic", &about), QD_INVALID);
        cr_assert_not_null(strstr(error.text, "got a link to a process's file in /proc"), "%s",
                           error.text);
    }
    int fd;
    cr_assert_eq(qd_folder_open(folder, "way_out", links, "way_out", &fd, &error), QD_OK);
    close(fd);
    cr_assert_eq(qd_folder_open(folder, "..", links, "..", &fd, &error), QD_INVALID);
    cr_assert_eq(qd_folder_open(folder, "link", links, "link", &fd, &error), QD_INVALID);
}

Test(folder, a_file_is_read_to_where_it_was_cut_short)
{
    char bytes[8] = "";
    struct stat about;
    int fd;
    cr_assert_eq(qd_folder_open_file(folder, "file", QD_LINKS_INSIDE, "net/file", 100, "", &fd,
                                     &about, &error),
                 QD_OK);
    cr_assert_eq(qd_folder_read(fd, 1, bytes, 4, "net/file", &error), QD_OK);
    cr_assert_str_eq(bytes, "2345");
    cr_assert_eq(qd_folder_read(fd, 1, bytes, 5, "net/file", &error), QD_UNAVAILABLE);
    cr_assert_str_eq(error.text, "net/file: it was cut short while it was read");
    cr_assert_eq(qd_folder_read(-1, 0, bytes, 1, "net/file", &error), QD_UNAVAILABLE);
    cr_assert_str_eq(error.text, "net/file: cannot be read: Bad file descriptor");
    close(fd);
}
