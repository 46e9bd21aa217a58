/* Loads one model: a job that makes its versions, from their files to packed graphs. It does not
 * know which models are in service.
 *
 * The work is done on the workers, in units, like any request: fetching files, and then for each
 * version in turn parsing, checking and packing. All memory is the models' own (--max-model-bytes).
 * What is needed only while loading is given back before the load is done. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/qk.h"
#include "server/base/status.h"
#include "server/memory/arena.h"
#include "server/models/repository/repository.h"
#include "server/models/sources.h"
#include "server/models/table.h"
#include "server/work/request.h"
#include "server/work/scheduler/scheduler.h"

/* What all loads share. All pointers are borrowed. */
struct qd_load_tools {
    const struct qk_kernels *kernels;
    struct qd_memory *memory;               /* of models */
    const struct qd_repository *repository; /* NULL if there is none */
    struct qd_scheduler *scheduler;
    struct qd_loop *loop; /* on which `on_done` is called */
    unsigned thread_count;
    bool marks_folders; /* loads set `fingerprint` */
};

struct qd_load {
    char name[QD_MODEL_NAME_BYTES_MAX + 1];
    struct qd_request *request; /* its body says what to load; NULL: the model's folder says it */
    uint64_t timeout_ns;        /* counted from the start on a worker; 0: none */
    void (*on_done)(struct qd_load *load); /* on the loop's thread; destroys the load */
    void *context;                         /* on_done, context and next belong to the owner */
    struct qd_load *next;

    /* Valid when the load is done. */
    struct qd_error error; /* QD_OK if the models are packed */
    /* Code that takes the models out of the load sets model_count to 0. */
    struct qd_model *models[QD_SOURCES_VERSION_COUNT_MAX];
    size_t model_count;
    bool from_repository;
    uint64_t fingerprint; /* of the folder when the load began; 0 without marks_folders */

    /* Private. */
    const struct qd_load_tools *tools;
    struct qd_job job;
    struct qd_sources sources; /* with the memory of what the load makes, except the models' */
    struct qd_build build;
    struct qd_build_work work; /* of the version that is being made */
    struct qk_graph *graph;    /* the graph that is being packed; NULL if there is none */
    struct qd_constant_pages *constant_pages; /* of that graph */
    size_t version;                           /* index of the version that is being made */
    bool (*next_step)(struct qd_load *load);
    struct qd_worker_slot slots[]; /* [tools->thread_count] */
};

/* Returns NULL if malloc failed. */
struct qd_load *qd_load_create(const struct qd_load_tools *tools, const char *name);
/* Destroys the load, and the models that are still in it. Not between submit and on_done. */
void qd_load_destroy(struct qd_load *load);

/* Returns false, without any effect, if the scheduler's queue is full. */
bool qd_load_submit(struct qd_load *load);

/* ---- Memory of constants is given back while they are packed ------------------------------- */

/* A load reads a model's file, and then packs its weights into new memory. If the file stayed in
 * memory until all weights are packed, a load would need both at once, which is twice the memory
 * that the model keeps. So the pages of a constant are given back as soon as all nodes that read
 * the constant are packed. The block of memory that they belong to is freed later, as usual.
 *
 * Finds the constants of all nodes that have units of packing. `graph` was prepared from `call`,
 * and nothing but packing may read the constants any more. Returns NULL if the arena has no room.
 * No page is then given back before its block is freed. */
struct qd_constant_pages *qd_constant_pages_find(const struct qk_graph_call *call,
                                                 const struct qk_graph *graph,
                                                 struct qd_arena *arena);

/* Records that units [begin, end) have been packed. Gives back the pages of constants that no other
 * unit reads. Their bytes have no meaning any more. `pages` may be NULL. May be called on several
 * threads at once, once for each unit. */
void qd_constant_pages_packed(struct qd_constant_pages *pages, size_t begin, size_t end);

/* ---- A job that lists the models of a repository, with a fingerprint of each folder -------- */

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
    bool holds_version; /* a version's folder, as of one model, lies in the repository's folder */
    bool holds_model;   /* model.onnx, as of one version, lies there and makes a model */
    bool holds_folders; /* a folder lies there that has folders, but no versions */

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
