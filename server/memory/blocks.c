#define _GNU_SOURCE
#include "server/memory/blocks.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "server/base/clock.h"
#include "server/base/lock.h"
#include "server/memory/admission.h"

/* While memory is short, a body is slow if it brings less than SLOW_BYTES in SLOW_NS. That is half
 * the rate of the slowest of forty clients, measured with a loop that shared two CPUs with all of
 * them. */
#define SLOW_BYTES QD_HUGE_PAGE_BYTES
#define SLOW_NS (2 * QD_NS_PER_S)

enum {
    SMALL_BLOCK_BYTES = 32 << 10, /* holds all memory of a request with a few KiB of tensors */
    MODEL_BLOCK_BYTES = 4 << 10,  /* models keep their memory, and a small model needs little */
    LEAST_BLOCK_BYTES = 1 << 10,
    STEP_COUNT = 4, /* how many block sizes there are for each doubling: few, so that most blocks
                       are reused */
    MODEL_STEP_COUNT =
        16, /* the same for models' blocks below QD_LARGE_BLOCK_BYTES, which count as a whole */
    CLASS_COUNT = MODEL_STEP_COUNT * 50, /* from LEAST_BLOCK_BYTES to BLOCK_BYTES_MAX */
};
#define BLOCK_BYTES_MAX ((size_t)LEAST_BLOCK_BYTES << 48) /* more than any memory */

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
    LIST_HEAD(, qd_block) reserved; /* the latest first */

    qd_memory_on_lost *on_lost; /* NULL: nothing is called */
    void *on_lost_context;

    struct qd_admission admission;
    void (*on_room)(void *context); /* NULL: nothing is called */
    void *on_room_context;
    struct block_class classes[CLASS_COUNT];
};

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* ---- Sizes -------------------------------------------------------------------------------- */

static unsigned steps_of(const struct qd_memory *memory)
{
    return memory->is_for_models ? MODEL_STEP_COUNT : STEP_COUNT;
}

/* Returns the size of a class: (4, 5, 6, 7) * 2^n, and (16 ... 31) * 2^n in the memory of models.
 */
static size_t class_bytes(const struct qd_memory *memory, unsigned class_index)
{
    const unsigned step_count = steps_of(memory);
    const size_t step = (size_t)LEAST_BLOCK_BYTES / step_count << class_index / step_count;
    return step * (step_count + class_index % step_count);
}

/* Finds the smallest class for `bytes`, which are at most BLOCK_BYTES_MAX. */
static unsigned find_class(const struct qd_memory *memory, size_t bytes)
{
    const unsigned step_count = steps_of(memory);
    unsigned class_index = 0;
    while (class_bytes(memory, class_index + step_count) <= bytes)
        class_index += step_count;
    while (class_bytes(memory, class_index) < bytes)
        class_index++;
    return class_index;
}

/* Describes the block to take. All blocks of a class are of one kind, so the class decides whether
 * the block is small or large. */
static struct qd_block describe(const struct qd_memory *memory, size_t bytes, bool reserved)
{
    const unsigned class_index = find_class(memory, bytes);
    const size_t capacity = class_bytes(memory, class_index);
    const bool large = capacity >= QD_LARGE_BLOCK_BYTES;
    const size_t limit = large ? round_up(bytes, QD_PAGE_BYTES) : capacity;
    return (struct qd_block){.class_index = class_index,
                             .large = large,
                             .reserved = reserved,
                             .limit = limit,
                             .bytes = reserved ? 0 : limit};
}

struct qd_memory *qd_memory_create(size_t bytes_max)
{
    struct qd_memory *memory = calloc(1, sizeof(*memory));
    if (memory == NULL)
        return NULL;
    pthread_mutex_init(&memory->lock, NULL);
    memory->bytes_max = bytes_max;
    return memory;
}

/* ---- Blocks and the system ---------------------------------------------------------------- */

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
    char *aligned = (char *)round_up((uintptr_t)start, QD_HUGE_PAGE_BYTES);
    const size_t before = (size_t)(aligned - start);
    if (before > 0)
        munmap(start, before);
    munmap(aligned + bytes, more - before);
    return aligned;
}

/* Asks for huge pages, unless the block is sparse. Asks only where all of a page will be used,
 * which excludes the first one of a reserved block. It is only a hint. */
