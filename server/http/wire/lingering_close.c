#define _GNU_SOURCE
#include "server/http/wire/lingering_close.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/base/limits.h"

enum {
    READ_BYTES = 64 << 10,
    READS_MAX = 16, /* in one iteration of the loop, so that other connections are served, too */
};

struct place {
    struct qd_lingering *all;
    int fd;
    uint64_t deadline_ns;
    uint64_t bytes_left;
    struct qd_handle *watch; /* NULL: the place is free */
};

struct qd_lingering {
    struct qd_loop *loop;
    size_t count;
    char waste[READ_BYTES];
    struct place places[QD_LINGERING_COUNT_MAX];
};

struct qd_lingering *qd_lingering_create(struct qd_loop *loop)
{
    struct qd_lingering *lingering = calloc(1, sizeof(*lingering));
    if (lingering != NULL)
        lingering->loop = loop;
    return lingering;
}

static void end(struct place *place)
{
    qd_handle_destroy(place->watch);
    place->watch = NULL;
    close(place->fd);
    place->all->count--;
}

void qd_lingering_destroy(struct qd_lingering *lingering)
{
    if (lingering != NULL)
        qd_lingering_sweep(lingering, UINT64_MAX);
    free(lingering);
}

static void on_readable(void *context)
{
    struct place *place = context;
    for (unsigned i = 0; i < READS_MAX; i++) {
        ssize_t count = recv(place->fd, place->all->waste, READ_BYTES, MSG_DONTWAIT);
        if (count < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (count <= 0 || (uint64_t)count > place->bytes_left) {
            end(place);
            return;
        }
        place->bytes_left -= (uint64_t)count;
    }
}

/* Returns a free place. If there is none, ends the socket with the earliest deadline and returns
 * its place. */
static struct place *find_place(struct qd_lingering *lingering)
{
    struct place *first = &lingering->places[0];
    for (size_t i = 0; i < QD_LINGERING_COUNT_MAX; i++) {
        struct place *place = &lingering->places[i];
        if (place->watch == NULL)
            return place;
        first = place->deadline_ns < first->deadline_ns ? place : first;
    }
    end(first);
    return first;
}

void qd_lingering_add(struct qd_lingering *lingering, int fd, uint64_t deadline_ns)
{
    shutdown(fd, SHUT_WR);
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        return;
    struct place *place = find_place(lingering);
    *place = (struct place){.all = lingering,
                            .fd = own,
                            .deadline_ns = deadline_ns,
                            .bytes_left = QD_DISCARD_BYTES_MAX};
    place->watch = qd_loop_watch(lingering->loop, own, on_readable, place);
    if (place->watch == NULL)
        close(own);
    else
        lingering->count++;
}

void qd_lingering_sweep(struct qd_lingering *lingering, uint64_t now_ns)
{
    for (size_t i = 0; i < QD_LINGERING_COUNT_MAX && lingering->count > 0; i++) {
        struct place *place = &lingering->places[i];
        if (place->watch != NULL && place->deadline_ns <= now_ns)
            end(place);
    }
}

uint64_t qd_lingering_next_ns(const struct qd_lingering *lingering)
{
    uint64_t next_ns = UINT64_MAX;
    for (size_t i = 0; i < QD_LINGERING_COUNT_MAX && lingering->count > 0; i++) {
        const struct place *place = &lingering->places[i];
        if (place->watch != NULL && place->deadline_ns < next_ns)
            next_ns = place->deadline_ns;
    }
    return next_ns;
}

size_t qd_lingering_count(const struct qd_lingering *lingering)
{
    return lingering->count;
}
