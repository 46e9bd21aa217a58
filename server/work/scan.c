#include "server/work/load.h"

enum { MODEL_NS = 50000 }; /* to read one folder that is in the system's cache */

static struct qd_scan *scan_of(struct qd_job *job)
{
    return (struct qd_scan *)((char *)job - offsetof(struct qd_scan, job));
}

static void look(struct qd_scan *scan, struct qd_scan_entry *entry)
{
    struct qd_model_folder folder;
    struct qd_error error;
    if (qd_model_folder_open(scan->repository, entry->name, true, &scan->folder_arena, &folder,
                             &error) == QD_OK) {
        entry->fingerprint = folder.fingerprint;
        scan->holds_version |= folder.has_model && folder.version_count == 0;
        scan->holds_folders |= folder.has_folders && folder.version_count == 0;
        scan->holds_model |= !folder.is_given && strcmp(folder.file, "model.onnx") == 0;
        qd_model_folder_close(&folder);
    } else {
        const char *copy = qd_arena_copy(&scan->arena, error.text);
        entry->failure = copy == NULL ? "no memory" : copy;
    }
    qd_arena_deinit(&scan->folder_arena);
}

/* There is one slot, so only one thread runs units at a time. */
static void run(struct qd_job *job, void *workspace, size_t begin, size_t end)
{
    struct qd_scan *scan = scan_of(job);
    (void)workspace;
    for (size_t i = begin; i < end; i++)
        look(scan, &scan->entries[i]);
}

static bool then(struct qd_job *job)
{
    (void)job;
    return false;
}

static bool start(struct qd_job *job)
{
    struct qd_scan *scan = scan_of(job);
    const char **names;
    job->level = QD_LEVEL_LAST;
    if (qd_repository_list(scan->repository, &scan->arena, &names, &scan->count, &scan->error) !=
        QD_OK)
        return false;
    scan->entries = qd_arena_calloc(&scan->arena, scan->count, sizeof(*scan->entries));
    if (scan->entries == NULL) {
        qd_refuse_memory(&scan->arena, "the repository's list", &scan->error);
        return false;
    }
    for (size_t i = 0; i < scan->count; i++)
        scan->entries[i].name = names[i];
    job->phase = (struct qd_phase){.run = run,
                                   .then = then,
                                   .unit_count = scan->count,
                                   .unit_cost_ns = MODEL_NS,
                                   .slots = &scan->slot,
                                   .slot_count = 1};
    return true;
}

static void cancel(struct qd_job *job)
{
    qd_fail_for(&scan_of(job)->error, QD_REASON_SHUTDOWN, QD_UNAVAILABLE, "the server shuts down");
}

static void done(struct qd_job *job)
{
    struct qd_scan *scan = scan_of(job);
    scan->on_done(scan);
}

bool qd_scan_submit(struct qd_scan *scan, struct qd_scheduler *scheduler, struct qd_loop *loop,
                    struct qd_memory *memory)
{
    static const struct qd_job_code code = {.start = start, .cancel = cancel, .done = done};
    scan->error.status = QD_OK;
    scan->entries = NULL;
    scan->count = 0;
    qd_arena_init(&scan->arena, memory);
    qd_arena_init(&scan->folder_arena, memory);
    return qd_scheduler_submit(scheduler, loop, &scan->job, &code, 0, UINT64_MAX);
}

void qd_scan_clear(struct qd_scan *scan)
{
    qd_arena_deinit(&scan->folder_arena);
    qd_arena_deinit(&scan->arena);
}
