#include "server/memory/arena.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "server/memory/admission.h"
#include "server/memory/blocks.h"

enum {
    SMALL_BLOCK_BYTES = 32 << 10, /* holds all memory of a request with a few KiB of tensors */
    MODEL_BLOCK_BYTES = 4 << 10,  /* models keep their memory, and a small model needs little */
};

void qd_arena_init(struct qd_arena *arena, struct qd_memory *memory)
{
    *arena = (struct qd_arena){.memory = memory};
}

static void count(struct qd_arena *arena, size_t bytes)
{
    arena->bytes += bytes;
    if (arena->together != NULL)
        *arena->together += bytes;
}

/* Counts bytes that the arena has taken. */
static void count_taken(struct qd_arena *arena, size_t bytes)
{
    const size_t spoken = bytes < arena->spoken_bytes ? bytes : arena->spoken_bytes;
    count(arena, bytes);
    if (spoken > 0)
        qd_admission_take(qd_memory_admission(arena->memory), spoken);
    arena->spoken_bytes -= spoken;
}

bool qd_arena_try_begin(struct qd_arena *arena, size_t bytes)
{
    const size_t max = qd_memory_max(arena->memory);
    bytes = bytes < max ? bytes : max;
    if (!qd_admission_try_begin(qd_memory_admission(arena->memory), bytes))
        return false;
    arena->spoken_bytes = bytes;
    arena->has_begun = true;
    arena->works = true;
    return true;
}

void qd_arena_end_work(struct qd_arena *arena)
{
    if (!arena->works)
        return;
    qd_admission_take(qd_memory_admission(arena->memory), arena->spoken_bytes);
    arena->spoken_bytes = 0;
    arena->works = false;
    qd_admission_end(qd_memory_admission(arena->memory));
}

void qd_arena_deinit(struct qd_arena *arena)
{
    const bool has_begun = arena->has_begun;
    qd_arena_end_work(arena);
    while (arena->blocks != NULL) {
        struct qd_block *block = arena->blocks;
        arena->blocks = block->next;
        qd_block_give(arena->memory, block);
    }
    count(arena, 0 - arena->bytes);
    *arena = (struct qd_arena){.memory = arena->memory, .together = arena->together};
    if (has_begun)
        qd_admission_forget(qd_memory_admission(arena->memory));
}

size_t qd_arena_own_bytes(const struct qd_arena *arena)
{
    return arena->together != NULL ? *arena->together : arena->bytes;
}

bool qd_arena_hopeless(const struct qd_arena *arena)
{
    return arena->refused_bytes > qd_memory_max(arena->memory) - qd_arena_own_bytes(arena);
}

/* Returns the size of the arena's small blocks. An allocation of a quarter of it or more gets a
 * block of its own. */
static size_t small_block_bytes(const struct qd_arena *arena)
{
    return qd_memory_is_for_models(arena->memory) ? MODEL_BLOCK_BYTES : SMALL_BLOCK_BYTES;
}

/* Chooses the class of a block. All blocks of a class are of one kind, so the class decides whether
 * the block is small or large. Otherwise a small block that its header brings to
 * QD_LARGE_BLOCK_BYTES would be kept among large blocks, and handed out without the bytes of its
 * header. */
static bool choose_class(const struct qd_arena *arena, size_t bytes, struct qd_block_wish *wish)
{
    if (!qd_block_class(arena->memory, bytes + QD_BLOCK_ALIGNMENT, &wish->class_index,
                        &wish->class_bytes))
        return false;
    wish->large = wish->class_bytes >= QD_LARGE_BLOCK_BYTES;
    return !wish->large ||
           qd_block_class(arena->memory,
                          bytes < QD_LARGE_BLOCK_BYTES ? QD_LARGE_BLOCK_BYTES : bytes,
                          &wish->class_index, &wish->class_bytes);
}

/* Takes a block for `bytes` and links it into the arena. No byte of a reserved block counts yet. */
static struct qd_block *add_block(struct qd_arena *arena, size_t bytes, bool reserved)
{
    struct qd_block_wish wish = {.reserved = reserved};
    if (!choose_class(arena, bytes, &wish)) {
        arena->refused_bytes = SIZE_MAX;
        return NULL;
    }
    wish.limit = wish.large ? qd_round_up(bytes, QD_PAGE_BYTES) : wish.class_bytes;
    wish.bytes = reserved ? 0 : wish.limit;
    struct qd_block *block = qd_block_take(arena->memory, &wish);
    if (block == NULL) {
        arena->refused_bytes = wish.limit;
        return NULL;
    }
    block->next = arena->blocks;
    arena->blocks = block;
    count_taken(arena, block->bytes);
    return block;
}

