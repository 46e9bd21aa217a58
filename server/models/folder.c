#define _GNU_SOURCE
#include "server/models/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Copies the part of a path before its first slash. False: none that could be inside a folder. */
static bool copy_part(const char *path, char part[NAME_MAX + 1])
{
    size_t count = strcspn(path, "/");
    if (count == 0 || count > NAME_MAX)
        return false;
    memcpy(part, path, count);
    part[count] = '\0';
    return strcmp(part, "..") != 0;
}

/* Where a system before Linux 5.6 or a sandbox has no openat2. It asks for more: no links at all
 * within the path. */
static int open_part_by_part(int at, const char *path, int flags)
{
    char part[NAME_MAX + 1];
    int folder = at;
    int opened = -1;
    for (bool last = false; !last; path += strlen(part) + 1) {
        last = strchr(path, '/') == NULL;
        opened = -1;
        errno = EXDEV;
        if (copy_part(path, part)) {
            int how = last ? flags : O_PATH | O_DIRECTORY | O_CLOEXEC;
            opened = openat(folder, part, O_NOFOLLOW | how);
        }
        int reason = errno;
        if (folder != at)
            close(folder);
        errno = reason;
        if (opened < 0)
            return -1;
        folder = opened;
    }
    return opened;
}

static int open_beneath(int at, const char *path, int flags)
{
    struct open_how how = {
        .flags = (unsigned)flags,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
    };
    for (int i = 0; i < 16; i++) { /* EAGAIN: somebody moves folders meanwhile */
        long fd = syscall(SYS_openat2, at, path, &how, sizeof(how));
        if (fd >= 0)
            return (int)fd;
        if (errno == ENOSYS || errno == EPERM)
            return open_part_by_part(at, path, flags);
        if (errno != EAGAIN && errno != EINTR)
            break;
    }
    return -1;
}

static enum qd_status fail(const char *shown, const char *what, struct qd_error *error)
{
    switch (errno) {
    case ENOENT:
        return qd_fail(error, QD_NOT_FOUND, "%.200s: there is no such %s", shown, what);
    case EXDEV:
    case ELOOP:
        return qd_fail(
            error, QD_INVALID,
            "%.200s: expected a %s inside the folder where it is looked for; the path or "
            "a link leaves it",
            shown, what);
    case ENOTDIR:
        return qd_fail(error, QD_INVALID, "%.200s: expected a %s, got something else", shown, what);
    case EMFILE:
    case ENFILE:
    case ENOMEM:
        return qd_fail(error, QD_UNAVAILABLE, "%.200s: cannot be opened just now: %s", shown,
                       strerror(errno));
    default:
        return qd_fail(error, QD_INVALID, "%.200s: cannot be opened: %s", shown, strerror(errno));
    }
}

enum qd_status qd_folder_open(int at, const char *path, const char *shown, int *fd,
                              struct qd_error *error)
{
    *fd = open_beneath(at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *fd < 0 ? fail(shown, "folder", error) : QD_OK;
}

enum qd_status qd_folder_open_file(int folder, const char *path, const char *shown,
                                   uint64_t bytes_max, int *fd, struct stat *about,
                                   struct qd_error *error)
{
    *fd = open_beneath(folder, path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (*fd < 0)
        return fail(shown, "file", error);
    enum qd_status status = QD_OK;
    if (fstat(*fd, about) != 0) {
        status = fail(shown, "file", error);
    } else if (!S_ISREG(about->st_mode)) {
        status = qd_fail(error, QD_INVALID, "%.200s: expected a regular file", shown);
    } else if ((uint64_t)about->st_size > bytes_max) {
        status = qd_fail(error, QD_TOO_LARGE,
                         "%.200s: expected at most %llu bytes (--max-model-bytes), got %llu", shown,
                         (unsigned long long)bytes_max, (unsigned long long)about->st_size);
    }
    if (status != QD_OK)
        close(*fd);
    return status;
}
