/* Memory for requests: one bound for the whole process, one arena per request.
 *
 * struct qd_memory hands out large blocks and takes them back. What is handed out and what is kept
 * for reuse never exceed bytes_max together (--max-inflight-bytes, --max-model-bytes). Reuse
 * matters: a fresh 64 MiB block costs 34 ms of page faults where a used one costs 8. From 256 KiB
 * on a block counts, and holds, no more than the pages that were asked for; a smaller one counts
 * whole. Safe on any thread.
 *
 * struct qd_arena belongs to one request and is used by one thread at a time. Everything in it goes
 * back at once. Allocations are 64-byte aligned.
 */
#ifndef SERVER_MEMORY_ARENA_H
#define SERVER_MEMORY_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/status.h"

struct qd_admission;
struct qd_memory;
struct qd_prefault;

struct qd_memory *qd_memory_create(size_t bytes_max); /* NULL: malloc failed */
void qd_memory_destroy(struct qd_memory *memory);     /* every arena must be gone */
size_t qd_memory_used(struct qd_memory *memory);      /* bytes handed out */
size_t qd_memory_kept(struct qd_memory *memory);      /* and kept for reuse */
size_t qd_memory_max(const struct qd_memory *memory);

/* Says that it is the loaded models' memory, and not that of requests: refusals name
 * --max-model-bytes then, and not --max-inflight-bytes. Before other threads use it. */
void qd_memory_set_for_models(struct qd_memory *memory);
bool qd_memory_is_for_models(const struct qd_memory *memory);

/* The thread that touches fresh pages for those that do not want to wait for them (prefault.h),
 * borrowed; NULL, as at first: there is none. Before other threads use the memory. */
void qd_memory_set_prefault(struct qd_memory *memory, struct qd_prefault *prefault);
struct qd_prefault *qd_memory_prefault(const struct qd_memory *memory);

/* Calls each time that bodies have lost their memory (QD_RESERVATION_REVOKED): on whichever thread
 * needed it, with a lock held, so that all it may do is wake somebody. NULL, as at first: nobody is
 * told. No call is under way when it returns. */
typedef void qd_memory_on_lost(void *context);
void qd_memory_set_on_lost(struct qd_memory *memory, qd_memory_on_lost *on_lost, void *context);

/* Whether so many bytes are free now, or held by bodies that come slowly: so a body of that size
 * may come, as far as one can know. */
bool qd_memory_has_room(struct qd_memory *memory, size_t bytes);
/* How many bodies there are on which no work has begun, without those that come slowly. *oldest_ns:
 * when the first of them began to come; now, if there is none. */
size_t qd_memory_bodies(struct qd_memory *memory, uint64_t *oldest_ns);
/* Who may begin to work (admission.h). */
struct qd_admission *qd_memory_admission(const struct qd_memory *memory);

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
    size_t spoken_bytes;  /* set aside by qd_arena_try_begin, and not taken yet */
    bool has_begun;       /* work with it has, by qd_arena_try_begin */
    bool works;           /* and is not done */
    size_t *together; /* the sum of `bytes` of all arenas of one job, this one among them; borrowed,
                       * on one thread at a time; NULL: it stands alone */
};

void qd_arena_init(struct qd_arena *arena, struct qd_memory *memory);
void qd_arena_deinit(struct qd_arena *arena);

/* NULL: the process' bound is reached, or malloc failed. The memory is not zeroed. 0 bytes are
 * taken for 1, so NULL has no other meaning. */
void *qd_arena_alloc(struct qd_arena *arena, size_t bytes);
void *qd_arena_calloc(struct qd_arena *arena, size_t count, size_t bytes);

/* Address space for a body of so many bytes, as its client tells its size before it comes. None of
 * them counts, or may be written, before qd_arena_commit; but less than 256 KiB is allocated at
 * once, and what follows does nothing to it. NULL: the arena would not get so many even with the
 * whole memory to itself, or the system has no address space. */
void *qd_arena_reserve(struct qd_arena *arena, size_t bytes);

/* Whether a reservation may be revoked. The memory of a body on which no work has begun is
 * revocable: if other requests need it, the body loses it, and its request is refused. First to
 * lose it are bodies that still come and have brought less than 2 MiB in their last two seconds,
 * then others that still come, then bodies that wait for work, of each kind the latest first. So
 * work that has begun comes to its end, and neither slow clients nor crowds of them hold it up. */
enum qd_reservation {
    QD_RESERVATION_FIRM,    /* it may not; so it is at first */
    QD_RESERVATION_COMING,  /* more of the body comes; revoked for work that has begun, and bodies
                             * that came before */
    QD_RESERVATION_WAITING, /* all of the body is there; revoked for work that has begun */
    QD_RESERVATION_REVOKED, /* its bytes count no more, and mean nothing */
};
/* False: it was lost before, and stays so. Only of what was reserved; on any thread. */
bool qd_arena_set_reservation(struct qd_arena *arena, void *reserved,
                              enum qd_reservation reservation);
bool qd_arena_has_lost(const struct qd_arena *arena, const void *reserved);
/* From now on the first so many bytes of it count, and may be written; at most what was reserved.
 * Beyond 2 MiB these are whole large pages, of 2 MiB. False: the process' bound is reached, or it
 * is lost, and nothing has changed. */
bool qd_arena_commit(struct qd_arena *arena, void *reserved, size_t bytes);
/* The same. *fresh: from this byte on, up to what is committed then, no page was touched yet. */
bool qd_arena_commit_fresh(struct qd_arena *arena, void *reserved, size_t bytes, size_t *fresh);
/* How many bytes of it may be written by now; SIZE_MAX: all that was reserved. */
size_t qd_arena_committed(const struct qd_arena *arena, const void *reserved);
/* Takes what was reserved, 256 KiB or more, out of the arena, for somebody who uses it for longer
 * than the arena is there. That one calls qd_block_give (blocks.h); until then its bytes count as
 * handed out. */
struct qd_block *qd_arena_detach(struct qd_arena *arena, void *reserved);

/* Like realloc for an allocation of this arena (old_bytes: what it was made with; 0 for a NULL
 * `old`): copies old_bytes, gives a large old block back. On NULL the old one is still there. */
void *qd_arena_grow(struct qd_arena *arena, void *old, size_t old_bytes, size_t new_bytes);

/* An allocation that nobody needs any more, made with so many bytes: a large one goes back now, a
 * small one with the arena. */
void qd_arena_release(struct qd_arena *arena, void *memory, size_t bytes);

/* Begins work that will take about so many bytes more. False: it has to wait (admission.h). */
bool qd_arena_try_begin(struct qd_arena *arena, size_t bytes);
/* The work is done, and takes no more. */
void qd_arena_end_work(struct qd_arena *arena);

/* What it holds, with the other arenas of its job (together). */
size_t qd_arena_own_bytes(const struct qd_arena *arena);

/* After a NULL: not even with the whole memory to itself would the arena have got the block. So
 * trying again later is in vain. */
bool qd_arena_hopeless(const struct qd_arena *arena);

/* The arena's last allocation, for `what` ("the output"), failed: QD_TOO_LARGE when it could never
 * fit, QD_UNAVAILABLE when it may fit later. */
enum qd_status qd_refuse_memory(const struct qd_arena *arena, const char *what,
                                struct qd_error *error);

#endif
