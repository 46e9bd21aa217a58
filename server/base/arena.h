/* Memory for requests: one bound for the whole process, one arena per request.
 *
 * struct qd_memory hands out large blocks and takes them back. What is handed out and what is kept
 * for reuse never exceed bytes_max together (--max-inflight-bytes, --max-model-bytes). Reuse
 * matters: a fresh 64 MiB block costs 34 ms of page faults where a used one costs 8. From 256 KiB
 * on a block counts, and holds, the pages that were asked for. Safe on any thread.
 *
 * struct qd_arena belongs to one request and is used by one thread at a time. Everything in it goes
 * back at once. Allocations are 64-byte aligned.
 */
#ifndef SERVER_BASE_ARENA_H
#define SERVER_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

struct qd_memory;
struct qd_pages;

struct qd_memory *qd_memory_create(size_t bytes_max); /* NULL: malloc failed */
void qd_memory_destroy(struct qd_memory *memory);     /* every arena must be gone */
size_t qd_memory_used(struct qd_memory *memory);      /* bytes handed out */
size_t qd_memory_kept(struct qd_memory *memory);      /* and kept for reuse */
size_t qd_memory_max(const struct qd_memory *memory);

/* That it is the loaded models' memory, and not that of requests: refusals name --max-model-bytes
 * then, and not --max-inflight-bytes. Before other threads use it. */
void qd_memory_set_for_models(struct qd_memory *memory);
bool qd_memory_is_for_models(const struct qd_memory *memory);

/* Who makes pages for those that do not want to wait for them (pages.h); NULL, as at first: nobody.
 * It is borrowed. Before other threads use the memory. */
void qd_memory_set_pages(struct qd_memory *memory, struct qd_pages *pages);
struct qd_pages *qd_memory_pages(const struct qd_memory *memory);

/* Gives back to the system the blocks that were not needed since the last call. */
void qd_memory_trim(struct qd_memory *memory);
/* The same, so many bytes of it, as a timer calls it: whole, a GiB of small pages takes the system
 * a tenth of a second. True: there is more; the next call goes on with that. */
bool qd_memory_trim_some(struct qd_memory *memory, size_t bytes);

struct qd_block;

struct qd_arena {
    struct qd_memory *memory; /* borrowed */
    struct qd_block *blocks;  /* newest first */
    char *next;               /* free room in the newest small block */
    size_t room;
    size_t bytes;         /* of all its blocks */
    size_t refused_bytes; /* the block that it did not get, the last time */
    size_t *together; /* bytes of several that one job has, and this among them; borrowed, on one
                       * thread at a time; NULL: it stands alone */
};

void qd_arena_init(struct qd_arena *arena, struct qd_memory *memory);
void qd_arena_deinit(struct qd_arena *arena);

/* NULL: the process' bound is reached, or malloc failed. The memory is not zeroed. No bytes are as
 * good as one. */
void *qd_arena_alloc(struct qd_arena *arena, size_t bytes);
void *qd_arena_calloc(struct qd_arena *arena, size_t count, size_t bytes);

/* Room for so many bytes in one piece, of which none count yet, and none may be written: for what
 * somebody says that it will send. NULL: not even with the whole memory to itself would it be let
 * have them, or the system has no address space. */
void *qd_arena_reserve(struct qd_arena *arena, size_t bytes);
/* From now on the first so many bytes of it count, and may be written; at most what was reserved.
 * Large pages make it a little more: up to 2 MiB where it is more than that. False: the process'
 * bound is reached, and it is as before. */
bool qd_arena_commit(struct qd_arena *arena, void *reserved, size_t bytes);
/* The same. *fresh: from this byte on, up to what is committed then, no page was touched yet. */
bool qd_arena_commit_fresh(struct qd_arena *arena, void *reserved, size_t bytes, size_t *fresh);
/* So many bytes of it may be written by now; SIZE_MAX: all that was reserved. */
size_t qd_arena_committed(const struct qd_arena *arena, const void *reserved);
/* Takes what is reserved, and large, out of the arena: for who still uses it when all else goes.
 * That one calls qd_block_give (blocks.h), and until then its bytes count as handed out. */
struct qd_block *qd_arena_detach(struct qd_arena *arena, void *reserved);

/* Like realloc for an allocation of this arena (old_bytes: what it was made with; 0 for a NULL
 * `old`): copies old_bytes, gives a large old block back. On NULL the old one is still there. */
void *qd_arena_grow(struct qd_arena *arena, void *old, size_t old_bytes, size_t new_bytes);

/* An allocation that nobody needs any more, made with so many bytes: a large one goes back now, a
 * small one with the arena. */
void qd_arena_release(struct qd_arena *arena, void *memory, size_t bytes);

/* What it holds, with those that are together with it. */
size_t qd_arena_own_bytes(const struct qd_arena *arena);

/* After a NULL: not even with the whole memory to itself would the arena have got the block. So
 * trying again later is in vain. */
bool qd_arena_hopeless(const struct qd_arena *arena);

#endif
