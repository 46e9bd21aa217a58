#include "server/infer.h"

#include "server/clock.h"
#include "server/limits.h"
#include "server/oip_encode.h"
#include "server/refusal.h"

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

static enum qd_status take_outputs(struct qd_request *request)
{
    const struct qk_plan *plan = &request->plan;
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
    return QD_OK;
}

/* From a decoded call to an instance, which is not packed yet, its plan, and room for what comes
 * out. */
static enum qd_status plan(struct qd_request *request)
{
    const struct qk_call *call = &request->infer.call;
    struct qk_error error = {.status = QK_OK};
    struct qk_memory memory = {alloc, &request->arena};
    enum qk_status status = qk_prepare(request->kernels, call, memory, &request->instance, &error);
    if (status == QK_OK)
        status = qk_plan(request->instance, call->inputs, memory, &request->plan, &error);
    if (status != QK_OK)
        return fail_kernel(request, &error);
    for (size_t i = 0; i < call->op->input_count; i++)
        request->inputs[i] = call->inputs[i].data;
    return take_outputs(request);
}

static void encode(struct qd_request *request)
{
    qd_request_advance(request, QD_ENCODING);
    struct qk_plan *plan = &request->plan;
    for (size_t i = 0; i < plan->output_count; i++)
        plan->outputs[i].data = request->outputs[i];
    struct qd_oip_stages stages = {
        .receive_ns = request->spent_ns[QD_READING],
        .queue_ns = request->spent_ns[QD_QUEUED],
        .decode_ns = request->spent_ns[QD_DECODING],
        .compute_ns = request->spent_ns[QD_RUNNING],
    };
    enum qd_status status =
        qd_oip_encode_infer(&request->infer, plan->kernel, plan->outputs, &stages, &request->arena,
                            &request->answer, &request->error);
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
    qk_pack(request_of(job)->instance, begin, end);
}

static bool after_pack(struct qd_job *job)
{
    job->phase = request_of(job)->computing;
    return true;
}

static void run_compute(struct qd_job *job, void *workspace, size_t begin, size_t end)
{
    const struct qd_request *request = request_of(job);
    qk_run(&request->plan, request->inputs, request->outputs, workspace, begin, end);
}

static bool after_compute(struct qd_job *job)
{
    encode(request_of(job));
    return false;
}

/* Seats for as many workers as a phase is worth, as far as there is memory; one is enough. */
static enum qd_status make_seats(struct qd_request *request, struct qd_phase *phase,
                                 size_t workspace_bytes)
{
    size_t wanted =
        qd_scheduler_shares(phase->unit_count, phase->unit_cost_ns, request->thread_count);
    phase->seats = qd_arena_calloc(&request->arena, wanted, sizeof(*phase->seats));
    while (phase->seats != NULL && phase->seat_count < wanted) {
        void *workspace = qd_arena_alloc(&request->arena, workspace_bytes);
        if (workspace == NULL)
            break;
        phase->seats[phase->seat_count++].workspace = workspace;
    }
    return phase->seat_count > 0 ? QD_OK : refuse_memory(request, "the workspace");
}

/* All that needs memory comes first: from here on nothing fails. */
static enum qd_status make_phases(struct qd_request *request)
{
    const struct qk_instance *instance = request->instance;
    struct qd_phase packing = {
        .run = run_pack,
        .then = after_pack,
        .unit_count = instance->pack_unit_count,
        .unit_cost_ns = instance->pack_unit_cost_ns,
    };
    request->computing = (struct qd_phase){
        .run = run_compute,
        .then = after_compute,
        .unit_count = request->plan.unit_count,
        .unit_cost_ns = request->plan.unit_cost_ns,
    };
    if (make_seats(request, &request->computing, request->plan.workspace_bytes) != QD_OK)
        return request->error.status;
    if (packing.unit_count > 0 && make_seats(request, &packing, 0) != QD_OK)
        return request->error.status;
    request->job.phase = packing.unit_count > 0 ? packing : request->computing;
    return QD_OK;
}

static bool start(struct qd_job *job)
{
    struct qd_request *request = request_of(job);
    qd_request_advance(request, QD_DECODING);
    job->deadline_ns = qd_clock_ns() + request->compute_timeout_ns;
    return decode(request) == QD_OK && plan(request) == QD_OK && make_phases(request) == QD_OK;
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
    qd_fail(&request_of(job)->error, QD_UNAVAILABLE, "the server shuts down");
}

static void done(struct qd_job *job)
{
    struct qd_request *request = request_of(job);
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
    return qd_scheduler_submit(scheduler, &request->job, &code);
}
