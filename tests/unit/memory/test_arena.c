#define _GNU_SOURCE
#include "server/memory/arena.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "server/memory/blocks.h"
#include "tests/unit/scratch.h"

enum { KIB = 1 << 10, MIB = 1 << 20 };

Test(arena, allocations_are_aligned_and_apart)
{
    struct scratch scratch;
    scratch_init(&scratch, 4 * MIB);
    static const size_t sizes[] = {1, 63, 64, 65, 4000, 8191, 8192, 40000, 0, 100};
    enum { COUNT = sizeof(sizes) / sizeof(*sizes) };
    unsigned char *made[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        made[i] = qd_arena_alloc(&scratch.arena, sizes[i]);
        cr_assert_not_null(made[i]);
        cr_assert_eq((uintptr_t)made[i] % 64, 0);
        memset(made[i], (int)i + 1, sizes[i]);
    }
    for (size_t i = 0; i < COUNT; i++)
        for (size_t k = 0; k < sizes[i]; k++)
            cr_assert_eq(made[i][k], i + 1, "allocation %zu, byte %zu", i, k);
    scratch_deinit(&scratch);
}

Test(arena, no_bytes_are_not_a_refusal)
{
    struct scratch scratch;
    scratch_init(&scratch, MIB);
    cr_assert_not_null(qd_arena_alloc(&scratch.arena, 0));
    scratch_deinit(&scratch);
}

Test(arena, the_bound_holds_and_gives_way_when_memory_returns)
{
    struct scratch scratch;
    scratch_init(&scratch, MIB);
    struct qd_arena other;
    qd_arena_init(&other, scratch.memory);
    cr_assert_not_null(qd_arena_alloc(&other, 600 * KIB));
    cr_assert_null(qd_arena_alloc(&scratch.arena, 600 * KIB));
    cr_assert_not(qd_arena_hopeless(&scratch.arena), "alone it would have fitted");
    cr_assert_leq(qd_memory_used(scratch.memory), qd_memory_max(scratch.memory));
    qd_arena_deinit(&other);
    cr_assert_not_null(qd_arena_alloc(&scratch.arena, 600 * KIB));
    scratch_deinit(&scratch);
}

Test(arena, what_can_never_fit_is_hopeless)
{
    struct scratch scratch;
    scratch_init(&scratch, MIB);
    cr_assert_null(qd_arena_alloc(&scratch.arena, 2 * MIB));
    cr_assert(qd_arena_hopeless(&scratch.arena));
    cr_assert_not_null(qd_arena_alloc(&scratch.arena, 600 * KIB));
    cr_assert_null(qd_arena_alloc(&scratch.arena, 600 * KIB));
    cr_assert(qd_arena_hopeless(&scratch.arena), "both are its own");
    scratch_deinit(&scratch);
}

Test(arena, what_several_have_together_is_hopeless)
{
    struct scratch scratch;
    struct qd_arena other;
    size_t together = 0;
    scratch_init(&scratch, MIB);
    qd_arena_init(&other, scratch.memory);
    scratch.arena.together = other.together = &together;
    void *old = qd_arena_alloc(&other, 100 * KIB);
    cr_assert_not_null(qd_arena_grow(&other, old, 100 * KIB, 600 * KIB));
    cr_assert_eq(together, other.bytes);
    cr_assert_null(qd_arena_alloc(&scratch.arena, 600 * KIB));
    cr_assert(qd_arena_hopeless(&scratch.arena));
    qd_arena_deinit(&other);
    cr_assert_eq(together, 0);
    cr_assert_not_null(qd_arena_alloc(&scratch.arena, 600 * KIB));
    cr_assert_eq(together, qd_arena_own_bytes(&scratch.arena));
    scratch_deinit(&scratch);
}

