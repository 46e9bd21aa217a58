/* The blocks in which memory for requests, or for models, is handed out and kept, and the account
 * of it: how much each arena holds, and how much was set aside for it. The server's other sources
 * use only the sizes; for everything else they use arena.h. All functions may be called on any
 * thread. An arena and its blocks are used by one thread at a time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "server/memory/arena.h"

#define QD_BLOCK_ALIGNMENT 64
#define QD_LARGE_BLOCK_BYTES \
    ((size_t)256 << 10) /* blocks of this size and more count by their pages */
#define QD_PAGE_BYTES ((size_t)4 << 10)
#define QD_HUGE_PAGE_BYTES ((size_t)2 << 20)

/* The payload of a small block has the size of its class, and counts as a whole. The payload of a
 * large block is address space of its class' size, whose pages are used as needed: a block that was
 * used for 16 MiB can be reused for 18 MiB, without paying for the 20 MiB of its class. */
struct qd_block {
    struct qd_block *next;
    char *payload;
    size_t bytes; /* the bytes that count: all of a small block, the pages in use of a large one,
                     the kept pages of a retired one */
    size_t
        touched;  /* an upper bound of the bytes whose pages are in memory; all of a small block */
    size_t limit; /* how far `bytes` may grow: the size that was asked for */
    unsigned class_index;
    bool large;
    bool is_sparse; /* a large block has no huge pages (qd_arena.is_sparse) */

    /* Of a large block from qd_arena_reserve, while it is in use. */
    bool reserved;
    _Atomic unsigned char reservation; /* enum qd_reservation; set with the lock held */
    LIST_ENTRY(qd_block)
    in_reserved; /* the list of the reserved blocks, whose pages beyond
                    `bytes` count as kept */
    /* What tells whether the body in it arrives slowly (SLOW_BYTES in blocks.c). */
    size_t marked_bytes;
    uint64_t marked_ns; /* when `bytes` was marked_bytes; both are set anew when 2 MiB more have
                           arrived */
    uint64_t came_ns;   /* when the body began to arrive */
};

/* Returns the size of the small blocks of an arena of this memory. An allocation of a quarter of it
 * or more gets a block of its own. */
size_t qd_memory_small_block_bytes(const struct qd_memory *memory);

/* Takes a block with room for `bytes`, and adds it to arena->blocks. No byte of a reserved block
 * counts yet. Returns NULL if the block would exceed the memory's bound, or if malloc failed. Then
 * sets arena->refused_bytes, as all functions below do when they do not get the memory. */
struct qd_block *qd_block_take(struct qd_arena *arena, size_t bytes, bool reserved);
/* Returns a block of the arena to the memory. */
void qd_block_give(struct qd_arena *arena, struct qd_block *block);
/* Moves a block to another arena of the same memory. */
void qd_block_move(struct qd_arena *from, struct qd_arena *to, struct qd_block *block);

/* Like qd_arena_commit, for a large block. Sets *fresh only if it commits more than before. */
size_t qd_block_commit(struct qd_arena *arena, struct qd_block *block, size_t bytes, size_t *fresh);
/* Grows the only allocation of a block to `bytes`. Returns false if the block has no room. */
bool qd_block_grow(struct qd_arena *arena, struct qd_block *block, size_t bytes);

/* Like qd_arena_set_reservation. */
bool qd_block_set_reservation(struct qd_memory *memory, struct qd_block *block,
                              enum qd_reservation reservation);

/* Records that an arena has freed all its memory, if work on it had begun. */
void qd_arena_forget(struct qd_arena *arena);
