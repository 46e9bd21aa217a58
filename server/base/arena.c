#define _GNU_SOURCE
#include "server/base/arena.h"

#include <assert.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    ALIGNMENT = 64,
    LEAST_BLOCK_BYTES = 1 << 10,
    SMALL_BLOCK_BYTES = 32 << 10, /* holds everything of a request with a few KiB of tensors */
    MODEL_BLOCK_BYTES = 4 << 10,  /* what models hold stays, and a small one has not much */
    HUGE_PAGE_BYTES = 2 << 20,
    STEP_COUNT = 4,        /* sizes of blocks for each doubling: a few, as most are used again */
    MODEL_STEP_COUNT = 16, /* and weights are as often as not a power of two, before the header */
    CLASS_COUNT = MODEL_STEP_COUNT * 50, /* from LEAST_BLOCK_BYTES beyond any memory */
};

/* The header sits in front of the payload, and keeps it aligned. */
struct qd_block {
    struct qd_block *next;
    size_t bytes; /* with the header */
    unsigned class_index;
};
static_assert(sizeof(struct qd_block) <= ALIGNMENT, "the header fits before an aligned payload");

struct block_class {
    struct qd_block *kept; /* free, for reuse */
    size_t kept_count;
    size_t kept_count_min; /* since the last trim: what nobody needed */
};

struct qd_memory {
    bool is_for_models;
    pthread_mutex_t lock;
    size_t bytes_max;
    size_t bytes_used; /* handed out */
    size_t bytes_kept;
    struct block_class classes[CLASS_COUNT];
};

/* Sizes (4, 5, 6, 7) * 2^n: beyond the smallest, under a fifth of a block is wasted; of a model's
 * under a seventeenth. */
static bool class_of(const struct qd_memory *memory, size_t bytes, unsigned *class_index,
                     size_t *class_bytes)
{
    const unsigned step_count = memory->is_for_models ? MODEL_STEP_COUNT : STEP_COUNT;
    size_t step = LEAST_BLOCK_BYTES / step_count;
    unsigned doubling = 0;
    for (; step * (2 * step_count - 1) < bytes; step *= 2)
        if (++doubling == CLASS_COUNT / step_count || step > SIZE_MAX / (4 * MODEL_STEP_COUNT))
            return false;
    unsigned steps = step_count;
    while (step * steps < bytes)
        steps++;
    *class_index = doubling * step_count + steps - step_count;
    *class_bytes = step * steps;
    return true;
}

struct qd_memory *qd_memory_create(size_t bytes_max)
{
    struct qd_memory *memory = calloc(1, sizeof(*memory));
    if (memory != NULL) {
        pthread_mutex_init(&memory->lock, NULL);
        memory->bytes_max = bytes_max;
    }
    return memory;
}

/* Takes a kept block out of its class. The lock is held. */
static struct qd_block *unkeep(struct qd_memory *memory, struct block_class *class)
{
    struct qd_block *block = class->kept;
    class->kept = block->next;
    class->kept_count--;
    if (class->kept_count < class->kept_count_min)
        class->kept_count_min = class->kept_count;
    memory->bytes_kept -= block->bytes;
    return block;
}

/* Unkeeps blocks, the largest first, until `bytes` more fit under the bound. The lock is held. */
static struct qd_block *make_room(struct qd_memory *memory, size_t bytes)
{
    struct qd_block *idle = NULL;
    for (unsigned i = CLASS_COUNT; i-- > 0 && memory->bytes_kept > 0;) {
        while (memory->classes[i].kept != NULL &&
               memory->bytes_used + memory->bytes_kept + bytes > memory->bytes_max) {
            struct qd_block *block = unkeep(memory, &memory->classes[i]);
            block->next = idle;
            idle = block;
        }
    }
    return idle;
}

/* Not under the lock: munmap of a large block is slow. */
static void free_blocks(struct qd_block *blocks)
{
    while (blocks != NULL) {
        struct qd_block *block = blocks;
        blocks = block->next;
        free(block);
    }
}

static struct qd_block *fresh_block(size_t bytes)
{
    size_t alignment = bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : ALIGNMENT;
    void *block = NULL;
    if (posix_memalign(&block, alignment, bytes) != 0)
        return NULL;
    if (bytes >= HUGE_PAGE_BYTES)
        madvise(block, bytes / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES, MADV_HUGEPAGE); /* a hint */
    return block;
}

/* A block of the class `class_index`, of `bytes`. */
static struct qd_block *take_block(struct qd_memory *memory, unsigned class_index, size_t bytes)
{
    struct qd_block *block = NULL;
    struct qd_block *idle = NULL;
    pthread_mutex_lock(&memory->lock);
    bool fits = bytes <= memory->bytes_max - memory->bytes_used;
    if (fits) {
        if (memory->classes[class_index].kept != NULL)
            block = unkeep(memory, &memory->classes[class_index]);
        else
            idle = make_room(memory, bytes);
        memory->bytes_used += bytes;
    }
    pthread_mutex_unlock(&memory->lock);
    if (!fits || block != NULL)
        return block;
    free_blocks(idle);
    block = fresh_block(bytes);
    if (block == NULL) {
        pthread_mutex_lock(&memory->lock);
        memory->bytes_used -= bytes;
        pthread_mutex_unlock(&memory->lock);
        return NULL;
    }
    block->bytes = bytes;
    block->class_index = class_index;
    return block;
}