void *qd_arena_alloc(struct qd_arena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX - 2 * QD_BLOCK_ALIGNMENT) {
        arena->refused_bytes = SIZE_MAX;
        return NULL;
    }
    bytes = bytes == 0 ? 1 : bytes; /* so that NULL only means that the allocation failed */
    size_t rounded = qd_round_up(bytes, QD_BLOCK_ALIGNMENT);
    if (rounded <= arena->room) {
        char *result = arena->next;
        arena->next += rounded;
        arena->room -= rounded;
        return result;
    }
    const size_t small = small_block_bytes(arena);
    const bool is_small = rounded < small / 4;
    struct qd_block *block =
        add_block(arena, is_small ? small - QD_BLOCK_ALIGNMENT : rounded, false);
    if (block == NULL)
        return NULL;
    if (is_small) {
        arena->next = block->payload + rounded;
        arena->room = block->bytes - QD_BLOCK_ALIGNMENT - rounded;
    }
    return block->payload;
}

void *qd_arena_calloc(struct qd_arena *arena, size_t count, size_t bytes)
{
    size_t total;
    if (__builtin_mul_overflow(count, bytes, &total)) {
        arena->refused_bytes = SIZE_MAX;
        return NULL;
    }
    void *result = qd_arena_alloc(arena, total);
    return result == NULL ? NULL : memset(result, 0, total);
}

/* Returns the block that begins at `memory`, or NULL if `memory` is in a shared small block. */
static struct qd_block *block_at(const struct qd_arena *arena, const void *memory)
{
    struct qd_block *block = arena->blocks;
    while (block != NULL && block->payload != memory)
        block = block->next;
    return block;
}

void *qd_arena_reserve(struct qd_arena *arena, size_t bytes)
{
    if (bytes < QD_LARGE_BLOCK_BYTES)
        return qd_arena_alloc(arena, bytes);
    if (bytes > qd_memory_max(arena->memory) - qd_arena_own_bytes(arena)) {
        arena->refused_bytes = bytes;
        return NULL;
    }
    struct qd_block *block = add_block(arena, bytes, true);
    return block == NULL ? NULL : block->payload;
}

/* Returns the granularity in which `bytes` count: small pages up to the size of a huge page, huge
 * pages beyond. */
static size_t step_bytes(size_t bytes)
{
    return bytes <= QD_HUGE_PAGE_BYTES ? qd_round_up(bytes, QD_PAGE_BYTES)
                                       : qd_round_up(bytes, QD_HUGE_PAGE_BYTES);
}

bool qd_arena_commit_fresh(struct qd_arena *arena, void *reserved, size_t bytes, size_t *fresh)
{
    struct qd_block *block = block_at(arena, reserved);
    *fresh = SIZE_MAX;
    if (block != NULL && qd_block_is_lost(block)) {
        arena->refused_bytes = 0;
        return false;
    }
    if (block == NULL || !block->large || bytes <= block->bytes)
        return true;
    size_t wanted = step_bytes(bytes);
    wanted = wanted > block->limit ? block->limit : wanted;
    assert(bytes <= wanted);
    const size_t more = wanted - block->bytes;
    if (!qd_block_extend(arena->memory, block, wanted, fresh)) {
        arena->refused_bytes = more;
        return false;
    }
    count_taken(arena, more);
    return true;
}

bool qd_arena_set_reservation(struct qd_arena *arena, void *reserved,
                              enum qd_reservation reservation)
{
    struct qd_block *block = block_at(arena, reserved);
    return block == NULL || !block->reserved ||
           qd_block_set_reservation(arena->memory, block, reservation);
}

bool qd_arena_has_lost(const struct qd_arena *arena, const void *reserved)
{
    const struct qd_block *block = block_at(arena, reserved);
    return block != NULL && qd_block_is_lost(block);
}

bool qd_arena_commit(struct qd_arena *arena, void *reserved, size_t bytes)
{
    size_t fresh;
    return qd_arena_commit_fresh(arena, reserved, bytes, &fresh);
}

size_t qd_arena_committed(const struct qd_arena *arena, const void *reserved)
{
    const struct qd_block *block = block_at(arena, reserved);
    if (block == NULL || !block->large)
        return SIZE_MAX;
    return qd_block_is_lost(block) ? 0 : block->bytes;
}

/* Grows the only allocation of a block to `bytes`. Returns false if the block has no room. */
static bool grow_in_place(struct qd_arena *arena, struct qd_block *block, size_t bytes)
{
    if (!block->large)
        return bytes <= block->bytes - QD_BLOCK_ALIGNMENT;
    if (bytes > qd_block_class_bytes(arena->memory, block->class_index))
        return false;
    const size_t limit = qd_round_up(bytes, QD_PAGE_BYTES);
    if (limit <= block->bytes)
        return true;
    const size_t more = limit - block->bytes;
    size_t fresh;
    if (!qd_block_extend(arena->memory, block, limit, &fresh))
        return false;
    block->limit = limit > block->limit ? limit : block->limit;
    count_taken(arena, more);
    return true;
}

