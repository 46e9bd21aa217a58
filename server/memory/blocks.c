#define _GNU_SOURCE
#include "server/memory/blocks.h"

#include <assert.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "server/base/clock.h"
#include "server/memory/admission.h"

/* While memory is short, a body is slow if it brings less than SLOW_BYTES in SLOW_NS. That is half
 * the rate of the slowest of forty clients, measured with a loop that shared two CPUs with all of
 * them. */
#define SLOW_BYTES QD_HUGE_PAGE_BYTES
#define SLOW_NS (2 * QD_NS_PER_S)

enum {
    LEAST_BLOCK_BYTES = 1 << 10,
    STEP_COUNT = 4, /* how many block sizes there are for each doubling: few, so that most blocks
                       are reused */
    MODEL_STEP_COUNT =
        16, /* the same for models' blocks below QD_LARGE_BLOCK_BYTES, which count as a whole */
    CLASS_COUNT = MODEL_STEP_COUNT * 50, /* from LEAST_BLOCK_BYTES to more than any memory */
};

struct block_class {
    struct qd_block *kept; /* free blocks, for reuse */
    size_t kept_count;
    size_t kept_count_min; /* the least since the last trim: these blocks were not needed */
};

struct qd_memory {
    bool is_for_models;
    pthread_mutex_t lock;
    size_t bytes_max;
    size_t bytes_used; /* bytes in use */
    size_t bytes_kept; /* bytes of kept blocks, and touched bytes of reserved blocks beyond those in
                          use */
    struct qd_block *reserved; /* the latest first */

    qd_memory_on_lost *on_lost; /* NULL: nothing is called */
    void *on_lost_context;

    struct qd_admission *admission;
    struct block_class classes[CLASS_COUNT];
};

