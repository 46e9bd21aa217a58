#define _GNU_SOURCE
#include "server/models/repository/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "server/base/file.h"

/* Copies the part of a path before its first slash. Returns false if the part is empty, too long,
 * or "..". */
static bool copy_part(const char *path, char part[NAME_MAX + 1])
{
    size_t count = strcspn(path, "/");
    if (count == 0 || count > NAME_MAX)
        return false;
    memcpy(part, path, count);
    part[count] = '\0';
    return strcmp(part, "..") != 0;
}

/* Sets errno to EXDEV if O_NOFOLLOW refused a link. The system sets ELOOP or ENOTDIR, which mean
 * something else to fail(). */
static void tell_link(int folder, const char *part)
{
    struct stat about;
    const int reason = errno;
    const bool is_link = (reason == ELOOP || reason == ENOTDIR) &&
                         fstatat(folder, part, &about, AT_SYMLINK_NOFOLLOW) == 0 &&
                         S_ISLNK(about.st_mode);
    errno = is_link ? EXDEV : reason;
}

/* Opens a path below a folder without openat2, which Linux before 5.6 and some sandboxes lack. It
 * is stricter than openat2, because it refuses all links within the path. */
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
            if (opened < 0)
                tell_link(folder, part);
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

/* Opens a path with openat2. Returns -1 on failure, with ENOSYS in errno if there is no openat2. */
static int open_resolved(int at, const char *path, int flags, uint64_t resolve)
{
    struct open_how how = {.flags = (unsigned)flags, .resolve = resolve};
    for (int i = 0; i < 16; i++) { /* EAGAIN: another process moves folders meanwhile */
        const long fd = syscall(SYS_openat2, at, path, &how, sizeof(how));
        if (fd >= 0)
            return (int)fd;
        if (errno == EPERM)
            errno = ENOSYS; /* a sandbox */
        if (errno != EAGAIN && errno != EINTR)
            break;
    }
    return -1;
}

/* True if no part of the path itself leaves the folder. Two slashes count as one. */
static bool stays_inside(const char *path)
{
    char part[NAME_MAX + 1];
    for (; *path != '\0'; path += strspn(path, "/")) {
        if (!copy_part(path, part))
            return false;
        path += strlen(part);
    }
    return true;
}

/* Opens a path below a folder. With QD_LINKS_ANYWHERE, it first tries the rules of QD_LINKS_INSIDE,
 * so it opens every path that these allow. */
static int open_below(int at, const char *path, enum qd_links links, int flags)
{
    int fd = open_resolved(at, path, flags, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS);
    if (links == QD_LINKS_INSIDE)
        return fd < 0 && errno == ENOSYS ? open_part_by_part(at, path, flags) : fd;
    if (fd >= 0)
        return fd;
    if (!stays_inside(path)) {
        errno = EXDEV;
        return -1;
    }
    if (errno != EXDEV && errno != ENOSYS)
        return fd;
    fd = open_resolved(at, path, flags, RESOLVE_NO_MAGICLINKS);
    return fd < 0 && errno == ENOSYS ? openat(at, path, flags) : fd;
}

/* Fails for ELOOP. openat2 also sets ELOOP for a link of /proc, because of RESOLVE_NO_MAGICLINKS.
 * fstatat follows such a link, and fails with ELOOP only at a loop. */
static enum qd_status fail_loop(int at, const char *path, const char *shown, const char *what,
                                struct qd_error *error)
{
    struct stat about;
    const bool is_loop = fstatat(at, path, &about, 0) != 0 && errno == ELOOP;
    return qd_fail(error, QD_INVALID, "%.200s: expected a %s, got a %s", shown, what,
                   is_loop ? "loop of links" : "link to a process's file in /proc");
}

static enum qd_status refuse_kind(const char *shown, mode_t mode, struct qd_error *error)
{
    return qd_fail(error, QD_INVALID, "%.200s: expected a regular file, got %s", shown,
                   qd_file_kind(mode));
}

