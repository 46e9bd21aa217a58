#include "server/base/arena.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

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
    for (int i = 0; i < 3; i++) { /* each time another size class, all of the bound */
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
    qd_memory_trim(scratch.memory); /* it was needed since the last trim */
    cr_assert_eq(qd_arena_alloc(&scratch.arena, 4 * MIB), first);
    scratch_deinit(&scratch);
}

static void *churn(void *context)
{
    struct qd_memory *memory = context;
    struct qd_arena arena;
    qd_arena_init(&arena, memory);
    for (size_t i = 0; i < 2000; i++) {
        size_t bytes = (i * 7919) % (200 * KIB);
        char *made = qd_arena_alloc(&arena, bytes);
        if (made != NULL)
            memset(made, (int)i, bytes);
        if (i % 3 == 0)
            qd_arena_deinit(&arena);
        if (i % 500 == 0)
            qd_memory_trim(memory);
    }
    qd_arena_deinit(&arena);
    return NULL;
}

Test(arena, threads_share_the_memory)
{
    struct qd_memory *memory = qd_memory_create(MIB);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, churn, memory), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    cr_assert_eq(qd_memory_used(memory), 0);
    qd_memory_destroy(memory);
}

/* What models hold stays: many small ones and their plans must not hold a request's block each. */
Test(arena, models_take_little_more_than_they_need)
{
    struct scratch scratch;
    scratch_init(&scratch, 64 * MIB);
    qd_memory_set_for_models(scratch.memory);
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