Test(arena, absurd_sizes_are_refused)
{
    struct scratch scratch;
    scratch_init(&scratch, SIZE_MAX);
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 63, SIZE_MAX - 64, SIZE_MAX - 128,
                                   SIZE_MAX / 2};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        cr_assert_null(qd_arena_alloc(&scratch.arena, sizes[i]), "size %zx", sizes[i]);
    cr_assert_null(qd_arena_calloc(&scratch.arena, SIZE_MAX / 2, 3));
    cr_assert_eq(qd_memory_used(scratch.memory), 0);
    scratch_deinit(&scratch);
}

Test(arena, calloc_zeroes_a_used_block)
{
    struct scratch scratch;
    scratch_init(&scratch, MIB);
    memset(qd_arena_alloc(&scratch.arena, 100 * KIB), 0xff, 100 * KIB);
    qd_arena_deinit(&scratch.arena);
    unsigned char *bytes = qd_arena_calloc(&scratch.arena, 100, KIB);
    cr_assert_not_null(bytes);
    for (size_t i = 0; i < 100 * KIB; i++)
        cr_assert_eq(bytes[i], 0);
    scratch_deinit(&scratch);
}

Test(arena, grow_keeps_the_bytes_and_returns_the_old_block)
{
    struct scratch scratch;
    scratch_init(&scratch, 64 * MIB);
    unsigned char *bytes = NULL;
    size_t count = 0;
    for (size_t next = 100; next < 16 * MIB; next = next * 3 / 2) {
        bytes = qd_arena_grow(&scratch.arena, bytes, count, next);
        cr_assert_not_null(bytes);
        for (size_t i = count; i < next; i++)
            bytes[i] = (unsigned char)(i * 31 >> 3);
        count = next;
    }
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(bytes[i], (unsigned char)(i * 31 >> 3));
    cr_assert_lt(qd_memory_used(scratch.memory), 2 * count, "the old blocks are still held");
    cr_assert_eq(qd_memory_used(scratch.memory), scratch.arena.bytes);
    scratch_deinit(&scratch);
}

Test(arena, a_list_grows_until_it_is_refused)
{
    struct scratch scratch;
    uint64_t *list = NULL;
    size_t capacity = 0;
    uint64_t count = 0;
    scratch_init(&scratch, MIB);
    for (;; count++) {
        uint64_t *more = qd_arena_extend(&scratch.arena, list, count, &capacity, sizeof(*list));
        if (more == NULL)
            break;
        list = more;
        cr_assert_gt(capacity, count);
        list[count] = count;
    }
    cr_assert_eq(count, capacity, "the list that was refused more stays as it is");
    cr_assert_gt(count, 10000);
    for (uint64_t i = 0; i < count; i++)
        cr_assert_eq(list[i], i);
    scratch_deinit(&scratch);
}

Test(arena, a_string_is_copied_with_its_end)
{
    struct scratch scratch;
    scratch_init(&scratch, MIB);
    const char *copy = qd_arena_copy(&scratch.arena, "quantd");
    cr_assert_str_eq(copy, "quantd");
    cr_assert_str_eq(qd_arena_copy(&scratch.arena, ""), "");
    cr_assert_str_eq(copy, "quantd");
    scratch_deinit(&scratch);
}

Test(arena, what_is_released_goes_back_at_once)
{
    struct scratch scratch;
    scratch_init(&scratch, 64 * MIB);
    size_t together = 0;
    scratch.arena.together = &together;
    char *small = qd_arena_alloc(&scratch.arena, 100);
    char *own = qd_arena_alloc(&scratch.arena, 20 * KIB);
    char *large = qd_arena_reserve(&scratch.arena, 8 * MIB);
    cr_assert_geq(qd_arena_commit(&scratch.arena, large, 3 * MIB, NULL), 3 * MIB);
    memset(small, 1, 100);
    qd_arena_release(&scratch.arena, large, 8 * MIB);
    cr_assert_lt(scratch.arena.bytes, 100 * KIB);
    qd_arena_release(&scratch.arena, own, 20 * KIB);
    cr_assert_lt(scratch.arena.bytes, 40 * KIB);
    cr_assert_eq(qd_memory_used(scratch.memory), scratch.arena.bytes);
    cr_assert_eq(together, scratch.arena.bytes);
    const size_t before = scratch.arena.bytes;
    qd_arena_release(&scratch.arena, small, 100); /* other blocks may lie next to it */
    cr_assert_eq(scratch.arena.bytes, before);
    cr_assert_eq(small[99], 1);
    scratch_deinit(&scratch);
}