static void give_block(struct qd_memory *memory, struct qd_block *block)
{
    struct block_class *class = &memory->classes[block->class_index];
    pthread_mutex_lock(&memory->lock);
    block->next = class->kept;
    class->kept = block;
    class->kept_count++;
    memory->bytes_used -= block->bytes;
    memory->bytes_kept += block->bytes;
    pthread_mutex_unlock(&memory->lock);
}

void qd_memory_trim(struct qd_memory *memory)
{
    struct qd_block *idle = NULL;
    pthread_mutex_lock(&memory->lock);
    for (unsigned i = 0; i < CLASS_COUNT; i++) {
        struct block_class *class = &memory->classes[i];
        for (size_t n = class->kept_count_min; n > 0; n--) {
            struct qd_block *block = unkeep(memory, class);
            block->next = idle;
            idle = block;
        }
        class->kept_count_min = class->kept_count;
    }
    pthread_mutex_unlock(&memory->lock);
    free_blocks(idle);
}

void qd_memory_destroy(struct qd_memory *memory)
{
    if (memory == NULL)
        return;
    assert(memory->bytes_used == 0);
    qd_memory_trim(memory);
    qd_memory_trim(memory);
    pthread_mutex_destroy(&memory->lock);
    free(memory);
}

size_t qd_memory_used(struct qd_memory *memory)
{
    pthread_mutex_lock(&memory->lock);
    size_t used = memory->bytes_used;
    pthread_mutex_unlock(&memory->lock);
    return used;
}

size_t qd_memory_kept(struct qd_memory *memory)
{
    pthread_mutex_lock(&memory->lock);
    size_t kept = memory->bytes_kept;
    pthread_mutex_unlock(&memory->lock);
    return kept;
}

size_t qd_memory_max(const struct qd_memory *memory)
{
    return memory->bytes_max;
}

void qd_memory_set_for_models(struct qd_memory *memory)
{
    memory->is_for_models = true;
}

bool qd_memory_is_for_models(const struct qd_memory *memory)
{
    return memory->is_for_models;
}

void qd_arena_init(struct qd_arena *arena, struct qd_memory *memory)
{
    *arena = (struct qd_arena){.memory = memory};
}

void qd_arena_deinit(struct qd_arena *arena)
{
    while (arena->blocks != NULL) {
        struct qd_block *block = arena->blocks;
        arena->blocks = block->next;
        give_block(arena->memory, block);
    }
    if (arena->together != NULL)
        *arena->together -= arena->bytes;
    *arena = (struct qd_arena){.memory = arena->memory, .together = arena->together};
}

size_t qd_arena_own_bytes(const struct qd_arena *arena)
{
    return arena->together != NULL ? *arena->together : arena->bytes;
}

bool qd_arena_hopeless(const struct qd_arena *arena)
{
    return arena->refused_bytes > arena->memory->bytes_max - qd_arena_own_bytes(arena);
}

/* An allocation of a quarter of these gets a block of its own. */
static size_t small_block_bytes(const struct qd_arena *arena)
{
    return arena->memory->is_for_models ? MODEL_BLOCK_BYTES : SMALL_BLOCK_BYTES;
}

static char *payload(struct qd_block *block)
{
    return (char *)block + ALIGNMENT;
}

/* A block for `payload_bytes`, linked into the arena. */
static struct qd_block *add_block(struct qd_arena *arena, size_t payload_bytes)
{
    unsigned class_index;
    size_t bytes;
    if (!class_of(arena->memory, payload_bytes + ALIGNMENT, &class_index, &bytes)) {
        arena->refused_bytes = SIZE_MAX;
        return NULL;
    }
    struct qd_block *block = take_block(arena->memory, class_index, bytes);
    if (block == NULL) {
        arena->refused_bytes = bytes;
        return NULL;
    }
    block->next = arena->blocks;
    arena->blocks = block;
    arena->bytes += block->bytes;
    if (arena->together != NULL)
        *arena->together += block->bytes;
    return block;
}

void *qd_arena_alloc(struct qd_arena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX - 2 * ALIGNMENT) {
        arena->refused_bytes = SIZE_MAX;
        return NULL;
    }
    bytes = bytes == 0 ? 1 : bytes; /* NULL means refused, and nothing else */
    size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (rounded <= arena->room) {
        char *result = arena->next;
        arena->next += rounded;
        arena->room -= rounded;
        return result;
    }
    const size_t small = small_block_bytes(arena);
    const bool is_small = rounded < small / 4;
    struct qd_block *block = add_block(arena, is_small ? small - ALIGNMENT : rounded);
    if (block == NULL)
        return NULL;
    if (is_small) {
        arena->next = payload(block) + rounded;
        arena->room = block->bytes - ALIGNMENT - rounded;
    }
    return payload(block);
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

void *qd_arena_grow(struct qd_arena *arena, void *old, size_t old_bytes, size_t new_bytes)
{
    struct qd_block **link = &arena->blocks;
    while (*link != NULL && payload(*link) != old)
        link = &(*link)->next;
    struct qd_block *own = *link; /* NULL: `old` is in a shared small block */
    bool whole = own != NULL && old_bytes >= small_block_bytes(arena) / 4;
    if (whole && new_bytes <= own->bytes - ALIGNMENT)
        return old;
    void *result = qd_arena_alloc(arena, new_bytes);
    if (result == NULL)
        return NULL;
    if (old_bytes > 0)
        memcpy(result, old, old_bytes);
    if (whole) {
        for (link = &arena->blocks; *link != own; link = &(*link)->next) {
        }
        *link = own->next;
        arena->bytes -= own->bytes;
        if (arena->together != NULL)
            *arena->together -= own->bytes;
        give_block(arena->memory, own);
    }
    return result;
}
