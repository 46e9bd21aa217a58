#include "server/work/load.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/clock.h"
#include "server/models/cut_hint.h"
#include "server/models/explain/explain.h"

enum { KEPT_BYTES_MAX = 1 << 20 };

static struct qd_load *load_of(struct qd_job *job)
{
    return (struct qd_load *)((char *)job - offsetof(struct qd_load, job));
}

struct qd_load *qd_load_create(const struct qd_load_tools *tools, const char *name)
{
    struct qd_load *load = calloc(1, sizeof(*load) + tools->thread_count * sizeof(*load->slots));
    if (load == NULL)
        return NULL;
    strncpy(load->name, name, sizeof(load->name) - 1);
    load->tools = tools;
    qd_sources_init(&load->sources, load->name, tools->repository, tools->memory);
    load->sources.marks_folder = tools->marks_folders;
    return load;
}

void qd_load_destroy(struct qd_load *load)
{
    for (size_t i = 0; i < load->model_count; i++)
        qd_model_release(load->models[i]);
    qd_sources_close(&load->sources);
    free(load);
}

/* ---- Steps, on a worker ------------------------------------------------------------------- */

/* Each step returns true if it has set the next phase, and false if the load is done. */
static bool begin_version(struct qd_load *load);
static bool take_version(struct qd_load *load);
static bool prepare_version(struct qd_load *load);
static bool end_version(struct qd_load *load);

/* Gives unused memory back to the system at once, and not when a timer expires: a load takes much,
 * and the next load may come much later. What a small load takes is kept for the next load, because
 * fresh pages take a third of a small load's time. */
static void give_back(struct qd_load *load)
{
    if (qd_memory_kept(load->tools->memory) <= KEPT_BYTES_MAX)
        return;
    qd_memory_trim(load->tools->memory);
    qd_memory_trim(load->tools->memory);
    malloc_trim(0); /* small blocks */
}

/* The last step. */
static bool end(struct qd_load *load)
{
    for (size_t i = 0; i < load->model_count; i++)
        load->models[i]->arena.together = NULL; /* the models outlive the load */
    qd_sources_close(&load->sources);
    give_back(load);
    return false;
}

/* Fails because the file was refused. Also says at which values `source` could be cut, unless it is
 * NULL. */
static bool fail_in_file(struct qd_load *load, const struct qd_source *source)
{
    struct qd_cut_hints *hints =
        source == NULL ? NULL : qd_arena_alloc(&load->sources.arena, sizeof(*hints));
    if (hints != NULL)
        qd_cut_hints_find(&load->build, source, &load->error, hints);
    qd_sources_fail(&load->sources, hints, &load->error);
    return end(load);
}

static bool then(struct qd_job *job)
{
    struct qd_load *load = load_of(job);
    return load->next_step(load);
}

static void set_phase(struct qd_load *load,
                      void (*run)(struct qd_job *job, void *workspace, size_t begin, size_t end),
                      size_t unit_count, uint64_t unit_cost_ns, size_t slot_count)
{
    load->job.phase = (struct qd_phase){
        .run = run,
        .then = then,
        .unit_count = unit_count,
        .unit_cost_ns = unit_cost_ns,
        .slots = load->slots,
        .slot_count = slot_count,
    };
}

static void run_fetch(struct qd_job *job, void *workspace, size_t begin, size_t end)
{
    (void)workspace;
    qd_sources_fetch(&load_of(job)->sources, begin, end);
}

/* Begins to fetch. With one slot, units are fetched in order. */
static bool fetch(struct qd_load *load, bool (*next_step)(struct qd_load *load))
{
    const struct qd_sources *sources = &load->sources;
    uint64_t cost_ns = sources->from_repository ? QD_FETCH_FILE_UNIT_NS : QD_FETCH_TEXT_UNIT_NS;
    size_t slots = qd_scheduler_shares(sources->unit_count, cost_ns, load->tools->thread_count);
    load->next_step = next_step;
    set_phase(load, run_fetch, sources->unit_count, cost_ns, sources->in_order ? 1 : slots);
    return true;
}

static bool begin_version(struct qd_load *load)
{
    if (qd_sources_find(&load->sources, load->version, &load->error) != QD_OK)
        return end(load);
    return fetch(load, take_version);
}

/* Parses what was fetched. An ONNX file may name external data, which is fetched before anything
 * else. */
