#define _GNU_SOURCE
#include "server/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reads until the end of the file or of the room. Returns how many bytes it read, or -1 with errno
 * set. */
static ssize_t read_all(int fd, char *text, size_t room)
{
    size_t count = 0;
    while (count < room) {
        ssize_t got = read(fd, text + count, room - count);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        count += (size_t)got;
    }
    return (ssize_t)count;
}

const char *qd_file_kind(mode_t mode)
{
    if (S_ISDIR(mode))
        return "a folder";
    if (S_ISCHR(mode) || S_ISBLK(mode))
        return "a device";
    if (S_ISFIFO(mode))
        return "a FIFO";
    return S_ISSOCK(mode) ? "a socket" : "something else";
}

static bool refuse_kind(mode_t mode, struct qd_error *error)
{
    return qd_fail_startup(error, "expected a regular file, got %s", qd_file_kind(mode));
}

static bool read_open(int fd, size_t bytes_max, struct qd_file *file, struct qd_error *error)
{
    struct stat status;
    if (fstat(fd, &status) == 0 && !S_ISREG(status.st_mode))
        return refuse_kind(status.st_mode, error);
    file->is_public = (status.st_mode & S_IROTH) != 0;
    /* One more byte shows that the file is too large, and one is for the NUL. */
    file->text = calloc(1, bytes_max + 2);
    ssize_t count = file->text == NULL ? -1 : read_all(fd, file->text, bytes_max + 1);
    if (count >= 0 && (size_t)count <= bytes_max) {
        file->bytes = (size_t)count;
        file->text[count] = '\0';
        return true;
    }
    file->bytes = bytes_max + 1;
    if (count < 0)
        qd_fail_startup(error, "%s", strerror(errno));
    else
        qd_fail_startup(error, "expected at most %zu bytes", bytes_max);
    qd_file_forget(file);
    return false;
}

bool qd_file_read(const char *path, size_t bytes_max, struct qd_file *file, struct qd_error *error)
{
    *file = (struct qd_file){.text = NULL};
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY |
                            O_CLOEXEC); /* O_NONBLOCK: a pipe may have no writer */
    if (fd < 0) {
        const int reason = errno;
        struct stat status;
        if (reason == ENXIO && stat(path, &status) == 0 && S_ISSOCK(status.st_mode))
            return refuse_kind(status.st_mode, error); /* a socket cannot be opened */
        return qd_fail_startup(error, "%s", strerror(reason));
    }
    bool is_read = read_open(fd, bytes_max, file, error);
    close(fd);
    return is_read;
}

void qd_file_forget(struct qd_file *file)
{
    if (file->text != NULL)
        explicit_bzero(file->text, file->bytes);
    free(file->text);
    *file = (struct qd_file){.text = NULL};
}
