/* Memory for requests and for loaded models. Each of the two kinds has one struct qd_memory, with a
 * bound for the whole process, and many arenas: one for each request, some for each model.
 *
 * struct qd_memory hands out large blocks and takes them back. The blocks in use and those kept for
 * reuse never exceed bytes_max together (--max-inflight-bytes, --max-model-bytes). Reuse matters: a
 * fresh block of 64 MiB costs 34 ms of page faults, a used one 8 ms. A block of 256 KiB or more
 * counts, and holds, only the pages that were asked for. A smaller block counts as a whole. All
 * functions of qd_memory may be called on any thread.
 *
 * struct qd_arena belongs to one request, for example, and is used by one thread at a time. All of
 * its memory is freed at once. Allocations are aligned to 64 bytes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "server/base/status.h"

struct qd_memory;

struct qd_memory *qd_memory_create(size_t bytes_max); /* returns NULL if malloc failed */
void qd_memory_destroy(struct qd_memory *memory);     /* every arena must have been freed */
size_t qd_memory_used(struct qd_memory *memory);      /* bytes handed out */
size_t qd_memory_kept(struct qd_memory *memory);      /* bytes kept for reuse */
size_t qd_memory_max(const struct qd_memory *memory);

/* Marks this as the memory of loaded models instead of requests: refusals then name
 * --max-model-bytes instead of --max-inflight-bytes. Call it before the first arena is made. */
void qd_memory_set_for_models(struct qd_memory *memory);

/* Sets a function that is called each time the memory of bodies was revoked
 * (QD_RESERVATION_REVOKED). The thread that needs the memory calls it with a lock held, so it may
 * do no more than wake another thread. NULL, the initial value: nothing is called. When
 * qd_memory_set_on_lost returns, no call of the old function is running. */
typedef void qd_memory_on_lost(void *context);
void qd_memory_set_on_lost(struct qd_memory *memory, qd_memory_on_lost *on_lost, void *context);

/* Returns whether a body of `bytes` may be received: whether that many bytes are free, or held by
 * bodies that arrive slowly. */
bool qd_memory_has_room(struct qd_memory *memory, size_t bytes);
/* Sets a function that is called, on any thread, when work that waits may be able to begin
 * (qd_arena_try_begin). With NULL, nothing is called. Call it while no other thread uses the
 * memory. */
void qd_memory_set_on_room(struct qd_memory *memory, void (*on_room)(void *context), void *context);
/* Returns in how many seconds a client should try again after a refusal for lack of memory, at
 * least 1. This is the time that all present requests need one after another, at the rate at which
 * work ended lately. It is at least the age of the oldest body that does not arrive slowly, because
 * that body may need as much time again. */
unsigned qd_memory_retry_after_s(struct qd_memory *memory);

/* Frees the blocks that were not needed since the last call. */
void qd_memory_trim(struct qd_memory *memory);
/* Like qd_memory_trim, but frees at most about `bytes` in one call, for a timer: freeing a GiB of
 * small pages at once takes a tenth of a second. Returns true if there is more to free; the next
 * call continues. */
bool qd_memory_trim_some(struct qd_memory *memory, size_t bytes);

struct qd_block;

struct qd_arena {
    struct qd_memory *memory; /* borrowed */
    size_t small_block_bytes;
    struct qd_block *blocks; /* newest first */
    char *next;              /* free bytes in the newest small block */
    size_t room;
    size_t bytes;         /* the bytes of all its blocks */
    size_t refused_bytes; /* the size of the last block that was refused */
    size_t spoken_bytes;  /* set aside by qd_arena_try_begin and not taken yet */
    bool has_begun;       /* qd_arena_try_begin has returned true */
    bool works;           /* the work has begun and is not done */
    bool is_sparse; /* set by its owner: its large blocks are mostly not filled, so that huge pages
                       would waste memory; qd_arena_init_beside copies it */
    size_t
        *together; /* the sum of `bytes` over all arenas of one job, including this one; borrowed,
                      used on one thread at a time; NULL: the job has only this arena */
};

void qd_arena_init(struct qd_arena *arena, struct qd_memory *memory);
/* Makes an arena of the same job: it has the same memory and `together`. */
void qd_arena_init_beside(struct qd_arena *arena, const struct qd_arena *other);
void qd_arena_deinit(struct qd_arena *arena);

/* Allocates `bytes`, not zeroed. Returns NULL if the process' bound is reached or malloc failed. 0
 * bytes are allocated as 1, so NULL has no other meaning. */