static void choose_pages(struct qd_block *block, bool is_sparse)
{
    const size_t from = block->reserved ? QD_HUGE_PAGE_BYTES : 0;
    const size_t to = block->limit / QD_HUGE_PAGE_BYTES * QD_HUGE_PAGE_BYTES;
    block->is_sparse = is_sparse;
    if (from < to)
        madvise(block->payload + from, to - from, is_sparse ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
}

static struct qd_block *fresh_block(const struct qd_memory *memory, const struct qd_block *wish)
{
    const size_t capacity = class_bytes(memory, wish->class_index);
    struct qd_block *block = malloc(sizeof(*block));
    char *payload = block == NULL ? NULL
                    : wish->large ? map(capacity)
                                  : aligned_alloc(QD_BLOCK_ALIGNMENT, capacity);
    if (payload == NULL) {
        free(block);
        return NULL;
    }
    *block = *wish;
    block->payload = payload;
    block->touched = wish->large ? 0 : capacity;
    if (wish->large)
        choose_pages(block, false);
    return block;
}

/* Frees the pages beyond `bytes` and keeps their address space. */
static void untouch(struct qd_block *block, size_t bytes)
{
    if (block->touched <= bytes)
        return;
    madvise(block->payload + bytes, block->touched - bytes, MADV_DONTNEED);
    block->touched = bytes;
}

/* ---- Keeping and handing out -------------------------------------------------------------- */

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
    memory->bytes_kept -= block->touched;
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
    block->bytes = !block->large                 ? 0
                   : kept_bytes < block->touched ? kept_bytes / QD_PAGE_BYTES * QD_PAGE_BYTES
                                                 : block->touched;
    memory->bytes_kept += block->bytes;
    block->next = *retired;
    *retired = block;
}

/* Retires kept blocks into the list, the largest first, until memory is under its bound. Retires
 * only as much of the last block as needed, so that a small request waits only for a little to be
 * freed. Then takes touched pages beyond their use from reserved blocks. The lock is held. */
static void make_room(struct qd_memory *memory, struct qd_block **retired)
{
    for (unsigned i = CLASS_COUNT; i-- > 0 && is_over(memory);) {
        while (memory->classes[i].kept != NULL && is_over(memory)) {
            struct qd_block *block = unkeep(memory, &memory->classes[i]);
            const size_t room =
                is_over(memory) ? 0 : memory->bytes_max - memory->bytes_used - memory->bytes_kept;
            retire(memory, block, room / QD_HUGE_PAGE_BYTES * QD_HUGE_PAGE_BYTES, retired);
        }
    }
    for (struct qd_block *b = LIST_FIRST(&memory->reserved); b != NULL && is_over(memory);
         b = LIST_NEXT(b, in_reserved)) {
        memory->bytes_kept -= b->touched - b->bytes;
        untouch(b, b->bytes);
    }
}

/* Frees retired blocks. The lock is not held, because freeing small pages takes the system some 100
 * us for each MiB. What is left of a block could not be retired meanwhile, so another thread's
 * make_room may have left memory over its bound. */
static void free_blocks(struct qd_memory *memory, struct qd_block *retired)
{
    while (retired != NULL) {
        struct qd_block *block = retired;
        retired = block->next;
        if (block->bytes > 0) {
            untouch(block, block->bytes);
            pthread_mutex_lock(&memory->lock);
            keep(memory, block);
            make_room(memory, &retired);
            pthread_mutex_unlock(&memory->lock);
            continue;
        }
        if (block->large)
            munmap(block->payload, class_bytes(memory, block->class_index));
        else
            free(block->payload);
        free(block);
    }
}

/* Hands out a block, which is fresh or has been taken out of its class. The lock is held. */
static void hand_out(struct qd_memory *memory, struct qd_block *block, const struct qd_block *wish)
{
    block->limit = wish->limit;
    block->bytes = wish->bytes;
    block->reserved = wish->reserved;
    if (wish->reserved) {
        memory->bytes_kept += block->touched;
        LIST_INSERT_HEAD(&memory->reserved, block, in_reserved);
    }
}

/* ---- Who gives way ------------------------------------------------------------------------ */