static bool take_version(struct qd_load *load)
{
    struct qd_source source;
    if (qd_sources_take(&load->sources, &source, &load->error) != QD_OK ||
        qd_sources_set_build(&load->sources, load->tools->kernels, &load->work, &load->build,
                             &load->error) != QD_OK)
        return end(load);
    if (qd_build_read(&load->build, &source, &load->error) != QD_OK)
        return fail_in_file(load, &source);
    qd_cut_inputs_describe(&load->build, &source);
    if (load->build.is_onnx && !load->build.graph.points_into_file)
        /* The parsed model is a copy. Weights take the place of the file. */
        qd_arena_deinit(&load->sources.file_arena);
    return fetch(load, prepare_version);
}

static void run_pack(struct qd_job *job, void *workspace, size_t begin, size_t end)
{
    const struct qd_load *load = load_of(job);
    (void)workspace;
    qk_graph_pack(load->graph, begin, end);
    qd_constant_pages_packed(load->constant_pages, begin, end);
}

/* Keeps what became of the nodes of the file. */
static enum qd_status keep_nodes(struct qd_load *load, struct qd_model *model)
{
    struct qd_arena *arena = &load->sources.version_arena;
    struct qd_explanation *made = qd_arena_calloc(arena, 1, sizeof(*made));
    if (made == NULL)
        return qd_refuse_memory(arena, "the list of nodes", &load->error);
    return qd_explain_keep(&load->build, model, load->graph, made, &load->error);
}

static bool prepare_version(struct qd_load *load)
{
    struct qd_model *model;
    if (qd_sources_check(&load->sources, &load->error) != QD_OK)
        return end(load);
    if (qd_build_prepare(&load->build, &model, &load->graph, &load->error) != QD_OK)
        return fail_in_file(load, NULL); /* the file's bytes may be gone */
    load->models[load->model_count++] = model;
    if (keep_nodes(load, model) != QD_OK)
        return end(load);
    give_back(load); /* before weights fill their memory */
    const struct qk_graph *graph = load->graph;
    if (graph == NULL)
        return end_version(load);
    load->constant_pages =
        qd_constant_pages_find(&load->build.graph.call, graph, &load->sources.version_arena);
    load->next_step = end_version;
    set_phase(load, run_pack, graph->pack_unit_count, graph->pack_unit_cost_ns,
              qd_scheduler_shares(graph->pack_unit_count, graph->pack_unit_cost_ns,
                                  load->tools->thread_count));
    return true;
}

static bool end_version(struct qd_load *load)
{
    if (++load->version < load->sources.version_count)
        return begin_version(load);
    return end(load);
}

/* ---- The job ------------------------------------------------------------------------------ */

static bool start(struct qd_job *job)
{
    struct qd_load *load = load_of(job);
    struct qd_request *request = load->request;
    struct qd_sources *sources = &load->sources;
    job->level = QD_LEVEL_DEFAULT;
    job->deadline_ns = load->timeout_ns == 0 ? UINT64_MAX : qd_clock_ns() + load->timeout_ns;
    if (request != NULL) {
        qd_request_advance(request, QD_DECODING);
        sources->body = request->body.bytes;
        sources->body_bytes = (size_t)request->body.count;
        sources->json_bytes_header = request->oip.message.json_bytes_header;
        sources->json_bytes = (size_t)request->oip.message.json_bytes;
    }
    if (load->error.status != QD_OK || qd_sources_open(sources, &load->error) != QD_OK)
        return end(load);
    load->from_repository = sources->from_repository;
    load->fingerprint = sources->folder.fingerprint;
    return begin_version(load);
}

static void on_running(struct qd_job *job, bool running)
{
    struct qd_request *request = load_of(job)->request;
    if (request != NULL)
        qd_request_advance(request, running ? QD_RUNNING : QD_QUEUED);
}

static void expire(struct qd_job *job)
{
    struct qd_load *load = load_of(job);
    qd_fail_for(&load->error, QD_REASON_COMPUTE_TIMEOUT, QD_UNAVAILABLE,
                "the load: expected to end within %llu ms (--compute-timeout); it did not",
                (unsigned long long)(load->timeout_ns / QD_NS_PER_MS));
    end(load);
}

static void cancel(struct qd_job *job)
{
    qd_fail_for(&load_of(job)->error, QD_REASON_SHUTDOWN, QD_UNAVAILABLE, "the server shuts down");
}

static void done(struct qd_job *job)
{
    struct qd_load *load = load_of(job);
    load->on_done(load);
}

bool qd_load_submit(struct qd_load *load)
{
    static const struct qd_job_code code = {
        .start = start, .on_running = on_running, .expire = expire, .cancel = cancel, .done = done};
    return qd_scheduler_submit(load->tools->scheduler, load->tools->loop, &load->job, &code, 0,
                               UINT64_MAX);
}