void *qd_arena_alloc(struct qd_arena *arena, size_t bytes);
void *qd_arena_calloc(struct qd_arena *arena, size_t count, size_t bytes);
void *qd_arena_alloc_any(void *arena, size_t bytes); /* qd_arena_alloc for a struct qk_memory */

/* Reserves address space for a body whose client has told its size. No byte of it counts, or may be
 * written, before qd_arena_commit. A body of less than 256 KiB is allocated at once instead, and
 * the functions below do nothing to it. Returns NULL if the body would exceed the whole memory, or
 * if the system has no address space. */
void *qd_arena_reserve(struct qd_arena *arena, size_t bytes);

/* Whether a reservation may be revoked. The memory of a body on which no work has begun is
 * revocable: if other requests need it, the body loses it, and its request is refused. Memory is
 * revoked in this order: first from bodies that are still arriving and brought less than 2 MiB in
 * the last two seconds, then from other bodies that are still arriving, then from bodies that wait
 * for work; within each kind from the latest first. Work that has begun can therefore always
 * finish, and slow clients cannot stop it, however many they are. */
enum qd_reservation {
    QD_RESERVATION_FIRM,   /* the initial state: it may not be revoked */
    QD_RESERVATION_COMING, /* the body is still arriving; may be revoked for work that has begun and
                              for older bodies */
    QD_RESERVATION_WAITING, /* the body is complete; may be revoked for work that has begun */
    QD_RESERVATION_REVOKED, /* revoked: its bytes no longer count and have no meaning */
};
/* Sets the state of something that was reserved. May be called on any thread. Returns false, and
 * changes nothing, if the reservation was revoked before. */
bool qd_arena_set_reservation(struct qd_arena *arena, void *reserved,
                              enum qd_reservation reservation);
bool qd_arena_has_lost(const struct qd_arena *arena, const void *reserved);
/* Commits the first `bytes` of a reservation: from now on they count and may be written. `bytes` is
 * at most what was reserved. Beyond 2 MiB it counts in whole huge pages of 2 MiB. Returns how many
 * bytes may be written: at least `bytes`, SIZE_MAX if all of them may be. If the process' bound is
 * reached, nothing is committed, and the result is less than `bytes`; if the reservation was
 * revoked, it is 0. Sets *fresh, unless `fresh` is NULL, to an offset: no page from there to the
 * result has been touched yet. It is not below the result if all pages have been. */
size_t qd_arena_commit(struct qd_arena *arena, void *reserved, size_t bytes, size_t *fresh);
/* Moves a reservation of 256 KiB or more to another arena of the same memory. */
void qd_arena_move(struct qd_arena *from, struct qd_arena *to, void *reserved);

/* Like realloc, for an allocation of this arena. `old_bytes` is the size with which it was made, or
 * 0 for a NULL `old`. Copies old_bytes, and frees a large old block. If it returns NULL, the old
 * allocation still exists. */
void *qd_arena_grow(struct qd_arena *arena, void *old, size_t old_bytes, size_t new_bytes);

/* Returns a list that has `count` elements, or a larger copy of it, with room for one more. An
 * empty list is NULL and has capacity 0. If it returns NULL, the old list still exists. */
void *qd_arena_extend(struct qd_arena *arena, void *list, size_t count, size_t *capacity,
                      size_t element_bytes);

/* Copies a string. Returns NULL if there is no memory. */
char *qd_arena_copy(struct qd_arena *arena, const char *string);

/* Releases an allocation that was made with `bytes`. A large one is freed now, a small one together
 * with the arena. */
void qd_arena_release(struct qd_arena *arena, void *memory, size_t bytes);

/* Begins work that is expected to take about `bytes` of memory more. Returns false if it has to
 * wait (admission.h). */
bool qd_arena_try_begin(struct qd_arena *arena, size_t bytes);
/* Records that the work is done and takes no more memory. */
void qd_arena_end_work(struct qd_arena *arena);

/* Returns how many bytes this arena and the other arenas of its job (`together`) hold. */
size_t qd_arena_own_bytes(const struct qd_arena *arena);

/* Call it after an allocation returned NULL. Returns whether the block would not even fit into the
 * whole memory, so that trying again later is useless. */
bool qd_arena_hopeless(const struct qd_arena *arena);

/* Fills `error` after an allocation of the arena failed. `what` says what the memory was for ("the
 * output"). Returns QD_TOO_LARGE if the allocation could never succeed, QD_UNAVAILABLE if it may
 * succeed later. */
enum qd_status qd_refuse_memory(const struct qd_arena *arena, const char *what,
                                struct qd_error *error);
