/* A text that is made while it is sent: by units, in a room of its own. So one of any size takes
 * that room and no more, and whoever makes it gives way in between. */
#ifndef SERVER_WORK_STREAM_H
#define SERVER_WORK_STREAM_H

#include <stdbool.h>
#include <stddef.h>

#include "server/memory/text.h"

/* Any unit is much smaller: a histogram is up to 8 KiB, the gauges of 16 listeners are 11. A fresh
 * server's metrics fit as a whole. */
#define QD_STREAM_BYTES (64u << 10)

struct qd_stream {
    /* Prints the next unit. False: it was the last. One for which the text has no room (it has
     * failed then) is the next again. */
    bool (*print)(struct qd_stream *stream, struct qd_text *text);
    void (*close)(struct qd_stream *stream); /* nobody reads it any more */
    bool ended;                              /* all units are printed */
    size_t begin, end;                       /* what is printed, and not read yet */
    char room[QD_STREAM_BYTES];
};

/* Prints as many units as there is room for, once all before is read. False: there is nothing more
 * to read. Before the first call all but the functions is 0. */
bool qd_stream_fill(struct qd_stream *stream);

/* The next bytes, as many as there are, if not more than `count`. 0: these were all. */
size_t qd_stream_read(struct qd_stream *stream, char *bytes, size_t count);

#endif