Test(arena, a_refused_grow_leaves_the_old_one)
{
    struct scratch scratch;
    scratch_init(&scratch, MIB);
    char *bytes = qd_arena_alloc(&scratch.arena, 500 * KIB);
    memset(bytes, 7, 500 * KIB);
    cr_assert_null(qd_arena_grow(&scratch.arena, bytes, 500 * KIB, 900 * KIB));
    cr_assert_eq(bytes[0], 7);
    cr_assert_eq(bytes[500 * KIB - 1], 7);
    scratch_deinit(&scratch);
}

Test(arena, kept_blocks_never_stand_in_the_way)
{
    struct scratch scratch;
    scratch_init(&scratch, MIB);
    for (int i = 0; i < 3; i++) { /* each time all of the bound, in another size class */
        static const size_t sizes[] = {900 * KIB, 400 * KIB, 30 * KIB};
        size_t made = 0;
        while (qd_arena_alloc(&scratch.arena, sizes[i]) != NULL)
            made += sizes[i];
        cr_assert_geq(made, 800 * KIB, "size %zu", sizes[i]);
        qd_arena_deinit(&scratch.arena);
    }
    scratch_deinit(&scratch);
}

Test(arena, a_used_block_is_reused_until_trimmed_twice)
{
    struct scratch scratch;
    scratch_init(&scratch, 16 * MIB);
    void *first = qd_arena_alloc(&scratch.arena, 4 * MIB);
    qd_arena_deinit(&scratch.arena);
    qd_memory_trim(scratch.memory); /* the block was used since the last trim */
    cr_assert_eq(qd_arena_alloc(&scratch.arena, 4 * MIB), first);
    scratch_deinit(&scratch);
}

Test(arena, memory_goes_back_in_steps)
{
    struct scratch scratch;
    scratch_init(&scratch, 16 * MIB);
    void *first = qd_arena_alloc(&scratch.arena, 8 * MIB);
    qd_arena_deinit(&scratch.arena);
    cr_assert_not(qd_memory_trim_some(scratch.memory, 2 * MIB), "it was needed");
    cr_assert_eq(qd_memory_kept(scratch.memory), 8 * MIB);
    cr_assert(qd_memory_trim_some(scratch.memory, 2 * MIB));
    cr_assert_eq(qd_memory_kept(scratch.memory), 6 * MIB);
    char *again = qd_arena_alloc(&scratch.arena, 8 * MIB); /* although half is gone */
    cr_assert_eq(again, first);
    memset(again, 1, 8 * MIB);
    qd_arena_deinit(&scratch.arena);
    cr_assert_eq(qd_memory_kept(scratch.memory), 8 * MIB);
    unsigned steps = 0;
    while (qd_memory_trim_some(scratch.memory, 2 * MIB) || qd_memory_kept(scratch.memory) > 0)
        cr_assert_lt(++steps, 10);
    cr_assert_geq(steps, 4);
    scratch_deinit(&scratch);
}

/* Giving back a whole large block takes long, and a thread that needs only a little memory would
 * wait for it. */
Test(arena, a_kept_block_gives_no_more_than_is_wanted)
{
    struct scratch scratch;
    scratch_init(&scratch, 16 * MIB);
    void *first = qd_arena_alloc(&scratch.arena, 12 * MIB);
    qd_arena_deinit(&scratch.arena);
    memset(qd_arena_alloc(&scratch.arena, 6 * MIB), 1, 6 * MIB);
    cr_assert_eq(qd_memory_kept(scratch.memory), 10 * MIB);
    qd_arena_deinit(&scratch.arena);
    char *again = qd_arena_alloc(&scratch.arena, 12 * MIB);
    cr_assert_eq(again, first);
    memset(again, 1, 12 * MIB);
    cr_assert_leq(qd_memory_used(scratch.memory) + qd_memory_kept(scratch.memory), 16 * MIB);
    scratch_deinit(&scratch);
}