bool qd_block_class(const struct qd_memory *memory, size_t bytes, unsigned *class_index,
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

size_t qd_block_class_bytes(const struct qd_memory *memory, unsigned class_index)
{
    const unsigned step_count = memory->is_for_models ? MODEL_STEP_COUNT : STEP_COUNT;
    const size_t step = (size_t)LEAST_BLOCK_BYTES / step_count << class_index / step_count;
    return step * (step_count + class_index % step_count);
}

struct qd_memory *qd_memory_create(size_t bytes_max)
{
    struct qd_memory *memory = calloc(1, sizeof(*memory));
    struct qd_admission *admission = memory == NULL ? NULL : qd_admission_create(memory);
    if (admission == NULL) {
        free(memory);
        return NULL;
    }
    pthread_mutex_init(&memory->lock, NULL);
    memory->bytes_max = bytes_max;
    memory->admission = admission;
    return memory;
}

/* ---- Blocks and the system ---------------------------------------------------------------- */

static struct qd_block *fresh_small(size_t bytes)
{
    void *memory = NULL;
    if (posix_memalign(&memory, QD_BLOCK_ALIGNMENT, bytes) != 0)
        return NULL;
    struct qd_block *block = memory;
    *block = (struct qd_block){.payload = (char *)memory + QD_BLOCK_ALIGNMENT, .bytes = bytes};
    return block;
}

/* Maps address space, aligned to a huge page if it is at least as large as one. Returns NULL if
 * there is none. */
static char *map(size_t bytes)
{
    const size_t more = bytes >= QD_HUGE_PAGE_BYTES ? QD_HUGE_PAGE_BYTES : 0;
    if (bytes > SIZE_MAX - more)
        return NULL;
    char *start = mmap(NULL, bytes + more, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED || more == 0)
        return start == MAP_FAILED ? NULL : start;
    char *aligned = (char *)qd_round_up((uintptr_t)start, QD_HUGE_PAGE_BYTES);
    const size_t before = (size_t)(aligned - start);
    if (before > 0)
        munmap(start, before);
    munmap(aligned + bytes, more - before);
    return aligned;
}

/* Makes a fresh large block. Asks for huge pages only where all of a page will be used, which
 * excludes the first one of a reserved block. */
static struct qd_block *fresh_large(size_t capacity, size_t limit, bool reserved)
{
    struct qd_large_block *large = calloc(1, sizeof(*large));
    char *payload = large == NULL ? NULL : map(capacity);
    if (payload == NULL) {
        free(large);
        return NULL;
    }
    struct qd_block *block = &large->block; /* the first member, so free() frees the whole struct */
    *block = (struct qd_block){.payload = payload, .large = true};
    const size_t from = reserved ? QD_HUGE_PAGE_BYTES : 0;
    const size_t to = limit / QD_HUGE_PAGE_BYTES * QD_HUGE_PAGE_BYTES;
    if (from < to)
        madvise(payload + from, to - from, MADV_HUGEPAGE); /* only a hint */
    return block;
}

/* Frees the pages beyond `bytes` and keeps their address space. */
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

static void keep(struct qd_memory *memory, struct qd_block *block)
{
    struct block_class *class = &memory->classes[block->class_index];
    block->next = class->kept;
    class->kept = block;
    class->kept_count++;
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

/* Puts a block that is no longer kept into a list for free_blocks. A large block keeps
 * `kept_bytes`, which still count. The lock is held. */
static void retire(struct qd_memory *memory, struct qd_block *block, size_t kept_bytes,
                   struct qd_block **retired)
{
    if (block->large) {
        block->bytes = kept_bytes < block->touched ? kept_bytes / QD_PAGE_BYTES * QD_PAGE_BYTES
                                                   : block->touched;
        memory->bytes_kept += block->bytes;
    }
    block->next = *retired;
    *retired = block;
}

/* Frees retired blocks. The lock is not held, because freeing small pages takes the system some 100
 * us for each MiB. */
static void free_blocks(struct qd_memory *memory, struct qd_block *retired)
{
    while (retired != NULL) {
        struct qd_block *block = retired;
        retired = block->next;
        if (block->large && block->bytes > 0) {
            untouch(block, block->bytes);
            pthread_mutex_lock(&memory->lock);
            keep(memory, block);
            pthread_mutex_unlock(&memory->lock);
            continue;
        }
        if (block->large)
            munmap(block->payload, qd_block_class_bytes(memory, block->class_index));
        free(block);
    }
}

/* Retires kept blocks, the largest first, until memory is under its bound. Retires only as much of
 * the last block as needed, so that a small request waits only for a little to be freed. Then takes
 * touched pages beyond their use from reserved blocks. The lock is held. */
static struct qd_block *make_room(struct qd_memory *memory)
{
    struct qd_block *idle = NULL;
    for (unsigned i = CLASS_COUNT; i-- > 0 && is_over(memory);) {
        while (memory->classes[i].kept != NULL && is_over(memory)) {
            struct qd_block *block = unkeep(memory, &memory->classes[i]);
            const size_t room =
                is_over(memory) ? 0 : memory->bytes_max - memory->bytes_used - memory->bytes_kept;
            retire(memory, block, room / QD_HUGE_PAGE_BYTES * QD_HUGE_PAGE_BYTES, &idle);
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

/* Hands out a block that was kept and has been taken out of its class. The lock is held. */
static void hand_out(struct qd_memory *memory, struct qd_block *block,
                     const struct qd_block_wish *wish)
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

/* ---- Who gives way ------------------------------------------------------------------------ */

static bool is_slow(const struct qd_block *block, uint64_t now_ns)
{
    const struct qd_large_block *large = (const struct qd_large_block *)block;
    return block->reservation == QD_RESERVATION_COMING && now_ns >= large->marked_ns + SLOW_NS;
}

/* The order in which reservations are revoked. */
enum way { WAY_SLOW, WAY_COMING, WAY_WAITING, WAY_COUNT };

/* Returns in which step the block gives way to the taker, or WAY_COUNT if it does not. The taker is
 * NULL or a body that is still arriving. `is_later` says that the block arrived after the taker. */
static enum way way_of(const struct qd_block *block, const struct qd_block *taker, bool is_later,
                       uint64_t now_ns)
{
    if (block->bytes == 0 || block == taker)
        return WAY_COUNT;
    if (block->reservation == QD_RESERVATION_WAITING)
        return taker == NULL ? WAY_WAITING : WAY_COUNT;
    if (block->reservation != QD_RESERVATION_COMING)
        return WAY_COUNT;
    if (is_slow(block, now_ns) && (is_later || !is_slow(taker, now_ns)))
        return WAY_SLOW;
    return is_later ? WAY_COMING : WAY_COUNT;
}

/* Revokes a reservation. Its owner may write to its pages for a moment longer, to 2 MiB of them at
 * most. qd_block_give frees them all. */
static void lose(struct qd_memory *memory, struct qd_block *block)
{
    memory->bytes_used -= block->bytes;
    memory->bytes_kept -= block->touched - block->bytes;
    untouch(block, 0);
    block->touched = block->bytes; /* keeps nothing beyond what was in use */
    block->reservation = QD_RESERVATION_REVOKED;
}

/* Goes through the blocks that give way to the taker until they have `bytes`. Returns how many
 * bytes they have. If `take` is true, the blocks lose their memory. The lock is held. */
static size_t yield(struct qd_memory *memory, size_t bytes, const struct qd_block *taker, bool take)
{
    const uint64_t now_ns = qd_clock_ns();
    size_t sum = 0;
    for (enum way way = 0; way < WAY_COUNT; way++) {
        bool is_later = true;
        for (struct qd_block *b = memory->reserved; b != NULL && sum < bytes;
             b = b->next_reserved) {
            is_later = is_later && b != taker;
            if (way_of(b, taker, is_later, now_ns) != way)
                continue;
            sum += b->bytes;
            if (take)
                lose(memory, b);
        }
    }
    return sum;
}

/* Makes room for `bytes` more. Revokes nothing if that would not be enough. The lock is held. */
static bool find_room(struct qd_memory *memory, size_t bytes, const struct qd_block *taker)
{
    const size_t left = memory->bytes_max - memory->bytes_used;
    if (bytes <= left)
        return true;
    if (memory->reserved == NULL || yield(memory, bytes - left, taker, false) < bytes - left)
        return false;
    yield(memory, bytes - left, taker, true);
    if (memory->on_lost != NULL)
        memory->on_lost(memory->on_lost_context);
    return true;
}

bool qd_block_set_reservation(struct qd_memory *memory, struct qd_block *block,
                              enum qd_reservation reservation)
{
    struct qd_large_block *large = (struct qd_large_block *)block;
    pthread_mutex_lock(&memory->lock);
    const bool lost = block->reservation == QD_RESERVATION_REVOKED;
    if (!lost) {
        block->reservation = (unsigned char)reservation;
        large->marked_bytes = block->bytes;
        large->marked_ns = qd_clock_ns();
        large->came_ns = reservation == QD_RESERVATION_COMING ? large->marked_ns : large->came_ns;
    }
    pthread_mutex_unlock(&memory->lock);
    return !lost;
}

/* The lock is held. */
static void mark_pace(struct qd_block *block)
{
    struct qd_large_block *large = (struct qd_large_block *)block;
    if (block->bytes - large->marked_bytes < SLOW_BYTES)
        return;
    large->marked_bytes = block->bytes;
    large->marked_ns = qd_clock_ns();
}

void qd_memory_set_on_lost(struct qd_memory *memory, qd_memory_on_lost *on_lost, void *context)
{
    pthread_mutex_lock(&memory->lock);
    memory->on_lost = on_lost;
    memory->on_lost_context = context;
    pthread_mutex_unlock(&memory->lock);
}

bool qd_memory_has_room(struct qd_memory *memory, size_t bytes)
{
    pthread_mutex_lock(&memory->lock);
    const uint64_t now_ns = qd_clock_ns();
    size_t left = memory->bytes_max - memory->bytes_used;
    for (struct qd_block *b = memory->reserved; b != NULL && left < bytes; b = b->next_reserved)
        left += is_slow(b, now_ns) ? b->bytes : 0;
    pthread_mutex_unlock(&memory->lock);
    return bytes <= left;
}

size_t qd_memory_bodies(struct qd_memory *memory, uint64_t *oldest_ns)
{
    size_t count = 0;
    pthread_mutex_lock(&memory->lock);
    const uint64_t now_ns = qd_clock_ns();
    *oldest_ns = now_ns;
    for (const struct qd_block *b = memory->reserved; b != NULL; b = b->next_reserved) {
        if ((b->reservation != QD_RESERVATION_COMING && b->reservation != QD_RESERVATION_WAITING) ||
            is_slow(b, now_ns))
            continue;
        count++;
        *oldest_ns =
            ((const struct qd_large_block *)b)->came_ns; /* the list ends with the oldest */
    }
    pthread_mutex_unlock(&memory->lock);
    return count;
}

static struct qd_block *fresh_block(const struct qd_block_wish *wish)
{
    struct qd_block *block = wish->large
                                 ? fresh_large(wish->class_bytes, wish->limit, wish->reserved)
                                 : fresh_small(wish->class_bytes);
    if (block != NULL)
        block->class_index = wish->class_index;
    return block;
}

struct qd_block *qd_block_take(struct qd_memory *memory, const struct qd_block_wish *wish)
{
    struct block_class *class = &memory->classes[wish->class_index];
    struct qd_block *block = NULL;
    struct qd_block *idle = NULL;
    pthread_mutex_lock(&memory->lock);
    const bool fits = find_room(memory, wish->bytes, NULL);
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

void qd_block_give(struct qd_memory *memory, struct qd_block *block)
{
    struct qd_block *retired = NULL;
    pthread_mutex_lock(&memory->lock);
    if (qd_block_is_lost(block)) {
        unlist_reserved(memory, block);
        retire(memory, block, 0, &retired);
        pthread_mutex_unlock(&memory->lock);
        free_blocks(memory, retired);
        return;
    }
    if (block->reserved) {
        unlist_reserved(memory, block);
        block->reservation = QD_RESERVATION_FIRM;
        memory->bytes_kept -= block->touched - block->bytes;
    } else if (block->large) {
        block->touched = block->bytes; /* its user may have written all of it */
    }
    const bool large =
        block
            ->large; /* read now, because another thread may take the block as soon as it is kept */
    memory->bytes_used -= block->bytes;
    memory->bytes_kept += held_bytes(block);
    keep(memory, block);
    pthread_mutex_unlock(&memory->lock);
    if (large)
        qd_admission_room(memory->admission);
}

bool qd_block_extend(struct qd_memory *memory, struct qd_block *block, size_t bytes, size_t *fresh)
{
    struct qd_block *idle = NULL;
    pthread_mutex_lock(&memory->lock);
    const size_t more = bytes - block->bytes;
    const bool comes = block->reservation == QD_RESERVATION_COMING;
    const bool fits = !qd_block_is_lost(block) && find_room(memory, more, comes ? block : NULL);
    if (fits) {
        const size_t spare = block->reserved ? block->touched - block->bytes : 0;
        memory->bytes_kept -= more < spare ? more : spare;
        memory->bytes_used += more;
        *fresh = block->touched > block->bytes ? block->touched : block->bytes;
        block->bytes = bytes;
        block->touched = bytes > block->touched ? bytes : block->touched;
        if (comes)
            mark_pace(block);
        idle = make_room(memory);
    }
    pthread_mutex_unlock(&memory->lock);
    free_blocks(memory, idle);
    return fits;
}

/* ---- Giving back to the system ------------------------------------------------------------ */

/* Retires blocks of a class that were not needed, within *bytes_left. Returns false if there are
 * more. */
static bool trim_class(struct qd_memory *memory, struct block_class *class, size_t *bytes_left,
                       struct qd_block **idle)
{
    while (class->kept_count_min > 0 && class->kept != NULL) {
        if (*bytes_left == 0)
            return false;
        const size_t others = class->kept_count_min - 1;
        const size_t held = held_bytes(class->kept);
        const size_t kept = class->kept->large && held > *bytes_left ? held - *bytes_left : 0;
        retire(memory, unkeep(memory, class), kept, idle);
        class->kept_count_min = kept > 0 ? others + 1 : others;
        if (kept > 0)
            return false;
        *bytes_left -= held < *bytes_left ? held : *bytes_left;
    }
    return true;
}

bool qd_memory_trim_some(struct qd_memory *memory, size_t bytes)
{
    struct qd_block *idle = NULL;
    bool done = true;
    pthread_mutex_lock(&memory->lock);
    for (unsigned i = 0; i < CLASS_COUNT && done; i++)
        done = trim_class(memory, &memory->classes[i], &bytes, &idle);
    for (unsigned i = 0; i < CLASS_COUNT && done; i++)
        memory->classes[i].kept_count_min = memory->classes[i].kept_count;
    pthread_mutex_unlock(&memory->lock);
    free_blocks(memory, idle);
    return !done;
}

void qd_memory_trim(struct qd_memory *memory)
{
    qd_memory_trim_some(memory, SIZE_MAX);
}

void qd_memory_destroy(struct qd_memory *memory)
{
    if (memory == NULL)
        return;
    assert(memory->bytes_used == 0);
    qd_memory_trim(memory);
    qd_memory_trim(memory);
    qd_admission_destroy(memory->admission);
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

struct qd_admission *qd_memory_admission(const struct qd_memory *memory)
{
    return memory->admission;
}

void qd_memory_set_for_models(struct qd_memory *memory)
{
    memory->is_for_models = true;
}

bool qd_memory_is_for_models(const struct qd_memory *memory)
{
    return memory->is_for_models;
}
