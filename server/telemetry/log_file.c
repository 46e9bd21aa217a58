#define _GNU_SOURCE
#include "server/telemetry/log_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/base/clock.h"
#include "server/base/limits.h"
#include "server/base/lock.h"
#include "server/telemetry/log.h"

/* O_NONBLOCK avoids waiting for the reader of a named pipe. Regular files ignore it. */
#define OPEN_FLAGS (O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)

enum {
    FILE_MODE = 0640,
    POLL_MS = 100, /* how often a thread that waits for a pipe checks whether it must end */
};

#define GATHER_NS (50 * QD_NS_PER_MS)
#define LAST_NS QD_NS_PER_S

/* One of two buffers: one is filled while the other is written. */
struct buffer {
    size_t count;
    char bytes[QD_LOG_FILE_BYTES_MAX];
};

struct qd_log_file {
    const char *path; /* NULL: standard error */
    int fd;
    bool is_file; /* a write to a regular file takes everything or fails; a pipe may take a part or
                     block */
    bool torn;    /* the last line in the file is incomplete */
    bool failing; /* the last write failed, and the log has said so */
    bool is_log;  /* the log itself: it cannot report its own failure, but reports later how many
                     lines were lost */
    uint64_t told_lost; /* how many lost lines the log has reported */
    atomic_ullong dropped;
    pthread_t thread;
    pthread_mutex_t lock; /* protects the members below; never held during a write */
    pthread_cond_t wake;
    struct buffer *filled;
    struct buffer *spare;
    bool reopening;
    bool ending;
    uint64_t end_ns; /* the deadline after which nothing more is written */
    struct buffer buffers[2];
};

/* ---- Writing, on the thread --------------------------------------------------------------- */

static bool has_to_end(struct qd_log_file *file)
{
    QD_LOCKED(&file->lock);
    return file->ending && qd_clock_ns() >= file->end_ns;
}

/* Returns how many bytes to write at once: whole lines of at most PIPE_BUF bytes. A pipe that is
 * ready takes that many without blocking, and atomically, since other processes may write to it
 * too. */
static size_t piece(const char *bytes, size_t count)
{
    if (count <= PIPE_BUF)
        return count;
    const char *last = memrchr(bytes, '\n', PIPE_BUF);
    return last == NULL ? PIPE_BUF : (size_t)(last + 1 - bytes);
}

/* Writes some of the bytes. Returns how many, or 0 if the write failed. */
static size_t write_some(struct qd_log_file *file, const char *bytes, size_t count)
{
    struct pollfd out = {.fd = file->fd, .events = POLLOUT};
    ssize_t written;
    do {
        while (!file->is_file && poll(&out, 1, POLL_MS) <= 0) {
            if (has_to_end(file)) {
                errno = EAGAIN;
                return 0;
            }
        }
        written = write(file->fd, bytes, file->is_file ? count : piece(bytes, count));
    } while (written < 0 && (errno == EINTR || errno == EAGAIN));
    return written < 0 ? 0 : (size_t)written;
}

static uint64_t count_lines(const char *bytes, size_t count)
{
    uint64_t lines = 0;
    for (size_t i = 0; i < count; i++)
        lines += bytes[i] == '\n';
    return lines;
}

static void note_failure(struct qd_log_file *file, bool failed)
{
    if (file->is_log)
        return;
    if (failed && !file->failing) {
        qd_log(QD_LOG_WARN, "access log: cannot be written, lines are lost", "error=\"%s\"",
               strerror(errno));
    } else if (!failed && file->failing) {
        qd_log(QD_LOG_INFO, "access log: is written again", "lost=%llu",
               (unsigned long long)qd_log_file_dropped(file));
    }
    file->failing = failed;
}

static void write_all(struct qd_log_file *file, const char *bytes, size_t count)
{
    if (count == 0)
        return;
    bool failed = file->torn && write_some(file, "\n", 1) == 0;
    while (count > 0 && !failed) {
        const size_t written = write_some(file, bytes, count);
        failed = written == 0;
        bytes += written;
        count -= written;
        if (written > 0)
            file->torn = bytes[-1] != '\n';
    }
    atomic_fetch_add(&file->dropped, count_lines(bytes, count));
    note_failure(file, failed);
}

/* Writes a line that says how many lines were lost. Its place in the log is that of the lost lines,
 * but lines that were put meanwhile may come before it. */
static void tell_lost(struct qd_log_file *file)
{
    const uint64_t lost = qd_log_file_dropped(file);
    if (!file->is_log || lost == file->told_lost || file->torn)
        return;
    char count[40];
    struct qd_line line;
    snprintf(count, sizeof(count), "count=%llu", (unsigned long long)(lost - file->told_lost));
    qd_log_begin(&line, QD_LOG_WARN, "log: lines were dropped, as nobody read them");
    qd_line_pairs(&line, count);
    qd_line_end(&line);
    write_all(file, line.bytes, line.count);
    if (qd_log_file_dropped(file) == lost)
        file->told_lost = lost;
}

