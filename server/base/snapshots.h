/* An object that never changes, which many threads read while one replaces it with the next.
 * Neither waits for the other, and nobody takes a lock: taking and giving back are an atomic
 * addition each.
 *
 * `current` has the index of the newest object's slot and, below it, how often that one was taken.
 * Whoever replaces the object learns with the same step how often, and adds that to the slot's
 * count, from which each give-back subtracts one. So the count of a replaced object is that of its
 * readers, and whoever brings it to 0 destroys it. */
#ifndef SERVER_BASE_SNAPSHOTS_H
#define SERVER_BASE_SNAPSHOTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Objects that may be there at once. A reader holds one for microseconds, so that two suffice,
 * unless readers lose their CPU just then. */
#define QD_SNAPSHOT_COUNT_MAX 8

struct qd_snapshot {
    _Atomic(void *) object; /* NULL: the slot is free */
    _Atomic int64_t reader_count;
};

struct qd_snapshots {
    void (*destroy)(void *object); /* called on any thread */
    _Atomic uint64_t current;
    struct qd_snapshot slots[QD_SNAPSHOT_COUNT_MAX];
};

/* `first` is owned from here on, and not NULL. */
void qd_snapshots_init(struct qd_snapshots *snapshots, void *first, void (*destroy)(void *object));

/* When nobody reads any more. */
void qd_snapshots_deinit(struct qd_snapshots *snapshots);

/* Returns the newest object's slot, whose object stays until it is given back. */
struct qd_snapshot *qd_snapshots_take(struct qd_snapshots *snapshots);
void qd_snapshots_give_back(struct qd_snapshots *snapshots, struct qd_snapshot *taken);

/* Puts `next`, which is owned from here on, in the newest's place. One thread at a time. Returns
 * false, and leaves `next` to the caller, if readers still hold all older objects. */
bool qd_snapshots_replace(struct qd_snapshots *snapshots, void *next);

#endif
