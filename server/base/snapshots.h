/* Lets many threads read a constant object, such as the list of tokens, while one thread replaces
 * it with a newer one. Readers and the writer never wait for each other and take no lock. Taking an
 * object and giving it back are one atomic addition each.
 *
 * `current` holds the index of the newest object's slot and, in its lower bits, how often that
 * object was taken. The writer swaps in a new `current`, learns from the old one how often the old
 * object was taken, and adds that number to the slot's reader_count. Each reader that gives an
 * object back subtracts one. After a replacement, reader_count is therefore the number of readers
 * that still hold the object. The thread that brings it to 0 destroys the object. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* How many objects may exist at once. A reader holds an object for microseconds, so two are enough
 * unless readers lose their CPU while they hold one. */
#define QD_SNAPSHOT_COUNT_MAX 8

struct qd_snapshot {
    _Atomic(void *) object; /* NULL: the slot is free */
    _Atomic int64_t reader_count;
};

struct qd_snapshots {
    void (*destroy)(void *object); /* is called on any thread */
    _Atomic uint64_t current;
    struct qd_snapshot slots[QD_SNAPSHOT_COUNT_MAX];
};

/* Takes ownership of `first`, which is not NULL. */
void qd_snapshots_init(struct qd_snapshots *snapshots, void *first, void (*destroy)(void *object));

/* Destroys the objects. No reader may be left. */
void qd_snapshots_deinit(struct qd_snapshots *snapshots);

/* Returns the slot of the newest object. The object lives until the slot is given back. */
struct qd_snapshot *qd_snapshots_take(struct qd_snapshots *snapshots);
void qd_snapshots_give_back(struct qd_snapshots *snapshots, struct qd_snapshot *taken);

/* Makes `next` the newest object and takes ownership of it. Call it on one thread at a time.
 * Returns false, and leaves `next` to the caller, if readers still hold all older objects. */
bool qd_snapshots_replace(struct qd_snapshots *snapshots, void *next);
