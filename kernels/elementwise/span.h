/* A span is what a traversal hands to an element-wise operator, whether that makes floats of
 * integers or integers of floats: elements one behind the other, and where the parameters of each
 * are. */
#ifndef KERNELS_ELEMENTWISE_SPAN_H
#define KERNELS_ELEMENTWISE_SPAN_H

#include <stdbool.h>
#include <stddef.h>

/* Element i < count of y is made of element i of x and of the parameters q,
 *
 *   q = p + (done + i) / block, modulo the period if there is one */
struct qk_span {
    const void *x; /* no alignment */
    void *y;       /* aligned as its type is; overlaps nothing else */
    /* Where the span begins in x and y: indices, since 2- and 4-bit elements need not begin a
     * byte. */
    size_t x_first;
    size_t y_first;
    size_t count;
    size_t block;  /* elements that share their parameters; SIZE_MAX: all */
    size_t done;   /* elements of the first block that come before this span's */
    size_t period; /* behind the parameters of so many blocks come the first again; 0: never */
    size_t p;      /* of the first block; 0 where there is no period */
    /* A word of 32 bits for each block, whatever a kernel says that it is; 4-byte aligned. */
    const void *scales;
    const void *zeros;   /* NULL: none */
    const void *offsets; /* NULL: none */
    bool stream;         /* past the caches, where y is 64-byte aligned */
};

/* Vector kernels take blocks of so many elements or more, and of 1 without a period: what a
 * vector's lanes want are then the parameters of one or two blocks, or as many in a row. */
#define QK_BLOCK_MIN ((size_t)16)

static inline bool qk_span_takes_blocks(const struct qk_span *span)
{
    return span->block >= QK_BLOCK_MIN || (span->block == 1 && span->period == 0);
}

/* The part of a span that has its elements [begin, end). */
struct qk_span qk_span_part(const struct qk_span *span, size_t begin, size_t end);

/* How many bytes lie before those in which element `*first` begins; of `*first`, what is within a
 * byte is left. */
static inline size_t qk_span_take_bytes(size_t *first, unsigned bits)
{
    const size_t index = *first;
    *first = bits < 8 ? index % 8 * bits % 8 / bits : 0;
    return bits < 8 ? index / 8 * bits + index % 8 * bits / 8 : index * (bits / 8);
}

/* The same span, whose x and y are the bytes in which its elements begin. Each field is copied
 * alone: who calls a kernel has just written some of them, and a copy of the whole would wait for
 * that. */
static inline struct qk_span qk_span_moved(const struct qk_span *span, unsigned x_bits,
                                           unsigned y_bits)
{
    struct qk_span moved;
    moved.x_first = span->x_first;
    moved.y_first = span->y_first;
    moved.x = (const char *)span->x + qk_span_take_bytes(&moved.x_first, x_bits);
    moved.y = (char *)span->y + qk_span_take_bytes(&moved.y_first, y_bits);
    moved.count = span->count;
    moved.block = span->block;
    moved.done = span->done;
    moved.period = span->period;
    moved.p = span->p;
    moved.scales = span->scales;
    moved.zeros = span->zeros;
    moved.offsets = span->offsets;
    moved.stream = span->stream;
    return moved;
}

#endif
