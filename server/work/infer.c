#include "server/work/infer.h"

#include "server/base/clock.h"
#include "server/base/limits.h"
#include "server/base/refusal.h"
#include "server/base/text.h"
#include "server/oip/encode.h"

enum {
    /* What takes some 10 us at a time: JSON to read, numbers to print, constants to look at, nodes
     * to plan. */
    BRIEF_JSON_BYTES = 4 << 10,
    BRIEF_NUMBERS = 512,
    BRIEF_BODY_BYTES = 1 << 20,
    BRIEF_NODES = 8,
    /* And some 100 us: read in one go, without a phase of its own. */
    SHORT_JSON_BYTES = 32 << 10,
    STEP_JSON_BYTES = 64 << 10, /* that the reader takes at a time, more or less */
    STEP_NS = 100000,
};

static void *alloc(void *context, size_t bytes)
{
    return qd_arena_alloc(context, bytes);
}

static enum qd_status refuse_memory(struct qd_request *request, const char *what)
{
    return qd_refuse_memory(&request->arena, what, &request->error);
}

static enum qd_status fail_kernel(struct qd_request *request, const struct qk_error *error)
{
    switch (error->status) {
    case QK_NO_MEMORY:
        return refuse_memory(request, "the operator");
    case QK_INVALID:
        return qd_fail(&request->error, QD_INVALID, "%s", error->text);
    default:
        return qd_fail(&request->error, QD_INTERNAL, "%s", error->text);
    }
}

static struct qd_request *request_of(struct qd_job *job)
{
    return (struct qd_request *)((char *)job - offsetof(struct qd_request, job));
}

static size_t json_bytes(const struct qd_request *request)
{
    const char *header = request->message.json_bytes_header;
    uint64_t bytes;
    if (header == NULL || !qd_read_decimal(header, &bytes))
        bytes = UINT64_MAX;
    return bytes < request->body_bytes ? (size_t)bytes : (size_t)request->body_bytes;
}

/* ---- Phases ------------------------------------------------------------------------------- */

typedef void run_units(struct qd_job *job, void *workspace, size_t begin, size_t end);

/* How many workers may be at so many units. */
static size_t shares(const struct qd_request *request, size_t unit_count, uint64_t unit_cost_ns)
{
    return qd_scheduler_shares(unit_count, unit_cost_ns, request->thread_count);
}

/* The request is a worker's alone. */
static void enter(struct qd_request *request, enum qd_request_state state)
{
    request->doing = state;
    if (request->state != state)
        qd_request_advance(request, state);
}

/* True, as a `then` says that it has set a phase. */
static bool set_phase(struct qd_request *request, run_units *run, bool (*then)(struct qd_job *job),
                      size_t unit_count, uint64_t unit_cost_ns, size_t seat_count)
{
    request->job.phase = (struct qd_phase){
        .run = run,
        .then = then,
        .unit_count = unit_count,
        .unit_cost_ns = unit_cost_ns,
        .seats = request->seats,
        .seat_count = seat_count,
    };
    return true;
}

/* ---- 1. Reading --------------------------------------------------------------------------- */

static unsigned level_of(uint64_t priority)
{
    if (priority == 0)
        return QD_LEVEL_DEFAULT;
    return priority < QD_LEVEL_LAST ? (unsigned)priority : QD_LEVEL_LAST;
}

static bool waited_too_long(const struct qd_request *request)
{
    return request->asked.timeout_us > 0 &&
           request->spent_ns[QD_QUEUED] / QD_NS_PER_US > request->asked.timeout_us;
}

static enum qd_status refuse_wait(struct qd_request *request)
{
    return qd_fail(&request->error, QD_UNAVAILABLE,
                   "timeout: it waited %llu us for a worker, and parameters.timeout allows %llu",
                   (unsigned long long)(request->spent_ns[QD_QUEUED] / QD_NS_PER_US),
                   (unsigned long long)request->asked.timeout_us);
}

/* The next step, of some STEP_JSON_BYTES; at the end, what the JSON says about the wait. */
static enum qd_status read_step(struct qd_request *request)
{
    const enum qd_status status = qd_oip_reader_step(request->reader, &request->read);
    if (status != QD_OK || !request->read)
        return status;
    request->job.level = level_of(request->asked.priority);
    return waited_too_long(request) ? refuse_wait(request) : QD_OK;
}

