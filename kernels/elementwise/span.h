/* A span is what a traversal passes to a kernel in one call: where consecutive elements of x and y
 * are, and where their parameters are. The kernels of dequantizers and quantizers take spans. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Element i < count of y is made of element i of x and of the parameters with index
 *
 *    q = p + (done + i) / block, modulo the period if there is one
 *
 * With block 4, done 3, period 3 and p 2, elements 0, 1, ... have the parameters 2 0 0 0 0 1 1 1 1
 * 2 2 2 2 0 ... */
struct qk_span {
    const void *x; /* may have any alignment */
    void *y;       /* aligned as its type is; overlaps nothing else */
    /* Where the span begins: the indices of its first element in the data at x and at y. Pointers
     * alone cannot say this, because elements of 2 or 4 bits need not begin at a byte. */
    size_t x_first;
    size_t y_first;
    size_t count;
    size_t block;  /* how many elements share their parameters; SIZE_MAX: all */
    size_t done;   /* how many elements of the first block come before the span */
    size_t period; /* after how many blocks the parameters begin again; 0: never */
    size_t p;      /* index of the first block's parameters; 0 if there is no period */
    /* For each block a 32-bit word, aligned to 4 bytes: a float or an integer, as the kernel's
     * contract says. */
    const void *scales;
    const void *zeros;   /* NULL: none */
    const void *offsets; /* NULL: none */
    bool stream;         /* write past the caches where y is 64-byte aligned */
};

/* Vector kernels take only blocks of at least this many elements, or blocks of 1 element without a
 * period. A vector of 16 elements then needs the parameters of one or two blocks, or consecutive
 * parameters. */
#define QK_BLOCK_MIN ((size_t)16)

static inline bool qk_span_takes_blocks(const struct qk_span *span)
{
    return span->block >= QK_BLOCK_MIN || (span->block == 1 && span->period == 0);
}

/* Returns the part of a span that consists of its elements [begin, end). */
struct qk_span qk_span_part(const struct qk_span *span, size_t begin, size_t end);

/* Splits the index `*first` of an element of `bits` bits. Returns how many bytes lie before the
 * byte in which the element begins, and sets `*first` to the element's index within that byte.
 * Element 5 of 4 bits begins in byte 2, and is element 1 there. */
static inline size_t qk_span_take_bytes(size_t *first, unsigned bits)
{
    const size_t index = *first;
    *first = bits < 8 ? index % 8 * bits % 8 / bits : 0;
    return bits < 8 ? index / 8 * bits + index % 8 * bits / 8 : index * (bits / 8);
}

/* Returns the same span with x and y moved to the bytes in which its elements begin. Copies each
 * field by itself: the caller has just written some of the fields, and copying the whole struct in
 * wide loads would stall until these narrow stores have reached the cache. */
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
