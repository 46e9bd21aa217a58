#define _GNU_SOURCE
#include "server/memory/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FOLDER "/dev/shm/" /* where the C library keeps such objects on Linux */

/* ---- The signal --------------------------------------------------------------------------- */

/* What the signal handler reads: without a lock, and without pointers to memory that may be freed.
 */
struct qd_mapping_slot {
    atomic_bool taken;
    atomic_uint version;     /* odd while the slot has no pages */
    _Atomic uintptr_t begin; /* the address of the first page */
    _Atomic uintptr_t end;
    atomic_bool lost;
};

static struct qd_mapping_slot slots[QD_MAPPING_COUNT_MAX];
static struct sigaction before; /* a sanitizer's handler, or none */
static size_t page_bytes;       /* read at start, because a signal handler may not call sysconf */

/* Replaces pages, by a system call. A signal handler may not call mmap, and the thread sanitizer's
 * mmap would report a race with other threads that read these bytes. */
static bool replace(uintptr_t begin, size_t bytes)
{
    return syscall(SYS_mmap, begin, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0L) != -1;
}

/* Replaces all pages of a mapping at once, so that there is one signal instead of one for each
 * page. A system that does not overcommit may refuse that many pages; then only the touched page is
 * replaced. The touched page stays mapped meanwhile, so a slot that changes at the same time
 * belongs to another mapping. */
static bool lose(struct qd_mapping_slot *slot, uintptr_t address)
{
    const unsigned version = atomic_load(&slot->version);
    const uintptr_t begin = atomic_load(&slot->begin);
    const uintptr_t end = atomic_load(&slot->end);
    if (version % 2 != 0 || atomic_load(&slot->version) != version || address < begin ||
        address >= end)
        return false;
    atomic_store(&slot->lost, true);
    return replace(begin, end - begin) || replace(address - address % page_bytes, page_bytes);
}

/* Handles SIGBUS. A signal for any other address keeps its normal effect: the instruction is tried
 * again without this handler. A signal that a process has sent, whose si_addr means nothing, is
 * sent again and arrives when this handler has returned. */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
    const int saved_errno = errno;
    const bool is_sent = info->si_code <= 0;
    bool ours = false;
    (void)context;
    for (size_t i = 0; i < QD_MAPPING_COUNT_MAX && !is_sent && !ours; i++)
        ours = lose(&slots[i], (uintptr_t)info->si_addr);
    if (!ours)
        sigaction(number, &before, NULL);
    if (is_sent)
        raise(number);
    errno = saved_errno;
}

void qd_mapping_catch_loss(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_RESTART};
    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &before);
}

/* Takes a slot that has no pages yet. Returns NULL if all are taken. */
static struct qd_mapping_slot *take_slot(void)
{
    for (size_t i = 0; i < QD_MAPPING_COUNT_MAX; i++) {
        struct qd_mapping_slot *slot = &slots[i];
        if (atomic_exchange(&slot->taken, true))
            continue;
        if (atomic_load(&slot->version) % 2 == 0) /* the slot is used for the first time */
            atomic_fetch_add(&slot->version, 1);
        return slot;
    }
    return NULL;
}

/* ---- Opening ------------------------------------------------------------------------------ */

const char *qd_mapping_name(const char *key)
{
    const char *name = key + strspn(key, "/");
    const bool is_name = *name != '\0' && strchr(name, '/') == NULL && strcmp(name, ".") != 0 &&
                         strcmp(name, "..") != 0 && strlen(name) < QD_MAPPING_KEY_BYTES;
    return is_name ? name : NULL;
}

/* Refuses an object that the server may not open, and says whose it is. */
static enum qd_status refuse_access(const char *name, struct qd_error *error)
{
    char path[sizeof(FOLDER) + QD_MAPPING_KEY_BYTES];
    char whose[96] = "";
    struct stat about;
    snprintf(path, sizeof(path), "%s%s", FOLDER, name);
    if (lstat(path, &about) == 0)
        snprintf(whose, sizeof(whose), ", which is user %u's, of group %u, with mode %04o",
                 about.st_uid, about.st_gid, about.st_mode & 07777U);
    return qd_fail(error, QD_INVALID,
                   "key: expected a shared memory object that the server's user, %u, may read and "
                   "write, got \"%.100s\"%s: run both as one user, or give it a group of the "
                   "server's, and mode 0660",
                   geteuid(), name, whose);
}

