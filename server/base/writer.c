#define _GNU_SOURCE
#include "server/base/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/base/clock.h"
#include "server/base/limits.h"
#include "server/base/log.h"

/* Not to wait for a named pipe's reader; of a file it means nothing. */
#define OPEN_FLAGS (O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)

enum {
    FILE_MODE = 0640,
    POLL_MS = 100, /* how late the end may be noticed by who waits for a pipe */
};

#define GATHER_NS (50 * QD_NS_PER_MS)
#define LAST_NS QD_NS_PER_S

/* Two of them: one is filled while the other is written. */
struct buffer {
    size_t count;
    char bytes[QD_WRITER_BYTES_MAX];
};

struct qd_writer {
    const char *path; /* NULL: standard error */
    int fd;
    bool is_file; /* then a write takes all, or fails; others take a little, or make us wait */
    bool torn;    /* the last line that came into the file lacks its end */
    bool failing; /* the last write failed, and the log has said so */
    atomic_ullong dropped;
    pthread_t thread;
    pthread_mutex_t lock; /* over all below; never held while something is written */
    pthread_cond_t wake;
    struct buffer *filled;
    struct buffer *spare;
    bool reopening;
    bool ending;
    uint64_t end_ns; /* then nothing more is written */
};

/* ---- Writing, on the thread --------------------------------------------------------------- */

static bool has_to_end(struct qd_writer *writer)
{
    pthread_mutex_lock(&writer->lock);
    const bool over = writer->ending && qd_clock_ns() >= writer->end_ns;
    pthread_mutex_unlock(&writer->lock);
    return over;
}

/* A pipe that is ready takes PIPE_BUF bytes without waiting. Others write to it too: whole lines.
 */
static size_t piece(const char *bytes, size_t count)
{
    if (count <= PIPE_BUF)
        return count;
    const char *last = memrchr(bytes, '\n', PIPE_BUF);
    return last == NULL ? PIPE_BUF : (size_t)(last + 1 - bytes);
}

