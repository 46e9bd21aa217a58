#include "server/memory/arena.h"

#include <stdint.h>
#include <string.h>

#include "server/memory/blocks.h"

void qd_arena_init(struct qd_arena *arena, struct qd_memory *memory)
{
    *arena = (struct qd_arena){.memory = memory,
                               .small_block_bytes = qd_memory_small_block_bytes(memory)};
}

void qd_arena_init_beside(struct qd_arena *arena, const struct qd_arena *other)
{
    qd_arena_init(arena, other->memory);
    arena->together = other->together;
    arena->is_sparse = other->is_sparse;
}

void qd_arena_deinit(struct qd_arena *arena)
{
    qd_arena_end_work(arena);
    while (arena->blocks != NULL)
        qd_block_give(arena, arena->blocks);
    arena->next = NULL;
    arena->room = arena->refused_bytes = 0;
    qd_arena_forget(arena);
}

void *qd_arena_alloc(struct qd_arena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX - 2 * QD_BLOCK_ALIGNMENT) {
        arena->refused_bytes = SIZE_MAX;
        return NULL;
    }
    bytes = bytes == 0 ? 1 : bytes; /* so that NULL only means that the allocation failed */
    const size_t rounded =
        (bytes + QD_BLOCK_ALIGNMENT - 1) / QD_BLOCK_ALIGNMENT * QD_BLOCK_ALIGNMENT;
    if (rounded <= arena->room) {
        char *result = arena->next;
        arena->next += rounded;
        arena->room -= rounded;
        return result;
    }
    const bool is_small = rounded < arena->small_block_bytes / 4;
    struct qd_block *block =
        qd_block_take(arena, is_small ? arena->small_block_bytes : rounded, false);
    if (block == NULL)
        return NULL;
    if (is_small) {
        arena->next = block->payload + rounded;
        arena->room = block->bytes - rounded;
    }
    return block->payload;
}

void *qd_arena_alloc_any(void *arena, size_t bytes)
{
    return qd_arena_alloc(arena, bytes);
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
    struct qd_block *block = qd_block_take(arena, bytes, true);
    return block == NULL ? NULL : block->payload;
}

size_t qd_arena_commit(struct qd_arena *arena, void *reserved, size_t bytes, size_t *fresh)
{
    struct qd_block *block = block_at(arena, reserved);
    size_t ignored;
    fresh = fresh == NULL ? &ignored : fresh;
    *fresh = SIZE_MAX;
    return block == NULL || !block->large ? SIZE_MAX : qd_block_commit(arena, block, bytes, fresh);
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
    return block != NULL && block->reservation == QD_RESERVATION_REVOKED;
}

/* Returns the block that holds only this allocation of `bytes`, or NULL if the allocation shares a
 * block. */
static struct qd_block *own_block(const struct qd_arena *arena, const void *memory, size_t bytes)
{
    return bytes < arena->small_block_bytes / 4 ? NULL : block_at(arena, memory);
}

void qd_arena_move(struct qd_arena *from, struct qd_arena *to, void *reserved)
{
    qd_block_move(from, to, block_at(from, reserved));
}

void qd_arena_release(struct qd_arena *arena, void *memory, size_t bytes)
{
    struct qd_block *own = own_block(arena, memory, bytes);
    if (own != NULL)
        qd_block_give(arena, own);
}

void *qd_arena_grow(struct qd_arena *arena, void *old, size_t old_bytes, size_t new_bytes)
{
    struct qd_block *own = own_block(arena, old, old_bytes);
    if (own != NULL && qd_block_grow(arena, own, new_bytes))
        return old;
    void *result = qd_arena_alloc(arena, new_bytes);
    if (result == NULL)
        return NULL;
    if (old_bytes > 0)
        memcpy(result, old, old_bytes);
    if (own != NULL)
        qd_block_give(arena, own);
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
