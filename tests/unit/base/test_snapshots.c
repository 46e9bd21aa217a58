#include "server/base/snapshots.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { THREAD_COUNT = 4, REPLACE_COUNT = 2000, WORD_COUNT = 64 };

/* All words of a page are its number. The words of a destroyed page differ. */
struct page {
    unsigned words[WORD_COUNT];
};

static atomic_uint alive;
static atomic_bool over;

static struct page *make(unsigned number)
{
    struct page *page = malloc(sizeof(*page));
    for (size_t i = 0; i < WORD_COUNT; i++)
        page->words[i] = number;
    atomic_fetch_add(&alive, 1);
    return page;
}

static void destroy(void *object)
{
    memset(object, 0xee, sizeof(struct page));
    atomic_fetch_sub(&alive, 1);
    free(object);
}

static unsigned number_of(const struct qd_snapshot *snapshot)
{
    const struct page *page = atomic_load(&snapshot->object);
    for (size_t i = 1; i < WORD_COUNT; i++)
        cr_assert_eq(page->words[i], page->words[0]);
    return page->words[0];
}

Test(snapshots, an_object_stays_while_it_is_read)
{
    struct qd_snapshots snapshots;
    qd_snapshots_init(&snapshots, make(1), destroy);
    struct qd_snapshot *first = qd_snapshots_take(&snapshots);
    struct qd_snapshot *again = qd_snapshots_take(&snapshots);
    cr_assert(qd_snapshots_replace(&snapshots, make(2)));
    cr_assert_eq(atomic_load(&alive), 2);
    struct qd_snapshot *second = qd_snapshots_take(&snapshots);
    cr_assert_eq(number_of(second), 2);
    qd_snapshots_give_back(&snapshots, first);
    cr_assert_eq(number_of(again), 1);
    qd_snapshots_give_back(&snapshots, again);
    cr_assert_eq(atomic_load(&alive), 1);
    qd_snapshots_give_back(&snapshots, second);
    cr_assert(qd_snapshots_replace(&snapshots, make(3)));
    cr_assert_eq(atomic_load(&alive), 1);
    qd_snapshots_deinit(&snapshots);
    cr_assert_eq(atomic_load(&alive), 0);
}

Test(snapshots, so_many_may_be_held)
{
    struct qd_snapshots snapshots;
    struct qd_snapshot *held[QD_SNAPSHOT_COUNT_MAX];
    qd_snapshots_init(&snapshots, make(0), destroy);
    for (unsigned i = 0; i < QD_SNAPSHOT_COUNT_MAX; i++) {
        held[i] = qd_snapshots_take(&snapshots);
        cr_assert_eq(number_of(held[i]), i);
        struct page *next = make(i + 1);
        const bool replaced = qd_snapshots_replace(&snapshots, next);
        cr_assert_eq(replaced, i + 1 < QD_SNAPSHOT_COUNT_MAX);
        if (!replaced)
            destroy(next);
    }
    qd_snapshots_give_back(&snapshots, held[3]);
    cr_assert(qd_snapshots_replace(&snapshots, make(99)));
    for (unsigned i = 0; i < QD_SNAPSHOT_COUNT_MAX; i++)
        if (i != 3)
            qd_snapshots_give_back(&snapshots, held[i]);
    qd_snapshots_deinit(&snapshots);
    cr_assert_eq(atomic_load(&alive), 0);
}

static void *read_on(void *context)
{
    struct qd_snapshots *snapshots = context;
    unsigned last = 0;
    while (!atomic_load(&over)) {
        struct qd_snapshot *taken = qd_snapshots_take(snapshots);
        const unsigned number = number_of(taken);
        cr_assert_geq(number, last);
        last = number;
        qd_snapshots_give_back(snapshots, taken);
    }
    return NULL;
}

Test(snapshots, readers_and_a_writer_do_not_wait_for_each_other)
{
    struct qd_snapshots snapshots;
    pthread_t threads[THREAD_COUNT];
    qd_snapshots_init(&snapshots, make(0), destroy);
    for (size_t i = 0; i < THREAD_COUNT; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, read_on, &snapshots), 0);
    for (unsigned i = 1; i <= REPLACE_COUNT; i++) {
        struct page *next = make(i);
        while (!qd_snapshots_replace(&snapshots, next))
            sched_yield();
    }
    atomic_store(&over, true);
    for (size_t i = 0; i < THREAD_COUNT; i++)
        pthread_join(threads[i], NULL);
    qd_snapshots_deinit(&snapshots);
    cr_assert_eq(atomic_load(&alive), 0);
}
