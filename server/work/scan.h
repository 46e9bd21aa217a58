/* A job that scans a whole repository: it lists the models, with a fingerprint of each folder. */
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
    const char *failure; /* why its folder cannot be read; NULL if it can */
};

struct qd_scan {
    const struct qd_repository *repository; /* borrowed */
    void (*on_done)(struct qd_scan *scan);
    void *context;

    /* Valid when the scan is done. Sorted by name, in the arena. */
    struct qd_error error; /* QD_OK if the list is complete */
    struct qd_scan_entry *entries;
    size_t count;

    /* Private. */
    struct qd_job job;
    struct qd_worker_slot slot;
    struct qd_arena arena;
    struct qd_arena folder_arena;
};

/* Submits a scan. Calls on_done on `loop`. Returns false if the scheduler's queue is full. `memory`
 * is the models' memory. */
bool qd_scan_submit(struct qd_scan *scan, struct qd_scheduler *scheduler, struct qd_loop *loop,
                    struct qd_memory *memory);
/* Frees the entries. Called after on_done. */
void qd_scan_clear(struct qd_scan *scan);

#endif