static bool plan_all(struct qd_request *request);

static bool after_convert(struct qd_job *job)
{
    struct qd_request *request = request_of(job);
    return qd_oip_reader_end(request->reader) == QD_OK && plan_all(request);
}

static void run_convert(struct qd_job *job, void *workspace, size_t begin, size_t end)
{
    (void)workspace;
    qd_oip_reader_convert(request_of(job)->reader, begin, end);
}

static void run_read(struct qd_job *job, void *workspace, size_t begin, size_t end)
{
    struct qd_request *request = request_of(job);
    (void)workspace;
    for (size_t i = begin; i < end && !request->read && request->error.status == QD_OK; i++)
        read_step(request);
}

/* It takes as many steps as it takes: then there is another phase of them. */
static bool after_read(struct qd_job *job)
{
    struct qd_request *request = request_of(job);
    if (request->error.status != QD_OK)
        return false;
    if (!request->read)
        return true;
    const size_t unit_count = qd_oip_reader_unit_count(request->reader);
    const uint64_t cost_ns = qd_oip_reader_unit_cost_ns(request->reader);
    return set_phase(request, run_convert, after_convert, unit_count, cost_ns,
                     shares(request, unit_count, cost_ns));
}

static bool read_at_once(struct qd_request *request)
{
    while (!request->read)
        if (read_step(request) != QD_OK)
            return false;
    qd_oip_reader_convert(request->reader, 0, qd_oip_reader_unit_count(request->reader));
    return after_convert(&request->job);
}

static bool start(struct qd_job *job)
{
    struct qd_request *request = request_of(job);
    enter(request, QD_DECODING);
    request->reader =
        qd_oip_reader_create(&request->message, &request->arena, &request->asked, &request->error);
    if (request->reader == NULL)
        return false;
    request->seats =
        qd_arena_calloc(&request->arena, request->thread_count, sizeof(*request->seats));
    if (request->seats == NULL) {
        refuse_memory(request, "the workspace");
        return false;
    }
    if (json_bytes(request) <= SHORT_JSON_BYTES)
        return read_at_once(request);
    return set_phase(request, run_read, after_read, json_bytes(request) / STEP_JSON_BYTES + 1,
                     STEP_NS, 1);
}

/* ---- 2. Planning -------------------------------------------------------------------------- */

/* What comes out, for which nobody has asked for memory yet, against what came. A loaded model does
 * what its owner chose, and an operator what the request says. */
static enum qd_status check_outputs(struct qd_request *request)
{
    const struct qk_graph_plan *plan = request->plan;
    const bool built_in = request->model->graph == NULL;
    size_t bytes_max = QD_ANSWER_BYTES_MAX;
    if (built_in && request->body_bytes < (bytes_max - QD_GROWTH_BYTES_MIN) / QD_GROWTH_MAX)
        bytes_max = QD_GROWTH_BYTES_MIN + (size_t)request->body_bytes * QD_GROWTH_MAX;
    size_t bytes = 0;
    for (size_t i = 0; i < plan->output_count; i++)
        if (__builtin_add_overflow(bytes, plan->output_bytes[i], &bytes))
            bytes = SIZE_MAX;
    if (bytes <= bytes_max)
        return QD_OK;
    if (bytes_max == QD_ANSWER_BYTES_MAX) {
        return qd_fail(&request->error, QD_TOO_LARGE,
                       "the output: expected at most %zu bytes, which clients can read, got %zu",
                       bytes_max, bytes);
    }
    return qd_fail(&request->error, QD_TOO_LARGE,
                   "the output: expected at most %zu bytes, %u MiB and %d times the request's "
                   "bytes, got %zu",
                   bytes_max, QD_GROWTH_BYTES_MIN >> 20, QD_GROWTH_MAX, bytes);
}

