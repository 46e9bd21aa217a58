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
    SMALL_BLOCK_BYTES = 32 << 10,  /* holds everything of a request with a few KiB of tensors */
    MODEL_BLOCK_BYTES = 4 << 10,   /* what models hold stays, and a small one has not much */
    LARGE_BLOCK_BYTES = 256 << 10, /* from here on a block counts by its pages */
    PAGE_BYTES = 4 << 10,
    HUGE_PAGE_BYTES = 2 << 20,
    STEP_COUNT = 4,        /* sizes of blocks for each doubling: a few, as most are used again */
    MODEL_STEP_COUNT = 16, /* of those below LARGE_BLOCK_BYTES, that a class counts whole */
    CLASS_COUNT = MODEL_STEP_COUNT * 50, /* from LEAST_BLOCK_BYTES beyond any memory */
};

/* A small block is its header and its payload, of its class' size. A large one's header stands
 * alone; its payload is address space of its class' size, of which pages are taken as they are
 * wanted: so one that was used for 16 MiB serves for 18 again, and nobody pays for 20. */
struct qd_block {
    struct qd_block *next;
    char *payload;
    size_t bytes;                   /* that count: a small one's, a large one's pages in use */
    size_t touched;                 /* a large one's pages that may be in memory: no less */
    size_t limit;                   /* how far `bytes` may grow: what was asked for */
    struct qd_block *next_reserved; /* of those that are handed out with more touched than in use */
    struct qd_block *previous_reserved;
    unsigned class_index;
    bool large;
    bool reserved;
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
    size_t bytes_kept; /* of kept blocks, and what reserved ones have touched beyond their use */
    struct qd_block *reserved;
    struct block_class classes[CLASS_COUNT];
};

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* Sizes (4, 5, 6, 7) * 2^n; of models' small blocks (16 ... 31) * 2^n. */
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