static bool is_slow(const struct qd_block *block, uint64_t now_ns)
{
    return block->reservation == QD_RESERVATION_COMING && now_ns >= block->marked_ns + SLOW_NS;
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

/* Revokes a reservation. Its owner may write to its pages for a moment longer, to 4 MiB of them at
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
        for (struct qd_block *b = LIST_FIRST(&memory->reserved); b != NULL && sum < bytes;
             b = LIST_NEXT(b, in_reserved)) {
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
    if (LIST_EMPTY(&memory->reserved) || yield(memory, bytes - left, taker, false) < bytes - left)
        return false;
    yield(memory, bytes - left, taker, true);
    if (memory->on_lost != NULL)
        memory->on_lost(memory->on_lost_context);
    return true;
}

bool qd_block_set_reservation(struct qd_memory *memory, struct qd_block *block,
                              enum qd_reservation reservation)
{
    QD_LOCKED(&memory->lock);
    if (block->reservation == QD_RESERVATION_REVOKED)
        return false;
    block->reservation = (unsigned char)reservation;
    block->marked_bytes = block->bytes;
    block->marked_ns = qd_clock_ns();
    block->came_ns = reservation == QD_RESERVATION_COMING ? block->marked_ns : block->came_ns;
    return true;
}

/* The lock is held. */
static void mark_pace(struct qd_block *block)
{
    if (block->bytes - block->marked_bytes < SLOW_BYTES)
        return;
    block->marked_bytes = block->bytes;
    block->marked_ns = qd_clock_ns();
}

void qd_memory_set_on_lost(struct qd_memory *memory, qd_memory_on_lost *on_lost, void *context)
{
    QD_LOCKED(&memory->lock);
    memory->on_lost = on_lost;
    memory->on_lost_context = context;
}

void qd_memory_set_on_room(struct qd_memory *memory, void (*on_room)(void *context), void *context)
{
    memory->on_room = on_room;
    memory->on_room_context = context;
}

/* Reports that some memory was freed, for example the body of a request whose answer is being sent
 * or whose client has disconnected. The lock is not held. */
static void tell_room(const struct qd_memory *memory)
{
    if (memory->on_room != NULL)
        memory->on_room(memory->on_room_context);
}

bool qd_memory_has_room(struct qd_memory *memory, size_t bytes)
{
    QD_LOCKED(&memory->lock);
    const uint64_t now_ns = qd_clock_ns();
    size_t left = memory->bytes_max - memory->bytes_used;
    for (const struct qd_block *b = LIST_FIRST(&memory->reserved); b != NULL && left < bytes;
         b = LIST_NEXT(b, in_reserved))
        left += is_slow(b, now_ns) ? b->bytes : 0;
    return bytes <= left;
}

unsigned qd_memory_retry_after_s(struct qd_memory *memory)
{
    size_t body_count = 0;
    QD_LOCKED(&memory->lock);
    const uint64_t now_ns = qd_clock_ns();
    uint64_t oldest_ns = now_ns;
    const struct qd_block *b;
    LIST_FOREACH(b, &memory->reserved, in_reserved)
    {
        if ((b->reservation != QD_RESERVATION_COMING && b->reservation != QD_RESERVATION_WAITING) ||
            is_slow(b, now_ns))
            continue;
        body_count++;
        oldest_ns = b->came_ns; /* the list ends with the oldest */
    }
    const uint64_t work_ns = qd_admission_time_ns(&memory->admission, body_count, now_ns);
    const uint64_t age_ns = now_ns > oldest_ns ? now_ns - oldest_ns : 0;
    const uint64_t seconds = (work_ns > age_ns ? work_ns : age_ns) / QD_NS_PER_S + 1;
    return seconds < UINT32_MAX ? (unsigned)seconds : UINT32_MAX;
}

/* ---- What an arena holds ------------------------------------------------------------------ */

static void count(struct qd_arena *arena, size_t bytes)
{
    arena->bytes += bytes;
    if (arena->together != NULL)
        *arena->together += bytes;
}

/* Counts bytes that the arena has taken. They are no longer set aside for it. */
static void count_taken(struct qd_arena *arena, size_t bytes)
{
    struct qd_memory *memory = arena->memory;
    const size_t spoken = bytes < arena->spoken_bytes ? bytes : arena->spoken_bytes;
    count(arena, bytes);
    if (spoken == 0)
        return;
    arena->spoken_bytes -= spoken;
    QD_LOCKED(&memory->lock);
    memory->admission.bytes_spoken -= spoken;
}

/* Takes a block out of those that are kept, or makes one. Returns NULL if it does not fit, or if
 * malloc failed. */
static struct qd_block *take(struct qd_memory *memory, struct qd_block wish)
{
    struct block_class *class = &memory->classes[wish.class_index];
    struct qd_block *block = NULL;
    struct qd_block *idle = NULL;
    pthread_mutex_lock(&memory->lock);
    const bool fits = find_room(memory, wish.bytes, NULL);
    if (fits) {
        if (class->kept != NULL) {
            block = unkeep(memory, class);
            hand_out(memory, block, &wish);
        }
        memory->bytes_used += wish.bytes;
        make_room(memory, &idle);
    }
    pthread_mutex_unlock(&memory->lock);
    free_blocks(memory, idle);
    if (block != NULL && !wish.reserved)
        untouch(block, wish.bytes);
    if (!fits || block != NULL)
        return block;
    block = fresh_block(memory, &wish);
    pthread_mutex_lock(&memory->lock);
    if (block != NULL)
        hand_out(memory, block, &wish);
    else
        memory->bytes_used -= wish.bytes;
    pthread_mutex_unlock(&memory->lock);
    return block;
}

struct qd_block *qd_block_take(struct qd_arena *arena, size_t bytes, bool reserved)
{
    const bool possible = bytes <= arena->memory->bytes_max && bytes <= BLOCK_BYTES_MAX;
    struct qd_block *block =
        possible ? take(arena->memory, describe(arena->memory, bytes, reserved)) : NULL;
    if (block == NULL) {
        arena->refused_bytes = bytes;
        return NULL;
    }
    if (block->large && block->is_sparse != arena->is_sparse)
        choose_pages(block, arena->is_sparse);
    block->next = arena->blocks;
    arena->blocks = block;
    count_taken(arena, block->bytes);
    return block;
}

/* Takes a block out of the arena. */
static void take_out(struct qd_arena *arena, struct qd_block *block)
{
    struct qd_block **link = &arena->blocks;
    while (*link != block)
        link = &(*link)->next;
    *link = block->next;
    count(arena, 0 - block->bytes); /* subtracts */
}

void qd_block_move(struct qd_arena *from, struct qd_arena *to, struct qd_block *block)
{
    take_out(from, block);
    block->next = to->blocks;
    to->blocks = block;
    count(to, block->bytes);
}

void qd_block_give(struct qd_arena *arena, struct qd_block *block)
{
    struct qd_memory *memory = arena->memory;
    struct qd_block *retired = NULL;
    take_out(arena, block);
    pthread_mutex_lock(&memory->lock);
    /* Read now, because another thread may take the block as soon as it is kept. */
    const bool large = block->large;
    if (block->reserved) {
        LIST_REMOVE(block, in_reserved);
        block->reserved = false;
        memory->bytes_kept -= block->touched - block->bytes;
    } else {
        block->touched = block->bytes; /* its user may have written all of it */
    }
    if (block->reservation == QD_RESERVATION_REVOKED) {
        retire(memory, block, 0, &retired);
    } else {
        block->reservation = QD_RESERVATION_FIRM;
        memory->bytes_used -= block->bytes;
        memory->bytes_kept += block->touched;
        keep(memory, block);
    }
    pthread_mutex_unlock(&memory->lock);
    free_blocks(memory, retired);
    if (large)
        tell_room(memory);
}

/* Raises the number of bytes of a large block that count to `bytes`. Sets *fresh to an offset: no
 * page from there to `bytes` has been touched yet. */
static bool extend(struct qd_arena *arena, struct qd_block *block, size_t bytes, size_t *fresh)
{
    struct qd_memory *memory = arena->memory;
    struct qd_block *idle = NULL;
    pthread_mutex_lock(&memory->lock);
    const size_t more = bytes - block->bytes;
    const bool comes = block->reservation == QD_RESERVATION_COMING;
    const bool fits = block->reservation != QD_RESERVATION_REVOKED &&
                      find_room(memory, more, comes ? block : NULL);
    if (fits) {
        const size_t spare = block->reserved ? block->touched - block->bytes : 0;
        memory->bytes_kept -= more < spare ? more : spare;
        memory->bytes_used += more;
        *fresh = block->touched > block->bytes ? block->touched : block->bytes;
        block->bytes = bytes;
        block->touched = bytes > block->touched ? bytes : block->touched;
        if (comes)
            mark_pace(block);
        make_room(memory, &idle);
    }
    pthread_mutex_unlock(&memory->lock);
    free_blocks(memory, idle);
    if (fits)
        count_taken(arena, more);
    else
        arena->refused_bytes = more;
    return fits;
}

size_t qd_block_commit(struct qd_arena *arena, struct qd_block *block, size_t bytes, size_t *fresh)
{
    const size_t step = bytes <= QD_HUGE_PAGE_BYTES ? QD_PAGE_BYTES : QD_HUGE_PAGE_BYTES;
    const size_t wanted = round_up(bytes, step);
    assert(bytes <= block->limit);
    if (bytes > block->bytes)
        extend(arena, block, wanted < block->limit ? wanted : block->limit, fresh);
    if (block->reservation != QD_RESERVATION_REVOKED)
        return block->bytes;
    arena->refused_bytes = 0;
    return 0;
}

bool qd_block_grow(struct qd_arena *arena, struct qd_block *block, size_t bytes)
{
    if (!block->large)
        return bytes <= block->bytes;
    if (bytes > class_bytes(arena->memory, block->class_index))
        return false;
    const size_t limit = round_up(bytes, QD_PAGE_BYTES);
    size_t fresh;
    if (limit > block->bytes && !extend(arena, block, limit, &fresh))
        return false;
    block->limit = limit > block->limit ? limit : block->limit;
    return true;
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
        const size_t held = class->kept->touched;
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
    pthread_mutex_destroy(&memory->lock);
    free(memory);
}

size_t qd_memory_used(struct qd_memory *memory)
{
    QD_LOCKED(&memory->lock);
    return memory->bytes_used;
}

size_t qd_memory_kept(struct qd_memory *memory)
{
    QD_LOCKED(&memory->lock);
    return memory->bytes_kept;
}

size_t qd_memory_max(const struct qd_memory *memory)
{
    return memory->bytes_max;
}

void qd_memory_set_for_models(struct qd_memory *memory)
{
    memory->is_for_models = true;
}

size_t qd_memory_small_block_bytes(const struct qd_memory *memory)
{
    return memory->is_for_models ? MODEL_BLOCK_BYTES : SMALL_BLOCK_BYTES;
}

/* ---- Work that may begin ------------------------------------------------------------------ */

bool qd_arena_try_begin(struct qd_arena *arena, size_t bytes)
{
    struct qd_memory *memory = arena->memory;
    bytes = bytes < memory->bytes_max ? bytes : memory->bytes_max;
    QD_LOCKED(&memory->lock);
    if (!qd_admission_try_begin(&memory->admission, bytes, memory->bytes_max - memory->bytes_used))
        return false;
    arena->spoken_bytes = bytes;
    arena->has_begun = true;
    arena->works = true;
    return true;
}

void qd_arena_end_work(struct qd_arena *arena)
{
    struct qd_memory *memory = arena->memory;
    if (!arena->works)
        return;
    pthread_mutex_lock(&memory->lock);
    qd_admission_end(&memory->admission, arena->spoken_bytes);
    pthread_mutex_unlock(&memory->lock);
    arena->spoken_bytes = 0;
    arena->works = false;
    tell_room(memory);
}

void qd_arena_forget(struct qd_arena *arena)
{
    struct qd_memory *memory = arena->memory;
    if (!arena->has_begun)
        return;
    pthread_mutex_lock(&memory->lock);
    qd_admission_forget(&memory->admission);
    pthread_mutex_unlock(&memory->lock);
    arena->has_begun = false;
    tell_room(memory);
}

/* ---- Refusals ----------------------------------------------------------------------------- */

size_t qd_arena_own_bytes(const struct qd_arena *arena)
{
    return arena->together != NULL ? *arena->together : arena->bytes;
}

bool qd_arena_hopeless(const struct qd_arena *arena)
{
    return arena->refused_bytes > arena->memory->bytes_max - qd_arena_own_bytes(arena);
}

/* Refuses memory for a model. The text says how much is missing, which the server's operator needs
 * to know. */
static enum qd_status refuse_model_memory(const struct qd_arena *arena, const char *what,
                                          enum qd_status status, struct qd_error *error)
{
    const size_t bytes_max = arena->memory->bytes_max;
    const size_t used = qd_memory_used(arena->memory);
    const size_t left = used < bytes_max ? bytes_max - used : 0;
    const size_t wanted = arena->refused_bytes;
    const size_t own = qd_arena_own_bytes(arena);
    if (wanted <= left) {
        return qd_fail_for(error, QD_REASON_MODEL_MEMORY, QD_UNAVAILABLE,
                           "no memory for %s: the system has no %zu bytes", what, wanted);
    }
    return qd_fail_for(error, QD_REASON_MODEL_MEMORY, status,
                       "no memory for %s: %zu bytes are missing in --max-model-bytes (%zu), of "
                       "which this load has %zu, and others %zu",
                       what, wanted - left, bytes_max, own, used > own ? used - own : 0);
}

enum qd_status qd_refuse_memory(const struct qd_arena *arena, const char *what,
                                struct qd_error *error)
{
    const size_t bytes_max = arena->memory->bytes_max;
    const enum qd_status status = qd_arena_hopeless(arena) ? QD_TOO_LARGE : QD_UNAVAILABLE;
    if (arena->memory->is_for_models)
        return refuse_model_memory(arena, what, status, error);
    if (arena->refused_bytes == 0) {
        return qd_fail_for(error, QD_REASON_MEMORY, QD_UNAVAILABLE,
                           "no memory for %s: it gave way to other requests, which hold most of "
                           "--max-inflight-bytes (%zu); try again later",
                           what, bytes_max);
    }
    if (status == QD_TOO_LARGE) {
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