static void reopen(struct qd_log_file *file)
{
    if (file->path == NULL)
        return;
    int fd = open(file->path, OPEN_FLAGS, FILE_MODE);
    if (fd < 0) {
        qd_log(QD_LOG_ERROR, "access log: cannot be opened again", "path=\"%s\" error=\"%s\"",
               qd_log_value(file->path).text, strerror(errno));
        return;
    }
    close(file->fd);
    file->fd = fd;
    file->torn = false;
}

/* Waits, with the lock held, until there are lines to write, and a little longer for more of them.
 * The log itself does not wait longer: its lines are few. */
static void wait_for_work(struct qd_log_file *file)
{
    while (file->filled->count == 0 && !file->ending && !file->reopening)
        pthread_cond_wait(&file->wake, &file->lock);
    if (file->is_log)
        return;
    const uint64_t until_ns = qd_clock_ns() + GATHER_NS;
    const struct timespec until = {.tv_sec = (time_t)(until_ns / QD_NS_PER_S),
                                   .tv_nsec = (long)(until_ns % QD_NS_PER_S)};
    while (file->filled->count < QD_LOG_FILE_BYTES_MAX / 2 && !file->ending && !file->reopening &&
           pthread_cond_timedwait(&file->wake, &file->lock, &until) != ETIMEDOUT) {
    }
}

static void *run(void *context)
{
    struct qd_log_file *file = context;
    bool over = false;
    while (!over) {
        pthread_mutex_lock(&file->lock);
        wait_for_work(file);
        struct buffer *full = file->filled;
        file->filled = file->spare;
        const bool reopening = file->reopening;
        file->reopening = false;
        over = file->ending;
        pthread_mutex_unlock(&file->lock);
        write_all(file, full->bytes, full->count);
        tell_lost(file);
        full->count = 0;
        if (reopening)
            reopen(file);
        file->spare = full;
    }
    return NULL;
}

/* ---- For all others ----------------------------------------------------------------------- */

void qd_log_file_put(struct qd_log_file *file, const struct qd_line *line)
{
    pthread_mutex_lock(&file->lock);
    struct buffer *filled = file->filled;
    const size_t before = filled->count;
    const bool fits = line->count <= QD_LOG_FILE_BYTES_MAX - before;
    if (fits) {
        memcpy(filled->bytes + before, line->bytes, line->count);
        filled->count += line->count;
    }
    pthread_mutex_unlock(&file->lock);
    if (!fits)
        atomic_fetch_add(&file->dropped, 1);
    const size_t half = QD_LOG_FILE_BYTES_MAX / 2;
    if (fits && (before == 0 || (before < half && before + line->count >= half)))
        pthread_cond_signal(&file->wake);
}

void qd_log_file_reopen(struct qd_log_file *file)
{
    pthread_mutex_lock(&file->lock);
    file->reopening = true;
    pthread_mutex_unlock(&file->lock);
    pthread_cond_signal(&file->wake);
}

uint64_t qd_log_file_dropped(const struct qd_log_file *file)
{
    return atomic_load(&file->dropped);
}

/* ---- Life --------------------------------------------------------------------------------- */

static bool start_thread(struct qd_log_file *file)
{
    pthread_condattr_t attributes;
    pthread_mutex_init(&file->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&file->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    return pthread_create(&file->thread, NULL, run, file) == 0;
}

static bool open_file(struct qd_log_file *file, const char *path, struct qd_error *error)
{
    struct stat found;
    file->is_log = path == NULL;
    path = file->is_log ? "-" : path;
    file->path = strcmp(path, "-") == 0 ? NULL : path;
    file->fd = file->path == NULL ? fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)
                                  : open(path, OPEN_FLAGS, FILE_MODE);
    if (file->fd < 0 || fstat(file->fd, &found) != 0) {
        return qd_fail_startup(error, "%s: cannot open \"%.300s\": %s",
                               file->is_log ? "standard error" : "--access-log", path,
                               strerror(errno));
    }
    file->is_file = S_ISREG(found.st_mode);
    return true;
}

static void free_all(struct qd_log_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    free(file);
}

struct qd_log_file *qd_log_file_create(const char *path, struct qd_error *error)
{
    struct qd_log_file *file = calloc(1, sizeof(*file));
    qd_fail_startup(error, "%s: out of memory, or of threads",
                    path == NULL ? "standard error" : "--access-log");
    if (file == NULL)
        return NULL;
    file->fd = -1;
    file->filled = &file->buffers[0];
    file->spare = &file->buffers[1];
    if (!open_file(file, path, error) || !start_thread(file)) {
        free_all(file);
        return NULL;
    }
    return file;
}

bool qd_log_file_end(struct qd_log_file *file)
{
    pthread_mutex_lock(&file->lock);
    file->ending = true;
    file->end_ns = qd_clock_ns() + LAST_NS;
    pthread_mutex_unlock(&file->lock);
    pthread_cond_signal(&file->wake);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 2;
    if (pthread_timedjoin_np(file->thread, NULL, &until) == 0)
        return true;
    pthread_detach(file->thread);
    return false;
}

void qd_log_file_destroy(struct qd_log_file *file)
{
    if (file == NULL || !qd_log_file_end(file))
        return;
    pthread_cond_destroy(&file->wake);
    pthread_mutex_destroy(&file->lock);
    free_all(file);
}