/* How many bytes it took; 0: it failed. */
static size_t write_some(struct qd_writer *writer, const char *bytes, size_t count)
{
    struct pollfd out = {.fd = writer->fd, .events = POLLOUT};
    ssize_t written;
    do {
        while (!writer->is_file && poll(&out, 1, POLL_MS) <= 0) {
            if (has_to_end(writer)) {
                errno = EAGAIN;
                return 0;
            }
        }
        written = write(writer->fd, bytes, writer->is_file ? count : piece(bytes, count));
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

static void note_failure(struct qd_writer *writer, bool failed)
{
    if (failed && !writer->failing) {
        qd_log(QD_LOG_WARN, "access log: cannot be written, lines are lost", "error=\"%s\"",
               strerror(errno));
    } else if (!failed && writer->failing) {
        qd_log(QD_LOG_INFO, "access log: is written again", "lost=%llu",
               (unsigned long long)qd_writer_dropped(writer));
    }
    writer->failing = failed;
}

static void write_all(struct qd_writer *writer, const char *bytes, size_t count)
{
    if (count == 0)
        return;
    bool failed = writer->torn && write_some(writer, "\n", 1) == 0;
    while (count > 0 && !failed) {
        const size_t written = write_some(writer, bytes, count);
        failed = written == 0;
        bytes += written;
        count -= written;
        if (written > 0)
            writer->torn = bytes[-1] != '\n';
    }
    atomic_fetch_add(&writer->dropped, count_lines(bytes, count));
    note_failure(writer, failed);
}

static void reopen(struct qd_writer *writer)
{
    if (writer->path == NULL)
        return;
    int fd = open(writer->path, OPEN_FLAGS, FILE_MODE);
    if (fd < 0) {
        qd_log(QD_LOG_ERROR, "access log: cannot be opened anew", "path=\"%s\" error=\"%s\"",
               qd_log_value(writer->path).text, strerror(errno));
        return;
    }
    close(writer->fd);
    writer->fd = fd;
    writer->torn = false;
}

/* Under the lock, until there is something to do; what comes soon comes along. */
static void wait_for_work(struct qd_writer *writer)
{
    while (writer->filled->count == 0 && !writer->ending && !writer->reopening)
        pthread_cond_wait(&writer->wake, &writer->lock);
    const uint64_t until_ns = qd_clock_ns() + GATHER_NS;
    const struct timespec until = {.tv_sec = (time_t)(until_ns / QD_NS_PER_S),
                                   .tv_nsec = (long)(until_ns % QD_NS_PER_S)};
    while (writer->filled->count < QD_WRITER_BYTES_MAX / 2 && !writer->ending &&
           !writer->reopening &&
           pthread_cond_timedwait(&writer->wake, &writer->lock, &until) != ETIMEDOUT) {
    }
}

static void *run(void *context)
{
    struct qd_writer *writer = context;
    bool over = false;
    while (!over) {
        pthread_mutex_lock(&writer->lock);
        wait_for_work(writer);
        struct buffer *full = writer->filled;
        writer->filled = writer->spare;
        const bool reopening = writer->reopening;
        writer->reopening = false;
        over = writer->ending;
        pthread_mutex_unlock(&writer->lock);
        write_all(writer, full->bytes, full->count);
        full->count = 0;
        if (reopening)
            reopen(writer);
        writer->spare = full;
    }
    return NULL;
}

/* ---- For all others ----------------------------------------------------------------------- */

void qd_writer_put(struct qd_writer *writer, const struct qd_line *line)
{
    pthread_mutex_lock(&writer->lock);
    struct buffer *filled = writer->filled;
    const size_t before = filled->count;
    const bool fits = line->count <= QD_WRITER_BYTES_MAX - before;
    if (fits) {
        memcpy(filled->bytes + before, line->bytes, line->count);
        filled->count += line->count;
    }
    pthread_mutex_unlock(&writer->lock);
    if (!fits)
        atomic_fetch_add(&writer->dropped, 1);
    const size_t half = QD_WRITER_BYTES_MAX / 2;
    if (fits && (before == 0 || (before < half && before + line->count >= half)))
        pthread_cond_signal(&writer->wake);
}

void qd_writer_reopen(struct qd_writer *writer)
{
    pthread_mutex_lock(&writer->lock);
    writer->reopening = true;
    pthread_mutex_unlock(&writer->lock);
    pthread_cond_signal(&writer->wake);
}

uint64_t qd_writer_dropped(const struct qd_writer *writer)
{
    return atomic_load(&writer->dropped);
}

/* ---- Life --------------------------------------------------------------------------------- */

/* Signals are for others. */
static bool start_thread(struct qd_writer *writer)
{
    pthread_condattr_t attributes;
    sigset_t all, before;
    sigfillset(&all);
    pthread_mutex_init(&writer->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&writer->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool started = pthread_create(&writer->thread, NULL, run, writer) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

static bool open_file(struct qd_writer *writer, const char *path, char *complaint)
{
    struct stat file;
    writer->path = strcmp(path, "-") == 0 ? NULL : path;
    writer->fd = writer->path == NULL ? fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)
                                      : open(path, OPEN_FLAGS, FILE_MODE);
    if (writer->fd < 0 || fstat(writer->fd, &file) != 0) {
        snprintf(complaint, QD_WRITER_COMPLAINT_BYTES, "--access-log: cannot open \"%.300s\": %s",
                 path, strerror(errno));
        return false;
    }
    writer->is_file = S_ISREG(file.st_mode);
    return true;
}

static void free_writer(struct qd_writer *writer)
{
    if (writer->fd >= 0)
        close(writer->fd);
    free(writer->filled);
    free(writer->spare);
    free(writer);
}

struct qd_writer *qd_writer_create(const char *path, char complaint[QD_WRITER_COMPLAINT_BYTES])
{
    struct qd_writer *writer = calloc(1, sizeof(*writer));
    snprintf(complaint, QD_WRITER_COMPLAINT_BYTES, "--access-log: out of memory, or of threads");
    if (writer == NULL)
        return NULL;
    writer->fd = -1;
    writer->filled = calloc(1, sizeof(*writer->filled));
    writer->spare = calloc(1, sizeof(*writer->spare));
    if (writer->filled == NULL || writer->spare == NULL || !open_file(writer, path, complaint) ||
        !start_thread(writer)) {
        free_writer(writer);
        return NULL;
    }
    return writer;
}

/* Where the file does not come back, its thread stays behind with all that it holds: the process
 * ends. */
void qd_writer_destroy(struct qd_writer *writer)
{
    if (writer == NULL)
        return;
    pthread_mutex_lock(&writer->lock);
    writer->ending = true;
    writer->end_ns = qd_clock_ns() + LAST_NS;
    pthread_mutex_unlock(&writer->lock);
    pthread_cond_signal(&writer->wake);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 2;
    if (pthread_timedjoin_np(writer->thread, NULL, &until) != 0) {
        pthread_detach(writer->thread);
        return;
    }
    pthread_cond_destroy(&writer->wake);
    pthread_mutex_destroy(&writer->lock);
    free_writer(writer);
}