/* Room for what comes out, and for what nodes hand on to one another. */
static enum qd_status take_outputs(struct qd_request *request)
{
    const struct qk_graph_plan *plan = request->plan;
    if (check_outputs(request) != QD_OK)
        return request->error.status;
    for (size_t i = 0; i < plan->output_count; i++) {
        request->outputs[i] = qd_arena_alloc(&request->arena, plan->output_bytes[i]);
        if (request->outputs[i] == NULL)
            return refuse_memory(request, "the output");
    }
    if (plan->scratch_bytes == 0)
        return QD_OK;
    request->scratch = qd_arena_alloc(&request->arena, plan->scratch_bytes);
    return request->scratch != NULL ? QD_OK : refuse_memory(request, "the intermediate tensors");
}

/* A request that brings constants makes a graph of its own, which is not packed yet. */
static enum qk_status plan_own(struct qd_request *request, struct qk_error *error)
{
    const struct qd_late_graph *late = request->model->late;
    struct qk_memory memory = {alloc, &request->arena};
    struct qk_instance *instance;
    enum qk_status status =
        late != NULL ? qd_late_prepare(late, request->kernels, request->asked.inputs, memory,
                                       &request->graph, error)
                     : qk_prepare(request->kernels, &request->asked.call, memory, &instance, error);
    if (status == QK_OK && late == NULL)
        status = qk_graph_of(instance, memory, &request->graph, error);
    if (status == QK_OK)
        status =
            qk_graph_plan(request->graph, request->asked.inputs, memory, &request->own_plan, error);
    request->plan = &request->own_plan;
    return status;
}

static enum qk_status plan_loaded(struct qd_request *request, struct qk_error *error)
{
    enum qk_status status = qd_plans_pin(request->model->plans, request->asked.inputs,
                                         &request->arena, &request->pin, error);
    request->plan = request->pin.plan;
    return status;
}

static enum qd_status plan(struct qd_request *request)
{
    struct qk_error error = {.status = QK_OK};
    const enum qk_status status =
        request->model->graph == NULL ? plan_own(request, &error) : plan_loaded(request, &error);
    if (status != QK_OK)
        return fail_kernel(request, &error);
    for (size_t i = 0; i < request->asked.signature->input_count; i++)
        request->inputs[i] = request->asked.inputs[i].data;
    return take_outputs(request);
}

/* Units to print: numbers of outputs that are large, and JSON. */
static size_t print_unit_count(const struct qd_request *request)
{
    const uint32_t json = request->asked.outputs & ~request->asked.binary_outputs;
    size_t count = 0;
    for (size_t i = 0; i < request->plan->output_count; i++)
        if ((json >> i & 1) != 0 && request->plan->outputs[i].count > QD_OIP_UNIT_NUMBERS)
            count += request->plan->outputs[i].count / QD_OIP_UNIT_NUMBERS + 1;
    return count;
}

/* Workspaces for as many workers as a phase is worth, as far as there is memory; one is enough. */
static enum qd_status make_workspaces(struct qd_request *request)
{
    const struct qk_graph_plan *plan = request->plan;
    const size_t prints = print_unit_count(request);
    size_t wanted = shares(request, prints, QD_OIP_UNIT_NS);
    size_t bytes = plan->workspace_bytes;
    if (prints > 0 && bytes < QD_OIP_PRINT_BYTES)
        bytes = QD_OIP_PRINT_BYTES;
    for (size_t i = 0; i < plan->node_count; i++) {
        const struct qk_plan *node = &plan->nodes[i].plan;
        const size_t worth = shares(request, node->unit_count, node->unit_cost_ns);
        wanted = worth > wanted ? worth : wanted;
    }
    while (request->seat_count < wanted) {
        void *workspace = qd_arena_alloc(&request->arena, bytes);
        if (workspace == NULL)
            break;
        request->seats[request->seat_count++].workspace = workspace;
    }
    return request->seat_count > 0 ? QD_OK : refuse_memory(request, "the workspace");
}

/* The phase for which there are workspaces. */
static bool set_wide_phase(struct qd_request *request, run_units *run,
                           bool (*then)(struct qd_job *job), size_t unit_count,
                           uint64_t unit_cost_ns)
{
    const size_t wanted = shares(request, unit_count, unit_cost_ns);
    return set_phase(request, run, then, unit_count, unit_cost_ns,
                     wanted < request->seat_count ? wanted : request->seat_count);
}