static void *churn(void *context)
{
    struct qd_memory *memory = context;
    struct qd_arena arena;
    qd_arena_init(&arena, memory);
    for (size_t i = 0; i < 2000; i++) {
        size_t bytes = (i * 7919) % (i % 20 == 0 ? 3 * MIB : 200 * KIB);
        char *made = qd_arena_alloc(&arena, bytes);
        if (made != NULL)
            memset(made, (int)i, bytes);
        if (i % 3 == 0)
            qd_arena_deinit(&arena);
        if (i % 500 == 0)
            qd_memory_trim(memory);
        if (i % 50 == 0)
            qd_memory_trim_some(memory, 300 * KIB);
    }
    qd_arena_deinit(&arena);
    return NULL;
}

Test(arena, threads_share_the_memory)
{
    struct qd_memory *memory = qd_memory_create(8 * MIB);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, churn, memory), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    cr_assert_eq(qd_memory_used(memory), 0);
    qd_memory_destroy(memory);
}

/* Models hold their memory for long. Many small models and their plans must not each hold a block
 * of the size for requests. */
Test(arena, models_take_little_more_than_they_need)
{
    struct scratch scratch;
    scratch_init(&scratch, 64 * MIB);
    qd_memory_set_for_models(scratch.memory);
    qd_arena_init(&scratch.arena, scratch.memory);
    static const size_t sizes[] = {1, 64, 100, 900, 1000, 1024, 3000, 10000, 36864, 40000, 2359296};
    size_t wanted = 0;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        unsigned char *made = qd_arena_alloc(&scratch.arena, sizes[i]);
        cr_assert_not_null(made);
        cr_assert_eq((uintptr_t)made % 64, 0);
        memset(made, 1, sizes[i]);
        wanted += sizes[i];
        cr_assert_leq(scratch.arena.bytes, 4 * KIB + wanted + wanted / 16 + 128 * (i + 1));
    }
    scratch_deinit(&scratch);
}

/* ---- Large blocks ------------------------------------------------------------------------- */

/* Returns how many bytes of [at, at + bytes) are in pages in memory. */
static size_t resident_bytes(void *at, size_t bytes)
{
    static unsigned char pages[64 * MIB / 4096];
    size_t count = 0;
    cr_assert_eq(mincore(at, bytes, pages), 0);
    for (size_t i = 0; i < bytes / 4096; i++)
        count += pages[i] & 1;
    return count * 4096;
}

Test(arena, a_power_of_two_counts_as_itself)
{
    struct scratch scratch;
    scratch_init(&scratch, 80 * MIB);
    cr_assert_not_null(qd_arena_alloc(&scratch.arena, 16 * MIB));
    cr_assert_eq(qd_memory_used(scratch.memory), 16 * MIB);
    cr_assert_not_null(qd_arena_alloc(&scratch.arena, 64 * MIB), "16 and 64 are 80");
    qd_arena_deinit(&scratch.arena);
    cr_assert_not_null(qd_arena_alloc(&scratch.arena, 5 * MIB + 1));
    cr_assert_eq(qd_memory_used(scratch.memory), 5 * MIB + 4096);
    scratch_deinit(&scratch);
}

/* A block that was used for more bytes is used again, and does not keep pages beyond the
 * request. */