static enum qd_status refuse_open(const char *name, struct qd_error *error)
{
    if (errno == EACCES || errno == EPERM)
        return refuse_access(name, error);
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
        return qd_fail(error, QD_UNAVAILABLE,
                       "key: no file descriptor or memory is left to open \"%.100s\": %s", name,
                       strerror(errno));
    }
    const char *why = errno == ENOENT  ? "there is none of that name in this server's /dev/shm: "
                                         "containers have one each unless they share it"
                      : errno == ELOOP ? "it is a symbolic link"
                                       : strerror(errno);
    return qd_fail(error, QD_INVALID,
                   "key: expected a shared memory object that can be opened, got \"%.100s\": %s",
                   name, why);
}

/* Opens the object without blocking, because a pipe of that name would wait for its other end. */
static enum qd_status open_object(const char *key, int *fd, struct qd_error *error)
{
    const char *name = qd_mapping_name(key);
    if (name == NULL) {
        return qd_fail(error, QD_INVALID,
                       "key: expected / and 1 to %d bytes without another slash, got \"%.100s\"",
                       QD_MAPPING_KEY_BYTES - 1, key);
    }
    *fd = shm_open(name, O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC, 0);
    return *fd >= 0 ? QD_OK : refuse_open(name, error);
}

static enum qd_status check_size(int fd, struct qd_mapping *mapping, uint64_t count,
                                 struct qd_error *error)
{
    struct stat about;
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) {
        return qd_fail(error, QD_INVALID,
                       "key: expected a shared memory object, got another kind of file");
    }
    const uint64_t bytes = (uint64_t)about.st_size;
    if (mapping->offset > bytes || count > bytes - mapping->offset || count > SIZE_MAX / 2) {
        return qd_fail(error, QD_INVALID,
                       "byte_size: expected offset and byte_size within the %llu bytes of the "
                       "object, got %llu and %llu",
                       (unsigned long long)bytes, (unsigned long long)mapping->offset,
                       (unsigned long long)count);
    }
    mapping->count = (size_t)count;
    mapping->device = about.st_dev;
    mapping->inode = about.st_ino;
    return QD_OK;
}

static enum qd_status map(int fd, struct qd_mapping *mapping, struct qd_error *error)
{
    const size_t before_it = (size_t)(mapping->offset % page_bytes);
    mapping->pages_bytes = mapping->count + before_it;
    mapping->slot = take_slot();
    if (mapping->slot == NULL) {
        return qd_fail(error, QD_UNAVAILABLE,
                       "regions: expected at most %d, including those in use, got one more",
                       QD_MAPPING_COUNT_MAX);
    }
    mapping->pages = mmap(NULL, mapping->pages_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                          (off_t)(mapping->offset - before_it));
    if (mapping->pages == MAP_FAILED) {
        atomic_store(&mapping->slot->taken, false);
        return qd_fail(error, QD_UNAVAILABLE, "byte_size: %zu bytes could not be mapped: %s",
                       mapping->count, strerror(errno));
    }
    mapping->bytes = mapping->pages + before_it;
    atomic_store(&mapping->slot->lost, false);
    atomic_store(&mapping->slot->begin, (uintptr_t)mapping->pages);
    atomic_store(&mapping->slot->end, (uintptr_t)mapping->pages + mapping->pages_bytes);
    atomic_fetch_add(&mapping->slot->version, 1);
    return QD_OK;
}

enum qd_status qd_mapping_open(struct qd_mapping *mapping, const char *key, uint64_t offset,
                               uint64_t count, struct qd_error *error)
{
    int fd = -1;
    *mapping = (struct qd_mapping){.offset = offset};
    if (count == 0)
        return qd_fail(error, QD_INVALID, "byte_size: expected at least 1, got 0");
    enum qd_status status = open_object(key, &fd, error);
    if (status != QD_OK)
        return status;
    status = check_size(fd, mapping, count, error);
    if (status == QD_OK)
        status = map(fd, mapping, error);
    close(fd);
    return status;
}

void qd_mapping_close(struct qd_mapping *mapping)
{
    atomic_fetch_add(&mapping->slot->version, 1);
    munmap(mapping->pages, mapping->pages_bytes);
    atomic_store(&mapping->slot->taken, false);
}

bool qd_mapping_is_lost(const struct qd_mapping *mapping)
{
    return atomic_load(&mapping->slot->lost);
}
