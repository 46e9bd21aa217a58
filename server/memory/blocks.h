/* The blocks that arena.c and blocks.c share: what a process' memory for requests, or for models,
 * is handed out and kept in. arena.h is what all others see. Any thread may call; a block belongs
 * to who has taken it. */
#ifndef SERVER_MEMORY_BLOCKS_H
#define SERVER_MEMORY_BLOCKS_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/memory/arena.h"

#define QD_BLOCK_ALIGNMENT 64
#define QD_LARGE_BLOCK_BYTES ((size_t)256 << 10) /* from here on a block counts by its pages */
#define QD_PAGE_BYTES ((size_t)4 << 10)
#define QD_HUGE_PAGE_BYTES ((size_t)2 << 20)

/* A small block is its header and its payload, of its class' size. A large one's header stands
 * alone; its payload is address space of its class' size, of which pages are taken as they are
 * wanted: so one that was used for 16 MiB serves for 18 again, and nobody pays for 20. */
struct qd_block {
    struct qd_block *next;
    char *payload;
    size_t bytes;                   /* that count: a small one's, a large one's pages in use, and
                                     * of a retired one those that it keeps */
    size_t touched;                 /* a large one's pages that may be in memory: no less */
    size_t limit;                   /* how far `bytes` may grow: what was asked for */
    struct qd_block *next_reserved; /* of those that are handed out with more touched than in use */
    struct qd_block *previous_reserved;
    unsigned class_index;
    bool large;
    bool reserved;
    /* enum qd_reservation, of a reserved one; set under the lock */
    _Atomic unsigned char reservation;
};

/* A large one: how fast it fills. */
struct qd_large_block {
    struct qd_block block;
    size_t marked_bytes;
    uint64_t marked_ns; /* when it had as many */
    uint64_t came_ns;   /* when it began to come */
};
static_assert(sizeof(struct qd_block) <= QD_BLOCK_ALIGNMENT,
              "the header fits before an aligned payload");

/* What to take: `bytes` of it count from the start, of `limit`. */
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

/* Sizes (4, 5, 6, 7) * 2^n; of models' small blocks (16 ... 31) * 2^n. False: there is no such. */
bool qd_block_class(const struct qd_memory *memory, size_t bytes, unsigned *class_index,
                    size_t *class_bytes);
/* The size of the class with this index. */
size_t qd_block_class_bytes(const struct qd_memory *memory, unsigned class_index);

/* NULL: that is beyond the memory's bound, or malloc failed. */
struct qd_block *qd_block_take(struct qd_memory *memory, const struct qd_block_wish *wish);
void qd_block_give(struct qd_memory *memory, struct qd_block *block);

/* As qd_arena_set_reservation. */
bool qd_block_set_reservation(struct qd_memory *memory, struct qd_block *block,
                              enum qd_reservation reservation);
static inline bool qd_block_is_lost(const struct qd_block *block)
{
    return block->reservation == QD_RESERVATION_REVOKED;
}

/* So many bytes of a large block count from now on, more than before. False: that is beyond the
 * bound. *fresh: those from here on were never touched. */
bool qd_block_extend(struct qd_memory *memory, struct qd_block *block, size_t bytes, size_t *fresh);

#endif