/* As is_brief, of the answer. */
static bool has_brief_answer(const struct qd_request *request)
{
    const uint32_t json = request->asked.outputs & ~request->asked.binary_outputs;
    size_t count = 0;
    for (size_t i = 0; i < request->plan->output_count; i++)
        count += (json >> i & 1) != 0 ? request->plan->outputs[i].count : 0;
    return count <= BRIEF_NUMBERS;
}

static bool pack(struct qd_request *request);

/* All that computing needs memory for comes first: what fails later is only the answer's text. */
static bool after_plan(struct qd_job *job)
{
    struct qd_request *request = request_of(job);
    if (request->error.status != QD_OK || make_workspaces(request) != QD_OK)
        return false;
    job->brief = job->brief && has_brief_answer(request);
    return pack(request);
}

static void run_plan(struct qd_job *job, void *workspace, size_t begin, size_t end)
{
    (void)workspace;
    (void)begin;
    (void)end;
    plan(request_of(job));
}

/* A phase of its own where much has been read: to give way before it. */
static bool plan_all(struct qd_request *request)
{
    if (request->body_bytes > BRIEF_BODY_BYTES)
        return set_phase(request, run_plan, after_plan, 1, QD_QUANTUM_NS, 1);
    plan(request);
    return after_plan(&request->job);
}

/* ---- 3. Computing ------------------------------------------------------------------------- */

static bool write_answer(struct qd_request *request);
static bool compute(struct qd_request *request);

static void run_node(struct qd_job *job, void *workspace, size_t begin, size_t end)
{
    const struct qd_request *request = request_of(job);
    qk_graph_run(request->plan, request->node, request->inputs, request->outputs, request->scratch,
                 workspace, begin, end);
}

static bool after_node(struct qd_job *job)
{
    struct qd_request *request = request_of(job);
    return ++request->node < request->plan->node_count ? compute(request) : write_answer(request);
}

static bool compute(struct qd_request *request)
{
    const struct qk_plan *plan = &request->plan->nodes[request->node].plan;
    return set_wide_phase(request, run_node, after_node, plan->unit_count, plan->unit_cost_ns);
}

static void run_pack(struct qd_job *job, void *workspace, size_t begin, size_t end)
{
    (void)workspace;
    qk_graph_pack(request_of(job)->graph, begin, end);
}

static bool after_pack(struct qd_job *job)
{
    return compute(request_of(job));
}

static bool pack(struct qd_request *request)
{
    const struct qk_graph *graph = request->graph;
    enter(request, QD_RUNNING);
    if (graph == NULL || graph->pack_unit_count == 0)
        return compute(request);
    return set_phase(request, run_pack, after_pack, graph->pack_unit_count,
                     graph->pack_unit_cost_ns,
                     shares(request, graph->pack_unit_count, graph->pack_unit_cost_ns));
}

/* ---- 4. The answer ------------------------------------------------------------------------ */

static bool after_print(struct qd_job *job)
{
    struct qd_request *request = request_of(job);
    uint64_t stage_ns[QD_STAGE_COUNT];
    qd_request_stages(request, stage_ns);
    if (qd_oip_writer_end(request->writer, stage_ns, &request->answer) == QD_OK)
        qd_request_reply(request);
    return false;
}

static void run_print(struct qd_job *job, void *workspace, size_t begin, size_t end)
{
    qd_oip_writer_print(request_of(job)->writer, workspace, begin, end);
}

static bool write_answer(struct qd_request *request)
{
    enter(request, QD_ENCODING);
    const struct qk_graph_plan *plan = request->plan;
    struct qk_tensor *outputs =
        qd_arena_alloc(&request->arena, plan->output_count * sizeof(*outputs));
    if (outputs == NULL) {
        refuse_memory(request, "the answer");
        return false;
    }
    for (size_t i = 0; i < plan->output_count; i++) {
        outputs[i] = plan->outputs[i];
        outputs[i].data = request->outputs[i];
    }
    request->writer = qd_oip_writer_create(&request->asked, plan->kernel, outputs, &request->arena,
                                           &request->error);
    if (request->writer == NULL)
        return false;
    const size_t unit_count = qd_oip_writer_unit_count(request->writer);
    if (unit_count == 0)
        return after_print(&request->job);
    return set_wide_phase(request, run_print, after_print, unit_count, QD_OIP_UNIT_NS);
}