/* The size of the class with this index. */
static size_t class_bytes_of(const struct qd_memory *memory, unsigned class_index)
{
    const unsigned step_count = memory->is_for_models ? MODEL_STEP_COUNT : STEP_COUNT;
    const size_t step = (size_t)LEAST_BLOCK_BYTES / step_count << class_index / step_count;
    return step * (step_count + class_index % step_count);
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

/* ---- Blocks and the system ---------------------------------------------------------------- */

/* Not under the lock: munmap of a large block is slow. */
static void free_blocks(const struct qd_memory *memory, struct qd_block *blocks)
{
    while (blocks != NULL) {
        struct qd_block *block = blocks;
        blocks = block->next;
        if (block->large)
            munmap(block->payload, class_bytes_of(memory, block->class_index));
        free(block);
    }
}

static struct qd_block *fresh_small(size_t bytes)
{
    void *memory = NULL;
    if (posix_memalign(&memory, ALIGNMENT, bytes) != 0)
        return NULL;
    struct qd_block *block = memory;
    *block = (struct qd_block){.payload = (char *)memory + ALIGNMENT, .bytes = bytes};
    return block;
}

/* Address space on a huge page's boundary, if it is as large as one. NULL: there is none. */
static char *map(size_t bytes)
{
    const size_t more = bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : 0;
    if (bytes > SIZE_MAX - more)
        return NULL;
    char *start = mmap(NULL, bytes + more, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED || more == 0)
        return start == MAP_FAILED ? NULL : start;
    char *aligned = (char *)round_up((uintptr_t)start, HUGE_PAGE_BYTES);
    const size_t before = (size_t)(aligned - start);
    if (before > 0)
        munmap(start, before);
    munmap(aligned + bytes, more - before);
    return aligned;
}

/* Huge pages only where all of one will be in use: of what is reserved, not the first. */
static struct qd_block *fresh_large(size_t capacity, size_t limit, bool reserved)
{
    struct qd_block *block = calloc(1, sizeof(*block));
    char *payload = block == NULL ? NULL : map(capacity);
    if (payload == NULL) {
        free(block);
        return NULL;
    }
    *block = (struct qd_block){.payload = payload, .large = true};
    const size_t from = reserved ? HUGE_PAGE_BYTES : 0;
    const size_t to = limit / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    if (from < to)
        madvise(payload + from, to - from, MADV_HUGEPAGE); /* a hint */
    return block;
}

/* Gives the pages beyond `bytes` back, and keeps their addresses. */
static void untouch(struct qd_block *block, size_t bytes)
{
    if (block->touched > bytes)
        madvise(block->payload + bytes, block->touched - bytes, MADV_DONTNEED);
    block->touched = bytes;
}

/* ---- Keeping and handing out -------------------------------------------------------------- */

static size_t held_bytes(const struct qd_block *block)
{
    return block->large ? block->touched : block->bytes;
}

/* Takes a kept block out of its class. The lock is held. */
static struct qd_block *unkeep(struct qd_memory *memory, struct block_class *class)
{
    struct qd_block *block = class->kept;
    class->kept = block->next;
    class->kept_count--;
    if (class->kept_count < class->kept_count_min)
        class->kept_count_min = class->kept_count;
    memory->bytes_kept -= held_bytes(block);
    return block;
}

static bool is_over(const struct qd_memory *memory)
{
    return memory->bytes_used > memory->bytes_max ||
           memory->bytes_kept > memory->bytes_max - memory->bytes_used;
}

/* Unkeeps blocks, the largest first, until all is under the bound again; then reserved ones lose
 * what they do not use yet. The lock is held. */
static struct qd_block *make_room(struct qd_memory *memory)
{
    struct qd_block *idle = NULL;
    for (unsigned i = CLASS_COUNT; i-- > 0 && is_over(memory);) {
        while (memory->classes[i].kept != NULL && is_over(memory)) {
            struct qd_block *block = unkeep(memory, &memory->classes[i]);
            block->next = idle;
            idle = block;
        }
    }
    for (struct qd_block *b = memory->reserved; b != NULL && is_over(memory);
         b = b->next_reserved) {
        memory->bytes_kept -= b->touched - b->bytes;
        untouch(b, b->bytes);
    }
    return idle;
}

static void list_reserved(struct qd_memory *memory, struct qd_block *block)
{
    block->reserved = true;
    block->previous_reserved = NULL;
    block->next_reserved = memory->reserved;
    if (memory->reserved != NULL)
        memory->reserved->previous_reserved = block;
    memory->reserved = block;
}

static void unlist_reserved(struct qd_memory *memory, struct qd_block *block)
{
    block->reserved = false;
    if (block->previous_reserved != NULL)
        block->previous_reserved->next_reserved = block->next_reserved;
    else
        memory->reserved = block->next_reserved;
    if (block->next_reserved != NULL)
        block->next_reserved->previous_reserved = block->previous_reserved;
}

/* What to take: `bytes` of it count from the start, of `limit`. */
struct wish {
    unsigned class_index;
    size_t class_bytes;
    bool large;
    bool reserved;
    size_t bytes;
    size_t limit;
};

/* The lock is held, and `block`, which was kept, is not in its class any more. */
static void hand_out(struct qd_memory *memory, struct qd_block *block, const struct wish *wish)
{
    block->limit = wish->limit;
    if (!block->large)
        return;
    block->bytes = wish->bytes;
    if (wish->reserved) {
        memory->bytes_kept += block->touched;
        list_reserved(memory, block);
    }
}

static struct qd_block *fresh_block(const struct wish *wish)
{
    struct qd_block *block = wish->large
                                 ? fresh_large(wish->class_bytes, wish->limit, wish->reserved)
                                 : fresh_small(wish->class_bytes);
    if (block != NULL)
        block->class_index = wish->class_index;
    return block;
}

static struct qd_block *take_block(struct qd_memory *memory, const struct wish *wish)
{
    struct block_class *class = &memory->classes[wish->class_index];
    struct qd_block *block = NULL;
    struct qd_block *idle = NULL;
    pthread_mutex_lock(&memory->lock);
    const bool fits = wish->bytes <= memory->bytes_max - memory->bytes_used;
    if (fits) {
        if (class->kept != NULL) {
            block = unkeep(memory, class);
            hand_out(memory, block, wish);
        }
        memory->bytes_used += wish->bytes;
        idle = make_room(memory);
    }
    pthread_mutex_unlock(&memory->lock);
    free_blocks(memory, idle);
    if (block != NULL && block->large && !wish->reserved)
        untouch(block, block->touched < wish->bytes ? block->touched : wish->bytes);
    if (!fits || block != NULL)
        return block;
    block = fresh_block(wish);
    pthread_mutex_lock(&memory->lock);
    if (block != NULL)
        hand_out(memory, block, wish);
    else
        memory->bytes_used -= wish->bytes;
    pthread_mutex_unlock(&memory->lock);
    return block;
}

static void give_block(struct qd_memory *memory, struct qd_block *block)
{
    struct block_class *class = &memory->classes[block->class_index];
    pthread_mutex_lock(&memory->lock);
    if (block->reserved) {
        unlist_reserved(memory, block);
        memory->bytes_kept -= block->touched - block->bytes;
    } else if (block->large) {
        block->touched = block->bytes; /* who had it has written it, as far as we know */
    }
    memory->bytes_used -= block->bytes;
    memory->bytes_kept += held_bytes(block);
    block->next = class->kept;
    class->kept = block;
    class->kept_count++;
    pthread_mutex_unlock(&memory->lock);
}

/* So many bytes of a large block count from now on. False: that is beyond the bound. */
static bool extend_block(struct qd_memory *memory, struct qd_block *block, size_t bytes)
{
    struct qd_block *idle = NULL;
    pthread_mutex_lock(&memory->lock);
    const size_t more = bytes - block->bytes;
    const bool fits = more <= memory->bytes_max - memory->bytes_used;
    if (fits) {
        const size_t spare = block->reserved ? block->touched - block->bytes : 0;
        memory->bytes_kept -= more < spare ? more : spare;
        memory->bytes_used += more;
        block->bytes = bytes;
        block->touched = bytes > block->touched ? bytes : block->touched;
        idle = make_room(memory);
    }
    pthread_mutex_unlock(&memory->lock);
    free_blocks(memory, idle);
    return fits;
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
    free_blocks(memory, idle);
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

static void count(struct qd_arena *arena, size_t bytes)
{
    arena->bytes += bytes;
    if (arena->together != NULL)
        *arena->together += bytes;
}

/* A class has blocks of one kind only, so which kind is the class' to say: a small block whose
 * header brings it to LARGE_BLOCK_BYTES would else be kept among large ones, and be handed out
 * without the bytes of its header. */
static bool choose_class(const struct qd_arena *arena, size_t bytes, struct wish *wish)
{
    if (!class_of(arena->memory, bytes + ALIGNMENT, &wish->class_index, &wish->class_bytes))
        return false;
    wish->large = wish->class_bytes >= LARGE_BLOCK_BYTES;
    return !wish->large ||
           class_of(arena->memory, bytes < LARGE_BLOCK_BYTES ? LARGE_BLOCK_BYTES : bytes,
                    &wish->class_index, &wish->class_bytes);
}

/* A block for `bytes`, linked into the arena; of a reserved one nothing counts yet. */
static struct qd_block *add_block(struct qd_arena *arena, size_t bytes, bool reserved)
{
    struct wish wish = {.reserved = reserved};
    if (!choose_class(arena, bytes, &wish)) {
        arena->refused_bytes = SIZE_MAX;
        return NULL;
    }
    wish.limit = wish.large ? round_up(bytes, PAGE_BYTES) : wish.class_bytes;
    wish.bytes = reserved ? 0 : wish.limit;
    struct qd_block *block = take_block(arena->memory, &wish);
    if (block == NULL) {
        arena->refused_bytes = wish.limit;
        return NULL;
    }
    block->next = arena->blocks;
    arena->blocks = block;
    count(arena, block->bytes);
    return block;
}

void *qd_arena_alloc(struct qd_arena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX - 2 * ALIGNMENT) {
        arena->refused_bytes = SIZE_MAX;
        return NULL;
    }
    bytes = bytes == 0 ? 1 : bytes; /* NULL means refused, and nothing else */
    size_t rounded = round_up(bytes, ALIGNMENT);
    if (rounded <= arena->room) {
        char *result = arena->next;
        arena->next += rounded;
        arena->room -= rounded;
        return result;
    }
    const size_t small = small_block_bytes(arena);
    const bool is_small = rounded < small / 4;
    struct qd_block *block = add_block(arena, is_small ? small - ALIGNMENT : rounded, false);
    if (block == NULL)
        return NULL;
    if (is_small) {
        arena->next = block->payload + rounded;
        arena->room = block->bytes - ALIGNMENT - rounded;
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

/* NULL: `memory` is in a shared small block. */
static struct qd_block *block_at(const struct qd_arena *arena, const void *memory)
{
    struct qd_block *block = arena->blocks;
    while (block != NULL && block->payload != memory)
        block = block->next;
    return block;
}

void *qd_arena_reserve(struct qd_arena *arena, size_t bytes)
{
    if (bytes < LARGE_BLOCK_BYTES)
        return qd_arena_alloc(arena, bytes);
    if (bytes > arena->memory->bytes_max - qd_arena_own_bytes(arena)) {
        arena->refused_bytes = bytes;
        return NULL;
    }
    struct qd_block *block = add_block(arena, bytes, true);
    return block == NULL ? NULL : block->payload;
}

/* The first huge page's worth counts by small pages, as it comes. */
static size_t step_bytes(size_t bytes)
{
    return bytes <= HUGE_PAGE_BYTES ? round_up(bytes, PAGE_BYTES)
                                    : round_up(bytes, HUGE_PAGE_BYTES);
}

bool qd_arena_commit(struct qd_arena *arena, void *reserved, size_t bytes)
{
    struct qd_block *block = block_at(arena, reserved);
    if (block == NULL || !block->large || bytes <= block->bytes)
        return true;
    size_t wanted = step_bytes(bytes);
    wanted = wanted > block->limit ? block->limit : wanted;
    assert(bytes <= wanted);
    const size_t more = wanted - block->bytes;
    if (!extend_block(arena->memory, block, wanted)) {
        arena->refused_bytes = more;
        return false;
    }
    count(arena, more);
    return true;
}

/* The block alone holds an allocation, and has room for it to grow to so many bytes. */
static bool grow_in_place(struct qd_arena *arena, struct qd_block *block, size_t bytes)
{
    if (!block->large)
        return bytes <= block->bytes - ALIGNMENT;
    if (bytes > class_bytes_of(arena->memory, block->class_index))
        return false;
    const size_t limit = round_up(bytes, PAGE_BYTES);
    if (limit <= block->bytes)
        return true;
    const size_t more = limit - block->bytes;
    if (!extend_block(arena->memory, block, limit))
        return false;
    block->limit = limit > block->limit ? limit : block->limit;
    count(arena, more);
    return true;
}

void *qd_arena_grow(struct qd_arena *arena, void *old, size_t old_bytes, size_t new_bytes)
{
    struct qd_block *own = old_bytes < small_block_bytes(arena) / 4 ? NULL : block_at(arena, old);
    if (own != NULL && grow_in_place(arena, own, new_bytes))
        return old;
    void *result = qd_arena_alloc(arena, new_bytes);
    if (result == NULL)
        return NULL;
    if (old_bytes > 0)
        memcpy(result, old, old_bytes);
    if (own != NULL) {
        struct qd_block **link = &arena->blocks;
        while (*link != own)
            link = &(*link)->next;
        *link = own->next;
        arena->bytes -= own->bytes;
        if (arena->together != NULL)
            *arena->together -= own->bytes;
        give_block(arena->memory, own);
    }
    return result;
}
