/* The blocks in which memory for requests, or for models, is handed out and kept. The server's
 * other sources use only the sizes and qd_round_up; for everything else they use arena.h. All
 * functions may be called on any thread. A block belongs to the thread that has taken it. */
#ifndef SERVER_MEMORY_BLOCKS_H
#define SERVER_MEMORY_BLOCKS_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/memory/arena.h"

#define QD_BLOCK_ALIGNMENT 64
#define QD_LARGE_BLOCK_BYTES \
    ((size_t)256 << 10) /* blocks of this size and more count by their pages */
#define QD_PAGE_BYTES ((size_t)4 << 10)
#define QD_HUGE_PAGE_BYTES ((size_t)2 << 20)

/* A small block is a header and a payload, which together have the size of its class. The header of
 * a large block is allocated separately. The payload of a large block is address space of its
 * class' size, whose pages are used as needed: a block that was used for 16 MiB can be reused for
 * 18 MiB, without paying for the 20 MiB of its class. */
struct qd_block {
    struct qd_block *next;
    char *payload;
    size_t bytes;   /* the bytes that count: all of a small block, the pages in use of a large one,
                       the kept pages of a retired one */
    size_t touched; /* an upper bound of the bytes of a large block whose pages are in memory */
    size_t limit;   /* how far `bytes` may grow: the size that was asked for */
    struct qd_block *next_reserved; /* the list of the reserved blocks in use, whose pages beyond
                                       `bytes` count as kept */
    struct qd_block *previous_reserved;
    unsigned class_index;
    bool large;
    bool reserved; /* from qd_arena_reserve, in use */
    /* enum qd_reservation of a reserved block; set with the lock held */
    _Atomic unsigned char reservation;
};

/* A large block, with what tells whether the body in it arrives slowly (SLOW_BYTES in blocks.c). */
struct qd_large_block {
    struct qd_block block;
    size_t marked_bytes;
    uint64_t marked_ns; /* when `bytes` was marked_bytes; both are set anew when 2 MiB more have
                           arrived */
    uint64_t came_ns;   /* when the body began to arrive */
};
static_assert(sizeof(struct qd_block) <= QD_BLOCK_ALIGNMENT,
              "the header fits before an aligned payload");

/* What to take: a block of `limit` bytes, of which `bytes` count at first. */
struct qd_block_wish {
    unsigned class_index;
    size_t class_bytes;
    bool large;
    bool reserved;
    size_t bytes;
    size_t limit;
};

static inline size_t qd_round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* Finds the smallest class for `bytes`. The sizes of classes are (4, 5, 6, 7) * 2^n, and (16 ...
 * 31) * 2^n in the memory of models. Returns false if there is no class of this size. */
bool qd_block_class(const struct qd_memory *memory, size_t bytes, unsigned *class_index,
                    size_t *class_bytes);
/* Returns the size of the class with this index. */
size_t qd_block_class_bytes(const struct qd_memory *memory, unsigned class_index);

/* Takes a block. Returns NULL if the block would exceed the memory's bound, or if malloc failed.
 * qd_block_give returns a block to the memory. */
struct qd_block *qd_block_take(struct qd_memory *memory, const struct qd_block_wish *wish);
void qd_block_give(struct qd_memory *memory, struct qd_block *block);

/* Like qd_arena_set_reservation. */
bool qd_block_set_reservation(struct qd_memory *memory, struct qd_block *block,
                              enum qd_reservation reservation);
static inline bool qd_block_is_lost(const struct qd_block *block)
{
    return block->reservation == QD_RESERVATION_REVOKED;
}

/* Raises the number of bytes of a large block that count to `bytes`. Sets *fresh to an offset: no
 * page from there to `bytes` has been touched yet. Returns false if the memory's bound would be
 * exceeded. */
bool qd_block_extend(struct qd_memory *memory, struct qd_block *block, size_t bytes, size_t *fresh);

#endif