/* ---- The job ------------------------------------------------------------------------------ */

/* Before it computes, it waits no longer than it wants. */
static void on_running(struct qd_job *job, bool running)
{
    struct qd_request *request = request_of(job);
    const enum qd_request_state state = running ? request->doing : QD_QUEUED;
    if (request->state != state)
        qd_request_advance(request, state);
    job->wait_until_ns = 0;
    if (running || !request->read || request->asked.timeout_us == 0 ||
        request->spent_ns[QD_RUNNING] > 0)
        return;
    const uint64_t waited_us = request->spent_ns[QD_QUEUED] / QD_NS_PER_US;
    const uint64_t left_us =
        request->asked.timeout_us < waited_us ? 0 : request->asked.timeout_us - waited_us;
    if (left_us < (UINT64_MAX - request->since_ns) / QD_NS_PER_US)
        job->wait_until_ns = request->since_ns + left_us * QD_NS_PER_US;
}

static void expire(struct qd_job *job)
{
    struct qd_request *request = request_of(job);
    if (request->read && request->spent_ns[QD_RUNNING] == 0 && waited_too_long(request)) {
        refuse_wait(request);
        return;
    }
    qd_fail(&request->error, QD_UNAVAILABLE,
            "the request: expected an answer within %llu ms (--compute-timeout); it takes longer",
            (unsigned long long)(request->compute_timeout_ns / QD_NS_PER_MS));
}

static void cancel(struct qd_job *job)
{
    struct qd_request *request = request_of(job);
    qd_fail(&request->error, QD_UNAVAILABLE,
            request->abandoned ? "the client has gone" : "the server shuts down");
}

/* The scheduler has no hand in it any more, and no worker. */
static void done(struct qd_job *job)
{
    struct qd_request *request = request_of(job);
    qd_oip_writer_deinit(request->writer);
    if (request->pin.plan != NULL)
        qd_plans_unpin(request->model->plans, &request->pin);
    if (request->error.status == QD_UNAVAILABLE)
        request->retry_after_s = qd_scheduler_retry_after_s(request->scheduler);
    request->scheduler = NULL;
    if (request->error.status != QD_OK)
        qd_request_refuse(request);
    request->on_answered(request);
}

bool qd_infer_try_room(struct qd_scheduler *scheduler, struct qd_request *request)
{
    if (qd_scheduler_is_abandoned(scheduler)) {
        qd_fail(&request->error, QD_UNAVAILABLE, "the server shuts down");
        return false;
    }
    if (!qd_scheduler_has_room(scheduler)) {
        request->retry_after_s = qd_scheduler_retry_after_s(scheduler);
        qd_fail(&request->error, QD_UNAVAILABLE,
                "the queue is full (--max-queue): %zu requests wait; try again later",
                qd_scheduler_queue_count(scheduler));
        return false;
    }
    return true;
}

/* Whether all that is before the first unit ends before another thread would begin. */
static bool is_brief(const struct qd_request *request)
{
    const struct qd_model *model = request->model;
    return request->body_bytes <= BRIEF_BODY_BYTES && json_bytes(request) <= BRIEF_JSON_BYTES &&
           model->late == NULL && (model->graph == NULL || model->graph->node_count <= BRIEF_NODES);
}

bool qd_infer_submit(struct qd_scheduler *scheduler, struct qd_request *request)
{
    static const struct qd_job_code code = {start, on_running, expire, cancel, done};
    if (!qd_infer_try_room(scheduler, request))
        return false;
    request->message.body = request->body;
    request->message.body_bytes = (size_t)request->body_bytes;
    qd_request_advance(request, QD_QUEUED);
    request->scheduler = scheduler; /* there is room, and on this thread alone it is taken */
    return qd_scheduler_submit(scheduler, &request->job, &code, is_brief(request),
                               request->since_ns + request->compute_timeout_ns);
}
