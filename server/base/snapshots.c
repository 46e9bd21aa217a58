#include "server/base/snapshots.h"

#include <assert.h>
#include <stddef.h>

/* The lower 56 bits count the takes. 2^56 takes of one object need years. */
#define INDEX_SHIFT 56
#define TAKEN_MASK ((UINT64_C(1) << INDEX_SHIFT) - 1)

void qd_snapshots_init(struct qd_snapshots *snapshots, void *first, void (*destroy)(void *object))
{
    *snapshots = (struct qd_snapshots){.destroy = destroy};
    atomic_store(&snapshots->slots[0].object, first);
}

static void destroy(struct qd_snapshots *snapshots, struct qd_snapshot *slot)
{
    snapshots->destroy(atomic_load_explicit(&slot->object, memory_order_relaxed));
    atomic_store_explicit(&slot->object, NULL, memory_order_release);
}

/* Adds the number of takes of an object that was replaced to its reader_count. */
static void retire(struct qd_snapshots *snapshots, uint64_t before)
{
    struct qd_snapshot *slot = &snapshots->slots[before >> INDEX_SHIFT];
    const int64_t taken = (int64_t)(before & TAKEN_MASK);
    if (atomic_fetch_add(&slot->reader_count, taken) + taken == 0)
        destroy(snapshots, slot);
}

void qd_snapshots_deinit(struct qd_snapshots *snapshots)
{
    retire(snapshots, atomic_load(&snapshots->current));
    for (size_t i = 0; i < QD_SNAPSHOT_COUNT_MAX; i++)
        assert(atomic_load(&snapshots->slots[i].object) == NULL);
}

struct qd_snapshot *qd_snapshots_take(struct qd_snapshots *snapshots)
{
    return &snapshots->slots[atomic_fetch_add(&snapshots->current, 1) >> INDEX_SHIFT];
}

void qd_snapshots_give_back(struct qd_snapshots *snapshots, struct qd_snapshot *taken)
{
    if (atomic_fetch_sub(&taken->reader_count, 1) == 1)
        destroy(snapshots, taken);
}

bool qd_snapshots_replace(struct qd_snapshots *snapshots, void *next)
{
    uint64_t index = 0;
    while (index < QD_SNAPSHOT_COUNT_MAX &&
           atomic_load_explicit(&snapshots->slots[index].object, memory_order_acquire) != NULL)
        index++;
    if (index == QD_SNAPSHOT_COUNT_MAX)
        return false;
    atomic_store(&snapshots->slots[index].object, next);
    retire(snapshots, atomic_exchange(&snapshots->current, index << INDEX_SHIFT));
    return true;
}