/* Returns the block that holds only this allocation of `bytes`, or NULL if the allocation shares a
 * block. */
static struct qd_block *own_block(const struct qd_arena *arena, const void *memory, size_t bytes)
{
    return bytes < small_block_bytes(arena) / 4 ? NULL : block_at(arena, memory);
}

static void take_out(struct qd_arena *arena, struct qd_block *own)
{
    struct qd_block **link = &arena->blocks;
    while (*link != own)
        link = &(*link)->next;
    *link = own->next;
    count(arena, 0 - own->bytes); /* subtracts */
}

static void give_back(struct qd_arena *arena, struct qd_block *own)
{
    if (own == NULL)
        return;
    take_out(arena, own);
    qd_block_give(arena->memory, own);
}

void qd_arena_move(struct qd_arena *from, struct qd_arena *to, void *reserved)
{
    struct qd_block *block = block_at(from, reserved);
    assert(block != NULL && block->large);
    take_out(from, block);
    block->next = to->blocks;
    to->blocks = block;
    count(to, block->bytes);
}

void qd_arena_release(struct qd_arena *arena, void *memory, size_t bytes)
{
    give_back(arena, own_block(arena, memory, bytes));
}

void *qd_arena_grow(struct qd_arena *arena, void *old, size_t old_bytes, size_t new_bytes)
{
    struct qd_block *own = own_block(arena, old, old_bytes);
    if (own != NULL && grow_in_place(arena, own, new_bytes))
        return old;
    void *result = qd_arena_alloc(arena, new_bytes);
    if (result == NULL)
        return NULL;
    if (old_bytes > 0)
        memcpy(result, old, old_bytes);
    give_back(arena, own);
    return result;
}

void *qd_arena_extend(struct qd_arena *arena, void *list, size_t count, size_t *capacity,
                      size_t element_bytes)
{
    enum { CAPACITY_MIN = 8 };
    if (count < *capacity)
        return list;
    const size_t wanted = *capacity == 0 ? CAPACITY_MIN : *capacity * 2;
    list = qd_arena_grow(arena, list, *capacity * element_bytes, wanted * element_bytes);
    *capacity = list == NULL ? *capacity : wanted;
    return list;
}

char *qd_arena_copy(struct qd_arena *arena, const char *string)
{
    const size_t bytes = strlen(string) + 1;
    char *copy = qd_arena_alloc(arena, bytes);
    return copy == NULL ? NULL : memcpy(copy, string, bytes);
}

/* ---- Refusals ----------------------------------------------------------------------------- */

/* Refuses memory for a model. The text says how much is missing, which the server's operator needs
 * to know. */
static enum qd_status refuse_model_memory(const struct qd_arena *arena, const char *what,
                                          struct qd_error *error)
{
    size_t bytes_max = qd_memory_max(arena->memory);
    size_t used = qd_memory_used(arena->memory);
    size_t left = used < bytes_max ? bytes_max - used : 0;
    size_t wanted = arena->refused_bytes;
    size_t own = qd_arena_own_bytes(arena);
    if (wanted <= left) {
        return qd_fail_for(error, QD_REASON_MODEL_MEMORY, QD_UNAVAILABLE,
                           "no memory for %s: the system has no %zu bytes", what, wanted);
    }
    return qd_fail_for(
        error, QD_REASON_MODEL_MEMORY, qd_arena_hopeless(arena) ? QD_TOO_LARGE : QD_UNAVAILABLE,
        "no memory for %s: %zu bytes are missing in --max-model-bytes (%zu), of which "
        "this load has %zu, and others %zu",
        what, wanted - left, bytes_max, own, used > own ? used - own : 0);
}

enum qd_status qd_refuse_memory(const struct qd_arena *arena, const char *what,
                                struct qd_error *error)
{
    size_t bytes_max = qd_memory_max(arena->memory);
    if (qd_memory_is_for_models(arena->memory))
        return refuse_model_memory(arena, what, error);
    if (arena->refused_bytes == 0) {
        return qd_fail_for(error, QD_REASON_MEMORY, QD_UNAVAILABLE,
                           "no memory for %s: it gave way to other requests, which hold most of "
                           "--max-inflight-bytes (%zu); try again later",
                           what, bytes_max);
    }
    if (qd_arena_hopeless(arena)) {
        return qd_fail_for(
            error, QD_REASON_MEMORY, QD_TOO_LARGE,
            "no memory for %s: %zu bytes more than the %zu this request already holds "
            "exceed --max-inflight-bytes (%zu)",
            what, arena->refused_bytes, arena->bytes, bytes_max);
    }
    return qd_fail_for(error, QD_REASON_MEMORY, QD_UNAVAILABLE,
                       "no memory for %s: %zu bytes, and other requests hold most of "
                       "--max-inflight-bytes (%zu); try again later",
                       what, arena->refused_bytes, bytes_max);
}
