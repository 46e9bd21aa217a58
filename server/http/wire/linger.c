#define _GNU_SOURCE
#include "server/http/wire/linger.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/base/limits.h"

enum {
    READ_BYTES = 64 << 10,
    READS_MAX = 16, /* an iteration of the loop: others want to be served, too */
};

struct place {
    struct qd_lingers *all;
    int fd;
    uint64_t deadline_ns;
    uint64_t bytes_left;
    struct qd_handle *watch; /* NULL: the place is free */
};

struct qd_lingers {
    struct qd_loop *loop;
    size_t count;
    char waste[READ_BYTES];
    struct place places[QD_LINGER_COUNT_MAX];
};

struct qd_lingers *qd_lingers_create(struct qd_loop *loop)
{
    struct qd_lingers *lingers = calloc(1, sizeof(*lingers));
    if (lingers != NULL)
        lingers->loop = loop;
    return lingers;
}

static void end(struct place *linger)
{
    qd_handle_destroy(linger->watch);
    linger->watch = NULL;
    close(linger->fd);
    linger->all->count--;
}

void qd_lingers_destroy(struct qd_lingers *lingers)
{
    if (lingers != NULL)
        qd_lingers_sweep(lingers, UINT64_MAX);
    free(lingers);
}

static void on_readable(void *context)
{
    struct place *linger = context;
    for (unsigned i = 0; i < READS_MAX; i++) {
        ssize_t count = recv(linger->fd, linger->all->waste, READ_BYTES, MSG_DONTWAIT);
        if (count < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (count <= 0 || (uint64_t)count > linger->bytes_left) {
            end(linger);
            return;
        }
        linger->bytes_left -= (uint64_t)count;
    }
}

/* A free one, or that which would end first. */
static struct place *find_place(struct qd_lingers *lingers)
{
    struct place *first = &lingers->places[0];
    for (size_t i = 0; i < QD_LINGER_COUNT_MAX; i++) {
        struct place *place = &lingers->places[i];
        if (place->watch == NULL)
            return place;
        first = place->deadline_ns < first->deadline_ns ? place : first;
    }
    end(first);
    return first;
}

void qd_lingers_add(struct qd_lingers *lingers, int fd, uint64_t deadline_ns)
{
    shutdown(fd, SHUT_WR);
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        return;
    struct place *place = find_place(lingers);
    *place = (struct place){
        .all = lingers, .fd = own, .deadline_ns = deadline_ns, .bytes_left = QD_DRAIN_BYTES_MAX};
    place->watch = qd_loop_watch(lingers->loop, own, on_readable, place);
    if (place->watch == NULL)
        close(own);
    else
        lingers->count++;
}

void qd_lingers_sweep(struct qd_lingers *lingers, uint64_t now_ns)
{
    for (size_t i = 0; i < QD_LINGER_COUNT_MAX && lingers->count > 0; i++) {
        struct place *place = &lingers->places[i];
        if (place->watch != NULL && place->deadline_ns <= now_ns)
            end(place);
    }
}

uint64_t qd_lingers_next_ns(const struct qd_lingers *lingers)
{
    uint64_t next_ns = UINT64_MAX;
    for (size_t i = 0; i < QD_LINGER_COUNT_MAX && lingers->count > 0; i++) {
        const struct place *place = &lingers->places[i];
        if (place->watch != NULL && place->deadline_ns < next_ns)
            next_ns = place->deadline_ns;
    }
    return next_ns;
}

size_t qd_lingers_count(const struct qd_lingers *lingers)
{
    return lingers->count;
}
