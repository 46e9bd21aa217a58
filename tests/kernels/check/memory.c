#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/kernels/check/frame.h"

static void die(const char *what)
{
    perror(what);
    exit(2);
}

/* ---- Address sanitizer ------------------------------------------------------------------- */

/* If the address sanitizer runs, it guards buffers to the byte. */
__attribute__((weak)) void __asan_poison_memory_region(const volatile void *, size_t);
__attribute__((weak)) void __asan_unpoison_memory_region(const volatile void *, size_t);

static void set_closed(const void *begin, size_t bytes, bool closed)
{
    if (closed && __asan_poison_memory_region)
        __asan_poison_memory_region(begin, bytes);
    else if (!closed && __asan_unpoison_memory_region)
        __asan_unpoison_memory_region(begin, bytes);
}

/* ---- Memory sanitizer -------------------------------------------------------------------- */

/* If the memory sanitizer runs, it tracks uninitialized bits through copies and arithmetic, and
 * reports a branch or an address that depends on them. */
__attribute__((weak)) void __msan_allocated_memory(const volatile void *, size_t);
__attribute__((weak)) void __msan_unpoison(const volatile void *, size_t);
__attribute__((weak)) intptr_t __msan_test_shadow(const volatile void *, size_t);

/* For functions that read buffers which a kernel may leave uninitialized. */
#if defined(__has_feature)
#if __has_feature(memory_sanitizer)
#define UNWATCHED __attribute__((no_sanitize("memory")))
#endif
#endif
#ifndef UNWATCHED
#define UNWATCHED
#endif

void check_forget(void *begin, size_t bytes)
{
    if (__msan_allocated_memory && bytes > 0)
        __msan_allocated_memory(begin, bytes);
}

/* __msan_test_shadow() reads all given bytes before it searches for the first uninitialized one, so
 * a buffer with many of them is tested in small pieces. */
#define SHADOW_BYTES 64

void check_settle_same(struct check *check, const struct check_pair *pair)
{
    if (!__msan_test_shadow)
        return;
    const uint8_t *expected = pair->expected, *actual = pair->actual;
    for (size_t i = 0; i < pair->bytes;) {
        const size_t rest = pair->bytes - i;
        const size_t bytes = rest < SHADOW_BYTES ? rest : SHADOW_BYTES;
        const intptr_t first = __msan_test_shadow(actual + i, bytes);
        if (first < 0) {
            i += bytes;
            continue;
        }
        i += (size_t)first;
        if (__msan_test_shadow(expected + i, 1) < 0) {
            check_that(check, false, "byte %zu of '%s' comes from memory that nobody has written",
                       i, pair->name);
            break;
        }
        i++;
    }
    __msan_unpoison(expected, pair->bytes);
    __msan_unpoison(actual, pair->bytes);
}

/* ---- Slots ------------------------------------------------------------------------------- */

static void close_slot(struct check_slot *slot)
{
    set_closed(slot->open, slot->open_bytes, false);
    if (slot->open)
        munmap(slot->open - CHECK_PAGE, slot->open_bytes + 2 * (size_t)CHECK_PAGE);
    *slot = (struct check_slot){0};
}

static void open_slot(struct check_slot *slot, size_t bytes)
{
    const size_t open = (bytes / CHECK_PAGE + 2) * 2 * CHECK_PAGE;
    close_slot(slot);
    uint8_t *pages =
        mmap(NULL, open + 2 * (size_t)CHECK_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages + CHECK_PAGE, open, PROT_READ | PROT_WRITE) != 0)
        die("guarded pages");
    slot->open = pages + CHECK_PAGE;
    slot->open_bytes = open;
}

/* The watched bytes before and after a buffer, at most a page on each side. */
struct around {
    uint8_t *before, *behind;
    size_t before_bytes, behind_bytes;
};

static struct around look_around(const struct check_slot *slot)
{
    const size_t room = (size_t)(slot->begin - slot->open);
    const size_t rest = slot->open_bytes - room - slot->bytes;
    const size_t before = room < CHECK_PAGE ? room : CHECK_PAGE;
    return (struct around){
        .before = slot->begin - before,
        .behind = slot->begin + slot->bytes,
        .before_bytes = before,
        .behind_bytes = rest < CHECK_PAGE ? rest : CHECK_PAGE,
    };
}

/* Sets whether the bytes around the buffer are inaccessible. */
static void close_around(const struct check_slot *slot, bool closed)
{
    const struct around around = look_around(slot);
    set_closed(around.before, around.before_bytes, closed);
    set_closed(around.behind, around.behind_bytes, closed);
}