Test(arena, a_larger_used_block_is_reused_and_counts_as_asked)
{
    struct scratch scratch;
    scratch_init(&scratch, 64 * MIB);
    char *first = qd_arena_alloc(&scratch.arena, 16 * MIB);
    memset(first, 1, 16 * MIB);
    qd_arena_deinit(&scratch.arena);
    cr_assert_eq(qd_memory_kept(scratch.memory), 16 * MIB);
    char *second = qd_arena_alloc(&scratch.arena, 15 * MIB);
    cr_assert_eq(second, first);
    cr_assert_eq(qd_memory_used(scratch.memory), 15 * MIB);
    cr_assert_eq(qd_memory_kept(scratch.memory), 0);
    cr_assert_eq(resident_bytes(first, 16 * MIB), 15 * MIB, "the pages in use stayed");
    cr_assert_eq(qd_arena_grow(&scratch.arena, second, 15 * MIB, 16 * MIB), first, "in its place");
    cr_assert_eq(qd_memory_used(scratch.memory), 16 * MIB);
    memset(first, 2, 16 * MIB);
    scratch_deinit(&scratch);
}

/* Sizes around the one from which blocks are mapped. If a used block is handed out again for
 * slightly more bytes than it has, malloc's checks or ASan see writes beyond it. */
Test(arena, a_used_block_is_never_shorter_than_asked)
{
    struct scratch scratch;
    scratch_init(&scratch, 64 * MIB);
    for (unsigned models = 0; models < 2; models++) {
        for (size_t size = 224 * KIB; size <= 320 * KIB; size += 64) {
            for (size_t next = size; next <= size + 128; next += 64) {
                unsigned char *block = qd_arena_alloc(&scratch.arena, size);
                cr_assert_not_null(block);
                memset(block, 1, size);
                qd_arena_deinit(&scratch.arena);
                block = qd_arena_alloc(&scratch.arena, next);
                cr_assert_not_null(block);
                memset(block, 2, next);
                unsigned char *beside = qd_arena_alloc(&scratch.arena, next);
                cr_assert_not_null(beside);
                memset(beside, 3, next);
                cr_assert_eq(block[next - 1], 2);
                qd_arena_deinit(&scratch.arena);
            }
        }
        scratch_deinit(&scratch);
        scratch_init(&scratch, 64 * MIB);
        qd_memory_set_for_models(scratch.memory);
        qd_arena_init(&scratch.arena, scratch.memory);
    }
    scratch_deinit(&scratch);
}

Test(arena, what_is_reserved_counts_as_it_comes)
{
    struct scratch scratch;
    scratch_init(&scratch, 40 * MIB);
    struct qd_arena others[8];
    for (size_t i = 0; i < 8; i++) { /* no bytes arrive */
        qd_arena_init(&others[i], scratch.memory);
        cr_assert_not_null(qd_arena_reserve(&others[i], 39 * MIB));
    }
    cr_assert_eq(qd_memory_used(scratch.memory), 0);
    char *body = qd_arena_reserve(&scratch.arena, 33 * MIB);
    for (size_t bytes = 0; bytes < 33 * MIB; bytes += 100 * KIB) {
        const size_t end = bytes + 100 * KIB < 33 * MIB ? bytes + 100 * KIB : 33 * MIB;
        cr_assert_geq(qd_arena_commit(&scratch.arena, body, end, NULL), end);
        memset(body + bytes, (int)(bytes >> 12), end - bytes);
        cr_assert_leq(qd_memory_used(scratch.memory), end + 2 * MIB);
        cr_assert_eq(qd_memory_used(scratch.memory), scratch.arena.bytes);
    }
    cr_assert_eq(qd_memory_used(scratch.memory), 33 * MIB);
    cr_assert_eq(body[20 * MIB], (char)(20 * MIB / (100 * KIB) * (100 * KIB) >> 12));
    char *other = others[0].blocks == NULL ? NULL : qd_arena_reserve(&others[0], 8 * MIB);
    cr_assert_not_null(other);
    cr_assert_eq(qd_arena_commit(&others[0], other, 7 * MIB - 4096, NULL), 0, "rounded to 8 MiB");
    cr_assert_eq(qd_arena_commit(&others[0], other, 6 * MIB, NULL), 6 * MIB);
    cr_assert_not(qd_arena_hopeless(&others[0]));
    for (size_t i = 0; i < 8; i++)
        qd_arena_deinit(&others[i]);
    scratch_deinit(&scratch);
}