/* Fails with the error that errno means for a folder or a file that could not be opened. */
static enum qd_status fail(int at, const char *path, const char *shown, const char *what,
                           struct qd_error *error)
{
    struct stat about;
    const int reason = errno;
    switch (reason) {
    case ENOENT:
        if (fstatat(at, path, &about, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(about.st_mode))
            return qd_fail(error, QD_INVALID, "%.200s: expected a %s, got a link to nothing", shown,
                           what);
        return qd_fail(error, QD_NOT_FOUND, "%.200s: expected a %s, got none", shown, what);
    case ELOOP:
        return fail_loop(at, path, shown, what, error);
    case EXDEV:
        return qd_fail(
            error, QD_INVALID,
            "%.200s: expected a %s inside the folder where it is looked for; the path or "
            "a link leaves it%s",
            shown, what, stays_inside(path) ? " (--allow-repository-links on follows links)" : "");
    case ENOTDIR:
        return qd_fail(error, QD_INVALID, "%.200s: expected a %s, got something else", shown, what);
    case ENXIO: /* a socket cannot be opened */
        if (fstatat(at, path, &about, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(about.st_mode))
            return refuse_kind(shown, about.st_mode, error);
        return qd_fail(error, QD_INVALID, "%.200s: cannot be opened: %s", shown, strerror(reason));
    case EMFILE:
    case ENFILE:
    case ENOMEM:
        return qd_fail(error, QD_UNAVAILABLE, "%.200s: cannot be opened just now: %s", shown,
                       strerror(reason));
    default:
        return qd_fail(error, QD_INVALID, "%.200s: cannot be opened: %s", shown, strerror(reason));
    }
}

enum qd_status qd_folder_open(int at, const char *path, enum qd_links links, const char *shown,
                              int *fd, struct qd_error *error)
{
    *fd = open_below(at, path, links, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *fd < 0 ? fail(at, path, shown, "folder", error) : QD_OK;
}

/* Checks the kind of a link's target without opening it, because opening some devices has an
 * effect. */
static enum qd_status check_target(int folder, const char *path, enum qd_links links,
                                   const char *shown, struct qd_error *error)
{
    struct stat about;
    const int fd = open_below(folder, path, links, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return fail(folder, path, shown, "file", error);
    if (fstat(fd, &about) != 0)
        about.st_mode = 0;
    close(fd);
    return S_ISREG(about.st_mode) ? QD_OK : refuse_kind(shown, about.st_mode, error);
}

enum qd_status qd_folder_open_file(int folder, const char *path, enum qd_links links,
                                   const char *shown, uint64_t bytes_max, const char *flag, int *fd,
                                   struct stat *about, struct qd_error *error)
{
    enum qd_status status =
        links == QD_LINKS_ANYWHERE ? check_target(folder, path, links, shown, error) : QD_OK;
    *fd = -1;
    if (status == QD_OK)
        *fd = open_below(folder, path, links, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (*fd < 0)
        return status == QD_OK ? fail(folder, path, shown, "file", error) : status;
    if (fstat(*fd, about) != 0) {
        status = fail(folder, path, shown, "file", error);
    } else if (!S_ISREG(about->st_mode)) {
        status = refuse_kind(shown, about->st_mode, error);
    } else if ((uint64_t)about->st_size > bytes_max) {
        status =
            qd_fail(error, QD_TOO_LARGE, "%.200s: expected at most %llu bytes%s, got %llu", shown,
                    (unsigned long long)bytes_max, flag, (unsigned long long)about->st_size);
    }
    if (status != QD_OK)
        close(*fd);
    return status;
}

enum qd_status qd_folder_read(int fd, uint64_t offset, char *bytes, size_t count, const char *shown,
                              struct qd_error *error)
{
    while (count > 0) {
        const ssize_t got = pread(fd, bytes, count, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return qd_fail(error, QD_UNAVAILABLE, "%.200s: cannot be read: %s", shown,
                           strerror(errno));
        if (got == 0)
            return qd_fail(error, QD_UNAVAILABLE, "%.200s: it was cut short while it was read",
                           shown);
        bytes += got;
        offset += (uint64_t)got;
        count -= (size_t)got;
    }
    return QD_OK;
}

enum qd_status qd_folder_read_file(int folder, const char *path, enum qd_links links,
                                   const char *shown, uint64_t bytes_max, struct qd_arena *arena,
                                   struct qd_part *file, struct qd_error *error)
{
    struct stat about;
    int fd;
    if (qd_folder_open_file(folder, path, links, shown, bytes_max, "", &fd, &about, error) != QD_OK)
        return error->status;
    const size_t bytes = (size_t)about.st_size;
    char *text = qd_arena_alloc(arena, bytes);
    const enum qd_status status = text == NULL ? qd_refuse_memory(arena, shown, error)
                                               : qd_folder_read(fd, 0, text, bytes, shown, error);
    close(fd);
    *file = (struct qd_part){text, bytes};
    return status;
}