UNWATCHED static uint64_t hash_of(const uint8_t *from, size_t bytes)
{
    uint64_t hash = bytes;
    size_t i = 0;
    for (; bytes - i >= sizeof(uint64_t); i += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, from + i, sizeof(word));
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    for (; i < bytes; i++)
        hash = (hash ^ from[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static void fill_random(struct check *check, uint8_t *to, size_t bytes)
{
    size_t i = 0;
    for (; i < bytes; i += sizeof(uint64_t)) {
        const uint64_t word = check_random(check);
        const size_t left = bytes - i;
        memcpy(to + i, &word, left < sizeof(word) ? left : sizeof(word));
    }
}

static uint8_t *take_slot(struct check *check, const char *name, enum check_use use, size_t bytes,
                          size_t alignment, bool at_end)
{
    struct check_memory *memory = &check->memory;
    if (memory->used == CHECK_BUFFERS_MOST) {
        fprintf(stderr, "more than %d buffers\n", CHECK_BUFFERS_MOST);
        exit(2);
    }
    struct check_slot *slot = &memory->slots[memory->used++];
    if (slot->open_bytes < bytes + CHECK_PAGE)
        open_slot(slot, bytes + CHECK_PAGE);
    slot->name = name;
    slot->use = use;
    slot->bytes = bytes;
    slot->begin = slot->open;
    if (at_end)
        slot->begin += (slot->open_bytes - bytes) / alignment * alignment;
    const struct around around = look_around(slot);
    memcpy(around.before, memory->canary + CHECK_PAGE - around.before_bytes, around.before_bytes);
    memcpy(around.behind, memory->canary, around.behind_bytes);
    check_forget(around.before, around.before_bytes);
    check_forget(around.behind, around.behind_bytes);
    close_around(slot, true);
    return slot->begin;
}

void *check_buffer(struct check *check, const char *name, enum check_use use, size_t bytes,
                   size_t alignment)
{
    const bool at_end = !check_chance(check, 4);
    uint8_t *begin = take_slot(check, name, use, bytes, alignment, at_end);
    fill_random(check, begin, bytes);
    if (use == CHECK_OUTPUT)
        check_forget(begin, bytes);
    return begin;
}

struct check_pair check_outputs(struct check *check, const char *name, size_t bytes,
                                size_t alignment)
{
    const bool at_end = !check_chance(check, 4);
    struct check_pair pair = {.name = name, .bytes = bytes};
    pair.expected = take_slot(check, name, CHECK_OUTPUT, bytes, alignment, at_end);
    pair.actual = take_slot(check, name, CHECK_OUTPUT, bytes, alignment, at_end);
    fill_random(check, pair.expected, bytes);
    memcpy(pair.actual, pair.expected, bytes);
    check_forget(pair.expected, bytes);
    check_forget(pair.actual, bytes);
    return pair;
}

void *check_scratch(struct check *check, size_t bytes)
{
    struct check_memory *memory = &check->memory;
    void *block = calloc(bytes > 0 ? bytes : 1, 1);
    if (!block || memory->scratch_used == CHECK_BUFFERS_MOST)
        die("scratch memory");
    memory->scratch[memory->scratch_used++] = block;
    return block;
}

/* ---- Around a case ----------------------------------------------------------------------- */

void check_memory_begin(struct check *check)
{
    struct check_memory *memory = &check->memory;
    memory->used = 0;
    for (size_t i = 0; i < CHECK_PAGE; i++)
        memory->canary[i] = (uint8_t)(1 + i * 37 % 251);
}

void check_memory_hash(struct check *check)
{
    struct check_memory *memory = &check->memory;
    for (struct check_slot *slot = memory->slots; slot < memory->slots + memory->used; slot++)
        if (slot->use == CHECK_INPUT)
            slot->hash = hash_of(slot->begin, slot->bytes);
}

void check_memory_compare(struct check *check)
{
    const struct check_memory *memory = &check->memory;
    for (const struct check_slot *slot = memory->slots; slot < memory->slots + memory->used; slot++)
        check_that(check,
                   slot->use != CHECK_INPUT || slot->hash == hash_of(slot->begin, slot->bytes),
                   "the input '%s' was changed", slot->name);
}

UNWATCHED static void watch_slot(struct check *check, const struct check_slot *slot)
{
    const uint8_t *canary = check->memory.canary;
    const struct around around = look_around(slot);
    const uint8_t *before = canary + CHECK_PAGE - around.before_bytes;
    for (size_t i = around.before_bytes; i-- > 0;)
        if (around.before[i] != before[i]) {
            check_that(check, false, "byte %zu before '%s' was written", around.before_bytes - i,
                       slot->name);
            break;
        }
    for (size_t i = 0; i < around.behind_bytes; i++)
        if (around.behind[i] != canary[i]) {
            check_that(check, false, "byte %zu behind '%s' (%zu bytes) was written", i, slot->name,
                       slot->bytes);
            break;
        }
}

void check_memory_end(struct check *check)
{
    struct check_memory *memory = &check->memory;
    for (size_t i = 0; i < memory->used; i++) {
        close_around(&memory->slots[i], false);
        watch_slot(check, &memory->slots[i]);
    }
    while (memory->scratch_used > 0)
        free(memory->scratch[--memory->scratch_used]);
}

void check_memory_deinit(struct check *check)
{
    for (size_t i = 0; i < CHECK_BUFFERS_MOST; i++)
        close_slot(&check->memory.slots[i]);
}

void check_memory_place(const struct check *check, const void *address, char *text, size_t bytes)
{
    const struct check_memory *memory = &check->memory;
    const uint8_t *at = address;
    for (size_t i = 0; i < memory->used; i++) {
        const struct check_slot *slot = &memory->slots[i];
        const uint8_t *end = slot->begin + slot->bytes;
        if (at >= slot->open - CHECK_PAGE && at < slot->open)
            snprintf(text, bytes, "%zu bytes before '%s'", (size_t)(slot->begin - at), slot->name);
        else if (at >= slot->open + slot->open_bytes &&
                 at < slot->open + slot->open_bytes + CHECK_PAGE)
            snprintf(text, bytes, "%zu bytes behind '%s' (%zu bytes)", (size_t)(at - end),
                     slot->name, slot->bytes);
        else
            continue;
        return;
    }
    snprintf(text, bytes, "%p, near no buffer", address);
}