Test(arena, a_commit_tells_which_pages_are_fresh)
{
    struct scratch scratch;
    scratch_init(&scratch, 20 * MIB);
    char *first = qd_arena_alloc(&scratch.arena, 5 * MIB);
    memset(first, 1, 5 * MIB);
    qd_arena_deinit(&scratch.arena);
    size_t fresh;
    cr_assert_eq(qd_arena_reserve(&scratch.arena, 5 * MIB - 4096), first);
    cr_assert_leq(qd_arena_commit(&scratch.arena, first, 3 * MIB, &fresh), fresh, "it was used");
    qd_arena_deinit(&scratch.arena);
    char *second = qd_arena_alloc(&scratch.arena, 16 * MIB);
    memset(second, 1, 12 * MIB);
    qd_arena_deinit(&scratch.arena);
    struct qd_arena other;
    qd_arena_init(&other, scratch.memory);
    cr_assert_eq(qd_arena_reserve(&scratch.arena, 16 * MIB), second);
    cr_assert_not_null(qd_arena_alloc(&other, 10 * MIB)); /* takes the unused memory */
    cr_assert_eq(qd_arena_commit(&scratch.arena, second, MIB, &fresh), MIB);
    cr_assert_eq(fresh, 0);
    cr_assert_eq(qd_arena_commit(&scratch.arena, second, 5 * MIB, &fresh), 6 * MIB);
    cr_assert_eq(fresh, MIB);
    cr_assert_eq(qd_arena_commit(&scratch.arena, second, 5 * MIB, &fresh), 6 * MIB);
    cr_assert_geq(fresh, 6 * MIB, "there was nothing to commit");
    qd_arena_deinit(&other);
    scratch_deinit(&scratch);
}

Test(arena, a_sparse_arena_takes_no_huge_pages)
{
    struct scratch scratch;
    struct qd_arena beside;
    scratch_init(&scratch, 16 * MIB);
    scratch.arena.is_sparse = true;
    qd_arena_init_beside(&beside, &scratch.arena);
    char *made = qd_arena_alloc(&beside, 4 * MIB);
    cr_assert_not_null(made);
    made[0] = made[2 * MIB] = 1;
    cr_assert_eq(resident_bytes(made, 4 * MIB), 2 * QD_PAGE_BYTES);
    qd_arena_deinit(&beside);
    /* The next arena that gets the block has huge pages again, if the system has any. */
    struct qd_arena other;
    qd_arena_init(&other, scratch.arena.memory);
    char *again = qd_arena_alloc(&other, 4 * MIB);
    cr_assert_eq(again, made);
    cr_assert_not(other.blocks->is_sparse);
    qd_arena_deinit(&other);
    scratch_deinit(&scratch);
}

Test(arena, what_is_moved_outlives_its_first_arena)
{
    struct scratch scratch;
    scratch_init(&scratch, 20 * MIB);
    char *beside = qd_arena_alloc(&scratch.arena, 100);
    char *body = qd_arena_reserve(&scratch.arena, 8 * MIB);
    cr_assert_eq(qd_arena_commit(&scratch.arena, body, 4 * MIB, NULL), 4 * MIB);
    const size_t used = qd_memory_used(scratch.memory);
    struct qd_arena other;
    qd_arena_init(&other, scratch.memory);
    qd_arena_move(&scratch.arena, &other, body);
    cr_assert_eq(other.bytes, 4 * MIB);
    cr_assert_eq(scratch.arena.bytes, used - 4 * MIB);
    beside[0] = 1;
    qd_arena_deinit(&scratch.arena);
    cr_assert_eq(qd_memory_used(scratch.memory), 4 * MIB);
    memset(body, 1, 4 * MIB);
    qd_arena_deinit(&other);
    cr_assert_eq(qd_memory_used(scratch.memory), 0);
    scratch_deinit(&scratch);
}

