#define _GNU_SOURCE
#include "tests/support/guarded.h"

#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, FILL = 0xa5, BLOCKS = 1024 };

struct block {
    uint8_t *pages; /* a guard page, the accessible pages, a guard page */
    size_t open_bytes;
    uint8_t *begin;
    size_t bytes;
};

/* The blocks, found by address when they are freed. Several threads may use them. */
static struct block blocks[BLOCKS];
static atomic_flag busy = ATOMIC_FLAG_INIT;
static unsigned turn;

static void lock(void)
{
    while (atomic_flag_test_and_set(&busy))
        ;
}

static struct block *find(const uint8_t *begin)
{
    for (size_t i = 0; i < BLOCKS; i++)
        if (blocks[i].begin == begin)
            return &blocks[i];
    return NULL;
}

void *guarded_alloc(size_t bytes, size_t alignment)
{
    struct block block = {.bytes = bytes};
    block.open_bytes = (bytes + PAGE - 1) / PAGE * PAGE;
    if (block.open_bytes == 0)
        block.open_bytes = PAGE;
    const size_t all = block.open_bytes + (size_t)2 * PAGE;
    block.pages = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(block.pages, MAP_FAILED);
    cr_assert_eq(mprotect(block.pages + PAGE, block.open_bytes, PROT_READ | PROT_WRITE), 0);
    memset(block.pages + PAGE, FILL, block.open_bytes);
    lock();
    const size_t before = turn++ % 2 ? 0 : (block.open_bytes - bytes) / alignment * alignment;
    block.begin = block.pages + PAGE + before;
    struct block *slot = find(NULL);
    if (slot)
        *slot = block;
    atomic_flag_clear(&busy);
    cr_assert_not_null(slot, "more than %d guarded blocks", BLOCKS);
    return block.begin;
}

// One assertion for all of them: one for each byte was half the time of all unit tests.
static void check_fill(const uint8_t *begin, const uint8_t *end, const char *where, size_t bytes)
{
    const uint8_t *byte = begin;
    while (byte < end && *byte == FILL)
        byte++;
    cr_assert(byte == end, "byte %zu %s a block of %zu was written", (size_t)(byte - begin), where,
              bytes);
}

void guarded_free(void *begin)
{
    lock();
    struct block *slot = find(begin);
    struct block block = {0};
    if (slot) {
        block = *slot;
        *slot = (struct block){0};
    }
    atomic_flag_clear(&busy);
    cr_assert_not_null(block.begin, "no guarded block");
    check_fill(block.pages + PAGE, block.begin, "before", block.bytes);
    check_fill(block.begin + block.bytes, block.pages + PAGE + block.open_bytes, "behind",
               block.bytes);
    munmap(block.pages, block.open_bytes + (size_t)2 * PAGE);
}
