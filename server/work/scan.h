/* A job that looks at a whole repository, and says what is there and how it differs from before. */
#ifndef SERVER_WORK_SCAN_H
#define SERVER_WORK_SCAN_H

#include <stddef.h>
#include <stdint.h>

#include "server/base/status.h"
#include "server/memory/arena.h"
#include "server/models/repository/repository.h"
#include "server/work/scheduler/scheduler.h"

struct qd_scan_entry {
    const char *name;
    uint64_t fingerprint;
    const char *failure; /* why its folder cannot be looked at; NULL: it can */
};

struct qd_scan {
    const struct qd_repository *repository; /* borrowed */
    void (*on_done)(struct qd_scan *scan);
    void *context;

    /* When it is done: sorted by name, in the arena. */
    struct qd_error error; /* QD_OK: the list is whole */
    struct qd_scan_entry *entries;
    size_t count;

    /* Its own. */
    struct qd_job job;
    struct qd_worker_slot slot;
    struct qd_arena arena;
    struct qd_arena folder_arena;
};

/* on_done comes on `loop`. False: the scheduler's queue is full. `memory`: the models' own. */
bool qd_scan_submit(struct qd_scan *scan, struct qd_scheduler *scheduler, struct qd_loop *loop,
                    struct qd_memory *memory);
/* Gives the entries back, after on_done. */
void qd_scan_clear(struct qd_scan *scan);

#endif