Test(arena, what_can_never_fit_is_not_reserved)
{
    struct scratch scratch;
    scratch_init(&scratch, 4 * MIB);
    cr_assert_null(qd_arena_reserve(&scratch.arena, 5 * MIB));
    cr_assert(qd_arena_hopeless(&scratch.arena));
    cr_assert_not_null(qd_arena_reserve(&scratch.arena, 4 * MIB));
    cr_assert_null(qd_arena_reserve(&scratch.arena, SIZE_MAX));
    cr_assert_not_null(qd_arena_reserve(&scratch.arena, 100)); /* a small block counts in full */
    scratch_deinit(&scratch);
}

/* A reserved block may have used pages. Other arenas can have these pages as long as the block does
 * not use them. */
Test(arena, used_pages_that_are_reserved_again_stand_in_nobodys_way)
{
    struct scratch scratch;
    scratch_init(&scratch, 20 * MIB);
    char *first = qd_arena_alloc(&scratch.arena, 16 * MIB);
    memset(first, 1, 16 * MIB);
    qd_arena_deinit(&scratch.arena);
    struct qd_arena sender;
    qd_arena_init(&sender, scratch.memory);
    cr_assert_eq(qd_arena_reserve(&sender, 16 * MIB), first);
    cr_assert_eq(qd_memory_used(scratch.memory), 0);
    cr_assert_eq(qd_memory_kept(scratch.memory), 16 * MIB);
    cr_assert_eq(qd_arena_commit(&sender, first, 4 * MIB, NULL), 4 * MIB);
    memset(first, 3, 4 * MIB);
    cr_assert_eq(qd_memory_kept(scratch.memory), 12 * MIB);
    cr_assert_eq(resident_bytes(first, 16 * MIB), 16 * MIB, "no page fault");
    cr_assert_not_null(qd_arena_alloc(&scratch.arena, 10 * MIB));
    cr_assert_leq(qd_memory_used(scratch.memory) + qd_memory_kept(scratch.memory), 20 * MIB);
    cr_assert_eq(resident_bytes(first, 16 * MIB), 4 * MIB);
    cr_assert_eq(first[4 * MIB - 1], 3);
    cr_assert_eq(qd_arena_commit(&sender, first, 16 * MIB, NULL), 4 * MIB);
    cr_assert_eq(qd_arena_commit(&sender, first, 10 * MIB, NULL), 10 * MIB);
    qd_arena_deinit(&sender);
    cr_assert_eq(qd_memory_kept(scratch.memory), 10 * MIB);
    scratch_deinit(&scratch);
}

/* Threads reserve, fill and give back blocks under a bound that is too small for all of them. */
static void *send_much(void *context)
{
    struct qd_memory *memory = context;
    struct qd_arena arena;
    qd_arena_init(&arena, memory);
    for (size_t i = 0; i < 60; i++) {
        const size_t bytes = 300 * KIB + i * 7919 % 17 * MIB / 4;
        char *body = qd_arena_reserve(&arena, bytes);
        size_t end = 0;
        while (body != NULL && end < bytes) {
            const size_t next = end + 200 * KIB < bytes ? end + 200 * KIB : bytes;
            if (qd_arena_commit(&arena, body, next, NULL) < next)
                break;
            memset(body + end, (int)i + 1, next - end);
            end = next;
        }
        for (size_t k = 0; k < end; k += 4096)
            cr_assert_eq(body[k], (char)(i + 1));
        qd_arena_deinit(&arena);
    }
    return NULL;
}

Test(arena, threads_reserve)
{
    struct qd_memory *memory = qd_memory_create(7 * MIB);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, send_much, memory), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    cr_assert_eq(qd_memory_used(memory), 0);
    cr_assert_leq(qd_memory_kept(memory), 7 * MIB);
    qd_memory_destroy(memory);
}
