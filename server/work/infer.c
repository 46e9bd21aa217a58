#include "server/work/infer.h"

#include <stdlib.h>

#include "server/base/clock.h"
#include "server/base/limits.h"
#include "server/base/refusal.h"
#include "server/oip/encode.h"

/* What takes some 10 us at a time: JSON to read, numbers to print, constants to look at, nodes to
 * plan. */
enum {
    BRIEF_JSON_BYTES = 4 << 10,
    BRIEF_NUMBERS = 512,
    BRIEF_BODY_BYTES = 1 << 20,
    BRIEF_NODES = 8,
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

/* To the end of the wait; the parameter `timeout` bounds it. */
static enum qd_status decode(struct qd_request *request)
{
    enum qd_status status =
        qd_oip_decode(&request->message, &request->arena, &request->infer, &request->error);
    uint64_t waited_us = request->spent_ns[QD_QUEUED] / QD_NS_PER_US;
    if (status == QD_OK && request->infer.timeout_us > 0 && waited_us > request->infer.timeout_us) {
        return qd_fail(&request->error, QD_UNAVAILABLE,
                       "timeout: it waited %llu us for a worker, and parameters.timeout allows "
                       "%llu",
                       (unsigned long long)waited_us,
                       (unsigned long long)request->infer.timeout_us);
    }
    return status;
}

/* Room for what comes out, and for what stages hand on to one another. */
static enum qd_status take_outputs(struct qd_request *request)
{
    const struct qk_graph_plan *plan = request->plan;
    size_t left = QD_ANSWER_BYTES_MAX;
    for (size_t i = 0; i < plan->output_count; i++) {
        const size_t bytes = plan->output_bytes[i];
        if (bytes > left) {
            return qd_fail(&request->error, QD_TOO_LARGE,
                           "the output: expected at most %zu bytes, which clients can read, got "
                           "%zu",
                           left, bytes);
        }
        left -= bytes;
        request->outputs[i] = qd_arena_alloc(&request->arena, bytes);
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
        late != NULL ? qd_late_prepare(late, request->kernels, request->infer.inputs, memory,
                                       &request->graph, error)
                     : qk_prepare(request->kernels, &request->infer.call, memory, &instance, error);
    if (status == QK_OK && late == NULL)
        status = qk_graph_of(instance, memory, &request->graph, error);
    if (status == QK_OK)
        status =
            qk_graph_plan(request->graph, request->infer.inputs, memory, &request->own_plan, error);
    request->plan = &request->own_plan;
    return status;
}

static enum qk_status plan_loaded(struct qd_request *request, struct qk_error *error)
{
    enum qk_status status = qd_plans_pin(request->model->plans, request->infer.inputs,
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
    for (size_t i = 0; i < request->infer.signature->input_count; i++)
        request->inputs[i] = request->infer.inputs[i].data;
    return take_outputs(request);
}

static void encode(struct qd_request *request)
{
    qd_request_advance(request, QD_ENCODING);
    const struct qk_graph_plan *plan = request->plan;
    struct qk_tensor *outputs =
        qd_arena_alloc(&request->arena, plan->output_count * sizeof(*outputs));
    if (outputs == NULL) {
        refuse_memory(request, "the answer");
        return;
    }
    for (size_t i = 0; i < plan->output_count; i++) {
        outputs[i] = plan->outputs[i];
        outputs[i].data = request->outputs[i];
    }
    struct qd_oip_stages stages = {
        .receive_ns = request->spent_ns[QD_READING],
        .queue_ns = request->spent_ns[QD_QUEUED],
        .decode_ns = request->spent_ns[QD_DECODING],
        .compute_ns = request->spent_ns[QD_RUNNING],
    };
    enum qd_status status = qd_oip_encode_infer(&request->infer, plan->kernel, outputs, &stages,
                                                &request->arena, &request->answer, &request->error);
    if (status == QD_OK)
        qd_request_reply(request);
}

static struct qd_request *request_of(struct qd_job *job)
{
    return (struct qd_request *)((char *)job - offsetof(struct qd_request, job));
}

/* ---- Phases ------------------------------------------------------------------------------- */

static void run_pack(struct qd_job *job, void *workspace, size_t begin, size_t end)
{
    (void)workspace;
    qk_graph_pack(request_of(job)->graph, begin, end);
}

static void run_stage(struct qd_job *job, void *workspace, size_t begin, size_t end)
{
    const struct qd_request *request = request_of(job);
    qk_graph_run(request->plan, request->stage, request->inputs, request->outputs, request->scratch,
                 workspace, begin, end);
}

static bool after_stage(struct qd_job *job);

static size_t shares(const struct qd_request *request, size_t unit_count, uint64_t unit_cost_ns)
{
    return qd_scheduler_shares(unit_count, unit_cost_ns, request->thread_count);
}

static struct qd_phase stage_phase(const struct qd_request *request)
{
    const struct qk_plan *plan = &request->plan->stages[request->stage].plan;
    const size_t wanted = shares(request, plan->unit_count, plan->unit_cost_ns);
    return (struct qd_phase){
        .run = run_stage,
        .then = after_stage,
        .unit_count = plan->unit_count,
        .unit_cost_ns = plan->unit_cost_ns,
        .seats = request->seats,
        .seat_count = wanted < request->seat_count ? wanted : request->seat_count,
    };
}

static bool after_stage(struct qd_job *job)
{
    struct qd_request *request = request_of(job);
    if (++request->stage == request->plan->stage_count) {
        encode(request);
        return false;
    }
    job->phase = stage_phase(request);
    return true;
}

static bool after_pack(struct qd_job *job)
{
    job->phase = stage_phase(request_of(job));
    return true;
}

/* Workspaces for as many workers as a stage is worth, as far as there is memory; one is enough. */
static enum qd_status make_seats(struct qd_request *request, size_t pack_count)
{
    const struct qk_graph_plan *plan = request->plan;
    size_t wanted = 1;
    for (size_t i = 0; i < plan->stage_count; i++) {
        const struct qk_plan *stage = &plan->stages[i].plan;
        const size_t worth = shares(request, stage->unit_count, stage->unit_cost_ns);
        wanted = worth > wanted ? worth : wanted;
    }
    request->seats = qd_arena_calloc(&request->arena, wanted > pack_count ? wanted : pack_count,
                                     sizeof(*request->seats));
    while (request->seats != NULL && request->seat_count < wanted) {
        void *workspace = qd_arena_alloc(&request->arena, plan->workspace_bytes);
        if (workspace == NULL)
            break;
        request->seats[request->seat_count++].workspace = workspace;
    }
    return request->seat_count > 0 ? QD_OK : refuse_memory(request, "the workspace");
}

/* All that needs memory comes first: from here on nothing fails before the answer. */
static enum qd_status make_phases(struct qd_request *request)
{
    const struct qk_graph *graph = request->graph;
    size_t pack_count = 0;
    if (graph != NULL && graph->pack_unit_count > 0)
        pack_count = shares(request, graph->pack_unit_count, graph->pack_unit_cost_ns);
    if (make_seats(request, pack_count) != QD_OK)
        return request->error.status;
    request->job.phase = stage_phase(request);
    if (pack_count > 0) {
        request->job.phase = (struct qd_phase){
            .run = run_pack,
            .then = after_pack,
            .unit_count = graph->pack_unit_count,
            .unit_cost_ns = graph->pack_unit_cost_ns,
            .seats = request->seats,
            .seat_count = pack_count,
        };
    }
    return QD_OK;
}

/* Whether all that is before the first unit ends before another thread would begin. */
static bool is_brief(const struct qd_request *request)
{
    const struct qd_model *model = request->model;
    const char *json = request->message.json_bytes_header;
    return request->body_bytes <= BRIEF_BODY_BYTES &&
           (json == NULL ? request->body_bytes : strtoull(json, NULL, 10)) <= BRIEF_JSON_BYTES &&
           model->late == NULL && (model->graph == NULL || model->graph->node_count <= BRIEF_NODES);
}

/* The same of the answer. */
static bool has_brief_answer(const struct qd_request *request)
{
    const uint32_t json = request->infer.outputs & ~request->infer.binary_outputs;
    size_t count = 0;
    for (size_t i = 0; i < request->plan->output_count; i++)
        count += (json >> i & 1) != 0 ? request->plan->outputs[i].count : 0;
    return count <= BRIEF_NUMBERS;
}

static bool start(struct qd_job *job)
{
    struct qd_request *request = request_of(job);
    qd_request_advance(request, QD_DECODING);
    if (decode(request) != QD_OK || plan(request) != QD_OK || make_phases(request) != QD_OK)
        return false;
    job->brief = job->brief && has_brief_answer(request);
    return true;
}

static void on_running(struct qd_job *job, bool running)
{
    qd_request_advance(request_of(job), running ? QD_RUNNING : QD_QUEUED);
}

static void expire(struct qd_job *job)
{
    struct qd_request *request = request_of(job);
    qd_fail(&request->error, QD_UNAVAILABLE,
            "the computation: expected to end within %llu ms (--compute-timeout); it did not",
            (unsigned long long)(request->compute_timeout_ns / QD_NS_PER_MS));
}

static void cancel(struct qd_job *job)
{
    struct qd_request *request = request_of(job);
    qd_fail(&request->error, QD_UNAVAILABLE,
            request->abandoned ? "the client has gone" : "the server shuts down");
}

static void done(struct qd_job *job)
{
    struct qd_request *request = request_of(job);
    request->scheduler = NULL;
    if (request->pin.plan != NULL)
        qd_plans_unpin(request->model->plans, &request->pin);
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
        qd_fail(&request->error, QD_UNAVAILABLE,
                "the queue is full (--max-queue): %zu requests wait; try again later",
                qd_scheduler_queue_count(scheduler));
        return false;
    }
    return true;
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
