/* One load: a job that makes the versions of one model, from their files to packed graphs. It knows
 * nothing of what is in service.
 *
 * On the workers, in units, like any request: fetching files, then, for each version in turn,
 * parsing, checking, packing. What is needed only meanwhile lies in the models' own memory
 * (--max-model-bytes), as does what stays; all of it is given back before the load is done. */
#ifndef SERVER_WORK_LOAD_H
#define SERVER_WORK_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/qk.h"
#include "server/models/repository/name.h"
#include "server/models/sources.h"
#include "server/models/table.h"
#include "server/work/request.h"
#include "server/work/scheduler/scheduler.h"

/* What all loads share. All borrowed. */
struct qd_load_tools {
    const struct qk_kernels *kernels;
    struct qd_memory *memory;               /* the models' own */
    const struct qd_repository *repository; /* NULL: there is none */
    struct qd_scheduler *scheduler;
    struct qd_loop *loop; /* that the loads are done on */
    unsigned thread_count;
    bool marks_folders; /* loads say what their folders' fingerprints were */
};

struct qd_load {
    char name[QD_MODEL_NAME_BYTES_MAX + 1];
    struct qd_request *request; /* whose body says what to load; NULL: the model's folder does */
    uint64_t timeout_ns;        /* from its start on a worker; 0: none */
    void (*on_done)(struct qd_load *load); /* on the loop's thread; destroys it */
    void *context;                         /* these two, and `next`, are the owner's */
    struct qd_load *next;

    /* When it is done. */
    struct qd_error error;                                 /* QD_OK: the models are packed */
    struct qd_model *models[QD_SOURCES_VERSION_COUNT_MAX]; /* whoever takes one sets it to NULL */
    size_t model_count;
    bool from_repository;
    uint64_t fingerprint; /* of the folder, when the load began; 0: nobody asked for it */

    /* The load's own. */
    const struct qd_load_tools *tools;
    struct qd_job job;
    size_t bytes; /* of all its arenas, and of the models that it makes */
    struct qd_arena arena;
    struct qd_arena version_arena; /* of the version that is made */
    struct qd_arena file_arena;    /* of its files, until they are parsed */
    struct qd_sources sources;
    struct qd_build build;
    struct qk_graph *graph; /* that is packed just now; NULL: there is none */
    size_t version;         /* index of the one that is made */
    struct qd_worker_slot *slots;
    bool (*next_step)(struct qd_load *load);
};

/* NULL: malloc failed. */
struct qd_load *qd_load_create(const struct qd_load_tools *tools, const char *name);
/* With the models that nobody took. Not between submit and on_done. */
void qd_load_destroy(struct qd_load *load);

/* False: the scheduler's queue is full, and nothing happened. */
bool qd_load_submit(struct qd_load *load);

#endif
