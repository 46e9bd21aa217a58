/* Prints an answer while it is sent: in units, into a buffer of fixed size. So a text of any size
 * takes no more memory than the buffer, and other work can be done between two units.
 *
 * Printing the whole text of metrics at once into the memory of requests was tried, with 159 lines
 * less. With 1,000 models that were used, the text has 27 MB. 150 clients that asked for it and did
 * not read took 2.2 GB instead of 48 MB, and meanwhile monitors were refused, who want to see most
 * of all what a server does whose memory is full. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "server/memory/text.h"

/* The size of the buffer. Every unit is smaller: a histogram has up to 8 KiB, the gauges have up
 * to 36 KiB. A fresh server's metrics fit as a whole. */
#define QD_STREAM_BYTES (64u << 10)

struct qd_stream {
    /* Prints the next unit. Returns false if it was the last. A unit that does not fit into the
     * text, which has failed then, is printed again by the next call. */
    bool (*print)(struct qd_stream *stream, struct qd_text *text);
    void (*close)(struct qd_stream *stream); /* called when the stream is no longer read */
    bool ended;                              /* all units have been printed */
    size_t begin, end;                       /* the bytes that are printed but not read yet */
    char room[QD_STREAM_BYTES];
};

/* Prints as many units as there is room for, if all bytes before them are read. Returns false if
 * there is nothing more to read. Before the first call, all fields but the functions are 0. */
bool qd_stream_fill(struct qd_stream *stream);

/* Reads the next bytes, at most `count`. Returns how many it has read: fewer than `count` only at
 * the end of the text. */
size_t qd_stream_read(struct qd_stream *stream, char *bytes, size_t count);
